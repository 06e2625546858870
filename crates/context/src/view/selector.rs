//! What to look at, as an agent says it (CTX-30).

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::ViewError;
use super::query::Query;

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 256;
/// The largest compiled pattern.
const MAX_PROGRAM: usize = 1 << 20;
/// The most lines around a match.
const MAX_CONTEXT: u64 = 10;
/// The most matches in one view.
const MAX_MATCHES: u64 = 1_000;

/// Which part of an artifact.
#[derive(Debug, Clone)]
pub enum Selector {
    /// The first characters.
    Head {
        /// How many.
        chars: u64,
    },
    /// The last characters.
    Tail {
        /// How many.
        chars: u64,
    },
    /// Lines from one to before another.
    Lines(Span),
    /// Rows of a table: lines of CSV or elements of a JSON array.
    Rows {
        /// Which rows of the answer.
        span: Span,
        /// Which columns; all if there are none.
        columns: Vec<String>,
        /// Where in a JSON document the array is.
        pointer: String,
        /// What to filter, sort and count.
        query: Query,
    },
    /// Members of an object.
    JsonKeys {
        /// Which.
        keys: Vec<String>,
    },
    /// A value in a JSON document.
    JsonPointer {
        /// Where (RFC 6901).
        pointer: String,
        /// Which elements, if it is an array.
        span: Span,
    },
    /// Lines that match.
    Grep {
        /// What.
        pattern: Box<Regex>,
        /// How many lines around a match.
        context: u64,
        /// How many matches at most.
        max: u64,
        /// The first line looked at.
        start: u64,
    },
    /// Bytes, in base64.
    Bytes {
        /// From where.
        offset: u64,
        /// How many; as many as there is room for if not said.
        length: Option<u64>,
    },
    /// The part as the server sent it.
    Part,
}

/// From one to before another; negative numbers count from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub start: i64,
    /// The one after the last; the end if not said.
    pub end: Option<i64>,
}

impl Span {
    /// The half-open range in something of this length.
    pub(crate) fn within(self, length: u64) -> (u64, u64) {
        let place =
            |at: i64| if at < 0 { length.saturating_sub(at.unsigned_abs()) } else { (at as u64).min(length) };
        let (start, end) = (place(self.start), self.end.map_or(length, place));
        (start, end.max(start))
    }
}

/// Every type there is, in the order of the tool's definition.
pub const TYPES: [&str; 9] =
    ["head", "tail", "lines", "rows", "json_keys", "json_pointer", "grep", "bytes", "part"];
/// Every field there is, likewise.
pub(super) const FIELDS: [&str; 12] = [
    "type", "chars", "start", "end", "keys", "columns", "pointer", "pattern", "context", "max", "offset",
    "length",
];

