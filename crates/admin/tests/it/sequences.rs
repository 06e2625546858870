//! Random sequences of what operators and agents do, driven through the real control plane with its log, its state and a real
//! server behind a URL; after each, the log is held to every invariant (INV-MP-001 to 006, T-PROP-1).
//!
//! As many as fit into the time there is: `PORTCULLIS_SEQUENCE_SECONDS` for longer, `PORTCULLIS_SEQUENCE_SEED` to have a run
//! again.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use portcullis_audit::{Checks, check_invariants, read, verify_with};
use portcullis_gateway::control::{Reacceptance, Registration, Target};
use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::approval::{Scope, State};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use portcullis_governance::policy::{Bundle, PolicyFile, Preset};
use portcullis_governance::record::{Mode, Surface};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};

/// What somebody does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Register,
    Accept,
    Update,
    Remove,
    Halt,
    Resume,
    Apply,
    Grant(Scope),
    Deny,
    Call,
    Restart,
}

/// Numbers that a seed gives again.
struct Dice(u64);

impl Dice {
    fn next(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn step(&mut self) -> Step {
        match self.next(20) {
            0 | 1 => Step::Register,
            2 => Step::Accept,
            3 => Step::Update,
            4 => Step::Remove,
            5 => Step::Halt,
            6 => Step::Resume,
            7 => Step::Apply,
            8 | 9 => Step::Grant(Scope::Once),
            10 => Step::Grant(Scope::Session),
            11 => Step::Grant(Scope::UntilVersionChange),
            12 => Step::Deny,
            13 => Step::Restart,
            _ => Step::Call,
        }
    }
}

/// The server that is called, for all sequences.
struct Spy {
    child: Child,
    url: String,
    declaration: String,
}

impl Spy {
    fn start(folder: &Path) -> Option<Self> {
        let program = PathBuf::from(std::env::var_os("PORTCULLIS_BIN_DIR")?).join("spyd");
        let mut command = Program::new(program);
        command.arg("--log").arg(folder.join("spy.log")).args(["--http", "0", "--end-with-stdin"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?).read_line(&mut line).ok()?;
        let url = line.split_whitespace().find(|word| word.starts_with("http://"))?.to_owned();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/spyd/spyd.yaml");
        let text = std::fs::read_to_string(source).ok()?;
        Some(Self { child, url, declaration: text.replace("@WS@", &folder.join("ws").display().to_string()) })
    }
}

impl Drop for Spy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway under test.
struct House {
    folder: tempfile::TempDir,
    gateway: Gateway,
    applied: u64,
}

fn operator() -> OperatorProof {
    OperatorProof::authenticated("ada", Method::Uid, Separation::SameUid)
}

impl House {
    async fn open(folder: tempfile::TempDir, applied: u64) -> Self {
        let options = GatewayOptions {
            segment_bytes: 8 << 20,
            approval_wait: Duration::from_millis(20),
            policy: Bundle::preset(Preset::Observe),
            ..GatewayOptions::new(folder.path())
        };
        let gateway = Gateway::start(options).await.unwrap();
        Self { folder, gateway, applied }
    }

    /// Does one thing. That it is refused where it makes no sense is as good as that it is done.
    async fn perform(self, step: Step, spy: &Spy, dice: &mut Dice) -> Self {
        let control = self.gateway.control.clone();
        let name = "spy".parse().unwrap();
        match step {
            Step::Register => drop(control.register(&operator(), registration(spy)).await),
            Step::Update => drop(control.update(&operator(), registration(spy)).await),
            Step::Accept => {
                let asked = Reacceptance {
                    name,
                    declaration: None,
                    carry_approvals: dice.next(2) == 0,
                    grant: None,
                    reason: "again".into(),
                    waive: Vec::new(),
                    allow_over_budget: false,
                };
                drop(control.reaccept(&operator(), asked).await);
            }
            Step::Remove => drop(control.remove(&operator(), &name, "gone").await),
            Step::Halt => drop(control.halt_by(&operator(), &name, "odd").await),
            Step::Resume => drop(control.resume(&operator(), &name, "fine").await),
            Step::Apply => return self.applies().await,
            Step::Grant(scope) => {
                for approval in control.approvals(Some(State::Pending)) {
                    drop(control.grant(&operator(), approval.approval_id, scope, "well").await);
                }
            }
            Step::Deny => {
                for approval in control.approvals(Some(State::Pending)) {
                    drop(control.deny(&operator(), approval.approval_id, "no").await);
                }
            }
            Step::Call => self.calls(dice).await,
            Step::Restart => {
                let Self { folder, gateway, applied } = self;
                gateway.finish().await;
                return Self::open(folder, applied).await;
            }
        }
        self
    }

