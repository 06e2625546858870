//! The body of a response: one document, or the events of a stream.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::Full;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

use super::places::Place;

/// What a response carries.
pub(crate) enum Body {
    Whole(Full<Bytes>),
    /// With the place that its agent has for it.
    Events(mpsc::Receiver<Bytes>, #[allow(dead_code, reason = "dropped with the body")] Place),
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole(body) => Pin::new(body).poll_frame(context),
            Body::Events(events, _) => {
                events.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(body) => body.is_end_stream(),
            Body::Events(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(body) => body.size_hint(),
            Body::Events(..) => SizeHint::default(),
        }
    }
}

/// A response that streams.
pub(super) fn streaming(events: mpsc::Receiver<Bytes>, place: Place) -> Response<Body> {
    let mut reply = Response::new(Body::Events(events, place));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    reply
}

/// One message as an event.
pub(super) fn event(message: &[u8]) -> Bytes {
    let mut text = Vec::with_capacity(message.len() + 24);
    text.extend_from_slice(b"event: message\ndata: ");
    text.extend_from_slice(message);
    text.extend_from_slice(b"\n\n");
    text.into()
}
