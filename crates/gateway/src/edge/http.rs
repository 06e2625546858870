//! MCP over streamable HTTP: one POST, one answer (PRO-31); and as 2024-11-05 had it, a stream and an address to post to.
//!
//! Plain hyper, no framework: a request is read, its envelope looked at, and the answer written; nothing else
//! runs in between. Requests that could come from a web page on another site are refused before they are read
//! (PRO-32).

mod body;
mod deliveries;
mod eras;
mod headers;
mod old_clients;
mod patience;
mod places;
mod respond;
mod resumable;
mod standing;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use portcullis_audit::Health;
use portcullis_core::Principal;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Edge;
use crate::access::{Refusal, WELL_KNOWN};
use crate::alarms::AlarmKind;
use crate::control::told_to_stop;
use crate::exposure::Mode;
use headers::{SESSION, accepts, foreign, is_json};
pub(crate) use old_clients::OldClients;
use patience::{Pulse, Watched};
pub(crate) use places::Places;
pub(crate) use resumable::Streams;

/// What the HTTP edge allows.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Largest request body.
    pub body: usize,
    /// Largest set of headers.
    pub headers: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
    /// How long a connection may be kept without a request.
    pub idle_timeout: Duration,
    /// How many streams one agent may have open at once.
    pub streams: usize,
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
            idle_timeout: Duration::from_secs(10 * 60),
            streams: 64,
            origins: Vec::new(),
            hosts: Vec::new(),
        }
    }
}

type Reply = Response<body::Body>;

impl Edge {
    /// Serves until `stop` turns true; then takes no more connections and finishes the requests under way.
    pub async fn serve_http(
        self: Arc<Self>,
        listener: TcpListener,
        limits: HttpLimits,
        mut stop: watch::Receiver<bool>,
    ) {
        let Ok(local) = listener.local_addr() else { return };
        self.places.set_most(limits.streams);
        let limits = Arc::new(limits);
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let stream = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        self.access.users().connected_from(peer, local);
                        stream
                    }
                    // Out of descriptors, or the peer is gone already: the listener itself is fine.
                    Err(_) => { tokio::time::sleep(Duration::from_millis(20)).await; continue }
                },
                () = told_to_stop(&mut stop) => break,
            };
            let _ = stream.set_nodelay(true);
            let (edge, limits, mut stop) = (self.clone(), limits.clone(), stop.clone());
            connections.spawn(async move {
                let pulse = Pulse::begin();
                let service = hyper::service::service_fn(|request| {
                    let (edge, limits) = (edge.clone(), limits.clone());
                    let served = Pulse::serve(&pulse);
                    async move {
                        let reply = edge.handle(request, local, &limits).await;
                        Ok::<_, Infallible>(reply.map(|body| served.with(body)))
                    }
                });
                let mut builder = hyper::server::conn::http1::Builder::new();
                // Its own timeout for heads runs between requests too, which may be further apart.
                builder
                    .header_read_timeout(None)
                    .max_header_size(limits.headers)
                    .max_buf_size(limits.headers.max(16 << 10));
                let watched = TokioIo::new(Watched::new(stream, pulse.clone()));
                let mut connection = std::pin::pin!(builder.serve_connection(watched, service));
                tokio::select! {
                    _ = connection.as_mut() => {}
                    () = pulse.exhausted(limits.read_timeout, limits.idle_timeout) => {}
                    () = told_to_stop(&mut stop) => {
                        connection.as_mut().graceful_shutdown();
                        tokio::select! {
                            _ = connection => {}
                            () = pulse.exhausted(limits.read_timeout, limits.idle_timeout) => {}
                        }
                    }
                }
            });
            while connections.try_join_next().is_some() {}
        }
        self.closing.send_replace(true);
        while connections.join_next().await.is_some() {}
    }

    async fn handle(
        self: &Arc<Self>,
        request: Request<Incoming>,
        local: SocketAddr,
        limits: &HttpLimits,
    ) -> Reply {
        // Whoever delivers proves it with a signature, and comes from anywhere.
        if request.uri().path().starts_with(deliveries::PREFIX) {
            return self.delivered(request).await;
        }
        if let Some(refusal) = foreign(request.headers(), local, limits) {
            return refusal;
        }
        let path = request.uri().path();
        if let "/mcp" | "/sse" | old_clients::MESSAGES = path {
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
        let allowed = match (request.method(), request.uri().path()) {
            (&Method::POST, "/mcp" | old_clients::MESSAGES) => {
                return self.post(request, principal, limits).await;
            }
            (&Method::GET, "/mcp") => return self.get(request.headers(), principal),
            (&Method::DELETE, "/mcp") => return self.delete(request.headers(), principal),
            (&Method::GET, "/sse") => return self.open_old(request.headers(), principal),
            (_, "/mcp") => "GET, POST, DELETE",
            (_, "/sse") => "GET",
            _ => "POST",
        };
        let mut reply = plain(StatusCode::METHOD_NOT_ALLOWED, &format!("this endpoint takes {allowed}"));
        reply.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        reply
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
        let old = head.uri.path() == old_clients::MESSAGES;
        if !old && !accepts(&head.headers, "application/json") {
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
        if old {
            return self.take_old(head.uri.query(), principal, message);
        }
        let mode = match head.uri.query().map(asked_mode) {
            None => None,
            Some(Ok(mode)) => mode,
            Some(Err(())) => {
                let message = "mode must be passthrough, transparent or gateway";
                return plain(StatusCode::BAD_REQUEST, message);
            }
        };
        self.take(principal, &head.headers, message, mode).await
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
            Health::Ok if !self.lifecycle.alarms.is_silent(AlarmKind::SurfaceRefused) => {
                // SURF-65: clients are shown less than there is.
                let page = json!({"status": "degraded", "reason": "a list of tools cannot be made to fit its clients"});
                rpc(StatusCode::OK, page.to_string().into_bytes())
            }
            Health::Ok => {
                let ignored = self.ignored.load(Ordering::Relaxed);
                let page = json!({"status": "ok", "ignored_notifications": ignored});
                rpc(StatusCode::OK, page.to_string().into_bytes())
            }
            Health::Degraded { cause, .. } => {
                let page = json!({"status": "degraded", "reason": cause});
                rpc(StatusCode::OK, page.to_string().into_bytes())
            }
            Health::Blocked { cause, .. } => {
                let page = json!({"status": "blocked", "reason": cause});
                rpc(StatusCode::SERVICE_UNAVAILABLE, page.to_string().into_bytes())
            }
        }
    }
}

/// The mode that the URL asks for, as in `/mcp?mode=gateway` (CTX-70).
fn asked_mode(query: &str) -> Result<Option<Mode>, ()> {
    let asked = query.split('&').find_map(|part| part.strip_prefix("mode="));
    asked.map(|name| Mode::named(name).ok_or(())).transpose()
}

fn busy() -> Reply {
    plain(StatusCode::SERVICE_UNAVAILABLE, "too many sessions")
}

/// A stream, if the agent may have one more.
fn too_many_streams() -> Reply {
    let message = "this agent has as many streams open as it may have; close one, or have the operator raise gateway.http.streams";
    plain(StatusCode::TOO_MANY_REQUESTS, message)
}

fn rpc(status: StatusCode, text: Vec<u8>) -> Reply {
    let mut reply = Response::new(body::Body::Whole(Full::new(Bytes::from(text))));
    *reply.status_mut() = status;
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn plain(status: StatusCode, text: &str) -> Reply {
    let body = if text.is_empty() { Vec::new() } else { json!({"error": text}).to_string().into_bytes() };
    rpc(status, body)
}
