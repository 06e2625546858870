//! MCP over streamable HTTP: one POST, one answer (PRO-31).
//!
//! Plain hyper, no framework: a request is read, its envelope looked at, and the answer written; nothing else
//! runs in between. Requests that could come from a web page on another site are refused before they are read
//! (PRO-32).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use portcullis_audit::Health;
use portcullis_core::Principal;
use portcullis_core::jsonrpc::{Kind, Message, error_response};
use portcullis_governance::boundary::{CancellationSignal, Canceller};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::stdio::unsupported;
use super::{Answer, Asked, Edge, Era, MODERN, Params, Sender};
use crate::access::{Refusal, WELL_KNOWN};
use crate::control::told_to_stop;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// What the HTTP edge allows.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Largest request body.
    pub body: usize,
    /// Largest set of headers.
    pub headers: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
    /// `Origin` values allowed besides loopback ones.
    pub origins: Vec<String>,
    /// `Host` values allowed besides the listener's own and loopback ones.
    pub hosts: Vec<String>,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            headers: 32 << 10,
            read_timeout: Duration::from_secs(30),
            origins: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

type Reply = Response<Full<Bytes>>;

/// Cancels a modern call whose client has gone: a closed response stream is a cancellation (PRO-67).
struct CancelOnDrop(Option<Canceller>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(canceller) = self.0.take() {
            canceller.cancel();
        }
    }
}

