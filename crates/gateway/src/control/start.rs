//! Starting and stopping, in the order of AUD-65: lock, tail, state, what a crash left open, and only then listen.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use portcullis_audit::{AuditLog, Event, EventName, Options, Witnessing};
use portcullis_core::clock::Governed;
use portcullis_core::{Actor, Clock, ErrorCode, EventId, PolicyVersion, Secret, ServerIdentity, SystemClock};
use portcullis_gauntlet::Gauntlet;
use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::approval::{Approval, Book, State as ApprovalState};
use portcullis_governance::boundary::{Boundary, Prober};
use portcullis_governance::declaration::live::LiveSurface;
use portcullis_governance::permit::Mint;
use portcullis_governance::pinned::Copies;
use portcullis_governance::policy::Policy;
use portcullis_governance::record::{Mode, RegistrationRecord, ServerState};
use portcullis_governance::registry::{Names, ServerEntry, ServerLive, Trust};
use portcullis_governance::session::Roll;
use portcullis_sandbox::Conditions;
use portcullis_store::{Shared, SharedError, Store};
use portcullis_upstream::records::hooks::Hooks;
use portcullis_upstream::{Connection, Endpoint, Settings};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::following::Follower;
use super::gates;
use super::kept::{Kept, KeptDocuments};
use super::operators::Operators;
use super::policy::{self, Activation};
use super::surface;
use super::trust::TrustBook;
use super::{AuditSettings, Control, ControlError, GatewayOptions, State};
use crate::access::Access;
use crate::access::agent_keys::{AgentKey, AgentKeys};
use crate::alarms::Alarms;
use crate::cassette::Cassette;
use crate::controls::Controls;
use crate::courier::HttpCourier;
use crate::edge::Edge;
use crate::exposure::Shelf;
use crate::index;
use crate::lifecycle::Lifecycle;
use crate::orders::OrdersCell;
use crate::projector::{self, Projector};
use crate::quotas::Meter;
use crate::recovery::Unfinished;
use crate::remembered::Remembered;
use crate::replay::Replaying;
use crate::replicas::{NotShared, Replicas};
use crate::separation::{self, AgentUsers};
use crate::shaping::Shaping;
use crate::surface::published::Press;
use crate::upstreams::Upstream;
use crate::world::WorldCell;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// The control plane.
    pub control: Arc<Control>,
    /// MCP towards agents.
    pub edge: Arc<Edge>,
    projector: Projector,
    watcher: JoinHandle<()>,
    index: JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Gateway {
    /// Opens the home folder and gets everything ready to listen.
    pub async fn start(options: GatewayOptions) -> Result<Gateway, ControlError> {
        prepare_home(&options.home).map_err(|error| {
            ControlError::new(
                ErrorCode::ControlUnavailable,
                format!("cannot prepare {}: {error}", options.home.display()),
            )
        })?;
        super::backups::restore_as_planned(&options.home).map_err(unusable_home)?;
        let mut audit = Options::new(options.audit_dir(), options.home.join("keys/evidence.kek"));
        audit.segment_bytes = options.segment_bytes;
        options.audit.apply_to(&mut audit, options.mode);
        let log =
            AuditLog::open(audit).map_err(|error| ControlError::new(error.code(), error.to_string()))?;
        is_lasting(&log, options.mode)?;
        let begun_now = log.next_seq() == 1;
        let clock: Arc<dyn Clock> = Arc::new(Governed::new(SystemClock, log.last_time()));

        // Subscribed first: what becomes durable while the store catches up must not fall between.
        let records = projector::subscribe(&log);
        let about_trust = log.subscribe(portcullis_governance::trust::is_trust_event);
        let store = open_store(&options.home, &log).await?;
        close_what_a_crash_left(&options.home, &log).await?;
        let (policy, activations) = policy::at_start(&options, &store, &log).await?;
        let book = Arc::new(Book::default());
        let fingerprint_key = fingerprint_key(&options.home).map_err(unusable_home)?;
        // With others, what is shared is taken in from where it is shared, own changes too.
        let (replicas, follower, fingerprint_key) = match &options.postgres {
            Some(url) => {
                let (replicas, follower, key) = join_others(url, &log, &fingerprint_key).await?;
                (Some(replicas), Some(follower), key)
            }
            None => {
                restore_approvals(&store, &book).await?;
                (None, None, fingerprint_key)
            }
        };
        let keys = restore_keys(&store).await?;
        let operators = restore_operators(&store, &options.home).await?;
        let kept = restore_kept(&store).await?;
        let orders = Arc::new(OrdersCell::default());
        orders.put(super::clients::orders_of(&kept));
        let meter = Arc::new(Meter::new(options.calls.token_price_micros));
        let broker = super::secrets::broker(&options, &log)?;
        let settings = Settings {
            broker: Some(broker.clone()),
            conditions: conditions(&options, &policy),
            copies: Some(Arc::new(Copies::below(options.home.join("artifacts/pinned")))),
            idle_stop: options.idle_stop,
            client_version: options.version.clone(),
            authorities: options.authorities.clone(),
            hosts: options.hosts.clone(),
            records: options.records.clone(),
            records_hooks: Arc::new(Hooks::open(options.home.join("records/hooks"), broker.clone())),
            ..Settings::default()
        };
        let gauntlet = Gauntlet::new(&options.gauntlet)
            .map_err(|error| ControlError::new(ErrorCode::Validation, error.to_string()))?;
        let gauntlet = Arc::new(gauntlet);
        let (names, checks) = (options.names, gauntlet.clone());
        let trust = Arc::new(TrustBook::open(&options.home, &log, about_trust)?);
        let shelf = Arc::new(Shelf::new(options.exposure.clone(), gauntlet.clone()));
        let press = Arc::new(Press::new(options.surface.clone()));
        let parts = (names, checks, trust, shelf, press);
        let restored =
            restore_servers(&store, (policy, activations), parts, &log, &settings, replicas.is_some());
        let mut state = restored.await?;
        if replicas.is_none() {
            check_configuration(&options, &state)?;
        }
        let checkpoints = store.checkpoints().await.map_err(unreadable_state)?;
        let surfaces = store.surfaces().await.map_err(unreadable_state)?;
        let projector = Projector::follow(&log, records, store, tokio::runtime::Handle::current());

        let replaying = open_cassette(&options, &*clock)?;
        let replay = replaying.as_ref().map(|replaying| replaying.cassette.sha256());
        let mut started = json!({
            "mode": options.mode, "pid": std::process::id(), "replay": replay, "version": options.version,
        });
        if let Some(reason) = &options.unredacted {
            started["redaction_waived"] = json!(reason);
        }
        let started = Event::new(EventName::SystemStarted, &Actor::system()).data(started);
        let receipt = log.commit(vec![started]).await?;
        // A hint for the next start, which reads the log from here on; losing it only costs time.
        let _ = fs::write(options.home.join("state/started"), receipt.seq.to_string());
        promise(&log).await?;
        let index = tokio::spawn(tend_index(log.clone(), begun_now));
        // What is older than the tail was not looked at yet; nobody waits for that, but a finding stops everything.
        let whole = log.clone();
        let _ =
            std::thread::Builder::new().name("audit-verify".into()).spawn(move || whole.verify_or_block());

        let shaping = Shaping::open(&options.home, options.shaping.clone(), &fingerprint_key, clock.clone());
        let shaping = Arc::new(shaping.map_err(unusable_home)?);
        state.views = shaping.keeps_in_passthrough();
        let world = Arc::new(WorldCell::new(state.world()));
        let (violations, reported) = mpsc::unbounded_channel();
        let alarms = Arc::new(Alarms::default());
        let mint = Mint::new(log.id(), clock.clone(), options.permit_ttl);
        let permits = mint.live().clone();
        let sessions = Arc::new(Roll::default());
        let lifecycle = Arc::new(Lifecycle {
            world: world.clone(),
            log: log.clone(),
            clock: clock.clone(),
            book: book.clone(),
            sessions: sessions.clone(),
            boundary: Boundary::new(&mint, clock.clone()),
            mint,
            fingerprint_key,
            approval_wait: options.approval_wait,
            console: options.console.clone(),
            replicas: replicas.clone(),
            replaying,
            gauntlet,
            gates: options.gates.clone(),
            alarms: alarms.clone(),
            remembered: Remembered::new(options.calls.cache.clone()),
            orders: orders.clone(),
            meter: meter.clone(),
            keys: keys.clone(),
            waivers: settings.waivers.clone(),
            turns: Arc::default(),
            asking: tokio::sync::Mutex::default(),
            violations,
        });
        let agent_users = kept.of_kind(separation::KIND).into_iter().filter_map(|user| user.id.parse().ok());
        let access = Arc::new(Access::new(
            options.access.clone(),
            keys.clone(),
            options.principal.clone(),
            log.clone(),
            clock.clone(),
            AgentUsers::remembered(log.clone(), agent_users),
        ));
        let controls = Controls::new(options.calls.clone());
        let limits = controls.limits();
        let edge = Edge::new(
            lifecycle.clone(),
            access.clone(),
            shaping.clone(),
            controls,
            options.version.clone(),
            options.principal.clone(),
            settings.records_hooks.clone(),
        );
        let edge = Arc::new(edge);
        let (usable, readers) = edge.audience();
        let control = Arc::new(Control {
            log,
            clock,
            book,
            sessions,
            permits,
            keys,
            access,
            usable,
            readers,
            operators,
            kept,
            orders,
            meter,
            captures: super::captures::Captures::default(),
            invitations: super::passkeys::Invitations::default(),
            lifecycle,
            limits,
            refused_tokens: std::sync::Mutex::default(),
            world,
            options,
            settings,
            broker,
            shaping: shaping.clone(),
            alarms,
            history: super::history::Shared::default(),
            replicas: replicas.clone(),
            state: tokio::sync::Mutex::new(state),
        });
        let (stop, stopped) = watch::channel(false);
        if let (Some(replicas), Some(mut follower)) = (replicas, follower) {
            control.take_in_everything(&replicas, &mut follower).await?;
            check_configuration(&control.options, &*control.state.lock().await)?;
            tokio::spawn(control.clone().follow_others(replicas, follower, stopped.clone()));
        }
        control.restore_stopped(checkpoints)?;
        control.restore_surfaces(surfaces).await?;
        control.restore_waivers().await;
        control.follow_orders(&mut *control.state.lock().await);
        control.recall_usage(control.orders.load().quotas().to_vec()).await;
        tokio::spawn(shaping.sweep(stopped.clone()));
        tokio::spawn(control.clone().follow_surface(stopped.clone()));
        tokio::spawn(control.clone().follow_webhooks(stopped.clone()));
        let watcher = tokio::spawn(control.clone().watch(control.options.refresh, reported, stopped));
        Ok(Gateway { control, edge, projector, watcher, index, stop })
    }

    /// Turns true when the gateway is told to stop.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Tells everybody to stop taking work.
    pub fn begin_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Ends: connections closed, processes gone, evidence and state complete.
    pub async fn finish(mut self) {
        self.begin_stop();
        let _ = (&mut self.watcher).await;
        let _ = (&mut self.index).await;
        let upstreams: Vec<Arc<Upstream>> =
            self.control.state.lock().await.upstreams.values().cloned().collect();
        let mut closing = tokio::task::JoinSet::new();
        for upstream in upstreams {
            closing.spawn(async move { upstream.close().await });
        }
        while closing.join_next().await.is_some() {}
        let log = self.control.log.clone();
        self.control.state.lock().await.trust.keep(&self.control.options.home, &log);
        let stopped = Event::new(EventName::SystemStopped, &Actor::system()).data(json!({}));
        let _ = log.commit(vec![stopped]).await;
        let mut projector = self.projector;
        // Both wait for threads of their own; the projector in turn needs this runtime.
        let _ = tokio::task::spawn_blocking(move || {
            log.close();
            projector.join();
        })
        .await;
    }
}

