//! What governing a call costs, and what it costs with many tools registered: `tools TAB part TAB seconds` of CPU per call.
//! `cargo xtask bench governance` makes a table of it.
//!
//! The call is one that nobody needs to be asked about, over arguments that are bound to a scope: policy evaluation (both
//! questions), the permit, the eight checks and redemption. The last part is all of it with the intent durable, and counts
//! what the log's own thread does for it.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use portcullis_audit::{AuditLog, Options};
use portcullis_core::{Clock, Principal, ProposalId, RegistrationEpoch, Secret, Sha256Digest, SystemClock};
use portcullis_gauntlet::{Args, Grants, screen};
use portcullis_governance::accepted::{Acceptance, AcceptedDeclaration};
use portcullis_governance::boundary::{Boundary, Now, ReadyChannel, WireCall, WireFrame};
use portcullis_governance::confinement;
use portcullis_governance::declaration::live::{LiveSurface, LiveTool};
use portcullis_governance::declaration::rules::Expectations;
use portcullis_governance::declaration::{Declaration, Source};
use portcullis_governance::permit::{DEFAULT_TTL, Mint, Permit};
use portcullis_governance::policy::{Bundle, Circumstances, Decision, Policy, PolicyFile, Preset, Verdict};
use portcullis_governance::record::{
    Isolation, Mode, Process, ProcessModel, RegistrationRecord, ServerState, Surface, Transport,
};
use portcullis_governance::registry::{
    ActiveRegistry, Registry, ServerEntry, ServerLive, ToolEntry, ToolTrust, Trust,
};
use portcullis_governance::request::CanonicalRequest;
use portcullis_governance::session::Session;
use portcullis_governance::trail::Trail;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

/// A policy that looks at arguments and at who asks.
const OWN: &str = r#"@id("own/secrets")
forbid (principal, action, resource)
when { context.call.hasTag("/path") && context.call.getTag("/path") like "*.secret" };
@id("own/guests")
forbid (principal in Portcullis::Group::"guests", action, resource) when { resource.name == "read_1" };"#;

/// Tools of one server.
const PER_SERVER: usize = 100;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    // With a policy of an operator's own Cedar is asked about every call; without, its answers about a tool are kept.
    let own = PolicyFile { name: "own.cedar".into(), text: OWN.into() };
    let own = Bundle { files: vec![own], ..Bundle::preset(Preset::Observe) };
    for tools in [10, 100, 1_000, 10_000] {
        let gate = Gate::with(tools, &Bundle::preset(Preset::Observe));
        for (part, seconds) in gate.parts(&runtime) {
            println!("{tools}\t{part}\t{seconds:.12}");
        }
        // What the log of the first one still does must not count for the second.
        drop(gate);
        let gate = Gate::with(tools, &own);
        let (policy, together) = gate.policy_and_all();
        println!("{tools}\tpolicy, with a bundle of one's own\t{policy:.12}");
        println!("{tools}\ttogether, with a bundle of one's own\t{together:.12}");
    }
}

struct Gate {
    _home: tempfile::TempDir,
    log: AuditLog,
    clock: Arc<dyn Clock>,
    mint: Mint,
    boundary: Boundary,
    session: Session,
    active: Active,
    key: Secret<[u8; 32]>,
}

struct Active(Arc<Registry>);

impl ActiveRegistry for Active {
    fn current(&self) -> Arc<Registry> {
        self.0.clone()
    }
}

struct Wire;

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

impl Gate {
    fn with(tools: usize, bundle: &Bundle) -> Self {
        let home = tempfile::tempdir().expect("a folder");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let log =
            AuditLog::open(Options::new(home.path().join("audit"), home.path().join("kek"))).expect("a log");
        let mint = Mint::new(log.id(), clock.clone(), DEFAULT_TTL);
        let policy = Arc::new(Policy::compile(bundle, Mode::Local, 1).expect("a policy"));
        let servers = (0..tools.div_ceil(PER_SERVER)).map(|n| server(n, tools.min(PER_SERVER), clock.now()));
        Self {
            boundary: Boundary::new(&mint, clock.clone()),
            session: Session::open(Principal::agent("bench").expect("a name"), clock.now()),
            active: Active(Arc::new(Registry::new(servers, policy))),
            key: Secret::random_key(),
            _home: home,
            log,
            clock,
            mint,
        }
    }

    fn entry(&self) -> Arc<ToolEntry> {
        let tools = self.active.0.tools();
        self.active.0.tool(&tools[tools.len() / 2].wire_name).expect("a tool").clone()
    }

