//! A gateway in a folder of its own, the spy behind it, and an agent in front.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Nothing here takes this long; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program of the workspace, beside this test in the target folder or where PORTCULLIS_BIN_DIR says.
pub(crate) fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("PORTCULLIS_BIN_DIR").map_or_else(
        || std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned(),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing; run `cargo build -p {name}`, or `cargo xtask test`",
        path.display()
    );
    path
}

/// In the environment of every gateway that is started here; nothing may ever repeat it.
pub(crate) const ENVIRONMENT_CANARY: &str = "heron-71c9-standing-e4b0-environment";

/// Waits until `probe` finds something.
pub(crate) fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A home folder. Under the target folder, because what Portcullis runs may lie in no world-writable place.
pub(crate) struct Home {
    dir: TempDir,
    /// What is run: the gateway, perhaps as somebody else.
    runs: Vec<String>,
}

/// Somebody who is nobody.
pub(crate) const NOBODY: u32 = 65534;

impl Home {
    pub(crate) fn new(config: &str) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(dir.path().join("home")).unwrap();
        fs::write(dir.path().join("home/portcullis.toml"), config).unwrap();
        Self { dir, runs: vec![env!("CARGO_BIN_EXE_portcullis").to_owned()] }
    }

    /// The home of a gateway that runs without any rights; none where the tests may not become somebody else. Outside the
    /// target folder, which that somebody may not be able to reach.
    pub(crate) fn of_nobody(config: &str) -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        if !status.lines().any(|line| line == "Uid:\t0\t0\t0\t0") {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("portcullis-test-").tempdir_in("/var/lib").unwrap();
        let copy = dir.path().join("portcullis");
        fs::copy(env!("CARGO_BIN_EXE_portcullis"), &copy).unwrap();
        let words = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
        let mut runs: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        runs.push(copy.display().to_string());
        let home = Self { dir, runs };
        fs::create_dir(home.path()).unwrap();
        fs::write(home.path().join("portcullis.toml"), config).unwrap();
        for path in [home.dir.path().to_owned(), home.path(), home.path().join("portcullis.toml")] {
            home.give(&path);
        }
        fs::set_permissions(home.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Some(home)
    }

    /// Makes whoever runs the gateway the owner of a file.
    pub(crate) fn give(&self, path: &Path) {
        if self.runs.len() > 1 {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A place beside the home, for a test's own files.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.runs[0]);
        command
            .args(&self.runs[1..])
            .arg("--home")
            .arg(self.path())
            .env_remove("PORTCULLIS_FAILPOINTS")
            .stdin(Stdio::null());
        // Whose configurations are found, where a test has made a user of its own.
        let user = self.beside("user");
        if user.is_dir() {
            command.env("HOME", user);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs a command that must succeed and answers in JSON.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.command().args(["--output", "json"]).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Runs a command that must fail: its exit code and its error.
    pub(crate) fn fails(&self, args: &[&str]) -> (i32, Value) {
        let output = self.command().args(["--output", "json"]).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let error: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{args:?}: {text}"));
        (output.status.code().unwrap(), error["error"].clone())
    }

    /// [`Self::json`] of arguments that somebody put together.
    pub(crate) fn json_of(&self, args: &[String]) -> Value {
        self.json(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// [`Self::fails`], likewise.
    pub(crate) fn fails_of(&self, args: &[String]) -> (i32, Value) {
        self.fails(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub(crate) fn serve(&self) -> Daemon {
        self.serve_with("")
    }

    /// Starts the gateway, with failpoints armed.
    pub(crate) fn serve_with(&self, failpoints: &str) -> Daemon {
        self.serve_as(failpoints, &[])
    }

    /// Starts the gateway with further arguments.
    pub(crate) fn serve_as(&self, failpoints: &str, args: &[&str]) -> Daemon {
        self.started(failpoints, args, None)
    }

    /// Starts the gateway and has it say everything of this kind; somebody must listen to it.
    pub(crate) fn serve_saying(&self, filter: &str) -> Daemon {
        self.started("", &[], Some(filter))
    }

    fn started(&self, failpoints: &str, args: &[&str], said: Option<&str>) -> Daemon {
        let ready = self.beside("ready.json");
        let _ = fs::remove_file(&ready);
        let mut command = self.command();
        command.args(["serve", "--ready-file"]).arg(&ready).args(args);
        if !args.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !failpoints.is_empty() {
            command.env("PORTCULLIS_FAILPOINTS", failpoints);
        }
        command.env("UNRELATED_TOKEN", ENVIRONMENT_CANARY);
        if let Some(filter) = said {
            command.env("RUST_LOG", filter);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut daemon = Daemon { child, address: String::new(), console: String::new() };
        let text = eventually("the gateway to be ready", || {
            assert!(daemon.child.try_wait().unwrap().is_none(), "the gateway ended: {}", daemon.stderr());
            fs::read_to_string(&ready).ok()
        });
        let ready: Value = serde_json::from_str(&text).unwrap();
        let url = ready["mcp"].as_str().unwrap();
        daemon.address = url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        daemon.console = ready["console"].as_str().unwrap_or_default().to_owned();
        daemon
    }

    /// Grants the next pending approval; returns it.
    pub(crate) fn grant_next(&self, scope: &str) -> Value {
        let pending = self.next_pending();
        let id = pending["approval_id"].as_str().unwrap();
        self.json(&["approve", "grant", id, "--scope", scope, "--reason", "test", "--yes"])
    }

    pub(crate) fn next_pending(&self) -> Value {
        eventually("an approval to be asked for", || {
            let list = self.json(&["approve", "list", "--status", "pending"]);
            list.as_array().unwrap().first().cloned()
        })
    }

    /// All records of the log.
    pub(crate) fn log(&self) -> Vec<Value> {
        self.json(&["audit", "log", "--limit", "10000000"]).as_array().unwrap().clone()
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Value> {
        self.log().into_iter().filter(|record| record["event"] == name).collect()
    }

    /// The evidence must be whole, whatever happened.
    pub(crate) fn verify(&self) {
        let report = self.json(&["audit", "verify"]);
        assert_eq!(report["ok"], true, "{report}");
        // AUD-13: a name and what its data has belong together.
        for record in self.log() {
            let name: portcullis_audit::EventName = record["event"].as_str().unwrap().parse().unwrap();
            assert_eq!(name.lacking(&record["data"]), None, "{record}");
        }
    }
}

/// A running gateway; killed when dropped.
pub(crate) struct Daemon {
    pub(crate) child: Child,
    pub(crate) address: String,
    /// Where operators open the console; empty if it is off.
    pub(crate) console: String,
}

impl Daemon {
    /// What it said until it ended.
    pub(crate) fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    /// Reads what it says as it comes, so that it never waits for somebody to listen: all of it, once it ended.
    pub(crate) fn listened_to(&mut self) -> std::thread::JoinHandle<String> {
        let mut stderr = self.child.stderr.take().unwrap();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stderr.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }

    /// SIGTERM, and a clean end.
    pub(crate) fn stop(mut self) {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        let status = eventually("the gateway to end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }

    /// Waits for a gateway that kills itself at a failpoint.
    pub(crate) fn wait_for_death(&mut self) {
        eventually("the gateway to die", || self.child.try_wait().unwrap());
    }

    /// One HTTP request to where agents are; status, headers and body.
    pub(crate) fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Reply> {
        exchange(&self.address, method, path, headers, body)
    }

    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &Value) -> Option<Reply> {
        let mut all =
            vec![("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
        all.extend_from_slice(headers);
        self.http("POST", "/mcp", &all, &body.to_string())
    }

    /// A modern call of a tool, with the arguments as text, so that ill-formed ones can be sent too.
    pub(crate) fn call_text(&self, tool: &str, arguments: &str) -> Option<Value> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":{},"arguments":{arguments},"_meta":{}}}}}"#,
            json!(tool),
            modern_meta()
        );
        let headers = [
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
        ];
        self.http("POST", "/mcp", &headers, &body).map(|reply| reply.json())
    }

    /// A modern call of a tool: the whole JSON-RPC response, or `None` if the gateway died.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Option<Value> {
        self.call_text(tool, &arguments.to_string())
    }

    /// What a modern agent is shown: the whole answer to `tools/list`.
    pub(crate) fn list_tools(&self) -> Value {
        let body =
            json!({"jsonrpc": "2.0", "id": 8, "method": "tools/list", "params": {"_meta": modern_meta()}});
        let reply = self.post(&[("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")], &body);
        let answer = reply.unwrap().json();
        assert!(answer["result"]["tools"].is_array(), "{answer}");
        answer
    }

    /// A call whose approval is granted as soon as it is asked for.
    pub(crate) fn approved_call(&self, home: &Home, tool: &str, arguments: &Value) -> Option<Value> {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| self.call(tool, arguments));
            home.grant_next("once");
            call.join().unwrap()
        })
    }
}

/// One HTTP request; status, headers and body.
pub(crate) fn exchange(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Reply> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut head =
        format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head += &format!("Host: {address}\r\n");
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n{body}").as_bytes()).ok()?;
    Reply::read(stream)
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn modern_meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

/// An HTTP response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    fn read(stream: TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None => break,
            }
        }
        let mut body = String::new();
        reader.read_to_string(&mut body).ok()?;
        Some(Self { status, headers, body })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The answer, on its own or at the end of a stream: a call that waits for somebody comes as one after a while.
    pub(crate) fn json(&self) -> Value {
        let streamed = self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let answer = if streamed {
            let data = self.body.lines().filter_map(|line| line.strip_prefix("data:"));
            data.filter_map(|text| serde_json::from_str::<Value>(text).ok())
                .rfind(|message| message.get("result").is_some() || message.get("error").is_some())
        } else {
            serde_json::from_str(&self.body).ok()
        };
        answer.unwrap_or_else(|| panic!("{} {:?}", self.status, self.body))
    }
}

/// The spy behind a gateway: what it saw, and what it is told to do.
pub(crate) struct Spy {
    name: String,
    /// The one revision it speaks, if not all of them.
    revision: Option<String>,
    log: PathBuf,
    control: PathBuf,
    pub(crate) workspace: PathBuf,
    pub(crate) executable: PathBuf,
}

impl Spy {
    /// A spy with a program file of its own, so that a test may change it.
    pub(crate) fn new(home: &Home) -> Self {
        let executable = home.beside("spyd");
        fs::copy(program("spyd"), &executable).unwrap();
        let workspace = home.beside("ws");
        fs::create_dir_all(&workspace).unwrap();
        // Where it may write: the one folder of its declaration.
        let (log, control) = (workspace.join("spy.log"), workspace.join("spy.json"));
        Self { name: "spy".into(), revision: None, log, control, workspace, executable }
    }

    /// A spy of another name that speaks one revision.
    pub(crate) fn speaking(home: &Home, name: &str, revision: &str) -> Self {
        let executable = home.beside(&format!("{name}.exe"));
        fs::copy(program("spyd"), &executable).unwrap();
        let workspace = home.beside("ws");
        fs::create_dir_all(&workspace).unwrap();
        Self {
            name: name.into(),
            revision: Some(revision.into()),
            log: workspace.join(format!("{name}.log")),
            control: workspace.join(format!("{name}.json")),
            workspace,
            executable,
        }
    }

    pub(crate) fn declaration(&self) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../servers/spyd/spyd.yaml");
        let text = fs::read_to_string(source).unwrap().replace("@WS@", self.workspace.to_str().unwrap());
        text.replace("identity: spy,", &format!("identity: {},", self.name))
    }

    /// The arguments of `mcp add` for this spy with the declaration in `file`.
    pub(crate) fn add_args(&self, file: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let fixed = [
            "mcp",
            "add",
            &self.name,
            "--transport",
            "stdio",
            "--server-version",
            "1.0.0",
            "--justification",
            "to be watched",
        ];
        let mut args: Vec<String> = fixed.iter().map(|arg| (*arg).to_owned()).collect();
        args.extend([
            "--deployment-mode".into(),
            "local".into(),
            "--capability-declaration".into(),
            text(file),
            // It writes everything down in one folder, whichever tool is called.
            "--process-model".into(),
            "shared".into(),
            "--".into(),
        ]);
        args.extend([
            text(&self.executable),
            "--log".into(),
            text(&self.log),
            "--control".into(),
            text(&self.control),
            "--stdio".into(),
        ]);
        args.extend(self.revision.iter().flat_map(|revision| ["--revision".into(), revision.clone()]));
        args
    }

    /// Registers the honest spy.
    pub(crate) fn register(&self, home: &Home) -> Value {
        self.register_with(home, "")
    }

    /// Registers it where trust can be earned up to a tier.
    pub(crate) fn register_on_tier(&self, home: &Home, tier: &str) -> Value {
        home.json_of(&self.flagged(home, &self.declaration(), &["--trust-tier", tier]))
    }

    /// What registers it with another declaration and more flags.
    pub(crate) fn flagged(&self, home: &Home, declaration: &str, flags: &[&str]) -> Vec<String> {
        let file = home.beside(&format!("{}.yaml", self.name));
        fs::write(&file, declaration).unwrap();
        let mut args = self.add_args(&file);
        let at = args.iter().position(|arg| arg == "--").unwrap();
        args.splice(at..at, flags.iter().map(|flag| (*flag).to_owned()));
        args
    }

    /// Registers it with more in its declaration.
    pub(crate) fn register_with(&self, home: &Home, more: &str) -> Value {
        self.register_as(home, &format!("{}\n{more}\n", self.declaration()))
    }

    /// Registers it with another declaration.
    pub(crate) fn register_as(&self, home: &Home, declaration: &str) -> Value {
        home.json_of(&self.flagged(home, declaration, &[]))
    }

    /// Starts it as a server of its own: its URL. It ends with what is given back.
    pub(crate) fn alone(&self) -> (Served, String) {
        let mut command = Command::new(&self.executable);
        command.arg("--log").arg(&self.log).arg("--control").arg(&self.control);
        command.args(["--http", "0", "--end-with-stdin"]);
        if let Some(revision) = &self.revision {
            command.args(["--revision", revision]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"))
            .unwrap_or_else(|| panic!("{line:?}"));
        (Served(child), url.to_owned())
    }

    /// Starts it as a server of its own and registers its URL.
    pub(crate) fn behind_a_url(&self, home: &Home, change: impl FnOnce(String) -> String) -> Served {
        let (served, url) = self.alone();
        // What it may touch is not ours to say: nothing confines it.
        let declaration = change(self.declaration());
        let file = home.beside(&format!("{}.yaml", self.name));
        fs::write(&file, declaration).unwrap();
        let fixed =
            ["mcp", "add", &self.name, "--transport", "http", "--url", &url, "--server-version", "1.0.0"];
        let more = [
            "--justification",
            "to be watched",
            "--deployment-mode",
            "local",
            "--waive-isolation",
            "a test",
            "--yes",
        ];
        let declared = ["--capability-declaration", file.to_str().unwrap()];
        home.json(&[&fixed[..], &more[..], &declared[..]].concat());
        served
    }

    /// Tells the spy to misbehave.
    pub(crate) fn control(&self, switches: &Value) {
        fs::write(&self.control, switches.to_string()).unwrap();
    }

    /// Registers it with other tools altogether, all of which are declared to read and nothing else.
    pub(crate) fn offers(&self, home: &Home, tools: &[Value], switches: &Value) -> Value {
        let mut switches = switches.clone();
        switches["catalogue"] = json!(tools);
        self.control(&switches);
        self.register_as(home, &self.declaration_of(tools))
    }

    /// A declaration of such tools.
    pub(crate) fn declaration_of(&self, tools: &[Value]) -> String {
        let clause = |(at, tool): (usize, &Value)| {
            let output = match tool.get("outputSchema") {
                Some(schema) => json!({"schema": schema}),
                None => json!({"type": "text"}),
            };
            // Somebody must use the folder that the spy writes its log to.
            let last = at + 1 == tools.len();
            let (effects, scopes) =
                if last { (json!(["write"]), json!(["ws"])) } else { (json!([]), json!([])) };
            json!({
                "name": tool["name"], "version": "1", "description": tool["description"], "side_effects": effects,
                "scopes": scopes, "unbound": last, "credentials": [], "parameters": tool["inputSchema"], "output": output,
                "idempotency": "idempotent", "failure_modes": [], "limits": {"timeout": "30s", "max_response_bytes": 2_097_152},
            })
        };
        let revisions = match &self.revision {
            Some(revision) => json!([revision]),
            None => json!(["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]),
        };
        let declaration = json!({
            "apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration",
            "server": {"identity": self.name, "version": "1.0.0", "protocol_versions": revisions, "surface": "static"},
            "scopes": {"ws": {"kind": "fs", "path": self.workspace, "access": "rw"}}, "tools": tools.iter().enumerate().map(clause).collect::<Vec<_>>(),
        });
        declaration.to_string()
    }

    /// What its tools answer from now on; everything else stays as it was told.
    pub(crate) fn answers(&self, results: &Value) {
        let told = fs::read(&self.control).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut switches: Value = told.unwrap_or_else(|| json!({}));
        switches["result"] = results.clone();
        self.control(&switches);
    }

    /// Every frame of a method that reached the spy, as it was received.
    pub(crate) fn frames(&self, method: &str) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        (text.lines())
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|frame| frame["method"] == method)
            // What the spy notes about a request, that it was cancelled for instance, is no frame.
            .filter_map(|frame| frame["raw"].as_str().map(str::to_owned))
            .collect()
    }

    /// What happened to the spy, by the word it logs.
    pub(crate) fn log_events(&self, event: &str) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).collect()
    }

    pub(crate) fn calls(&self) -> usize {
        self.frames("tools/call").len()
    }

    /// The processes of this spy that are alive.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
            let runs_us = fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == self.executable);
            if runs_us {
                found.push(pid);
            }
        }
        found
    }
}

