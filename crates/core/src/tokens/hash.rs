// Shared by `build.rs`, which lays the tables out, and by `tokens`, which looks them up.

/// No token is longer.
pub(crate) const LONGEST: usize = 128;

/// Where to look for `bytes` first.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |state: u64, word: u64| (state ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let mut chunks = bytes.chunks_exact(8);
    let mut state = bytes.len() as u64;
    for chunk in &mut chunks {
        state = step(state, u64::from_le_bytes(chunk.try_into().unwrap_or_default()));
    }
    let rest = chunks.remainder().iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    step(step(state, rest), state >> 32)
}
