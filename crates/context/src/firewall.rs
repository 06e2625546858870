//! Whether a result is shown as it stands or in short (CTX-1 to 4).
//!
//! A short result passes. A long one is cut: its artifacts are kept, an envelope stands for them. If the envelope
//! would not be clearly shorter, the result passes after all, so that what a model reads is never more than what
//! the server sent. No model is asked, ever.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::envelope::{ArtifactRef, Media, NewArtifact, ResultEnvelope, Status, Strategy, taken_apart};
use crate::handle::Handle;
use crate::projection::Keep;
use crate::result::CallToolResult;
use crate::summary;
use crate::wire::Format;

/// What counts as long.
#[derive(Debug, Clone)]
pub struct Firewall {
    /// Up to this many characters a result passes as it stands.
    pub inline_chars: usize,
    /// Up to this many bytes pictures and sounds pass.
    pub inline_media_bytes: usize,
    /// How an envelope is written.
    pub format: Format,
    /// Whether an envelope is repeated as structured content.
    pub structured: bool,
}

impl Default for Firewall {
    fn default() -> Self {
        Self { inline_chars: 2_000, inline_media_bytes: 256 * 1024, format: Format::Lean, structured: false }
    }
}

/// A result that was cut, before its artifacts are kept.
#[derive(Debug)]
pub struct Cut<'a> {
    /// What is to be kept.
    pub artifacts: Vec<NewArtifact<'a>>,
    envelope: ResultEnvelope,
    /// Parts shown as they stand, before the envelope.
    beside: Vec<&'a str>,
    /// Structured content that is short enough to stay.
    structured: Option<&'a RawValue>,
    full_text: String,
}

/// What became of an artifact in the store.
#[derive(Debug, Clone)]
pub enum Kept {
    /// It can be viewed.
    As(ArtifactRef),
    /// There is no room for it, or the disk failed.
    Not,
}

impl Firewall {
    /// Cuts a result, or `None` if it is to be shown as it stands.
    pub fn cut<'a>(&self, result: &'a CallToolResult<'_>, tool: &str, about: &About<'_>) -> Option<Cut<'a>> {
        let long_text = result.text_chars() > self.inline_chars;
        let heavy = result.media_bytes() > self.inline_media_bytes;
        let media = if heavy { Media::Kept } else { Media::Beside };
        let cut = match (long_text, heavy) {
            (false, false) => return None,
            (false, true) => self.without_media(result, tool),
            (true, _) => {
                let (mut envelope, artifacts, full_text) = taken_apart(result, tool, media);
                if let Some(projected) = about.keep.and_then(|keep| keep.project(&artifacts)) {
                    envelope.summary = summary::head(&projected, self.inline_chars).to_owned();
                    envelope.stats.strategy = Strategy::Projection;
                    envelope.facts.clear();
                }
                let shown = |part: &&crate::part::Part<'_>| media == Media::Beside && part.base64().is_some();
                let beside = result.parts.iter().filter(shown).map(|part| part.raw).collect();
                Cut { artifacts, envelope, beside, structured: None, full_text }
            }
        };
        let mut cut = cut;
        cut.envelope.provenance.tool_id = about.tool_id.map(str::to_owned);
        cut.envelope.provenance.redactions = about.redactions;
        cut.envelope.provenance.cache_hit = about.cache_hit;
        cut.envelope.provenance.arg_repairs = about.arg_repairs.to_vec();
        cut.is_shorter(result, self).then_some(cut)
    }

    /// Short texts stay; only what is heavy goes.
    fn without_media<'a>(&self, result: &'a CallToolResult<'_>, tool: &str) -> Cut<'a> {
        let (mut envelope, mut artifacts, full_text) = taken_apart(result, tool, Media::Kept);
        let heavy = |index: usize| result.parts.get(index).is_some_and(|part| part.base64().is_some());
        artifacts.retain(|artifact| artifact.part_index.is_some_and(heavy));
        envelope.views = crate::view::applicable(artifacts.iter().map(|one| (&*one.media_type, &*one.bytes)));
        envelope.summary = summary::media_of(&artifacts);
        envelope.facts.clear();
        envelope.shape = None;
        let light = result.parts.iter().filter(|part| part.base64().is_none());
        let beside = light.map(|part| part.raw).collect();
        Cut { artifacts, envelope, beside, structured: result.structured, full_text }
    }
}

