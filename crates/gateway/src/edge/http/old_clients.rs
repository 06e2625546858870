//! Clients of 2024-11-05 over HTTP: a stream that stays open, and an address to post to (PRO-31).
//!
//! All answers go on the stream, so such a client is served as one on stdio is. The address holds 128 random bits and
//! is bound to the principal who opened the stream; it is never a credential.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use portcullis_core::Principal;
use portcullis_core::digest::to_hex;
use rand::RngExt as _;
use tokio::sync::mpsc;

use super::body::{event, streaming};
use super::headers::accepts;
use super::respond::KEEP_ALIVE;
use super::{Reply, busy, plain, too_many_streams};
use crate::control::told_to_stop;
use crate::edge::Edge;
use crate::edge::lines::Lines;
use crate::surface::Listener;

/// More at once are refused.
const MOST: usize = 1_024;
/// How many events may wait for a client that does not read, and for how long.
const QUEUE: usize = 64;
const SLOW: Duration = Duration::from_secs(30);
/// Where such clients post to.
pub(super) const MESSAGES: &str = "/messages";

/// All of them, by the random part of their addresses.
#[derive(Debug, Default)]
pub(crate) struct OldClients(Mutex<HashMap<String, OldClient>>);

#[derive(Debug)]
struct OldClient {
    principal: Principal,
    lines: Lines,
}

impl OldClients {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, OldClient>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Edge {
    /// Opens a stream and names the address to post to, as its first event.
    pub(super) fn open_old(self: &Arc<Self>, headers: &HeaderMap, principal: &Principal) -> Reply {
        if !accepts(headers, "text/event-stream") {
            return plain(StatusCode::NOT_ACCEPTABLE, "Accept must allow text/event-stream");
        }
        let Some(place) = self.places.take(principal) else { return too_many_streams() };
        let id = to_hex(&rand::rng().random::<[u8; 16]>());
        let (replies, said) = mpsc::unbounded_channel();
        {
            let mut clients = self.old_clients.lock();
            if clients.len() >= MOST {
                return busy();
            }
            let lines = Lines::new(principal.clone(), Listener::Http, replies);
            clients.insert(id.clone(), OldClient { principal: principal.clone(), lines });
        }
        let (events, stream) = mpsc::channel(QUEUE);
        let address = format!("event: endpoint\ndata: {MESSAGES}?session={id}\n\n");
        let _ = events.try_send(address.into());
        tokio::spawn(forward(self.clone(), id, said, events));
        streaming(stream, place)
    }

    /// One message; what it comes to goes on the stream.
    pub(super) fn take_old(
        self: &Arc<Self>,
        query: Option<&str>,
        principal: &Principal,
        message: Bytes,
    ) -> Reply {
        let id = query.and_then(|query| query.strip_prefix("session=")).unwrap_or_default();
        let mut clients = self.old_clients.lock();
        match clients.get_mut(id).filter(|client| client.principal == *principal) {
            Some(client) => {
                client.lines.take(self, message);
                plain(StatusCode::ACCEPTED, "")
            }
            None => {
                plain(StatusCode::NOT_FOUND, "there is no stream for this address; open one with GET /sse")
            }
        }
    }
}

/// Passes on what is said until the client goes, or reads nothing for too long, or this gateway goes.
async fn forward(
    edge: Arc<Edge>,
    id: String,
    mut said: mpsc::UnboundedReceiver<Vec<u8>>,
    events: mpsc::Sender<Bytes>,
) {
    let mut closing = edge.closing.subscribe();
    loop {
        let next = tokio::select! {
            Some(message) = said.recv() => event(&message),
            () = events.closed() => break,
            () = told_to_stop(&mut closing) => break,
            () = tokio::time::sleep(KEEP_ALIVE) => Bytes::from_static(b": still here\n\n"),
        };
        if events.send_timeout(next, SLOW).await.is_err() {
            break;
        }
    }
    let client = edge.old_clients.lock().remove(&id);
    if let Some(client) = client {
        client.lines.end().await;
    }
}
