//! What the contract around admin calls costs, as ratios of CPU within one run (ADM-83): `what TAB ratio` lines.
//! `cargo xtask bench admin` makes a table of them.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portcullis_admin::args::NoArgs;
use portcullis_admin::{
    Actor, AdminError, Channel, Cx, Invoker, Module, Registry, Reply, Roles, read_tool, tools,
};
use portcullis_audit::{Event, EventName};
use portcullis_gateway::control::Role;
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::orders::Profile;
use portcullis_gateway::{Gateway, GatewayOptions};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use serde_json::value::RawValue;

const LISTS: u32 = 2_000;
const WRITES: u32 = 400;
const PROFILES: u32 = 10;
/// Each side is measured so often, in turns; the least counts.
const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    // As requests are served: by a thread that also carries on what they begin.
    let measured = async {
        let bench = Bench::new().await;
        println!("a list of 50 rows\t{:.3}", bench.list().await);
        println!("an admin write\t{:.3}", bench.write().await);
        bench.gateway.finish().await;
    };
    runtime.block_on(async { tokio::spawn(measured).await.expect("a whole run") });
}

/// What the whole process has taken of its processors.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

struct Bench {
    _folder: tempfile::TempDir,
    gateway: Gateway,
    invoker: Invoker,
    /// What the service itself took, as its own tool measured it.
    service: Arc<Mutex<Duration>>,
    ada: Actor,
    proof: OperatorProof,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let gateway = Gateway::start(GatewayOptions::new(folder.path())).await.expect("a gateway");
        let proof = OperatorProof::authenticated("ada", Method::Uid, Separation::SameUid);
        for n in 1..50 {
            let patterns = ["servers:read", "approvals:*", "*:read"].map(str::to_owned).to_vec();
            let role =
                Role { id: format!("r{n:02}"), patterns, allow: Vec::new(), deny: vec!["keys_list".into()] };
            gateway.control.set_role(&proof, role, None).await.expect("a role");
        }
        let service: Arc<Mutex<Duration>> = Arc::default();
        let taken = service.clone();
        let measured = read_tool("bench", "roles", "Measure.", move |cx: Cx, _: NoArgs| {
            let taken = taken.clone();
            async move {
                let before = spent();
                for _ in 0..LISTS {
                    let rows = cx.people().roles();
                    let _ = black_box(serde_json::to_string(&rows));
                }
                *taken.lock().unwrap_or_else(PoisonError::into_inner) = spent() - before;
                Ok::<Reply<u8>, AdminError>(Reply::ok(0))
            }
        });
        let mut modules = tools::modules();
        modules.push(Module { name: "bench", tools: vec![measured] });
        let registry = Registry::build(modules).expect("a registry");
        let invoker = Invoker::with(gateway.control.clone(), registry, Roles::default()).expect("an invoker");
        Self { _folder: folder, gateway, invoker, service, ada: Actor::operator(proof.clone()), proof }
    }

    async fn call(&self, tool: &str, args: &str) -> String {
        let raw = RawValue::from_string(args.to_owned()).expect("JSON");
        let envelope = self.invoker.call(tool, &raw, Some(&self.ada), Channel::Operator).await;
        assert!(!envelope.is_error(), "{}", envelope.to_json());
        envelope.to_json()
    }

    /// The call of a list to its service and serialisation alone.
    async fn list(&self) -> f64 {
        let (mut alone, mut called) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            self.call("bench_roles", "{}").await;
            alone = alone.min(*self.service.lock().unwrap_or_else(PoisonError::into_inner));
            let before = spent();
            for _ in 0..LISTS {
                black_box(self.call("roles_list", "{}").await);
            }
            called = called.min(spent() - before);
        }
        called.as_secs_f64() / alone.as_secs_f64()
    }

    /// A write to its two durable appends and what it commits. Both sides set the same few profiles again and again: what is in
    /// force is made anew of all there are, so a side that came later with more of them would be the slower one for that.
    async fn write(&self) -> f64 {
        let (mut alone, mut called) = (Duration::MAX, Duration::MAX);
        let control = &self.gateway.control;
        for _ in 0..ROUNDS {
            let before = spent();
            for n in 0..WRITES {
                let intent = json!({
                    "actor": "ada", "args_sha256": "0".repeat(64), "op_id": "op_01900000000000000000000000",
                    "reason": "to be measured", "target": "profile:p", "tool": "portcullis_profiles_put",
                });
                let intent = Event::new(EventName::AdminOpIntent, &self.proof.actor()).data(intent);
                control.log().commit(vec![intent]).await.expect("an intent");
                let profile = Profile {
                    profile_id: format!("p{}", n % PROFILES),
                    mode: Mode::Gateway,
                    namespaces: Vec::new(),
                    result_budget: None,
                };
                control.set(&self.proof, &profile, None, Vec::new(), |_| Ok(())).await.expect("a profile");
                let executed = json!({
                    "op_id": "op_01900000000000000000000000", "target": "profile:p", "tool": "portcullis_profiles_put",
                });
                let executed = Event::new(EventName::AdminOpExecuted, &self.proof.actor()).data(executed);
                control.log().commit(vec![executed]).await.expect("an outcome");
            }
            alone = alone.min(spent() - before);
            let before = spent();
            for n in 0..WRITES {
                let args = format!(
                    r#"{{"profile_id":"p{}","mode":"gateway","confirm":true,"reason":"to be measured"}}"#,
                    n % PROFILES
                );
                black_box(self.call("profiles_put", &args).await);
            }
            called = called.min(spent() - before);
        }
        called.as_secs_f64() / alone.as_secs_f64()
    }
}
