//! A server's connection, held to its accepted declaration.
//!
//! A process that was restarted, or a session that was opened anew, may not be what was accepted. So a live
//! connection carries no call before its surface has been looked at and found equal (GOV-501): a changed tool is
//! caught before the model hears of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use portcullis_core::Item;
use portcullis_core::error::Fault;
use portcullis_governance::declaration::live::{self, Difference, LiveSurface, LiveTool};
use portcullis_governance::record::Surface;
use portcullis_governance::registry::{Availability, ServerEntry};
use portcullis_upstream::{Connection, Live, Snapshot, UpstreamError};
use serde_json::value::RawValue;

/// A connection and the last live state of it that was found to equal the declaration.
#[derive(Debug)]
pub struct Upstream {
    connection: Connection,
    verified: ArcSwapOption<Live>,
    /// What it listed when it was last found to be something else, for who has to decide about it.
    drifted: ArcSwapOption<LiveSurface>,
    /// Whether its instructions are not those that were accepted (SURF-14).
    says_other_things: AtomicBool,
    /// Whether its surface is not what it was when somebody last asked.
    shifted: AtomicBool,
    verifying: tokio::sync::Mutex<()>,
    turns: Arc<tokio::sync::Mutex<()>>,
    /// Set once somebody keeps the server's subscriptions (see `following`).
    pub(crate) keeper: OnceLock<()>,
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NotUsable {
    /// It cannot be reached, or is not what was registered.
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// It is there, but not what was accepted.
    #[error("{reason}")]
    Drifted {
        /// MP-FH-003, 005 or 009.
        fault: Fault,
        /// The declared items that changed or are gone.
        tools: Vec<String>,
        /// What differs.
        reason: String,
    },
}

impl NotUsable {
    /// The governed failure mode.
    pub fn fault(&self) -> Fault {
        match self {
            NotUsable::Upstream(error) => error.fault(),
            NotUsable::Drifted { fault, .. } => *fault,
        }
    }
}

impl NotUsable {
    /// The declared items that are to blame; none if nobody can tell.
    pub fn tools(&self) -> Vec<String> {
        match self {
            NotUsable::Upstream(_) => Vec::new(),
            NotUsable::Drifted { tools, .. } => tools.clone(),
        }
    }
}

impl Upstream {
    /// Nothing is started yet.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            verified: ArcSwapOption::empty(),
            drifted: ArcSwapOption::empty(),
            says_other_things: AtomicBool::new(false),
            shifted: AtomicBool::new(false),
            verifying: tokio::sync::Mutex::default(),
            turns: Arc::default(),
            keeper: OnceLock::new(),
        }
    }

    /// Waits until no other call has the server to itself.
    pub(crate) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.turns.clone().lock_owned().await
    }

    /// The connection itself, for its status and events.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A live connection whose surface equals what was accepted for `entry`.
    pub async fn ready(&self, entry: &ServerEntry) -> Result<Arc<Live>, NotUsable> {
        let live = self.connection.ready().await?;
        if self.is_verified(&live) {
            return Ok(live);
        }
        let _one_at_a_time = self.verifying.lock().await;
        if !self.is_verified(&live) {
            self.check(entry, surface(&live.snapshot().await?)?)?;
            self.verified.store(Some(live.clone()));
        }
        Ok(live)
    }

    /// Looks again at a live connection, because the server says that it changed or because time has passed.
    /// A server that is not connected is looked at when it is, unless something of it waits to be what was accepted: then
    /// perhaps nothing is left whose call would connect to it.
    pub async fn recheck(&self, entry: &ServerEntry) -> Result<(), NotUsable> {
        let waits = entry.record.surface == Surface::Dynamic && self.drifted.load().is_some();
        let Some(live) = self.verified.load_full().filter(|live| live.is_alive()) else {
            return if waits && entry.is_active() { self.ready(entry).await.map(drop) } else { Ok(()) };
        };
        self.check(entry, surface(&live.snapshot().await?)?)
    }

    /// What the server listed when it was last found to be something else than accepted.
    pub fn drifted(&self) -> Option<Arc<LiveSurface>> {
        self.drifted.load_full()
    }

    /// What it listed before the gateway was started, as far as that was something else than accepted.
    pub(crate) fn was(&self, entry: &ServerEntry, live: LiveSurface) {
        let difference = entry.declaration.drift(&live);
        if difference.is_empty() {
            return;
        }
        if entry.record.surface == Surface::Dynamic {
            take_stock(entry, &difference);
        }
        self.drifted.store(Some(Arc::new(live)));
    }

    /// Whether its instructions were others when it was last looked at.
    pub(crate) fn says_other_things(&self) -> bool {
        self.says_other_things.load(Ordering::Acquire)
    }

    /// Whether the surface of a server that may change it has changed since this was last asked.
    pub(crate) fn take_shift(&self) -> bool {
        self.shifted.swap(false, Ordering::AcqRel)
    }

    fn check(&self, entry: &ServerEntry, live: LiveSurface) -> Result<(), NotUsable> {
        let difference = entry.declaration.drift(&live);
        let checked = match entry.record.surface {
            Surface::Static => check_version(entry, &live).and_then(|()| unchanged(&difference)),
            Surface::Dynamic => check_version(entry, &live).map(|()| {
                if take_stock(entry, &difference) {
                    self.shifted.store(true, Ordering::Release);
                }
            }),
        };
        let changed = live.instructions != entry.declaration.live().instructions;
        self.says_other_things.store(changed, Ordering::Release);
        let drifted = checked.is_err() || !difference.is_empty();
        let before = self.drifted.swap(drifted.then(|| Arc::new(live)));
        // What nobody declared is news too, though nothing that could be called has changed.
        if checked.is_ok() && before.is_some() != drifted {
            self.shifted.store(true, Ordering::Release);
        }
        checked
    }

    fn is_verified(&self, live: &Arc<Live>) -> bool {
        self.verified.load().as_ref().is_some_and(|verified| Arc::ptr_eq(verified, live))
    }
}

