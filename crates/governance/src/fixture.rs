//! One gate of everything a call needs, against a real log in a temporary folder: for the tests of this crate.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use portcullis_audit::{AuditLog, Options, Record};
use portcullis_core::canon::to_jcs;
use portcullis_core::clock::{Governed, ManualClock};
use portcullis_core::{
    Clock, DeclarationVersion, Lineage, Principal, ProposalId, RegistrationEpoch, Secret, Sha256Digest,
    Timestamp,
};
use portcullis_gauntlet::{Args, screen};
use serde_json::value::RawValue;

use crate::accepted::{Acceptance, AcceptedDeclaration, AcceptedTool};
use crate::approval::{Approval, Asked, Book, Scope};
use crate::boundary::{Boundary, Denied, Now, ReadyChannel, ValidatedPermit, WireCall, WireFrame};
use crate::declaration::live::{LiveSurface, LiveTool};
use crate::declaration::rules::Expectations;
use crate::declaration::{Declaration, Source};
use crate::operator::{Method, OperatorProof, Separation};
use crate::permit::{DEFAULT_TTL, Mint, Permit};
use crate::policy::{Bundle, Circumstances, Offer, Policy, Preset};
use crate::record::{
    Isolation, Mode, Process, ProcessModel, RegistrationRecord, ServerState, Surface, Transport,
};
use crate::registry::{ActiveRegistry, Registry, ServerEntry, ServerLive, Trust};
use crate::request::CanonicalRequest;
use crate::session::Session;
use crate::trail::Trail;

/// Two tools with bound paths, accepted by every rule.
const DECLARATION: &str = r#"apiVersion: portcullis/v1
kind: CapabilityDeclaration
server: { identity: filesystem, version: "2.3.1", protocol_versions: ["2025-11-25"], surface: static }
scopes:
  ws: { kind: fs, path: /srv/project, access: rw }
  ws_ro: { kind: fs, path: /srv/project, access: ro }
tools:
  - name: read_file
    version: "1"
    side_effects: [read]
    scopes: [ws_ro]
    scope_bindings: [ { param: /path, scope: ws_ro, as: fs_path } ]
    credentials: []
    parameters: { type: object, additionalProperties: false, required: [path], properties: { path: {type: string}, limit: {type: number} } }
    output: { type: text }
    idempotency: idempotent
    failure_modes: []
  - name: write_file
    version: "1"
    side_effects: [read, write]
    scopes: [ws]
    scope_bindings: [ { param: /path, scope: ws, as: fs_path } ]
    credentials: []
    parameters: { type: object, additionalProperties: false, required: [path], properties: { path: {type: string} } }
    output: { type: text }
    idempotency: unknown
    failure_modes: []
"#;

/// The arguments most tests call with: not in canonical order or spacing.
pub(crate) const ARGS: &str = r#"{ "path": "/srv/project/a.md", "limit": 1.0 }"#;

/// The moment at which every test begins.
pub(crate) const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn surface(declaration: &Declaration) -> LiveSurface {
    let live = |(index, tool): (usize, &crate::declaration::ToolClause)| {
        let text = serde_json::json!({"name": tool.name, "inputSchema": tool.parameters.clone()}).to_string();
        LiveTool::read(index, &RawValue::from_string(text).unwrap()).unwrap()
    };
    LiveSurface {
        protocol_version: "2025-11-25".into(),
        server_name: None,
        server_version: Some("2.3.1".into()),
        tools: declaration.body.tools.iter().enumerate().map(live).collect(),
        ..LiveSurface::default()
    }
}

pub(crate) fn epoch(n: u8) -> RegistrationEpoch {
    RegistrationEpoch::from_bytes([n; 16])
}

