//! The table that finds by meaning, read when the catalogue is first built (CAT-69).

use std::path::PathBuf;
use std::sync::Arc;

use portcullis_catalog::{SemanticError, SemanticScorer, StaticTable};
use portcullis_core::Sha256Digest;

/// Tables are a few megabytes; what is larger than this is something else.
const MAX_BYTES: u64 = 256 << 20;

/// Where a table of embeddings is, and which one it must be.
#[derive(Debug, Clone)]
pub struct Embeddings {
    /// The file.
    pub path: PathBuf,
    /// Its digest: ranking decides what a model sees, so nobody else may change the table.
    pub sha256: Sha256Digest,
}

impl Embeddings {
    /// Reads the table. Whoever has none goes on without it, and says so.
    pub(super) fn load(&self) -> Result<Arc<dyn SemanticScorer>, SemanticError> {
        let unread = |problem: String| SemanticError::Scorer(format!("{}: {problem}", self.path.display()));
        let size = std::fs::metadata(&self.path).map_err(|error| unread(error.to_string()))?.len();
        if size > MAX_BYTES {
            return Err(unread(format!("{size} bytes are more than a table of embeddings has")));
        }
        let bytes = std::fs::read(&self.path).map_err(|error| unread(error.to_string()))?;
        Ok(Arc::new(StaticTable::parse(&bytes, Some(self.sha256))?))
    }
}
