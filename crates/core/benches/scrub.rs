//! How fast clean text is seen to hold no secret, beside copying it (ADM-83): `what TAB ratio` lines, which `cargo xtask bench
//! admin` makes a table of.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::time::Duration;

use portcullis_core::clock::thread_time;
use portcullis_core::scrub::scrub;

/// Each side is measured so often, in turns; the least counts.
const ROUNDS: usize = 5;

fn main() {
    for (what, text) in [("clean prose", PROSE), ("clean prose with names and colons", NAMES)] {
        println!("scrubbing {what}\t{:.3}", scrubbing(text));
    }
}

const PROSE: &str = "The gate stands between those who ask and those who answer, and what passes it was declared, allowed, \
recorded and cleaned before. Nothing else passes. Whoever wants to know why something was refused finds the reason beside it, in \
words that a person can read. ";
const NAMES: &str = "NotFoundError: server 'filesystem' does not exist (status_code=404, session_id=s1): register it first; see \
the list of servers, total=50. Elapsed: 12 ms. ";

/// How fast clean text is scrubbed, beside copying it: pieces of 4 KiB out of a text that is larger than any cache.
fn scrubbing(text: &str) -> f64 {
    let piece: String = text.chars().cycle().take(4096).collect();
    let pieces: Vec<String> = vec![piece; 16 << 10];
    let mut copy = vec![0_u8; 4096 * pieces.len()];
    let (mut copied, mut scrubbed) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let before = thread_time();
        for (piece, to) in pieces.iter().zip(copy.chunks_mut(4096)) {
            to.copy_from_slice(piece.as_bytes());
        }
        black_box(&copy);
        copied = copied.min(thread_time() - before);
        let before = thread_time();
        for piece in &pieces {
            assert_eq!(black_box(scrub(piece)).len(), 4096);
        }
        scrubbed = scrubbed.min(thread_time() - before);
    }
    copied.as_secs_f64() / scrubbed.as_secs_f64()
}