/// The sample, accepted for one life of the server.
pub(crate) fn accepted(epoch: RegistrationEpoch, counter: u64) -> Arc<AcceptedDeclaration> {
    let declaration = Declaration::parse(&Source { name: "fs.yaml", text: DECLARATION }).unwrap();
    let (identity, version) = ("filesystem".parse().unwrap(), "2.3.1".parse().unwrap());
    let expect = Expectations {
        identity: &identity,
        version: &version,
        surface: Surface::Static,
        pins: &[],
        home: Path::new("/var/lib/portcullis"),
        protected: &[],
        process: Some(&process()),
    };
    let live = surface(&declaration);
    let acceptance = Acceptance { expect, epoch, counter };
    Arc::new(
        AcceptedDeclaration::accept(&declaration, "fs.yaml", live, &acceptance)
            .unwrap_or_else(|rejections| panic!("{}", rejections[0])),
    )
}

/// One tool of a declaration that is not held to the rules: any classes, any name, any arguments.
pub(crate) struct Sketch<'a> {
    pub(crate) name: &'a str,
    pub(crate) classes: &'a [&'a str],
    pub(crate) bound: bool,
}

/// A declaration as it would come back after a restart, which applies no rules: for tools that the sample
/// does not have.
pub(crate) fn sketched(server: &str, tools: &[Sketch<'_>]) -> Arc<AcceptedDeclaration> {
    let clause = |tool: &Sketch<'_>| {
        serde_json::json!({
            "name": tool.name, "version": "1", "side_effects": tool.classes, "scopes": [],
            "unbound": !tool.bound, "credentials": [], "parameters": {"type": "object"},
            "output": {"type": "text"}, "idempotency": "unknown", "failure_modes": [],
        })
    };
    let document = serde_json::json!({
        "apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration",
        "server": {"identity": server, "version": "2.3.1", "protocol_versions": ["2025-11-25"], "surface": "static"},
        "scopes": {}, "tools": tools.iter().map(clause).collect::<Vec<_>>(),
    });
    let document = to_jcs(&document).unwrap();
    let text = std::str::from_utf8(&document).unwrap();
    let declaration = Declaration::parse(&Source { name: "sketch", text }).unwrap();
    let version = DeclarationVersion { counter: 1, sha256: Sha256Digest::of(&document) };
    let (identity, server_version) = (server.parse().unwrap(), "2.3.1".parse().unwrap());
    let live = surface(&declaration);
    Arc::new(
        AcceptedDeclaration::restore(&document, live, version, &identity, &server_version, epoch(7), None)
            .unwrap(),
    )
}

/// A program whose tools have processes of their own.
pub(crate) fn process() -> Process {
    Process {
        command: "/opt/mcp/fs-server".into(),
        args: Vec::new(),
        cwd: "/".into(),
        env: std::collections::BTreeMap::new(),
        limits: portcullis_sandbox::Limits::default(),
        process_model: ProcessModel::PerProfile,
        lasting_with_credentials: false,
        profile: crate::confinement::undeclared("/opt/mcp/fs-server".as_ref(), &[]),
        profile_sha256: Sha256Digest::ZERO,
    }
}

/// The record of a declaration's server.
pub(crate) fn record(declaration: &AcceptedDeclaration) -> RegistrationRecord {
    let tool = &declaration.tools()[0];
    let process = process();
    RegistrationRecord {
        server_identity: tool.id().server().clone(),
        boundary_kind: "mcp".into(),
        record_version: 1,
        registration_epoch: tool.epoch(),
        first_epoch: None,
        transport: Transport::Stdio { process },
        server_version: tool.id().version().clone(),
        surface: Surface::Static,
        requested_trust_tier: 1,
        assigned_trust_tier: 1,
        justification: "the project's files".into(),
        policy_tags: vec![Mode::Local],
        isolation_class: Isolation::Enforced,
        isolation_reason: None,
        artifact_pins: Vec::new(),
        declaration_version: declaration.version(),
        instructions_sha256: None,
        state: ServerState::Active,
        halt: None,
        registered_by: "alice".into(),
        registered_at: START,
    }
}

/// A server nobody trusts yet.
pub(crate) fn entry(declaration: Arc<AcceptedDeclaration>) -> ServerEntry {
    ServerEntry {
        record: Arc::new(record(&declaration)),
        live: Arc::new(ServerLive::of(&declaration)),
        declaration,
        trust: Trust::Untrusted,
        tools: Arc::default(),
    }
}

