//! What can go wrong with a log, by what the caller can do about it.

use std::path::{Path, PathBuf};

use portcullis_core::error::Fault;
use portcullis_core::{ErrorCode, Sha256Digest, Timestamp};
use serde::Serialize;

/// MP-FH-010: the trail is not durable, so what it would have recorded must not happen (AUD-3).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("MP-FH-010 audit persistence: {reason}")]
pub struct AuditBlocked {
    /// The cause, for people: what failed, where, and what to do.
    pub reason: String,
}

impl AuditBlocked {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }

    /// What everybody is told after `error`: nothing more until an operator has seen to it.
    pub(crate) fn by(error: &AuditError) -> Self {
        Self::new(format!(
            "{error}; the gateway takes no more calls: remove the cause, then run `portcullis audit unblock`"
        ))
    }

    /// The governed failure mode behind this error.
    pub fn fault(&self) -> Fault {
        Fault::Audit
    }
}

/// The kinds of damage that can be found in a log (AUD-50).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// Bytes that are no frame, or a frame that contradicts its neighbours.
    BadFrame,
    /// A frame whose checksum does not match.
    BadCrc,
    /// A record that is not the one canonical spelling of itself.
    NotCanonical,
    /// A record whose event nobody knows.
    UnknownEvent,
    /// A record whose number does not follow its predecessor's.
    SeqGap,
    /// A record that does not name the leaf hash of its predecessor.
    PrevMismatch,
    /// The log does not begin with `system.initialized` as number 0.
    MissingGenesis,
    /// A record that is older than its predecessor.
    TimeRegressed,
    /// A tile that does not have the hashes of its records.
    TileMismatch,
    /// The log's own checkpoint has another root than its records.
    RootMismatch,
    /// A checkpoint that no known key of the log signed.
    CheckpointSignature,
    /// A checkpoint over more records than there are: the end of the log was cut off.
    CheckpointAhead,
    /// A checkpoint kept elsewhere has another root: history was written anew.
    InconsistentCheckpoint,
    /// An evidence object that is in no pack although its key exists.
    EvidenceMissing,
    /// An evidence object, or its key, is not what was recorded.
    EvidenceDigest,
    /// What the log says happened was not allowed to happen.
    Invariant,
}

impl ProblemKind {
    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        match self {
            ProblemKind::BadFrame => "bad_frame",
            ProblemKind::BadCrc => "bad_crc",
            ProblemKind::NotCanonical => "not_canonical",
            ProblemKind::UnknownEvent => "unknown_event",
            ProblemKind::SeqGap => "seq_gap",
            ProblemKind::PrevMismatch => "prev_mismatch",
            ProblemKind::MissingGenesis => "missing_genesis",
            ProblemKind::TimeRegressed => "time_regressed",
            ProblemKind::TileMismatch => "tile_mismatch",
            ProblemKind::RootMismatch => "root_mismatch",
            ProblemKind::CheckpointSignature => "checkpoint_signature",
            ProblemKind::CheckpointAhead => "checkpoint_ahead",
            ProblemKind::InconsistentCheckpoint => "inconsistent_checkpoint",
            ProblemKind::EvidenceMissing => "evidence_missing",
            ProblemKind::EvidenceDigest => "evidence_digest",
            ProblemKind::Invariant => "invariant",
        }
    }
}

