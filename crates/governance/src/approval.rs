//! Approvals: what operators decided, and what is left of it (GOV §9).
//!
//! The book holds pending requests and decided grants in memory; the log holds the truth, and a restart
//! rebuilds the book from it. A grant is used through a [`Claim`]: taken when the permit is issued, spent when
//! the intent is durable, and given back if the call ends before that.

mod ahead;
mod book;
mod envelope;

use std::time::Duration;

use portcullis_core::{
    ApprovalId, PolicyVersion, Principal, ProposalId, RegistrationEpoch, SessionId, Sha256Digest, Timestamp,
    ToolId,
};
use serde::{Deserialize, Serialize};

use crate::operator::{Method, Separation};
use crate::policy::Offer;
use crate::request::Fingerprint;

pub use ahead::{Ahead, GivenAhead};
pub use book::{Book, Claim};
pub use envelope::Envelope;

/// How far one approval reaches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// These exact arguments, one use, 15 minutes.
    Once,
    /// This tool in this session: at most 8 hours and 100 uses.
    Session,
    /// This tool until anything about it changes: at most 7 days and 1000 uses.
    UntilVersionChange,
}

impl Scope {
    /// All, from narrow to wide.
    pub const ALL: [Scope; 3] = [Scope::Once, Scope::Session, Scope::UntilVersionChange];

    /// The word in records, policy and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Once => "once",
            Scope::Session => "session",
            Scope::UntilVersionChange => "until-version-change",
        }
    }

    fn life(self) -> (Duration, u64) {
        const HOUR: u64 = 3600;
        match self {
            Scope::Once => (Duration::from_secs(15 * 60), 1),
            Scope::Session => (Duration::from_secs(8 * HOUR), 100),
            Scope::UntilVersionChange => (Duration::from_secs(7 * 24 * HOUR), 1000),
        }
    }

    /// What the scope covers, for the person deciding.
    pub fn coverage(self) -> &'static str {
        match self {
            Scope::Once => "exactly these arguments, one time, within 15 minutes",
            Scope::Session => "any arguments of this tool in this session, up to 100 times or 8 hours",
            Scope::UntilVersionChange => {
                "any arguments of this tool until its version or declaration changes, up to 1000 times or 7 days"
            }
        }
    }
}

impl std::str::FromStr for Scope {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Scope::ALL.into_iter().find(|scope| scope.as_str() == text).ok_or_else(|| {
            format!(
                "{} is not an approval scope; expected once, session or until-version-change",
                portcullis_core::name::printable(text)
            )
        })
    }
}

/// How long a pending approval waits for somebody.
pub const PENDING_TTL: Duration = Duration::from_secs(15 * 60);

/// After this many denials of equal requests within [`DENIAL_WINDOW`], nobody is asked for as long again.
const MAX_DENIALS: usize = 3;
const DENIAL_WINDOW: Duration = Duration::from_secs(10 * 60);

/// Where an approval is in its life (GOV-901).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum State {
    Pending,
    Approved,
    Denied,
    Expired,
    Withdrawn,
    Consumed,
    Revoked,
    Invalidated,
}

impl State {
    /// The word in records and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Approved => "approved",
            State::Denied => "denied",
            State::Expired => "expired",
            State::Withdrawn => "withdrawn",
            State::Consumed => "consumed",
            State::Revoked => "revoked",
            State::Invalidated => "invalidated",
        }
    }
}

/// One operator's decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct OperatorDecision {
    pub by: String,
    pub method: Method,
    pub at: Timestamp,
    pub reason: String,
    pub separation: Separation,
}

/// An approval, pending or decided.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Approval {
    pub approval_id: ApprovalId,
    pub proposal_id: ProposalId,
    pub fingerprint: Fingerprint,
    pub tool_id: ToolId,
    pub registration_epoch: RegistrationEpoch,
    pub principal: Principal,
    pub session: SessionId,
    pub policy_version: PolicyVersion,
    pub canon_version: String,
    /// The scopes an operator may choose, each with its quorum.
    pub offers: Vec<Offer>,
    /// The scope chosen by the first approver.
    pub scope: Option<Scope>,
    pub decisions: Vec<OperatorDecision>,
    pub requested_at: Timestamp,
    pub expires_at: Timestamp,
    pub uses_left: u64,
    /// Digest of exactly what the operator is shown.
    pub presented_sha256: Sha256Digest,
    pub state: State,
}

/// Why a decision is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionRefused {
    /// No such approval.
    #[error("there is no approval {0}")]
    Unknown(ApprovalId),
    /// Somebody else decided, or time did.
    #[error("approval {id} is {}, no longer pending", state.as_str())]
    NotPending {
        /// Which.
        id: ApprovalId,
        /// What it is instead.
        state: State,
    },
    /// There is no grant to take back.
    #[error("approval {id} is {}, not a grant in force", state.as_str())]
    NotGranted {
        /// Which.
        id: ApprovalId,
        /// What it is instead.
        state: State,
    },
    /// Policy does not offer that scope for this call.
    #[error("scope {} is not offered for this call; offered: {offered}", scope.as_str())]
    NotOffered {
        /// What was asked for.
        scope: Scope,
        /// What may be chosen.
        offered: String,
    },
    /// One person decides once.
    #[error("{0} has already decided; another operator is needed")]
    SamePerson(String),
    /// Nobody approves what it asks for itself (GOV-905).
    #[error("{0} asks for this call; another operator must decide")]
    OwnRequest(String),
    /// A decision without a visible reason.
    #[error("a decision needs a reason")]
    NoReason,
}

/// What asking came to.
#[derive(Debug)]
pub enum Asked {
    /// A new request; its event must become durable before anybody sees it.
    New(Box<Approval>),
    /// An equal request is already pending.
    Joined(ApprovalId),
    /// Equal requests were denied so often that nobody is asked for now.
    Suppressed {
        /// When asking is possible again.
        until: Timestamp,
    },
}
