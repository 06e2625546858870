//! Changing only the strings of a JSON text that must change.
//!
//! Nothing is built that is not needed: names and strings are looked at where they stand, numbers stay as they
//! are written, and a text in which every string is clean is not copied at all.

use std::borrow::Cow;
use std::ops::Range;

use crate::sanitise::{Escape, Report, Sanitiser, Unclean};
use crate::tape::{Kind, Tape, View};

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
    /// How many values there were so far.
    pub(crate) nodes: usize,
    /// Whether no string that is written without escapes can have to change.
    pub(crate) quiet: bool,
}

impl Cleaner<'_> {
    /// Cleans every string of a value, and looks at every name.
    pub(crate) fn value(&mut self, edits: &mut Edits<'_>, value: View<'_, '_>) -> Result<(), Fault> {
        for view in value.everything() {
            match view.kind() {
                Kind::Name => self.name(view)?,
                Kind::String if self.quiet && !view.is_escaped() => {}
                Kind::String => {
                    let place = view.place();
                    let room = edits.room(place.len());
                    let text = view.text();
                    let clean = self.sanitiser.text(&text, self.escape, room, &mut self.report)?;
                    if matches!(clean, Cow::Owned(_)) {
                        edits.put_string(place, &clean)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A name stays as it is or is refused (GNT-Z11).
    pub(crate) fn name(&self, name: View<'_, '_>) -> Result<(), Fault> {
        let is_clean = (self.quiet && !name.is_escaped()) || self.sanitiser.is_clean(&name.text());
        if is_clean { Ok(()) } else { Err(Fault::Key) }
    }

    /// A JSON text inside a string, written again without white space and with every string clean (GNT-P8).
    /// `None` if it is not JSON after all, or not such that it can be kept JSON.
    pub(crate) fn embedded<'t>(&mut self, text: &'t str, room: usize) -> Result<Option<Cow<'t, str>>, Fault> {
        if !text.trim_start().starts_with(['{', '[']) {
            return Ok(None);
        }
        let mut nodes = self.nodes;
        let tape = match Tape::read(text, &mut nodes) {
            Ok(tape) => tape,
            Err(Fault::TooManyNodes) => return Err(Fault::TooManyNodes),
            // Nesting too deep, a name twice: then it is text like any other.
            Err(_) => return Ok(None),
        };
        let quiet = self.sanitiser.is_quiet(text);
        let mut inner =
            Cleaner { sanitiser: self.sanitiser, escape: self.escape, report: self.report, nodes, quiet };
        let written = if quiet && !tape.has_escapes() && !tape.has_space() {
            Cow::Borrowed(text)
        } else {
            match inner.compact(&tape, room) {
                Ok(written) => Cow::Owned(written),
                Err(Fault::TooLarge) => return Err(Fault::TooLarge),
                // A name that cannot stay.
                Err(_) => return Ok(None),
            }
        };
        if written.len() > room {
            return Err(Fault::TooLarge);
        }
        // What was joined here was cleaned apart (GNT-O2).
        if !quiet && self.sanitiser.has_marker(&written) {
            return Ok(None);
        }
        (self.report, self.nodes) = (inner.report, nodes);
        Ok(Some(written))
    }

    /// The text of a tape without white space, every string clean.
    fn compact(&mut self, tape: &Tape<'_>, room: usize) -> Result<String, Fault> {
        let source = tape.source();
        let mut out = String::with_capacity(source.len());
        let mut done = 0;
        for view in tape.root().everything().filter(|view| matches!(view.kind(), Kind::Name | Kind::String)) {
            let place = view.place();
            out.extend(between(&source[done..place.start]));
            done = place.end;
            if view.kind() == Kind::Name {
                self.name(view)?;
                out.push_str(view.raw());
            } else {
                let room = room.saturating_sub(out.len());
                match self.sanitiser.text(&view.text(), self.escape, room, &mut self.report)? {
                    Cow::Borrowed(_) => out.push_str(view.raw()),
                    Cow::Owned(clean) => out.push_str(&quoted(&clean)?),
                }
            }
            if out.len() > room {
                return Err(Fault::TooLarge);
            }
        }
        out.extend(between(&source[done..]));
        Ok(out)
    }
}

/// What stands between strings, without white space.
fn between(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', '\t', '\n', '\r'])
}

fn quoted(text: &str) -> Result<String, Fault> {
    serde_json::to_string(text).map_err(|_| Fault::Shape("not valid JSON"))
}
