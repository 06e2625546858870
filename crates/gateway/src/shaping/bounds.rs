//! Results held to a size where agents call tools directly (SURF §8): always measured, changed only where an operator,
//! or the call itself, wants it.

use std::borrow::Cow;
use std::sync::Arc;

use portcullis_context::bound::{
    COMPACT_ROWS, Detail, LongStructure, LongText, MARK, Mark, Sizes, Ways, is_twin, rows_at, summary,
    truncated,
};
use portcullis_context::part::Part;
use portcullis_context::{CallToolResult, NewArtifact, Origin, Owner, Sensitivity, Source};
use portcullis_core::ProposalId;
use portcullis_gauntlet::SafeResult;
use portcullis_governance::declaration::SideEffect;
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::session::Session;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Shaping;
use crate::result::{Members, write_members};

/// Bytes of text and of structure that are not remarkable.
const CONTENT: usize = 8_192;
const STRUCTURED: usize = 65_536;

/// What is set for the results of one tool, or of all for one kind of client; what is not set is decided by the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResultOptions {
    /// Bytes of text.
    pub content_bytes: Option<usize>,
    /// Bytes of structured content.
    pub structured_bytes: Option<usize>,
    /// What happens to more text.
    pub content_on_over: Option<LongText>,
    /// What happens to more structure.
    pub structured_on_over: Option<LongStructure>,
    /// How much is wanted.
    pub result_detail: Option<Detail>,
    /// Where the rows are, as a pointer into the structured content.
    pub rows: Option<String>,
}

impl ResultOptions {
    /// These, and what they leave open as others have it.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        Self {
            content_bytes: self.content_bytes.or(other.content_bytes),
            structured_bytes: self.structured_bytes.or(other.structured_bytes),
            content_on_over: self.content_on_over.or(other.content_on_over),
            structured_on_over: self.structured_on_over.or(other.structured_on_over),
            result_detail: self.result_detail.or(other.result_detail),
            rows: self.rows.or_else(|| other.rows.clone()),
        }
    }

    /// At most so many bytes of text and of structure; the rest is kept.
    pub(crate) fn within(bytes: usize) -> Self {
        Self {
            content_bytes: Some(bytes),
            structured_bytes: Some(bytes),
            content_on_over: Some(LongText::Summarise),
            structured_on_over: Some(LongStructure::Spill),
            ..Self::default()
        }
    }

    /// Whether anything may be kept for `tool_view`.
    pub fn keeps(&self) -> bool {
        self.content_on_over == Some(LongText::Summarise)
            || self.structured_on_over == Some(LongStructure::Spill)
    }
}

/// How one result is to be shown.
#[derive(Debug)]
struct Wanted {
    content: usize,
    structured: usize,
    long_text: LongText,
    long_structure: LongStructure,
    detail: Detail,
    rows: Option<String>,
}

/// A result that was made smaller.
struct Smaller {
    text: Option<String>,
    structured: Option<Value>,
    mark: Mark,
}

