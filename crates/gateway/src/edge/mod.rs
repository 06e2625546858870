//! MCP towards agents: both eras, over stdio and streamable HTTP.
//!
//! A transport finds out who is talking ([`http`], [`stdio`]) and hands single messages to the [`Edge`], which
//! knows the protocol but no transport. The era of a client is decided by what it sends, never by configuration
//! (PRO-1): per connection on stdio, per request on HTTP.

pub mod http;
mod params;
pub mod sessions;
pub mod stdio;

use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::Principal;
use portcullis_core::error::ErrorDocument;
use portcullis_core::jsonrpc::{error_response, result_response};
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::session::Session;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::access::Access;
use crate::lifecycle::{Call, Lifecycle, Response};
use crate::result;
use crate::world::WorldCell;
pub(crate) use params::Params;

/// The revision of the modern era.
pub const MODERN: &str = "2026-07-28";
/// The newest revision of the legacy era.
pub const NEWEST_LEGACY: &str = "2025-11-25";
/// All revisions a client may speak, newest first.
pub const SUPPORTED: [&str; 5] = [MODERN, NEWEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

const INSTRUCTIONS: &str = "Every tool here is governed by Portcullis: calls are checked against declared schemas and \
scopes, may need an operator's approval, and are recorded. If a call answers AUTH_REQUIRED, tell the user the approval \
id and call again with exactly the same arguments once it is granted; never change arguments to get around a refusal.";

/// Which era a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    /// 2024-11-05 to 2025-11-25: `initialize`, sessions.
    Legacy,
    /// 2026-07-28: every request stands alone.
    Modern,
}

/// Who sends a message, as far as its transport knows.
#[derive(Debug, Clone)]
pub(crate) struct Sender {
    pub(crate) era: Era,
    pub(crate) session: Arc<Session>,
    /// What the client calls itself.
    pub(crate) client: String,
}

/// A request taken out of its envelope.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) id: &'a RawValue,
    pub(crate) method: &'a str,
    pub(crate) params: Option<&'a RawValue>,
    /// The whole message: evidence.
    pub(crate) message: &'a Bytes,
}

/// The protocol, apart from any transport.
#[derive(Debug)]
pub struct Edge {
    lifecycle: Arc<Lifecycle>,
    world: Arc<WorldCell>,
    version: String,
    principal: Principal,
    pub(crate) access: Access,
    pub(crate) sessions: sessions::Sessions,
}

/// What a method comes to.
pub(crate) enum Answer {
    /// A result, already rendered.
    Result(Bytes),
    /// A JSON-RPC error.
    Error { code: i32, message: String, data: Option<Value> },
}

