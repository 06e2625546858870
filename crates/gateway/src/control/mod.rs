//! The control plane: the only authority that changes anything, and the only maker of worlds.
//!
//! Every operation has the same shape: check, make the event durable, then change memory and put a new world in
//! force. An operation that cannot confirm its durable event has changed nothing.

mod ahead;
mod approvals;
mod artifacts;
mod attention;
mod backups;
mod bindings;
mod cage;
mod captures;
mod catalogue;
mod clients;
mod custody;
mod denials;
mod draft;
mod drafts;
mod evidence;
mod explain;
mod following;
mod gates;
mod history;
mod importing;
mod independence;
mod kept;
mod keys;
mod measures;
mod opened;
mod operators;
mod passkeys;
mod people;
mod permits;
mod policy;
mod predicted;
mod reacceptance;
mod registration;
mod replay;
mod reports;
mod secrets;
mod sessions;
mod signing_keys;
mod start;
mod submissions;
mod surface;
mod tokens;
mod trust;
mod tuning;
mod upkeep;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_audit::{AuditBlocked, AuditLog, Event, Receipt};
use portcullis_core::{Clock, ErrorCode, LogId, Principal, Secret, ServerIdentity};
use portcullis_gauntlet::{Gauntlet, GauntletConfig};
use portcullis_governance::approval::Book;
use portcullis_governance::declaration::Rejection;
use portcullis_governance::operator::{Method, OperatorProof};
use portcullis_governance::permit::LivePermits;
use portcullis_governance::policy::{Bundle, Policy};
use portcullis_governance::record::Mode;
use portcullis_governance::registry::{Names, Registry, ServerEntry};
use portcullis_governance::session::Roll;
use portcullis_upstream::Settings;

use crate::access::agent_keys::AgentKeys;
use crate::access::{Access, AccessOptions};
use crate::alarms::{Alarm, Alarms};
use crate::controls::CallOptions;
use crate::edge::usable::Usable;
use crate::exposure::{ExposureOptions, Shelf};
use crate::gates::Gates;
use crate::replicas::Replicas;
use crate::shaping::{Shaping, ShapingOptions, TOOL_VIEW_DEFINITION};
use crate::surface::SurfaceOptions;
use crate::surface::audience::Readers;
use crate::surface::published::Press;
use crate::upstreams::Upstream;
use crate::world::{World, WorldCell};

pub use ahead::GrantAhead;
pub use attention::Refresh;
pub use backups::{Backup, Verified};
pub use bindings::Withheld;
pub use cage::Waiver;
pub use captures::{CaptureKind, Given};
pub use catalogue::FoundItem;
pub use clients::Revoked;
pub use denials::Proposed;
pub use draft::{Drafted, Drafting};
pub use drafts::KeptDraft;
pub use evidence::{Disclosure, Piece};
pub use explain::{ArgumentError, DryRun, Explanation};
pub use history::{CallFilter, CallRow, Outcome};
pub use importing::{FoundServer, ImportSource, Imported};
pub use kept::{Document, Kept, Versioned};
pub use opened::Opened;
pub use operators::{Claimant, Credential, Enrolled, Enrolment};
pub use passkeys::{Invitation, Passkey};
pub use people::{AdminOptions, OWNER, Role, User};
pub use permits::{Invalidated, Meant};
pub use policy::Activation;
pub use predicted::Predicted;
pub use reacceptance::{Reacceptance, Replaced};
pub use registration::{Registration, Target, TestReport};
pub(crate) use replay::output_schema_sha256;
pub use replay::{Replayed, VerdictChange, Verdicts};
pub use secrets::SecretRow;
pub use sessions::{Ended, SessionRow};
pub use start::Gateway;
pub use submissions::{DeclarationText, Submission};
pub use surface::{SurfaceParts, SurfacePoint, ToolPart};
pub use tokens::OperatorToken;
pub use tuning::{Setting, SettingRow};
pub use upkeep::{AskedAhead, PermitVerdict, ReplicaRow};

