//! A result in short: what a model reads first, and where the rest is (CTX-6, 8, 9).
//!
//! [`result_to_envelope`] is pure and total. It reads what a server sent, takes out what can be kept for later as
//! [`NewArtifact`]s, and says in a few hundred characters what there is. Handles come from the store.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portcullis_core::canon::to_jcs;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::handle::Handle;
use crate::outline;
use crate::part::{Content, Part};
use crate::result::CallToolResult;
use crate::summary;

/// How a call went, as far as its result tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should.
    Ok,
    /// A part could not be read or kept.
    Partial,
    /// The tool says it failed.
    Error,
}

/// A result in short. Field for field what the full form shows, in this order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResultEnvelope {
    /// How it went.
    pub status: Status,
    /// The beginning, or what there is instead of text.
    pub summary: String,
    /// Lines that say `key: value`.
    pub facts: Vec<String>,
    /// Where the rest is.
    pub artifacts: Vec<ArtifactRef>,
    /// The selectors that apply to some of it.
    pub views: Vec<&'static str>,
    /// What its JSON looks like.
    pub shape: Option<String>,
    /// Where it is from.
    pub provenance: Provenance,
    /// How much was left out.
    pub stats: Stats,
}

/// An artifact, as an envelope names it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArtifactRef {
    /// What to ask for.
    pub handle: Handle,
    /// What kind of bytes.
    pub media_type: String,
    /// How many.
    pub size_bytes: u64,
    /// What it is; empty for the text itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Lines, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// SHA-256 of the bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
}

/// Where a result is from.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Provenance {
    /// The tool's name.
    pub tool: String,
    /// Always `mcp`.
    pub protocol: &'static str,
    /// The id by which it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// What the server wrote on its parts. Recorded, not obeyed (CTX-9).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub content_annotations: Vec<Value>,
    /// What was mended in the arguments (CTX-90).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arg_repairs: Vec<Value>,
    /// Whether the server was not asked at all (CTX-92).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cache_hit: bool,
    /// How many secrets were taken out (CTX-42).
    #[serde(skip_serializing_if = "is_zero")]
    pub redactions: u64,
    /// Parts that could not be read or kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invalid_parts: Vec<usize>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// How much was left out, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Bytes of what the server sent for the model.
    pub original_bytes: u64,
    /// Bytes of what is shown for it.
    pub shown_bytes: u64,
    /// What was done.
    pub strategy: Strategy,
}

/// What was done with a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Nothing.
    Inline,
    /// Its beginning is shown.
    Summary,
    /// The paths its operator chose are shown (CTX-41).
    Projection,
}

/// Where in a result an artifact was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "uri")]
pub enum Source {
    /// Its text parts.
    Text,
    /// A picture.
    Image,
    /// A sound.
    Audio,
    /// A resource inside it.
    Resource(String),
    /// The name of a resource.
    Link,
    /// Its structured content.
    Structured,
    /// A part of unknown kind.
    Unknown,
}

/// Something worth keeping that has no handle yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewArtifact<'a> {
    /// The bytes.
    pub bytes: Cow<'a, [u8]>,
    /// What kind of bytes they are.
    pub media_type: String,
    /// What the server says a link leads to.
    pub declared_type: Option<String>,
    /// What it is.
    pub label: String,
    /// Which part it was; `None` for structured content.
    pub part_index: Option<usize>,
    /// What it was there.
    pub source: Source,
}

/// Takes a result apart: what a model reads first, what can be kept, and all of its text.
///
/// ```
/// use portcullis_context::{CallToolResult, result_to_envelope};
/// let json = r#"{"content":[{"type":"text","text":"ISSUE-42 opened"}],"structuredContent":{"count":42}}"#;
/// let result = CallToolResult::read(json);
/// let (envelope, artifacts, text) = result_to_envelope(&result, "create_issue");
/// assert_eq!(envelope.facts, ["count: 42"]);
/// assert_eq!(text, "ISSUE-42 opened\ncount: 42");
/// assert_eq!(artifacts[1].label, "mcp:create_issue:structured_content");
/// ```
pub fn result_to_envelope<'a>(
    result: &'a CallToolResult<'_>,
    tool: &str,
) -> (ResultEnvelope, Vec<NewArtifact<'a>>, String) {
    taken_apart(result, tool, Media::Kept)
}

/// What becomes of pictures, sounds and blobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    /// They become artifacts.
    Kept,
    /// They are shown beside the envelope, so it says nothing of them.
    Beside,
}

