//! HTTP as the first revision had it (2024-11-05): a stream that stays open, on which the server says everything, and
//! an address it names there, to which we post (PRO-38).
//!
//! Two tasks live as long as the connection. One reads the stream and hands out what is on it, one posts what is
//! written, in order. The connection is over when the stream is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use portcullis_core::ServerIdentity;
use portcullis_sandbox::broker::Secret;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use url::Url;

use crate::desk::{Desk, Outgoing};
use crate::endpoint::Remote;
use crate::event::{Events, UpstreamEvent};
use crate::link::MESSAGE_LIMIT;
use crate::oauth::Account;
use crate::pool::{Pool, Unsent, Wire};
use crate::sse::EventStream;
use crate::{Settings, UpstreamError};

/// A server of the first revision behind a URL.
#[derive(Debug)]
pub(crate) struct LegacySseLink {
    desk: Arc<Desk>,
    door: Door,
    tasks: [AbortHandle; 2],
}

/// The stream, with what was read of it already.
struct Stream {
    // Held so that the connection stays open.
    _wire: Wire,
    response: Response<Incoming>,
    events: EventStream,
}

impl LegacySseLink {
    pub(crate) async fn open(
        server: &ServerIdentity,
        remote: &Remote,
        events: Events,
        settings: &Settings,
    ) -> Result<Self, UpstreamError> {
        let url = remote.url.url();
        let account = settings.broker.as_ref().map(|broker| Account::new(server, url, Arc::clone(broker)));
        let account = account.map(Arc::new);
        let door = Door { pool: Arc::new(Pool::new(server, remote, events.clone(), settings)?), account };
        let opened = timeout(settings.handshake_timeout, open_stream(&door, url));
        let (stream, address) = opened.await.map_err(|_| {
            UpstreamError::unavailable("the server's stream did not name the address to post to in time")
        })??;
        let Some(address) = same_origin(url, &address) else {
            events.emit(UpstreamEvent::ForeignEndpoint);
            return Err(UpstreamError::protocol("the server wants messages sent to another origin"));
        };
        let (desk, frames) = Desk::new(events);
        let reader = tokio::spawn(read(stream, Arc::clone(&desk)));
        let writer = tokio::spawn(write(door.clone(), address, frames, Arc::clone(&desk)));
        Ok(Self { desk, door, tasks: [reader.abort_handle(), writer.abort_handle()] })
    }

    /// The token that the server is shown, if there is one.
    pub(crate) fn token(&self) -> Option<Arc<Secret>> {
        self.door.account.as_ref()?.token()
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    pub(crate) async fn close(&self, drain: Duration) {
        let _ = timeout(drain, self.desk.pending.idle()).await;
        self.end();
    }

    fn end(&self) {
        self.desk.pending.close("the connection is closed");
        self.tasks.iter().for_each(AbortHandle::abort);
        self.door.pool.clear();
    }
}

impl Drop for LegacySseLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// How the server is reached, and who we are there, if somebody logged in (PRO-35).
#[derive(Debug, Clone)]
struct Door {
    pool: Arc<Pool>,
    account: Option<Arc<Account>>,
}

impl Door {
    /// Sends a request, and once more if what we showed was refused and there is something better.
    async fn send(
        &self,
        method: Method,
        url: &Url,
        frame: Outgoing,
    ) -> Result<(Wire, Response<Incoming>), Unsent> {
        let Some(account) = &self.account else {
            return self.pool.send(request(method, url, frame)).await;
        };
        account.prepare().await;
        let made = || {
            let mut request = request(method.clone(), url, frame.clone());
            let shown = account.shown_at(&method, url);
            let authorization = shown.as_ref().map(|shown| shown.authorization.clone());
            shown.into_iter().for_each(|shown| shown.put(request.headers_mut()));
            (request, authorization)
        };
        let (first, authorization) = made();
        let sent = self.pool.send(first).await?;
        let told = account.told(sent.1.headers());
        match sent.1.status().as_u16() {
            401 if told || account.refused(authorization.as_ref()).await => {
                self.pool.acknowledge(sent.0, sent.1).await;
                self.pool.send(made().0).await
            }
            _ => Ok(sent),
        }
    }
}

/// Opens the stream and reads its first event, which is the address to post to.
async fn open_stream(door: &Door, url: &Url) -> Result<(Stream, String), UpstreamError> {
    let (wire, response) = door
        .send(Method::GET, url, Bytes::new().into())
        .await
        .map_err(|Unsent { reason, .. }| UpstreamError::unavailable(reason))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(crate::greeting::http_failure(status));
    }
    let mut stream = Stream { _wire: wire, response, events: EventStream::default() };
    match stream.next().await {
        Some(address) => Ok((stream, String::from_utf8_lossy(&address).into_owned())),
        None => Err(UpstreamError::protocol("the server's stream ended before it named an address")),
    }
}

impl Stream {
    /// The data of the next event.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(data) = self.events.next_data() {
                return Some(data);
            }
            if self.events.held() > MESSAGE_LIMIT {
                return None;
            }
            let frame = self.response.body_mut().frame().await?.ok()?;
            if let Ok(chunk) = frame.into_data() {
                self.events.push(&chunk);
            }
        }
    }
}

/// The address, if it is on the origin that was registered (GOV §3).
fn same_origin(base: &Url, address: &str) -> Option<Url> {
    let joined = base.join(address.trim()).ok()?;
    let same =
        joined.origin() == base.origin() && joined.username().is_empty() && joined.password().is_none();
    same.then_some(joined)
}

async fn read(mut stream: Stream, desk: Arc<Desk>) {
    while let Some(data) = stream.next().await {
        desk.line(&data);
    }
    let reason = if stream.events.held() > MESSAGE_LIMIT {
        desk.overlong(stream.events.head());
        "the server's stream has an event longer than 16 MiB"
    } else {
        "the server ended its stream"
    };
    desk.pending.close(reason);
    desk.events.emit(UpstreamEvent::Exited { reason: reason.into(), words: None, expected: false });
}

async fn write(door: Door, address: Url, mut frames: mpsc::Receiver<Outgoing>, desk: Arc<Desk>) {
    while let Some(frame) = frames.recv().await {
        let reason = match door.send(Method::POST, &address, frame).await {
            Ok((wire, response)) if response.status().is_success() => {
                door.pool.acknowledge(wire, response).await;
                continue;
            }
            Ok((_, response)) => {
                format!("the server refused a message (HTTP {})", response.status().as_u16())
            }
            Err(Unsent { reason, .. }) => reason,
        };
        desk.pending.close(&reason);
        return;
    }
}

fn request(method: Method, url: &Url, frame: Outgoing) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(frame.bytes));
    *request.method_mut() = method;
    let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    *request.uri_mut() = path.parse::<Uri>().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(url.authority()) {
        headers.insert(HOST, host);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.extend(frame.headers);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_on_the_registered_origin() {
        // GOV §3, MP-FH-005
        let base: Url = "http://127.0.0.1:8000/sse".parse().unwrap();
        for good in ["/messages?session=1", "messages/", "?s=2", "http://127.0.0.1:8000/m"] {
            assert!(same_origin(&base, good).is_some(), "{good}");
        }
        for bad in [
            "http://127.0.0.1:8001/m",
            "https://127.0.0.1:8000/m",
            "//evil.example/m",
            "http://localhost:8000/m",
            "http://u:p@127.0.0.1:8000/m",
            "file:///etc/passwd",
            "http://[",
        ] {
            assert!(same_origin(&base, bad).is_none(), "{bad}");
        }
    }
}
