//! A running spy on two pipes, with its log and its switches.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

/// The folder of one test: the spy's log and control file.
pub(crate) struct Station {
    folder: tempfile::TempDir,
}

impl Station {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log.jsonl")
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spyd"));
        command.arg("--log").arg(self.log_file());
        command.arg("--control").arg(self.folder.path().join("control.json"));
        command
    }

    /// Throws the switches, at once and as a whole.
    pub(crate) fn control(&self, switches: &Value) {
        let draft = self.folder.path().join("control.draft");
        fs::write(&draft, switches.to_string()).expect("a draft");
        fs::rename(draft, self.folder.path().join("control.json")).expect("a control file");
    }

    pub(crate) fn log(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.log_file()).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("every line of the log is whole")).collect()
    }

    pub(crate) fn frames(&self, method: &str) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["method"] == method && line.get("raw").is_some()).collect()
    }

    pub(crate) fn events(&self, event: &str) -> Vec<Value> {
        self.log().into_iter().filter(|line| line["event"] == event).collect()
    }

    /// Waits for an event that another process is about to write.
    pub(crate) fn await_event(&self, event: &str) -> Value {
        for _ in 0..2000 {
            if let Some(line) = self.events(event).pop() {
                return line;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("no event {event} in {:?}", self.log());
    }
}

pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Peer {
    pub(crate) fn start(station: &Station, arguments: &[&str]) -> Self {
        let mut command = station.command();
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the spy starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, input, output, last_id: 0 }
    }

    /// A started and initialised one.
    pub(crate) fn legacy(station: &Station) -> Self {
        let mut peer = Self::start(station, &[]);
        peer.initialize("2025-11-25");
        peer
    }

    pub(crate) fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{message}").expect("the spy reads");
    }

    /// The next line; `None` at the end of the output.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        (self.output.read_line(&mut line).expect("the spy writes") > 0).then_some(line)
    }

    pub(crate) fn receive(&mut self) -> Value {
        serde_json::from_str(&self.line().expect("an answer")).expect("a line is JSON")
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let mut request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method });
        request["params"] = params;
        self.send(&request);
        self.last_id
    }

    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        let answer = self.receive();
        assert_eq!(answer["id"], id);
        answer
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool });
        params["arguments"] = arguments;
        self.ask("tools/call", params)
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let hello = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" }
        });
        let answer = self.ask("initialize", hello);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    pub(crate) fn finish(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().expect("the spy ends")
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        self.child.wait().expect("the spy ends")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parameters with what a modern request carries.
pub(crate) fn modern(mut params: Value) -> Value {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    params
}

pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().expect("a text")
}
