//! Group commit against one caller, and one caller against the bare system calls (P-1, P-2, P-3), what a call's worth of
//! evidence costs in CPU (P-4; the forwarder it is compared to is `cargo xtask bench audit`'s), checking against hashing
//! (P-5), and memory after opening (P-6, in processes of its own). Ratios within one run; absolute times are the
//! machine's. A line is `id TAB what TAB value`.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_audit::{AuditLog, Context, Event, EventName, Options, RetentionClass, Role};
use portcullis_core::{Actor, PolicyVersion, ProposalId, SessionId, Timestamp, ToolId};
use serde_json::json;

const ONE_CALLER: usize = 400;
const MANY: usize = 64;
const EACH_OF_MANY: usize = 400;
/// Has this program open one log and say what that took.
const RESIDENT: &str = "resident";

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(RESIDENT) {
        let folder = arguments.next().expect("a folder");
        return println!("{}", resident_after_opening(folder.as_ref()));
    }
    // Beside the build, which is on a real disk; a temporary folder may be memory.
    let dir = tempfile::tempdir_in(option_env!("CARGO_TARGET_TMPDIR").unwrap_or(".")).expect("a folder");
    let started = Instant::now();
    let log = AuditLog::open(Options::new(dir.path().join("audit"), dir.path().join("kek"))).expect("a log");
    eprintln!("  beginning a log: {:.0?}", started.elapsed());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    // `cargo bench --bench commit -- cpu` leaves out the waiting.
    let only_cpu = std::env::args().any(|argument| argument == "cpu");
    for with_evidence in [false, true].into_iter().filter(|_| !only_cpu) {
        let what = if with_evidence { "1 KiB record + 4 KiB evidence" } else { "1 KiB record" };
        runtime.block_on(one_caller(&log, with_evidence, 50));
        let (bare, single) = bare_and_single(dir.path(), &log, with_evidence, &runtime);
        let alone = ONE_CALLER as f64 / single.iter().sum::<Duration>().as_secs_f64();
        let syncs = log.stats().segment_syncs;
        let started = Instant::now();
        runtime.block_on(many_callers(&log, with_evidence));
        let commits = (MANY * EACH_OF_MANY) as f64;
        let together = commits / started.elapsed().as_secs_f64();
        let syncs = (log.stats().segment_syncs - syncs) as f64;
        row("P-1", &format!("{what}: commits/s of {MANY} callers to those of 1"), together / alone);
        row("P-2", &format!("{what}: segment syncs per commit at {MANY} callers"), syncs / commits);
        let (p50, floor) = (median(single), median(bare));
        let ratio = p50.as_secs_f64() / floor.as_secs_f64();
        row("P-3", &format!("{what}: p50 of commit to pwrite and fdatasync"), ratio);
        eprintln!("  {what}: {together:.0} commits/s vs {alone:.0}, {p50:.0?} vs {floor:.0?}");
    }
    row("P-4", "added CPU of a call's 10 records and two 4 KiB objects, µs", added_cpu(&log, &runtime));
    cpu_per_call(&log, &runtime);
    log.close();
    verify_against_hashing(dir.path());
    memory_after_opening(dir.path());
}

fn row(id: &str, what: &str, value: f64) {
    println!("{id}\t{what}\t{value:.3}");
}

