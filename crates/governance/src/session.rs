//! Sessions: minted per principal by the control plane, independent of connections (GOV-1202).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_core::{Lineage, Principal, ProposalId, SessionId, Timestamp};

/// One conversation of one principal with the gateway.
#[derive(Debug)]
pub struct Session {
    id: SessionId,
    principal: Principal,
    steps: AtomicU64,
    checkpoint_epoch: AtomicU64,
    checkpoint_open: AtomicBool,
}

impl Session {
    /// Opens a session for `principal`.
    pub fn open(principal: Principal, now: Timestamp) -> Self {
        Self {
            id: SessionId::new(now),
            principal,
            steps: AtomicU64::new(0),
            checkpoint_epoch: AtomicU64::new(0),
            checkpoint_open: AtomicBool::new(false),
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

    /// The lineage of the next invocation; each takes one step.
    pub fn next_step(&self, parent: Option<ProposalId>) -> Lineage {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        Lineage { parent, principal: self.principal.clone(), session: self.id, step }
    }

    /// How many steps it has taken.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Moves when a checkpoint opens or resolves (GOV-1203).
    pub fn checkpoint_epoch(&self) -> u64 {
        self.checkpoint_epoch.load(Ordering::Acquire)
    }

    /// Whether a checkpoint stops the session.
    pub fn checkpoint_open(&self) -> bool {
        self.checkpoint_open.load(Ordering::Acquire)
    }

    /// Opens a checkpoint: every permit issued before is dead, and new calls are refused until it resolves.
    pub fn open_checkpoint(&self) {
        self.checkpoint_open.store(true, Ordering::Release);
        self.checkpoint_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Resolves it.
    pub fn resolve_checkpoint(&self) {
        self.checkpoint_epoch.fetch_add(1, Ordering::AcqRel);
        self.checkpoint_open.store(false, Ordering::Release);
    }
}