pub(crate) fn taken_apart<'a>(
    result: &'a CallToolResult<'_>,
    tool: &str,
    media: Media,
) -> (ResultEnvelope, Vec<NewArtifact<'a>>, String) {
    let mut taking = Taking { tool, artifacts: Vec::new(), invalid: Vec::new(), counted: Vec::new() };
    let texts: Vec<(usize, &str)> =
        result.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.text()?))).collect();
    let repeated = result.structured.is_some_and(|raw| texts.iter().any(|(_, text)| same_json(text, raw)));
    let plain: Vec<(usize, &str)> = (result.parts.iter().enumerate())
        .filter_map(|(i, part)| match &part.content {
            Content::Text(text) => Some((i, text.as_ref())),
            _ => None,
        })
        // What structured content says already is kept there.
        .filter(|(_, text)| !result.structured.is_some_and(|raw| same_json(text, raw)))
        .collect();
    taking.text(&plain);
    for (index, part) in result.parts.iter().enumerate() {
        if media == Media::Kept || part.base64().is_none() {
            taking.part(index, part);
        }
    }
    if let Some(raw) = result.structured {
        taking.structured(raw);
    }
    let Taking { artifacts, invalid, counted, .. } = taking;

    let mut facts = result.structured.map(|raw| summary::facts_of_object(raw.get())).unwrap_or_default();
    let mut full_text: String = texts
        .iter()
        .map(|(_, text)| *text)
        .chain(facts.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join("\n");
    if !repeated {
        summary::facts_of_text(texts.iter().map(|(_, text)| *text), &mut facts);
    }
    let json = artifacts.iter().find(|artifact| artifact.media_type == "application/json");
    let shape = json.and_then(|artifact| outline::outline(std::str::from_utf8(&artifact.bytes).ok()?));
    let summary = if full_text.is_empty() {
        summary::without_text(&counted, &artifacts, result.parts.is_empty() && result.structured.is_none())
    } else {
        summary::of_text(&full_text, &counted)
    };
    let status = match (result.is_error, invalid.is_empty()) {
        (true, _) => Status::Error,
        (false, true) => Status::Ok,
        (false, false) => Status::Partial,
    };
    let annotations = result.parts.iter().enumerate().filter_map(|(index, part)| annotated(index, part));
    let provenance = Provenance {
        tool: tool.to_owned(),
        protocol: "mcp",
        content_annotations: annotations.collect(),
        invalid_parts: invalid,
        ..Provenance::default()
    };
    let original: usize = texts.iter().map(|(_, text)| text.len()).sum::<usize>()
        + result.structured.map_or(0, |raw| raw.get().len())
        + result.media_bytes();
    let views =
        crate::view::applicable(artifacts.iter().map(|artifact| (&*artifact.media_type, &*artifact.bytes)));
    let stats = Stats { original_bytes: original as u64, shown_bytes: 0, strategy: Strategy::Summary };
    full_text.shrink_to_fit();
    let envelope =
        ResultEnvelope { status, summary, facts, artifacts: Vec::new(), views, shape, provenance, stats };
    (envelope, artifacts, full_text)
}

/// What is being taken out of a result.
struct Taking<'a, 't> {
    tool: &'t str,
    artifacts: Vec<NewArtifact<'a>>,
    invalid: Vec<usize>,
    /// Parts that no text stands for, in the words of a summary.
    counted: Vec<summary::Counted>,
}

