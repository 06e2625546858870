//! Texts: one that a person can see, and one that is a name (ADM-23).

use std::fmt;

use portcullis_core::name::has_visible_character;
use serde_json::{Value, json};

use super::{ArgValue, Complaints};

/// The longest text, in bytes, unless stated otherwise.
const LONGEST: usize = 4096;

/// A text with at least one character that is not white space, control or invisible. Not trimmed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NonBlank<const LONGEST_BYTES: usize = LONGEST>(String);

impl<const LONGEST_BYTES: usize> NonBlank<LONGEST_BYTES> {
    /// The text, if it is one.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        (text.len() <= LONGEST_BYTES && has_visible_character(&text)).then_some(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const LONGEST_BYTES: usize> fmt::Debug for NonBlank<LONGEST_BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const LONGEST_BYTES: usize> fmt::Display for NonBlank<LONGEST_BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<const LONGEST_BYTES: usize> From<NonBlank<LONGEST_BYTES>> for String {
    fn from(text: NonBlank<LONGEST_BYTES>) -> Self {
        text.0
    }
}

impl<const LONGEST_BYTES: usize> ArgValue for NonBlank<LONGEST_BYTES> {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let complaint = match value.as_str() {
            None => "must be a string".to_owned(),
            Some(text) if text.len() > LONGEST_BYTES => format!("must have at most {LONGEST_BYTES} bytes"),
            Some(text) => match Self::new(text) {
                Some(text) => return Some(text),
                None => "must not be blank".to_owned(),
            },
        };
        complaints.push(at, complaint);
        None
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// A text that is the text form of something: parsing is the only way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident<T>(pub T);

impl<T> ArgValue for Ident<T>
where
    T: std::str::FromStr,
    T::Err: fmt::Display,
{
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let Some(text) = value.as_str() else {
            complaints.push(at, "must be a string");
            return None;
        };
        // The parser's own words may repeat the text; the place and the kind are enough (ADM-21).
        match text.parse() {
            Ok(parsed) => Some(Self(parsed)),
            Err(_) => {
                complaints.push(at, format!("is not a {}", kind_of::<T>()));
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "minLength": 1})
    }
}

/// `ServerIdentity` is a "server identity".
fn kind_of<T>() -> String {
    let name = std::any::type_name::<T>();
    let name = name.rsplit("::").next().unwrap_or(name);
    let mut words = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}
