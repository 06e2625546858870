//! The trail of one proposal: its events, gathered and handed to the log together.
//!
//! Steps 1 to 8 of a call cost no disk wait (GOV-705): their events are noted here and travel with the first
//! commit. A trail that is dropped before that hands over what it has, so that a refused, cancelled or
//! panicking call is still on record.

use std::sync::Arc;
use std::time::Instant;

use portcullis_audit::{
    AuditBlocked, AuditLog, Context, Event, EventName, Receipt, Reference, RetentionClass, Role,
};
use portcullis_core::{Actor, Lineage, LogId, PolicyVersion, ProposalId};
use serde::Serialize;

use crate::accepted::AcceptedTool;
use crate::request::CANON;

/// The events of one proposal.
#[derive(Debug)]
pub struct Trail {
    log: AuditLog,
    proposal: ProposalId,
    /// Shared by all events noted until it changes.
    context: Arc<Context>,
    pending: Vec<Event>,
    opened: Instant,
    /// When each event so far was noted, in microseconds since the trail was opened.
    steps: Vec<(EventName, u64)>,
}

impl Trail {
    /// Opens the trail of `proposal`.
    pub fn open(log: &AuditLog, proposal: ProposalId, lineage: &Lineage) -> Self {
        let context = Context {
            session: Some(lineage.session),
            step: Some(lineage.step),
            proposal: Some(proposal),
            canon: Some(CANON),
            ..Context::new(Actor::from(&lineage.principal))
        };
        Self {
            log: log.clone(),
            proposal,
            context: Arc::new(context),
            pending: Vec::with_capacity(10),
            opened: Instant::now(),
            steps: Vec::with_capacity(12),
        }
    }

    /// From here on events name the tool and the trust it has.
    pub fn about(&mut self, tool: &AcceptedTool, trust: &'static str) {
        let context = Arc::make_mut(&mut self.context);
        context.tool = Some(tool.id().clone());
        context.epoch = Some(tool.epoch());
        context.trust = Some(trust);
    }

    /// From here on events are by somebody else than the agent: a server that asks.
    pub fn by(&mut self, actor: Actor) {
        Arc::make_mut(&mut self.context).actor = actor;
    }

    /// From here on events name the policy in force.
    pub fn under(&mut self, policy: PolicyVersion) {
        Arc::make_mut(&mut self.context).policy = Some(policy);
    }

    /// From here on events name record `seq` of another log as their cause (AUD-68).
    pub fn because_of(&mut self, log: LogId, seq: u64) {
        Arc::make_mut(&mut self.context).refs.push(Reference { log, seq });
    }

    /// Notes an event.
    pub fn note(&mut self, name: EventName, data: impl Serialize) {
        let event = self.event(name, data);
        self.push(event);
    }

    /// Notes an event whose data is canonical JSON already.
    pub fn note_canonical(&mut self, name: EventName, data: &[u8]) {
        self.push(Event::within(name, &self.context).canonical_data(data.to_vec()));
    }

    /// Notes an event with pieces of evidence.
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
        self.push(event);
    }

    /// What was noted so far and when, in microseconds since the trail was opened. Records of one commit have one
    /// time; this is how long each step took (the intent and the result carry it).
    pub fn steps(&self) -> &[(EventName, u64)] {
        &self.steps
    }

    /// Microseconds since the trail was opened.
    pub fn elapsed_us(&self) -> u64 {
        self.opened.elapsed().as_micros() as u64
    }

    /// Hands everything noted to the log, without waiting: nobody may be told of it then, so only a trail that is given
    /// up does this.
    fn flush(&mut self) -> Result<(), AuditBlocked> {
        if self.pending.is_empty() { Ok(()) } else { self.log.append(std::mem::take(&mut self.pending)) }
    }

    /// Hands everything noted to the log and waits until it is durable.
    pub async fn commit(&mut self) -> Result<Receipt, AuditBlocked> {
        self.log.commit(std::mem::take(&mut self.pending)).await
    }

    /// Waits until everything noted is durable, if anything is left to hand over.
    pub async fn settle(&mut self) -> Result<(), AuditBlocked> {
        if self.pending.is_empty() { Ok(()) } else { self.commit().await.map(|_| ()) }
    }

    /// Says how the call ended, even if the log takes nothing else any more (AUD-63).
    pub fn conclude(&mut self, name: EventName, data: impl Serialize) {
        self.log.conclude(vec![self.event(name, data)]);
    }

    /// Whether the log takes nothing any more.
    pub fn is_blocked(&self) -> bool {
        self.log.blocked().is_some()
    }

    /// The proposal this trail belongs to.
    pub fn proposal(&self) -> ProposalId {
        self.proposal
    }

    fn push(&mut self, event: Event) {
        self.steps.push((event.name(), self.elapsed_us()));
        self.pending.push(event);
    }

    fn event(&self, name: EventName, data: impl Serialize) -> Event {
        Event::within(name, &self.context).data(data)
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        // A blocked log has already stopped the gateway; there is nobody left to tell.
        let _ = self.flush();
    }
}
