//! The trail of one proposal: its events, gathered and handed to the log together.
//!
//! Steps 1 to 8 of a call cost no disk wait (GOV-705): their events are noted here and travel with the first
//! commit. A trail that is dropped before that hands over what it has, so that a refused, cancelled or
//! panicking call is still on record.

use portcullis_audit::{AuditBlocked, AuditLog, Event, EventName, Receipt, RetentionClass, Role};
use portcullis_core::{Actor, Lineage, PolicyVersion, ProposalId, RegistrationEpoch, ToolId};
use serde::Serialize;

use crate::accepted::AcceptedTool;
use crate::request::CANON;

/// The events of one proposal.
#[derive(Debug)]
pub struct Trail {
    log: AuditLog,
    actor: Actor,
    lineage: Lineage,
    proposal: ProposalId,
    tool: Option<(ToolId, RegistrationEpoch)>,
    policy: Option<PolicyVersion>,
    trust: Option<&'static str>,
    pending: Vec<Event>,
}

impl Trail {
    /// Opens the trail of `proposal`.
    pub fn open(log: &AuditLog, proposal: ProposalId, lineage: &Lineage) -> Self {
        Self {
            log: log.clone(),
            actor: Actor::from(&lineage.principal),
            lineage: lineage.clone(),
            proposal,
            tool: None,
            policy: None,
            trust: None,
            pending: Vec::with_capacity(10),
        }
    }

    /// From here on events name the tool and the trust it has.
    pub fn about(&mut self, tool: &AcceptedTool, trust: &'static str) {
        self.tool = Some((tool.id().clone(), tool.epoch()));
        self.trust = Some(trust);
    }

    /// From here on events name the policy in force.
    pub fn under(&mut self, policy: PolicyVersion) {
        self.policy = Some(policy);
    }

    /// Notes an event.
    pub fn note(&mut self, name: EventName, data: impl Serialize) {
        let event = self.event(name, data);
        self.pending.push(event);
    }

    /// Notes an event with one piece of evidence.
    pub fn note_with(
        &mut self,
        name: EventName,
        data: impl Serialize,
        evidence: impl IntoIterator<Item = (Role, RetentionClass, bytes::Bytes)>,
    ) {
        let mut event = self.event(name, data);
        for (role, class, bytes) in evidence {
            event = event.evidence(role, class, bytes);
        }
        self.pending.push(event);
    }

    /// Hands everything noted to the log, without waiting.
    pub fn flush(&mut self) -> Result<(), AuditBlocked> {
        if self.pending.is_empty() { Ok(()) } else { self.log.append(std::mem::take(&mut self.pending)) }
    }

    /// Hands everything noted to the log and waits until it is durable.
    pub async fn commit(&mut self) -> Result<Receipt, AuditBlocked> {
        self.log.commit(std::mem::take(&mut self.pending)).await
    }

    /// The proposal this trail belongs to.
    pub fn proposal(&self) -> ProposalId {
        self.proposal
    }

    fn event(&self, name: EventName, data: impl Serialize) -> Event {
        let mut event = Event::new(name, &self.actor)
            .session(self.lineage.session)
            .step(self.lineage.step)
            .proposal(self.proposal)
            .canon(CANON)
            .data(data);
        if let Some((tool, epoch)) = &self.tool {
            event = event.tool(tool).epoch(*epoch);
        }
        if let Some(policy) = self.policy {
            event = event.policy(policy);
        }
        if let Some(trust) = self.trust {
            event = event.trust(trust);
        }
        event
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        // A blocked log has already stopped the gateway; there is nobody left to tell.
        let _ = self.flush();
    }
}
