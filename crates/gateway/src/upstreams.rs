//! A server's connections, held to its accepted declaration.
//!
//! A process that was restarted, or a session that was opened anew, may not be what was accepted. So a live
//! connection carries no call before its surface has been looked at and found equal (GOV-501): a changed tool is
//! caught before the model hears of it.
//!
//! A server that we start has as many processes as calls must be kept apart (SBX-12); a [`ConnectionKey`] says which of
//! them a call goes to, and each has a [`Line`] of its own.

mod key;
mod line;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use portcullis_core::error::Fault;
use portcullis_core::{Item, ServerIdentity};
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::declaration::Via;
use portcullis_governance::declaration::live::{self, Difference, LiveSurface, LiveTool};
use portcullis_governance::record::{ProcessModel, Surface};
use portcullis_governance::registry::{Availability, ServerEntry};
use portcullis_upstream::{Connection, Era, Live, Phase, Snapshot, Status, UpstreamError, UpstreamEvent};
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use crate::edge::MODERN;
pub use key::Caller;
pub(crate) use key::ConnectionKey;
pub use line::Channel;
pub(crate) use line::Line;

/// How many sessions of clients may have a connection of their own to one server.
const MOST_OF_SESSIONS: usize = 64;

/// All connections to one server.
#[derive(Debug)]
pub struct Upstream {
    /// The one that everybody shares, where one does; where not, the one that looks.
    common: Arc<Line>,
    /// The others.
    lines: Mutex<BTreeMap<ConnectionKey, Arc<Line>>>,
    closed: AtomicBool,
    /// What it listed when it was last found to be something else, for who has to decide about it.
    drifted: ArcSwapOption<LiveSurface>,
    /// Whether its instructions are not those that were accepted (SURF-14).
    says_other_things: AtomicBool,
    /// Whether its surface is not what it was when somebody last asked.
    shifted: AtomicBool,
    turns: Arc<tokio::sync::Mutex<()>>,
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
    /// It does not offer this to a client that can do no more.
    #[error("the server offers this only to clients that can do more")]
    Lacking {
        /// What the client did not say that it can do, of what the declaration lists.
        needs: Value,
    },
}

impl NotUsable {
    /// The governed failure mode.
    pub fn fault(&self) -> Fault {
        match self {
            NotUsable::Upstream(error) => error.fault(),
            NotUsable::Drifted { fault, .. } => *fault,
            NotUsable::Lacking { .. } => Fault::NotAccepted,
        }
    }
}

impl NotUsable {
    /// The declared items that are to blame; none if nobody can tell.
    pub fn tools(&self) -> Vec<String> {
        match self {
            NotUsable::Upstream(_) | NotUsable::Lacking { .. } => Vec::new(),
            NotUsable::Drifted { tools, .. } => tools.clone(),
        }
    }
}

impl Upstream {
    /// Nothing is started yet.
    pub fn new(connection: Connection) -> Self {
        Self {
            common: Line::new(connection, None, false),
            lines: Mutex::default(),
            closed: AtomicBool::new(false),
            drifted: ArcSwapOption::empty(),
            says_other_things: AtomicBool::new(false),
            shifted: AtomicBool::new(false),
            turns: Arc::default(),
        }
    }

    /// Waits until no other call has the server to itself.
    pub(crate) async fn turn(&self) -> tokio::sync::OwnedMutexGuard<()> {
        self.turns.clone().lock_owned().await
    }

    /// The server this leads to.
    pub fn server(&self) -> &ServerIdentity {
        self.common.connection.server()
    }

    /// What the server does unasked, whichever process of it does.
    pub fn events(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.common.connection.events()
    }

    /// Where the connections are, all together.
    pub fn status(&self) -> Status {
        let mut all = self.every_line().into_iter().map(|line| line.connection.status());
        let first = all.next().expect("there is a common line");
        all.fold(first, |one, other| {
            let in_flight = one.in_flight + other.in_flight;
            let failures = one.failures.max(other.failures);
            let nearer = if nearness(other.phase) > nearness(one.phase) { other } else { one };
            Status { in_flight, failures, ..nearer }
        })
    }