impl Selector {
    /// Reads a selector. What is wrong is said with the name of the field.
    pub fn read(value: &Value) -> Result<Self, ViewError> {
        let Value::Object(fields) = value else {
            return Err(ViewError::field("selector", "expected an object with a type"));
        };
        if let Some(unknown) = fields.keys().find(|name| !FIELDS.contains(&name.as_str())) {
            let reason = format!("unknown field {}", portcullis_core::name::printable(unknown));
            return Err(ViewError::field("selector", reason));
        }
        let fields = Fields(fields);
        let Some(kind) = fields.text("type")? else { return Err(ViewError::field("type", "is missing")) };
        match kind {
            "head" => Ok(Selector::Head { chars: fields.count("chars", 500)? }),
            "tail" => Ok(Selector::Tail { chars: fields.count("chars", 500)? }),
            "lines" => Ok(Selector::Lines(fields.span()?)),
            "rows" => {
                let pattern = fields.text("pattern")?.unwrap_or_default();
                if pattern.len() > MAX_PATTERN {
                    return Err(ViewError::field("pattern", "longer than 256 bytes"));
                }
                Ok(Selector::Rows {
                    span: fields.span()?,
                    columns: fields.list("columns")?.unwrap_or_default(),
                    pointer: fields.pointer()?.unwrap_or_default(),
                    query: Query::read(pattern)?,
                })
            }
            "json_keys" => {
                let keys = fields.list("keys")?.ok_or_else(|| ViewError::field("keys", "is missing"))?;
                Ok(Selector::JsonKeys { keys })
            }
            "json_pointer" => {
                let pointer = fields.pointer()?.ok_or_else(|| ViewError::field("pointer", "is missing"))?;
                Ok(Selector::JsonPointer { pointer, span: fields.span()? })
            }
            "grep" => {
                let pattern =
                    fields.text("pattern")?.ok_or_else(|| ViewError::field("pattern", "is missing"))?;
                let context = fields.count("context", 0)?;
                if context > MAX_CONTEXT {
                    return Err(ViewError::field("context", "at most 10"));
                }
                let max = fields.count("max", 20)?.min(MAX_MATCHES);
                let start = fields.count("start", 0)?;
                Ok(Selector::Grep { pattern: Box::new(compiled(pattern)?), context, max, start })
            }
            "bytes" => {
                let length = fields.integer("length")?.map(|_| fields.count("length", 0)).transpose()?;
                Ok(Selector::Bytes { offset: fields.count("offset", 0)?, length })
            }
            "part" => Ok(Selector::Part),
            _ => Err(ViewError::field("type", format!("expected one of {}", TYPES.join(", ")))),
        }
    }

    /// Its type, for records and policy.
    pub const fn kind(&self) -> &'static str {
        match self {
            Selector::Head { .. } => "head",
            Selector::Tail { .. } => "tail",
            Selector::Lines(_) => "lines",
            Selector::Rows { .. } => "rows",
            Selector::JsonKeys { .. } => "json_keys",
            Selector::JsonPointer { .. } => "json_pointer",
            Selector::Grep { .. } => "grep",
            Selector::Bytes { .. } => "bytes",
            Selector::Part => "part",
        }
    }
}

/// In linear time whatever the text, and not larger than a mebibyte (T-CTX-29).
fn compiled(pattern: &str) -> Result<Regex, ViewError> {
    if pattern.len() > MAX_PATTERN {
        return Err(ViewError::field("pattern", "longer than 256 bytes"));
    }
    let built = RegexBuilder::new(pattern).size_limit(MAX_PROGRAM).dfa_size_limit(MAX_PROGRAM).build();
    built.map_err(|error| {
        let reason = match error {
            regex::Error::CompiledTooBig(_) => "too large once compiled",
            _ => "not a regular expression (no look-around, no back-references)",
        };
        ViewError::field("pattern", reason)
    })
}

struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn text(&self, name: &'static str) -> Result<Option<&'a str>, ViewError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ViewError::field(name, "expected a string")),
        }
    }

    fn integer(&self, name: &'static str) -> Result<Option<i64>, ViewError> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(ViewError::field(name, "expected an integer")),
            },
        }
    }

    fn count(&self, name: &'static str, default: u64) -> Result<u64, ViewError> {
        match self.integer(name)? {
            None => Ok(default),
            Some(number) => u64::try_from(number).map_err(|_| ViewError::field(name, "must not be negative")),
        }
    }

    fn span(&self) -> Result<Span, ViewError> {
        Ok(Span { start: self.integer("start")?.unwrap_or(0), end: self.integer("end")? })
    }

    fn pointer(&self) -> Result<Option<String>, ViewError> {
        let Some(pointer) = self.text("pointer")? else { return Ok(None) };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(ViewError::field("pointer", "must be empty or begin with /"));
        }
        Ok(Some(pointer.to_owned()))
    }

    fn list(&self, name: &'static str) -> Result<Option<Vec<String>>, ViewError> {
        let wrong = || ViewError::field(name, "expected an array of strings");
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => {
                let texts = items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong));
                texts.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }
}
