//! Streamable HTTP: one POST, one answer, as a JSON document or as a stream of events.
//!
//! The two eras differ at the rim only. A legacy server may give us a session, which goes into a header and may
//! expire; and hanging up means nothing to it, so giving up is said in a notification. A modern server knows no
//! session, wants to see method and tool in headers, and understands hanging up (PRO-67).

mod listening;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use portcullis_core::ServerIdentity;
use portcullis_core::jsonrpc::{Kind, Message};
use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use portcullis_governance::mirrored;
use portcullis_sandbox::broker::Secret;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::beside::{Beside, Unanswered};
use crate::desk::{answered, empty_object};
use crate::endpoint::Remote;
use crate::event::{Events, UpstreamEvent};
use crate::frame::Frames;
use crate::link::{Answer, ENVELOPE_ALLOWANCE, Exchange, MESSAGE_LIMIT, too_large, within};
use crate::oauth::{Account, Challenge};
use crate::pool::{Pool, Unsent, Wire};
use crate::sse::EventStream;
use crate::{Era, Settings, UpstreamError};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// How long to leave a server alone that ended a stream, if it does not say; and what it may say.
const RETRY: Duration = Duration::from_secs(1);
const SOONEST: Duration = Duration::from_millis(20);
const LATEST: Duration = Duration::from_secs(30);
/// How long a courtesy may take that nobody waits for.
const COURTESY: Duration = Duration::from_secs(2);
/// How long an answer waits for what was said before it on another stream, which it may have overtaken.
const OVERTAKEN: Duration = Duration::from_millis(100);

/// A server behind a URL.
#[derive(Debug)]
pub(crate) struct HttpLink {
    inner: Arc<Inner>,
    listener: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Inner {
    pool: Pool,
    host: HeaderValue,
    path: String,
    events: Events,
    manner: Mutex<Manner>,
    open: AtomicBool,
    calls: Mutex<usize>,
    /// The calls under way that somebody attends to.
    attending: Mutex<HashMap<u64, Attended>>,
    idle: Notify,
    /// Who we are there, if somebody logged in (PRO-35).
    account: Option<Account>,
}

/// A call under way.
#[derive(Debug, Clone)]
struct Attended {
    by: Arc<dyn Beside>,
    /// Whether something about it came on the stream that is no call's.
    talked_about: bool,
}

/// How to talk, as agreed.
#[derive(Debug, Clone, Default)]
struct Manner {
    era: Option<Era>,
    version: Option<HeaderValue>,
    session: Option<HeaderValue>,
}

impl HttpLink {
    pub(crate) fn open(
        server: &ServerIdentity,
        remote: &Remote,
        events: Events,
        settings: &Settings,
    ) -> Result<Self, UpstreamError> {
        let url = remote.url.url();
        let account = settings.broker.as_ref().map(|broker| Account::new(server, url, Arc::clone(broker)));
        let pool = Pool::new(server, remote, events.clone(), settings)?;
        let unusable = |_| UpstreamError::unavailable("the URL cannot be put into a request");
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or(host.to_owned(), |port| format!("{host}:{port}"));
        let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
        let inner = Arc::new(Inner {
            pool,
            host: HeaderValue::from_str(&host).map_err(unusable)?,
            path,
            events,
            manner: Mutex::default(),
            open: AtomicBool::new(true),
            calls: Mutex::default(),
            attending: Mutex::default(),
            idle: Notify::new(),
            account,
        });
        Ok(Self { inner, listener: Mutex::default() })
    }

    /// From here on requests are made in the manner of this era and revision. A session, if the server gave one,
    /// was noted when it came.
    pub(crate) fn agree(&self, era: Era, version: &'static str) {
        let mut manner = lock(&self.inner.manner);
        manner.era = Some(era);
        manner.version = Some(HeaderValue::from_static(version));
    }

    /// Forgets what was agreed, to begin again.
    pub(crate) fn begin(&self, era: Era) {
        *lock(&self.inner.manner) = Manner { era: Some(era), ..Manner::default() };
        if era == Era::Modern {
            self.agree(era, crate::era::MODERN_REVISION);
        }
    }

