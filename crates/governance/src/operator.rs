//! Proof that an operator, and not an agent, asks (GOV-104, INV-MP-004).

pub mod passphrase;
pub mod ssh;
pub mod webauthn;

use portcullis_core::{Actor, LogId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::approval::OperatorDecision;

/// How the operator was recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The peer of the operator socket runs under the gateway's own uid (SO_PEERCRED).
    Uid,
    /// The operator knows its passphrase.
    Passphrase,
    /// The operator's ssh-agent signed the request with an enrolled key.
    SshAgent,
    /// The operator's security key signed the request, in the browser.
    Webauthn,
    /// A program has a token that an operator made for it.
    Token,
    /// The command holds the writer lock itself: no daemon runs, and the file system says who may.
    Local,
}

/// Whether agents and operators run under different users (GOV-105).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Separation {
    /// Agents run under another uid than the operator.
    DedicatedUid,
    /// They share one: allowed in mode `local`, and recorded with each decision.
    SameUid,
}

/// An authenticated operator. Only the operator channel makes one; agent listeners have no path to it.
#[derive(Debug, Clone)]
pub struct OperatorProof {
    name: String,
    method: Method,
    separation: Separation,
    operation: Option<(LogId, u64)>,
}

impl OperatorProof {
    /// For the operator channel, after it has authenticated its peer.
    pub fn authenticated(name: impl Into<String>, method: Method, separation: Separation) -> Self {
        Self { name: name.into(), method, separation, operation: None }
    }

    /// The operator's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the operator was recognised.
    pub fn method(&self) -> Method {
        self.method
    }

    /// Whether agents could be the same user.
    pub fn separation(&self) -> Separation {
        self.separation
    }

    /// The same operator, doing what the intent at this place of the log announced (ADM-53).
    #[must_use]
    pub fn during(&self, log: LogId, intent: u64) -> Self {
        Self { operation: Some((log, intent)), ..self.clone() }
    }

    /// The record that announced what the operator is doing, if one did.
    pub fn operation(&self) -> Option<(LogId, u64)> {
        self.operation
    }

    /// A decision of this operator's.
    pub fn decision(&self, reason: &str, at: Timestamp) -> OperatorDecision {
        OperatorDecision {
            by: self.name.clone(),
            method: self.method,
            at,
            reason: portcullis_core::error::one_line(reason),
            separation: self.separation,
        }
    }

    /// The author of this operator's events.
    pub fn actor(&self) -> Actor {
        Actor::operator(&self.name)
    }
}
