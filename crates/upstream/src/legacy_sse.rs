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
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use url::Url;

use crate::desk::{Desk, Outgoing};
use crate::endpoint::Remote;
use crate::event::{Events, UpstreamEvent};
use crate::link::MESSAGE_LIMIT;
use crate::pool::{Pool, Unsent, Wire};
use crate::sse::EventStream;
use crate::{Settings, UpstreamError};

/// A server of the first revision behind a URL.
#[derive(Debug)]
pub(crate) struct LegacySseLink {
    desk: Arc<Desk>,
    pool: Arc<Pool>,
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
        remote: &Remote,
        events: Events,
        settings: &Settings,
    ) -> Result<Self, UpstreamError> {
        let pool = Arc::new(Pool::new(remote, events.clone(), settings)?);
        let url = remote.url.url();
        let opened = timeout(settings.handshake_timeout, open_stream(&pool, url));
        let (stream, address) = opened.await.map_err(|_| {
            UpstreamError::unavailable("the server's stream did not name the address to post to in time")
        })??;
        let Some(address) = same_origin(url, &address) else {
            events.emit(UpstreamEvent::ForeignEndpoint);
            return Err(UpstreamError::protocol("the server wants messages sent to another origin"));
        };
        let (desk, frames) = Desk::new(events);
        let reader = tokio::spawn(read(stream, Arc::clone(&desk)));
        let writer = tokio::spawn(write(Arc::clone(&pool), address, frames, Arc::clone(&desk)));
        Ok(Self { desk, pool, tasks: [reader.abort_handle(), writer.abort_handle()] })
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
        self.pool.clear();
    }
}

impl Drop for LegacySseLink {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens the stream and reads its first event, which is the address to post to.
async fn open_stream(pool: &Pool, url: &Url) -> Result<(Stream, String), UpstreamError> {
    let request = request(Method::GET, url, Bytes::new());
    let (wire, response) =
        pool.send(request).await.map_err(|Unsent { reason, .. }| UpstreamError::unavailable(reason))?;
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
    desk.events.emit(UpstreamEvent::Exited { reason: reason.into(), words: None });
}

async fn write(pool: Arc<Pool>, address: Url, mut frames: mpsc::Receiver<Outgoing>, desk: Arc<Desk>) {
    while let Some(frame) = frames.recv().await {
        let mut posted = request(Method::POST, &address, frame.bytes);
        posted.headers_mut().extend(frame.headers);
        let reason = match pool.send(posted).await {
            Ok((wire, response)) if response.status().is_success() => {
                pool.acknowledge(wire, response).await;
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

fn request(method: Method, url: &Url, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    let path = url.query().map_or(url.path().to_owned(), |query| format!("{}?{query}", url.path()));
    *request.uri_mut() = path.parse::<Uri>().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(url.authority()) {
        headers.insert(HOST, host);
    }
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
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
