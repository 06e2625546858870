//! What the edge remembers of a client between its messages: a legacy session, or one connection on stdio.
//!
//! A modern HTTP client has nothing to remember but its governance session; it gets a conversation all the same, so
//! that everything behind the transports sees one thing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use portcullis_catalog::Ledger;
use portcullis_governance::boundary::{CancellationSignal, Canceller};
use portcullis_governance::session::Session;
use portcullis_upstream::Inbox;
use tokio::sync::watch;

use super::http::Streams;
use super::log_level::Level;
use super::questions::{Abilities, Owed};
use super::revision::{Era, Revision};
use super::subscribing::Subscription;
use crate::exposure::Mode;
use crate::surface::Listener;

/// A client we are talking with.
#[derive(Debug)]
pub(crate) struct Conversation {
    session: Arc<Session>,
    /// What the client calls itself; not trusted.
    client: String,
    revision: Revision,
    /// The least severe message wanted; `Level::OFF` until the client says.
    level: AtomicU8,
    abilities: Abilities,
    /// What this client owes answers to.
    owed: Arc<Owed>,
    /// Requests being answered, by the text of their ids.
    in_flight: Mutex<HashMap<String, Canceller>>,
    /// Streams of a session over HTTP that its client can come back to.
    streams: Streams,
    /// Turns true when the client is gone for good.
    gone: watch::Sender<bool>,
    /// Where the client came in.
    listener: Listener,
    /// What it is shown: chosen once, so that a list does not change its nature under a client.
    mode: OnceLock<Mode>,
    /// The cards it was shown (CAT-92).
    ledger: Mutex<Ledger>,
    /// The resources a legacy client follows, by the URIs it knows.
    subscriptions: Mutex<HashMap<String, Subscription>>,
    /// Those of them that changed and that it was not told of yet.
    inbox: Arc<Inbox>,
}

impl Conversation {
    pub(crate) fn new(
        session: Arc<Session>,
        client: impl Into<String>,
        revision: Revision,
        abilities: Abilities,
        listener: Listener,
    ) -> Self {
        Self {
            session,
            client: client.into(),
            revision,
            level: AtomicU8::new(Level::OFF),
            abilities,
            owed: Arc::default(),
            in_flight: Mutex::default(),
            streams: Streams::default(),
            gone: watch::Sender::new(false),
            listener,
            mode: OnceLock::new(),
            ledger: Mutex::default(),
            subscriptions: Mutex::default(),
            inbox: Arc::default(),
        }
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The client is gone for good: what lasts for ever ends.
    pub(crate) fn hang_up(&self) {
        self.gone.send_replace(true);
        let ended = std::mem::take(&mut *self.subscriptions());
        drop(ended);
    }

    /// Resolves when the client is gone for good.
    pub(crate) async fn hung_up(&self) {
        let mut gone = self.gone.subscribe();
        let _ = gone.wait_for(|gone| *gone).await;
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    pub(crate) fn era(&self) -> Era {
        self.revision.era()
    }

    pub(crate) fn listener(&self) -> Listener {
        self.listener
    }

    /// What the client said at `initialize` that it can be asked.
    pub(crate) fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// What it is shown; `choose` is asked the first time.
    pub(crate) fn mode(&self, choose: impl FnOnce() -> Mode) -> Mode {
        *self.mode.get_or_init(choose)
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscriptions(&self) -> MutexGuard<'_, HashMap<String, Subscription>> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    pub(crate) fn owed(&self) -> &Arc<Owed> {
        &self.owed
    }

    /// The least severe log message wanted.
    pub(crate) fn threshold(&self) -> u8 {
        self.level.load(Ordering::Relaxed)
    }

    /// `logging/setLevel`.
    pub(crate) fn set_level(&self, level: Level) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// Notes a request under way; `None` if the client uses its id already.
    pub(crate) fn begin(self: &Arc<Self>, id: &str) -> Option<(UnderWay, CancellationSignal)> {
        match self.lock().entry(id.to_owned()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(place) => {
                let (canceller, cancel) = CancellationSignal::pair();
                place.insert(canceller);
                Some((UnderWay { conversation: Arc::clone(self), id: id.to_owned() }, cancel))
            }
        }
    }

    /// `notifications/cancelled`: exactly the request it names, if it is one of this client's (PRO-20).
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(canceller) = self.lock().get(id) {
            canceller.cancel();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Canceller>> {
        self.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way; its id is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay {
    conversation: Arc<Conversation>,
    id: String,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.conversation.lock().remove(&self.id);
    }
}