    async fn applies(mut self) -> Self {
        self.applied += 1;
        let text = format!(
            "forbid (principal, action, resource) when {{ resource.name == \"none-{}\" }};",
            self.applied
        );
        let file = PolicyFile { name: "mine.cedar".into(), text };
        let bundle = Bundle { files: vec![file], ..Bundle::preset(Preset::Observe) };
        drop(self.gateway.control.apply_policy(&operator(), bundle, "other rules").await);
        self
    }

    /// Two agents call at the same time.
    async fn calls(&self, dice: &mut Dice) {
        let text = ["a", "b"][dice.next(2) as usize];
        let edge = &self.gateway.edge;
        tokio::join!(call(edge.clone(), text), call(edge.clone(), "a"));
    }
}

async fn call(edge: std::sync::Arc<portcullis_gateway::edge::Edge>, text: &str) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (input, output) = tokio::io::split(theirs);
    tokio::spawn(edge.serve_stdio(input, output));
    let (read, mut write) = tokio::io::split(ours);
    let params = json!({
        "name": "spy__echo", "arguments": {"text": text},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "dice", "version": "1"},
        },
    });
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    write.write_all(format!("{request}\n").as_bytes()).await.unwrap();
    let mut reply = String::new();
    tokio::io::BufReader::new(read).read_line(&mut reply).await.unwrap();
    let reply: Value = serde_json::from_str(&reply).unwrap();
    assert!(reply.get("result").is_some() || reply.get("error").is_some(), "{reply}");
}

fn registration(spy: &Spy) -> Registration {
    Registration {
        name: "spy".into(),
        target: Target::Http { url: spy.url.clone(), tls_spki: None },
        server_version: "1.0.0".into(),
        declaration_file: "spyd.yaml".into(),
        declaration: spy.declaration.clone(),
        justification: "to be watched".into(),
        modes: vec![Mode::Local],
        trust_tier: 0,
        surface: Surface::Static,
        attest: None,
        waive_isolation: Some("a test".into()),
        grant: None,
        waive: Vec::new(),
        allow_over_budget: false,
    }
}

/// The number in an environment variable, or another.
fn set(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_operators_and_agents_do_the_log_keeps_every_invariant() {
    // INV-MP-001, INV-MP-002, INV-MP-003, INV-MP-004, INV-MP-005, INV-MP-006, T-PROP-1
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let spy = Spy::start(place.path()).expect("PORTCULLIS_BIN_DIR has spyd: cargo build --workspace --bins");
    let seed = set("PORTCULLIS_SEQUENCE_SEED", std::process::id().into());
    let end = Instant::now() + Duration::from_secs(set("PORTCULLIS_SEQUENCE_SECONDS", 45));
    let (mut sequences, mut intents) = (0, 0);
    while sequences == 0 || Instant::now() < end {
        let mut dice = Dice(seed.wrapping_add(sequences));
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut house = House::open(folder, 0).await;
        let mut done = vec![Step::Register];
        house = house.perform(Step::Register, &spy, &mut dice).await;
        for _ in 0..4 + dice.next(12) {
            let step = dice.step();
            done.push(step);
            house = house.perform(step, &spy, &mut dice).await;
        }
        let House { folder, gateway, .. } = house;
        gateway.finish().await;
        let log = folder.path().join("audit");
        let why = format!("PORTCULLIS_SEQUENCE_SEED={} {done:?}", seed.wrapping_add(sequences));
        let report = verify_with(&log, &Checks::default()).unwrap();
        assert!(report.ok, "{why}: {:?}", report.problems);
        for (invariant, verdict) in check_invariants(std::slice::from_ref(&log)).unwrap() {
            assert!(verdict.violations.is_empty(), "{why}: {invariant}: {:?}", verdict.violations);
            assert_eq!(verdict.unchecked, 0, "{why}: {invariant}");
        }
        let is_intent = |name: &str| name == "execution.intent";
        let records = read(&log).unwrap().map(Result::unwrap);
        intents += records.filter(|record| is_intent(record.event.as_str())).count();
        sequences += 1;
    }
    assert!(sequences < 8 || intents > 0, "no call got through in {sequences} sequences from seed {seed}");
}
