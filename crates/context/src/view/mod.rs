//! Looking at part of an artifact, never at more than fits (CTX-30).
//!
//! [`Selector::read`] understands what an agent asks for, [`view`] answers it: the slice unaltered and, if more remains,
//! the selector that goes on where it ended. Nothing an agent writes can make either panic or take long.

mod json;
mod part;
mod query;
mod rows;
mod selector;
mod text;

use serde_json::{Value, json};

pub use self::query::Query;
pub use self::selector::{Selector, Span, TYPES};

use crate::artifacts::{NotThere, Opened};

/// Bytes of one view, if nothing else is configured.
pub const VIEW_MAX_BYTES: usize = 16_384;

/// What a view shows.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The slice.
    pub slice: Slice,
    /// Where it goes on.
    pub more: Option<More>,
}

/// The slice of a view.
#[derive(Debug, Clone, PartialEq)]
pub enum Slice {
    /// Text.
    Text(String),
    /// A part of an MCP result, as JSON.
    Part(String),
}

/// How to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct More {
    /// The selector that continues.
    pub selector: Value,
    /// Of how much, in words.
    pub of: String,
}

impl View {
    fn whole(text: String) -> Self {
        Self { slice: Slice::Text(text), more: None }
    }

    fn of(text: String, more: Option<More>) -> Self {
        Self { slice: Slice::Text(text), more }
    }

    /// The parts of the MCP result that shows it.
    pub fn parts(&self) -> Vec<String> {
        let text = |text: &str| json!({"type": "text", "text": text}).to_string();
        let slice = match &self.slice {
            Slice::Text(slice) => text(slice),
            Slice::Part(part) => part.clone(),
        };
        let more = self.more.as_ref().map(|more| text(&more.to_string()));
        std::iter::once(slice).chain(more).collect()
    }

    /// Bytes that leave.
    pub fn bytes(&self) -> usize {
        match &self.slice {
            Slice::Text(text) | Slice::Part(text) => text.len(),
        }
    }
}

impl std::fmt::Display for More {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // In the order of the tool's definition, whatever order the map has.
        let fields = selector::FIELDS.iter().filter_map(|name| Some((name, self.selector.get(name)?)));
        let fields: Vec<String> = fields.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        write!(f, "more: {{{}}} of {}", fields.join(","), self.of)
    }
}

/// Why a view failed: `VIEW_FAILED`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// The selector, or one of its fields.
    #[error("{name}: {reason}")]
    Field {
        /// Which field.
        name: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The content is not what the selector is for.
    #[error("{reason}")]
    Content {
        /// Why not.
        reason: String,
        /// Which selectors would serve.
        instead: &'static [&'static str],
    },
    /// There is nothing to look at.
    #[error(transparent)]
    NotThere(#[from] NotThere),
}

impl ViewError {
    pub(crate) fn field(name: &'static str, reason: impl Into<String>) -> Self {
        Self::Field { name, reason: reason.into() }
    }

    pub(crate) fn content(reason: impl Into<String>, instead: &'static [&'static str]) -> Self {
        Self::Content { reason: reason.into(), instead }
    }

    fn not_text() -> Self {
        Self::content("the content is not text", &["bytes", "part"])
    }

    /// What a program may want to know.
    pub fn details(&self) -> Value {
        match self {
            ViewError::Field { name, .. } => json!({"field": name}),
            ViewError::Content { instead: [], .. } | ViewError::NotThere(NotThere::Unknown) => json!({}),
            ViewError::Content { instead, .. } => json!({"use": instead}),
            ViewError::NotThere(NotThere::Expired) => json!({"reason": "expired"}),
            ViewError::NotThere(NotThere::Unreadable) => json!({"reason": "unreadable"}),
        }
    }
}

/// Shows part of an artifact.
pub fn view(artifact: &Opened<'_>, selector: &Selector, max_bytes: usize) -> Result<View, ViewError> {
    match selector {
        Selector::Head { chars } => text::head(artifact, *chars, max_bytes),
        Selector::Tail { chars } => text::tail(artifact, *chars, max_bytes),
        Selector::Lines(span) => text::lines(artifact, *span, max_bytes),
        Selector::Grep { pattern, context, max, start } => {
            text::grep(artifact, pattern, (*context, *max, *start), max_bytes)
        }
        Selector::Rows { span, columns, pointer, query } => {
            rows::rows(artifact, *span, columns, pointer, query, max_bytes)
        }
        Selector::JsonKeys { keys } => json::keys(artifact, keys, max_bytes),
        Selector::JsonPointer { pointer, span } => json::pointer(artifact, pointer, *span, max_bytes),
        Selector::Bytes { offset, length } => part::bytes(artifact, *offset, *length, max_bytes),
        Selector::Part => part::part(artifact),
    }
}

/// All of a text. Artifacts are at most some mebibytes.
fn whole_text(artifact: &Opened<'_>) -> Result<String, ViewError> {
    let bytes = artifact.read(0, artifact.record().size_bytes)?;
    String::from_utf8(bytes).map_err(|_| ViewError::not_text())
}

/// As much of a text as fits, cut between characters.
fn fitting(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// Whether artifacts of this type are text.
pub(crate) fn is_textual(media_type: &str) -> bool {
    media_type.starts_with("text/")
        || matches!(
            media_type,
            "application/json" | "application/xml" | "application/yaml" | "application/x-ndjson"
        )
        || media_type.ends_with("+json")
        || media_type.ends_with("+xml")
}

/// The selectors that apply to any of these artifacts.
pub(crate) fn applicable<'a>(artifacts: impl Iterator<Item = (&'a str, &'a [u8])>) -> Vec<&'static str> {
    let mut views: Vec<&'static str> = Vec::new();
    let mut add = |names: &[&'static str]| {
        for name in names {
            if !views.contains(name) {
                views.push(name);
            }
        }
    };
    for (media_type, bytes) in artifacts {
        if !is_textual(media_type) || std::str::from_utf8(bytes).is_err() {
            add(&["bytes", "part"]);
        } else if media_type == "application/json" {
            let is_array = bytes.trim_ascii_start().starts_with(b"[");
            add(if is_array {
                &["json_pointer", "rows", "grep"]
            } else {
                &["json_keys", "json_pointer", "grep"]
            });
        } else if matches!(media_type, "text/csv" | "text/tab-separated-values") {
            add(&["rows", "head", "lines", "grep"]);
        } else {
            add(&["head", "lines", "grep"]);
        }
    }
    views
}
