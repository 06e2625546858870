//! What the library refuses, besides findings, which refuse nothing but one definition.

use portcullis_core::name::printable;

/// Why a function of this crate has no answer (CAT-102).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// The text is not an id of the catalogue.
    #[error("not a tool id: {input}: the {field} does not fit")]
    IdMalformed {
        /// The text, cut and escaped.
        input: String,
        /// Which part: `kind`, `namespace`, `name`, `version`, `hash`, `length`.
        field: &'static str,
    },
    /// There is nothing to select from.
    #[error("no candidates: give at least one id")]
    NoCandidates,
    /// Nobody of that name takes selection schemas.
    #[error("unknown provider {input}: use json_schema, openai or anthropic")]
    UnknownProvider {
        /// What was asked for, cut and escaped.
        input: String,
    },
    /// A file of capabilities, synonyms or embeddings does not have its format.
    #[error("line {line}: {detail}")]
    SnapshotFormat {
        /// From 1; 0 if it is about the file as a whole.
        line: usize,
        /// What is wrong.
        detail: String,
    },
}

impl CatalogError {
    pub(crate) fn malformed(input: &str, field: &'static str) -> Self {
        CatalogError::IdMalformed { input: printable(input), field }
    }
}
