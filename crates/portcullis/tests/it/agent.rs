//! An agent of any revision over HTTP: the client side of the protocol, written for these tests alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::Daemon;

pub(crate) const REVISIONS: [&str; 5] =
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
pub(crate) const MODERN: &str = "2026-07-28";
const PATIENCE: Duration = Duration::from_secs(30);

/// A client that speaks one revision.
pub(crate) struct Agent {
    address: String,
    pub(crate) revision: &'static str,
    pub(crate) session: Option<String>,
    /// The result of `initialize` or `server/discover`.
    pub(crate) hello: Value,
    capabilities: Value,
    /// Whom it says it is, with a key.
    key: Option<String>,
    next: AtomicU64,
}

impl Agent {
    pub(crate) fn open(daemon: &Daemon, revision: &'static str) -> Self {
        Self::able(daemon, revision, json!({}))
    }

    /// An agent with capabilities.
    pub(crate) fn able(daemon: &Daemon, revision: &'static str, capabilities: Value) -> Self {
        let mut agent = Self::unopened(daemon, revision, capabilities);
        if revision == MODERN {
            agent.hello = agent.result("server/discover", json!({}));
            return agent;
        }
        let params = json!({"protocolVersion": revision, "capabilities": agent.capabilities, "clientInfo": {"name": "agent", "version": "1"}});
        let mut stream =
            agent.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}), &[]);
        let session = stream.header("mcp-session-id").map(str::to_owned);
        agent.hello = stream.next().unwrap()["result"].clone();
        agent.session = session;
        assert_eq!(agent.hello["protocolVersion"], revision, "{}", agent.hello);
        agent.tell("notifications/initialized", json!({}));
        agent
    }

    /// An agent that has said nothing yet.
    pub(crate) fn unopened(daemon: &Daemon, revision: &'static str, capabilities: Value) -> Self {
        Self {
            address: daemon.address.clone(),
            revision,
            session: None,
            hello: Value::Null,
            capabilities,
            key: None,
            next: AtomicU64::new(1),
        }
    }

    pub(crate) fn is_modern(&self) -> bool {
        self.revision == MODERN
    }

    /// The response to one request; what came beside it is dropped.
    pub(crate) fn ask(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).last().unwrap_or_else(|| panic!("{method}: no answer"))
    }

    /// The result of a request that must succeed.
    pub(crate) fn result(&self, method: &str, params: Value) -> Value {
        let response = self.ask(method, params);
        assert!(response.get("result").is_some(), "{} {method}: {response}", self.revision);
        response["result"].clone()
    }

    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// Begins a request; the stream yields every message of its answer.
    pub(crate) fn begin(&self, method: &str, params: Value) -> Stream {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.begin_as(id, method, params)
    }

    pub(crate) fn begin_as(&self, id: u64, method: &str, params: Value) -> Stream {
        let (headers, body) = self.worded(id, method, params);
        self.post(&body, &headers)
    }

    fn worded(&self, id: u64, method: &str, mut params: Value) -> (Vec<(&'static str, String)>, Value) {
        let mut headers = Vec::new();
        if self.is_modern() {
            headers.push(("Mcp-Method", method.to_owned()));
            let name = ["name", "uri", "taskId"].iter().find_map(|key| params.get(key)?.as_str());
            if let Some(name) = name.filter(|_| !method.starts_with("completion")) {
                headers.push(("Mcp-Name", name.to_owned()));
            }
            params["_meta"]["io.modelcontextprotocol/protocolVersion"] = MODERN.into();
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "agent", "version": "1"});
        }
        (headers, json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    }

    pub(crate) fn tell(&self, method: &str, params: Value) {
        let reply = self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params}), &[]);
        assert_eq!(reply.status, 202, "{method}");
    }

    /// The same agent for another thread.
    pub(crate) fn copy(&self) -> Self {
        Self {
            address: self.address.clone(),
            session: self.session.clone(),
            hello: self.hello.clone(),
            capabilities: self.capabilities.clone(),
            key: self.key.clone(),
            next: AtomicU64::new(self.next.load(Ordering::Relaxed) + 1_000),
            revision: self.revision,
        }
    }

    /// The same agent as somebody else: with another key.
    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.copy() }
    }

    /// The same agent with other capabilities.
    pub(crate) fn with_capabilities(&self, capabilities: Value) -> Self {
        Self { capabilities, ..self.copy() }
    }

    /// Sends a request and does not read its answer; dropping the connection hangs up.
    pub(crate) fn hang(&self, id: u64, method: &str, params: Value) -> TcpStream {
        let (headers, body) = self.worded(id, method, params);
        self.write("POST", "/mcp", &body.to_string(), &headers)
    }

    /// One POST.
    pub(crate) fn post(&self, body: &Value, more: &[(&str, String)]) -> Stream {
        self.send("POST", "/mcp", &body.to_string(), more)
    }

    /// Any HTTP request, with this agent's session.
    pub(crate) fn send(&self, method: &str, path: &str, body: &str, more: &[(&str, String)]) -> Stream {
        Stream::read(self.write(method, path, body, more))
    }

    fn write(&self, method: &str, path: &str, body: &str, more: &[(&str, String)]) -> TcpStream {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n",
            self.address,
            body.len()
        );
        if self.session.is_some() || self.is_modern() {
            head += &format!("MCP-Protocol-Version: {}\r\n", self.revision);
        }
        if let Some(session) = &self.session {
            head += &format!("Mcp-Session-Id: {session}\r\n");
        }
        if let Some(key) = &self.key {
            head += &format!("Authorization: {key}\r\n");
        }
        for (name, value) in more {
            head += &format!("{name}: {value}\r\n");
        }
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        stream
    }
}