impl Edge {
    /// Serves until `stop` turns true; then takes no more connections and finishes the requests under way.
    pub async fn serve_http(
        self: Arc<Self>,
        listener: TcpListener,
        limits: HttpLimits,
        mut stop: watch::Receiver<bool>,
    ) {
        let Ok(local) = listener.local_addr() else { return };
        let limits = Arc::new(limits);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    // Out of descriptors, or the peer is gone already: the listener itself is fine.
                    Err(_) => { tokio::time::sleep(Duration::from_millis(20)).await; continue }
                },
                () = told_to_stop(&mut stop) => break,
            };
            let _ = stream.set_nodelay(true);
            let (edge, limits, mut stop) = (self.clone(), limits.clone(), stop.clone());
            connections.spawn(async move {
                let service = hyper::service::service_fn(|request| {
                    let (edge, limits) = (edge.clone(), limits.clone());
                    async move { Ok::<_, Infallible>(edge.handle(request, local, &limits).await) }
                });
                let mut builder = hyper::server::conn::http1::Builder::new();
                builder
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits.read_timeout)
                    .max_buf_size(limits.headers.max(16 << 10));
                let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = told_to_stop(&mut stop) => {
                        connection.as_mut().graceful_shutdown();
                        let _ = connection.await;
                    }
                }
            });
            while connections.try_join_next().is_some() {}
        }
        while connections.join_next().await.is_some() {}
    }

    async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        local: SocketAddr,
        limits: &HttpLimits,
    ) -> Reply {
        if let Some(refusal) = foreign(request.headers(), local, limits) {
            return refusal;
        }
        let path = request.uri().path();
        if path == "/mcp" {
            return match self.access.admit(request.headers()).await {
                Ok(caller) => self.mcp(request, &caller.principal, limits).await,
                Err(refusal) => self.unauthorised(refusal),
            };
        }
        match *request.method() {
            Method::GET if path == "/health" => self.health_page(),
            Method::GET if matches!(path.strip_prefix(WELL_KNOWN), Some("" | "/mcp")) => {
                match self.access.metadata() {
                    Some(document) => rpc(StatusCode::OK, document.to_string().into_bytes()),
                    None => plain(StatusCode::NOT_FOUND, "not found; no token issuer is configured"),
                }
            }
            _ => plain(StatusCode::NOT_FOUND, "not found; the MCP endpoint is /mcp"),
        }
    }

    /// 401 asks for a credential, 403 for a better one (PRO-34).
    fn unauthorised(&self, refusal: Refusal) -> Reply {
        let status = match refusal {
            Refusal::NoCredential | Refusal::InvalidCredential => StatusCode::UNAUTHORIZED,
            Refusal::InsufficientScope => StatusCode::FORBIDDEN,
            Refusal::IssuerUnavailable => StatusCode::SERVICE_UNAVAILABLE,
        };
        let mut reply = plain(status, refusal.message());
        if let Ok(challenge) = HeaderValue::from_str(&self.access.challenge(refusal)) {
            reply.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        reply
    }

    async fn mcp(
        self: &Arc<Self>,
        request: Request<Incoming>,
        principal: &Principal,
        limits: &HttpLimits,
    ) -> Reply {
        match *request.method() {
            Method::POST => self.post(request, principal, limits).await,
            Method::DELETE => self.delete(request.headers(), principal),
            _ => {
                let mut reply = plain(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "this endpoint takes POST; it opens no streams of its own",
                );
                reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, DELETE"));
                reply
            }
        }
    }

    async fn post(
        self: &Arc<Self>,
        request: Request<Incoming>,
        principal: &Principal,
        limits: &HttpLimits,
    ) -> Reply {
        let (head, body) = request.into_parts();
        if !is_json(&head.headers) {
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Content-Type must be application/json");
        }
        if !accepts_json(&head.headers) {
            return plain(StatusCode::NOT_ACCEPTABLE, "Accept must allow application/json");
        }
        let body = tokio::time::timeout(limits.read_timeout, Limited::new(body, limits.body).collect()).await;
        let message = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                return plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large or was cut off");
            }
            Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the request took too long to arrive"),
        };
        let Some(parsed) = Message::read(&message) else {
            let (code, text) = match serde_json::from_slice::<serde::de::IgnoredAny>(&message) {
                Ok(_) => (-32600, "not a JSON-RPC request; batches are not supported"),
                Err(_) => (-32700, "not valid JSON"),
            };
            return rpc(StatusCode::BAD_REQUEST, error_response::<()>(None, code, text, None));
        };
        match parsed.kind() {
            Kind::Request { id, method } => {
                let params = parsed.params.and_then(|raw| Params::read(raw).ok());
                let asked = Asked { id, method, params: parsed.params, message: &message };
                match era(&head.headers, params.as_ref()) {
                    Era::Modern => self.modern(principal, &head.headers, params, asked).await,
                    Era::Legacy => self.legacy(principal, &head.headers, params, asked).await,
                }
            }
            Kind::Notification { .. } | Kind::Response { .. } => plain(StatusCode::ACCEPTED, ""),
            Kind::Invalid => rpc(
                StatusCode::BAD_REQUEST,
                error_response::<()>(parsed.id, -32600, "not a JSON-RPC 2.0 message", None),
            ),
        }
    }

    async fn modern(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        params: Option<Params<'_>>,
        asked: Asked<'_>,
    ) -> Reply {
        let refuse = |status, answer: Answer| rpc(status, answer.into_response(asked.id));
        if asked.method == "initialize" {
            return refuse(StatusCode::NOT_FOUND, Answer::unknown_method(asked.method));
        }
        let meta = params.as_ref().and_then(|p| p.meta.as_ref());
        let Some(version) = meta.and_then(|meta| meta.protocol_version.as_deref()) else {
            let answer = Answer::invalid_params("_meta needs io.modelcontextprotocol/protocolVersion");
            return refuse(StatusCode::BAD_REQUEST, answer);
        };
        if version != MODERN {
            return refuse(StatusCode::BAD_REQUEST, unsupported(version));
        }
        if meta.is_none_or(|meta| meta.client_capabilities.is_none()) {
            let answer = Answer::invalid_params("_meta needs io.modelcontextprotocol/clientCapabilities");
            return refuse(StatusCode::BAD_REQUEST, answer);
        }
        let name = params.as_ref().and_then(|p| p.name.as_deref());
        if let Some(problem) = mismatch(headers, version, asked.method, name) {
            let answer = Answer::Error { code: -32020, message: problem.into(), data: None };
            return refuse(StatusCode::BAD_REQUEST, answer);
        }
        if !matches!(asked.method, "tools/call" | "tools/list" | "server/discover") {
            return refuse(StatusCode::NOT_FOUND, Answer::unknown_method(asked.method));
        }
        let client =
            meta.and_then(|meta| meta.client_info.as_ref()).map(|info| info.name.clone()).unwrap_or_default();
        let Some(session) = self.sessions.modern(principal, &client) else { return busy() };
        let (canceller, cancel) = CancellationSignal::pair();
        let mut guard = CancelOnDrop(Some(canceller));
        let reply = self.run(Sender { era: Era::Modern, session, client }, &asked, cancel).await;
        guard.0 = None;
        rpc(StatusCode::OK, reply)
    }

    async fn legacy(
        self: &Arc<Self>,
        principal: &Principal,
        headers: &HeaderMap,
        params: Option<Params<'_>>,
        asked: Asked<'_>,
    ) -> Reply {
        if asked.method == "initialize" {
            return self.open_session(principal, params, &asked);
        }
        let Some(id) = headers.get(SESSION).and_then(|value| value.to_str().ok()) else {
            return plain(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing; send `initialize` first");
        };
        let Some((session, client)) = self.sessions.legacy(id, principal) else {
            return plain(
                StatusCode::NOT_FOUND,
                "the session is unknown or has ended; send `initialize` again",
            );
        };
        // A legacy disconnect is not a cancellation (PRO-67): the call goes on.
        let (_canceller, cancel) = CancellationSignal::pair();
        let reply = self.run(Sender { era: Era::Legacy, session, client }, &asked, cancel).await;
        rpc(StatusCode::OK, reply)
    }

    /// In a task of its own: when the client goes, hyper drops this future, but a call whose intent is durable
    /// must still be settled.
    async fn run(self: &Arc<Self>, sender: Sender, asked: &Asked<'_>, cancel: CancellationSignal) -> Vec<u8> {
        if asked.method != "tools/call" {
            let asked =
                Asked { id: asked.id, method: asked.method, params: asked.params, message: asked.message };
            return self.answer(&sender, asked, cancel).await;
        }
        let (edge, message) = (self.clone(), asked.message.clone());
        let task = tokio::spawn(async move {
            let parsed = Message::read(&message)?;
            let (id, method) = (parsed.id?, parsed.method.as_deref()?);
            let asked = Asked { id, method, params: parsed.params, message: &message };
            Some(edge.answer(&sender, asked, cancel).await)
        });
        match task.await {
            Ok(Some(reply)) => reply,
            // The hook has recorded the panic; the client learns that it was our fault, and nothing else.
            _ => error_response::<()>(Some(asked.id), -32603, "internal error", None),
        }
    }

    fn open_session(&self, principal: &Principal, params: Option<Params<'_>>, asked: &Asked<'_>) -> Reply {
        let Some(params) = params else {
            let answer = Answer::invalid_params(
                "initialize takes an object with protocolVersion, capabilities, clientInfo",
            );
            return rpc(StatusCode::OK, answer.into_response(asked.id));
        };
        let client = params.client_info.map(|info| info.name).unwrap_or_default();
        let Some((id, _)) = self.sessions.open_legacy(principal, &client) else { return busy() };
        let (_, result) = self.initialize(params.protocol_version.as_deref().unwrap_or_default());
        let mut reply = rpc(StatusCode::OK, Answer::Result(result).into_response(asked.id));
        let id = HeaderValue::from_str(&id).expect("hexadecimal digits");
        reply.headers_mut().insert(SESSION, id);
        reply
    }

    fn delete(&self, headers: &HeaderMap, principal: &Principal) -> Reply {
        let id = headers.get(SESSION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if self.sessions.end_legacy(id, principal) {
            plain(StatusCode::NO_CONTENT, "")
        } else {
            plain(StatusCode::NOT_FOUND, "the session is unknown or has ended")
        }
    }

    /// AUD-64.
    fn health_page(&self) -> Reply {
        match self.health() {
            Health::Ok => rpc(StatusCode::OK, json!({"status": "ok"}).to_string().into_bytes()),
            Health::Blocked { .. } => {
                let page = json!({"status": "blocked", "reason": "audit_persistence"});
                rpc(StatusCode::SERVICE_UNAVAILABLE, page.to_string().into_bytes())
            }
        }
    }
}

fn era(headers: &HeaderMap, params: Option<&Params<'_>>) -> Era {
    let in_body = params.and_then(|p| p.meta.as_ref()).is_some_and(|meta| meta.protocol_version.is_some());
    let in_header = headers.get(VERSION).is_some_and(|version| version == MODERN);
    if in_body || in_header { Era::Modern } else { Era::Legacy }
}

/// Headers and body of a modern request must say the same (-32020).
fn mismatch(headers: &HeaderMap, version: &str, method: &str, name: Option<&str>) -> Option<&'static str> {
    let says = |header: &str| headers.get(header).map(HeaderValue::as_bytes);
    if says(VERSION) != Some(version.as_bytes()) {
        return Some("MCP-Protocol-Version is missing or differs from the body");
    }
    if says(METHOD) != Some(method.as_bytes()) {
        return Some("Mcp-Method is missing or differs from the body");
    }
    if method == "tools/call" && says(NAME) != name.map(str::as_bytes) {
        return Some("Mcp-Name is missing or differs from the body");
    }
    None
}

