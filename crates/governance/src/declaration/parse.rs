//! Strict YAML (GOV-403.1): what a second reader could read differently is refused.

use std::fmt;

use serde_saphyr::granit_parser::{Event, Parser};
use serde_saphyr::{Budget, DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy, Options};

use super::locate::Locations;
use super::{Body, Declaration};

/// Largest declaration file.
const MAX_BYTES: usize = 16 << 20;

/// Where a declaration text came from, for messages.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The file name as the operator wrote it.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// Why a declaration is not accepted: the rule of GOV-403 it breaks, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// 1 to 9, the rules of GOV-403.
    pub rule: u8,
    /// The file.
    pub file: String,
    /// Line and column, from 1, where known.
    pub place: Option<(u64, u64)>,
    /// RFC 6901 pointer into the declaration; empty for the whole.
    pub pointer: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": ")?;
        if !self.pointer.is_empty() {
            write!(f, "{}: ", self.pointer)?;
        }
        write!(f, "{} (rule {})", self.message, self.rule)
    }
}

impl std::error::Error for Rejection {}

impl Declaration {
    /// Reads a declaration. The first thing wrong with it is reported with its line and column.
    pub fn parse(source: &Source<'_>) -> Result<Self, Rejection> {
        let reject = |place, message: String| Rejection {
            rule: 1,
            file: source.name.to_owned(),
            place,
            pointer: String::new(),
            message,
        };
        if source.text.len() > MAX_BYTES {
            return Err(reject(None, "the file is larger than 16 MiB".into()));
        }
        if let Some((place, what)) = forbidden_syntax(source.text) {
            return Err(reject(Some(place), format!("{what} are not allowed in a declaration")));
        }
        let explain = |error: serde_saphyr::Error| {
            let place = error.location().map(|at| (at.line(), at.column()));
            // The library's message may end with a rendered excerpt; its first line says what is wrong.
            let text = error.without_snippet().to_string();
            let mut rejection = reject(place, text.lines().next().unwrap_or_default().to_owned());
            // A missing item is rule 3; everything else the reader finds is rule 1.
            if rejection.message.contains("missing field") {
                rejection.rule = 3;
            }
            rejection
        };
        let document: serde_json::Value =
            serde_saphyr::from_str_with_options(source.text, options()).map_err(explain)?;
        let body: Body = serde_saphyr::from_str_with_options(source.text, options()).map_err(explain)?;
        let locations = Locations::of(source.text, options());
        Ok(Self { body, document, locations })
    }

    /// A rejection of the value at `pointer`.
    pub(crate) fn reject(
        &self,
        file: &str,
        rule: u8,
        pointer: &str,
        message: impl Into<String>,
    ) -> Rejection {
        Rejection {
            rule,
            file: file.to_owned(),
            place: self.locations.find(pointer),
            pointer: pointer.to_owned(),
            message: message.into(),
        }
    }
}

/// No anchors, aliases, merge keys, tags, second documents; no guessing about what is text.
fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_anchors = 0;
    budget.max_aliases = 0;
    budget.max_merge_keys = 0;
    budget.max_documents = 1;
    budget.max_depth = 64;
    budget.max_nodes = 20_000;
    budget.max_events = 60_000;
    budget.max_total_scalar_bytes = MAX_BYTES;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.duplicate_keys = DuplicateKeyPolicy::Error;
    options.merge_keys = MergeKeyPolicy::Error;
    options.strict_booleans = true;
    options.no_schema = true;
    options.reject_unsupported_tags = true;
    options.non_finite_float_policy = NonFiniteFloatPolicy::Reject;
    options.with_snippet = false;
    options
}

/// Anchors, aliases and tags, from the parser's own events. Syntax errors are left to the reader.
fn forbidden_syntax(text: &str) -> Option<((u64, u64), &'static str)> {
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let (anchor, tag) = match &event {
            Event::Alias(_) => (1, false),
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => {
                (*anchor, tag.is_some())
            }
            _ => continue,
        };
        let place = (span.start.line() as u64, span.start.col() as u64 + 1);
        if anchor != 0 {
            return Some((place, "anchors and aliases"));
        }
        if tag {
            return Some((place, "tags"));
        }
    }
    None
}
