//! Lays out the vocabularies of the two encodings so that they can be used where they lie in the program: nothing is
//! read in, copied or built when it runs.
//!
//! A table is the tokens' bytes one after another, where each ends, and slots: a token's number plus one, or zero. A
//! token is found in the first free slot from its hash on.

use std::path::Path;

#[path = "src/tokens/hash.rs"]
mod hash;

fn main() {
    let out = std::env::var_os("OUT_DIR").expect("cargo says where to write");
    for (name, tokenizer) in [("cl100k", bpe_openai::cl100k_base()), ("o200k", bpe_openai::o200k_base())] {
        let tokens: Vec<&[u8]> =
            (0..tokenizer.bpe.num_tokens() as u32).map(|token| tokenizer.bpe.token_bytes(token)).collect();
        write(Path::new(&out), name, &tokens);
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/tokens/hash.rs");
}

fn write(folder: &Path, name: &str, tokens: &[&[u8]]) {
    assert!(
        tokens.iter().all(|token| token.len() <= hash::LONGEST),
        "{name} has longer tokens than are looked for"
    );
    let mut slots = vec![0_u32; (tokens.len() * 2).next_power_of_two()];
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (number, token) in (1..).zip(tokens) {
        let mut slot = hash::hash(token) as usize % slots.len();
        while slots[slot] != 0 {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = number;
        bytes.extend_from_slice(token);
        ends.push(bytes.len() as u32);
    }
    let little_endian = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let put = |part: &str, content: Vec<u8>| {
        std::fs::write(folder.join(format!("{name}.{part}")), content)
            .expect("the build folder can be written to");
    };
    put("slots", little_endian(&slots));
    put("ends", little_endian(&ends));
    put("bytes", bytes);
}
