//! Which rows of a list: one contract for all (ADM-40).

use serde_json::{Value, json};

use super::value::integer_in;
use super::{Describe, Field, Members};

const MOST_SKIPPED: i64 = 1_000_000;
const MOST_ROWS: i64 = 500;
const DEFAULT_ROWS: i64 = 50;

/// `offset?` and `limit?`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// How many rows to skip.
    pub offset: usize,
    /// How many to return.
    pub limit: usize,
}

impl Default for Page {
    fn default() -> Self {
        Self { offset: 0, limit: DEFAULT_ROWS as usize }
    }
}

impl Page {
    /// The rows of this page, and how many there are in all.
    pub fn cut<T>(self, all: Vec<T>) -> Paged<T> {
        let total = all.len() as u64;
        Paged { items: all.into_iter().skip(self.offset).take(self.limit).collect(), total }
    }
}

/// Some rows, and how many there are in all (ADM-41).
#[derive(Debug, Clone)]
pub struct Paged<T> {
    /// The rows of the page.
    pub items: Vec<T>,
    /// How many there are under the same filter.
    pub total: u64,
}

impl Field for Page {
    fn take(_: &'static str, members: &mut Members<'_>) -> Option<Self> {
        let offset = bounded("offset", members, 0, MOST_SKIPPED, 0);
        let limit = bounded("limit", members, 1, MOST_ROWS, DEFAULT_ROWS);
        Some(Self { offset: offset? as usize, limit: limit? as usize })
    }

    fn describe(_: &'static str, schema: &mut Describe) {
        let integer =
            |minimum: i64, maximum: i64| json!({"type": "integer", "minimum": minimum, "maximum": maximum});
        schema.property("offset", integer(0, MOST_SKIPPED), false);
        schema.property("limit", integer(1, MOST_ROWS), false);
    }
}

fn bounded(
    name: &'static str,
    members: &mut Members<'_>,
    least: i64,
    most: i64,
    default: i64,
) -> Option<i64> {
    let read = |value: &Value| integer_in(value, least, most);
    match members.member(name).map(read) {
        None => Some(default),
        Some(Ok(number)) => Some(number),
        Some(Err(text)) => {
            members.complain(name, text);
            None
        }
    }
}
