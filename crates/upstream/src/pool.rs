//! HTTP connections kept open between requests.
//!
//! Plain HTTP goes to this machine only (GOV §3): the host is a loopback literal, or `localhost`, which we resolve
//! ourselves; the address that answered is checked again. No proxy is asked and no redirect followed, so nothing
//! else can be reached from here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use portcullis_governance::endpoint::HttpEndpoint;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use url::Host;

use crate::UpstreamError;

/// How many idle connections are kept.
const KEPT: usize = 32;

/// Connections to one origin.
#[derive(Debug)]
pub(crate) struct Pool {
    addresses: Vec<SocketAddr>,
    connect_timeout: Duration,
    idle: Mutex<Vec<Wire>>,
}

/// One connection. Dropping it closes it at once, whatever is under way; that is how a request is abandoned.
#[derive(Debug)]
pub(crate) struct Wire {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why a request got no response.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) reason: String,
    /// Whether bytes may have left.
    pub(crate) sent: bool,
}

impl Pool {
    pub(crate) fn new(endpoint: &HttpEndpoint, connect_timeout: Duration) -> Result<Self, UpstreamError> {
        let url = endpoint.url();
        if url.scheme() != "http" {
            return Err(UpstreamError::unavailable("https servers cannot be reached by this build"));
        }
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
        let addresses = hosts.into_iter().map(|host| SocketAddr::new(host, port)).collect();
        Ok(Self { addresses, connect_timeout, idle: Mutex::default() })
    }

    /// Sends a request, on a connection that was kept or on a new one. A kept connection that turns out to be
    /// closed before the request was begun is replaced; a request that was begun is never repeated.
    pub(crate) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Wire, Response<Incoming>), Unsent> {
        loop {
            let kept = self.checkout().await;
            let fresh = kept.is_none();
            let mut wire = match kept {
                Some(wire) => wire,
                None => self.connect().await?,
            };
            match wire.sender.try_send_request(request).await {
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

    /// Keeps a connection whose response was read to its end.
    pub(crate) fn keep(&self, wire: Wire) {
        let mut idle = self.lock();
        if idle.len() < KEPT && !wire.sender.is_closed() {
            idle.push(wire);
        }
    }

    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    async fn checkout(&self) -> Option<Wire> {
        loop {
            let mut wire = self.lock().pop()?;
            if wire.sender.ready().await.is_ok() {
                return Some(wire);
            }
        }
    }

    async fn connect(&self) -> Result<Wire, Unsent> {
        let failed = |reason: String| Unsent { reason, sent: false };
        let mut reason = String::new();
        for address in &self.addresses {
            let stream = match timeout(self.connect_timeout, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    reason = format!("cannot connect to {address}: {error}");
                    continue;
                }
                Err(_) => {
                    reason =
                        format!("cannot connect to {address} in {} s", self.connect_timeout.as_secs_f32());
                    continue;
                }
            };
            match stream.peer_addr() {
                Ok(peer) if peer.ip().is_loopback() => {}
                _ => return Err(failed(format!("{address} was answered by another machine"))),
            }
            let _ = stream.set_nodelay(true);
            let (sender, connection) = http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| failed(format!("the connection failed: {error}")))?;
            let driver = tokio::spawn(async move {
                let _ = connection.await;
            });
            return Ok(Wire { sender, driver: driver.abort_handle() });
        }
        Err(failed(reason))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Wire>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