/// P-4: what a call's evidence costs beyond making its events, which an in-memory sink would take as well: 64 tasks at
/// once, so that turns are shared as they would be under load.
fn added_cpu(log: &AuditLog, runtime: &tokio::runtime::Runtime) -> f64 {
    const EACH: u64 = 200;
    let object = bytes::Bytes::from(noise(4096));
    let calls = |log: Option<&AuditLog>| {
        let before = cpu();
        runtime.block_on(async {
            let task = |_| {
                let (log, object) = (log.cloned(), object.clone());
                tokio::spawn(async move {
                    for n in 0..EACH {
                        let [intent, result] = ten_records(n, &object);
                        match &log {
                            Some(log) => {
                                log.commit(intent).await.expect("durable");
                                log.commit(result).await.expect("durable");
                            }
                            None => {
                                std::hint::black_box((intent, result));
                            }
                        }
                    }
                })
            };
            for task in (0..MANY).map(task).collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
        });
        (cpu() - before).as_secs_f64() * 1e6 / (MANY as f64 * EACH as f64)
    };
    calls(Some(log));
    let mut rounds: Vec<f64> = (0..5).map(|_| calls(Some(log)) - calls(None)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// What waits for the intent, and what waits for the result.
fn ten_records(n: u64, object: &bytes::Bytes) -> [Vec<Event>; 2] {
    let context = context_of(n);
    let plain = |name| Event::within(name, &context).data(json!({"allowed": true, "n": n}));
    let sealed = |name, role| plain(name).evidence(role, RetentionClass::Standard, object.clone());
    let until_intent = [
        EventName::ProposalReceived,
        EventName::ProposalCanonicalized,
        EventName::PolicyEvaluated,
        EventName::EvidencePrepared,
        EventName::ApprovalDetermined,
        EventName::PermitIssued,
        EventName::PermitValidated,
    ];
    let mut intent: Vec<Event> = until_intent.into_iter().map(plain).collect();
    intent.push(sealed(EventName::ExecutionIntent, Role::Request));
    [intent, vec![sealed(EventName::ExecutionResult, Role::Response), plain(EventName::ArtifactViewed)]]
}

/// What the events of one call share, as in the gateway.
fn context_of(n: u64) -> Arc<Context> {
    let now = Timestamp::from_millis(1_800_000_000_000 + n);
    let digest = portcullis_core::Sha256Digest::of(b"declaration");
    let tool: ToolId = format!("filesystem/read_file@2.3.1#3:{digest}").parse().expect("a tool id");
    Arc::new(Context {
        session: Some(SessionId::new(now)),
        step: Some(n),
        proposal: Some(ProposalId::new(now)),
        tool: Some(tool),
        policy: Some(PolicyVersion { counter: 7, sha256: digest }),
        canon: Some("canon-v1"),
        trust: Some("untrusted"),
        ..Context::new(Actor::operator("claude-code"))
    })
}

fn begun(dir: &Path) -> AuditLog {
    AuditLog::open(Options::new(dir.join("audit"), dir.join("kek"))).expect("a log")
}

/// P-5: checking a log as calls leave it, against merely hashing its segments from end to end, one core each.
fn verify_against_hashing(dir: &Path) {
    const CALLS: u64 = 10_000;
    let log = begun(&dir.join("calls"));
    for n in 0..CALLS {
        for trail in trails(n) {
            log.append(trail).expect("queued");
        }
        if n % 20 == 0 {
            log.commit_blocking(vec![event(false, &[])]).expect("durable");
        }
    }
    let dir = log.dir().to_owned();
    log.close();
    let segments = std::fs::read_dir(dir.join("segments")).expect("segments");
    let segments = segments.flatten().map(|entry| entry.path());
    let segments: Vec<_> = segments.filter(|path| path.extension().is_some_and(|e| e == "seg")).collect();
    // Only what was written counts: verification does not hash the zeros behind it either.
    let used = |path: &PathBuf| {
        let bytes = std::fs::read(path).expect("a segment");
        (path.clone(), bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1))
    };
    let segments: Vec<(PathBuf, usize)> = segments.iter().map(used).collect();
    // By the processor's time of one thread, in turn: what else the machine does slows neither.
    let round = || {
        let started = thread_cpu();
        segments.iter().for_each(|(path, used)| hash_streaming(path, *used));
        let hashing = thread_cpu() - started;
        let started = thread_cpu();
        let report = portcullis_audit::verify(&dir).expect("a readable log");
        let verifying = thread_cpu() - started;
        assert!(report.ok, "{:?}", report.problems.first());
        (hashing, verifying)
    };
    round();
    let (hashing, verifying): (Vec<_>, Vec<_>) = (0..5).map(|_| round()).unzip();
    let (hashing, verifying) = (median(hashing), median(verifying));
    let ratio = hashing.as_secs_f64() / verifying.as_secs_f64();
    row("P-5", "throughput of verify to that of hashing the same segments", ratio);
    let total: usize = segments.iter().map(|(_, used)| used).sum();
    eprintln!("  {:.1} MB: {verifying:.0?} vs {hashing:.0?}", total as f64 / 1e6);
}

fn hash_streaming(path: &Path, used: usize) {
    use sha2::Digest as _;
    let file = File::open(path).expect("a segment");
    let mut hasher = sha2::Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut at = 0;
    while at < used {
        let want = buffer.len().min(used - at);
        file.read_exact_at(&mut buffer[..want], at as u64).expect("bytes");
        hasher.update(&buffer[..want]);
        at += want;
    }
    std::hint::black_box(hasher.finalize());
}

/// P-6: what stays in memory of a log that is a thousand times longer; each is opened by a process that did nothing else.
fn memory_after_opening(dir: &Path) {
    let resident = |name: &str, records: usize| -> u64 {
        let folder = dir.join(name);
        let log = begun(&folder);
        for _ in 0..records.div_ceil(100) {
            let batch = (0..records.min(100)).map(|_| event(false, &[])).collect();
            log.commit_blocking(batch).expect("durable");
        }
        log.close();
        drop(log);
        let this = std::env::current_exe().expect("this program");
        let said = std::process::Command::new(this).arg(RESIDENT).arg(&folder).output().expect("it runs");
        String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number")
    };
    let (small, large) = (resident("small", 100), resident("large", 100_000));
    row("P-6", "resident memory after opening a log 1000 times larger", large as f64 / small as f64);
    eprintln!("  {small} vs {large} kB");
}

fn resident_after_opening(folder: &Path) -> u64 {
    let log = begun(folder);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    log.close();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(1)
}

/// An event whose record is about a KiB long.
fn event(with_evidence: bool, noise: &[u8]) -> Event {
    let event =
        Event::new(EventName::ExecutionResult, &Actor::system()).data(json!({"filler": "x".repeat(560)}));
    if with_evidence {
        event.evidence(Role::Response, RetentionClass::Standard, noise.to_vec().into())
    } else {
        event
    }
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let digest = |n: usize| *portcullis_core::Sha256Digest::of(&n.to_be_bytes()).as_bytes();
    (0..len.div_ceil(32)).flat_map(digest).take(len).collect()
}

async fn one_caller(log: &AuditLog, with_evidence: bool, commits: usize) -> Vec<Duration> {
    let noise = noise(4096);
    let mut times = Vec::with_capacity(commits);
    for _ in 0..commits {
        let started = Instant::now();
        log.commit(vec![event(with_evidence, &noise)]).await.expect("durable");
        times.push(started.elapsed());
    }
    times
}

async fn many_callers(log: &AuditLog, with_evidence: bool) {
    let caller = |log: AuditLog| async move { one_caller(&log, with_evidence, EACH_OF_MANY).await.len() };
    let callers: Vec<_> = (0..MANY).map(|_| tokio::spawn(caller(log.clone()))).collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
}

/// One commit after the other, and in turn with them the same bytes written and synced without anything else: a
/// disk is faster at times, and both must see the same times. P-3 counts one sync also when there is evidence.
fn bare_and_single(
    dir: &Path,
    log: &AuditLog,
    with_evidence: bool,
    runtime: &tokio::runtime::Runtime,
) -> (Vec<Duration>, Vec<Duration>) {
    let len = if with_evidence { 1024 + 4096 } else { 1024 };
    let file = File::create(dir.join("bare")).expect("a file");
    file.write_all_at(&vec![0; len * ONE_CALLER], 0).and_then(|()| file.sync_all()).expect("zeros");
    let bytes = noise(len);
    let one_of_each = |n: usize| {
        let started = Instant::now();
        file.write_at(&bytes, (n * len) as u64).and_then(|_| file.sync_data()).expect("durable");
        (started.elapsed(), runtime.block_on(one_caller(log, with_evidence, 1))[0])
    };
    (0..ONE_CALLER).map(one_of_each).unzip()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// CPU of the whole process for what a governed call records: nine records and four small objects, in an
/// append and two commits, 64 tasks at once so that turns are shared as they would be under load.
fn cpu_per_call(log: &AuditLog, runtime: &tokio::runtime::Runtime) {
    let calls = |tasks: usize, each: u64| {
        let before = cpu();
        runtime.block_on(async {
            let running: Vec<_> = (0..tasks)
                .map(|_| {
                    let log = log.clone();
                    tokio::spawn(async move {
                        for n in 0..each {
                            call(&log, n).await;
                        }
                    })
                })
                .collect();
            for task in running {
                task.await.expect("no panic");
            }
        });
        (cpu() - before).as_secs_f64() * 1e6 / (tasks as f64 * each as f64)
    };
    calls(8, 20);
    eprintln!("  CPU of nine records and four 400-byte objects per call:");
    eprintln!("  {MANY} tasks, waiting twice per call: {:.1} us", calls(MANY, 200));
    let rounds = 4000;
    let mut costs = [0.0; 2];
    for _ in 0..rounds {
        let started = thread_cpu();
        let trails = std::hint::black_box(trails(7));
        let built = thread_cpu();
        for trail in trails {
            log.append(trail).expect("queued");
        }
        costs[0] += (built - started).as_secs_f64();
        costs[1] += (thread_cpu() - built).as_secs_f64();
    }
    let [build, append] = costs.map(|seconds| seconds * 1e6 / f64::from(rounds));
    eprintln!(
        "  of the caller's thread: building the events {build:.1} us, encoding and sealing them {append:.1} us"
    );
}

async fn call(log: &AuditLog, n: u64) {
    let [early, intent, result] = trails(n);
    log.append(early).expect("queued");
    log.commit(intent).await.expect("durable");
    log.commit(result).await.expect("durable");
}

fn trails(n: u64) -> [Vec<Event>; 3] {
    let context = context_of(n);
    let body = bytes::Bytes::from(vec![b'x'; 400]);
    let event = |name| {
        let data =
            json!({"permit_id": "01JD4Z8Q4T3M5R7N9P1S2V6W8X", "scopes": ["ws_ro"], "n": n, "allowed": true});
        Event::within(name, &context).data(data)
    };
    let sealed = |name, role| event(name).evidence(role, RetentionClass::Standard, body.clone());
    [
        vec![
            sealed(EventName::ProposalReceived, Role::Proposal),
            sealed(EventName::ProposalCanonicalized, Role::Canonical),
            event(EventName::PolicyEvaluated),
            event(EventName::ApprovalDetermined),
            event(EventName::PermitIssued),
        ],
        vec![event(EventName::PermitValidated), sealed(EventName::ExecutionIntent, Role::Request)],
        vec![sealed(EventName::ExecutionResult, Role::Response), event(EventName::ArtifactViewed)],
    ]
}

fn cpu() -> Duration {
    read(rustix::time::ClockId::ProcessCPUTime)
}

fn thread_cpu() -> Duration {
    read(rustix::time::ClockId::ThreadCPUTime)
}

fn read(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
