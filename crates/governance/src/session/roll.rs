//! The sessions there are. The edge enters them, the control plane looks at them; calls never come here.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
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
    session: Weak<Session>,
    principal: Principal,
    client: String,
    /// Whether it ends with a connection, however long that is silent.
    connected: bool,
}

/// A live session, and what its client calls itself.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The session.
    pub session: Arc<Session>,
    /// Not trusted.
    pub client: String,
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
    pub fn enter(&self, session: &Arc<Session>, client: &str, connected: bool) {
        let entry = Entry {
            session: Arc::downgrade(session),
            principal: session.principal().clone(),
            client: client.to_owned(),
            connected,
        };
        self.lock().insert(session.id(), entry);
    }

    /// One live session.
    pub fn get(&self, id: SessionId) -> Option<Listed> {
        self.lock().get(&id).and_then(Entry::listed)
    }

    /// Those that are not over, oldest first.
    pub fn list(&self) -> Vec<Listed> {
        self.lock().values().filter_map(Entry::listed).collect()
    }

    /// Strikes out those that are over, and those that nobody uses any more.
    pub fn sweep(&self, now: Timestamp) -> Gone {
        let mut gone = Gone::default();
        self.lock().retain(|id, entry| {
            let Some(session) = entry.session.upgrade() else {
                gone.left.push((*id, entry.principal.clone()));
                return false;
            };
            if !entry.connected && is_idle(&session, now) && session.expire() {
                gone.expired.push((*id, entry.principal.clone()));
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

impl Entry {
    fn listed(&self) -> Option<Listed> {
        let session = self.session.upgrade().filter(|session| !session.is_over())?;
        Some(Listed { session, client: self.client.clone() })
    }
}
