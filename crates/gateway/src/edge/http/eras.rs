//! The two manners of a POST: a modern request stands alone, a legacy one belongs to a session.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use portcullis_core::Principal;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use portcullis_governance::boundary::{CancellationSignal, Canceller};

use super::headers::{SESSION, VERSION, decoded, mismatch};
use super::{Reply, busy, plain, rpc};
use crate::edge::batch::is_batch;
use crate::edge::conversation::{Conversation, UnderWay};
use crate::edge::questions::Abilities;
use crate::edge::{Answer, Edge, Era, MODERN, Params, Revision, Sender};
use crate::exposure::Mode;

/// What holds while a request is answered.
pub(super) enum Hold {
    /// A closed response is a cancellation (PRO-67).
    Modern(CancelOnDrop),
    /// It is not: the call goes on, and its id stays in use.
    Legacy(#[allow(dead_code, reason = "held for its end")] UnderWay),
}

/// Cancels a modern call whose client has gone.
pub(super) struct CancelOnDrop(Option<Canceller>);

impl CancelOnDrop {
    /// The call is over; there is nothing to cancel any more.
    pub(super) fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(canceller) = self.0.take() {
            canceller.cancel();
        }
    }
}

impl Edge {
    /// One POST, whatever it holds.
    pub(super) async fn take(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        message: Bytes,
        mode: Option<Mode>,
    ) -> Reply {
        if is_batch(&message) {
            return self.take_batch(principal, headers, &message).await;
        }
        let Some(parsed) = Message::read(&message) else {
            let (code, text) = match serde_json::from_slice::<serde::de::IgnoredAny>(&message) {
                Ok(_) => (-32600, "not a JSON-RPC request"),
                Err(_) => (-32700, "not valid JSON"),
            };
            return rpc(StatusCode::BAD_REQUEST, error_response::<()>(None, code, text, None));
        };
        match parsed.kind() {
            Kind::Request { id, method } => {
                let params = parsed.params.and_then(|raw| Params::read(raw).ok());
                let respond = |answer: Answer| answer.into_response(id);
                match era(headers, method, params.as_ref()) {
                    Era::Modern => {
                        self.modern(principal, headers, method, params, &message, mode, respond).await
                    }
                    Era::Legacy if method == "initialize" => {
                        self.open_session(principal, params, mode, respond)
                    }
                    Era::Legacy => self.legacy(principal, headers, id.get(), &message, respond).await,
                }
            }
            Kind::Notification { method } => {
                match self.conversation(principal, headers) {
                    Ok(conversation) => self.notified(&conversation, method, parsed.params),
                    Err(_) if headers.get(SESSION).is_none() => {
                        self.notified_alone(principal, method, parsed.params);
                    }
                    Err(_) => {}
                }
                plain(StatusCode::ACCEPTED, "")
            }
            Kind::Response { id, outcome } => {
                if let Ok(conversation) = self.conversation(principal, headers) {
                    conversation.owed().answered(id, outcome);
                }
                plain(StatusCode::ACCEPTED, "")
            }
            Kind::Invalid => rpc(
                StatusCode::BAD_REQUEST,
                error_response::<()>(parsed.id, -32600, "not a JSON-RPC 2.0 message", None),
            ),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one request")]
    async fn modern(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        method: &str,
        params: Option<Params<'_>>,
        message: &Bytes,
        mode: Option<Mode>,
        respond: impl Fn(Answer) -> Vec<u8>,
    ) -> Reply {
        let refuse = |status, answer: Answer| rpc(status, respond(answer));
        if method == "initialize" {
            return refuse(StatusCode::NOT_FOUND, Answer::unknown_method(method));
        }
        let meta = params.as_ref().and_then(|p| p.meta.as_ref());
        let Some(version) = meta.and_then(|meta| meta.protocol_version.as_deref()) else {
            let answer = Answer::invalid_params("_meta needs io.modelcontextprotocol/protocolVersion");
            return refuse(StatusCode::BAD_REQUEST, answer);
        };
        let header_mismatch =
            |problem: &str| Answer::Error { code: -32020, message: problem.into(), data: None };
        // Which of two versions is meant cannot be told, so neither is judged.
        if headers.get(VERSION).is_some_and(|header| header.as_bytes() != version.as_bytes()) {
            let answer = header_mismatch("MCP-Protocol-Version differs from the body");
            return refuse(StatusCode::BAD_REQUEST, answer);
        }
        if version != MODERN.as_str() {
            return refuse(StatusCode::BAD_REQUEST, Answer::unsupported_version(version));
        }
        if meta.is_none_or(|meta| meta.client_capabilities.is_none()) {
            let answer = Answer::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities");
            return refuse(StatusCode::BAD_REQUEST, answer);
        }
        if let Some(problem) = mismatch(headers, version, method, params.as_ref()) {
            return refuse(StatusCode::BAD_REQUEST, header_mismatch(problem));
        }
        if method == "tools/call" && !self.mirrors(headers, params.as_ref()) {
            let answer = header_mismatch("an Mcp-Param header is missing or differs from the arguments");
            return refuse(StatusCode::BAD_REQUEST, answer);
        }
        if !self.offers(method, MODERN) {
            return refuse(StatusCode::NOT_FOUND, Answer::unknown_method(method));
        }
        let client =
            meta.and_then(|meta| meta.client_info.as_ref()).map(|info| info.name.clone()).unwrap_or_default();
        let Some(conversation) = self.sessions.modern(principal, &client) else { return busy() };
        let (canceller, cancel) = CancellationSignal::pair();
        let hold = Hold::Modern(CancelOnDrop(Some(canceller)));
        self.respond(Sender::new(conversation).showing(mode), headers, message, cancel, hold).await
    }

    /// Whether headers say of a call's arguments what the arguments say, where the tool wants them repeated.
    fn mirrors(&self, headers: &HeaderMap, params: Option<&Params<'_>>) -> bool {
        let Some(params) = params else { return true };
        let world = self.world.load();
        let Some(entry) = params.name.as_deref().and_then(|name| world.registry().tool(name)) else {
            return true;
        };
        if entry.tool.mirrored().is_empty() {
            return true;
        }
        let arguments = params.arguments.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let arguments: serde_json::Value = arguments.unwrap_or_default();
        entry.tool.mirrored().iter().all(|one| match headers.get(one.header()) {
            None => one.agrees(&arguments, None),
            Some(value) => decoded(value).is_some_and(|said| one.agrees(&arguments, Some(&said))),
        })
    }

    async fn legacy(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        id: &str,
        message: &Bytes,
        respond: impl Fn(Answer) -> Vec<u8>,
    ) -> Reply {
        let conversation = match self.conversation(principal, headers) {
            Ok(conversation) => conversation,
            Err(refusal) => return refusal,
        };
        // A legacy disconnect is not a cancellation (PRO-67): the call goes on.
        let Some((under_way, cancel)) = conversation.begin(id) else {
            return rpc(StatusCode::BAD_REQUEST, respond(Answer::id_in_use()));
        };
        self.respond(Sender::new(conversation), headers, message, cancel, Hold::Legacy(under_way)).await
    }

    async fn take_batch(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        message: &Bytes,
    ) -> Reply {
        let conversation = match self.conversation(principal, headers) {
            Ok(conversation) => conversation,
            Err(_) => {
                let text = "batches exist in sessions of protocol revision 2025-03-26 only";
                let code = if serde_json::from_slice::<serde::de::IgnoredAny>(message).is_ok() {
                    -32600
                } else {
                    -32700
                };
                return rpc(StatusCode::BAD_REQUEST, error_response::<()>(None, code, text, None));
            }
        };
        match self.batch(&Sender::new(conversation), message).await {
            Ok(Some(answers)) => rpc(StatusCode::OK, answers),
            Ok(None) => plain(StatusCode::ACCEPTED, ""),
            Err(refusal) => rpc(StatusCode::BAD_REQUEST, refusal),
        }
    }

    /// The legacy session that a request names. A missing version header is accepted (PRO-60), a wrong one is not.
    pub(super) fn conversation(
        &self,
        principal: &Principal,
        headers: &HeaderMap,
    ) -> Result<Arc<Conversation>, Reply> {
        let Some(id) = headers.get(SESSION).and_then(|id| id.to_str().ok()) else {
            let message = format!(
                "send `initialize` first, or `_meta` with protocol version {MODERN}; then Mcp-Session-Id"
            );
            return Err(plain(StatusCode::BAD_REQUEST, &message));
        };
        let version = headers.get(VERSION).map(|version| version.to_str().unwrap_or_default());
        if version.is_some_and(|version| Revision::named(version).is_none()) {
            return Err(plain(StatusCode::BAD_REQUEST, "MCP-Protocol-Version is not one that is known here"));
        }
        self.sessions.legacy(id, principal).ok_or_else(|| {
            plain(StatusCode::NOT_FOUND, "the session is unknown or has ended; send `initialize` again")
        })
    }

    fn open_session(
        &self,
        principal: &Principal,
        params: Option<Params<'_>>,
        mode: Option<Mode>,
        respond: impl Fn(Answer) -> Vec<u8>,
    ) -> Reply {
        let Some(params) = params else {
            let answer = Answer::invalid_params(
                "initialize takes an object with protocolVersion, capabilities, clientInfo",
            );
            return rpc(StatusCode::OK, respond(answer));
        };
        let abilities = Abilities::read(params.capabilities);
        let client = params.client_info.map(|info| info.name).unwrap_or_default();
        let revision = Revision::agree(params.protocol_version.as_deref().unwrap_or_default());
        let Some((id, conversation)) = self.sessions.open_legacy(principal, &client, revision, abilities)
        else {
            return busy();
        };
        let sender = Sender::new(conversation).showing(mode);
        let mode = self.mode(&sender);
        let answer = Answer::Result(self.initialize(revision, &sender, mode));
        let mut reply = rpc(StatusCode::OK, respond(answer));
        let id = HeaderValue::from_str(&id).expect("hexadecimal digits");
        reply.headers_mut().insert(SESSION, id);
        reply
    }
}

/// PRO-1: by what the request says, never by configuration. An `initialize` that asks for a legacy revision is a
/// legacy one whatever its headers are (PRO-60: one client in the field sends modern ones along).
fn era(headers: &HeaderMap, method: &str, params: Option<&Params<'_>>) -> Era {
    let in_body = params.and_then(|p| p.meta.as_ref()).is_some_and(|meta| meta.protocol_version.is_some());
    let in_header = headers.get(VERSION).is_some_and(|version| version == MODERN.as_str());
    let legacy_initialize = method == "initialize"
        && params
            .and_then(|p| Revision::named(p.protocol_version.as_deref()?))
            .is_some_and(|revision| revision.era() == Era::Legacy);
    if in_body || (in_header && !legacy_initialize) { Era::Modern } else { Era::Legacy }
}