impl Shaping {
    /// A result as it is to be shown where tools are called directly; `None` if that is as it stands.
    pub(crate) async fn bound(
        self: &Arc<Self>,
        result: &SafeResult,
        entry: &Arc<ToolEntry>,
        call: ProposalId,
        session: &Session,
        (of_client, asked): (&ResultOptions, Option<Detail>),
    ) -> Option<String> {
        let short = entry.tool.id().short();
        let of_tool = self.options.results.iter().find(|(tools, _)| tools.matches(short));
        let options = of_tool.map(|(_, options)| options.clone()).unwrap_or_default().or(of_client);
        let wanted = Wanted {
            content: options.content_bytes.unwrap_or(CONTENT),
            structured: options.structured_bytes.unwrap_or(STRUCTURED),
            long_text: options.content_on_over.unwrap_or_default(),
            long_structure: options.structured_on_over.unwrap_or_default(),
            detail: asked.or(options.result_detail).unwrap_or_default(),
            rows: options.rows,
        };
        let json = std::str::from_utf8(result.json()).ok()?;
        let read = CallToolResult::read(json);
        let sizes = Sizes::of(&read);
        self.sizes.note(short, sizes, self.clock.now());
        if read.is_error {
            return None;
        }
        let over = (sizes.content > wanted.content, sizes.structured > wanted.structured);
        let is_wanted = wanted.detail == Detail::Compact
            || (sizes.content > 0 && wanted.long_text == LongText::Summarise)
            || (over.1 && wanted.long_structure != LongStructure::Pass);
        if over.0 && wanted.long_text == LongText::Pass {
            self.sizes.over(short, "pass");
        }
        if over.1 && wanted.long_structure == LongStructure::Pass {
            self.sizes.over(short, "pass");
        }
        if !is_wanted {
            return None;
        }
        let (shaping, entry, json) = (Arc::clone(self), entry.clone(), result.json().clone());
        let owner = Owner { principal: session.principal().clone(), session: session.id() };
        let redacted = result.report().redactions > 0;
        let smaller = tokio::task::spawn_blocking(move || {
            let json = std::str::from_utf8(&json).ok()?;
            let read = CallToolResult::read(json);
            let origin = origin(&entry, call, redacted);
            let smaller = shaping.smaller(&read, &wanted, &entry, (&owner, &origin))?;
            Some(rewritten(json, &read, &smaller))
        });
        smaller.await.ok().flatten()
    }

    fn smaller(
        &self,
        result: &CallToolResult<'_>,
        wanted: &Wanted,
        entry: &ToolEntry,
        (owner, origin): (&Owner, &Origin),
    ) -> Option<Smaller> {
        let short = entry.tool.id().short();
        let sizes = Sizes::of(result);
        let text: String = result.parts.iter().filter_map(Part::text).collect::<Vec<_>>().join("\n");
        let value: Option<Value> = result.structured.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let keep = |bytes: &str, media: &str, source: Source, part: Option<usize>| {
            let label = format!("mcp:{}:result", entry.tool.id().item().name());
            let artifact = NewArtifact {
                bytes: Cow::Borrowed(bytes.as_bytes()),
                media_type: media.into(),
                declared_type: None,
                label,
                part_index: part,
                source,
            };
            self.artifacts.keep(owner, origin, &artifact).ok().map(|kept| kept.handle.to_string())
        };
        let mut mark = Mark {
            detail: wanted.detail,
            rows_total: None,
            rows_shown: None,
            bytes_total: sizes.structured,
            handle: None,
        };
        let mut structured = None;
        let compact = wanted.detail == Detail::Compact;
        let too_long = sizes.structured > wanted.structured && wanted.long_structure != LongStructure::Pass;
        if let Some(value) = value.as_ref().filter(|_| compact || too_long) {
            let most = if compact { COMPACT_ROWS } else { usize::MAX };
            let bytes = if too_long { wanted.structured } else { usize::MAX };
            let cut =
                rows_at(value, wanted.rows.as_deref()).and_then(|rows| truncated(value, &rows, bytes, most));
            match cut {
                Some((shorter, total, shown)) if still_fits(entry, value, &shorter) => {
                    (mark.rows_total, mark.rows_shown) = (Some(total), Some(shown));
                    if wanted.long_structure == LongStructure::Spill {
                        let whole = result.structured.map(RawValue::get).unwrap_or_default();
                        mark.handle = keep(whole, "application/json", Source::Structured, None);
                    }
                    self.sizes.over(short, if mark.handle.is_some() { "spill" } else { "truncate" });
                    structured = Some(shorter);
                }
                // It would not be what the tool promised: shown whole, and somebody should know.
                Some(_) => {
                    tracing::warn!(
                        tool = short,
                        "a result cannot lose rows without breaking its output schema; it is shown whole"
                    );
                    self.sizes.over(short, "not_possible");
                }
                None if too_long => self.sizes.over(short, "not_possible"),
                None => {}
            }
        }
        let twin = value.as_ref().is_some_and(|value| is_twin(&text, value));
        let summarise = wanted.long_text == LongText::Summarise && (sizes.content > wanted.content || twin);
        let mut shown = None;
        // A text that repeats what was just left out would bring it back.
        if summarise || (twin && structured.is_some()) {
            let schema = entry.tool.spec().input.source().clone();
            let names = schema["properties"].as_object().into_iter().flatten();
            let names: Vec<String> = names.map(|(name, _)| name.clone()).collect();
            let ways = Ways::among(names.iter().map(String::as_str));
            let of_text = || {
                serde_json::from_str::<Value>(&text)
                    .ok()
                    .filter(|value| value.is_object() || value.is_array())
            };
            let summed = match value.clone().or_else(of_text) {
                Some(value) => summary(&value, wanted.rows.as_deref(), &ways, wanted.content),
                None => beginning(&text, wanted.content),
            };
            if !twin && mark.handle.is_none() {
                mark.handle = keep(&text, "text/plain", Source::Text, Some(0));
                mark.bytes_total = sizes.content;
            }
            if !twin && mark.handle.is_none() {
                // What cannot be kept is not left out.
                return structured.map(|structured| Smaller {
                    text: None,
                    structured: Some(structured),
                    mark,
                });
            }
            self.sizes.over(short, "summarise");
            shown = Some(summed);
        }
        (shown.is_some() || structured.is_some()).then_some(Smaller { text: shown, structured, mark })
    }
}

