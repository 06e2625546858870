//! Streamable HTTP on `/mcp`, in both eras, and the two endpoints (`/sse`, `/messages`) of 2024-11-05.
//!
//! The era is that of each request: modern if its header or its `_meta` says so, else legacy, where everything after
//! `initialize` needs the session it was given. The checks are those a strict server makes, since a gateway that
//! passes only with lenient peers is of no use.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::control::Control;
use crate::frame::{Failure, Frame};
use crate::http_reply::{self as reply, Body};
use crate::outbox::Outbox;
use crate::revision::{Era, MODERN};
use crate::spy::{Connection, Spy, lock};

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";

/// The HTTP side of the spy.
struct Server {
    spy: Arc<Spy>,
    sessions: Mutex<HashMap<String, Session>>,
    expired: AtomicU64,
}

#[derive(Clone)]
struct Session {
    connection: Arc<Connection>,
    /// The stream of a 2024-11-05 client, on which all its answers go.
    stream: Option<Outbox>,
}

/// Serves until the process ends.
pub(crate) async fn serve(spy: Arc<Spy>, port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    writeln!(io::stdout(), "listening on http://{}/mcp", listener.local_addr()?)?;
    io::stdout().flush()?;
    let server = Arc::new(Server { spy, sessions: Mutex::default(), expired: AtomicU64::new(0) });
    loop {
        let (stream, _) = listener.accept().await?;
        let server = server.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.handle(request).await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Server {
    async fn handle(&self, request: Request<Incoming>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return reply::plain(StatusCode::BAD_REQUEST) };
        let body = body.to_bytes();
        let raw = String::from_utf8_lossy(&body);
        let more = [
            ("http_method", parts.method.as_str().into()),
            ("path", parts.uri.path().into()),
            ("headers", headers(&parts.headers)),
        ];
        self.spy.log.frame("http", &raw, &more);
        let generation = self.spy.switches();
        let control = generation.control;

        let frame = Frame::parse(&raw);
        if control.http_misbehaves_on(frame.method()) {
            if let Some(status) = control.status {
                return reply::plain(
                    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
                );
            }
            if let Some(target) = control.redirect.as_deref().and_then(|to| HeaderValue::from_str(to).ok()) {
                let mut response = reply::plain(StatusCode::TEMPORARY_REDIRECT);
                response.headers_mut().insert(header::LOCATION, target);
                return response;
            }
        }
        if control.expire_session
            && let Some(session) = text(&parts.headers, SESSION)
            && self.expired.fetch_max(generation.number, Ordering::Relaxed) < generation.number
        {
            lock(&self.sessions).remove(session);
            return reply::plain(StatusCode::NOT_FOUND);
        }
        let method = frame.method().to_owned();
        let mut response = match (&parts.method, parts.uri.path()) {
            (&Method::POST, "/mcp") => self.post(&parts, frame, &control).await,
            (&Method::GET, "/mcp") => self.get(&parts),
            (&Method::DELETE, "/mcp") => self.delete(&parts),
            (_, "/mcp") => reply::plain(StatusCode::METHOD_NOT_ALLOWED),
            (&Method::GET, "/sse") if self.spy.speaks(Era::Legacy) => self.open_sse(),
            (&Method::POST, "/messages") => self.message(&parts, frame, control.clone()),
            _ => reply::plain(StatusCode::NOT_FOUND),
        };
        if let Some(other) = control.content_type.as_deref().and_then(|kind| HeaderValue::from_str(kind).ok())
            && control.http_misbehaves_on(&method)
        {
            response.headers_mut().insert(header::CONTENT_TYPE, other);
        }
        response
    }

    async fn post(&self, parts: &Parts, frame: Frame, control: &Arc<Control>) -> Response<Body> {
        let accept = text(&parts.headers, "accept").unwrap_or_default();
        if !(accept.contains("application/json") && accept.contains("text/event-stream")) {
            return reply::plain(StatusCode::NOT_ACCEPTABLE);
        }
        if !text(&parts.headers, "content-type").is_some_and(|kind| kind.starts_with("application/json")) {
            return reply::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        if let Frame::Invalid(failure) = &frame {
            return refusal(StatusCode::BAD_REQUEST, &Value::Null, failure);
        }
        let modern = match &frame {
            Frame::Request(request) => request.version().is_some() || request.method == "server/discover",
            _ => false,
        } || text(&parts.headers, VERSION) == Some(MODERN);
        if (modern && self.spy.speaks(Era::Modern)) || !self.spy.speaks(Era::Legacy) {
            self.post_modern(parts, frame, control).await
        } else {
            self.post_legacy(parts, frame, control).await
        }
    }

    async fn post_modern(&self, parts: &Parts, frame: Frame, control: &Arc<Control>) -> Response<Body> {
        if let Frame::Request(request) = &frame
            && request.method != "initialize"
            && let Err(failure) = check_headers(&parts.headers, request)
        {
            return refusal(StatusCode::BAD_REQUEST, &request.id, &failure);
        }
        let connection = self.spy.connection(Some(Era::Modern), true);
        self.exchange(&connection, frame, control, Era::Modern).await
    }

    async fn post_legacy(&self, parts: &Parts, frame: Frame, control: &Arc<Control>) -> Response<Body> {
        if frame.method() == "initialize" {
            let connection = self.spy.connection(None, false);
            let id = session_id();
            let session = Session { connection: connection.clone(), stream: None };
            lock(&self.sessions).insert(id.clone(), session);
            let mut response = self.exchange(&connection, frame, control, Era::Legacy).await;
            if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(SESSION, id);
            }
            return response;
        }
        match self.session(&parts.headers) {
            Ok(session) => self.exchange(&session.connection, frame, control, Era::Legacy).await,
            Err(status) => refusal(status, &Value::Null, &Failure::new(-32000, "no valid session id")),
        }
    }

    /// Hands the frame over and makes a response of what comes back.
    async fn exchange(
        &self,
        connection: &Arc<Connection>,
        frame: Frame,
        control: &Arc<Control>,
        era: Era,
    ) -> Response<Body> {
        let (outbox, outgoing) = Outbox::new();
        let Frame::Request(request) = &frame else {
            self.spy.act(connection, frame, control.clone(), outbox);
            return reply::plain(StatusCode::ACCEPTED);
        };
        let call = request.method == "tools/call";
        let asks = era == Era::Legacy && !control.server_request.as_slice().is_empty();
        let streams = request.method == "subscriptions/listen"
            || (call
                && (control.sse || asks || control.log.is_some() || request.meta("progressToken").is_some()));
        let noisy = control.garbage && control.misbehaves_on(&request.method);
        self.spy.act(connection, frame, control.clone(), outbox);
        if streams {
            return reply::events(None, outgoing);
        }
        let document = reply::document(outgoing, noisy).await;
        let status = if era == Era::Modern { reply::status_of(&document) } else { StatusCode::OK };
        reply::json(status, document)
    }

    /// The stream on which a legacy client hears of changes.
    fn get(&self, parts: &Parts) -> Response<Body> {
        if !self.spy.speaks(Era::Legacy) {
            return reply::plain(StatusCode::METHOD_NOT_ALLOWED);
        }
        match self.session(&parts.headers) {
            Ok(session) => {
                let (outbox, outgoing) = Outbox::new();
                self.spy.listen(&session.connection, outbox);
                // A comment first, so that the head of the response leaves at once.
                reply::events(Some(": listening\n\n".to_owned()), outgoing)
            }
            Err(status) => reply::plain(status),
        }
    }

    fn delete(&self, parts: &Parts) -> Response<Body> {
        match self.session(&parts.headers) {
            Ok(_) => {
                lock(&self.sessions).remove(text(&parts.headers, SESSION).unwrap_or_default());
                reply::plain(StatusCode::NO_CONTENT)
            }
            Err(status) => reply::plain(status),
        }
    }

    fn session(&self, headers: &HeaderMap) -> Result<Session, StatusCode> {
        let id = text(headers, SESSION).ok_or(StatusCode::BAD_REQUEST)?;
        lock(&self.sessions).get(id).cloned().ok_or(StatusCode::NOT_FOUND)
    }

    /// 2024-11-05: the stream first, which names the address to post to.
    fn open_sse(&self) -> Response<Body> {
        let (outbox, outgoing) = Outbox::new();
        let connection = self.spy.connection(None, false);
        self.spy.listen(&connection, outbox.clone());
        let id = session_id();
        lock(&self.sessions).insert(id.clone(), Session { connection, stream: Some(outbox) });
        reply::events(Some(format!("event: endpoint\ndata: /messages?session={id}\n\n")), outgoing)
    }

    fn message(&self, parts: &Parts, frame: Frame, control: Arc<Control>) -> Response<Body> {
        let id = parts.uri.query().and_then(|query| query.strip_prefix("session=")).unwrap_or_default();
        let session = lock(&self.sessions).get(id).cloned();
        let Some(Session { connection, stream: Some(outbox) }) = session else {
            return reply::plain(StatusCode::NOT_FOUND);
        };
        self.spy.act(&connection, frame, control, outbox);
        reply::plain(StatusCode::ACCEPTED)
    }
}

/// PRO-31 as seen from the server: the headers of a modern request repeat what its body says.
fn check_headers(headers: &HeaderMap, request: &crate::frame::Request) -> Result<(), Failure> {
    let mismatch = |header: &str| Err(Failure::new(-32020, format!("header mismatch: {header}")));
    if request.version().is_some() && text(headers, VERSION) != request.version() {
        return mismatch(VERSION);
    }
    if text(headers, "mcp-method") != Some(&request.method) {
        return mismatch("mcp-method");
    }
    let name = match request.method.as_str() {
        "tools/call" | "prompts/get" => request.params.get("name"),
        "resources/read" => request.params.get("uri"),
        _ => return Ok(()),
    };
    let (sent, name) = (text(headers, "mcp-name"), name.and_then(Value::as_str));
    // A name that is no plain ASCII travels in Base64, which this spy takes on trust.
    if sent.is_some_and(|sent| sent.starts_with("=?base64?")) || sent == name {
        Ok(())
    } else {
        mismatch("mcp-name")
    }
}

fn refusal(status: StatusCode, id: &Value, failure: &Failure) -> Response<Body> {
    reply::json(status, failure.message(id).to_string())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn headers(headers: &HeaderMap) -> Value {
    let pairs = headers
        .iter()
        .map(|(name, value)| (name.as_str().to_owned(), json!(String::from_utf8_lossy(value.as_bytes()))));
    Value::Object(pairs.collect())
}

fn session_id() -> String {
    let mut bytes = [0_u8; 16];
    // Without randomness a test server may as well stop.
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
