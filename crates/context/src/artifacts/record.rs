//! What is known about an artifact besides its bytes (CTX-21).

use portcullis_core::{Principal, ProposalId, SessionId, Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};

use crate::envelope::Source;
use crate::handle::Handle;

/// Who may view an artifact: one principal in one session, nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Who made the call.
    pub principal: Principal,
    /// In which governance session (GOV-1202).
    pub session: SessionId,
}

/// Which call an artifact is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The proposal.
    pub call_id: ProposalId,
    /// The tool, in full.
    pub tool_identity: String,
    /// How sensitive its results are.
    pub sensitivity: Sensitivity,
    /// Whether secrets were taken out.
    pub redacted: bool,
}

/// How sensitive a text is, the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sensitivity {
    /// Anybody's.
    #[default]
    Public,
    /// Ours.
    Internal,
    /// Some of us.
    Confidential,
    /// Nobody without need.
    Restricted,
}

impl Sensitivity {
    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Sensitivity::Public => "public",
            Sensitivity::Internal => "internal",
            Sensitivity::Confidential => "confidential",
            Sensitivity::Restricted => "restricted",
        }
    }
}

/// Everything about one artifact but its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub handle: Handle,
    /// Whose it is.
    #[serde(flatten)]
    pub owner: Owner,
    /// Where it is from.
    #[serde(flatten)]
    pub origin: Origin,
    /// What it was in the result.
    pub source: Source,
    /// Which part.
    pub part_index: Option<usize>,
    /// What kind of bytes.
    pub media_type: String,
    /// How many.
    pub size_bytes: u64,
    /// Their digest.
    pub content_hash: Sha256Digest,
    /// What it is.
    pub label: String,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when, unless it is viewed again.
    pub expires_at: Timestamp,
}