/// A spy that runs by itself; killed when dropped.
pub(crate) struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A gateway with an honest spy registered behind it.
pub(crate) fn guarded_spy(config: &str) -> (Home, Spy) {
    let home = Home::new(config);
    let spy = Spy::new(&home);
    spy.register(&home);
    (home, spy)
}

/// A gateway where one approval of a tool lasts: for tests of what is not approval.
pub(crate) fn open_home() -> Home {
    Home::new("[policy]\npreset = \"observe\"\n")
}

/// An operator who grants whatever is asked, as widely as is offered, until dropped.
pub(crate) struct Operator {
    off_duty: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Operator {
    pub(crate) fn on_duty(home: &Home) -> Self {
        let off_duty = Arc::new(AtomicBool::new(false));
        let (path, leave) = (home.path(), off_duty.clone());
        let run = move |args: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
            command.arg("--home").arg(&path).args(["--output", "json"]).args(args);
            command.stdin(Stdio::null()).output().unwrap()
        };
        let thread = std::thread::spawn(move || {
            while !leave.load(Ordering::Relaxed) {
                let listed = run(&["approve", "list", "--status", "pending"]);
                let pending: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
                for approval in pending.as_array().unwrap_or(&Vec::new()) {
                    let id = approval["approval_id"].as_str().unwrap_or_default();
                    for scope in ["until-version-change", "once"] {
                        let granted =
                            run(&["approve", "grant", id, "--scope", scope, "--reason", "test", "--yes"]);
                        if granted.status.success() {
                            break;
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Self { off_duty, thread: Some(thread) }
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        self.off_duty.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}
