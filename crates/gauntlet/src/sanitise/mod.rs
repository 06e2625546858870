//! The sanitiser: control characters out, markup escaped, markers removed in every reading (gauntlet §6).
//!
//! | module | the idea |
//! |---|---|
//! | `ascii_set` | seeing that a text is clean at the speed of memory |
//! | `strip`, `escape` | transforms 1 and 2 |
//! | `fold` | what a character looks like |
//! | `automaton` | markers in folded text, nested ones included, in one scan |
//! | `lookalikes` | characters that a marker may begin with |
//! | `references`, `readings` | every way the text may be unescaped, and transform 3 on all of them |
//! | [`clean`] | the types before and after |
//!
//! Deleting characters and escaping the rest commute: each character of the text is one token of the escaped
//! text, and tokens go whole (GNT-Z1). So markers are deleted from the stripped text, which is then escaped.

pub(crate) mod ascii_set;
mod automaton;
pub mod clean;
pub(crate) mod escape;
pub(crate) mod fold;
mod lookalikes;
pub use fold::UNICODE_VERSION;
mod readings;
mod references;
pub(crate) mod strip;

#[cfg(test)]
mod properties;

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use ascii_set::AsciiSet;
use automaton::units;
use readings::{Reader, Unstable};

/// Always removed.
pub const MARKERS: [&str; 3] = ["__system__", "<|im_start|>", "<|im_end|>"];
/// How many more an operator may add.
pub const MAX_EXTRA_MARKERS: usize = 64;
/// The longest of them, in characters.
pub const MAX_MARKER_CHARACTERS: usize = 64;

/// How a text is written once it is clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Escape {
    /// `& < > " '` as references.
    #[default]
    Html,
    /// As it is: for tools whose text is code or addresses (GNT-Z15).
    None,
}

impl Escape {
    /// The one of that name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "html" => Some(Self::Html),
            "none" => Some(Self::None),
            _ => None,
        }
    }

    /// As written in configuration and evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::None => "none",
        }
    }
}

/// What was changed beyond escaping (GNT-Z17).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Control characters, or terminal sequences, taken out.
    pub stripped: usize,
    /// Markers removed.
    pub markers: usize,
    /// Blocks replaced by a note of ours.
    pub replaced_blocks: usize,
    /// Secrets taken out (CTX-42).
    pub redactions: usize,
}

impl Report {
    /// Whether anything was changed beyond escaping.
    pub fn changed(&self) -> bool {
        *self != Self::default()
    }

    /// The object shown to clients and kept in evidence.
    pub fn document(&self, escape: Escape) -> serde_json::Value {
        let mut document = serde_json::json!({
            "escape": escape.as_str(), "markers": self.markers,
            "replaced_blocks": self.replaced_blocks, "stripped": self.stripped,
        });
        if self.redactions > 0 {
            document["redactions"] = self.redactions.into();
        }
        document
    }
}

/// Why a text cannot be made clean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unclean {
    /// It keeps building markers (GNT-Z6, GNT-Z8).
    Unstable,
    /// It would be longer than there is room.
    TooLarge,
}

impl From<Unstable> for Unclean {
    fn from(_: Unstable) -> Self {
        Self::Unstable
    }
}

/// A marker that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MarkerError {
    /// More than [`MAX_EXTRA_MARKERS`].
    #[error("more than {MAX_EXTRA_MARKERS} extra markers")]
    TooMany,
    /// Too short or too long.
    #[error("extra marker {0} must have 4 to {MAX_MARKER_CHARACTERS} visible characters")]
    Length(usize),
    /// It would take ordinary words, or pieces of our own escapes, out of texts.
    #[error("extra marker {0} must hold more than letters, digits, ';' and '#'")]
    Plain(usize),
}

/// Cleans texts. Made once per configuration and shared.
pub struct Sanitiser {
    reader: Reader,
    /// The markers that are ASCII, as plain literals: decides for text that is ASCII and has no references.
    literals: AhoCorasick,
    /// What makes a text worth a second look: controls, openers, the five.
    interesting: AsciiSet,
    /// The same without the quote, which no string of a JSON text holds unless it is written with an escape.
    in_json: AsciiSet,
    strip_ansi: bool,
}

static CONTROLS: LazyLock<AsciiSet> = LazyLock::new(|| AsciiSet::new(strip::ascii_controls()));

impl Default for Sanitiser {
    fn default() -> Self {
        Self::build(MARKERS.iter().map(|marker| fold::fold(marker)).collect(), false)
    }
}