    fn request(&self, entry: &ToolEntry) -> CanonicalRequest {
        let args = Args::parse(br#"{"path":"/srv/project/a.md","limit":1}"#, 1 << 16).expect("arguments");
        let screened = screen(entry.tool.spec(), &Grants::Declared, args).expect("good ones");
        let lineage = self.session.next_step(None);
        CanonicalRequest::new(&entry.tool, &screened, lineage, &self.key).expect("a request")
    }

    fn circumstances(&self) -> Circumstances<'_> {
        Circumstances {
            authenticated: true,
            client: "bench",
            groups: &[],
            session_calls: 1,
            now: self.clock.now(),
        }
    }

    fn trail(&self, request: &CanonicalRequest) -> Trail {
        let mut trail = Trail::open(&self.log, ProposalId::new(self.clock.now()), request.lineage());
        trail.about(request.tool(), "probationary");
        trail.under(self.active.0.policy().version());
        trail
    }

    fn decide<'r>(&'r self, entry: &'r ToolEntry, request: &'r CanonicalRequest) -> Decision<'r> {
        self.active.0.policy().decide(request, &entry.facts, &self.circumstances())
    }

    fn issue(&self, entry: &ToolEntry, request: &CanonicalRequest) -> Permit {
        let authorised = self.decide(entry, request).unattended().expect("allowed");
        self.mint.issue(authorised, &entry.server, &self.session)
    }

    /// Policy alone, and all of it.
    fn policy_and_all(&self) -> (f64, f64) {
        let entry = self.entry();
        let request = self.request(&entry);
        assert_eq!(self.decide(&entry, &request).verdict(), Verdict::Unattended, "nobody needs to be asked");
        let lineage = request.lineage().clone();
        let now = Now { registry: &self.active, session: &self.session, lineage: &lineage };
        let policy = measure(|| drop(black_box(self.decide(&entry, &request).unattended())));
        let all = measure(|| {
            let mut trail = self.trail(&request);
            let redeemed = self.boundary.rehearse(self.issue(&entry, &request), &request, now, &mut trail);
            let _ = black_box(at_once(redeemed).expect("a good permit"));
        });
        let trails = measure(|| drop(black_box(self.trail(&request))));
        (policy, all - trails)
    }

    fn parts(&self, runtime: &tokio::runtime::Runtime) -> Vec<(&'static str, f64)> {
        let entry = self.entry();
        let request = self.request(&entry);
        assert_eq!(self.decide(&entry, &request).verdict(), Verdict::Unattended, "nobody needs to be asked");
        let lineage = request.lineage().clone();
        let now = Now { registry: &self.active, session: &self.session, lineage: &lineage };
        let policy_only = measure(|| drop(black_box(self.decide(&entry, &request).unattended())));
        let with_permit = measure(|| drop(black_box(self.issue(&entry, &request))));
        // Trails are made beforehand in both, so that only the checks differ.
        let redeemed = measure(|| {
            let mut trail = self.trail(&request);
            let redeemed = self.boundary.rehearse(self.issue(&entry, &request), &request, now, &mut trail);
            let _ = black_box(at_once(redeemed).expect("a good permit"));
        });
        let trails = measure(|| drop(black_box(self.trail(&request))));
        let durable = measure_for(Duration::from_millis(800), ClockId::ProcessCPUTime, || {
            let request = self.request(&entry);
            let lineage = request.lineage().clone();
            let now = Now { registry: &self.active, session: &self.session, lineage: &lineage };
            let (permit, mut trail) = (self.issue(&entry, &request), self.trail(&request));
            let proposal = Bytes::from_static(b"{}");
            let admitted = self.boundary.admit(permit, request, &Wire, now, proposal, &mut trail);
            let _ = black_box(runtime.block_on(admitted).expect("a good permit"));
        });
        vec![
            ("policy", policy_only),
            ("permit", with_permit - policy_only),
            ("checks and redemption", redeemed - with_permit - trails),
            ("together", redeemed - trails),
            ("with the intent durable", durable),
        ]
    }
}

/// What needs to wait for nothing, which a good permit does not.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits for something"),
    }
}

/// The mean CPU time of one call.
fn measure(work: impl FnMut()) -> f64 {
    // Of this thread: what the log's own does in the meantime depends on how many calls it can take together.
    measure_for(Duration::from_millis(400), ClockId::ThreadCPUTime, work)
}

