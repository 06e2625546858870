//! The lasting connection to one registered server.
//!
//! It exists from registration to removal; what is up or down is the [`Live`] inside. Whoever needs the server asks
//! for it with [`ready`](Connection::ready): the first one connects, everybody else waits for the same attempt. A
//! failure makes the next attempt wait a little, then longer; after several in a row nobody waits any more and
//! callers are refused at once until the pause is over (PRO-39).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use portcullis_core::ServerIdentity;
use portcullis_governance::boundary::ProbeAuthority;
use portcullis_sandbox::Profile;
use tokio::sync::{Mutex, broadcast};
use tokio::time::Instant;

use crate::event::Events;
use crate::greeting::Probe;
use crate::{Endpoint, Era, Followed, Live, Settings, Snapshot, UpstreamError, UpstreamEvent};

/// A connection to one server, shared by whoever is served by the same process of it.
#[derive(Debug)]
pub struct Connection {
    server: ServerIdentity,
    endpoint: Arc<Endpoint>,
    authority: Arc<dyn ProbeAuthority>,
    settings: Settings,
    events: Events,
    live: ArcSwapOption<Live>,
    /// Those that were made for one call each, and may be under way.
    single: std::sync::Mutex<Vec<Weak<Live>>>,
    /// Which era the server speaks, once that is known; the same for all connections to it.
    era: Arc<KnownEra>,
    /// Held while connecting: one attempt at a time.
    history: Mutex<History>,
    failures: AtomicU32,
    connecting: AtomicBool,
    closed: AtomicBool,
}

/// What earlier attempts taught.
#[derive(Debug, Default)]
struct History {
    connected_before: bool,
    not_before: Option<Instant>,
    last_error: String,
}

/// The era that was found, if any.
#[derive(Debug, Default)]
struct KnownEra(AtomicU8);

impl KnownEra {
    fn get(&self) -> Option<Era> {
        match self.0.load(Ordering::Acquire) {
            1 => Some(Era::Legacy),
            2 => Some(Era::Modern),
            _ => None,
        }
    }

    fn set(&self, era: Era) {
        let number = match era {
            Era::Legacy => 1,
            Era::Modern => 2,
        };
        self.0.store(number, Ordering::Release);
    }
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
            endpoint: Arc::new(endpoint),
            authority,
            settings,
            events: Events::new(),
            live: ArcSwapOption::empty(),
            single: std::sync::Mutex::default(),
            era: Arc::default(),
            history: Mutex::default(),
            failures: AtomicU32::new(0),
            connecting: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Spares the question which era the server speaks: the answer was stored with its registration (PRO-2).
    #[must_use]
    pub fn remembering(self, era: Era) -> Self {
        self.era.set(era);
        self
    }

    /// Another connection to the same server, whose process is in another cage. What happens on either is told to the
    /// listeners of both.
    #[must_use]
    pub fn in_cage(&self, profile: &Profile) -> Self {
        let endpoint = match &*self.endpoint {
            Endpoint::Stdio(program) => {
                let profile = Box::new(profile.clone());
                Endpoint::Stdio(crate::StdioEndpoint { profile, ..program.clone() })
            }
            other => other.clone(),
        };
        self.toward(endpoint)
    }

    /// Another connection to the same server, which knows nothing of this one.
    pub fn another(&self) -> Self {
        self.toward((*self.endpoint).clone())
    }

    /// The same, telling its server that it can be asked this and no more (PRO-63).
    #[must_use]
    pub fn announcing(mut self, capabilities: &serde_json::Value) -> Self {
        self.settings.capabilities = capabilities.clone();
        self
    }

    /// Which era the server speaks, once that is known.
    pub fn era(&self) -> Option<Era> {
        self.era.get()
    }

    fn toward(&self, endpoint: Endpoint) -> Self {
        Self {
            events: self.events.sibling(),
            era: Arc::clone(&self.era),
            ..Self::new(self.server.clone(), endpoint, Arc::clone(&self.authority), self.settings.clone())
        }
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
        connected.inspect_err(|error| self.failed(&mut history, error))
    }

    fn failed(&self, history: &mut History, error: &UpstreamError) {
        let failures = self.failures.fetch_add(1, Ordering::AcqRel) + 1;
        history.not_before = Some(Instant::now() + self.settings.pause(failures));
        history.last_error = error.to_string();
        tracing::warn!(server = %self.server, failures, %error, "cannot connect");
    }

    /// A connection beside the one that lasts, for one call; whoever has it ends it.
    pub async fn single(&self) -> Result<Arc<Live>, UpstreamError> {
        let history = self.history.lock().await;
        if self.closed.load(Ordering::Acquire) {
            return Err(UpstreamError::Closed);
        }
        self.pause(&history).await?;
        drop(history);
        let made = self.make(self.era.get()).await;
        let mut history = self.history.lock().await;
        let live = made.inspect_err(|error| self.failed(&mut history, error))?;
        history.not_before = None;
        self.failures.store(0, Ordering::Release);
        self.remember(&live);
        // Closed meanwhile: nobody will end it.
        if self.closed.load(Ordering::Acquire) {
            live.close(Duration::ZERO).await;
            return Err(UpstreamError::Closed);
        }
        Ok(live)
    }

    /// Ends what is up, unless somebody has it in hand; the next caller starts it again. `held` counts who has, and is raised
    /// before the connection is asked for.
    pub async fn stop_unless_held(&self, held: &std::sync::Mutex<usize>) {
        // Whoever comes meanwhile waits until it has ended: two of a kind must not run side by side.
        let _no_new_attempt = self.history.lock().await;
        let unneeded = {
            let held = held.lock().unwrap_or_else(PoisonError::into_inner);
            if *held > 0 { None } else { self.live.swap(None) }
        };
        if let Some(live) = unneeded {
            live.close(self.settings.drain).await;
        }
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
            in_flight: live.as_ref().map_or(0, |live| live.in_flight()) + self.singles_in_flight(),
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
        let mut all: Vec<Arc<Live>> = self.live.swap(None).into_iter().collect();
        let single = std::mem::take(&mut *self.single.lock().unwrap_or_else(PoisonError::into_inner));
        all.extend(single.iter().filter_map(Weak::upgrade));
        let drain = self.settings.drain;
        let closing: tokio::task::JoinSet<()> =
            all.into_iter().map(|live| async move { live.close(drain).await }).collect();
        closing.join_all().await;
    }

    fn remember(&self, live: &Arc<Live>) {
        let mut single = self.single.lock().unwrap_or_else(PoisonError::into_inner);
        single.retain(|live| live.strong_count() > 0);
        single.push(Arc::downgrade(live));
    }

    fn singles_in_flight(&self) -> usize {
        let single = self.single.lock().unwrap_or_else(PoisonError::into_inner);
        single.iter().filter_map(Weak::upgrade).map(|live| live.in_flight()).sum()
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
        let live = self.make(self.era.get()).await?;
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

impl Connection {
    async fn make(&self, remembered: Option<Era>) -> Result<Arc<Live>, UpstreamError> {
        let probe = Probe { server: &self.server, authority: &self.authority, settings: &self.settings };
        let connected = probe.connect(&self.endpoint, remembered, &self.events, &[]).await?;
        let live = Live::new(
            self.server.clone(),
            Arc::clone(&self.endpoint),
            connected,
            Arc::clone(&self.authority),
            self.settings.clone(),
            self.events.clone(),
        );
        self.era.set(live.greeting().era);
        Ok(Arc::new(live))
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
