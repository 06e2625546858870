//! Arguments as they come from the one strict reader.

use portcullis_core::Limits;
use portcullis_core::canon::{self, CanonError, CanonReason};
use serde_json::{Map, Value};

use crate::GauntletError;

/// The arguments of a call: a JSON object in which every key occurs once and every number has one meaning.
///
/// There is no way to build one from a loose [`Value`]: what was never strictly read cannot be screened.
#[derive(Debug, PartialEq)]
pub struct Args(Value);

impl Args {
    /// Reads the arguments' text; at most `max_bytes` of it.
    ///
    /// ```
    /// use portcullis_gauntlet::Args;
    /// assert!(Args::parse(br#"{"path": "/tmp"}"#, 1024).is_ok());
    /// assert!(Args::parse(br#"{"path": "/tmp", "path": "/etc"}"#, 1024).is_err());
    /// assert!(Args::parse(b"[]", 1024).is_err());
    /// ```
    pub fn parse(text: &[u8], max_bytes: usize) -> Result<Self, GauntletError> {
        match canon::parse(text, Limits::arguments(max_bytes)) {
            Ok(value @ Value::Object(_)) => Ok(Self(value)),
            Ok(_) => Err(GauntletError::ArgumentsNotAnObject),
            Err(error) => Err(GauntletError::Arguments(error)),
        }
    }

    /// A call without arguments.
    pub fn empty() -> Self {
        Self(Value::Object(Map::new()))
    }

    /// The object.
    pub fn value(&self) -> &Value {
        &self.0
    }

    pub(crate) fn into_value(self) -> Value {
        self.0
    }
}

/// The keyword under which a reader's refusal is listed among schema errors.
pub(crate) fn reading_keyword(error: &CanonError) -> &'static str {
    match error.reason {
        CanonReason::Syntax { .. } => "syntax",
        CanonReason::DuplicateKey => "duplicateKey",
        CanonReason::NumberRange => "numberRange",
        CanonReason::TooDeep(_) => "depth",
        CanonReason::TooManyNodes(_) => "nodes",
        CanonReason::TooLong(_) => "length",
    }
}