    pub(crate) async fn exchange(&self, exchange: Exchange<'_>, mut cancel: CancellationSignal) -> Answer {
        if !self.is_open() {
            return Answer::unavailable("the connection is closed", false);
        }
        let mut call = Call::begin(&self.inner, exchange.id, exchange.attendant);
        let answer = tokio::select! {
            biased;
            answer = self.inner.ask(exchange) => answer,
            () = cancel.cancelled() => return Answer::failed(TransmitFailure::Cancelled),
            () = tokio::time::sleep(exchange.timeout) => return Answer::failed(TransmitFailure::Timeout),
        };
        call.answered = true;
        // A legacy server may say things about a call on a stream of their own; the last of them comes when it comes.
        if call.is_talked_about() {
            tokio::time::sleep(OVERTAKEN).await;
        }
        if matches!(answer, Answer::SessionExpired) {
            self.inner.open.store(false, Ordering::Release);
        }
        answer
    }

    pub(crate) async fn notify(&self, bytes: Bytes) {
        let _ = timeout(COURTESY, self.inner.tell(bytes)).await;
    }

    pub(crate) fn is_open(&self) -> bool {
        self.inner.open.load(Ordering::Acquire)
    }

    /// Takes requests again after the session was renewed.
    pub(crate) fn reopen(&self) {
        self.inner.open.store(true, Ordering::Release);
    }

    pub(crate) fn in_flight(&self) -> usize {
        *lock(&self.inner.calls)
    }

    /// The token that the server is shown, if there is one.
    pub(crate) fn token(&self) -> Option<Arc<Secret>> {
        self.inner.account.as_ref()?.token()
    }

    pub(crate) async fn close(&self, drain: Duration) {
        let idle = async {
            loop {
                let notified = self.inner.idle.notified();
                if self.in_flight() == 0 {
                    return;
                }
                notified.await;
            }
        };
        let _ = timeout(drain, idle).await;
        self.inner.open.store(false, Ordering::Release);
        self.stop_listening();
        let session = lock(&self.inner.manner).session.clone();
        if session.is_some() {
            let farewell = self.inner.request(Method::DELETE, Bytes::new(), None);
            let _ = timeout(COURTESY, self.inner.pool.send(farewell)).await;
        }
        self.inner.pool.clear();
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        self.stop_listening();
    }
}

/// A request under way. If it is dropped without an answer, a legacy server is told.
struct Call<'l> {
    link: &'l Arc<Inner>,
    id: u64,
    answered: bool,
}

impl<'l> Call<'l> {
    fn begin(link: &'l Arc<Inner>, id: u64, attendant: Option<&Arc<dyn Beside>>) -> Self {
        *lock(&link.calls) += 1;
        if let Some(attendant) = attendant {
            lock(&link.attending).insert(id, Attended { by: Arc::clone(attendant), talked_about: false });
        }
        Self { link, id, answered: false }
    }

    fn is_talked_about(&self) -> bool {
        lock(&self.link.attending).get(&self.id).is_some_and(|call| call.talked_about)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        lock(&self.link.attending).remove(&self.id);
        let mut calls = lock(&self.link.calls);
        *calls -= 1;
        if *calls == 0 {
            self.link.idle.notify_waiters();
        }
        let legacy = lock(&self.link.manner).era == Some(Era::Legacy);
        if !self.answered
            && legacy
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let (link, id) = (Arc::clone(self.link), self.id);
            runtime.spawn(async move { timeout(COURTESY, link.tell(Frames::cancelled(id))).await });
        }
    }
}

