//! Writing text so that markup in it is text (transform 2).

use super::ascii_set::AsciiSet;
use std::sync::LazyLock;

/// The five characters that are written as references.
pub(crate) static SPECIALS: LazyLock<AsciiSet> = LazyLock::new(|| AsciiSet::new(*b"&<>\"'"));

/// How long the text is once escaped. Counted first, so that a text that would grow beyond its limit is refused
/// before anything is allocated for it.
pub(crate) fn escaped_len(text: &str) -> usize {
    text.len() + text.as_bytes().chunks(32).map(growth).sum::<usize>()
}

/// What escaping adds to at most 32 bytes; small enough for a byte, so that the loop becomes vector code.
fn growth(bytes: &[u8]) -> usize {
    let more = |byte: u8| -> u8 {
        4 * u8::from(byte == b'&')
            + 3 * u8::from(byte == b'<')
            + 3 * u8::from(byte == b'>')
            + 5 * u8::from(byte == b'"')
            + 5 * u8::from(byte == b'\'')
    };
    usize::from(bytes.iter().fold(0u8, |sum, byte| sum + more(*byte)))
}

/// Writes `text` escaped; `capacity` is its [`escaped_len`].
pub(crate) fn escape(text: &str, capacity: usize) -> String {
    let mut out = String::with_capacity(capacity);
    let mut done = 0;
    SPECIALS.each(text.as_bytes(), |at| {
        out.push_str(&text[done..at]);
        out.push_str(reference(text.as_bytes()[at]));
        done = at + 1;
    });
    out.push_str(&text[done..]);
    out
}

fn reference(byte: u8) -> &'static str {
    match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        b'"' => "&quot;",
        _ => "&#x27;",
    }
}