pub(crate) fn strict(counter: u64) -> Arc<Policy> {
    Arc::new(Policy::compile(&Bundle::preset(Preset::Strict), Mode::Local, counter).unwrap())
}

pub(crate) fn circumstances() -> Circumstances<'static> {
    Circumstances { authenticated: false, client: "test", groups: &[], session_calls: 1, now: START }
}

pub(crate) fn operator(name: &str) -> OperatorProof {
    OperatorProof::authenticated(name, Method::Uid, Separation::DedicatedUid)
}

pub(crate) fn session(agent: &str) -> Session {
    Session::open(Principal::agent(agent).unwrap(), START)
}

/// The canonical form of a call, as the edge would make it.
pub(crate) fn canonical(
    tool: &Arc<AcceptedTool>,
    args: &str,
    lineage: Lineage,
    key: &Secret<[u8; 32]>,
) -> CanonicalRequest {
    let screened = screen(
        tool.spec(),
        &portcullis_gauntlet::Grants::Declared,
        Args::parse(args.as_bytes(), 1 << 16).unwrap(),
    )
    .unwrap();
    CanonicalRequest::new(tool, &screened, lineage, key).unwrap()
}

/// The snapshot in force: whatever was put there last, or what was planned for a later look.
pub(crate) struct Active {
    current: Mutex<Arc<Registry>>,
    planned: Mutex<Option<(usize, Arc<Registry>)>>,
    looks: AtomicUsize,
}

impl Active {
    pub(crate) fn set(&self, registry: Registry) {
        *self.current.lock().unwrap() = Arc::new(registry);
    }

    /// From the `look`-th time that somebody looks from now on (1 is the next), it is `registry`.
    pub(crate) fn set_at_look(&self, look: usize, registry: Registry) {
        self.looks.store(0, Ordering::Relaxed);
        *self.planned.lock().unwrap() = Some((look, Arc::new(registry)));
    }
}

impl ActiveRegistry for Active {
    fn current(&self) -> Arc<Registry> {
        let look = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut planned = self.planned.lock().unwrap();
        if let Some((_, registry)) = planned.take_if(|(at, _)| *at <= look) {
            *self.current.lock().unwrap() = registry;
        }
        self.current.lock().unwrap().clone()
    }
}

/// A connection that builds frames and goes nowhere.
pub(crate) struct Wire;

impl ReadyChannel for Wire {
    fn frame(&self, call: &WireCall<'_>) -> WireFrame {
        let head = format!(r#"{{"id":1,"jsonrpc":"2.0","method":"{}","params":{{"#, call.method);
        let bytes = Bytes::from([head.as_bytes(), call.params, b"}}"].concat());
        WireFrame {
            id: 1,
            bytes,
            method: call.method,
            name: call.name.map(str::to_owned),
            mirrored: Vec::new(),
        }
    }
}

/// A gateway's worth of governance.
pub(crate) struct Gate {
    _home: tempfile::TempDir,
    pub(crate) log: AuditLog,
    pub(crate) wall: Arc<ManualClock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) book: Arc<Book>,
    pub(crate) mint: Mint,
    pub(crate) boundary: Boundary,
    pub(crate) session: Session,
    pub(crate) server: ServerEntry,
    pub(crate) active: Active,
    pub(crate) key: Secret<[u8; 32]>,
}

impl Gate {
    pub(crate) fn open() -> Self {
        Self::open_in(tempfile::tempdir().unwrap())
    }

