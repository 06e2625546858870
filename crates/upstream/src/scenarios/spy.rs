//! The spying server as these scenarios use it: started as told, switched by its control file, read by its log.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portcullis_audit::{AuditLog, Options};
use portcullis_governance::boundary::{CancellationSignal, Outcome, Prober, ReadyChannel as _, WireCall};
use portcullis_governance::endpoint::HttpEndpoint;
use portcullis_sandbox::{Access, FsScope, Profile};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::broadcast;

use crate::link::Exchange;
use crate::{Connection, Endpoint, Live, Remote, Settings, StdioEndpoint, UpstreamEvent};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const PLENTY: usize = 8 * 1024 * 1024;

/// A folder with a control file, a frame log and an audit log.
pub(crate) struct Scene {
    pub(crate) folder: TempDir,
    pub(crate) audit: AuditLog,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let audit =
            AuditLog::open(Options::new(folder.path().join("audit"), folder.path().join("kek"))).unwrap();
        Self { folder, audit }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets the switches, in one step, so that the spy never reads half of them.
    pub(crate) fn switch(&self, control: &Value) {
        std::fs::write(self.path("control.new"), control.to_string()).unwrap();
        std::fs::rename(self.path("control.new"), self.path("control.json")).unwrap();
    }

    /// Everything the spies of this scene wrote down.
    pub(crate) fn log(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("frames.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The methods they received, in order.
    pub(crate) fn methods(&self) -> Vec<String> {
        let log = self.log();
        let frames = log.iter().filter(|line| line.get("raw").is_some());
        frames.filter_map(|line| line["method"].as_str().map(str::to_owned)).collect()
    }

    /// Waits until the log has a line like this.
    pub(crate) async fn wait_for(&self, what: &str, like: impl Fn(&Value) -> bool) {
        for _ in 0..600 {
            if self.log().iter().any(&like) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the spy never logged {what}: {:?}", self.log());
    }

    pub(crate) fn program(&self, revision: &str) -> StdioEndpoint {
        let file = |name: &str| self.path(name).display().to_string();
        let args =
            ["--log", &file("frames.jsonl"), "--control", &file("control.json"), "--revision", revision];
        let mut profile = self.caged(spyd(), &args);
        profile.env = BTreeMap::from([("ONLY".into(), "this".into())]);
        StdioEndpoint { profile, pins: Vec::new() }
    }

    /// A program that may use this scene's folder.
    pub(crate) fn caged(&self, command: impl Into<PathBuf>, args: &[&str]) -> Box<Profile> {
        let mut profile = Profile::bare(command, args.iter().map(|arg| (*arg).to_owned()).collect());
        let path = self.folder.path().canonicalize().unwrap();
        profile.fs.push(FsScope { path, access: Access::Rw });
        Box::new(profile)
    }

    pub(crate) fn connection(&self, endpoint: Endpoint, settings: Settings) -> Connection {
        let prober = Prober::new(self.audit.clone(), "1.0".parse().unwrap());
        Connection::new("spy".parse().unwrap(), endpoint, Arc::new(prober), settings)
    }

    pub(crate) fn stdio(&self, revision: &str) -> Connection {
        self.connection(Endpoint::Stdio(self.program(revision)), Settings::default())
    }

    /// A spy behind a port of its own; it ends with the value.
    pub(crate) fn http_spy(&self, revision: &str) -> HttpSpy {
        let program = self.program(revision);
        let mut child = Command::new(&program.profile.command)
            .args(&program.profile.args)
            .args(["--http", "0", "--end-with-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        HttpSpy { child, url }
    }
}

/// A server behind a URL, with no pinned key.
pub(crate) fn at(url: &str) -> Endpoint {
    Endpoint::Http(Remote { url: HttpEndpoint::parse(url).unwrap(), spki: None })
}

pub(crate) struct HttpSpy {
    child: Child,
    pub(crate) url: String,
}

impl HttpSpy {
    pub(crate) fn endpoint(&self) -> Endpoint {
        at(&self.url)
    }
}

impl Drop for HttpSpy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Beside the test's own executable.
pub(crate) fn spyd() -> PathBuf {
    built("spyd")
}

/// What starts programs in their cages.
pub(crate) fn launcher() -> PathBuf {
    built("portcullis")
}

fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let program = exe.parent().and_then(Path::parent).unwrap().join(name);
    assert!(
        program.is_file(),
        "{} is missing; run `cargo build --workspace --bins` first",
        program.display()
    );
    program
}

/// One call as the lifecycle makes it, without the lifecycle.
pub(crate) struct Ask {
    pub(crate) timeout: Duration,
    pub(crate) max: usize,
    pub(crate) repeatable: bool,
    pub(crate) cancel: Option<CancellationSignal>,
}

impl Default for Ask {
    fn default() -> Self {
        Self { timeout: PATIENCE, max: PLENTY, repeatable: false, cancel: None }
    }
}

impl Ask {
    pub(crate) async fn call(self, live: &Live, tool: &str, arguments: &Value) -> Outcome {
        let params = format!(r#""name":{},"arguments":{arguments}"#, serde_json::json!(tool));
        let call =
            WireCall { method: "tools/call", name: Some(tool), params: params.as_bytes(), mirrored: &[] };
        let frame = live.frame(&call);
        let exchange = Exchange {
            id: frame.id,
            call: None,
            bytes: &frame.bytes,
            method: frame.method,
            name: frame.name.as_deref(),
            mirrored: &[],
            timeout: self.timeout,
            max_response_bytes: self.max,
            attendant: None,
            headers: &[],
        };
        let (_canceller, never) = CancellationSignal::pair();
        live.exchange(exchange, self.repeatable, self.cancel.unwrap_or(never)).await
    }
}

pub(crate) async fn call(live: &Live, tool: &str, arguments: Value) -> Outcome {
    Ask::default().call(live, tool, &arguments).await
}

/// The text of a result.
pub(crate) fn text(outcome: Outcome) -> String {
    let Outcome::Result(bytes) = outcome else { panic!("no result: {outcome:?}") };
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    value["content"][0]["text"].as_str().unwrap().to_owned()
}

/// The next event that is one of those asked for.
pub(crate) async fn event(
    events: &mut broadcast::Receiver<UpstreamEvent>,
    like: impl Fn(&UpstreamEvent) -> bool,
) -> UpstreamEvent {
    let mut seen = String::new();
    let next = async {
        loop {
            let event = events.recv().await.unwrap();
            if like(&event) {
                return event;
            }
            let _ = write!(seen, "{event:?} ");
        }
    };
    tokio::time::timeout(PATIENCE, next).await.unwrap_or_else(|_| panic!("no such event"))
}

/// Whether a process exists, and is not just a name on its parent's list.
pub(crate) fn runs(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes that were started with this word.
pub(crate) fn processes_with(word: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let started_with = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    pids.filter(started_with).collect()
}

pub(crate) async fn gone(pid: i32) -> bool {
    for _ in 0..200 {
        if !runs(pid) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

pub(crate) fn raw(outcome: Outcome) -> Bytes {
    match outcome {
        Outcome::Result(bytes) | Outcome::RpcError(bytes) => bytes,
        other => panic!("no answer: {other:?}"),
    }
}
