//! A client whose messages and answers share one stream each: over stdio, and over HTTP as 2024-11-05 had it.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::Principal;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::batch::is_batch;
use super::conversation::Conversation;
use super::news::{News, Topic, notification};
use super::outlet::Outlet;
use super::questions::Abilities;
use super::{Answer, Edge, Era, MODERN, Params, Revision, Sender};
use crate::exposure::Mode;
use crate::surface::Listener;

/// One such client.
#[derive(Debug)]
pub(crate) struct Lines {
    principal: Principal,
    /// Where it came in.
    listener: Listener,
    /// What whoever opened the connection chose to see.
    mode: Option<Mode>,
    sender: Option<Sender>,
    calls: JoinSet<()>,
    /// Tells the client what it did not ask; ended with the client.
    news: JoinSet<()>,
    replies: mpsc::UnboundedSender<Vec<u8>>,
}

/// What a request is.
enum Recognised {
    /// Opens a legacy conversation.
    Initialize(Revision, Sender, Mode),
    /// Part of one, or a modern one.
    Request(Sender),
}

impl Lines {
    /// A client that has said nothing yet; everything for it goes into `replies`.
    pub(crate) fn new(
        principal: Principal,
        listener: Listener,
        replies: mpsc::UnboundedSender<Vec<u8>>,
    ) -> Self {
        let (calls, news) = (JoinSet::new(), JoinSet::new());
        Self { principal, listener, mode: None, sender: None, calls, news, replies }
    }

    /// The same, seeing what it chose to see.
    pub(crate) fn showing(self, mode: Option<Mode>) -> Self {
        Self { mode, ..self }
    }

    /// The client has gone: what lasts for ever ends, and calls under way are finished.
    pub(crate) async fn end(mut self) {
        if let Some(sender) = &self.sender {
            sender.conversation.hang_up();
        }
        self.news.shutdown().await;
        while self.calls.join_next().await.is_some() {}
    }

    /// A message that cannot be one.
    pub(crate) fn refuse(&self, code: i32, text: &str) {
        self.reply(error_response::<()>(None, code, text, None));
    }

    fn reply(&self, text: Vec<u8>) {
        let _ = self.replies.send(text);
    }

    /// Takes one message.
    pub(crate) fn take(&mut self, edge: &Arc<Edge>, message: Bytes) {
        while self.calls.try_join_next().is_some() {}
        if is_batch(&message) {
            return self.take_batch(edge, message);
        }
        let Some(parsed) = Message::read(&message) else {
            return match serde_json::from_slice::<serde::de::IgnoredAny>(&message) {
                Ok(_) => self.refuse(-32600, "not a JSON-RPC request"),
                Err(_) => self.refuse(-32700, "not valid JSON"),
            };
        };
        match parsed.kind() {
            Kind::Request { id, method } => {
                let answer = match self.recognise(edge, method, parsed.params) {
                    Ok(Recognised::Request(sender)) => match sender.conversation.begin(id.get()) {
                        Some((under_way, cancel)) => {
                            let (edge, replies, message) =
                                (edge.clone(), self.replies.clone(), message.clone());
                            self.calls.spawn(async move {
                                let outlet = Outlet::Lines(replies.clone());
                                let reply = edge.run(sender, &message, outlet, cancel).await;
                                drop(under_way);
                                let _ = replies.send(reply.text);
                            });
                            return;
                        }
                        None => Answer::id_in_use(),
                    },
                    Ok(Recognised::Initialize(revision, sender, mode)) => {
                        Answer::Result(edge.initialize(revision, &sender, mode))
                    }
                    Err(answer) => answer,
                };
                self.reply(answer.into_response(id));
            }
            Kind::Notification { method } => {
                if let Some(sender) = &self.sender {
                    edge.notified(&sender.conversation, method, parsed.params);
                    if method == "notifications/initialized" && self.news.is_empty() {
                        self.news.spawn(tell(edge, &sender.conversation, self.replies.clone()));
                    }
                }
            }
            Kind::Response { id, outcome } => {
                if let Some(sender) = &self.sender {
                    sender.conversation.owed().answered(id, outcome);
                }
            }
            Kind::Invalid => {
                self.reply(error_response::<()>(parsed.id, -32600, "not a JSON-RPC 2.0 message", None));
            }
        }
    }

    fn take_batch(&mut self, edge: &Arc<Edge>, message: Bytes) {
        let Some(sender) = self.sender.clone() else {
            return self.refuse(-32600, "batches exist in sessions of protocol revision 2025-03-26 only");
        };
        let (edge, replies) = (edge.clone(), self.replies.clone());
        self.calls.spawn(async move {
            if let Ok(Some(reply)) | Err(reply) = edge.batch(&sender, &message).await {
                let _ = replies.send(reply);
            }
        });
    }

    /// Who sends this request: the era is that of the first message.
    fn recognise(
        &mut self,
        edge: &Edge,
        method: &str,
        params: Option<&RawValue>,
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
            let conversation =
                edge.sessions.open_unlisted(&self.principal, &client, (revision, abilities), self.listener);
            let opened = Sender::new(conversation).showing(self.mode);
            let mode = edge.mode(&opened);
            self.sender = Some(opened.clone());
            return Ok(Recognised::Initialize(revision, opened, mode));
        }
        if let Some(version) = version {
            if version != MODERN.as_str() {
                return Err(Answer::unsupported_version(version));
            }
            if meta.is_none_or(|meta| meta.client_capabilities.is_none()) {
                return Err(Answer::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities"));
            }
            if self.sender.as_ref().is_none_or(|sender| sender.era() != Era::Modern) {
                let info = params.and_then(|params| params.meta).and_then(|meta| meta.client_info);
                let client = info.map(|info| info.name).unwrap_or_default();
                let conversation = edge.sessions.open_unlisted(
                    &self.principal,
                    &client,
                    (MODERN, Abilities::default()),
                    self.listener,
                );
                self.sender = Some(Sender::new(conversation).showing(self.mode));
            }
        } else if self.sender.as_ref().is_some_and(|sender| sender.era() == Era::Modern) {
            // PRO-61: in the modern era every request says which revision it speaks.
            return Err(Answer::invalid_params("_meta needs io.modelcontextprotocol/protocolVersion"));
        }
        match &self.sender {
            Some(sender) => Ok(Recognised::Request(sender.clone())),
            None => Err(Answer::Error {
                code: -32600,
                message: format!("send `initialize` first, or `_meta` with protocol version {MODERN}"),
                data: None,
            }),
        }
    }
}

/// Announces changed lists to a legacy client, which need not ask for it, and changed resources that it follows.
fn tell(
    edge: &Edge,
    conversation: &Arc<Conversation>,
    replies: mpsc::UnboundedSender<Vec<u8>>,
) -> impl Future<Output = ()> + use<> {
    let reader = edge.reader(&Sender::new(conversation.clone()));
    let mut news = News::new(edge.world.clone(), reader, &Topic::ALL, conversation.inbox().clone());
    async move {
        loop {
            for (method, params) in news.next().await {
                if replies.send(notification(method, params, None)).is_err() {
                    return;
                }
            }
        }
    }
}
