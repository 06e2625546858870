//! The lasting connection to one registered server.
//!
//! It exists from registration to removal; what is up or down is the [`Live`] inside. Whoever needs the server asks
//! for it with [`ready`](Connection::ready): the first one connects, everybody else waits for the same attempt. A
//! failure makes the next attempt wait a little, then longer; after several in a row nobody waits any more and
//! callers are refused at once until the pause is over (PRO-39).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use portcullis_core::ServerIdentity;
use portcullis_governance::boundary::ProbeAuthority;
use tokio::sync::{Mutex, broadcast};
use tokio::time::Instant;

use crate::event::Events;
use crate::greeting::Probe;
use crate::{Endpoint, Era, Followed, Live, Settings, Snapshot, UpstreamError, UpstreamEvent};

/// The connection to one server, shared by all clients.
#[derive(Debug)]
pub struct Connection {
    server: ServerIdentity,
    endpoint: Endpoint,
    authority: Arc<dyn ProbeAuthority>,
    settings: Settings,
    events: Events,
    live: ArcSwapOption<Live>,
    /// Held while connecting: one attempt at a time.
    history: Mutex<History>,
    failures: AtomicU32,
    connecting: AtomicBool,
    closed: AtomicBool,
}

/// What earlier attempts taught.
#[derive(Debug, Default)]
struct History {
    era: Option<Era>,
    connected_before: bool,
    not_before: Option<Instant>,
    last_error: String,
}

/// Where a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nobody needed it yet, or it went away and nobody needed it since.
    Idle,
    /// Being made.
    Connecting,
    /// Up.
    Ready,
    /// Failed; the next caller will try again.
    Failing,
    /// Failed so often that callers are refused for now.
    BreakerOpen,
    /// Closed by us, for good.
    Closed,
}

/// The state of a connection, for people and monitors.
#[derive(Debug, Clone)]
pub struct Status {
    /// Where it is.
    pub phase: Phase,
    /// Which era the server speaks, if it is up.
    pub era: Option<Era>,
    /// The revision agreed upon, if it is up.
    pub protocol_version: Option<&'static str>,
    /// Requests under way.
    pub in_flight: usize,
    /// Failures in a row.
    pub failures: u32,
    /// The child's process id, if there is one.
    pub pid: Option<i32>,
}

impl Connection {
    /// A connection that is not made yet.
    pub fn new(
        server: ServerIdentity,
        endpoint: Endpoint,
        authority: Arc<dyn ProbeAuthority>,
        settings: Settings,
    ) -> Self {
        Self {
            server,
            endpoint,
            authority,
            settings,
            events: Events::new(),
            live: ArcSwapOption::empty(),
            history: Mutex::default(),
            failures: AtomicU32::new(0),
            connecting: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Spares the question which era the server speaks: the answer was stored with its registration (PRO-2).
    #[must_use]
    pub fn remembering(mut self, era: Era) -> Self {
        self.history.get_mut().era = Some(era);
        self
    }

    /// The server this leads to.
    pub fn server(&self) -> &ServerIdentity {
        &self.server
    }

    /// What the server does unasked, from now on. A listener that lags loses the oldest events.
    pub fn events(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.events.listen()
    }

    /// Who follows which of the server's resources, whatever happens to the connection meanwhile.
    pub fn followed(&self) -> &Arc<Followed> {
        self.events.followed()
    }

    /// The live connection, made now if need be.
    pub async fn ready(&self) -> Result<Arc<Live>, UpstreamError> {
        if let Some(live) = self.alive() {
            return Ok(live);
        }
        let mut history = self.history.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(UpstreamError::Closed);
        }
        if let Some(live) = self.alive() {
            return Ok(live);
        }
        self.pause(&history).await?;
        self.connecting.store(true, Ordering::Release);
        let connected = self.connect(&mut history).await;
        self.connecting.store(false, Ordering::Release);
        connected.inspect_err(|error| {
            let failures = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
            history.not_before = Some(Instant::now() + self.settings.pause(failures));
            history.last_error = error.to_string();
            tracing::warn!(server = %self.server, failures, %error, "cannot connect");
        })
    }

    /// Everything the server lists now.
    pub async fn probe(&self) -> Result<Snapshot, UpstreamError> {
        self.ready().await?.snapshot().await
    }

    /// Where the connection is.
    pub fn status(&self) -> Status {
        let live = self.alive();
        let failures = self.failures.load(Ordering::Acquire);
        let phase = if self.closed.load(Ordering::Acquire) {
            Phase::Closed
        } else if live.is_some() {
            Phase::Ready
        } else if self.connecting.load(Ordering::Acquire) {
            Phase::Connecting
        } else if failures >= self.settings.breaker_failures {
            Phase::BreakerOpen
        } else if failures > 0 {
            Phase::Failing
        } else {
            Phase::Idle
        };
        Status {
            phase,
            era: live.as_ref().map(|live| live.greeting().era),
            protocol_version: live.as_ref().map(|live| live.greeting().protocol_version),
            in_flight: live.as_ref().map_or(0, |live| live.in_flight()),
            failures,
            pid: live.as_ref().and_then(|live| live.pid()),
        }
    }

    /// The end of what the server's process wrote to stderr, if it is up. Hostile text.
    pub fn last_words(&self) -> Option<String> {
        self.alive()?.last_words()
    }

    /// Lets calls under way end for a while, then ends the connection; when this returns no process is left. A
    /// closed connection stays closed.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // Waits for an attempt under way, so that it cannot leave a child behind.
        let _no_new_attempt = self.history.lock().await;
        if let Some(live) = self.live.swap(None) {
            live.close(self.settings.drain).await;
        }
    }

