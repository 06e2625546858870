//! How many tokens a text has, exactly as the models' own encodings count them.
//!
//! An encoding cuts a text into pieces with a pattern and each piece into tokens: of all neighbours that are a token
//! together, the ones with the lowest number are joined, until none are left. The vocabularies (a hundred thousand and two hundred
//! thousand tokens) are tables in the program's own image, laid out by `build.rs`: what is looked up is paged in, and a
//! gateway that counts little stays small.

mod hash;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;

use regex::Regex;

/// Whose tokens count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// cl100k_base.
    #[default]
    Cl100k,
    /// o200k_base.
    O200k,
}

impl Encoding {
    /// The encoding of a name.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "cl100k_base" => Some(Encoding::Cl100k),
            "o200k_base" => Some(Encoding::O200k),
            _ => None,
        }
    }

    /// How many tokens a text has, exactly.
    pub fn count(self, text: &str) -> usize {
        let (table, pattern) = match self {
            Encoding::Cl100k => (&CL100K, &*CL100K_PIECES),
            Encoding::O200k => (&O200K, &*O200K_PIECES),
        };
        let (mut tokens, mut at, mut joining) = (0, 0, Joining::default());
        while at < text.len() {
            let end = match self.plain_piece(text.as_bytes(), at) {
                Some(end) => end,
                None => match pattern.find_at(text, at) {
                    Some(found) => piece_end(text, at, found.end()),
                    None => break,
                },
            };
            tokens += table.count(&text.as_bytes()[at..end], &mut joining);
            at = end;
        }
        tokens
    }

    /// Where the piece at `at` ends, if it is what most pieces are: a word, a number or marks, all in ASCII. The pattern
    /// would say the same and takes several times as long; it is asked where something else may belong to the piece.
    fn plain_piece(self, text: &[u8], at: usize) -> Option<usize> {
        let first = text[at];
        if first.is_ascii_digit() {
            let end = at + text[at..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
            return (end == at + 3 || is_ascii_at(text, end)).then_some(end);
        }
        // An apostrophe may begin an ending, as in `it's`; of spaces only a single one belongs to what follows.
        if first == b'\'' || !first.is_ascii() || (is_space(first) && first != b' ') {
            return None;
        }
        // One mark or space before a word is part of it.
        let start = at + usize::from(!first.is_ascii_alphabetic());
        match text.get(start) {
            Some(next) if next.is_ascii_alphabetic() => self.plain_word(text, start),
            _ => self.plain_marks(text, at, start),
        }
    }

    /// Where the word that begins at `start` ends, if no ending and no foreign letter follows.
    fn plain_word(self, text: &[u8], start: usize) -> Option<usize> {
        let end = match self {
            Encoding::Cl100k => run(text, start, |byte| byte.is_ascii_alphabetic()),
            // Capitals behind a small letter begin another piece.
            Encoding::O200k => {
                let small = run(text, start, |byte| byte.is_ascii_uppercase());
                run(text, small, |byte| byte.is_ascii_lowercase())
            }
        };
        let ends_here = is_ascii_at(text, end)
            && text.get(end).is_none_or(|next| self == Encoding::Cl100k || *next != b'\'');
        ends_here.then_some(end)
    }

    /// Where the marks end that begin at `at`, the first of which may be a space.
    fn plain_marks(self, text: &[u8], at: usize, start: usize) -> Option<usize> {
        let from = if text[at] == b' ' { start } else { at };
        let marks =
            run(text, from, |byte| byte.is_ascii() && !byte.is_ascii_alphanumeric() && !is_space(byte));
        // Ends of lines behind marks belong to them.
        let end = run(text, marks, |byte| {
            matches!(byte, b'\r' | b'\n') || (self == Encoding::O200k && byte == b'/')
        });
        (marks > from && is_ascii_at(text, end)).then_some(end)
    }
}

/// Where bytes of a kind end that begin at `from`.
fn run(text: &[u8], from: usize, of: impl Fn(u8) -> bool) -> usize {
    from + text[from..].iter().take_while(|byte| of(**byte)).count()
}

/// Whether nothing stands there, or something in ASCII.
fn is_ascii_at(text: &[u8], at: usize) -> bool {
    text.get(at).is_none_or(u8::is_ascii)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// Spaces before a word belong to it by one: of several, the last is left to what follows.
fn piece_end(text: &str, start: usize, end: usize) -> usize {
    let piece = &text[start..end];
    let Some(last) = piece.chars().next_back() else { return end };
    let keep = end - last.len_utf8();
    let is_gap = last.is_whitespace() && !matches!(last, '\r' | '\n') && piece.trim_start().is_empty();
    if is_gap && end < text.len() && keep > start { keep } else { end }
}

static CL100K_PIECES: LazyLock<Regex> = LazyLock::new(|| {
    pieces(&[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    ])
});

static O200K_PIECES: LazyLock<Regex> = LazyLock::new(|| {
    pieces(&[
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    ])
});

/// Every text is made of pieces: what is in none of `words` is space.
fn pieces(words: &[&str]) -> Regex {
    Regex::new(&format!(r"{}|\s*[\r\n]+|\s+", words.join("|"))).expect("the pattern is one of the two above")
}

/// A vocabulary. A token's number is its place in it, and its rank: lower ones are joined first.
struct Table {
    bytes: &'static [u8],
    ends: &'static [u8],
    slots: &'static [u8],
}

macro_rules! table {
    ($name:literal) => {
        Table {
            bytes: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bytes")),
            ends: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".ends")),
            slots: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".slots")),
        }
    };
}