impl AuditSettings {
    /// What is set here takes the place of the default there.
    fn apply_to(&self, audit: &mut Options, mode: Mode) {
        audit.publish = self.publish;
        audit.append_only = self.append_only.unwrap_or(mode == Mode::Enterprise);
        audit.sinks.clone_from(&self.sinks);
        audit.retention = self.retention;
        audit.key_per_session = self.key_per_session;
        audit.sink_interval = self.sink_interval.unwrap_or(audit.sink_interval);
        audit.min_free = self.min_free.unwrap_or(audit.min_free);
        audit.group_delay = self.group_delay.unwrap_or(audit.group_delay);
        audit.commit_timeout = self.commit_timeout.unwrap_or(audit.commit_timeout);
        if !self.witnesses.is_empty() {
            audit.witnessing = Some(Witnessing {
                witnesses: self.witnesses.clone(),
                courier: Arc::new(HttpCourier::new(tokio::runtime::Handle::current())),
                required: self.witness_required,
                max_age: self.witness_max_age.unwrap_or(WITNESS_MAX_AGE),
            });
        }
        if let Some(origin) = &self.origin {
            audit.origin.clone_from(origin);
        }
        if let Some(kek) = &self.kek {
            audit.kek.clone_from(kek);
        }
        if let Some(signer) = &self.signer {
            audit.signer.clone_from(signer);
        }
    }
}