/// How a gateway is set up.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// `$PORTCULLIS_HOME`: everything the gateway keeps.
    pub home: PathBuf,
    /// Policies and keys that are kept elsewhere: no server is given them (GOV-403).
    pub protected: Vec<PathBuf>,
    /// Where it runs.
    pub mode: Mode,
    /// The policy that the configuration names; it is in force unless an operator applied another since.
    pub policy: Bundle,
    /// How operators prove who they are (GOV-104).
    pub operator_methods: Vec<Method>,
    /// How often servers that say that they changed are looked at.
    pub refresh: Refresh,
    /// How long a call waits for an approval.
    pub approval_wait: Duration,
    /// Where values of credentials lie (SBX-55).
    pub secrets_backend: portcullis_governance::broker::backend::Backend,
    /// Where operators decide in the browser, without a slash at the end; agents are told.
    pub console: Option<String>,
    /// How long a permit lives.
    pub permit_ttl: Duration,
    /// Size of an audit segment.
    pub segment_bytes: u64,
    /// How else the audit log is kept.
    pub audit: AuditSettings,
    /// The address of the Postgres that several replicas share their state in (AUD-68).
    pub postgres: Option<Arc<Secret<String>>>,
    /// Answer calls from this cassette instead of making them (AUD-70).
    pub replay: Option<PathBuf>,
    /// Who agents are that prove nothing.
    pub principal: Principal,
    /// How arguments and results are checked and cleaned.
    pub gauntlet: GauntletConfig,
    /// Why secrets are not taken out of results, where an operator waived it; on record at every start (CTX-42).
    pub unredacted: Option<String>,
    /// How results are shaped for models.
    pub shaping: ShapingOptions,
    /// How often and how much.
    pub calls: CallOptions,
    /// How agents name what servers offer.
    pub names: Names,
    /// How much of it they see at once.
    pub exposure: ExposureOptions,
    /// What stands before tools and asks whether their server supports the arguments.
    pub gates: Arc<Gates>,
    /// What is set for records servers, by name.
    pub records: BTreeMap<String, portcullis_upstream::records::RecordsOptions>,
    /// How lists and instructions are made to fit.
    pub surface: SurfaceOptions,
    /// Addresses of hosts that confined servers may talk to, where the machine's resolver is not to be asked.
    pub hosts: std::collections::BTreeMap<String, Vec<std::net::IpAddr>>,
    /// Where files lie in the view of confined servers that nobody has a reason to open, if not in the usual places.
    pub baits: Option<Vec<PathBuf>>,
    /// Where the user ids of servers begin, which they have where the gateway runs as root.
    pub uid_base: u32,
    /// How much a process of a server may use.
    pub limits: portcullis_sandbox::Limits,
    /// How closely servers are watched.
    pub detect: portcullis_sandbox::Detect,
    /// How long a process of a server that is not shared is kept without a call.
    pub idle_stop: Duration,
    /// Certificate authorities of servers besides the machine's own.
    pub authorities: Option<PathBuf>,
    /// How agents prove who they are over HTTP.
    pub access: AccessOptions,
    /// How the gateway is administered.
    pub admin: AdminOptions,
    /// Our version, told to clients and servers.
    pub version: String,
}

/// How the audit log is kept; what is not set has its default.
#[derive(Debug, Clone, Default)]
pub struct AuditSettings {
    /// Who keeps the log: the first part of the origin of its checkpoints.
    pub origin: Option<String>,
    /// Whether full entry bundles are written beside the tiles.
    pub publish: bool,
    /// Where checkpoints go besides the log's own folder.
    pub sinks: Vec<portcullis_audit::Sink>,
    /// How often at most.
    pub sink_interval: Option<Duration>,
    /// Whether each session's evidence has keys of its own.
    pub key_per_session: bool,
    /// How long evidence is kept.
    pub retention: portcullis_audit::Retention,
    /// Where the key of the evidence keys comes from.
    pub kek: Option<portcullis_audit::KekSource>,
    /// Who signs checkpoints.
    pub signer: Option<portcullis_audit::SignerSource>,
    /// Who cosigns checkpoints,
    pub witnesses: Vec<portcullis_audit::Witness>,
    /// whether nothing may happen without them,
    pub witness_required: bool,
    /// and after how long.
    pub witness_max_age: Option<Duration>,
    /// How little free room is too little to be at ease.
    pub min_free: Option<u64>,
    /// How long a turn waits for company before it is written (AUD-20),
    pub group_delay: Option<Duration>,
    /// and how long a caller waits for its evidence to be durable (AUD-24).
    pub commit_timeout: Option<Duration>,
    /// Whether segments that are done are made append-only (AUD-15); unless said, in mode `enterprise`.
    pub append_only: Option<bool>,
}

