//! Sessions as files: one JSON object per line (CTX-50, CTX-51).
//!
//! Loading is strict: a file with one bad line is not loaded at all, and everything that is wrong is told with its line.
//! A lenient load leaves bad lines out and tells them too. Nothing is ever made to fit.

use std::collections::{HashMap, HashSet};

use portcullis_core::canon::to_jcs;
use serde_json::{Map, Value};

use crate::artifacts::Sensitivity;
use crate::item::{ContextItem, Kind};

/// The longest line.
pub const MAX_LINE: usize = 4 << 20;
/// How many errors are told.
pub const MAX_ERRORS: usize = 20;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {field}: {reason}")]
pub struct LineError {
    /// Which line, from 1.
    pub line: usize,
    /// Which field.
    pub field: &'static str,
    /// Why.
    pub reason: String,
}

/// A session that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.shown())]
pub struct LoadError {
    /// The first of its errors.
    pub errors: Vec<LineError>,
    /// How many there are.
    pub total: usize,
}

impl LoadError {
    fn shown(&self) -> String {
        let mut lines: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        if self.total > self.errors.len() {
            lines.push(format!("and {} more", self.total - self.errors.len()));
        }
        lines.join("\n")
    }
}

/// What to do with bad lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strictness {
    /// Load nothing.
    #[default]
    Strict,
    /// Leave them out.
    Lenient,
}

/// A session that was loaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// Its items, in order.
    pub items: Vec<ContextItem>,
    /// Lines that were left out.
    pub skipped: Vec<LineError>,
    /// What is odd and was loaded all the same.
    pub warnings: Vec<LineError>,
}

/// Loads a session.
///
/// ```
/// use portcullis_context::session_log::{Strictness, load};
/// let text = b"{\"id\":\"u1\",\"type\":\"user_turn\",\"text\":\"Search for open invoices\"}\n";
/// assert_eq!(load(text, Strictness::Strict).unwrap().items[0].id, "u1");
/// let error = load(b"{\"id\":\"u1\",\"type\":\"shout\",\"text\":\"x\"}", Strictness::Strict).unwrap_err();
/// assert_eq!((error.errors[0].line, error.errors[0].field), (1, "type"));
/// ```
pub fn load(bytes: &[u8], strictness: Strictness) -> Result<Loaded, LoadError> {
    let mut loaded = Loaded::default();
    let mut errors = Vec::new();
    let mut lines: HashMap<String, usize> = HashMap::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let number = at + 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let read = read_line(line).map_err(|(field, reason)| LineError { line: number, field, reason });
        match read {
            Ok(item) if lines.contains_key(&item.id) => {
                let reason = format!("the id is that of line {}", lines[&item.id]);
                errors.push(LineError { line: number, field: "id", reason });
            }
            Ok(mut item) => {
                lines.insert(item.id.clone(), number);
                item.seq = loaded.items.len();
                loaded.items.push(item);
            }
            Err(error) => errors.push(error),
        }
    }
    errors.extend(cycles(&loaded.items, &lines));
    errors.sort_by_key(|error| error.line);
    if strictness == Strictness::Strict && !errors.is_empty() {
        let total = errors.len();
        errors.truncate(MAX_ERRORS);
        return Err(LoadError { errors, total });
    }
    // An item in a cycle stays out, like any other bad line.
    let bad: HashSet<usize> = errors.iter().map(|error| error.line).collect();
    loaded.items.retain(|item| !bad.contains(&lines[&item.id]));
    for (seq, item) in loaded.items.iter_mut().enumerate() {
        item.seq = seq;
    }
    let ids: HashSet<&str> = loaded.items.iter().map(|item| item.id.as_str()).collect();
    loaded.warnings = (loaded.items.iter())
        .filter(|item| item.parent_id.as_deref().is_some_and(|parent| !ids.contains(parent)))
        .map(|item| {
            let reason = "there is no item of this id".to_owned();
            LineError { line: lines[&item.id], field: "parent_id", reason }
        })
        .collect();
    loaded.skipped = errors;
    Ok(loaded)
}

