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

/// Writes `text` escaped; `capacity` is its [`escaped_len`]. Pieces between specials are short where there are many, so
/// they are copied in steps of a fixed size, which costs no call.
pub(crate) fn escape(text: &str, capacity: usize) -> String {
    let source = text.as_bytes();
    let mut out = vec![0u8; capacity + STEP];
    let (mut written, mut done) = (0, 0);
    SPECIALS.each(source, |at| {
        written = copy(&mut out, written, source, done, at);
        let (reference, length) = reference(source[at]);
        out[written..written + reference.len()].copy_from_slice(reference);
        written += length;
        done = at + 1;
    });
    written = copy(&mut out, written, source, done, source.len());
    out.truncate(written);
    // SAFETY: `out` is `text`, which is UTF-8, with whole ASCII characters replaced by ASCII. Each piece is copied from
    // its first byte to its last, and what a step copied beyond it is overwritten by what follows, or truncated.
    #[expect(unsafe_code, reason = "looking at every byte again costs as much as escaping")]
    unsafe {
        String::from_utf8_unchecked(out)
    }
}

const STEP: usize = 16;

/// Copies `source[from..to]` to `out[at..]`, perhaps with some bytes too many behind, which the next piece covers.
#[inline]
fn copy(out: &mut [u8], mut at: usize, source: &[u8], mut from: usize, to: usize) -> usize {
    while from < to {
        let step = STEP.min(to - from);
        match source.get(from..from + STEP) {
            Some(piece) => out[at..at + STEP].copy_from_slice(piece),
            None => out[at..at + step].copy_from_slice(&source[from..from + step]),
        }
        at += step;
        from += step;
    }
    at
}

/// A reference, filled up, and how long it really is.
#[inline]
fn reference(byte: u8) -> (&'static [u8; 8], usize) {
    match byte {
        b'&' => (b"&amp;   ", 5),
        b'<' => (b"&lt;    ", 4),
        b'>' => (b"&gt;    ", 4),
        b'"' => (b"&quot;  ", 6),
        _ => (b"&#x27;  ", 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaping_in_steps_is_escaping(text in "[a-z&<>\"'é漢]{0,90}") {
            let escapes = [("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("\"", "&quot;"), ("'", "&#x27;")];
            let expected = escapes.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
            prop_assert_eq!(escaped_len(&text), expected.len());
            let escaped = escape(&text, expected.len());
            prop_assert!(std::str::from_utf8(escaped.as_bytes()).is_ok());
            prop_assert_eq!(escaped, expected);
        }
    }
}