/// What holds for the start of every server.
fn conditions(options: &GatewayOptions, policy: &Policy) -> Conditions {
    let usual = Conditions::default();
    Conditions {
        baits: options.baits.clone().unwrap_or(usual.baits),
        detect: options.detect,
        user: Some(options.uid_base),
        // SBX-70
        needs_own_user: options.mode == Mode::Enterprise,
        closed: Arc::new(AtomicBool::new(policy.settings().denies_egress())),
        ..usual
    }
}

/// AUD-25: where others rely on the evidence it must outlive the machine.
fn is_lasting(log: &AuditLog, mode: Mode) -> Result<(), ControlError> {
    match log.volatile_mount() {
        Some(kind) if matches!(mode, Mode::Enterprise | Mode::Ci) => {
            let message = format!(
                "{} is on {kind}, which may forget what was synced; in mode {} the audit log must be on a disk",
                log.dir().display(),
                mode.as_str()
            );
            Err(ControlError::new(ErrorCode::Validation, message))
        }
        _ => Ok(()),
    }
}

fn unusable_home(error: io::Error) -> ControlError {
    ControlError::new(ErrorCode::ControlUnavailable, format!("cannot use the home folder: {error}"))
}

/// `$PORTCULLIS_HOME` and its folders, for the owner alone.
fn prepare_home(home: &Path) -> io::Result<()> {
    for folder in ["", "audit", "keys", "run", "state", "data", "artifacts"] {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(home.join(folder))?;
    }
    Ok(())
}