type Wrong = (&'static str, String);

fn read_line(line: &[u8]) -> Result<ContextItem, Wrong> {
    if line.len() > MAX_LINE {
        return Err(("line", "longer than 4 MiB".into()));
    }
    let text = std::str::from_utf8(line).map_err(|_| ("line", "not UTF-8".to_owned()))?;
    // A byte order mark is no content.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let value: Value = serde_json::from_str(text)
        .map_err(|error| ("line", format!("not JSON (column {})", error.column())))?;
    let Value::Object(mut fields) = value else { return Err(("line", "not an object".into())) };
    let id = match fields.remove("id") {
        Some(Value::String(id)) if !id.is_empty() => id,
        Some(_) => return Err(("id", "expected a text that is not empty".into())),
        None => return Err(("id", "is missing".into())),
    };
    let kind = match fields.remove("type") {
        Some(Value::String(word)) => Kind::named(&word).ok_or_else(|| {
            let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
            ("type", format!("unknown; there are {}", known.join(", ")))
        })?,
        Some(_) => return Err(("type", "expected a text".into())),
        None => return Err(("type", "is missing".into())),
    };
    let text = match (fields.remove("text"), fields.remove("content")) {
        (Some(Value::String(text)), _) => text,
        (Some(_), _) => return Err(("text", "expected a text".into())),
        (None, Some(content)) => content_text(content)?,
        (None, None) => return Err(("text", "text or content is missing".into())),
    };
    let parent_id = match fields.remove("parent_id") {
        None | Some(Value::Null) => None,
        Some(Value::String(parent)) => Some(parent),
        Some(_) => return Err(("parent_id", "expected a text".into())),
    };
    let token_estimate = match fields.remove("token_estimate") {
        None | Some(Value::Null) => None,
        Some(value) => {
            Some(value.as_u64().ok_or_else(|| ("token_estimate", "expected a whole number".to_owned()))?)
        }
    };
    let sensitivity = match fields.remove("sensitivity") {
        None | Some(Value::Null) => Sensitivity::default(),
        Some(value) => serde_json::from_value(value).map_err(|_| {
            ("sensitivity", "expected public, internal, confidential or restricted".to_owned())
        })?,
    };
    let mut metadata = match fields.remove("metadata") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(metadata)) => metadata,
        Some(_) => return Err(("metadata", "expected an object".into())),
    };
    // Whatever else was written on the line is kept.
    metadata.extend(fields);
    let artifact_ref = metadata.get("artifact_ref").and_then(Value::as_str).map(str::to_owned);
    let item = ContextItem::new(id, kind, text);
    Ok(ContextItem { token_estimate, sensitivity, metadata, parent_id, artifact_ref, ..item })
}

/// A text, the texts of MCP parts, or any other JSON in its one spelling.
fn content_text(content: Value) -> Result<String, Wrong> {
    match content {
        Value::String(text) => Ok(text),
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(|part| part["type"].is_string()) => {
            let texts =
                parts.iter().filter_map(|part| part["text"].as_str().or(part["resource"]["text"].as_str()));
            Ok(texts.collect::<Vec<_>>().join("\n"))
        }
        other => {
            let bytes = to_jcs(&other).map_err(|_| ("content", "cannot be written".to_owned()))?;
            String::from_utf8(bytes).map_err(|_| ("content", "not UTF-8".to_owned()))
        }
    }
}

/// Items that are their own ancestors, each named once.
fn cycles(items: &[ContextItem], lines: &HashMap<String, usize>) -> Vec<LineError> {
    let parents: HashMap<&str, &str> =
        items.iter().filter_map(|item| Some((item.id.as_str(), item.parent_id.as_deref()?))).collect();
    // 1: on the way, 2: known to end.
    let mut seen: HashMap<&str, u8> = HashMap::new();
    let mut errors = Vec::new();
    for item in items {
        let mut path = Vec::new();
        let mut here = item.id.as_str();
        loop {
            match seen.get(here) {
                Some(1) => {
                    let start = path.iter().position(|id| *id == here).unwrap_or(0);
                    let mut cycle: Vec<&str> = path[start..].to_vec();
                    cycle.push(here);
                    let reason = format!("a cycle: {}", cycle.join(" -> "));
                    errors.push(LineError { line: lines[here], field: "parent_id", reason });
                    break;
                }
                Some(_) => break,
                None => {}
            }
            seen.insert(here, 1);
            path.push(here);
            match parents.get(here) {
                Some(parent) => here = parent,
                None => break,
            }
        }
        for id in path {
            seen.insert(id, 2);
        }
    }
    errors
}