    /// Whether any process of it is being started.
    pub fn is_connecting(&self) -> bool {
        self.every_line().iter().any(|line| line.connection.status().phase == Phase::Connecting)
    }

    /// How many processes of it run for calls to come or under way.
    pub fn processes(&self) -> usize {
        self.every_line().iter().filter(|line| line.connection.status().pid.is_some()).count()
    }

    /// The processes of it that run.
    pub fn pids(&self) -> Vec<u32> {
        let lines = self.every_line();
        let pids = lines.iter().filter_map(|line| line.connection.status().pid);
        pids.filter_map(|pid| u32::try_from(pid).ok()).collect()
    }

    /// The end of what a process of it wrote to stderr, if one is up. Hostile text.
    pub fn last_words(&self) -> Option<String> {
        self.every_line().iter().find_map(|line| line.connection.last_words())
    }

    /// Ends all connections for good; when this returns no process is left.
    pub async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let closing: tokio::task::JoinSet<()> =
            self.every_line().into_iter().map(|line| async move { line.close().await }).collect();
        closing.join_all().await;
    }

    /// Ends processes that serve one set of scopes and were not called for this long (SBX-12).
    pub(crate) async fn stop_idle(&self, entry: &ServerEntry, idle: Duration) {
        self.end_left().await;
        // A process that everybody shares may keep what it was told in its memory.
        let process = entry.record.transport.process();
        if process.is_none_or(|process| process.process_model == ProcessModel::Shared) {
            return;
        }
        for line in self.every_line() {
            line.stop_if_idle(idle).await;
        }
    }

    /// A live connection for a call of this tool, whose surface equals what was accepted for `entry`.
    pub async fn ready(
        self: &Arc<Self>,
        entry: &ServerEntry,
        tool: &AcceptedTool,
        caller: Caller<'_>,
    ) -> Result<Channel, NotUsable> {
        let line = self.line(entry, tool, caller)?;
        let hold = line.hold();
        let cage = tool.cage().filter(|cage| cage.model == ProcessModel::PerCall);
        // With a credential in its environment a process is started once that may be lent; this one is what it must be like.
        let in_environment = || tool.deliveries().iter().any(|delivery| delivery.via == Via::Env);
        if cage.is_none() || in_environment() {
            let live = self.lasting(entry, &line).await?;
            is_offered(entry, tool, caller, &line)?;
            return Ok(Channel::new(live, hold, false));
        }
        let live = match line.take_spare() {
            Some(spare) => spare,
            None => self.single(entry, &line).await?,
        };
        let channel = Channel::new(live, hold, true);
        is_offered(entry, tool, caller, &line)?;
        self.prepare_spare(entry, &line);
        Ok(channel)
    }

    /// The connection over which a thing of this kind is called or followed by this caller.
    pub(crate) fn line(
        &self,
        entry: &ServerEntry,
        tool: &AcceptedTool,
        caller: Caller<'_>,
    ) -> Result<Arc<Line>, NotUsable> {
        let era = self.common.connection.era().unwrap_or_else(|| accepted_era(entry));
        let key = ConnectionKey::of(tool, caller, entry, era);
        if key.is_common() {
            return Ok(Arc::clone(&self.common));
        }
        let mut lines = self.lines();
        // Seen under the lock: whoever closes looks at the lines after saying so.
        if self.closed.load(Ordering::Acquire) {
            return Err(UpstreamError::Closed.into());
        }
        if let Some(line) = lines.get(&key) {
            return Ok(Arc::clone(line));
        }
        if key.is_of_session() {
            make_room(&mut lines)?;
        }
        let connection = match tool.cage().filter(|_| key.has_cage()) {
            Some(cage) => self.common.connection.in_cage(&cage.profile),
            None => self.common.connection.another(),
        };
        let less = key.is_told_less();
        let connection = if less { connection.announcing(caller.capabilities) } else { connection };
        let line = Line::new(connection, key.is_of_session().then(|| Arc::clone(caller.session)), less);
        lines.insert(key, Arc::clone(&line));
        Ok(line)
    }

    /// Ends the connections of sessions that are over (PRO-39).
    async fn end_left(&self) {
        let left: Vec<Arc<Line>> = {
            let mut lines = self.lines();
            let left = lines.values().filter(|line| line.is_left()).cloned().collect();
            lines.retain(|_, line| !line.is_left());
            left
        };
        for line in left {
            line.close().await;
        }
    }

    /// The process behind a line that lasts, looked at.
    pub(crate) async fn lasting(
        &self,
        entry: &ServerEntry,
        line: &Arc<Line>,
    ) -> Result<Arc<Live>, NotUsable> {
        let _hold = line.hold();
        let live = line.connection.ready().await?;
        if line.is_verified(&live) {
            return Ok(live);
        }
        let _one_at_a_time = line.verifying.lock().await;
        if !line.is_verified(&live) {
            self.look_at(entry, line, surface(&live.snapshot().await?)?)?;
            line.verify(&live);
        }
        Ok(live)
    }

    /// A process for one call, looked at.
    async fn single(&self, entry: &ServerEntry, line: &Line) -> Result<Arc<Live>, NotUsable> {
        let live = line.connection.single().await?;
        let looked_at = match live.snapshot().await {
            Ok(snapshot) => surface(&snapshot).and_then(|surface| self.look_at(entry, line, surface)),
            Err(error) => Err(error.into()),
        };
        match looked_at {
            Ok(()) => Ok(live),
            Err(error) => {
                live.close(Duration::ZERO).await;
                Err(error)
            }
        }
    }

    /// Has a process ready for the next call. One that cannot be had is the next call's business.
    fn prepare_spare(self: &Arc<Self>, entry: &ServerEntry, line: &Arc<Line>) {
        if !line.lacks_spare() {
            return;
        }
        let (upstream, entry, line) = (Arc::clone(self), entry.clone(), Arc::clone(line));
        tokio::spawn(async move {
            let Ok(live) = upstream.single(&entry, &line).await else { return };
            let unneeded =
                if upstream.closed.load(Ordering::Acquire) { Some(live) } else { line.keep_spare(live) };
            if let Some(unneeded) = unneeded {
                unneeded.close(Duration::ZERO).await;
            }
        });
    }

    /// Looks again at what is live, because the server says that it changed or because time has passed.
    /// A server that is not connected is looked at when it is, unless something of it waits to be what was accepted: then
    /// perhaps nothing is left whose call would connect to it.
    pub async fn recheck(&self, entry: &ServerEntry) -> Result<(), NotUsable> {
        let waits = entry.record.surface == Surface::Dynamic && self.drifted.load().is_some();
        let live: Vec<(Arc<Line>, Arc<Live>)> = self
            .every_line()
            .into_iter()
            .filter_map(|line| line.verified().map(|live| (line, live)))
            .collect();
        if live.is_empty() && waits && entry.is_active() {
            return self.lasting(entry, &self.common).await.map(drop);
        }
        let common_is_looked_at = live.is_empty() || live.iter().any(|(line, _)| !line.is_told_less());
        for (line, live) in live {
            self.look_at(entry, &line, surface(&live.snapshot().await?)?)?;
        }
        // PRO-63: whether something changed for everybody is seen only where the server was told everything.
        if !common_is_looked_at && entry.is_active() {
            self.lasting(entry, &self.common).await?;
        }
        Ok(())
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

    /// Holds what a server lists over one of its connections to what was accepted.
    fn look_at(&self, entry: &ServerEntry, line: &Line, live: LiveSurface) -> Result<(), NotUsable> {
        if line.is_told_less() {
            line.lacks(check_less(entry, &live)?);
            return Ok(());
        }
        self.check(entry, live)
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
        self.says_other_things.store(!entry.says_as_accepted(&live), Ordering::Release);
        let drifted = checked.is_err() || !difference.is_empty();
        let before = self.drifted.swap(drifted.then(|| Arc::new(live)));
        // What nobody declared is news too, though nothing that could be called has changed.
        if checked.is_ok() && before.is_some() != drifted {
            self.shifted.store(true, Ordering::Release);
        }
        checked
    }

    fn every_line(&self) -> Vec<Arc<Line>> {
        std::iter::once(&self.common).chain(self.lines().values()).cloned().collect()
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<ConnectionKey, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// There are only so many connections for single sessions of clients: the one that nobody has used for longest makes room,
/// and where all are in use nobody gets another.
fn make_room(lines: &mut BTreeMap<ConnectionKey, Arc<Line>>) -> Result<(), NotUsable> {
    let of_sessions = || lines.iter().filter(|(key, _)| key.is_of_session());
    if of_sessions().count() < MOST_OF_SESSIONS {
        return Ok(());
    }
    let resting = of_sessions().filter_map(|(key, line)| Some((line.rested()?, key.clone())));
    let Some((_, key)) = resting.max_by_key(|(rested, _)| *rested) else {
        let reason =
            format!("it has {MOST_OF_SESSIONS} clients at once already, each with a session of its own");
        return Err(UpstreamError::Unavailable { reason }.into());
    };
    if let Some(line) = lines.remove(&key) {
        tokio::spawn(async move { line.close().await });
    }
    Ok(())
}

/// Of several connections the one that says most about the server comes first.
fn nearness(phase: Phase) -> u8 {
    match phase {
        Phase::Ready => 5,
        Phase::Connecting => 4,
        Phase::BreakerOpen => 3,
        Phase::Failing => 2,
        Phase::Closed => 1,
        Phase::Idle => 0,
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

/// The era that a server spoke when it was accepted.
fn accepted_era(entry: &ServerEntry) -> Era {
    let is_modern = entry.declaration.live().protocol_version == MODERN.as_str();
    if is_modern { Era::Modern } else { Era::Legacy }
}

/// PRO-63: a server that was told less may list less. What it lists must be what was accepted all the same; gives what it
/// does not list.
fn check_less(entry: &ServerEntry, live: &LiveSurface) -> Result<Vec<String>, NotUsable> {
    check_version(entry, live)?;
    let mut difference = entry.declaration.drift(live);
    let mut lacking = std::mem::take(&mut difference.removed);
    match entry.record.surface {
        Surface::Static => unchanged(&difference)?,
        // Whether it changed for everybody is seen where it was told everything.
        Surface::Dynamic => lacking.extend(difference.changed.into_iter().map(|change| change.tool)),
    }
    Ok(lacking)
}

/// Whether a connection leads to what is called.
fn is_offered(
    entry: &ServerEntry,
    tool: &AcceptedTool,
    caller: Caller<'_>,
    line: &Line,
) -> Result<(), NotUsable> {
    if line.lists(&listed_as(tool)) {
        return Ok(());
    }
    let declared = entry.declaration.client_capabilities().as_object().into_iter().flatten();
    let missing = declared.filter(|(kind, how)| caller.capabilities.get(kind.as_str()) != Some(*how));
    let needs = missing.map(|(kind, how)| (kind.clone(), how.clone())).collect();
    Err(NotUsable::Lacking { needs: Value::Object(needs) })
}

/// What a thing is called where differences are told.
fn listed_as(tool: &AcceptedTool) -> String {
    match tool.id().item() {
        Item::Prompt(name) => format!("prompt {name}"),
        item => item.name().to_owned(),
    }
}

/// GOV-502: what is as it was accepted can be called, and nothing else. True if anything is otherwise than before.
fn take_stock(entry: &ServerEntry, difference: &Difference) -> bool {
    let mut news = false;
    for tool in entry.declaration.tools().iter().chain(entry.declaration.prompts()) {
        let name = listed_as(tool);
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