/// Why a log cannot be opened or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// Another process writes this log (AUD-60).
    #[error("the audit log {} is held by {}; stop that process first", dir.display(), holder(*pid, *since))]
    Held {
        /// The log's folder.
        dir: PathBuf,
        /// The holder, if it said who it is.
        pid: Option<u32>,
        /// Since when.
        since: Option<Timestamp>,
    },
    /// A file or folder that others could read or change, or that is not what it should be (AUD-15).
    #[error("{}: {problem}", path.display())]
    Permissions {
        /// The offending path.
        path: PathBuf,
        /// What is wrong and how to put it right.
        problem: String,
    },
    /// Acknowledged records are damaged; nothing is repaired silently (AUD-61).
    #[error("{} is damaged at byte {offset}: {}; restore it from a copy, the log is not opened", segment.display(), kind.as_str())]
    Corrupt {
        /// What is wrong.
        kind: ProblemKind,
        /// In which file.
        segment: PathBuf,
        /// Where in it.
        offset: u64,
    },
    /// The log is not the one a checkpoint was made over (AUD-61).
    #[error("{}: {}: {detail}; restore the log from a copy, it is not opened", path.display(), kind.as_str())]
    Checkpoint {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong.
        kind: ProblemKind,
        /// The same for people.
        detail: String,
    },
    /// The folder is not an audit folder, or holds more than one log.
    #[error("{}: {problem}", path.display())]
    Layout {
        /// The folder or file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An option is out of its range.
    #[error("{what}")]
    Options {
        /// Which, and what its range is.
        what: String,
    },
    /// An evidence object cannot be given out.
    #[error("evidence object {object}: {problem}")]
    Evidence {
        /// Its address.
        object: Sha256Digest,
        /// Why.
        problem: EvidenceProblem,
    },
    /// The key file or the sealed keys cannot be used.
    #[error("{}: {problem}", path.display())]
    Keys {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The key in the kernel's keyring cannot be used.
    #[error("key '{name}' of the kernel's keyring: {problem}")]
    Keyring {
        /// The key's name.
        name: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The log could not take its own first records.
    #[error(transparent)]
    Blocked(#[from] AuditBlocked),
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// On which path.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}

/// Why an evidence object cannot be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EvidenceProblem {
    /// No pack has it.
    #[error("not found in any pack")]
    Missing,
    /// Its key is gone, by retention or by loss.
    #[error("its key is destroyed or missing")]
    KeyDestroyed,
    /// It does not open with the key, log, role and proposal it was sealed for, or is not as long as recorded.
    #[error("does not open as recorded")]
    Digest,
}

impl AuditError {
    /// Whether there was no room, which somebody can make.
    pub(crate) fn is_disk_full(&self) -> bool {
        let full = |code| {
            [rustix::io::Errno::NOSPC, rustix::io::Errno::DQUOT]
                .map(rustix::io::Errno::raw_os_error)
                .contains(&code)
        };
        matches!(self, AuditError::Io { source, .. } if source.raw_os_error().is_some_and(full))
    }

    /// The code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            // The evidence is for its owner alone, who is the operator.
            AuditError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                ErrorCode::OperatorAuth
            }
            AuditError::Held { .. } | AuditError::Io { .. } | AuditError::Keyring { .. } => {
                ErrorCode::ControlUnavailable
            }
            AuditError::Permissions { .. } | AuditError::Layout { .. } | AuditError::Options { .. } => {
                ErrorCode::Validation
            }
            AuditError::Keys { .. } | AuditError::Corrupt { .. } | AuditError::Checkpoint { .. } => {
                ErrorCode::Integrity
            }
            AuditError::Evidence { problem: EvidenceProblem::Digest, .. } => ErrorCode::Integrity,
            AuditError::Evidence { .. } => ErrorCode::NotFound,
            AuditError::Blocked(blocked) => blocked.fault().error_code(),
        }
    }
}

fn holder(pid: Option<u32>, since: Option<Timestamp>) -> String {
    match (pid, since) {
        (Some(pid), Some(since)) => format!("process {pid} since {since}"),
        (Some(pid), None) => format!("process {pid}"),
        _ => "another process".into(),
    }
}

/// Names the path in an error of the operating system.
pub(crate) trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, AuditError>;
}

impl<T, E: Into<std::io::Error>> AtPath<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T, AuditError> {
        self.map_err(|source| AuditError::Io { path: path.into(), source: source.into() })
    }
}