impl<'a> Taking<'a, '_> {
    fn keep(
        &mut self,
        bytes: Cow<'a, [u8]>,
        media_type: &str,
        label: String,
        part: Option<usize>,
        source: Source,
    ) {
        let media_type = summary::media_type(media_type);
        let label = summary::label(&label);
        self.artifacts.push(NewArtifact {
            bytes,
            media_type,
            declared_type: None,
            label,
            part_index: part,
            source,
        });
    }

    /// All text parts are one artifact: what a model pages through is the text, not its parts.
    fn text(&mut self, texts: &[(usize, &'a str)]) {
        let Some(((first, text), rest)) = texts.split_first() else { return };
        let bytes = match rest {
            [] => Cow::Borrowed(text.as_bytes()),
            _ => {
                let texts: Vec<&str> = texts.iter().map(|(_, text)| *text).collect();
                Cow::Owned(texts.join("\n").into_bytes())
            }
        };
        if bytes.is_empty() {
            return;
        }
        // Most servers put JSON in a text part; said so, it can be asked by pointer and by row.
        let media_type =
            if rest.is_empty() && is_json_document(text) { "application/json" } else { "text/plain" };
        self.keep(bytes, media_type, String::new(), Some(*first), Source::Text);
    }

    fn part(&mut self, index: usize, part: &'a Part<'_>) {
        match &part.content {
            Content::Text(_) => {}
            Content::Media { kind, data, media_type } => {
                let claimed = media_type.as_deref().unwrap_or(kind.default_type());
                let label = format!("{} from {}", kind.as_str(), self.tool);
                let source = match kind {
                    crate::part::MediaKind::Image => Source::Image,
                    crate::part::MediaKind::Audio => Source::Audio,
                };
                self.decoded(index, data, claimed, label, source, kind.as_str());
            }
            Content::ResourceText { uri, text, media_type } => {
                let media_type = media_type.as_deref().unwrap_or("text/plain");
                let source = Source::Resource(uri.clone().into_owned());
                self.keep(
                    Cow::Borrowed(text.as_bytes()),
                    media_type,
                    uri.clone().into_owned(),
                    Some(index),
                    source,
                );
            }
            Content::ResourceBlob { uri, blob, media_type } => {
                let claimed = media_type.as_deref().unwrap_or("application/octet-stream");
                let source = Source::Resource(uri.clone().into_owned());
                self.decoded(index, blob, claimed, uri.clone().into_owned(), source, "blob");
            }
            Content::Link { uri, name, media_type } => {
                let label = name.as_deref().filter(|name| !name.is_empty()).unwrap_or(uri).to_owned();
                let bytes = Cow::Borrowed(uri.as_bytes());
                self.keep(bytes, "text/uri-list", label, Some(index), Source::Link);
                if let Some(last) = self.artifacts.last_mut() {
                    last.declared_type = media_type.as_deref().map(summary::media_type);
                }
                self.counted.push(summary::Counted::plain("link"));
            }
            Content::Unknown => {
                let label = format!("part {index} from {}", self.tool);
                self.keep(canonical(part.raw), "application/json", label, Some(index), Source::Unknown);
                let kind = part.kind().map(|kind| summary::label(&kind)).unwrap_or_default();
                self.counted.push(summary::Counted::unknown(&kind));
            }
        }
    }

    /// Strictly: what is not base64 is kept as it was written, and said to be broken.
    fn decoded(
        &mut self,
        index: usize,
        base64: &'a str,
        claimed: &str,
        label: String,
        source: Source,
        kind: &str,
    ) {
        match STANDARD.decode(base64) {
            Ok(bytes) => {
                self.counted.push(summary::Counted::media(kind, claimed, bytes.len()));
                self.keep(Cow::Owned(bytes), claimed, label, Some(index), source);
            }
            Err(_) => {
                self.invalid.push(index);
                self.counted.push(summary::Counted::media(kind, "not base64", base64.len()));
                let bytes = Cow::Borrowed(base64.as_bytes());
                self.keep(bytes, "application/octet-stream", label, Some(index), source);
            }
        }
    }

    fn structured(&mut self, raw: &'a RawValue) {
        let label = format!("mcp:{}:structured_content", self.tool);
        self.keep(canonical(raw.get()), "application/json", label, None, Source::Structured);
    }
}

/// The one spelling of a JSON text, or the text itself where it has none: nested too deeply, a number too large.
fn canonical(json: &str) -> Cow<'_, [u8]> {
    match serde_json::from_str::<Value>(json).ok().and_then(|value| to_jcs(&value).ok()) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(json.as_bytes()),
    }
}

fn same_json(text: &str, raw: &RawValue) -> bool {
    let text = text.trim();
    if text == raw.get() {
        return true;
    }
    // Only texts of a like size can be the same document; spacing rarely more than triples it.
    let (shorter, longer) = (text.len().min(raw.get().len()), text.len().max(raw.get().len()));
    if !text.starts_with(['{', '[']) || longer > shorter.saturating_mul(4).saturating_add(64) {
        return false;
    }
    let read = |json: &str| serde_json::from_str::<Value>(json).ok();
    matches!((read(text), read(raw.get())), (Some(a), Some(b)) if a == b)
}

pub(crate) fn is_json_document(text: &str) -> bool {
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<&RawValue>(text).is_ok()
}

fn annotated(index: usize, part: &Part<'_>) -> Option<Value> {
    let mut fields: Map<String, Value> = serde_json::from_str(part.annotations?.get()).ok()?;
    fields.insert("part_index".into(), index.into());
    Some(Value::Object(fields))
}
