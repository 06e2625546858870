//! Why state cannot be read or changed.

use std::path::PathBuf;

use portcullis_core::{ErrorCode, LogId};

/// What can go wrong with the store. None of it loses anything: the log has everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store follows another log.
    #[error(
        "the state belongs to log {follows}, these records are of {offered}; empty the state to rebuild it"
    )]
    OtherLog {
        /// The log it follows.
        follows: String,
        /// The log of the records.
        offered: LogId,
    },
    /// A record does not say what its event must say.
    #[error("record {seq} ({event}) cannot be applied: {problem}")]
    Record {
        /// Its number.
        seq: u64,
        /// Its event.
        event: String,
        /// What is missing or wrong.
        problem: String,
    },
    /// A row is not what was written.
    #[error("the state is damaged ({what}); delete it, it is rebuilt from the log")]
    Damaged {
        /// Where.
        what: &'static str,
    },
    /// Others could read or change the file.
    #[error("{} has mode {mode:o}, at most 600 is allowed; run: chmod 600 {}", path.display(), path.display())]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// On which path.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// SQLite refused.
    #[error("state database: {0}")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    /// The code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            StoreError::OtherLog { .. } => ErrorCode::Conflict,
            StoreError::Record { .. } | StoreError::Damaged { .. } => ErrorCode::Integrity,
            StoreError::Permissions { .. } => ErrorCode::Validation,
            StoreError::Io { .. } | StoreError::Database(_) => ErrorCode::ControlUnavailable,
        }
    }
}
