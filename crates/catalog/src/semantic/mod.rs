//! Finding by meaning, optional and local (CAT-69).
//!
//! Words alone find what is asked for in its own words. A request that names neither the tool nor its object ("who owes us
//! money" for `list_invoices`) is found by what its words are near to: every item and every query becomes a short vector, and
//! how far two point the same way is how near they are. The vectors come from a table that an operator installs; without
//! one, nothing here runs.
//!
//! Everything is integers, so that a ranking is the same on every machine. A semantic ranking never replaces the one by
//! words: both are joined by rank ([`fusion`]), and what is called by its name stays first.

pub(crate) mod fusion;
mod pieces;
mod table;
pub(crate) mod vectors;

pub use table::StaticTable;

/// Makes vectors of texts.
///
/// Vectors of one scorer are comparable, those of two are not: the fingerprint enters the digest of a snapshot.
pub trait SemanticScorer: std::fmt::Debug + Send + Sync {
    /// What the vectors depend on.
    fn fingerprint(&self) -> [u8; 32];

    /// How long vectors are.
    fn dim(&self) -> usize;

    /// The direction of a text, normalised and quantised; nothing but zeros for a text without any word it knows.
    fn embed(&self, text: &str) -> Result<Box<[i8]>, SemanticError>;
}

/// Why there are no vectors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SemanticError {
    /// The bytes are no table.
    #[error("not a table of embeddings: {0}")]
    Format(&'static str),
    /// The bytes are not the ones that were meant.
    #[error(
        "the file's SHA-256 is {found}, and {expected} was expected; install the file again or correct the digest"
    )]
    Digest {
        /// Of the file there is.
        found: String,
        /// Of the file that was meant.
        expected: String,
    },
    /// A scorer gave something else than it said.
    #[error("a vector has {found} numbers instead of {expected}")]
    Dimensions {
        /// How many there are.
        found: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A scorer of somebody else failed.
    #[error("{0}")]
    Scorer(String),
}