impl Edge {
    /// An edge in front of `lifecycle`. Agents that prove nothing are `principal`.
    pub(crate) fn new(
        lifecycle: Arc<Lifecycle>,
        access: Access,
        version: String,
        principal: Principal,
    ) -> Self {
        let world = lifecycle.world.clone();
        let sessions = sessions::Sessions::new(lifecycle.log.clone(), lifecycle.clock.clone());
        Self { lifecycle, world, version, principal, access, sessions }
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Whether calls can be taken at all.
    pub fn health(&self) -> portcullis_audit::Health {
        self.lifecycle.log.health()
    }

    /// Answers one request.
    pub(crate) async fn answer(
        &self,
        sender: &Sender,
        asked: Asked<'_>,
        cancel: CancellationSignal,
    ) -> Vec<u8> {
        let answer = match (asked.method, sender.era) {
            ("tools/call", _) => self.call(sender, &asked, cancel).await,
            ("tools/list", era) => self.list(&asked, era),
            ("server/discover", Era::Modern) => Answer::Result(self.discover()),
            ("ping", Era::Legacy) => Answer::Result(Bytes::from_static(b"{}")),
            (method, _) => Answer::unknown_method(method),
        };
        answer.into_response(asked.id)
    }

    async fn call(&self, sender: &Sender, asked: &Asked<'_>, cancel: CancellationSignal) -> Answer {
        let params = match asked.params.map(Params::read) {
            Some(Ok(params)) => params,
            _ => {
                return Answer::invalid_params(
                    "tools/call takes an object with the tool's name and its arguments",
                );
            }
        };
        let Some(name) = params.name else {
            return Answer::invalid_params("tools/call needs the tool's name");
        };
        if params.input_responses.is_some() || params.request_state.is_some() {
            return Answer::invalid_params("no call of this tool is waiting for input");
        }
        let call = Call {
            session: sender.session.clone(),
            client: sender.client.clone(),
            // Whoever is not the anonymous agent has proved it at the edge.
            authenticated: sender.session.principal() != &self.principal,
            message: asked.message.clone(),
            name: name.into_owned(),
            arguments: params.arguments.map(ToOwned::to_owned),
            cancel,
        };
        match self.lifecycle.call(call).await {
            Ok(Response { result, mark }) => {
                Answer::Result(result::for_client(result.json(), sender.era, &mark).into())
            }
            Err(document) => Answer::refusal(&document, sender.era),
        }
    }

    fn list(&self, asked: &Asked<'_>, era: Era) -> Answer {
        let cursor = asked.params.and_then(|raw| Params::read(raw).ok()).and_then(|params| params.cursor);
        if cursor.is_some() {
            // The list has one page, so no cursor is ours.
            return Answer::invalid_params("unknown cursor");
        }
        Answer::Result(self.world.load().tools_list(era).clone())
    }

    fn discover(&self) -> Bytes {
        let result = json!({
            "supportedVersions": SUPPORTED,
            "capabilities": {"tools": {}},
            "instructions": INSTRUCTIONS,
            "resultType": "complete",
            "ttlMs": 60_000,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.server_info()},
        });
        result.to_string().into()
    }

    /// The result of `initialize`: the client's revision if we speak it, else our newest legacy one (PRO-4).
    pub(crate) fn initialize(&self, requested: &str) -> (&'static str, Bytes) {
        let agreed =
            SUPPORTED[1..].iter().find(|version| **version == requested).copied().unwrap_or(NEWEST_LEGACY);
        let result = json!({
            "protocolVersion": agreed,
            "capabilities": {"tools": {"listChanged": false}},
            "serverInfo": self.server_info(),
            "instructions": INSTRUCTIONS,
        });
        (agreed, result.to_string().into())
    }

    fn server_info(&self) -> Value {
        json!({"name": "portcullis", "title": "Portcullis", "version": self.version})
    }
}

impl Answer {
    pub(crate) fn invalid_params(message: &str) -> Self {
        Answer::Error { code: -32602, message: message.into(), data: None }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        let message = format!("method {} is not offered", portcullis_core::name::printable(method));
        Answer::Error { code: -32601, message, data: None }
    }

    /// Governance refusals are JSON-RPC errors; what the tool or its arguments got wrong is a result the model can
    /// read and act on (GOV-1601, CTX-80).
    fn refusal(document: &ErrorDocument, era: Era) -> Self {
        use portcullis_core::ErrorCode::*;
        let for_the_model = document.governed_fault().is_none()
            && matches!(document.error, ArgsInvalid | UpstreamError | ResultTooLarge | SchemaInvalid);
        let data = serde_json::to_value(document).expect("an error document is plain JSON");
        if !for_the_model {
            return Answer::Error {
                code: document.rpc_code(),
                message: document.message.clone(),
                data: Some(data),
            };
        }
        let mut result = json!({"content": [{"type": "text", "text": data.to_string()}], "isError": true});
        if era == Era::Modern {
            result["resultType"] = json!("complete");
        }
        Answer::Result(result.to_string().into())
    }

    pub(crate) fn into_response(self, id: &RawValue) -> Vec<u8> {
        match self {
            Answer::Result(result) => result_response(id, &result),
            Answer::Error { code, message, data } => error_response(Some(id), code, &message, data.as_ref()),
        }
    }
}
