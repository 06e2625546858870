//! Walking a JSON text that is known to be valid, and changing only the strings that must change.
//!
//! Nothing is built that is not needed: names and strings are looked at where they stand, numbers stay as they
//! are written, and a text in which every string is clean is not copied at all. The walk keeps its own stack, so
//! no depth of nesting can exhaust the program's.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;
use serde_json::value::RawValue;

use crate::sanitise::{Escape, Report, Sanitiser, Unclean};

/// The deepest nesting of a value.
pub(crate) const MAX_DEPTH: usize = 127;
/// How many values there may be.
pub(crate) const MAX_NODES: usize = 500_000;
/// The longest member name, in bytes.
pub(crate) const MAX_KEY_BYTES: usize = 1_024;

/// Why a text cannot be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Shape(&'static str),
    Key,
    Unstable,
    /// The result would be longer than allowed once it is clean.
    TooLarge,
    TooManyNodes,
    TooManyBlocks,
    KeyTooLong,
    TooDeep,
}

impl From<Unclean> for Fault {
    fn from(unclean: Unclean) -> Self {
        match unclean {
            Unclean::Unstable => Self::Unstable,
            Unclean::TooLarge => Self::TooLarge,
        }
    }
}

/// What the walk meets: member names, strings, and the text between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    Key,
    String,
    /// A number, `true`, `false`, `null`, a bracket, a comma or a colon.
    Other,
}

/// Walks the value in `source[range]`, which is valid JSON, and calls `each` for every token with its place,
/// quotes included. Checks what GNT-P1 and the caps ask for on the way.
pub(crate) fn walk<'s>(
    source: &'s str,
    range: Range<usize>,
    nodes: &mut usize,
    mut each: impl FnMut(Token, Range<usize>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let bytes = source.as_bytes();
    // For each open bracket: where the names of its object begin in `names`; none for an array.
    let mut open: Vec<Option<usize>> = Vec::new();
    let mut names: Vec<Cow<'s, str>> = Vec::new();
    let mut expects_name = false;
    let mut at = range.start;
    while at < range.end {
        let start = at;
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => {
                at += 1;
                continue;
            }
            b'"' => {
                at = string_end(bytes, at);
                if expects_name {
                    let name = text_of(&source[start..at])?;
                    if name.len() > MAX_KEY_BYTES {
                        return Err(Fault::KeyTooLong);
                    }
                    names.push(name);
                    expects_name = false;
                    each(Token::Key, start..at)?;
                } else {
                    count(nodes)?;
                    each(Token::String, start..at)?;
                }
                continue;
            }
            bracket @ (b'{' | b'[') => {
                count(nodes)?;
                if open.len() == MAX_DEPTH {
                    return Err(Fault::TooDeep);
                }
                expects_name = bracket == b'{';
                open.push(expects_name.then_some(names.len()));
                at += 1;
            }
            b'}' | b']' => {
                if let Some(Some(first)) = open.pop() {
                    if repeat(&mut names[first..]) {
                        return Err(Fault::Shape("a member occurs twice"));
                    }
                    names.truncate(first);
                }
                expects_name = false;
                at += 1;
            }
            b',' => {
                expects_name = matches!(open.last(), Some(Some(_)));
                at += 1;
            }
            b':' => at += 1,
            _ => {
                count(nodes)?;
                at += bytes[at..range.end]
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r'))
                    .unwrap_or(range.end - at);
                if !is_finite(&source[start..at]) {
                    return Err(Fault::Shape("a number beyond what a double can hold"));
                }
            }
        }
        each(Token::Other, start..at)?;
    }
    Ok(())
}

fn count(nodes: &mut usize) -> Result<(), Fault> {
    *nodes += 1;
    if *nodes > MAX_NODES { Err(Fault::TooManyNodes) } else { Ok(()) }
}

/// Where the string that begins at `at` ends, behind its quote.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(offset) = memchr2(b'"', b'\\', &bytes[at..]) {
        if bytes[at + offset] == b'"' {
            return at + offset + 1;
        }
        at += offset + 2;
    }
    bytes.len()
}

/// What a JSON string says; borrowed unless it is written with escapes.
pub(crate) fn text_of(json: &str) -> Result<Cow<'_, str>, Fault> {
    let inner = &json[1..json.len() - 1];
    if !inner.contains('\\') {
        return Ok(Cow::Borrowed(inner));
    }
    // The one thing a reader of valid JSON still refuses.
    serde_json::from_str::<String>(json).map(Cow::Owned).map_err(|_| Fault::Shape("half a surrogate pair"))
}

/// Whether two names are equal. Few names are compared with each other, many are sorted.
fn repeat(names: &mut [Cow<'_, str>]) -> bool {
    if names.len() <= 8 {
        return (1..names.len()).any(|at| names[..at].contains(&names[at]));
    }
    names.sort_unstable();
    names.windows(2).any(|pair| pair[0] == pair[1])
}

/// Whether a number is one: only an exponent or three hundred digits can lead beyond a double.
fn is_finite(literal: &str) -> bool {
    let suspicious = literal.len() > 300 || literal.bytes().any(|byte| matches!(byte, b'e' | b'E'));
    !suspicious || literal.parse::<f64>().map_or(true, f64::is_finite)
}

/// A text with some places changed, copied only once something is.
#[derive(Debug)]
pub(crate) struct Edits<'s> {
    source: &'s str,
    out: Vec<u8>,
    done: usize,
    /// The longest the whole may become.
    limit: usize,
}

