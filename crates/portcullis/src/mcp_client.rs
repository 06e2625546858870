//! A small MCP client for people and scripts: the modern era over lines, to the running gateway's agent socket or to
//! a gateway in this process.

use std::path::Path;
use std::sync::Arc;

use portcullis_core::ErrorCode;
use portcullis_gateway::edge::{Edge, MODERN};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::failure::Failure;
use crate::home;

/// A conversation with a gateway, as an agent would have it.
pub(crate) struct McpClient {
    read: BufReader<Box<dyn AsyncRead + Unpin + Send>>,
    write: Box<dyn AsyncWrite + Unpin + Send>,
    next_id: u64,
}

impl McpClient {
    /// Connects to the running gateway, if there is one.
    pub(crate) async fn connect(home: &Path) -> Option<Self> {
        let stream = UnixStream::connect(home::agent_socket(home)).await.ok()?;
        let (read, write) = stream.into_split();
        Some(Self { read: BufReader::new(Box::new(read)), write: Box::new(write), next_id: 1 })
    }

    /// Talks to a gateway in this process.
    pub(crate) fn embedded(edge: Arc<Edge>) -> Self {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let (input, output) = tokio::io::split(theirs);
        tokio::spawn(edge.serve_stdio(input, output));
        let (read, write) = tokio::io::split(ours);
        Self { read: BufReader::new(Box::new(read)), write: Box::new(write), next_id: 1 }
    }

    /// One request, one answer: the result, or the gateway's error document as a failure.
    pub(crate) async fn request(&mut self, method: &str, mut params: Value) -> Result<Value, Failure> {
        let lost = |error: std::io::Error| Failure::unavailable(format!("the gateway went away: {error}"));
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN.as_str(),
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "portcullis-call", "version": env!("CARGO_PKG_VERSION")},
        });
        let id = self.next_id;
        self.next_id += 1;
        let mut line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        line.push('\n');
        self.write.write_all(line.as_bytes()).await.map_err(lost)?;
        self.write.flush().await.map_err(lost)?;
        let mut reply = String::new();
        self.read.read_line(&mut reply).await.map_err(lost)?;
        let reply: Value = serde_json::from_str(&reply)
            .map_err(|_| Failure::unavailable("the gateway went away before it answered"))?;
        match reply.get("error") {
            Some(error) => Err(refusal(error)),
            None => Ok(reply["result"].clone()),
        }
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, Failure> {
        self.request("tools/call", json!({"name": tool, "arguments": arguments})).await
    }
}

/// The exit code follows the error's code, as for any other command.
fn refusal(error: &Value) -> Failure {
    let name = error["data"]["error"].as_str().unwrap_or_default();
    let code = ErrorCode::ALL.into_iter().find(|code| code.as_str() == name).unwrap_or(ErrorCode::Internal);
    let mut failure = Failure::new(code, error["message"].as_str().unwrap_or("the gateway refused"));
    failure.details = error.get("data").cloned();
    failure
}