/// An answer as it comes: one JSON document, or events.
pub(crate) struct Stream {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// The id of the event read last.
    pub(crate) last_event: Option<String>,
    reader: BufReader<TcpStream>,
    chunk: usize,
    ended: bool,
}

impl Stream {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None => break,
            }
        }
        Self { status, headers, last_event: None, reader, chunk: 0, ended: false }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn streams(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    fn byte(&mut self) -> Option<u8> {
        if self.header("transfer-encoding") == Some("chunked") && self.chunk == 0 {
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                if self.reader.read_line(&mut line).ok()? == 0 {
                    return None;
                }
            }
            self.chunk = usize::from_str_radix(line.trim(), 16).unwrap();
            if self.chunk == 0 {
                return None;
            }
        }
        let mut byte = [0];
        self.reader.read_exact(&mut byte).ok()?;
        self.chunk = self.chunk.saturating_sub(1);
        Some(byte[0])
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        loop {
            match self.byte() {
                Some(b'\n') => break,
                Some(byte) => line.push(byte),
                None if line.is_empty() => return None,
                None => break,
            }
        }
        Some(String::from_utf8(line).unwrap().trim_end_matches('\r').to_owned())
    }

    /// The data of the next event, which need not be JSON.
    pub(crate) fn first_data(&mut self) -> String {
        loop {
            let line = self.line().expect("an event");
            if let Some(data) = line.strip_prefix("data: ") {
                return data.to_owned();
            }
        }
    }

    /// The whole body as text.
    pub(crate) fn text(mut self) -> String {
        let mut body = Vec::new();
        while let Some(byte) = self.byte() {
            body.push(byte);
        }
        String::from_utf8(body).unwrap()
    }
}

impl Iterator for Stream {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        if self.ended {
            return None;
        }
        if !self.streams() {
            self.ended = true;
            let mut body = Vec::new();
            while let Some(byte) = self.byte() {
                body.push(byte);
            }
            return serde_json::from_slice(&body).ok();
        }
        let mut data = String::new();
        loop {
            let Some(line) = self.line() else {
                self.ended = true;
                return None;
            };
            if let Some(id) = line.strip_prefix("id: ") {
                self.last_event = Some(id.to_owned());
            } else if let Some(text) = line.strip_prefix("data: ") {
                data += text;
            } else if line.is_empty() && !data.is_empty() {
                return Some(serde_json::from_str(&data).unwrap());
            }
        }
    }
}
