//! The sessions there are. The edge enters them, the control plane looks at them; calls never come here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_core::{Principal, SessionId, Timestamp};

use super::Session;

/// A session unused for this long is over (GOV-1202).
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);

/// All live sessions, by id, which is by age.
#[derive(Debug, Default)]
pub struct Roll(Mutex<BTreeMap<SessionId, Entry>>);

#[derive(Debug)]
struct Entry {
    session: Arc<Session>,
    /// Whether it ends with a connection, however long that is silent.
    connected: bool,
}

/// What became of sessions that nobody ended.
#[derive(Debug, Default)]
pub struct Gone {
    /// Nobody used them for too long.
    pub expired: Vec<(SessionId, Principal)>,
    /// Their connections are closed.
    pub left: Vec<(SessionId, Principal)>,
}

impl Roll {
    /// Enters a session. One that is `connected` lives as long as its connection.
    pub fn enter(&self, session: &Arc<Session>, connected: bool) {
        let mut sessions = self.lock();
        let entry = sessions.entry(session.id());
        let entry = entry.or_insert_with(|| Entry { session: session.clone(), connected });
        entry.connected |= connected;
    }

    /// One live session.
    pub fn get(&self, id: SessionId) -> Option<Arc<Session>> {
        self.lock().get(&id).filter(|entry| !entry.session.is_over()).map(|entry| entry.session.clone())
    }

    /// Those that are not over, oldest first.
    pub fn list(&self) -> Vec<Arc<Session>> {
        let sessions = self.lock();
        let live = sessions.values().filter(|entry| !entry.session.is_over());
        live.map(|entry| entry.session.clone()).collect()
    }

    /// The session of a client that a checkpoint stops. Who opens another one instead gets this one: a client that comes
    /// back, over another connection or after a restart, is as stopped as it was (GOV-1203).
    pub fn stopped(&self, principal: &Principal, client: &str) -> Option<Arc<Session>> {
        self.list().into_iter().find(|session| {
            session.checkpoint_open() && session.principal() == principal && session.client() == client
        })
    }

    /// Strikes out those that are over, and those that nobody uses any more.
    pub fn sweep(&self, now: Timestamp) -> Gone {
        let mut gone = Gone::default();
        self.lock().retain(|id, Entry { session, connected }| {
            // Nobody else has it: its connection is closed. One that is stopped waits for its client to come back.
            let left = *connected && Arc::strong_count(session) == 1;
            if left && !session.checkpoint_open() && session.end() {
                gone.left.push((*id, session.principal().clone()));
            } else if (left || !*connected) && is_idle(session, now) && session.expire() {
                gone.expired.push((*id, session.principal().clone()));
            }
            !session.is_over()
        });
        gone
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SessionId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nobody used the session for too long.
pub fn is_idle(session: &Session, now: Timestamp) -> bool {
    now.since(session.used_at()) >= IDLE
}
