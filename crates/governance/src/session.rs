//! Sessions: minted per principal by the control plane, independent of connections (GOV-1202).
//!
//! A session remembers what it has done, as far as a checkpoint may depend on it: which tools it used, which classes and
//! scopes, how many calls. One that is stopped by a [`Checkpoint`], or over, has no valid permit and gets none.

mod checkpoint;
mod roll;

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_core::name::ScopeName;
use portcullis_core::{
    ApprovalId, Lineage, Principal, ProposalId, ServerIdentity, SessionId, Timestamp, ToolId,
};
use serde::Serialize;

use crate::declaration::SideEffect;
use crate::request::CanonicalRequest;

pub use checkpoint::{Checkpoint, CheckpointRules, Passage, Trigger};
pub use roll::{Gone, Roll, is_idle};

/// Where in its life a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    /// It may call.
    Active,
    /// A checkpoint stops it.
    Suspended,
    /// Its client or an operator ended it.
    Ended,
    /// Nobody used it for too long.
    Expired,
}

impl SessionState {
    /// The word in listings.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionState::Active => "active",
            SessionState::Suspended => "suspended",
            SessionState::Ended => "ended",
            SessionState::Expired => "expired",
        }
    }
}

/// One conversation of one principal with the gateway.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    principal: Principal,
    client: String,
    opened_at: Timestamp,
    used_at: AtomicU64,
    steps: AtomicU64,
    over: AtomicU8,
    checkpoint_epoch: AtomicU64,
    checkpoint_open: AtomicBool,
    // Held for a few set operations, never across a wait.
    memory: Mutex<Memory>,
}

/// What a session has done, and what stops it.
#[derive(Debug, Default)]
struct Memory {
    tools: HashSet<ToolId>,
    classes: BTreeSet<SideEffect>,
    scopes: BTreeSet<(ServerIdentity, ScopeName)>,
    /// Calls since the last checkpoint.
    calls: u64,
    checkpoint: Option<Checkpoint>,
}

const RUNNING: u8 = 0;
const ENDED: u8 = 1;
const EXPIRED: u8 = 2;

impl Session {
    /// Opens a session for `principal`.
    pub fn open(principal: Principal, now: Timestamp) -> Self {
        Self::with_id(SessionId::new(now), principal, now)
    }

    /// The same, for what a client calls itself.
    pub fn of_client(self, client: impl Into<String>) -> Self {
        Self { client: client.into(), ..self }
    }

    /// A session that was stopped before a restart, and still is. What it did before is forgotten, so that nothing counts
    /// as having been looked at.
    pub fn stopped(checkpoint: Checkpoint, now: Timestamp) -> Self {
        let session = Self::with_id(checkpoint.session_id, checkpoint.principal.clone(), now);
        let session = session.of_client(checkpoint.client.clone());
        session.open_checkpoint(checkpoint);
        session
    }

    fn with_id(id: SessionId, principal: Principal, now: Timestamp) -> Self {
        Self {
            id,
            principal,
            client: String::new(),
            opened_at: now,
            used_at: AtomicU64::new(now.as_millis()),
            steps: AtomicU64::new(0),
            over: AtomicU8::new(RUNNING),
            checkpoint_epoch: AtomicU64::new(0),
            checkpoint_open: AtomicBool::new(false),
            memory: Mutex::default(),
        }
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whose it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What its client calls itself; not trusted.
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Since when.
    pub fn opened_at(&self) -> Timestamp {
        self.opened_at
    }

    /// When it was last used.
    pub fn used_at(&self) -> Timestamp {
        Timestamp::from_millis(self.used_at.load(Ordering::Relaxed))
    }

    /// Somebody used it.
    pub fn touch(&self, now: Timestamp) {
        self.used_at.store(now.as_millis(), Ordering::Relaxed);
    }

    /// Where in its life it is.
    pub fn state(&self) -> SessionState {
        match self.over.load(Ordering::Acquire) {
            ENDED => SessionState::Ended,
            EXPIRED => SessionState::Expired,
            _ if self.checkpoint_open() => SessionState::Suspended,
            _ => SessionState::Active,
        }
    }

    /// Whether it is over. Its permits are dead and it gets no more.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) != RUNNING
    }

    /// Ends it; false if it was over already.
    pub fn end(&self) -> bool {
        self.finish(ENDED)
    }