impl Inner {
    async fn ask(self: &Arc<Self>, exchange: Exchange<'_>) -> Answer {
        let (wire, response) = match self.sent(exchange).await {
            Ok(sent) => sent,
            Err(Unsent { reason, sent }) => return Answer::unavailable(reason, sent),
        };
        let status = response.status().as_u16();
        let has_session = lock(&self.manner).session.is_some();
        match (status, content_type(&response)) {
            (200..=299, Content::Json) => {
                if exchange.method == "initialize" {
                    lock(&self.manner).session = response.headers().get(SESSION).cloned();
                }
                self.read_document(wire, response, exchange, status).await
            }
            (200..=299, Content::Events) => {
                if exchange.method == "initialize" {
                    lock(&self.manner).session = response.headers().get(SESSION).cloned();
                }
                self.read_events(wire, response, exchange).await
            }
            (200..=299, Content::Other) => {
                self.events.violation("an answer that is neither JSON nor an event stream");
                Answer::protocol("the server's answer is neither JSON nor an event stream")
            }
            (300..=399, _) => Answer::protocol("the server redirects, which is not followed"),
            // A modern server's 404 says that a method is unknown; only a session can expire.
            (404, _) if has_session && exchange.method != "initialize" => Answer::SessionExpired,
            // Whoever is not let in is told so by the door, not by the protocol.
            (401 | 403, _) => Answer::Locked { status, scope: self.scope_wanted(&response) },
            (_, Content::Json) => self.read_document(wire, response, exchange, status).await,
            (status, _) => Answer::Status(status),
        }
    }

    /// Sends a request, and once more if what we showed was refused and there is something better: a server that says 401
    /// has not looked at the request.
    async fn sent(&self, exchange: Exchange<'_>) -> Result<(Wire, Response<Incoming>), Unsent> {
        self.prepare().await;
        let request = self.request(Method::POST, exchange.bytes.clone(), Some(exchange));
        let shown = request.headers().get(AUTHORIZATION).cloned();
        let sent = self.pool.send(request).await?;
        let Some(account) = &self.account else { return Ok(sent) };
        let told = account.told(sent.1.headers());
        match sent.1.status().as_u16() {
            401 if told || account.refused(shown.as_ref()).await => {
                self.pool.acknowledge(sent.0, sent.1).await;
                let again = self.request(Method::POST, exchange.bytes.clone(), Some(exchange));
                self.pool.send(again).await
            }
            _ => Ok(sent),
        }
    }

    /// What a login must ask for, where a server says that ours does not cover enough.
    fn scope_wanted(&self, response: &Response<Incoming>) -> Option<String> {
        let said = response.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenge = Challenge::read(said.filter_map(|value| value.to_str().ok()))?;
        let wanted = challenge.scope.filter(|_| challenge.error.as_deref() == Some("insufficient_scope"))?;
        self.account.as_ref()?.with_scope(&wanted)
    }

    /// Before anything is sent: what we show should be good.
    async fn prepare(&self) {
        if let Some(account) = &self.account {
            account.prepare().await;
        }
    }