impl GatewayOptions {
    /// The defaults for a gateway in `home`.
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            protected: Vec::new(),
            mode: Mode::Local,
            policy: Bundle::default(),
            operator_methods: vec![Method::Uid],
            refresh: Refresh::default(),
            approval_wait: Duration::from_secs(20),
            secrets_backend: Default::default(),
            console: None,
            permit_ttl: portcullis_governance::permit::DEFAULT_TTL,
            segment_bytes: 64 << 20,
            audit: AuditSettings::default(),
            postgres: None,
            replay: None,
            principal: Principal::agent("local").expect("a plain name"),
            gauntlet: GauntletConfig {
                redact: Some(Arc::new(portcullis_context::Redactor::default())),
                ..GauntletConfig::default()
            },
            unredacted: None,
            shaping: ShapingOptions::default(),
            calls: CallOptions::default(),
            names: Names::default(),
            exposure: ExposureOptions::default(),
            gates: Arc::default(),
            records: BTreeMap::new(),
            surface: SurfaceOptions::default(),
            authorities: None,
            baits: None,
            uid_base: portcullis_sandbox::UID_BASE,
            limits: portcullis_sandbox::Limits::default(),
            detect: portcullis_sandbox::Detect::Standard,
            idle_stop: Settings::default().idle_stop,
            hosts: std::collections::BTreeMap::new(),
            access: AccessOptions::default(),
            admin: AdminOptions::default(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// Where the evidence is.
    pub fn audit_dir(&self) -> PathBuf {
        self.home.join("audit")
    }

    /// Where the operator socket is.
    pub fn operator_socket(&self) -> PathBuf {
        self.home.join("run/operator.sock")
    }
}

/// Resolves when a gateway is told to stop.
pub async fn told_to_stop(stop: &mut tokio::sync::watch::Receiver<bool>) {
    // A sender that is gone has stopped too.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Why an operation was not carried out. Nothing was changed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// What a program reads.
    pub code: ErrorCode,
    /// What a person reads.
    pub message: String,
    /// Which field or flag is at fault, where one is.
    pub field: Option<String>,
    /// Everything that is wrong with a declaration, where that is the reason.
    pub rejections: Vec<Rejection>,
    /// Whether the evidence could not be made durable.
    pub(crate) blocked: bool,
}

impl ControlError {
    /// A plain refusal.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, rejections: Vec::new(), blocked: false }
    }

    /// Whether the evidence could not be made durable: nothing was changed, and the operator must look at the log.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorCode::Validation, message) }
    }

    pub(crate) fn not_found(name: &ServerIdentity) -> Self {
        let message = format!("there is no server '{name}'; `portcullis mcp list` names those there are");
        Self::new(ErrorCode::NotFound, message)
    }
}

impl From<AuditBlocked> for ControlError {
    fn from(AuditBlocked { reason }: AuditBlocked) -> Self {
        let message = format!("evidence cannot be made durable, so nothing was changed: {reason}");
        Self { blocked: true, ..Self::new(ErrorCode::Internal, message) }
    }
}

/// The events with a reference to the intent that announced them.
pub(crate) fn announced(operation: Option<(LogId, u64)>, events: Vec<Event>) -> Vec<Event> {
    match operation {
        Some((log, seq)) => events.into_iter().map(|event| event.reference(log, seq)).collect(),
        None => events,
    }
}