/// What an envelope says besides the result itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct About<'a> {
    /// The id by which the tool was called.
    pub tool_id: Option<&'a str>,
    /// How many secrets were taken out.
    pub redactions: u64,
    /// Whether the server was not asked.
    pub cache_hit: bool,
    /// What was mended in the arguments.
    pub arg_repairs: &'a [serde_json::Value],
    /// What the operator wants to see of this tool's results.
    pub keep: Option<&'a Keep>,
}

impl Cut<'_> {
    /// Whether the short form is at most 70 % of the long one, both as a model reads it and as it is sent.
    fn is_shorter(&self, result: &CallToolResult<'_>, firewall: &Firewall) -> bool {
        let stand_ins = self.artifacts.iter().map(|artifact| Kept::As(reference(Handle::random(), artifact)));
        let envelope = self.stored(stand_ins.collect(), firewall);
        let text = envelope.to_json(firewall.format);
        let copies = if firewall.structured { 2 } else { 1 };
        // What is shown beside is the same on both sides.
        let shown_part = |raw: &str| self.beside.contains(&raw);
        let gone = result.parts.iter().filter(|part| !shown_part(part.raw));
        let structured =
            result.structured.filter(|_| self.structured.is_none()).map_or(0, |raw| raw.get().len());
        let read: usize = gone
            .clone()
            .map(|part| part.text().or(part.base64()).map_or(part.raw.len(), str::len))
            .sum::<usize>()
            + structured;
        let sent: usize = gone.map(|part| part.raw.len()).sum::<usize>() + structured;
        let is_less = |short: usize, long: usize| short.saturating_mul(10) <= long.saturating_mul(7);
        is_less(text.len() * copies, read) && is_less(as_part(&text).len() + text.len() * (copies - 1), sent)
    }

    /// The envelope, now that the store has answered for each artifact in turn.
    fn stored(&self, kept: Vec<Kept>, firewall: &Firewall) -> ResultEnvelope {
        let mut envelope = self.envelope.clone();
        let mut lost = false;
        for (artifact, kept) in self.artifacts.iter().zip(kept) {
            match kept {
                Kept::As(reference) => envelope.artifacts.push(reference),
                Kept::Not => {
                    lost = true;
                    envelope.provenance.invalid_parts.extend(artifact.part_index);
                }
            }
        }
        if lost {
            // CTX-24: what cannot be kept is shown as far as there is room.
            envelope.provenance.invalid_parts.sort_unstable();
            envelope.provenance.invalid_parts.dedup();
            if envelope.status == Status::Ok {
                envelope.status = Status::Partial;
            }
            let head = summary::head(&self.full_text, firewall.inline_chars);
            if head.len() > envelope.summary.len() {
                envelope.summary = head.to_owned();
            }
        }
        if envelope.artifacts.is_empty() {
            envelope.views.clear();
        }
        let shown = envelope.to_json(firewall.format).len();
        envelope.stats.shown_bytes = shown as u64;
        envelope
    }

    /// The result to show: the members of a `tools/call` result but for `_meta`.
    pub fn finish(&self, kept: Vec<Kept>, firewall: &Firewall) -> (String, ResultEnvelope) {
        let envelope = self.stored(kept, firewall);
        let text = envelope.to_json(firewall.format);
        let mut json = String::from("{\"content\":[");
        for part in &self.beside {
            json.push_str(part);
            json.push(',');
        }
        json.push_str(&as_part(&text));
        json.push(']');
        let structured = match self.structured {
            Some(raw) => Some(Cow::Borrowed(raw.get())),
            None => firewall.structured.then_some(Cow::Borrowed(text.as_str())),
        };
        if let Some(structured) = structured {
            json.push_str(",\"structuredContent\":");
            json.push_str(&structured);
        }
        if envelope.status == Status::Error {
            json.push_str(",\"isError\":true");
        }
        json.push('}');
        (json, envelope)
    }
}

fn as_part(text: &str) -> String {
    let text = serde_json::to_string(text).expect("text is JSON");
    format!("{{\"type\":\"text\",\"text\":{text}}}")
}

/// An artifact as an envelope names it.
pub fn reference(handle: Handle, artifact: &NewArtifact<'_>) -> ArtifactRef {
    let media_type = artifact.declared_type.clone().unwrap_or_else(|| artifact.media_type.clone());
    let is_text = crate::view::is_textual(&artifact.media_type);
    let lines = is_text.then(|| crate::lines::count(&artifact.bytes)).filter(|lines| *lines > 1);
    ArtifactRef {
        handle,
        media_type,
        size_bytes: artifact.bytes.len() as u64,
        label: artifact.label.clone(),
        lines,
        content_hash: None,
    }
}
