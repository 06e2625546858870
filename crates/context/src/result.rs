//! A result as a server sent it, read without building what nobody asked for.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::part::{Content, Part};

/// A `tools/call` result. Reading one never fails: what cannot be understood is a part of unknown kind.
#[derive(Debug, Clone)]
pub struct CallToolResult<'a> {
    /// Its parts, in their order.
    pub parts: Vec<Part<'a>>,
    /// Its structured content, unless that is null.
    pub structured: Option<&'a RawValue>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, rename = "structuredContent")]
    structured: Option<&'a RawValue>,
    #[serde(borrow, rename = "isError")]
    is_error: Option<&'a RawValue>,
    #[serde(borrow)]
    contents: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

impl<'a> CallToolResult<'a> {
    /// Reads the result of `tools/call`, of `resources/read` (whose parts are in `contents`) or of `prompts/get`
    /// (in `messages`).
    pub fn read(json: &'a str) -> Self {
        let Ok(fields) = serde_json::from_str::<Fields<'a>>(json) else { return Self::unreadable(json) };
        let mut parts = Vec::new();
        for raw in list(fields.content) {
            parts.push(Part::read(raw));
        }
        for raw in list(fields.contents) {
            parts.push(Part::read_contents(raw));
        }
        for raw in list(fields.messages) {
            parts.push(match serde_json::from_str::<Message<'a>>(raw.get()) {
                Ok(message) => Part::read(message.content),
                Err(_) => Part::unknown(raw),
            });
        }
        Self {
            parts,
            structured: fields.structured.filter(|raw| raw.get() != "null"),
            is_error: fields.is_error.is_some_and(|raw| raw.get() == "true"),
        }
    }

    /// Something that is no object, or has a member twice: one part that nobody understands.
    fn unreadable(json: &'a str) -> Self {
        let content = Content::Unknown;
        let part = Part { raw: json, content, annotations: None };
        Self { parts: vec![part], structured: None, is_error: false }
    }

    /// Characters a model would read: texts, resource texts and structured content (CTX-2).
    pub fn text_chars(&self) -> usize {
        let texts: usize = self.parts.iter().filter_map(Part::text).map(|text| text.chars().count()).sum();
        texts + self.structured.map_or(0, |raw| raw.get().chars().count())
    }

    /// Decoded size of everything that is not text, as far as its base64 tells (CTX-3).
    pub fn media_bytes(&self) -> usize {
        self.parts.iter().filter_map(Part::base64).map(|data| data.trim_end_matches('=').len() * 3 / 4).sum()
    }
}

fn list(raw: Option<&RawValue>) -> Vec<&RawValue> {
    let Some(raw) = raw else { return Vec::new() };
    // What should be a list and is not is one thing that nobody understands.
    serde_json::from_str(raw.get()).unwrap_or_else(|_| if raw.get() == "null" { vec![] } else { vec![raw] })
}
