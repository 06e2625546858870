//! A session with a program, over its standard input and output (GNT-B1, GNT-B3, GNT-B7).
//!
//! What the program may do to the machine is not decided here: whoever binds hands over a command, which may well be that
//! of a sandbox. The program lives as long as the session and is killed with it.

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::{BoxFuture, RawPage, ServerInfo, ToolSession, UpstreamError, UpstreamReason};
use crate::{RawResult, Screened};

/// The longest message read.
const MAX_MESSAGE_BYTES: u64 = 64 << 20;
/// The revision asked for.
const PROTOCOL: &str = "2025-11-25";

/// A program to start.
#[derive(Debug)]
pub struct StdioParams {
    /// What is run, with its arguments and its environment.
    pub command: std::process::Command,
    /// How long an answer may take.
    pub patience: Duration,
}

impl StdioParams {
    /// A command, and thirty seconds for each answer.
    pub fn new(command: std::process::Command) -> Self {
        Self { command, patience: Duration::from_secs(30) }
    }
}

/// A running program. One request at a time.
#[derive(Debug)]
pub struct StdioSession {
    wire: Mutex<Wire>,
    patience: Duration,
    /// Killed when dropped.
    child: Child,
}

#[derive(Debug)]
struct Wire {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    last_id: u64,
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    id: Option<u64>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl StdioSession {
    /// Starts the program. Needs a running tokio.
    pub(super) fn start(params: StdioParams) -> Result<Self, UpstreamError> {
        let mut command = Command::from(params.command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let unavailable = || UpstreamError::new(UpstreamReason::Unavailable);
        let mut child = command.spawn().map_err(|_| unavailable())?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(unavailable());
        };
        let wire = Wire { input, output: BufReader::new(output), last_id: 0 };
        Ok(Self { wire: Mutex::new(wire), patience: params.patience, child })
    }

    /// The program's process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Bytes, UpstreamError> {
        let mut wire = self.wire.lock().await;
        match tokio::time::timeout(self.patience, wire.ask(method, params)).await {
            Ok(answer) => answer,
            Err(_) => Err(UpstreamError::new(UpstreamReason::Timeout)),
        }
    }
}

impl Wire {
    async fn ask(&mut self, method: &str, params: Value) -> Result<Bytes, UpstreamError> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params});
        self.send(&request).await?;
        loop {
            let line = self.line().await?;
            let answer: Answer<'_> =
                serde_json::from_slice(&line).map_err(|_| UpstreamError::new(UpstreamReason::Protocol))?;
            // Notifications, requests of the server's, and answers nobody waits for any more.
            if answer.id != Some(self.last_id) {
                continue;
            }
            return match (answer.result, answer.error) {
                (Some(result), None) => Ok(Bytes::copy_from_slice(result.get().as_bytes())),
                (None, Some(error)) => Err(UpstreamError::with(UpstreamReason::Error, message(error))),
                _ => Err(UpstreamError::new(UpstreamReason::Protocol)),
            };
        }
    }

    async fn send(&mut self, message: &Value) -> Result<(), UpstreamError> {
        let line = format!("{message}\n");
        let sent = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.flush().await
        };
        sent.await.map_err(|_| UpstreamError::new(UpstreamReason::Unavailable))
    }

    async fn line(&mut self) -> Result<Vec<u8>, UpstreamError> {
        let mut line = Vec::new();
        let read = (&mut self.output).take(MAX_MESSAGE_BYTES).read_until(b'\n', &mut line).await;
        match read {
            Ok(read) if read > 0 && line.ends_with(b"\n") => Ok(line),
            _ => Err(UpstreamError::new(UpstreamReason::Unavailable)),
        }
    }
}

fn message(error: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Said {
        #[serde(default)]
        message: String,
    }
    serde_json::from_str::<Said>(error.get()).map(|said| said.message).unwrap_or_default()
}

impl ToolSession for StdioSession {
    fn initialize(&self) -> BoxFuture<'_, Result<ServerInfo, UpstreamError>> {
        Box::pin(async {
            let client = json!({"name": "portcullis-gauntlet", "version": env!("CARGO_PKG_VERSION")});
            let params = json!({"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client});
            let answer = self.ask("initialize", params).await?;
            let answer: Value =
                serde_json::from_slice(&answer).map_err(|_| UpstreamError::new(UpstreamReason::Protocol))?;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let info = ServerInfo {
                version: text(&answer["serverInfo"]["version"]),
                protocol: text(&answer["protocolVersion"]),
            };
            let mut wire = self.wire.lock().await;
            wire.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
            Ok(info)
        })
    }

    fn list_tools<'a>(&'a self, cursor: Option<&'a str>) -> BoxFuture<'a, Result<RawPage, UpstreamError>> {
        Box::pin(async move {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            Ok(RawPage::new(self.ask("tools/list", params).await?))
        })
    }

    fn call_tool<'a>(&'a self, screened: &'a Screened) -> BoxFuture<'a, Result<RawResult, UpstreamError>> {
        Box::pin(async move {
            let params = json!({"name": screened.spec().tool.item().name(), "arguments": screened.args()});
            Ok(RawResult::new(self.ask("tools/call", params).await?))
        })
    }
}