    /// Lets it expire; false if it was over already.
    pub fn expire(&self) -> bool {
        self.finish(EXPIRED)
    }

    fn finish(&self, how: u8) -> bool {
        self.over.compare_exchange(RUNNING, how, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The lineage of the next invocation; each takes one step.
    pub fn next_step(&self, parent: Option<ProposalId>) -> Lineage {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        Lineage { parent, principal: self.principal.clone(), session: self.id, step }
    }

    /// How many steps it has taken.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Remembers a call for which a permit was issued.
    pub fn remember(&self, request: &CanonicalRequest) {
        let tool = request.tool();
        let mut memory = self.memory();
        memory.calls += 1;
        if !memory.tools.contains(tool.id()) {
            memory.tools.insert(tool.id().clone());
            memory.classes.extend(tool.side_effects());
            memory.scopes.extend(checkpoint::scopes_of(request));
        }
    }

    /// Whether it used a tool like this.
    pub fn has_used(&self, like: impl Fn(&ToolId) -> bool) -> bool {
        self.memory().tools.iter().any(like)
    }

    /// Moves when a checkpoint opens or resolves (GOV-1203).
    pub fn checkpoint_epoch(&self) -> u64 {
        self.checkpoint_epoch.load(Ordering::Acquire)
    }

    /// Whether a checkpoint stops the session.
    pub fn checkpoint_open(&self) -> bool {
        self.checkpoint_open.load(Ordering::Acquire)
    }

    /// What stops it.
    pub fn checkpoint(&self) -> Option<Checkpoint> {
        self.memory().checkpoint.clone()
    }

    /// Whether a call may go on, as far as checkpoints are concerned. A call that goes further than the session has gone
    /// opens one, if the rules say so, and is the one whose approval resolves it.
    pub fn approach(
        &self,
        request: &CanonicalRequest,
        rules: &CheckpointRules,
        proposal: ProposalId,
        now: Timestamp,
    ) -> Passage {
        if !self.checkpoint_open() && rules.is_empty() {
            return Passage::Free;
        }
        let mut memory = self.memory();
        if let Some(checkpoint) = &memory.checkpoint {
            return match checkpoint.is_about(request) {
                true => Passage::Awaits,
                false => Passage::Stopped(Box::new(checkpoint.clone())),
            };
        }
        let Some(trigger) = rules.triggered(&memory, request) else { return Passage::Free };
        let checkpoint = Checkpoint::of_call(self, trigger, request, proposal, now);
        self.put(&mut memory, checkpoint.clone());
        Passage::Opened(Box::new(checkpoint))
    }

    /// Opens a checkpoint: every permit issued before is dead, and new calls are refused until it resolves. False if one
    /// is open already, which then stays.
    pub fn open_checkpoint(&self, checkpoint: Checkpoint) -> bool {
        let mut memory = self.memory();
        if memory.checkpoint.is_some() {
            return false;
        }
        self.put(&mut memory, checkpoint);
        true
    }

    fn put(&self, memory: &mut Memory, checkpoint: Checkpoint) {
        self.checkpoint_open.store(true, Ordering::Release);
        self.checkpoint_epoch.fetch_add(1, Ordering::AcqRel);
        memory.checkpoint = Some(checkpoint);
    }

    /// The open checkpoint resolves when this approval is given.
    pub fn checkpoint_awaits(&self, approval: ApprovalId) {
        if let Some(checkpoint) = &mut self.memory().checkpoint {
            checkpoint.approval_id = Some(approval);
        }
    }

    /// Resolves the open checkpoint; what went too far does so no more.
    pub fn resolve_checkpoint(&self) -> Option<Checkpoint> {
        let mut memory = self.memory();
        let checkpoint = memory.checkpoint.take()?;
        memory.calls = 0;
        memory.classes.extend(checkpoint.classes.iter().copied());
        memory.scopes.extend(checkpoint.scopes.iter().cloned());
        self.checkpoint_epoch.fetch_add(1, Ordering::AcqRel);
        self.checkpoint_open.store(false, Ordering::Release);
        Some(checkpoint)
    }

    /// A checkpoint that opens and resolves at once: permits from before are dead, and nothing else changes.
    pub fn pass_checkpoint(&self) {
        self.checkpoint_epoch.fetch_add(2, Ordering::AcqRel);
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