/// Whether what fitted the accepted output schema still does (SURF-72).
fn still_fits(entry: &ToolEntry, before: &Value, after: &Value) -> bool {
    match &entry.tool.spec().output {
        None => true,
        Some(schema) => schema.validate(after).is_ok() || schema.validate(before).is_err(),
    }
}

/// As much of a text as fits, and how much there is.
fn beginning(text: &str, bytes: usize) -> String {
    let note = format!("\n…({} bytes in all)", text.len());
    let mut end = text.len().min(bytes.saturating_sub(note.len()));
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{note}", &text[..end])
}

fn origin(entry: &ToolEntry, call: ProposalId, redacted: bool) -> Origin {
    let secret = entry.tool.side_effects().contains(&SideEffect::SecretAccess);
    Origin {
        call_id: call,
        tool_identity: entry.tool.id().as_str().to_owned(),
        sensitivity: if secret { Sensitivity::Confidential } else { Sensitivity::Public },
        redacted,
    }
}

/// The result with what became smaller in its place; everything else as it was.
fn rewritten(json: &str, result: &CallToolResult<'_>, smaller: &Smaller) -> String {
    let Ok(members) = serde_json::from_str::<Members<'_>>(json) else { return json.to_owned() };
    let raw = |text: String| RawValue::from_string(text).expect("rendered JSON");
    let content = smaller.text.as_ref().map(|text| {
        let mut parts = vec![json!({"type": "text", "text": text}).to_string()];
        parts
            .extend(result.parts.iter().filter(|part| part.text().is_none()).map(|part| part.raw.to_owned()));
        raw(format!("[{}]", parts.join(",")))
    });
    let structured = smaller.structured.as_ref().map(|value| raw(value.to_string()));
    let meta = raw(json!({ MARK: smaller.mark }).to_string());
    let mut changes: Vec<(&str, Option<&RawValue>)> = vec![("_meta", Some(&meta))];
    if let Some(content) = &content {
        changes.push(("content", Some(content)));
    }
    if let Some(structured) = &structured {
        changes.push(("structuredContent", Some(structured)));
    }
    let mut out = Vec::with_capacity(json.len());
    write_members(&mut out, &members, &changes);
    String::from_utf8(out).unwrap_or_else(|_| json.to_owned())
}
