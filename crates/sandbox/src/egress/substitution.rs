//! A private conversation, opened on the way: placeholders become credentials toward one host, and credentials become
//! placeholders again on the way back (SBX-52, SBX-53).
//!
//! The process speaks TLS with us, under an authority that it alone trusts; we speak TLS with the host, as anybody would.
//! Requests go on one by one, and each is looked at before a byte of it leaves: a placeholder whose credential is not on
//! loan ends the process. Answers must come as they are, not compressed, so that they can be looked through.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, interval_at, timeout};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::address::{NoAddress, resolve};
use super::crossing::{CONNECT, TICK, TOO_MUCH};
use super::first_words::{Said, authority, hello};
use super::replace::{Passing, Replacement};
use super::{Leave, Watch};
use crate::broker::{Secret, StandIn, forms};
use crate::profile::EgressScope;

/// A body in which placeholders are to be replaced must fit into memory.
const LONGEST_BODY: usize = 8 << 20;
/// How long a host may take to begin its answer.
const ANSWER: Duration = Duration::from_secs(600);

const WITHOUT_LEASE: &str = "a placeholder was used while its credential is not on loan";

type Content = BoxBody<Bytes, io::Error>;

/// Serves one connection of the process to a host that credentials go to.
pub(super) async fn serve(watch: Arc<Watch>, scope: EgressScope, mut inside: TcpStream) {
    let read = match hello(&mut inside).await {
        Said::Understood(Some(name), read) if name == scope.host => read,
        Said::Understood(..) => return accuse(&watch, &scope, "another name in TLS than the declared one"),
        Said::Otherwise => return accuse(&watch, &scope, "no TLS where TLS is required"),
        Said::Nothing => return,
    };
    let Ok(Some(config)) = watch.stand_ins.speaking_as(&scope.host) else { return };
    let stream = Prefixed { read: read.into(), stream: inside };
    let Ok(Ok(private)) = timeout(CONNECT, TlsAcceptor::from(config).accept(stream)).await else { return };
    let crossing = Arc::new(Crossing {
        watch: Arc::clone(&watch),
        scope: scope.clone(),
        outside: Mutex::new(None),
        sent: Arc::default(),
        received: Arc::default(),
    });
    let service = {
        let crossing = Arc::clone(&crossing);
        hyper::service::service_fn(move |request| {
            let crossing = Arc::clone(&crossing);
            async move { Ok::<_, Infallible>(crossing.pass(request).await) }
        })
    };
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(hyper_util::rt::TokioTimer::new())
        .serve_connection(TokioIo::new(private), service);
    tokio::pin!(serving);
    let mut tick = interval_at(Instant::now() + TICK, TICK);
    loop {
        tokio::select! {
            _ = &mut serving => break,
            _ = tick.tick() => if watch.leave(&scope, false).is_none() { break },
        }
    }
    let (sent, received) = (crossing.sent.load(Ordering::Relaxed), crossing.received.load(Ordering::Relaxed));
    if sent > 0 {
        let permit = watch.leave(&scope, false).and_then(Leave::permit);
        watch.carried(&scope, sent, received, permit);
    }
}

fn accuse(watch: &Watch, scope: &EgressScope, reason: &'static str) {
    watch.accuse(&scope.host, scope.port, reason);
}

struct Crossing {
    watch: Arc<Watch>,
    scope: EgressScope,
    outside: Mutex<Option<SendRequest<Content>>>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
}

/// A stand-in of this host, and its value if that is on loan.
struct Standing<'w> {
    one: &'w StandIn,
    value: Option<Arc<Secret>>,
}

