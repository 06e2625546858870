//! Sessions at the edge: which conversation a request belongs to (PRO-33, GOV-1202).

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_context::Artifacts;
use portcullis_core::digest::to_hex;
use portcullis_core::{Actor, Clock, Principal, Timestamp};
use portcullis_governance::session::{Roll, Session, is_idle};
use rand::RngExt as _;
use serde_json::json;

use super::conversation::Conversation;
use super::questions::Abilities;
use super::revision::{MODERN, Revision};
use crate::surface::Listener;

/// More sessions than this at once are refused: an agent that loops on `initialize` must not fill our memory.
const MOST: usize = 10_000;

/// All live sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    log: AuditLog,
    clock: Arc<dyn Clock>,
    /// What sessions leave behind when they end.
    artifacts: Arc<Artifacts>,
    /// Where the control plane finds them.
    roll: Arc<Roll>,
    // Reading is shared; only opening and ending sessions writes.
    live: RwLock<HashMap<Key, Live>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A legacy session, by its unguessable id.
    Legacy(String),
    /// The session of all modern requests of one client of one principal.
    Modern(Principal, String),
}

#[derive(Debug)]
struct Live {
    conversation: Arc<Conversation>,
}

impl Live {
    fn touch(&self, now: Timestamp) {
        self.conversation.session().touch(now);
    }

    /// Whether it is over, or would be if somebody had looked.
    fn is_over(&self, now: Timestamp) -> bool {
        let session = self.conversation.session();
        session.is_over() || is_idle(session, now)
    }
}

impl Sessions {
    pub(crate) fn new(
        log: AuditLog,
        clock: Arc<dyn Clock>,
        artifacts: Arc<Artifacts>,
        roll: Arc<Roll>,
    ) -> Self {
        Self { log, clock, artifacts, roll, live: RwLock::default() }
    }

    /// Opens a legacy session; its id is 128 random bits and never a credential. `None` if there are too many.
    pub(crate) fn open_legacy(
        &self,
        principal: &Principal,
        client: &str,
        revision: Revision,
        abilities: Abilities,
    ) -> Option<(String, Arc<Conversation>)> {
        let id = to_hex(&rand::rng().random::<[u8; 16]>());
        let conversation = self.open(Key::Legacy(id.clone()), principal, client, revision, abilities)?;
        Some((id, conversation))
    }

    /// A session that lives as long as one connection.
    pub(crate) fn open_unlisted(
        &self,
        principal: &Principal,
        client: &str,
        (revision, abilities): (Revision, Abilities),
        listener: Listener,
    ) -> Arc<Conversation> {
        let session = self.session(principal, client, true);
        Arc::new(Conversation::new(session, client, revision, abilities, listener))
    }

    /// The session of a legacy id, if it is this principal's and not idle for too long.
    pub(crate) fn legacy(&self, id: &str, principal: &Principal) -> Option<Arc<Conversation>> {
        let now = self.clock.now();
        let live = self.live.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let found = live.get(&Key::Legacy(id.to_owned()))?;
        if found.conversation.session().principal() != principal || found.is_over(now) {
            return None;
        }
        found.touch(now);
        Some(found.conversation.clone())
    }

    /// The session of a modern client, opened if need be.
    pub(crate) fn modern(&self, principal: &Principal, client: &str) -> Option<Arc<Conversation>> {
        let now = self.clock.now();
        let key = Key::Modern(principal.clone(), client.to_owned());
        {
            let live = self.live.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some(found) = live.get(&key).filter(|found| !found.is_over(now)) {
                found.touch(now);
                return Some(found.conversation.clone());
            }
        }
        self.open(key, principal, client, MODERN, Abilities::default())
    }

    /// Ends a legacy session; false if it is not this principal's.
    pub(crate) fn end_legacy(&self, id: &str, principal: &Principal) -> bool {
        let mut live = self.live.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = Key::Legacy(id.to_owned());
        if live.get(&key).is_none_or(|found| found.conversation.session().principal() != principal) {
            return false;
        }
        if let Some(ended) = live.remove(&key) {
            ended.conversation.hang_up();
            // One that is stopped waits for its client to come back.
            if ended.conversation.session().checkpoint_open() || !ended.conversation.session().end() {
                return true;
            }
            self.artifacts.session_ended(ended.conversation.session().id());
            let event = Event::new(EventName::SessionEnded, &Actor::from(principal))
                .session(ended.conversation.session().id());
            let _ = self.log.append(vec![event.data(json!({}))]);
        }
        true
    }

    fn open(
        &self,
        key: Key,
        principal: &Principal,
        client: &str,
        revision: Revision,
        abilities: Abilities,
    ) -> Option<Arc<Conversation>> {
        let now = self.clock.now();
        let mut live = self.live.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(found) = live.get(&key).filter(|found| !found.is_over(now)) {
            return Some(found.conversation.clone());
        }
        if live.len() >= MOST {
            live.retain(|_, session| !session.is_over(now));
        }
        if live.len() >= MOST {
            return None;
        }
        let session = self.session(principal, client, false);
        let conversation = Arc::new(Conversation::new(session, client, revision, abilities, Listener::Http));
        live.insert(key, Live { conversation: conversation.clone() });
        Some(conversation)
    }

    /// The session of somebody who opens one: a new one, or the one in which a checkpoint stopped this client (GOV-1203).
    /// A session that is `connected` lives as long as its connection.
    fn session(&self, principal: &Principal, client: &str, connected: bool) -> Arc<Session> {
        let (client, now) = (portcullis_core::error::one_line(client), self.clock.now());
        if let Some(stopped) = self.roll.stopped(principal, &client) {
            stopped.touch(now);
            self.roll.enter(&stopped, connected);
            return stopped;
        }
        let data = json!({"client": client});
        let session = Arc::new(Session::open(principal.clone(), now).of_client(client));
        self.roll.enter(&session, connected);
        let event = Event::new(EventName::SessionOpened, &Actor::from(principal)).session(session.id());
        // A blocked log refuses the session's calls; there is nothing more to refuse here.
        let _ = self.log.append(vec![event.data(data)]);
        session
    }
}
