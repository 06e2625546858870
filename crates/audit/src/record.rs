//! A record as it is read back (AUD-10).

use std::fmt;
use std::str::FromStr;

use portcullis_core::{
    Actor, EventId, LogId, PolicyVersion, ProposalId, RegistrationEpoch, SessionId, Sha256Digest, Timestamp,
    ToolId,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::event_name::EventName;
use crate::evidence::EvidenceRef;
use crate::frame;

/// One event of the log.
///
/// Serialises to the members it was read from. That form is for people and queries; what is hashed is the
/// record's own bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Who did it.
    pub actor: Actor,
    /// The canonicalization that was in force.
    #[serde(deserialize_with = "present")]
    pub canon: Option<String>,
    /// What the event says besides; its shape depends on `event`.
    pub data: Value,
    /// The life of the server it concerns.
    #[serde(deserialize_with = "present")]
    pub epoch: Option<RegistrationEpoch>,
    /// What happened.
    pub event: EventName,
    /// The exact bytes it happened with.
    pub evidence: Vec<EvidenceRef>,
    /// The record's id.
    pub id: EventId,
    /// The log it belongs to.
    pub log: LogId,
    /// The policy in force.
    #[serde(deserialize_with = "present")]
    pub policy: Option<PolicyVersion>,
    /// Leaf hash of the record before.
    pub prev: Sha256Digest,
    /// The proposal it belongs to.
    #[serde(deserialize_with = "present")]
    pub proposal: Option<ProposalId>,
    /// Causes in other logs.
    pub refs: Vec<Reference>,
    /// Its number: 0, 1, 2, … without gap.
    pub seq: u64,
    /// The session it belongs to.
    #[serde(deserialize_with = "present")]
    pub session: Option<SessionId>,
    /// The step within the session.
    #[serde(deserialize_with = "present")]
    pub step: Option<u64>,
    /// When it was committed; never before the record before.
    pub time: Timestamp,
    /// The tool it concerns.
    #[serde(deserialize_with = "present")]
    pub tool_id: Option<ToolId>,
    /// The trust the server had.
    #[serde(deserialize_with = "present")]
    pub trust: Option<String>,
    /// The version of this layout: 1.
    pub v: u8,
    /// SHA-256 of a zero byte and the record's bytes: what the next record names as `prev`.
    #[serde(skip, default = "no_leaf")]
    pub leaf: Sha256Digest,
}

impl Record {
    /// Reads a record from its bytes. Whether they are its one canonical spelling is for
    /// [`verify`](crate::verify) to say.
    pub fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut record: Record = serde_json::from_slice(bytes)?;
        record.leaf = frame::leaf(bytes);
        Ok(record)
    }
}

/// The members that chain one record to the next; everything else is skipped. Opening a log reads a whole
/// segment this way.
#[derive(Debug, Deserialize)]
pub(crate) struct Links {
    pub(crate) prev: Sha256Digest,
    pub(crate) seq: u64,
    pub(crate) time: Timestamp,
}

/// `null` when not applicable, always present (AUD-10): serde would take a missing member for `null`.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(d)
}

fn no_leaf() -> Sha256Digest {
    Sha256Digest::ZERO
}

/// A record of another log: `<log>/<seq>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference {
    /// The other log.
    pub log: LogId,
    /// The record's number there.
    pub seq: u64,
}

/// The text is not a reference to a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a reference to a record: expected <log>/<seq>")]
pub struct ReferenceError;

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.log, self.seq)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;
    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let (log, seq) = text.split_once('/').ok_or(ReferenceError)?;
        let reference = Self {
            log: log.parse().map_err(|_| ReferenceError)?,
            seq: seq.parse().map_err(|_| ReferenceError)?,
        };
        if reference.to_string() == text { Ok(reference) } else { Err(ReferenceError) }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}