fn measure_for(long: Duration, whose: ClockId, mut work: impl FnMut()) -> f64 {
    let cpu = || {
        let now = clock_gettime(whose);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    };
    for _ in 0..100 {
        work();
    }
    let (mut calls, start) = (0u32, cpu());
    loop {
        for _ in 0..100 {
            work();
        }
        calls += 100;
        let spent = cpu() - start;
        if spent >= long {
            return spent.as_secs_f64() / f64::from(calls);
        }
    }
}

/// A server with so many tools that read files, on probation.
fn server(n: usize, tools: usize, now: portcullis_core::Timestamp) -> ServerEntry {
    let (identity, version) =
        (format!("server-{n}").parse().expect("a name"), "1.0.0".parse().expect("a version"));
    let clauses: Vec<_> = (0..tools)
        .map(|tool| {
            json!({
                "name": format!("read_{tool}"), "version": "1", "side_effects": ["read"], "scopes": ["ws"],
                "scope_bindings": [{"param": "/path", "scope": "ws", "as": "fs_path"}], "credentials": [],
                "parameters": {
                    "type": "object", "additionalProperties": false, "required": ["path"],
                    "properties": {"path": {"type": "string"}, "limit": {"type": "number"}},
                },
                "output": {"type": "text"}, "idempotency": "idempotent", "failure_modes": [],
            })
        })
        .collect();
    let document = json!({
        "apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration",
        "server": {"identity": identity, "version": version, "protocol_versions": ["2025-11-25"], "surface": "static"},
        "scopes": {"ws": {"kind": "fs", "path": "/srv/project", "access": "ro"}}, "tools": clauses,
    });
    let text = document.to_string();
    let declaration = Declaration::parse(&Source { name: "bench", text: &text }).expect("a declaration");
    let live = |(index, tool): (usize, &portcullis_governance::declaration::ToolClause)| {
        let text = json!({"name": tool.name, "inputSchema": tool.parameters}).to_string();
        LiveTool::read(index, &serde_json::value::RawValue::from_string(text).expect("JSON")).expect("a tool")
    };
    let live = LiveSurface {
        protocol_version: "2025-11-25".into(),
        server_version: Some("1.0.0".into()),
        tools: declaration.body.tools.iter().enumerate().map(live).collect(),
        ..LiveSurface::default()
    };
    let process = Process {
        command: "/opt/server".into(),
        args: Vec::new(),
        cwd: "/".into(),
        env: std::collections::BTreeMap::new(),
        limits: portcullis_sandbox::Limits::default(),
        process_model: ProcessModel::PerProfile,
        lasting_with_credentials: false,
        profile: confinement::undeclared("/opt/server".as_ref(), &[]),
        profile_sha256: Sha256Digest::ZERO,
    };
    let expect = Expectations {
        identity: &identity,
        version: &version,
        surface: Surface::Static,
        pins: &[],
        home: Path::new("/var/lib/portcullis"),
        protected: &[],
        process: Some(&process),
    };
    let epoch = RegistrationEpoch::new(now);
    let accepted =
        AcceptedDeclaration::accept(&declaration, "bench", live, &Acceptance { expect, epoch, counter: 1 });
    let accepted = Arc::new(accepted.unwrap_or_else(|rejections| panic!("{}", rejections[0])));
    let record = RegistrationRecord {
        server_identity: identity.clone(),
        boundary_kind: "mcp".into(),
        record_version: 1,
        registration_epoch: epoch,
        first_epoch: None,
        transport: Transport::Stdio { process },
        server_version: version.clone(),
        surface: Surface::Static,
        requested_trust_tier: 1,
        assigned_trust_tier: 1,
        justification: "to be measured".into(),
        policy_tags: vec![Mode::Local],
        isolation_class: Isolation::Enforced,
        isolation_reason: None,
        artifact_pins: Vec::new(),
        declaration_version: accepted.version(),
        instructions_sha256: None,
        state: ServerState::Active,
        halt: None,
        registered_by: "bench".into(),
        registered_at: now,
    };
    let probation = ToolTrust { state: Trust::Probationary, violations: 0 };
    let tools: HashMap<_, _> = accepted.tools().iter().map(|tool| (tool.id().clone(), probation)).collect();
    ServerEntry {
        record: Arc::new(record),
        live: Arc::new(ServerLive::of(&accepted)),
        declaration: accepted,
        trust: Trust::Probationary,
        tools: Arc::new(tools),
    }
}