/// DNS rebinding: a browser page on another site sends its own `Origin`, or reaches us under its own `Host`.
fn foreign(headers: &HeaderMap, local: SocketAddr, limits: &HttpLimits) -> Option<Reply> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("\u{0}"));
    if let Some(origin) = text(header::ORIGIN) {
        let loopback =
            url::Url::parse(origin).is_ok_and(|url| is_loopback(url.host_str().unwrap_or_default()));
        if !loopback && !limits.origins.iter().any(|allowed| allowed == origin) {
            return Some(plain(StatusCode::FORBIDDEN, "this Origin is not allowed"));
        }
    }
    let host = text(header::HOST).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let ours = is_loopback(name)
        || (!local.ip().is_unspecified() && name == local.ip().to_string())
        || limits.hosts.iter().any(|allowed| allowed == name);
    if ours { None } else { Some(plain(StatusCode::FORBIDDEN, "this Host is not ours")) }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn accepts_json(headers: &HeaderMap) -> bool {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else { return true };
    accept.split(',').any(|kind| {
        matches!(
            kind.split(';').next().unwrap_or_default().trim(),
            "application/json" | "application/*" | "*/*"
        )
    })
}

fn busy() -> Reply {
    plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions")
}

fn rpc(status: StatusCode, body: Vec<u8>) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn plain(status: StatusCode, text: &str) -> Reply {
    let body = if text.is_empty() { Vec::new() } else { json!({"error": text}).to_string().into_bytes() };
    rpc(status, body)
}