/// The installation's key for request fingerprints, made at the first start.
fn fingerprint_key(home: &Path) -> io::Result<Secret<[u8; 32]>> {
    let path = home.join("keys/fingerprint.key");
    match fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => {
            let key = Secret::random_key();
            file.write_all(key.expose())?;
            file.sync_all()?;
            Ok(key)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut key = [0; 32];
            fs::File::open(&path)?.read_exact(&mut key)?;
            Ok(Secret::new(key))
        }
        Err(error) => Err(error),
    }
}

fn unreadable_state(error: portcullis_store::StoreError) -> ControlError {
    ControlError::new(ErrorCode::Internal, format!("cannot read the state: {error}"))
}

async fn open_store(home: &Path, log: &AuditLog) -> Result<Arc<Store>, ControlError> {
    let internal =
        |error: String| ControlError::new(ErrorCode::Internal, format!("cannot read the state: {error}"));
    let store =
        Store::open(&home.join("state/state.db")).await.map_err(|error| internal(error.to_string()))?;
    projector::catch_up(log, &store, log.dir()).await.map_err(|error| internal(error.to_string()))?;
    Ok(Arc::new(store))
}

/// AUD-70: only the operator, by starting the gateway so, makes it answer from a cassette.
fn open_cassette(options: &GatewayOptions, clock: &dyn Clock) -> Result<Option<Replaying>, ControlError> {
    let Some(path) = &options.replay else { return Ok(None) };
    let cassette = Cassette::load(path)
        .map_err(|error| ControlError::field("replay", format!("{}: {error}", path.display())))?;
    Ok(Some(Replaying { cassette, run_id: EventId::new(clock.now()) }))
}

/// AUD-65: what was found and closed at this start is under a signed checkpoint before anybody is served.
async fn promise(log: &AuditLog) -> Result<(), ControlError> {
    let log = log.clone();
    let made = tokio::task::spawn_blocking(move || log.checkpoint()).await;
    made.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))??;
    Ok(())
}

