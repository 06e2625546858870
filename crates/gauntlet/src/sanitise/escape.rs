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

/// How much of a text is looked through at a time.
const BLOCK: usize = 4_096;
/// How much of a piece is copied at a time.
const STEP: usize = 32;

/// Writes `text` escaped; `capacity` is its [`escaped_len`]. First where the specials of a block are, then what stands
/// between them: either loop is short enough to be fast.
pub(crate) fn escape(text: &str, capacity: usize) -> String {
    let source = text.as_bytes();
    let mut out = vec![0u8; capacity + STEP];
    let (mut written, mut done) = (0, 0);
    let mut places = [0u16; BLOCK];
    for (index, block) in source.chunks(BLOCK).enumerate() {
        let mut found = 0;
        SPECIALS.each(block, |at| {
            places[found] = at as u16;
            found += 1;
        });
        for place in &places[..found] {
            let at = index * BLOCK + usize::from(*place);
            written = copy(&mut out, written, source, done, at);
            let (reference, length) = &REFERENCES[usize::from(source[at] & 15)];
            out[written..written + reference.len()].copy_from_slice(reference);
            written += length;
            done = at + 1;
        }
    }
    written = copy(&mut out, written, source, done, source.len());
    out.truncate(written);
    // SAFETY: `out` is `text`, which is UTF-8, with whole ASCII characters replaced by ASCII. Each piece is copied from
    // its first byte to its last, and what a step copied beyond it is overwritten by what follows, or truncated.
    #[expect(unsafe_code, reason = "looking at every byte again costs as much as escaping")]
    unsafe {
        String::from_utf8_unchecked(out)
    }
}

/// Copies `source[from..to]` to `out[at..]`; a short piece in one step, perhaps with some bytes too many behind, which the
/// next piece covers.
#[inline]
fn copy(out: &mut [u8], at: usize, source: &[u8], from: usize, to: usize) -> usize {
    let len = to - from;
    let step = (source[from..].first_chunk::<STEP>()).zip(out[at..].first_chunk_mut::<STEP>());
    match step {
        Some((piece, place)) if len <= STEP => *place = *piece,
        _ => out[at..at + len].copy_from_slice(&source[from..to]),
    }
    at + len
}

/// The references, filled up, and how long each really is; by the low half of the byte they stand for, which is
/// different for each of the five.
const REFERENCES: [([u8; 8], usize); 16] = {
    let mut references = [(*b"        ", 0); 16];
    references[(b'&' & 15) as usize] = (*b"&amp;   ", 5);
    references[(b'<' & 15) as usize] = (*b"&lt;    ", 4);
    references[(b'>' & 15) as usize] = (*b"&gt;    ", 4);
    references[(b'"' & 15) as usize] = (*b"&quot;  ", 6);
    references[(b'\'' & 15) as usize] = (*b"&#x27;  ", 6);
    references
};

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