    fn alive(&self) -> Option<Arc<Live>> {
        self.live.load_full().filter(|live| live.is_alive())
    }

    /// Waits until the next attempt may be made; refuses instead if there were too many.
    async fn pause(&self, history: &History) -> Result<(), UpstreamError> {
        let Some(not_before) = history.not_before else { return Ok(()) };
        let failures = self.failures.load(Ordering::Acquire);
        let retry_in = not_before.saturating_duration_since(Instant::now());
        if failures >= self.settings.breaker_failures && retry_in > Duration::ZERO {
            return Err(UpstreamError::BreakerOpen { failures, retry_in, last: history.last_error.clone() });
        }
        tokio::time::sleep_until(not_before).await;
        Ok(())
    }

    async fn connect(&self, history: &mut History) -> Result<Arc<Live>, UpstreamError> {
        if let Some(gone) = self.live.swap(None) {
            // Its process may still be ending; two of a kind must not run side by side.
            gone.close(Duration::ZERO).await;
        }
        let probe = Probe { server: &self.server, authority: &self.authority, settings: &self.settings };
        let connected = probe.connect(&self.endpoint, history.era, &self.events).await?;
        let live = Arc::new(Live::new(
            self.server.clone(),
            connected,
            Arc::clone(&self.authority),
            self.settings.clone(),
            self.events.clone(),
        ));
        history.era = Some(live.greeting().era);
        if history.connected_before {
            // Told before anybody can call: what came back may not be what went away.
            let snapshot = match live.snapshot().await {
                Ok(snapshot) => Arc::new(snapshot),
                Err(error) => {
                    live.close(Duration::ZERO).await;
                    return Err(error);
                }
            };
            self.events.emit(UpstreamEvent::Reconnected { snapshot });
        }
        live.listen().await;
        history.connected_before = true;
        history.not_before = None;
        self.failures.store(0, Ordering::Release);
        self.live.store(Some(Arc::clone(&live)));
        Ok(live)
    }
}

/// Looks at a server without keeping anything of it: greets it, lists its tools, ends it.
pub async fn probe_once(
    server: &ServerIdentity,
    endpoint: &Endpoint,
    authority: Arc<dyn ProbeAuthority>,
    settings: &Settings,
) -> Result<Snapshot, UpstreamError> {
    let connection = Connection::new(server.clone(), endpoint.clone(), authority, settings.clone());
    let snapshot = connection.probe().await;
    connection.close().await;
    snapshot
}
