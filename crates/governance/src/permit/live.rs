//! The permits that are issued and not settled yet, so that operators can take them back (GOV-1004).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use portcullis_core::{PermitId, Principal, SessionId, ToolId};
use serde::Serialize;
use tokio::sync::watch;

/// All of them.
#[derive(Debug, Default)]
pub struct LivePermits(Mutex<HashMap<PermitId, Weak<Fate>>>);

/// One permit that is issued and not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LivePermit {
    /// Its id.
    pub permit_id: PermitId,
    /// What it is for.
    pub tool_id: ToolId,
    /// Whose it is.
    pub principal: Principal,
    /// In which session.
    pub session: SessionId,
    /// Whether its request is under way.
    pub in_flight: bool,
}

/// What becomes of a permit, as far as others decide about it. It lives as long as the permit and what came of it.
#[derive(Debug)]
pub(crate) struct Fate {
    of: LivePermit,
    revoked: AtomicBool,
    in_flight: AtomicBool,
    /// Its server was removed while it was under way.
    cut: AtomicBool,
    killed: watch::Sender<bool>,
    permits: Weak<LivePermits>,
}

impl LivePermits {
    pub(crate) fn enter(self: &Arc<Self>, of: LivePermit) -> Arc<Fate> {
        let id = of.permit_id;
        let fate = Arc::new(Fate {
            of,
            revoked: AtomicBool::new(false),
            in_flight: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            killed: watch::Sender::new(false),
            permits: Arc::downgrade(self),
        });
        self.lock().insert(id, Arc::downgrade(&fate));
        fate
    }

    /// Those there are now, oldest first.
    pub fn list(&self) -> Vec<LivePermit> {
        let mut found: Vec<LivePermit> = self.fates().iter().map(|fate| fate.now()).collect();
        found.sort_by_key(|permit| permit.permit_id);
        found
    }

    /// Takes back those that are meant: what was not sent is not sent any more, what is under way is flagged by its
    /// result, and cut if `kill` says so.
    pub fn revoke(&self, is_meant: impl Fn(&LivePermit) -> bool, kill: bool) -> Vec<LivePermit> {
        let mut revoked = Vec::new();
        for fate in self.fates() {
            let permit = fate.now();
            if !is_meant(&permit) {
                continue;
            }
            let news = !fate.revoked.swap(true, Ordering::AcqRel);
            if kill {
                fate.killed.send_replace(true);
            }
            if news || kill {
                revoked.push(permit);
            }
        }
        revoked
    }

    /// Those that are issued and not under way, of which it was decided that they are never going to be.
    pub fn invalidate(&self, is_meant: impl Fn(&LivePermit) -> bool) -> Vec<LivePermit> {
        let mut invalidated = Vec::new();
        for fate in self.fates() {
            let permit = fate.now();
            if !permit.in_flight && is_meant(&permit) && !fate.revoked.swap(true, Ordering::AcqRel) {
                invalidated.push(permit);
            }
        }
        invalidated
    }

    /// Cuts requests under way, whose outcome nobody will know: their server is gone (GOV-204).
    pub fn cut(&self, is_meant: impl Fn(&LivePermit) -> bool) {
        for fate in self.fates().iter().filter(|fate| is_meant(&fate.now())) {
            fate.cut.store(true, Ordering::Release);
            fate.killed.send_replace(true);
        }
    }

    fn fates(&self) -> Vec<Arc<Fate>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PermitId, Weak<Fate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fate {
    fn now(&self) -> LivePermit {
        LivePermit { in_flight: self.in_flight.load(Ordering::Acquire), ..self.of.clone() }
    }

    pub(crate) fn server(&self) -> &portcullis_core::ServerIdentity {
        self.of.tool_id.server()
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(crate) fn sent(&self) {
        self.in_flight.store(true, Ordering::Release);
    }

    /// Tells when the request under way is to be cut.
    pub(crate) fn killed(&self) -> watch::Receiver<bool> {
        self.killed.subscribe()
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if let Some(permits) = self.permits.upgrade() {
            permits.lock().remove(&self.of.permit_id);
        }
    }
}
