//! HTTP connections kept open between requests.
//!
//! Plain HTTP goes to this machine only (GOV §3): the host is a loopback literal, or `localhost`, which we resolve
//! ourselves; the address that answered is checked again. Everything else is TLS, with HTTP/2 where the server speaks
//! it. No proxy is asked and no redirect followed, so nothing else can be reached from here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use portcullis_core::ServerIdentity;
use portcullis_sandbox::broker::Secret;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Host;

use crate::endpoint::Remote;
use crate::event::{Events, UpstreamEvent};
use crate::link::ENVELOPE_ALLOWANCE;
use crate::{Settings, UpstreamError, tls};

/// How many idle connections are kept.
const KEPT: usize = 32;

type Body = Full<Bytes>;

/// Connections to one origin.
pub(crate) struct Pool {
    origin: Origin,
    connect_timeout: Duration,
    events: Events,
    idle: Mutex<Vec<Wire>>,
    /// The one connection of HTTP/2, which carries everything at once.
    shared: Mutex<Option<Wire>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("connect_timeout", &self.connect_timeout).finish_non_exhaustive()
    }
}

/// Where connections lead.
enum Origin {
    /// This machine.
    Plain(Vec<SocketAddr>),
    /// Whoever proves to be this host.
    Private { host: String, port: u16, name: ServerName<'static>, authority: Authority, tls: TlsConnector },
}

/// One connection. Dropping it closes it at once, whatever is under way; that is how a request is abandoned. One of
/// HTTP/2 is closed with its last user, and a request is abandoned by dropping its response.
#[derive(Debug)]
pub(crate) struct Wire {
    sender: Sender,
    driver: Arc<Driver>,
}

#[derive(Debug)]
enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

#[derive(Debug)]
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) reason: String,
    /// Whether bytes may have left.
    pub(crate) sent: bool,
}

impl Unsent {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), sent: false }
    }
}

impl Pool {
    pub(crate) fn new(
        server: &ServerIdentity,
        remote: &Remote,
        events: Events,
        settings: &Settings,
    ) -> Result<Self, UpstreamError> {
        let url = remote.url.url();
        let origin = if url.scheme() == "https" { private(server, remote, settings)? } else { plain(url)? };
        let connect_timeout = settings.connect_timeout;
        Ok(Self { origin, connect_timeout, events, idle: Mutex::default(), shared: Mutex::default() })
    }

    /// Sends a request, on a connection that was kept or on a new one. A kept connection that turns out to be
    /// closed before the request was begun is replaced; a request that was begun is never repeated.
    pub(crate) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<(Wire, Response<Incoming>), Unsent> {
        loop {
            let kept = self.checkout().await;
            let fresh = kept.is_none();
            let mut wire = match kept {
                Some(wire) => wire,
                None => self.connect().await?,
            };
            match self.try_send(&mut wire, request).await {
                Ok(response) => return Ok((wire, response)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => request = unsent,
                    unsent => {
                        let reason = format!("the connection failed: {}", error.into_error());
                        return Err(Unsent { reason, sent: unsent.is_none() });
                    }
                },
            }
        }
    }

    async fn try_send(
        &self,
        wire: &mut Wire,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        match &mut wire.sender {
            Sender::One(sender) => sender.try_send_request(request).await,
            Sender::Two(sender) => {
                if let Origin::Private { authority, .. } = &self.origin {
                    whole_uri(&mut request, authority);
                }
                sender.try_send_request(request).await
            }
        }
    }

    /// Keeps a connection whose response was read to its end.
    pub(crate) fn keep(&self, wire: Wire) {
        let Sender::One(sender) = &wire.sender else { return };
        let mut idle = lock(&self.idle);
        if idle.len() < KEPT && !sender.is_closed() {
            idle.push(wire);
        }
    }

    /// Reads what is of no interest in a response, so that its connection can be kept.
    pub(crate) async fn acknowledge(&self, wire: Wire, mut response: Response<Incoming>) {
        let mut read = 0;
        while let Some(Ok(frame)) = response.body_mut().frame().await {
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > ENVELOPE_ALLOWANCE {
                return;
            }
        }
        self.keep(wire);
    }

    pub(crate) fn clear(&self) {
        lock(&self.idle).clear();
        lock(&self.shared).take();
    }

    async fn checkout(&self) -> Option<Wire> {
        if let Some(Wire { sender: Sender::Two(sender), driver }) = lock(&self.shared).as_ref()
            && !sender.is_closed()
        {
            return Some(Wire { sender: Sender::Two(sender.clone()), driver: Arc::clone(driver) });
        }
        loop {
            let mut wire = lock(&self.idle).pop()?;
            if let Sender::One(sender) = &mut wire.sender
                && sender.ready().await.is_ok()
            {
                return Some(wire);
            }
        }
    }