/// The control plane.
#[derive(Debug)]
pub struct Control {
    pub(crate) log: AuditLog,
    pub(crate) clock: Arc<dyn Clock>,
    book: Arc<Book>,
    sessions: Arc<Roll>,
    permits: Arc<LivePermits>,
    keys: Arc<AgentKeys>,
    access: Arc<Access>,
    /// What agents can use of what is listed, and who reads it.
    usable: Arc<Usable>,
    readers: Arc<Readers>,
    operators: operators::Operators,
    pub(crate) kept: kept::KeptDocuments,
    /// What of it calls go by.
    orders: Arc<crate::orders::OrdersCell>,
    meter: Arc<crate::quotas::Meter>,
    captures: captures::Captures,
    /// Operators who may enrol a passkey.
    invitations: passkeys::Invitations,
    lifecycle: Arc<crate::lifecycle::Lifecycle>,
    /// How often and how much, as calls read it.
    limits: Arc<arc_swap::ArcSwap<CallOptions>>,
    refused_tokens: std::sync::Mutex<portcullis_governance::operator::passphrase::Lockout>,
    world: Arc<WorldCell>,
    pub(crate) options: GatewayOptions,
    settings: Settings,
    pub(crate) broker: Arc<portcullis_governance::broker::Broker>,
    shaping: Arc<Shaping>,
    alarms: Arc<Alarms>,
    history: history::Shared,
    /// The others, if there are several replicas (AUD-68).
    replicas: Option<Arc<Replicas>>,
    // One change at a time; held across the durable commit, never across a probe.
    state: tokio::sync::Mutex<State>,
}

/// What the control plane knows, from which worlds are made.
#[derive(Debug)]
struct State {
    entries: BTreeMap<ServerIdentity, ServerEntry>,
    upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
    /// The last declaration counter of each identity ever used (GOV-405).
    counters: HashMap<ServerIdentity, u64>,
    policy: Arc<Policy>,
    /// Every policy that was activated, the one in force last (GOV-801).
    activations: Vec<Activation>,
    names: Names,
    gauntlet: Arc<Gauntlet>,
    /// Whether results are shaped where tools are called directly: then there is a tool to look at the rest.
    views: bool,
    trust: Arc<trust::TrustBook>,
    shelf: Arc<Shelf>,
    press: Arc<Press>,
}

impl State {
    fn world(&self) -> World {
        let registry = Registry::named(self.trusted_entries(), self.policy.clone(), self.names);
        let own = if self.views { vec![TOOL_VIEW_DEFINITION] } else { Vec::new() };
        let (upstreams, gauntlet) = (self.upstreams.clone(), self.gauntlet.clone());
        World::new(Arc::new(registry), upstreams, gauntlet, own, self.shelf.clone(), self.press.clone())
    }
}

impl Control {
    /// Makes an operator's events durable. If an intent announced them they refer to it, so that whoever reads the log
    /// after a crash knows what became of it (ADM-53).
    pub(crate) async fn commit(
        &self,
        operator: &OperatorProof,
        events: Vec<Event>,
    ) -> Result<Receipt, ControlError> {
        self.change(announced(operator.operation(), events)).await
    }

    /// Makes events durable, and agrees with the other replicas first if there are any.
    pub(crate) async fn change(&self, events: Vec<Event>) -> Result<Receipt, ControlError> {
        match &self.replicas {
            Some(replicas) => Ok(replicas.commit(events, false).await?),
            None => Ok(self.log.commit(events).await?),
        }
    }

    /// [`change`](Control::change) for what is safe whatever the others do, and must not wait for them.
    pub(crate) async fn change_in_any_case(&self, events: Vec<Event>) -> Result<Receipt, ControlError> {
        match &self.replicas {
            Some(replicas) => Ok(replicas.commit(events, true).await?),
            None => Ok(self.log.commit(events).await?),
        }
    }

    /// The world in force now.
    pub fn world(&self) -> Arc<World> {
        self.world.load()
    }

    /// Tells that another world is in force: servers, declarations, trust or policy changed.
    pub fn world_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.world.changes()
    }

    /// The evidence.
    pub fn log(&self) -> &AuditLog {
        &self.log
    }

    /// Where the gateway keeps everything.
    pub fn home(&self) -> &Path {
        &self.options.home
    }
}
