//! One connection to a server, and what of it may carry calls.
//!
//! A line lasts; the processes behind it come and go. Where a process serves one call only, one more is kept ready, greeted
//! and looked at, so that the next call need not wait for it (SBX-12).

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use portcullis_governance::session::Session;
use portcullis_upstream::{Connection, Live, Phase};

/// A connection, and the last live state of it that was found to equal the declaration.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) connection: Connection,
    /// The session of a client that alone uses it, if one does (PRO-39).
    session: Option<Arc<Session>>,
    /// Whether its server was told less than its declaration lists, and so may list less (PRO-63).
    told_less: bool,
    /// What it does not list for that reason.
    lacking: Mutex<Vec<String>>,
    verified: ArcSwapOption<Live>,
    pub(super) verifying: tokio::sync::Mutex<()>,
    /// Found equal to the declaration, and waiting for a call of its own.
    spare: Mutex<Option<Arc<Live>>>,
    /// How many have it in hand, or are about to.
    held: Mutex<usize>,
    used: Mutex<Instant>,
    /// Set once somebody keeps the subscriptions over it (see `following`).
    pub(crate) keeper: OnceLock<()>,
}

impl Line {
    pub(super) fn new(connection: Connection, session: Option<Arc<Session>>, told_less: bool) -> Arc<Self> {
        Arc::new(Self {
            connection,
            session,
            told_less,
            lacking: Mutex::default(),
            verified: ArcSwapOption::empty(),
            verifying: tokio::sync::Mutex::default(),
            spare: Mutex::default(),
            held: Mutex::new(0),
            used: Mutex::new(Instant::now()),
            keeper: OnceLock::new(),
        })
    }

    pub(super) fn is_told_less(&self) -> bool {
        self.told_less
    }

    /// Whether its server lists this, as governance names it.
    pub(super) fn lists(&self, item: &str) -> bool {
        !self.lacking().iter().any(|lacking| lacking == item)
    }

    pub(super) fn lacks(&self, items: Vec<String>) {
        *self.lacking() = items;
    }

    fn lacking(&self) -> MutexGuard<'_, Vec<String>> {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the session that it is for is over.
    pub(super) fn is_left(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_over())
    }

    /// How long nobody has used it; nothing while somebody does.
    pub(super) fn rested(&self) -> Option<Duration> {
        let followed = !self.connection.followed().wanted().is_empty();
        let held = *self.held() > 0 || self.connection.status().in_flight > 0;
        (!followed && !held).then(|| self.used().elapsed())
    }

    pub(super) fn is_verified(&self, live: &Arc<Live>) -> bool {
        self.verified.load().as_ref().is_some_and(|verified| Arc::ptr_eq(verified, live))
    }

    pub(super) fn verify(&self, live: &Arc<Live>) {
        self.verified.store(Some(Arc::clone(live)));
    }

    /// What carries calls now, as far as it lasts.
    pub(super) fn verified(&self) -> Option<Arc<Live>> {
        self.verified.load_full().filter(|live| live.is_alive())
    }

    /// The process that waits for a call, if there is one and it is still there.
    pub(super) fn take_spare(&self) -> Option<Arc<Live>> {
        self.spare().take().filter(|live| live.is_alive())
    }

    /// Keeps a process for the next call, unless there is one already.
    pub(super) fn keep_spare(&self, live: Arc<Live>) -> Option<Arc<Live>> {
        let mut spare = self.spare();
        if spare.as_ref().is_some_and(|kept| kept.is_alive()) {
            return Some(live);
        }
        spare.replace(live)
    }

    pub(super) fn lacks_spare(&self) -> bool {
        self.spare().as_ref().is_none_or(|kept| !kept.is_alive())
    }

    /// Ends what nobody used for this long.
    pub(super) async fn stop_if_idle(&self, idle: Duration) {
        if self.rested().is_none_or(|rested| rested < idle) {
            return;
        }
        // Whoever takes it in the meantime has it.
        let spare = self.spare().take();
        if let Some(spare) = spare {
            spare.close(Duration::ZERO).await;
        }
        if self.connection.status().phase == Phase::Ready {
            self.connection.stop_unless_held(&self.held).await;
        }
    }

    /// Takes it in hand: what is up, or comes up now, is not ended for want of calls.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        *self.held() += 1;
        Hold(Arc::clone(self))
    }

    pub(super) async fn close(&self) {
        let spare = self.spare().take();
        if let Some(spare) = spare {
            spare.close(Duration::ZERO).await;
        }
        self.connection.close().await;
    }

    fn spare(&self) -> MutexGuard<'_, Option<Arc<Live>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, usize> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> MutexGuard<'_, Instant> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's hand on a line.
#[derive(Debug)]
pub(super) struct Hold(Arc<Line>);

impl Drop for Hold {
    fn drop(&mut self) {
        *self.0.used() = Instant::now();
        *self.0.held() -= 1;
    }
}

/// A live connection in the hands of one call.
#[derive(Debug)]
pub struct Channel {
    live: Arc<Live>,
    _hold: Hold,
    /// Whether its process is for this call alone, and ends with it.
    single: bool,
}

impl Channel {
    pub(super) fn new(live: Arc<Live>, hold: Hold, single: bool) -> Self {
        Self { live, _hold: hold, single }
    }
}

impl Deref for Channel {
    type Target = Live;
    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.single {
            let live = Arc::clone(&self.live);
            tokio::spawn(async move { live.close(Duration::ZERO).await });
        }
    }
}