    async fn connect(&self) -> Result<Wire, Unsent> {
        match &self.origin {
            Origin::Plain(addresses) => {
                let stream = self.dial(addresses).await?;
                match stream.peer_addr() {
                    Ok(peer) if peer.ip().is_loopback() => {}
                    _ => return Err(Unsent::new("loopback was answered by another machine")),
                }
                first_version(TokioIo::new(stream)).await
            }
            Origin::Private { host, port, name, tls, .. } => {
                let looked_up = tokio::net::lookup_host((host.as_str(), *port));
                let addresses: Vec<_> = match timeout(self.connect_timeout, looked_up).await {
                    Ok(Ok(found)) => found.collect(),
                    _ => return Err(Unsent::new(format!("the name {host} cannot be resolved"))),
                };
                let stream = self.dial(&addresses).await?;
                let connected = timeout(self.connect_timeout, tls.connect(name.clone(), stream)).await;
                let stream = connected.map_err(|_| Unsent::new("the TLS handshake took too long"))?.map_err(
                    |error| {
                        let (reason, other_key) = tls::failure(&error);
                        if other_key {
                            self.events.emit(UpstreamEvent::OtherKey);
                        }
                        Unsent::new(reason)
                    },
                )?;
                if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                    let (sender, driver) = second_version(TokioIo::new(stream)).await?;
                    let [kept, wire] =
                        [0; 2].map(|_| Wire { sender: Sender::Two(sender.clone()), driver: driver.clone() });
                    *lock(&self.shared) = Some(kept);
                    Ok(wire)
                } else {
                    first_version(TokioIo::new(stream)).await
                }
            }
        }
    }

    async fn dial(&self, addresses: &[SocketAddr]) -> Result<TcpStream, Unsent> {
        let mut reason = "there is no address to connect to".to_owned();
        for address in addresses {
            match timeout(self.connect_timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => reason = format!("cannot connect to {address}: {error}"),
                Err(_) => {
                    let seconds = self.connect_timeout.as_secs_f32();
                    reason = format!("cannot connect to {address} in {seconds} s");
                }
            }
        }
        Err(Unsent::new(reason))
    }
}

fn plain(url: &url::Url) -> Result<Origin, UpstreamError> {
    let port = url.port_or_known_default().unwrap_or(80);
    let hosts: Vec<IpAddr> = match url.host() {
        Some(Host::Ipv4(address)) => vec![address.into()],
        Some(Host::Ipv6(address)) => vec![address.into()],
        Some(Host::Domain("localhost")) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
        _ => Vec::new(),
    };
    if hosts.is_empty() || hosts.iter().any(|host| !host.is_loopback()) {
        return Err(UpstreamError::unavailable("plain http is for loopback addresses only"));
    }
    Ok(Origin::Plain(hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect()))
}

fn private(server: &ServerIdentity, remote: &Remote, settings: &Settings) -> Result<Origin, UpstreamError> {
    let url = remote.url.url();
    let unusable = || UpstreamError::unavailable("the URL's host cannot be asked for by name");
    let port = url.port_or_known_default().unwrap_or(443);
    let (host, name) = match url.host() {
        Some(Host::Domain(name)) => {
            (name.to_owned(), ServerName::try_from(name.to_owned()).map_err(|_| unusable())?)
        }
        Some(Host::Ipv4(address)) => (address.to_string(), ServerName::from(IpAddr::from(address))),
        Some(Host::Ipv6(address)) => (address.to_string(), ServerName::from(IpAddr::from(address))),
        None => return Err(unusable()),
    };
    let authority = url.authority().parse().map_err(|_| unusable())?;
    let identity = settings.broker.as_ref().map(|broker| broker.client_key(server.as_str())).transpose();
    let identity = identity.map_err(|denied| UpstreamError::unavailable(denied.to_string()))?.flatten();
    let identity = identity.as_ref().map(Secret::expose);
    let config = tls::client_config(remote.spki, settings.authorities.as_deref(), identity)?;
    Ok(Origin::Private { host, port, name, authority, tls: TlsConnector::from(config) })
}

/// HTTP/2 wants the whole address in the request and no `Host` beside it.
fn whole_uri(request: &mut Request<Body>, authority: &Authority) {
    let path = request.uri().path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
    let mut parts = http::uri::Parts::default();
    (parts.scheme, parts.authority, parts.path_and_query) =
        (Some(Scheme::HTTPS), Some(authority.clone()), Some(path));
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
        request.headers_mut().remove(http::header::HOST);
    }
}

async fn first_version<Io>(io: Io) -> Result<Wire, Unsent>
where
    Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(io).await.map_err(failed)?;
    let driver = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Wire { sender: Sender::One(sender), driver: Arc::new(Driver(driver.abort_handle())) })
}

async fn second_version<Io>(io: Io) -> Result<(http2::SendRequest<Body>, Arc<Driver>), Unsent>
where
    Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.map_err(failed)?;
    let driver = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok((sender, Arc::new(Driver(driver.abort_handle()))))
}

fn failed(error: hyper::Error) -> Unsent {
    Unsent::new(format!("the connection failed: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