impl Sanitiser {
    /// A sanitiser that removes `extra` markers besides [`MARKERS`] (GNT-Z16).
    pub fn new<M: AsRef<str>>(extra: &[M], strip_ansi: bool) -> Result<Self, MarkerError> {
        if extra.len() > MAX_EXTRA_MARKERS {
            return Err(MarkerError::TooMany);
        }
        let mut markers: Vec<_> = MARKERS.iter().map(|marker| fold::fold(marker)).collect();
        for (index, marker) in extra.iter().enumerate() {
            let folded = fold::fold(marker.as_ref());
            if !(4..=MAX_MARKER_CHARACTERS).contains(&folded.len())
                || marker.as_ref().chars().count() > MAX_MARKER_CHARACTERS
            {
                return Err(MarkerError::Length(index + 1));
            }
            if folded.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, ';' | '#')) {
                return Err(MarkerError::Plain(index + 1));
            }
            if !markers.contains(&folded) {
                markers.push(folded);
            }
        }
        Ok(Self::build(markers, strip_ansi))
    }

    fn build(markers: Vec<Vec<char>>, strip_ansi: bool) -> Self {
        let reader = Reader::new(&markers);
        let ascii = markers.iter().filter(|marker| marker.iter().all(char::is_ascii));
        let literals = AhoCorasick::builder()
            .ascii_case_insensitive(true)
            .build(ascii.map(String::from_iter))
            .expect("a few short literals");
        let is_interesting = |byte: &u8| {
            reader.openers.contains(*byte)
                || strip::is_stripped(char::from(*byte))
                || escape::SPECIALS.contains(*byte)
        };
        let interesting = AsciiSet::new((0..=127).filter(is_interesting));
        let in_json = AsciiSet::new((0..=127).filter(|byte| *byte != b'"' && is_interesting(byte)));
        Self { interesting, in_json, reader, literals, strip_ansi }
    }

    /// The three transforms on one text, into at most `room` bytes.
    pub(crate) fn text<'t>(
        &self,
        raw: &'t str,
        escape: Escape,
        room: usize,
        report: &mut Report,
    ) -> Result<Cow<'t, str>, Unclean> {
        if raw.len() <= room && self.interesting.survey(raw.as_bytes()) == (false, false) {
            return Ok(Cow::Borrowed(raw));
        }
        let (text, scanned) = self.bare(raw, report)?;
        self.written(text, scanned, escape, room)
    }

    /// Several texts that stand next to each other, as if they were one (GNT-Z7).
    pub(crate) fn neighbours<'t>(
        &self,
        raw: &[&'t str],
        escape: Escape,
        mut room: usize,
        report: &mut Report,
    ) -> Result<Vec<Cow<'t, str>>, Unclean> {
        let stripped: Vec<_> = raw.iter().map(|raw| self.stripped(raw, report)).collect();
        let suspicious = stripped.iter().any(|text| self.reader.opens(text));
        let texts: Vec<Cow<'t, str>> = if suspicious {
            let mut cuts: Vec<usize> = stripped
                .iter()
                .scan(0, |end, text| {
                    *end += text.len();
                    Some(*end)
                })
                .collect();
            let (joined, markers) = self.reader.remove(Cow::Owned(stripped.concat()), &mut cuts)?;
            report.markers += markers;
            let mut from = 0;
            let pieces =
                cuts.iter().map(|to| Cow::Owned(joined[std::mem::replace(&mut from, *to)..*to].to_owned()));
            if markers == 0 { stripped } else { pieces.collect() }
        } else {
            stripped
        };
        texts
            .into_iter()
            .map(|text| {
                let written = self.written(text, suspicious, escape, room)?;
                room -= written.len();
                Ok(written)
            })
            .collect()
    }

    /// Whether a name that must stay as it is may stay: no control character, no marker in any reading.
    pub(crate) fn is_clean(&self, text: &str) -> bool {
        if self.interesting.survey(text.as_bytes()) == (false, false) {
            return true;
        }
        !text.contains(strip::is_stripped) && !self.has_marker(text)
    }

    /// Whether every string of a JSON text is clean, as far as it is written without escapes.
    pub(crate) fn is_quiet(&self, json: &str) -> bool {
        self.in_json.survey(json.as_bytes()) == (false, false)
    }

    /// Whether any reading of the text holds a marker.
    pub(crate) fn has_marker(&self, text: &str) -> bool {
        self.suspicious(text) && self.reader.has_marker(text)
    }

    /// Strip and removal; says also whether the text was scanned slowly.
    fn bare<'t>(&self, raw: &'t str, report: &mut Report) -> Result<(Cow<'t, str>, bool), Unstable> {
        let text = self.stripped(raw, report);
        if !self.suspicious(&text) {
            return Ok((text, false));
        }
        let (text, markers) = self.reader.remove(text, &mut [])?;
        report.markers += markers;
        Ok((text, true))
    }

    fn stripped<'t>(&self, raw: &'t str, report: &mut Report) -> Cow<'t, str> {
        let (controls, high) = CONTROLS.survey(raw.as_bytes());
        if !(controls || high && strip::has_c1_controls(raw)) {
            return Cow::Borrowed(raw);
        }
        let (text, sequences) =
            if self.strip_ansi { strip::strip_ansi(raw) } else { (Cow::Borrowed(raw), 0) };
        let (stripped, controls) = strip::strip(&text);
        report.stripped += sequences + controls;
        Cow::Owned(stripped.into_owned())
    }

    /// Whether the text must be scanned reading by reading.
    fn suspicious(&self, text: &str) -> bool {
        // In plain ASCII a nested marker has a whole one inside, and a literal search finds that.
        self.reader.opens(text)
            && (!text.is_ascii()
                || memchr::memchr(b'&', text.as_bytes()).is_some()
                || self.literals.is_match(text))
    }

    fn written<'t>(
        &self,
        text: Cow<'t, str>,
        scanned: bool,
        escape: Escape,
        room: usize,
    ) -> Result<Cow<'t, str>, Unclean> {
        let length = match escape {
            Escape::Html => escape::escaped_len(&text),
            Escape::None => text.len(),
        };
        if length > room {
            return Err(Unclean::TooLarge);
        }
        if length == text.len() {
            return Ok(text);
        }
        let written = escape::escape(&text, length);
        // GNT-Z8. Unescaping what was written gives the text whose readings were all just found clean; what is
        // left to look at is what was written itself.
        if scanned && self.shows_a_marker(&written) {
            return Err(Unclean::Unstable);
        }
        Ok(Cow::Owned(written))
    }

    /// Whether the text as it stands holds a marker.
    fn shows_a_marker(&self, text: &str) -> bool {
        if text.is_ascii() {
            self.literals.is_match(text)
        } else {
            !self.reader.automaton.scan(units(text)).spans.is_empty()
        }
    }
}

impl std::fmt::Debug for Sanitiser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sanitiser(openers {:?}, strip_ansi {})", self.reader.openers, self.strip_ansi)
    }
}
