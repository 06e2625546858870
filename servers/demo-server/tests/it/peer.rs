//! A running server with its two pipes. It ends when its input is closed; dropping it makes sure.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::{Value, json};

pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

impl Peer {
    pub(crate) fn start(folder: &Path, revision: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_demo-server"))
            .arg("--dir")
            .arg(folder)
            .args(["--revision", revision])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { child, input, output, last_id: 0 }
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").expect("the server reads");
    }

    pub(crate) fn receive(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server writes");
        serde_json::from_str(&line).expect("a line is JSON")
    }

    /// A request as it stands; the whole answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let mut request = json!({ "jsonrpc": "2.0", "id": self.last_id, "method": method });
        request["params"] = params;
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], self.last_id);
        answer
    }

    /// A request of the modern era; the whole answer.
    pub(crate) fn ask_modern(&mut self, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" }
        });
        self.ask(method, params)
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Value {
        let answer = self.ask(
            "initialize",
            json!({
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": { "name": "test", "version": "1" }
            }),
        );
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    /// Closes the input and waits for the end.
    pub(crate) fn finish(mut self) -> ExitStatus {
        drop(self.input.take());
        self.child.wait().expect("the server ends")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
