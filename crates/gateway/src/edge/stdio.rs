//! MCP over stdin and stdout: one message a line, and nothing else on stdout (PRO-30).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use portcullis_governance::boundary::{CancellationSignal, Canceller};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Answer, Asked, Edge, Era, MODERN, Params, SUPPORTED, Sender};

/// Longest line taken from a client.
const MAX_LINE: usize = 4 << 20;

type InFlight = Arc<Mutex<HashMap<String, Canceller>>>;

impl Edge {
    /// Serves one client until its input ends; calls under way are finished first.
    pub async fn serve_stdio(
        self: Arc<Self>,
        input: impl AsyncRead + Unpin,
        output: impl AsyncWrite + Unpin + Send + 'static,
    ) -> std::io::Result<()> {
        let (replies, outbox) = mpsc::unbounded_channel();
        let writer = tokio::spawn(write_lines(output, outbox));
        let mut lines = BufReader::with_capacity(64 << 10, input);
        let in_flight = InFlight::default();
        let mut sender: Option<Sender> = None;
        let mut calls = JoinSet::new();
        let mut line = Vec::new();
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            if line.len() > MAX_LINE {
                let _ = replies.send(error_response::<()>(
                    None,
                    -32600,
                    "the message is longer than 4 MiB",
                    None,
                ));
                continue;
            }
            let message = Bytes::copy_from_slice(line.trim_ascii());
            if !message.is_empty() {
                self.take(message, &mut sender, &in_flight, &mut calls, &replies);
            }
            while calls.try_join_next().is_some() {}
        }
        while calls.join_next().await.is_some() {}
        drop(replies);
        writer.await.map_err(std::io::Error::other)?
    }

    fn take(
        self: &Arc<Self>,
        message: Bytes,
        sender: &mut Option<Sender>,
        in_flight: &InFlight,
        calls: &mut JoinSet<()>,
        replies: &mpsc::UnboundedSender<Vec<u8>>,
    ) {
        let Some(parsed) = Message::read(&message) else {
            let (code, text) = match serde_json::from_slice::<serde::de::IgnoredAny>(&message) {
                Ok(_) => (-32600, "not a JSON-RPC request; batches are not supported"),
                Err(_) => (-32700, "not valid JSON"),
            };
            let _ = replies.send(error_response::<()>(None, code, text, None));
            return;
        };
        match parsed.kind() {
            Kind::Request { id, method } => {
                let answer = match self.recognise(method, parsed.params, sender) {
                    Ok(Some(sender)) => {
                        let (canceller, cancel) = CancellationSignal::pair();
                        let key = id.get().to_owned();
                        lock(in_flight).insert(key.clone(), canceller);
                        let (edge, replies, in_flight) = (self.clone(), replies.clone(), in_flight.clone());
                        let message = message.clone();
                        calls.spawn(async move {
                            // Read again inside the task: borrowed parts cannot cross into it.
                            let Some(parsed) = Message::read(&message) else { return };
                            let (Some(id), Some(method)) = (parsed.id, parsed.method.as_deref()) else {
                                return;
                            };
                            let asked = Asked { id, method, params: parsed.params, message: &message };
                            let reply = edge.answer(&sender, asked, cancel).await;
                            lock(&in_flight).remove(&key);
                            let _ = replies.send(reply);
                        });
                        return;
                    }
                    Ok(None) => {
                        let requested = parsed
                            .params
                            .and_then(|raw| Params::read(raw).ok())
                            .and_then(|p| p.protocol_version);
                        Answer::Result(self.initialize(requested.as_deref().unwrap_or_default()).1)
                    }
                    Err(answer) => answer,
                };
                let _ = replies.send(answer.into_response(id));
            }
            Kind::Notification { method: "notifications/cancelled" } => {
                let request = parsed.params.and_then(|raw| Params::read(raw).ok()).and_then(|p| p.request_id);
                if let Some(canceller) = request.and_then(|id| lock(in_flight).remove(id.get())) {
                    canceller.cancel();
                }
            }
            // Other notifications want nothing from us, and we ask clients nothing that they could answer.
            Kind::Notification { .. } | Kind::Response { .. } => {}
            Kind::Invalid => {
                let _ =
                    replies.send(error_response::<()>(parsed.id, -32600, "not a JSON-RPC 2.0 message", None));
            }
        }
    }

    /// Who sends this request: the connection's era is that of its first message. `Ok(None)` = `initialize`.
    fn recognise(
        &self,
        method: &str,
        params: Option<&serde_json::value::RawValue>,
        sender: &mut Option<Sender>,
    ) -> Result<Option<Sender>, Answer> {
        let params = params.and_then(|raw| Params::read(raw).ok());
        if method == "initialize" {
            let client = params.and_then(|p| p.client_info).map(|info| info.name).unwrap_or_default();
            let session = self.sessions.open_unlisted(self.principal(), &client);
            *sender = Some(Sender { era: Era::Legacy, session, client });
            return Ok(None);
        }
        let meta = params.and_then(|p| p.meta).unwrap_or_default();
        if let Some(version) = meta.protocol_version {
            if version != MODERN {
                return Err(unsupported(&version));
            }
            if meta.client_capabilities.is_none() {
                return Err(Answer::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities"));
            }
            if sender.as_ref().is_none_or(|sender| sender.era != Era::Modern) {
                let client = meta.client_info.map(|info| info.name).unwrap_or_default();
                let session = self.sessions.open_unlisted(self.principal(), &client);
                *sender = Some(Sender { era: Era::Modern, session, client });
            }
        }
        match sender {
            Some(sender) => Ok(Some(sender.clone())),
            None => Err(Answer::Error {
                code: -32600,
                message: format!("send `initialize` first, or `_meta` with protocol version {MODERN}"),
                data: None,
            }),
        }
    }
}

/// PRO-4.
pub(crate) fn unsupported(requested: &str) -> Answer {
    let data =
        serde_json::json!({"supported": SUPPORTED, "requested": portcullis_core::error::one_line(requested)});
    Answer::Error { code: -32022, message: "unsupported protocol version".into(), data: Some(data) }
}

async fn write_lines(
    mut output: impl AsyncWrite + Unpin,
    mut outbox: mpsc::UnboundedReceiver<Vec<u8>>,
) -> std::io::Result<()> {
    let mut batch = Vec::new();
    while outbox.recv_many(&mut batch, 64).await > 0 {
        let mut text = Vec::with_capacity(batch.iter().map(|reply: &Vec<u8>| reply.len() + 1).sum());
        for reply in batch.drain(..) {
            text.extend_from_slice(&reply);
            text.push(b'\n');
        }
        output.write_all(&text).await?;
        output.flush().await?;
    }
    Ok(())
}

fn lock(in_flight: &InFlight) -> std::sync::MutexGuard<'_, HashMap<String, Canceller>> {
    in_flight.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