    fn request(&self, method: Method, body: Bytes, exchange: Option<Exchange<'_>>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        *request.uri_mut() = self.path.parse().unwrap_or_default();
        let manner = lock(&self.manner).clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(session) = manner.session {
            headers.insert(SESSION, session);
        }
        if let Some(version) = manner.version {
            headers.insert(VERSION, version);
        }
        if let Some(shown) = self.account.as_ref().and_then(|account| account.shown(&method)) {
            shown.put(headers);
        }
        for (name, value) in exchange.iter().flat_map(|exchange| exchange.headers) {
            headers.insert(name.clone(), value.clone());
        }
        if let (Some(Era::Modern), Some(exchange)) = (manner.era, exchange) {
            if let Ok(method) = HeaderValue::from_str(exchange.method) {
                headers.insert(METHOD, method);
            }
            if let Some(Ok(name)) = exchange.name.map(|name| HeaderValue::from_str(&mirrored::encoded(name)))
            {
                headers.insert(NAME, name);
            }
            for (name, value) in exchange.mirrored {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                    headers.insert(name, value);
                }
            }
        }
        request
    }

    /// Sends what has no answer, and reads the acknowledgement so that the connection can be kept.
    async fn tell(&self, bytes: Bytes) {
        let request = self.request(Method::POST, bytes, None);
        if let Ok((wire, response)) = self.pool.send(request).await {
            self.pool.acknowledge(wire, response).await;
        }
    }

    async fn read_document(
        &self,
        wire: Wire,
        mut response: Response<Incoming>,
        exchange: Exchange<'_>,
        status: u16,
    ) -> Answer {
        let limit = body_limit(exchange);
        let mut chunks: Vec<Bytes> = Vec::new();
        let mut length = 0;
        while let Some(frame) = response.body_mut().frame().await {
            let Ok(frame) = frame else {
                return Answer::unavailable("the connection failed in the middle of the answer", true);
            };
            let Ok(chunk) = frame.into_data() else { continue };
            length += chunk.len();
            chunks.push(chunk);
            if length > limit {
                return Answer::Of(too_large(length, &chunks.concat()));
            }
        }
        self.pool.keep(wire);
        let text = match <[Bytes; 1]>::try_from(chunks) {
            Ok([whole]) => whole,
            Err(chunks) => chunks.concat().into(),
        };
        match (self.message(&text, exchange), status) {
            (Some(outcome), _) => Answer::Of(outcome),
            (None, 200..=299) => Answer::protocol("the server's answer does not answer the request"),
            (None, status) => Answer::Status(status),
        }
    }

    async fn read_events(
        self: &Arc<Self>,
        wire: Wire,
        mut response: Response<Incoming>,
        exchange: Exchange<'_>,
    ) -> Answer {
        // A stream lasts as long as its connection is held.
        let mut _open = wire;
        let limit = body_limit(exchange);
        let mut events = EventStream::default();
        loop {
            while let Some(Ok(frame)) = response.body_mut().frame().await {
                let Ok(chunk) = frame.into_data() else { continue };
                events.push(&chunk);
                while let Some(data) = events.next_data() {
                    if let Some(outcome) = self.event(&data, exchange) {
                        return Answer::Of(outcome);
                    }
                }
                if events.held() > limit {
                    return Answer::Of(too_large(events.held(), events.head()));
                }
            }
            match self.resume(&events, exchange).await {
                Some((wire, resumed)) => (_open, response, events) = (wire, resumed, events.resumed()),
                None => return Answer::unavailable("the server ended its stream without an answer", true),
            }
        }
    }

    /// A legacy server may end a stream before its answer and be asked for the rest after a while; so may the way to
    /// it break. Asking goes on as long as the call may take.
    async fn resume(
        &self,
        events: &EventStream,
        exchange: Exchange<'_>,
    ) -> Option<(Wire, Response<Incoming>)> {
        let legacy = lock(&self.manner).era == Some(Era::Legacy);
        let last = HeaderValue::from_maybe_shared(events.last_id()?.clone()).ok().filter(|_| legacy)?;
        if let Some(attendant) = exchange.attendant {
            attendant.paused();
        }
        tokio::time::sleep(events.retry().map_or(RETRY, Duration::from_millis).clamp(SOONEST, LATEST)).await;
        self.prepare().await;
        let mut request = self.request(Method::GET, Bytes::new(), None);
        request.headers_mut().insert(LAST_EVENT, last);
        let (wire, response) = self.pool.send(request).await.ok()?;
        (response.status().is_success() && matches!(content_type(&response), Content::Events))
            .then_some((wire, response))
    }

    /// A message of a stream: the answer, or something beside it.
    fn event(self: &Arc<Self>, data: &Bytes, exchange: Exchange<'_>) -> Option<Outcome> {
        let Some(message) = Message::read(data) else {
            self.events.violation("an event that is not a JSON-RPC message");
            return None;
        };
        if let Kind::Response { .. } = message.kind() {
            return self.message(data, exchange);
        }
        self.beside(&message, exchange.attendant);
        None
    }

    /// Something on a stream that is no call's: nothing in a message or a question there says which call it is about, so it
    /// belongs to the one call under way, or to none (PRO-20, PRO-21).
    fn beside_all(self: &Arc<Self>, message: &Message<'_>) {
        let (only, several) = {
            let mut attending = lock(&self.attending);
            let several = attending.len() > 1;
            let only = attending.values_mut().next().filter(|_| !several).map(|call| {
                call.talked_about |=
                    matches!(message.kind(), Kind::Notification { method: "notifications/message" });
                Arc::clone(&call.by)
            });
            (only, several)
        };
        match message.kind() {
            Kind::Request { id, method } if several && method != "ping" => {
                let (link, id) = (Arc::clone(self), id.to_owned());
                let message = "several calls are under way, and nothing says which one asks".into();
                let refused = Err(Unanswered::Refused { code: -32603, message });
                tokio::spawn(
                    async move { timeout(COURTESY, link.tell(answered(&id, refused).into())).await },
                );
            }
            // Progress says which call it is about, and comes on that call's stream.
            Kind::Notification { method: "notifications/progress" } => {}
            _ => self.beside(message, only.as_ref()),
        }
    }

    /// Something that answers nothing of ours.
    fn beside(self: &Arc<Self>, message: &Message<'_>, attendant: Option<&Arc<dyn Beside>>) {
        match message.kind() {
            Kind::Request { id, method } => {
                let (link, attendant) = (Arc::clone(self), attendant.cloned());
                let (id, method) = (id.to_owned(), method.to_owned());
                let params = message.params.map_or_else(empty_object, ToOwned::to_owned);
                tokio::spawn(async move {
                    let answer = match attendant {
                        _ if method == "ping" => Ok(serde_json::json!({})),
                        Some(attendant) => attendant.asked(method.clone(), params).await,
                        None => Err(Unanswered::Undeclared),
                    };
                    if answer == Err(Unanswered::Undeclared) {
                        link.events.server_request(&method);
                    }
                    let _ = timeout(COURTESY, link.tell(answered(&id, answer).into())).await;
                });
            }
            Kind::Notification { method: method @ ("notifications/progress" | "notifications/message") } => {
                if let (Some(attendant), Some(params)) = (attendant, message.params) {
                    attendant.notified(method, params);
                }
            }
            Kind::Notification {
                method:
                    "notifications/tools/list_changed"
                    | "notifications/resources/list_changed"
                    | "notifications/prompts/list_changed",
            } => {
                self.events.emit(UpstreamEvent::ListChanged);
            }
            Kind::Notification { method: "notifications/resources/updated" } => {
                self.events.followed().updated(message.params);
            }
            Kind::Notification { method: "notifications/subscriptions/acknowledged" } => {
                self.events.followed().acknowledged(message.params);
            }
            Kind::Notification { .. } => {}
            Kind::Response { .. } => self.events.emit(UpstreamEvent::UnknownId),
            Kind::Invalid => self.events.violation("a message that is no request, notification or response"),
        }
    }

    /// The outcome in a response to `exchange`. An error may come without an id: the server could not read one.
    fn message(&self, text: &Bytes, exchange: Exchange<'_>) -> Option<Outcome> {
        let Some(message) = Message::read(text) else {
            self.events.violation("an answer that is not a JSON-RPC message");
            return None;
        };
        let ours = |id: &serde_json::value::RawValue| id.get().parse() == Ok(exchange.id);
        let limit = exchange.max_response_bytes;
        match message.kind() {
            Kind::Response { id, outcome } if ours(id) => Some(match outcome {
                Ok(result) => within(limit, Ok(text.slice_ref(result.get().as_bytes()))),
                Err(error) => within(limit, Err(text.slice_ref(error.get().as_bytes()))),
            }),
            Kind::Response { .. } => {
                self.events.emit(UpstreamEvent::UnknownId);
                None
            }
            Kind::Invalid if message.id.is_none_or(|id| id.get() == "null") => {
                let error = message.error?;
                Some(within(limit, Err(text.slice_ref(error.get().as_bytes()))))
            }
            _ => None,
        }
    }
}

fn body_limit(exchange: Exchange<'_>) -> usize {
    exchange.max_response_bytes.saturating_add(ENVELOPE_ALLOWANCE).min(MESSAGE_LIMIT)
}

enum Content {
    Json,
    Events,
    Other,
}

fn content_type(response: &Response<Incoming>) -> Content {
    let value =
        response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        Content::Json
    } else if essence.eq_ignore_ascii_case("text/event-stream") {
        Content::Events
    } else {
        Content::Other
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