static CL100K: Table = table!("cl100k");
static O200K: Table = table!("o200k");

fn number(numbers: &[u8], index: usize) -> u32 {
    let bytes = numbers.get(4 * index..4 * index + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

impl Table {
    /// The number of a token, if `bytes` are one.
    fn find(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > hash::LONGEST {
            return None;
        }
        let mask = self.slots.len() / 4 - 1;
        let mut slot = hash::hash(bytes) as usize & mask;
        loop {
            let token = number(self.slots, slot).checked_sub(1)?;
            if self.token(token) == bytes {
                return Some(token);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn token(&self, token: u32) -> &'static [u8] {
        let end = number(self.ends, token as usize) as usize;
        let start = (token as usize).checked_sub(1).map_or(0, |before| number(self.ends, before) as usize);
        &self.bytes[start..end]
    }

    /// How many tokens one piece is made of.
    fn count(&self, piece: &[u8], joining: &mut Joining) -> usize {
        if piece.len() <= 1 || self.find(piece).is_some() {
            piece.len().min(1)
        } else {
            joining.run(self, piece)
        }
    }
}

/// The parts of a piece while they are joined; kept from piece to piece.
#[derive(Default)]
struct Joining {
    /// Where the part that begins here ends; zero if none does any more.
    end: Vec<u32>,
    /// Where the part before the one that begins here begins.
    before: Vec<u32>,
    /// Neighbours that are a token together: its number, where they begin and where they end.
    candidates: BinaryHeap<Reverse<(u32, u32, u32)>>,
}

impl Joining {
    fn run(&mut self, table: &Table, piece: &[u8]) -> usize {
        let len = piece.len();
        self.end.clear();
        self.end.extend(1..=len as u32);
        self.before.clear();
        self.before.extend((0..len as u32).map(|at| at.saturating_sub(1)));
        self.candidates.clear();
        for at in 0..len - 1 {
            self.consider(table, piece, at, at + 2);
        }
        let mut parts = len;
        while let Some(Reverse((_, start, end))) = self.candidates.pop() {
            let (start, end) = (start as usize, end as usize);
            let middle = self.end[start] as usize;
            // What was a candidate may have been joined with others since.
            if middle == 0 || middle >= end || self.end[middle] as usize != end {
                continue;
            }
            self.end[middle] = 0;
            self.end[start] = end as u32;
            parts -= 1;
            if end < len {
                self.before[end] = start as u32;
                self.consider(table, piece, start, self.end[end] as usize);
            }
            if start > 0 {
                self.consider(table, piece, self.before[start] as usize, end);
            }
        }
        parts
    }

    fn consider(&mut self, table: &Table, piece: &[u8], start: usize, end: usize) {
        if let Some(token) = table.find(&piece[start..end]) {
            self.candidates.push(Reverse((token, start as u32, end as u32)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Another implementation, which reads its vocabularies in.
    fn theirs(encoding: Encoding, text: &str) -> usize {
        match encoding {
            Encoding::Cl100k => bpe_openai::cl100k_base().count(text),
            Encoding::O200k => bpe_openai::o200k_base().count(text),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn tokens_are_counted_as_another_implementation_counts_them(
            text in prop_oneof![
                "[a-z A-Z'\\r\\n\\t 0-9{}\":,/_-]{0,80}",
                "([A-Za-z]{1,9}|[0-9]{1,4}|[ '{}\\[\\]\":,/_\u{1}\u{b}\u{7f}-]{1,4}|[\\r\\n/]{1,3}|[éЖ中\u{301}\u{ff11}²]){0,30}",
                "([a-z]{1,12}[ \\n]{1,3}|['’](s|T|re|LL)|[0-9]{1,7}|[  \u{a0}\u{3000}]{1,4}){0,20}",
                "\\PC{0,40}",
                any::<String>(),
            ],
        ) {
            // CAT-83
            for encoding in [Encoding::Cl100k, Encoding::O200k] {
                prop_assert_eq!(encoding.count(&text), theirs(encoding, &text));
            }
        }
    }

    #[test]
    fn a_long_piece_is_counted_too() {
        // No space in it: everything is one piece, and joining must not look at all of it again and again.
        let texts = ["a".repeat(200_000), "kz".repeat(50_000), " ".repeat(100_001), "\r\n".repeat(1000)];
        for text in &texts {
            for encoding in [Encoding::Cl100k, Encoding::O200k] {
                assert_eq!(encoding.count(text), theirs(encoding, text));
            }
        }
        assert_eq!(Encoding::default().count(""), 0);
    }

    #[test]
    fn an_encoding_has_a_name() {
        assert_eq!(Encoding::named("o200k_base"), Some(Encoding::O200k));
        assert_eq!(Encoding::named("o200k"), None);
    }
}
