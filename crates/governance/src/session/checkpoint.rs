//! Checkpoints: places where a session stops until somebody has looked (GOV-1203).

use std::collections::BTreeSet;

use portcullis_core::name::ScopeName;
use portcullis_core::{ApprovalId, Principal, ProposalId, ServerIdentity, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Memory, Session};
use crate::declaration::SideEffect;
use crate::request::{CanonicalRequest, Fingerprint};

/// Why a session stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Another policy is in force; resolves by itself.
    PolicyActivation,
    /// A tool that the session used has lost its trust.
    Demotion,
    /// An operator said so.
    Operator,
    /// A call does something that no call of the session did before, beyond reading.
    ClassEscalation,
    /// A call reaches something that no call of the session reached before.
    ScopeExpansion,
    /// The session made as many calls as it may without somebody looking.
    CallBudget,
}

impl Trigger {
    /// The word in records and listings.
    pub fn as_str(self) -> &'static str {
        match self {
            Trigger::PolicyActivation => "policy_activation",
            Trigger::Demotion => "demotion",
            Trigger::Operator => "operator",
            Trigger::ClassEscalation => "class_escalation",
            Trigger::ScopeExpansion => "scope_expansion",
            Trigger::CallBudget => "call_budget",
        }
    }
}

/// What stops a session, with all that a restart must not forget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Which session.
    pub session_id: SessionId,
    /// Whose.
    pub principal: Principal,
    /// What its client calls itself; not trusted.
    #[serde(default)]
    pub client: String,
    /// Why.
    pub trigger: Trigger,
    /// Why, in words.
    pub reason: String,
    /// The server whose tool lost its trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerIdentity>,
    /// Since when.
    pub opened_at: Timestamp,
    /// The call that went too far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal_id: Option<ProposalId>,
    /// The approval that resolves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// What an equal call has in common with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) classes: Vec<SideEffect>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) scopes: Vec<(ServerIdentity, ScopeName)>,
}

impl Checkpoint {
    /// One that no call opens.
    pub fn new(session: &Session, trigger: Trigger, reason: impl Into<String>, now: Timestamp) -> Self {
        Self {
            session_id: session.id(),
            principal: session.principal().clone(),
            client: session.client().to_owned(),
            trigger,
            reason: reason.into(),
            server: None,
            opened_at: now,
            proposal_id: None,
            approval_id: None,
            fingerprint: None,
            classes: Vec::new(),
            scopes: Vec::new(),
        }
    }

    /// Because of what a server did.
    pub fn because_of(self, server: &ServerIdentity) -> Self {
        Self { server: Some(server.clone()), ..self }
    }

    pub(super) fn of_call(
        session: &Session,
        (trigger, reason): (Trigger, String),
        request: &CanonicalRequest,
        proposal: ProposalId,
        now: Timestamp,
    ) -> Self {
        Self {
            proposal_id: Some(proposal),
            fingerprint: Some(request.fingerprint()),
            classes: request.tool().side_effects().to_vec(),
            scopes: scopes_of(request).collect(),
            ..Self::new(session, trigger, reason, now)
        }
    }

    /// Whether this is the call that opened it, or an equal one.
    pub(super) fn is_about(&self, request: &CanonicalRequest) -> bool {
        self.fingerprint == Some(request.fingerprint())
    }
}

/// What becomes of a call at the checkpoint of its session.
#[derive(Debug)]
pub enum Passage {
    /// Nothing stops it.
    Free,
    /// It went too far: the session is stopped, until this very call is approved.
    Opened(Box<Checkpoint>),
    /// It is the call for whose approval the session waits.
    Awaits,
    /// The session is stopped.
    Stopped(Box<Checkpoint>),
}

/// What of a session's calls opens a checkpoint; nothing, unless policy says so.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointRules {
    /// A class beyond reading that is new to the session.
    pub class_escalation: bool,
    /// A scope that is new to a session that has called already.
    pub scope_expansion: bool,
    /// More calls than this.
    pub call_budget: Option<u64>,
}

impl CheckpointRules {
    pub(super) fn is_empty(&self) -> bool {
        !self.class_escalation && !self.scope_expansion && self.call_budget.is_none()
    }

    pub(super) fn triggered(&self, memory: &Memory, request: &CanonicalRequest) -> Option<(Trigger, String)> {
        if let Some(budget) = self.call_budget.filter(|budget| memory.calls >= *budget) {
            return Some((Trigger::CallBudget, format!("the session has made {budget} calls")));
        }
        if self.class_escalation {
            let new: BTreeSet<&str> = (request.tool().side_effects().iter())
                .filter(|class| **class != SideEffect::Read && !memory.classes.contains(class))
                .map(|class| class.as_str())
                .collect();
            if !new.is_empty() {
                let new = new.into_iter().collect::<Vec<_>>().join(", ");
                return Some((Trigger::ClassEscalation, format!("new to the session: {new}")));
            }
        }
        if self.scope_expansion && !memory.tools.is_empty() {
            let new: Vec<String> = scopes_of(request)
                .filter(|scope| !memory.scopes.contains(scope))
                .map(|(server, scope)| format!("{server}/{scope}"))
                .collect();
            if !new.is_empty() {
                return Some((Trigger::ScopeExpansion, format!("new to the session: {}", new.join(", "))));
            }
        }
        None
    }
}

/// The scopes of a call, which have their names from its server.
pub(super) fn scopes_of(
    request: &CanonicalRequest,
) -> impl Iterator<Item = (ServerIdentity, ScopeName)> + use<'_> {
    let tool = request.tool();
    tool.scopes().iter().map(|scope| (tool.id().server().clone(), scope.clone()))
}