/// What a snapshot says, as governance compares it.
pub fn surface(snapshot: &Snapshot) -> Result<LiveSurface, NotUsable> {
    let malformed = |error: live::MalformedTool| NotUsable::Drifted {
        fault: Fault::Mismatch,
        tools: Vec::new(),
        reason: error.to_string(),
    };
    let read = |items: &[Box<RawValue>], key: &'static str| {
        let items = items.iter().enumerate();
        items.map(|(index, item)| LiveTool::keyed(index, key, item)).collect::<Result<Vec<_>, _>>()
    };
    let tools = (snapshot.tools.iter().enumerate())
        .map(|(index, definition)| LiveTool::read(index, definition))
        .collect::<Result<_, _>>()
        .map_err(malformed)?;
    Ok(LiveSurface {
        protocol_version: snapshot.greeting.protocol_version.to_owned(),
        server_name: snapshot.greeting.server_name.clone(),
        server_version: snapshot.greeting.server_version.clone(),
        tools,
        resources: read(&snapshot.resources, "uri").map_err(malformed)?,
        templates: read(&snapshot.templates, "uriTemplate").map_err(malformed)?,
        prompts: read(&snapshot.prompts, "name").map_err(malformed)?,
        completions: snapshot.greeting.completes(),
        instructions: snapshot.greeting.instructions.clone(),
    })
}

fn check_version(entry: &ServerEntry, live: &LiveSurface) -> Result<(), NotUsable> {
    // GOV-1302: a version that is given must be the registered one.
    let registered = entry.record.server_version.as_str();
    if let Some(version) = live.server_version.as_deref().filter(|version| *version != registered) {
        let shown = portcullis_core::name::printable(version);
        let reason = format!("the server says it is version {shown}, registered is {registered:?}");
        return Err(NotUsable::Drifted { fault: Fault::Version, tools: Vec::new(), reason });
    }
    Ok(())
}

/// GOV-502: what is as it was accepted can be called, and nothing else. True if anything is otherwise than before.
fn take_stock(entry: &ServerEntry, difference: &Difference) -> bool {
    let mut news = false;
    for tool in entry.declaration.tools().iter().chain(entry.declaration.prompts()) {
        let name = match tool.id().item() {
            Item::Prompt(name) => format!("prompt {name}"),
            item => item.name().to_owned(),
        };
        let is_it = |found: &str| found == name;
        let availability = if difference.removed.iter().any(|found| is_it(found)) {
            Availability::Withdrawn
        } else if difference.changed.iter().any(|change| is_it(&change.tool)) {
            Availability::PendingRedeclaration
        } else {
            Availability::Accepted
        };
        news |= entry.live.found(tool.id(), availability);
    }
    news
}

/// GOV-501: a static surface is what was accepted.
fn unchanged(difference: &Difference) -> Result<(), NotUsable> {
    if difference.is_empty() {
        return Ok(());
    }
    let fault = if difference.added.is_empty() { Fault::Mismatch } else { Fault::UngovernedSurface };
    Err(NotUsable::Drifted { fault, tools: difference.blamed(), reason: difference.summary() })
}
