//! MCP over stdin and stdout: one message a line, and nothing else on stdout (PRO-30).

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::batch::is_batch;
use super::outlet::Outlet;
use super::questions::Abilities;
use super::{Answer, Edge, Era, MODERN, Params, Revision, Sender};

/// Longest line taken from a client.
const MAX_LINE: usize = 4 << 20;

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
                self.take_line(message, &mut sender, &mut calls, &replies);
            }
            while calls.try_join_next().is_some() {}
        }
        while calls.join_next().await.is_some() {}
        drop(replies);
        writer.await.map_err(std::io::Error::other)?
    }

    fn take_line(
        self: &Arc<Self>,
        message: Bytes,
        sender: &mut Option<Sender>,
        calls: &mut JoinSet<()>,
        replies: &mpsc::UnboundedSender<Vec<u8>>,
    ) {
        if is_batch(&message) {
            return self.take_batch_line(message, sender.clone(), calls, replies);
        }
        let Some(parsed) = Message::read(&message) else {
            let (code, text) = match serde_json::from_slice::<serde::de::IgnoredAny>(&message) {
                Ok(_) => (-32600, "not a JSON-RPC request"),
                Err(_) => (-32700, "not valid JSON"),
            };
            let _ = replies.send(error_response::<()>(None, code, text, None));
            return;
        };
        match parsed.kind() {
            Kind::Request { id, method } => {
                let answer = match self.recognise(method, parsed.params, sender) {
                    Ok(Recognised::Request(sender)) => match sender.conversation.begin(id.get()) {
                        Some((under_way, cancel)) => {
                            let (edge, replies, message) = (self.clone(), replies.clone(), message.clone());
                            calls.spawn(async move {
                                let outlet = Outlet::Lines(replies.clone());
                                let reply = edge.run(sender, &message, outlet, cancel).await;
                                drop(under_way);
                                let _ = replies.send(reply);
                            });
                            return;
                        }
                        None => Answer::id_in_use(),
                    },
                    Ok(Recognised::Initialize(revision)) => Answer::Result(self.initialize(revision)),
                    Err(answer) => answer,
                };
                let _ = replies.send(answer.into_response(id));
            }
            Kind::Notification { method } => {
                if let Some(sender) = sender {
                    self.notified(&sender.conversation, method, parsed.params);
                }
            }
            Kind::Response { id, outcome } => {
                if let Some(sender) = sender {
                    sender.conversation.owed().answered(id, outcome);
                }
            }
            Kind::Invalid => {
                let _ =
                    replies.send(error_response::<()>(parsed.id, -32600, "not a JSON-RPC 2.0 message", None));
            }
        }
    }

    fn take_batch_line(
        self: &Arc<Self>,
        message: Bytes,
        sender: Option<Sender>,
        calls: &mut JoinSet<()>,
        replies: &mpsc::UnboundedSender<Vec<u8>>,
    ) {
        let Some(sender) = sender else {
            let text = "batches exist in sessions of protocol revision 2025-03-26 only";
            let _ = replies.send(error_response::<()>(None, -32600, text, None));
            return;
        };
        let (edge, replies) = (self.clone(), replies.clone());
        calls.spawn(async move {
            if let Ok(Some(reply)) | Err(reply) = edge.batch(&sender, &message).await {
                let _ = replies.send(reply);
            }
        });
    }

    /// Who sends this request: the connection's era is that of its first message.
    fn recognise(
        &self,
        method: &str,
        params: Option<&RawValue>,
        sender: &mut Option<Sender>,
    ) -> Result<Recognised, Answer> {
        let params = params.and_then(|raw| Params::read(raw).ok());
        let meta = params.as_ref().and_then(|params| params.meta.as_ref());
        let version = meta.and_then(|meta| meta.protocol_version.as_deref());
        if method == "initialize" {
            if version.is_some() {
                return Err(Answer::unknown_method(method));
            }
            let asked = params.as_ref().and_then(|p| p.protocol_version.as_deref());
            let revision = Revision::agree(asked.unwrap_or_default());
            let abilities = Abilities::read(params.as_ref().and_then(|p| p.capabilities));
            let client = params.and_then(|p| p.client_info).map(|info| info.name).unwrap_or_default();
            let conversation = self.sessions.open_unlisted(self.principal(), &client, revision, abilities);
            *sender = Some(Sender::new(conversation));
            return Ok(Recognised::Initialize(revision));
        }
        if let Some(version) = version {
            if version != MODERN.as_str() {
                return Err(Answer::unsupported_version(version));
            }
            if meta.is_none_or(|meta| meta.client_capabilities.is_none()) {
                return Err(Answer::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities"));
            }
            if sender.as_ref().is_none_or(|sender| sender.era() != Era::Modern) {
                let info = params.and_then(|params| params.meta).and_then(|meta| meta.client_info);
                let client = info.map(|info| info.name).unwrap_or_default();
                let conversation =
                    self.sessions.open_unlisted(self.principal(), &client, MODERN, Abilities::default());
                *sender = Some(Sender::new(conversation));
            }
        } else if sender.as_ref().is_some_and(|sender| sender.era() == Era::Modern) {
            // PRO-61: in the modern era every request says which revision it speaks.
            return Err(Answer::invalid_params("_meta needs io.modelcontextprotocol/protocolVersion"));
        }
        match sender {
            Some(sender) => Ok(Recognised::Request(sender.clone())),
            None => Err(Answer::Error {
                code: -32600,
                message: format!("send `initialize` first, or `_meta` with protocol version {MODERN}"),
                data: None,
            }),
        }
    }
}

/// What a request on stdio is.
enum Recognised {
    /// Opens a legacy conversation.
    Initialize(Revision),
    /// Part of one, or a modern one.
    Request(Sender),
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
