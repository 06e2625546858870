//! What a text costs a model (CAT-83): tokens, counted in the two encodings most models use; the dearer one counts.

use portcullis_core::tokens::Encoding;

/// Tokens of a text.
pub fn tokens(text: &str) -> usize {
    Encoding::Cl100k.count(text).max(Encoding::O200k.count(text))
}

/// Whether a text has at most `budget` tokens. A token has a byte at least, so short texts need no counting.
pub(crate) fn fits(text: &str, budget: usize) -> bool {
    text.len() <= budget || tokens(text) <= budget
}
