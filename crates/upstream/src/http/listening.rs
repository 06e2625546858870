//! Hearing of changes over HTTP: a stream that stays open beside the calls.
//!
//! A legacy server offers it as a GET, a modern one as the answer to `subscriptions/listen`. It is a convenience: a
//! server that offers none is as good as any, and one that ends it is asked again after a pause.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use portcullis_core::ServerIdentity;
use portcullis_core::jsonrpc::{Kind, Message};
use portcullis_governance::boundary::ProbeAuthority;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Content, HttpLink, Inner, content_type, lock};
use crate::frame::{Frames, fresh_id};
use crate::link::{Exchange, MESSAGE_LIMIT};
use crate::sse::EventStream;

/// The pause before the stream is opened again, and what it grows to.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why a stream is over.
enum Over {
    /// It may be opened again.
    Ended,
    /// The server has none.
    NotOffered,
}

impl HttpLink {
    /// Listens until the link is closed or dropped; `frames` are those of the modern era, if that is the server's. What it
    /// gives back is done when the stream is open, or the server has none.
    pub(crate) fn listen(
        &self,
        server: ServerIdentity,
        authority: Arc<dyn ProbeAuthority>,
        frames: Option<Frames>,
    ) -> oneshot::Receiver<()> {
        let (opened, is_open) = oneshot::channel();
        let task = tokio::spawn(keep_listening(Arc::clone(&self.inner), server, authority, frames, opened));
        if let Some(earlier) = lock(&self.listener).replace(task.abort_handle()) {
            earlier.abort();
        }
        is_open
    }

    pub(super) fn stop_listening(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            listener.abort();
        }
    }
}

async fn keep_listening(
    link: Arc<Inner>,
    server: ServerIdentity,
    authority: Arc<dyn ProbeAuthority>,
    frames: Option<Frames>,
    opened: oneshot::Sender<()>,
) {
    let mut opened = Some(opened);
    let method = if frames.is_some() { "subscriptions/listen" } else { "listen" };
    let mut pause = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let Ok(_permit) = authority.authorise(&server, method).await else { return };
        match link.hear(frames.as_ref(), &mut opened).await {
            Over::NotOffered => return,
            Over::Ended => {}
        }
        pause = if began.elapsed() > LONGEST_PAUSE { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        tokio::time::sleep(pause).await;
    }
}

impl Inner {
    async fn hear(
        self: &Arc<Self>,
        frames: Option<&Frames>,
        opened: &mut Option<oneshot::Sender<()>>,
    ) -> Over {
        let id = fresh_id();
        self.prepare().await;
        let request = match frames {
            None => self.request(Method::GET, Bytes::new(), None),
            Some(frames) => {
                let bytes = frames.listen(id);
                let exchange = Exchange {
                    id,
                    call: None,
                    bytes: &bytes,
                    method: "subscriptions/listen",
                    name: None,
                    mirrored: &[],
                    timeout: Duration::MAX,
                    max_response_bytes: MESSAGE_LIMIT,
                    attendant: None,
                    headers: &[],
                };
                self.request(Method::POST, bytes.clone(), Some(exchange))
            }
        };
        let Ok((_wire, mut response)) = self.pool.send(request).await else { return Over::Ended };
        if !response.status().is_success() || !matches!(content_type(&response), Content::Events) {
            return Over::NotOffered;
        }
        if let Some(opened) = opened.take() {
            let _ = opened.send(());
        }
        let mut events = EventStream::default();
        while let Some(Ok(frame)) = response.body_mut().frame().await {
            let Ok(chunk) = frame.into_data() else { continue };
            events.push(&chunk);
            while let Some(data) = events.next_data() {
                match Message::read(&data) {
                    None => self.events.violation("an event that is not a JSON-RPC message"),
                    Some(message) => match message.kind() {
                        Kind::Response { id: over, .. } if over.get().parse() == Ok(id) => {
                            return Over::Ended;
                        }
                        // A modern server says what belongs to a call on the call's own stream.
                        _ if frames.is_some() => self.beside(&message, None),
                        _ => self.beside_all(&message),
                    },
                }
            }
            if events.held() > MESSAGE_LIMIT {
                self.events.violation("an event longer than 16 MiB");
                return Over::Ended;
            }
        }
        Over::Ended
    }
}
