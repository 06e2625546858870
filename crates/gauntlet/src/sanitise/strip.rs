//! Taking control characters out (transform 1).

use std::borrow::Cow;

/// Whether a character is stripped: C0 and C1 controls and DEL, but not TAB, LF and CR.
pub(crate) fn is_stripped(c: char) -> bool {
    matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{9f}')
}

/// The ASCII part of the same set.
pub(crate) fn ascii_controls() -> impl Iterator<Item = u8> {
    (0..=127u8).filter(|byte| is_stripped(char::from(*byte)))
}

/// Whether the text has any of U+0080 to U+009F: in UTF-8 the byte C2 and another below A0.
pub(crate) fn has_c1_controls(text: &str) -> bool {
    let bytes = text.as_bytes();
    memchr::memchr_iter(0xc2, bytes).any(|at| bytes.get(at + 1).is_some_and(|byte| *byte < 0xa0))
}

/// The text without control characters, and how many there were.
pub(crate) fn strip(text: &str) -> (Cow<'_, str>, usize) {
    if !text.contains(is_stripped) {
        return (Cow::Borrowed(text), 0);
    }
    let mut out = String::with_capacity(text.len());
    let mut removed = 0;
    for piece in text.split(is_stripped) {
        out.push_str(piece);
        removed += 1;
    }
    (Cow::Owned(out), removed - 1)
}

/// The text without terminal sequences, whole: CSI (`ESC [ … final`), OSC (`ESC ] … BEL` or `ESC \`), and their
/// one-character forms. Only on request (GNT-Z16): stripping alone leaves `[31m`, which tells that something
/// was there.
pub(crate) fn strip_ansi(text: &str) -> (Cow<'_, str>, usize) {
    if !text.contains(['\x1b', '\u{9b}', '\u{9d}']) {
        return (Cow::Borrowed(text), 0);
    }
    let mut out = String::with_capacity(text.len());
    let mut removed = 0;
    let mut rest = text;
    while let Some(at) = rest.find(['\x1b', '\u{9b}', '\u{9d}']) {
        out.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let end = sequence_len(sequence);
        if end == 0 {
            // Not a sequence: the character itself is left to `strip`.
            let first = sequence.chars().next().map_or(0, char::len_utf8);
            out.push_str(&sequence[..first]);
            rest = &sequence[first..];
        } else {
            removed += 1;
            rest = &sequence[end..];
        }
    }
    out.push_str(rest);
    (Cow::Owned(out), removed)
}

/// The length of the sequence at the start of `text`; 0 if there is none, or it never ends.
fn sequence_len(text: &str) -> usize {
    let body = |introducers: [&str; 2]| introducers.iter().find_map(|intro| text.strip_prefix(intro));
    if let Some(body) = body(["\x1b[", "\u{9b}"]) {
        let parameters = body.find(|c: char| !matches!(c, ' '..='?')).unwrap_or(body.len());
        return match body[parameters..].chars().next() {
            Some(c @ '@'..='~') => text.len() - body.len() + parameters + c.len_utf8(),
            _ => 0,
        };
    }
    if let Some(body) = body(["\x1b]", "\u{9d}"]) {
        // Another escape breaks it off, so each character is looked at once however many are never ended.
        let Some(at) = body.find(['\x07', '\x1b', '\u{9c}']) else { return 0 };
        let ends = ["\x07", "\x1b\\", "\u{9c}"];
        let end = ends.iter().find(|end| body[at..].starts_with(**end));
        return end.map_or(0, |end| text.len() - body.len() + at + end.len());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_go_and_white_space_stays() {
        assert_eq!(strip("a\tb\nc\rd"), (Cow::Borrowed("a\tb\nc\rd"), 0));
        assert_eq!(strip("a\x7fb\u{85}c\0"), (Cow::Borrowed("abc"), 3));
    }

    #[test]
    fn terminal_sequences_go_whole() {
        // GNT-Z16
        for (text, left) in [
            ("a\x1b[1;31mred\x1b[0m", "ared"),
            ("\u{9b}2Jx", "x"),
            ("\x1b]0;title\x07x\x1b]8;;u\x1b\\y", "xy"),
            ("\x1b[31", "\x1b[31"),
            ("\x1b]never", "\x1b]never"),
            ("\x1bM", "\x1bM"),
        ] {
            assert_eq!(strip_ansi(text).0, left, "{text:?}");
        }
    }
}