    /// For those who write a lot and lose no power: where a sync costs nothing, if there is such a place.
    pub(crate) fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        Self::open_in(tempfile::tempdir_in(memory).or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn open_in(home: tempfile::TempDir) -> Self {
        let wall = Arc::new(ManualClock::at(START));
        let clock: Arc<dyn Clock> = Arc::new(Governed::new(wall.clone(), START));
        let mut options = Options::new(home.path().join("audit"), home.path().join("kek"));
        options.segment_bytes = 8 << 20;
        options.clock = clock.clone();
        let log = AuditLog::open(options).unwrap();
        let mint = Mint::new(log.id(), clock.clone(), DEFAULT_TTL);
        let server = entry(accepted(epoch(7), 3));
        let registry = Registry::new([server.clone()], strict(1));
        Self {
            boundary: Boundary::new(&mint, clock.clone()),
            book: Arc::new(Book::default()),
            session: session("claude-code"),
            active: Active {
                current: Mutex::new(Arc::new(registry)),
                planned: Mutex::new(None),
                looks: AtomicUsize::new(0),
            },
            key: Secret::random_key(),
            _home: home,
            log,
            wall,
            clock,
            mint,
            server,
        }
    }

    pub(crate) fn tool(&self, name: &str) -> Arc<AcceptedTool> {
        let tools = self.server.declaration.tools();
        tools.iter().find(|tool| tool.id().item().name() == name).unwrap().clone()
    }

    /// A call of `read_file`, the next step of the session.
    pub(crate) fn request(&self, args: &str) -> CanonicalRequest {
        canonical(&self.tool("read_file"), args, self.session.next_step(None), &self.key)
    }

    /// Asks for approval; the request is pending afterwards.
    pub(crate) fn ask(&self, request: &CanonicalRequest, offers: &[Offer]) -> Approval {
        let proposal = ProposalId::new(START);
        let (offers, now) = (offers.to_vec(), self.clock.now());
        let registry = self.active.current();
        match self.book.ask(request, proposal, offers, registry.policy(), Sha256Digest::ZERO, now) {
            Asked::New(approval) => {
                self.book.enter((*approval).clone(), b"{}");
                *approval
            }
            other => panic!("{other:?}"),
        }
    }

    /// Asks, and lets one operator grant it.
    pub(crate) fn approve(&self, request: &CanonicalRequest, scope: Scope) -> Approval {
        let asked = self.ask(request, &[Offer { scope, quorum: 1 }]);
        let (id, now) = (asked.approval_id, self.clock.now());
        let granted = self.book.grant(id, scope, &operator("alice"), "needed", now).unwrap();
        self.book.apply(granted.clone());
        granted
    }

    /// Steps 3, 5 and 7: decides, claims the approval, issues.
    pub(crate) fn permit(&self, request: &CanonicalRequest) -> Permit {
        let registry = self.active.current();
        let tool = registry.tools().iter().find(|entry| entry.tool.id() == request.tool().id()).unwrap();
        let decision = registry.policy().decide(request, &tool.facts, &circumstances());
        let claim = self.book.claim(request, self.clock.now()).expect("an approval covers it");
        let authorised = registry.policy().approved(&decision, claim).expect("policy allows its scope");
        self.mint.issue(authorised, &tool.server, &self.session)
    }

    /// Step 8 with everything as it is now.
    pub(crate) async fn admit(
        &self,
        permit: Permit,
        request: CanonicalRequest,
        trail: &mut Trail,
    ) -> Result<ValidatedPermit, Denied> {
        let lineage = request.lineage().clone();
        let now = Now { registry: &self.active, session: &self.session, lineage: &lineage };
        self.boundary.admit(permit, request, &Wire, now, Bytes::from_static(b"{}"), trail).await
    }

    pub(crate) fn trail(&self, request: &CanonicalRequest) -> Trail {
        let mut trail = Trail::open(&self.log, ProposalId::new(START), request.lineage());
        trail.about(request.tool(), "untrusted");
        trail.under(self.active.current().policy().version());
        trail
    }

    /// Closes the log, holds it to verification, and returns all that is in it.
    pub(crate) fn close(&self) -> Vec<Record> {
        self.log.close();
        let report = portcullis_audit::verify(self.log.dir()).unwrap();
        assert!(report.ok, "{:?}", report.problems);
        self.records()
    }

    /// What is on disk now.
    pub(crate) fn records(&self) -> Vec<Record> {
        portcullis_audit::read(self.log.dir()).unwrap().map(Result::unwrap).collect()
    }
}