/// AUD-66: an index that is missing or not of this log is made anew. Nobody waits for it.
async fn tend_index(log: AuditLog, begun_now: bool) {
    let Some(fault) = index::fault(&log).await else { return };
    let made = index::rebuild(log.dir(), &log.index_path(), &log.id().to_string()).await;
    match made {
        Ok(_) if begun_now => {}
        Ok(records) => {
            let data = json!({"reason": fault, "records": records});
            let _ = log.append(vec![Event::new(EventName::AuditIndexRebuilt, &Actor::system()).data(data)]);
        }
        Err(error) => tracing::warn!("the log has no index, so it is read from end to end: {error}"),
    }
}

async fn close_what_a_crash_left(home: &Path, log: &AuditLog) -> Result<(), ControlError> {
    let hint = fs::read_to_string(home.join("state/started")).ok().and_then(|text| text.trim().parse().ok());
    let from = hint.filter(|seq| *seq < log.next_seq()).unwrap_or(0);
    let unfinished = Unfinished::find(log.dir(), from)
        .map_err(|error| ControlError::new(error.code(), error.to_string()))?;
    let events = unfinished.closing_events();
    if !events.is_empty() {
        log.commit(events).await?;
    }
    Ok(())
}

async fn restore_approvals(store: &Store, book: &Book) -> Result<(), ControlError> {
    let rows = store
        .approvals(None)
        .await
        .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
    for row in rows {
        let approval: Approval = serde_json::from_value(row.approval.clone()).map_err(|error| {
            ControlError::new(ErrorCode::Internal, format!("a recorded approval cannot be read: {error}"))
        })?;
        // Decided long ago and spent: history, which the log keeps.
        if matches!(approval.state, ApprovalState::Pending | ApprovalState::Approved) {
            book.enter(approval, &row.presented);
        }
    }
    Ok(())
}

async fn restore_keys(store: &Store) -> Result<Arc<AgentKeys>, ControlError> {
    let internal = |what: String| ControlError::new(ErrorCode::Internal, what);
    let keys = AgentKeys::default();
    for row in store.agent_keys().await.map_err(|error| internal(error.to_string()))? {
        let key: AgentKey = serde_json::from_value(row.key)
            .map_err(|error| internal(format!("a recorded key cannot be read: {error}")))?;
        if !keys.put(key) {
            return Err(internal(format!("the recorded key of '{}' cannot be one", row.agent)));
        }
    }
    Ok(Arc::new(keys))
}

async fn restore_operators(store: &Store, home: &Path) -> Result<Operators, ControlError> {
    let internal = |what: String| ControlError::new(ErrorCode::Internal, what);
    let operators = Operators::default();
    for row in store.operators().await.map_err(|error| internal(error.to_string()))? {
        let enrolled = serde_json::from_value(row.operator)
            .map_err(|error| internal(format!("a recorded operator cannot be read: {error}")))?;
        operators.restore(home, enrolled);
    }
    Ok(operators)
}

async fn restore_kept(store: &Store) -> Result<KeptDocuments, ControlError> {
    let kept = KeptDocuments::default();
    let rows = store.admin_state().await;
    for row in rows.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))? {
        kept.restore(&row.kind, Kept { id: row.id, version: row.version, document: row.document });
    }
    Ok(kept)
}

async fn restore_servers(
    store: &Store,
    (policy, activations): (Arc<Policy>, Vec<Activation>),
    (names, gauntlet, trust, shelf, press): (Names, Arc<Gauntlet>, Arc<TrustBook>, Arc<Shelf>, Arc<Press>),
    log: &AuditLog,
    settings: &Settings,
    is_shared: bool,
) -> Result<State, ControlError> {
    let internal = |what: String| ControlError::new(ErrorCode::Internal, what);
    let mut state = State {
        entries: BTreeMap::new(),
        upstreams: HashMap::new(),
        counters: HashMap::new(),
        policy,
        activations,
        names,
        gauntlet,
        views: false,
        trust,
        shelf,
        press,
    };
    if is_shared {
        return Ok(state);
    }
    let declarations = store.declarations().await.map_err(|error| internal(error.to_string()))?;
    for row in &declarations {
        let Ok(identity) = row.server.parse::<ServerIdentity>() else { continue };
        let Ok(version) = row.version.parse::<PolicyVersion>() else { continue };
        let counter = state.counters.entry(identity).or_default();
        *counter = (*counter).max(version.counter);
    }
    for row in store.servers().await.map_err(|error| internal(error.to_string()))? {
        let mut record: RegistrationRecord = serde_json::from_value(row.record.clone())
            .map_err(|error| internal(format!("a recorded server cannot be read: {error}")))?;
        record.state = match row.state.as_str() {
            "active" => ServerState::Active,
            "halted" => ServerState::Halted,
            _ => continue,
        };
        record.halt = row.halt.clone();
        let version = record.declaration_version;
        let accepted = declarations.iter().find(|declaration| {
            declaration.server == record.server_identity.as_str()
                && declaration.version == version.to_string()
        });
        let accepted = accepted.ok_or_else(|| {
            internal(format!("server '{}' has no recorded declaration", record.server_identity))
        })?;
        let live: LiveSurface = serde_json::from_slice(&accepted.probe)
            .map_err(|error| internal(format!("a recorded probe cannot be read: {error}")))?;
        let declaration = AcceptedDeclaration::restore(
            &accepted.document,
            live,
            version,
            &record.server_identity,
            &record.server_version,
            record.registration_epoch,
            record.transport.process().map(|process| (process, &*record.artifact_pins)),
        )
        .map_err(internal)?;
        state.add(record, Arc::new(declaration), log, settings);
    }
    Ok(state)
}

