//! Text from agents and servers as it really is (GOV-902).
//!
//! What a reader would not see, or would see as something else, is written as an escape and marked: control and
//! format characters, white space that is no plain space, and whatever is not in the composed form (NFC) that two
//! equal-looking texts share. The templates escape everything for HTML; here nothing is.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    /// What is shown.
    pub(crate) text: String,
    /// Whether it stands for something that would not be seen.
    pub(crate) marked: bool,
}

/// A text in pieces, so that a template can mark some of them.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let composed = unicode_normalization::is_nfc(text);
    let mut pieces: Vec<Piece> = Vec::new();
    for c in text.chars() {
        let (shown, marked) = match seen(c, composed) {
            None => (Cow::from(c.to_string()), false),
            Some(escape) => (Cow::from(escape), true),
        };
        match pieces.last_mut() {
            Some(last) if last.marked == marked => last.text.push_str(&shown),
            _ => pieces.push(Piece { text: shown.into_owned(), marked }),
        }
    }
    pieces
}

/// The escape of a character that would not be seen as it is.
fn seen(c: char, composed: bool) -> Option<String> {
    if c == '\n' || c == ' ' {
        return None;
    }
    let hidden = c.is_control()
        || c.is_whitespace()
        || !portcullis_core::name::has_visible_character(c.encode_utf8(&mut [0; 4]));
    let decomposed = !composed && (is_combining_mark(c) || !std::iter::once(c).nfc().eq(std::iter::once(c)));
    (hidden || decomposed).then(|| format!("\\u{{{:x}}}", u32::from(c)))
}

/// A JSON document over several lines, in pieces. Line ends inside strings are escapes already.
pub(crate) fn json(document: &serde_json::Value) -> Vec<Piece> {
    pieces(&serde_json::to_string_pretty(document).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let show = |piece: &Piece| match piece.marked {
            true => format!("[{}]", piece.text),
            false => piece.text.clone(),
        };
        pieces(text).iter().map(show).collect()
    }

    #[test]
    fn what_would_not_be_seen_is_marked() {
        // GOV-902: control, bidi, non-NFC.
        let cases = [
            ("plain text, größer, 世界", "plain text, größer, 世界"),
            ("pay\u{202e}gnp.exe", "pay[\\u{202e}]gnp.exe"),
            ("a\u{200b}\u{200d}b", "a[\\u{200b}\\u{200d}]b"),
            ("nul\0 bell\u{7} esc\u{1b}[31m", "nul[\\u{0}] bell[\\u{7}] esc[\\u{1b}][31m"),
            ("no\u{a0}break\u{2003}em", "no[\\u{a0}]break[\\u{2003}]em"),
            ("e\u{301}t\u{e9}", "e[\\u{301}]té"),
            ("\u{212b}", "[\\u{212b}]"),
            ("tag\u{e0041}", "tag[\\u{e0041}]"),
            ("line\nline\ttab", "line\nline[\\u{9}]tab"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text:?}");
        }
    }
}