impl Crossing {
    async fn pass(&self, request: Request<Incoming>) -> Response<Content> {
        match self.forward(request).await {
            Ok(response) => response,
            Err(status) => {
                let mut response = Response::new(content(Bytes::new()));
                *response.status_mut() = status;
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                response
            }
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Content>, StatusCode> {
        let (watch, scope) = (&*self.watch, &self.scope);
        let (mut head, body) = request.into_parts();
        let standing: Vec<Standing<'_>> = watch
            .stand_ins
            .toward(scope)
            .map(|one| Standing { one, value: watch.on_loan(&one.class) })
            .collect();
        let said = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let named = said.and_then(|host| authority(host, 443));
        if named != Some((scope.host.clone(), scope.port)) || head.uri.authority().is_some() {
            accuse(watch, scope, "another host in the request than the declared one");
            return Err(StatusCode::FORBIDDEN);
        }
        // Before anything else: also a request that goes nowhere tells what its sender is.
        substitute_head(&mut head.headers, &mut head.uri, &standing).map_err(|Unlent| self.unlent())?;
        let body = self.body(body, &mut head.headers, &standing).await?;
        let Some(_leave) = watch.leave(scope, true) else {
            watch.refuse(&scope.host, scope.port, watch.why_not());
            return Err(StatusCode::FORBIDDEN);
        };
        // What cannot be read cannot be looked through.
        for name in [header::ACCEPT_ENCODING, header::UPGRADE, header::CONNECTION, header::TE] {
            head.headers.remove(name);
        }
        let length =
            head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>();
        if !watch.spend(scope, length as u64) {
            watch.refuse(&scope.host, scope.port, TOO_MUCH);
            return Err(StatusCode::FORBIDDEN);
        }
        self.sent.fetch_add(length as u64, Ordering::Relaxed);
        let response = self.ask(Request::from_parts(head, body)).await?;
        self.answer(response, &standing)
    }

    fn unlent(&self) -> StatusCode {
        self.watch.accuse_of("placeholder_without_permit", &self.scope.host, self.scope.port, WITHOUT_LEASE);
        StatusCode::FORBIDDEN
    }

    /// The request's body: as it comes, counted; or whole, where placeholders are replaced in bodies too.
    async fn body(
        &self,
        body: Incoming,
        headers: &mut HeaderMap,
        standing: &[Standing<'_>],
    ) -> Result<Content, StatusCode> {
        if !standing.iter().any(|standing| standing.is_within("body")) {
            let (watch, scope, sent) = (Arc::clone(&self.watch), self.scope.clone(), Arc::clone(&self.sent));
            return Ok(Counted { body, watch, scope, sent }.boxed());
        }
        let read = Limited::new(body, LONGEST_BODY).collect().await;
        let mut text = read.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?.to_bytes().to_vec();
        for standing in standing.iter().filter(|standing| standing.is_within("body")) {
            if let Some(changed) = standing.put_into(&text).map_err(|Unlent| self.unlent())? {
                text = changed;
            }
        }
        if !self.watch.spend(&self.scope, text.len() as u64) {
            self.watch.refuse(&self.scope.host, self.scope.port, TOO_MUCH);
            return Err(StatusCode::FORBIDDEN);
        }
        self.sent.fetch_add(text.len() as u64, Ordering::Relaxed);
        headers.remove(header::TRANSFER_ENCODING);
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
        Ok(content(text.into()))
    }

    async fn ask(&self, request: Request<Content>) -> Result<Response<Incoming>, StatusCode> {
        let mut outside = self.outside.lock().await;
        let ready = match outside.as_mut() {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !ready {
            *outside = Some(self.connect().await?);
        }
        let sender = outside.as_mut().ok_or(StatusCode::BAD_GATEWAY)?;
        let answer = timeout(ANSWER, sender.send_request(request)).await;
        answer.map_err(|_| StatusCode::GATEWAY_TIMEOUT)?.map_err(|_| StatusCode::BAD_GATEWAY)
    }

    /// A connection to the host itself, whose certificate is looked at as anybody would.
    async fn connect(&self) -> Result<SendRequest<Content>, StatusCode> {
        let (watch, scope) = (&*self.watch, &self.scope);
        let unreachable = |reason| {
            watch.refuse(&scope.host, scope.port, reason);
            StatusCode::BAD_GATEWAY
        };
        let addresses = match resolve(watch, scope).await {
            Ok(addresses) => addresses,
            Err(NoAddress::Unknown) => return Err(unreachable("its name cannot be resolved")),
            Err(NoAddress::Private) => {
                accuse(watch, scope, "its name leads to an address that is not declared");
                return Err(StatusCode::FORBIDDEN);
            }
        };
        let Ok(Ok(stream)) = timeout(CONNECT, TcpStream::connect(addresses.as_slice())).await else {
            return Err(unreachable("it does not answer"));
        };
        let (Some(config), Ok(name)) = (watch.outward.clone(), ServerName::try_from(scope.host.clone()))
        else {
            return Err(unreachable("there is nobody to tell whether its certificate is good"));
        };
        let private = timeout(CONNECT, TlsConnector::from(config).connect(name, stream)).await;
        let Ok(Ok(private)) = private else {
            return Err(unreachable("its certificate is not good, or it does not speak TLS"));
        };
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(private)).await;
        let (sender, connection) = handshake.map_err(|_| unreachable("it does not speak HTTP/1.1"))?;
        tokio::spawn(connection);
        Ok(sender)
    }

    /// The answer, in which values are placeholders again.
    fn answer(
        &self,
        response: Response<Incoming>,
        standing: &[Standing<'_>],
    ) -> Result<Response<Content>, StatusCode> {
        let (mut head, body) = response.into_parts();
        let encoded = head.headers.get(header::CONTENT_ENCODING);
        if encoded.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            self.watch.refuse(
                &self.scope.host,
                self.scope.port,
                "its answer is compressed although nobody asked for that",
            );
            return Err(StatusCode::BAD_GATEWAY);
        }
        head.headers.remove(header::CONNECTION);
        let pairs = || -> Vec<(Vec<u8>, Vec<u8>)> {
            let lent = standing.iter().filter_map(|one| Some((one.one, one.value.as_ref()?)));
            lent.flat_map(|(one, value)| {
                forms(value.expose()).into_iter().map(|form| (form, one.placeholder.clone().into_bytes()))
            })
            .collect()
        };
        let received = Arc::clone(&self.received);
        let counted = body.map_err(io::Error::other).map_frame(move |frame| {
            if let Some(data) = frame.data_ref() {
                received.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            frame
        });
        let Some(replacement) = Replacement::of(pairs()) else {
            return Ok(Response::from_parts(head, counted.boxed()));
        };
        for value in head.headers.values_mut() {
            if let Some(clean) = replacement.whole(value.as_bytes()) {
                *value = HeaderValue::from_bytes(&clean).unwrap_or(HeaderValue::from_static(""));
            }
        }
        // Its length may change.
        head.headers.remove(header::CONTENT_LENGTH);
        let body = Restored { body: counted.boxed(), passing: Passing::new(replacement), ended: false };
        Ok(Response::from_parts(head, body.boxed()))
    }
}

/// A placeholder was met whose credential is not on loan.
struct Unlent;

impl Standing<'_> {
    fn is_within(&self, place: &str) -> bool {
        self.one.within.iter().any(|within| within == place)
    }

    /// The text with the value in the placeholder's place; none if there is no placeholder in it.
    fn put_into(&self, text: &[u8]) -> Result<Option<Vec<u8>>, Unlent> {
        let placeholder = self.one.placeholder.as_bytes();
        if !text.windows(placeholder.len()).any(|window| window == placeholder) {
            return Ok(None);
        }
        let value = self.value.as_ref().ok_or(Unlent)?;
        let replacement = Replacement::of(vec![(placeholder.to_vec(), value.expose().to_vec())]);
        Ok(replacement.and_then(|replacement| replacement.whole(text)))
    }
}

fn substitute_head(headers: &mut HeaderMap, uri: &mut Uri, standing: &[Standing<'_>]) -> Result<(), Unlent> {
    for standing in standing {
        if standing.is_within("header") {
            for value in headers.values_mut() {
                if let Some(changed) = in_header(standing, value.as_bytes())? {
                    let mut changed = HeaderValue::from_bytes(&changed).map_err(|_| Unlent)?;
                    changed.set_sensitive(true);
                    *value = changed;
                }
            }
        }
        if standing.is_within("query")
            && let Some(query) = uri.query()
            && let Some(changed) = in_query(standing, query)?
        {
            let path = format!("{}?{changed}", uri.path());
            *uri = path.parse().map_err(|_| Unlent)?;
        }
    }
    Ok(())
}

/// A header's value, looked into where it is `Basic`: there the placeholder is encoded with the user's name.
fn in_header(standing: &Standing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>, Unlent> {
    let basic = value.get(..6).filter(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
    if basic.is_some()
        && let Ok(pair) = STANDARD.decode(value[6..].trim_ascii())
        && let Some(changed) = standing.put_into(&pair)?
    {
        return Ok(Some(format!("Basic {}", STANDARD.encode(changed)).into_bytes()));
    }
    standing.put_into(value)
}

fn in_query(standing: &Standing<'_>, query: &str) -> Result<Option<String>, Unlent> {
    if !query.contains(&standing.one.placeholder) {
        return Ok(None);
    }
    let value = standing.value.as_ref().ok_or(Unlent)?;
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let encoded: String = (value.expose().iter())
        .map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect();
    Ok(Some(query.replace(&standing.one.placeholder, &encoded)))
}

fn content(bytes: Bytes) -> Content {
    Full::new(bytes).map_err(|never| match never {}).boxed()
}

/// A request's body, no longer than the call may send.
struct Counted {
    body: Incoming,
    watch: Arc<Watch>,
    scope: EgressScope,
    sent: Arc<AtomicU64>,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            None => return Poll::Ready(None),
        };
        let length = frame.data_ref().map_or(0, Bytes::len) as u64;
        if !self.watch.spend(&self.scope, length) {
            self.watch.refuse(&self.scope.host, self.scope.port, TOO_MUCH);
            return Poll::Ready(Some(Err(io::Error::other(TOO_MUCH))));
        }
        self.sent.fetch_add(length, Ordering::Relaxed);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// A body in which values become placeholders again.
struct Restored {
    body: Content,
    passing: Passing,
    ended: bool,
}

impl Body for Restored {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => {
                    // Trailers are not needed by anybody, and could hold anything.
                    let Ok(data) = frame.into_data() else { continue };
                    let out = self.passing.push(&data);
                    if !out.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(out))));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.ended = true;
                    let rest = self.passing.end();
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                }
            }
        }
    }
}

/// A stream of which something was read already.
struct Prefixed {
    read: Bytes,
    stream: TcpStream,
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.read.len().min(buffer.remaining());
        let first = self.read.split_to(length);
        buffer.put_slice(&first);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