/// What the configuration says of servers, held against those that are registered.
fn check_configuration(options: &GatewayOptions, state: &State) -> Result<(), ControlError> {
    if state.names == Names::Bare && state.entries.len() > 1 {
        let message = "bare names are for a gateway with one server; several are registered";
        return Err(ControlError::field("gateway.names", message));
    }
    surface::check_servers(&options.surface, state.entries.keys())?;
    gates::check(&options.gates, &state.entries)
}

/// Becomes one of several replicas (AUD-68): alone under its id, with everything of its own known to the others, and
/// with the key that makes equal requests look equal everywhere.
async fn join_others(
    url: &Secret<String>,
    log: &AuditLog,
    own_key: &Secret<[u8; 32]>,
) -> Result<(Arc<Replicas>, Follower, Secret<[u8; 32]>), ControlError> {
    let unreachable = |error: SharedError| ControlError::from(NotShared::from(error));
    let (shared, presence) = Shared::connect(url.expose(), log.id()).await.map_err(unreachable)?;
    let key = shared.setting("fingerprint_key", own_key.expose()).await.map_err(unreachable)?;
    let key: [u8; 32] = key.try_into().map_err(|_| {
        ControlError::new(ErrorCode::Integrity, "the shared state has a fingerprint key that cannot be one")
    })?;
    let replicas = Replicas::new(shared, log.clone());
    replicas.catch_up_with_own_log().await?;
    Ok((replicas, Follower::new(presence), Secret::new(key)))
}

impl State {
    /// Takes a registered server in, with a connection that starts nothing yet.
    pub(super) fn add(
        &mut self,
        mut record: RegistrationRecord,
        declaration: Arc<AcceptedDeclaration>,
        log: &AuditLog,
        settings: &Settings,
    ) {
        let identity = record.server_identity.clone();
        // A waiver is for one life of a server (SBX-71).
        settings.waivers.end(&identity);
        // What policy assigns is what the policy in force assigns, not the one of the day of registration.
        record.assigned_trust_tier =
            self.policy.settings().assigned_tier(&identity, record.requested_trust_tier);
        let endpoint = Endpoint::of_transport(&record.transport, &record.artifact_pins);
        let prober = Arc::new(Prober::new(log.clone(), record.server_version.clone()));
        let capabilities = declaration.client_capabilities().clone();
        let settings = Settings { capabilities, ..settings.clone() };
        let connection = Connection::new(identity.clone(), endpoint, prober, settings);
        let live = Arc::new(ServerLive::of(&declaration));
        if record.state == ServerState::Halted {
            live.halt();
        }
        let (trust, tools) = (Trust::Untrusted, Arc::default());
        let entry = ServerEntry { record: Arc::new(record), declaration, live, trust, tools };
        self.upstreams.insert(identity.clone(), Arc::new(Upstream::new(connection)));
        self.entries.insert(identity, entry);
    }
}

/// AUD-34: how long a required witness may be away.
const WITNESS_MAX_AGE: Duration = Duration::from_secs(600);

/// How often approvals are looked through for expired ones.
pub(super) const SWEEP: Duration = Duration::from_secs(1);