impl<'s> Edits<'s> {
    pub(crate) fn new(source: &'s str, limit: usize) -> Self {
        Self { source, out: Vec::new(), done: 0, limit }
    }

    /// Where a slice of the edited text stands in it.
    pub(crate) fn place_of(&self, raw: &RawValue) -> Range<usize> {
        let start = raw.get().as_ptr() as usize - self.source.as_ptr() as usize;
        start..start + raw.get().len()
    }

    /// How many bytes a piece of `len` bytes may become.
    pub(crate) fn room(&self, len: usize) -> usize {
        let now = self.out.len() + (self.source.len() - self.done);
        (self.limit + len).saturating_sub(now)
    }

    /// Writes `text` as a JSON string in place of what stands at `place`. Places must rise.
    pub(crate) fn put_string(&mut self, place: Range<usize>, text: &str) -> Result<(), Fault> {
        self.copy_up_to(place.start);
        serde_json::to_writer(&mut self.out, text).map_err(|_| Fault::Shape("not valid JSON"))?;
        self.skip_to(place.end)
    }

    /// Writes JSON in place of what stands at `place`.
    pub(crate) fn put_json(&mut self, place: Range<usize>, json: &str) -> Result<(), Fault> {
        self.copy_up_to(place.start);
        self.out.extend_from_slice(json.as_bytes());
        self.skip_to(place.end)
    }

    fn copy_up_to(&mut self, at: usize) {
        self.out.extend_from_slice(&self.source.as_bytes()[self.done..at]);
    }

    fn skip_to(&mut self, at: usize) -> Result<(), Fault> {
        self.done = at;
        if self.out.len() + (self.source.len() - at) > self.limit { Err(Fault::TooLarge) } else { Ok(()) }
    }

    /// The changed text; `None` if nothing was changed.
    pub(crate) fn finish(mut self) -> Option<Vec<u8>> {
        if self.done == 0 {
            return None;
        }
        self.copy_up_to(self.source.len());
        Some(self.out)
    }
}

/// How strings are cleaned, and what was changed so far.
pub(crate) struct Cleaner<'g> {
    pub(crate) sanitiser: &'g Sanitiser,
    pub(crate) escape: Escape,
    pub(crate) report: Report,
    pub(crate) nodes: usize,
}

impl Cleaner<'_> {
    /// Cleans every string of the value at `range`.
    pub(crate) fn value(&mut self, edits: &mut Edits<'_>, range: Range<usize>) -> Result<(), Fault> {
        let Self { sanitiser, escape, report, nodes } = self;
        let source = edits.source;
        walk(source, range, nodes, |token, place| match token {
            Token::Other => Ok(()),
            Token::Key => check_key(sanitiser, &source[place]),
            Token::String => {
                let text = text_of(&source[place.clone()])?;
                let clean = sanitiser.text(&text, *escape, edits.room(place.len()), report)?;
                if matches!(clean, Cow::Owned(_)) { edits.put_string(place, &clean) } else { Ok(()) }
            }
        })
    }

    /// A JSON text inside a string, written again without white space and with every string clean (GNT-P8).
    /// `None` if it is not JSON after all, or not such that it can be kept JSON.
    pub(crate) fn embedded(&mut self, text: &str, room: usize) -> Result<Option<String>, Fault> {
        if !text.trim_start().starts_with(['{', '['])
            || serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()
        {
            return Ok(None);
        }
        let Self { sanitiser, escape, report, .. } = self;
        let mut tried = *report;
        let mut nodes = self.nodes;
        let mut out = Vec::with_capacity(text.len());
        let written = walk(text, 0..text.len(), &mut nodes, |token, place| {
            match token {
                Token::Other => out.extend_from_slice(&text.as_bytes()[place]),
                Token::Key => {
                    check_key(sanitiser, &text[place.clone()])?;
                    out.extend_from_slice(&text.as_bytes()[place]);
                }
                Token::String => {
                    let string = text_of(&text[place.clone()])?;
                    let room = room.saturating_sub(out.len());
                    match sanitiser.text(&string, *escape, room, &mut tried)? {
                        Cow::Borrowed(_) => out.extend_from_slice(&text.as_bytes()[place]),
                        Cow::Owned(clean) => serde_json::to_writer(&mut out, &clean)
                            .map_err(|_| Fault::Shape("not valid JSON"))?,
                    }
                }
            }
            if out.len() > room { Err(Fault::TooLarge) } else { Ok(()) }
        });
        match written {
            Ok(()) => {}
            Err(fault @ (Fault::TooLarge | Fault::TooManyNodes)) => return Err(fault),
            // A name that cannot stay, nesting too deep, a name twice: then it is text like any other.
            Err(_) => return Ok(None),
        }
        let Ok(written) = String::from_utf8(out) else { return Ok(None) };
        // What was joined here was cleaned apart (GNT-O2).
        if self.sanitiser.has_marker(&written) {
            return Ok(None);
        }
        self.report = tried;
        self.nodes = nodes;
        Ok(Some(written))
    }
}

fn check_key(sanitiser: &Sanitiser, json: &str) -> Result<(), Fault> {
    if sanitiser.is_clean(&text_of(json)?) { Ok(()) } else { Err(Fault::Key) }
}
