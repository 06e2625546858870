//! Where lines begin.

/// How many lines a text has; a last one without its end counts.
pub(crate) fn count(text: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', text).count() as u64;
    ends + u64::from(text.last().is_some_and(|last| *last != b'\n'))
}
