//! What an HTTP response is made of: one JSON document, or the events of a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body as HttpBody, Frame};
use hyper::{Response, StatusCode, header};
use serde_json::Value;
use tokio::sync::{mpsc::UnboundedReceiver, oneshot};

use crate::outbox::Outgoing;

pub(crate) type Body = Either<Full<Bytes>, EventStream>;

/// How long a response may take to leave before the process that promised to die does.
const DEPARTURE: Duration = Duration::from_millis(100);

/// The texts of an outbox as server-sent events; ends when the outbox does.
pub(crate) struct EventStream {
    first: Option<Bytes>,
    outgoing: UnboundedReceiver<Outgoing>,
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        loop {
            match ready!(self.outgoing.poll_recv(context)) {
                None => return Poll::Ready(None),
                Some(Outgoing::Flushed(done)) => depart(done),
                Some(Outgoing::Text { text, .. }) => {
                    let event = Bytes::from(format!("event: message\ndata: {text}\n\n"));
                    return Poll::Ready(Some(Ok(Frame::data(event))));
                }
            }
        }
    }
}

/// hyper does not say when bytes have left; a moment after they were handed over they have.
fn depart(done: oneshot::Sender<()>) {
    tokio::spawn(async move {
        tokio::time::sleep(DEPARTURE).await;
        let _ = done.send(());
    });
}

/// A response that streams, after `first` if there is something to say before all else.
pub(crate) fn events(first: Option<String>, outgoing: UnboundedReceiver<Outgoing>) -> Response<Body> {
    let mut response = Response::new(Either::Right(EventStream { first: first.map(Bytes::from), outgoing }));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert("x-accel-buffering", header::HeaderValue::from_static("no"));
    response
}

/// A response of one document: the last text of the outbox, or all of them if noise is wanted.
pub(crate) async fn document(mut outgoing: UnboundedReceiver<Outgoing>, noisy: bool) -> String {
    let mut texts = Vec::new();
    while let Some(piece) = outgoing.recv().await {
        match piece {
            Outgoing::Text { text, .. } => texts.push(text),
            Outgoing::Flushed(done) => {
                depart(done);
                break;
            }
        }
    }
    if noisy { texts.join("\n") } else { texts.pop().unwrap_or_default() }
}

/// The HTTP status that the modern era gives a JSON-RPC error.
pub(crate) fn status_of(document: &str) -> StatusCode {
    let code =
        serde_json::from_str::<Value>(document).ok().and_then(|message| message["error"]["code"].as_i64());
    match code {
        Some(-32601) => StatusCode::NOT_FOUND,
        Some(-32700 | -32600 | -32602 | -32022..=-32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// A response of one JSON document.
pub(crate) fn json(status: StatusCode, document: String) -> Response<Body> {
    let mut response = plain(status);
    *response.body_mut() = Either::Left(Full::new(Bytes::from(document)));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// A response without a body.
pub(crate) fn plain(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::default()));
    *response.status_mut() = status;
    response
}
