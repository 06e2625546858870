//! Streams that belong to no request: what a legacy client hears of unasked, and what it missed (PRO-31).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use portcullis_core::Principal;

use super::body::streaming;
use super::headers::accepts;
use super::respond::KEEP_ALIVE;
use super::resumable::{Lost, Resumable};
use super::{Reply, busy, plain, too_many_streams};
use crate::control::told_to_stop;
use crate::edge::Edge;
use crate::edge::Sender;
use crate::edge::conversation::Conversation;
use crate::edge::news::{News, Topic, notification};

/// How long a stream waits for a client that may come back.
const RETURN: Duration = Duration::from_secs(60);

impl Edge {
    /// A GET: opens the session's standing stream, or goes on with one that was cut off.
    pub(super) fn get(self: &Arc<Self>, headers: &HeaderMap, principal: &Principal) -> Reply {
        if !accepts(headers, "text/event-stream") {
            return plain(StatusCode::NOT_ACCEPTABLE, "Accept must allow text/event-stream");
        }
        let conversation = match self.conversation(principal, headers) {
            Ok(conversation) => conversation,
            Err(refusal) => return refusal,
        };
        let Some(place) = self.places.take(principal) else { return too_many_streams() };
        if let Some(last) = headers.get("last-event-id") {
            return match conversation.streams().resume(last.to_str().unwrap_or_default()) {
                Ok(events) => streaming(events, place),
                Err(Lost::Unknown) => {
                    plain(StatusCode::BAD_REQUEST, "Last-Event-ID names no event of this session")
                }
                Err(Lost::Forgotten) => plain(
                    StatusCode::BAD_REQUEST,
                    "the events after this one are no longer kept; ask again for what you need",
                ),
            };
        }
        let Some(stream) = conversation.streams().stand() else { return busy() };
        let Ok(events) = stream.attach(0) else { return busy() };
        // The head of the response leaves with the first bytes of its body.
        stream.comment(": listening\n\n");
        tokio::spawn(stand(self.clone(), conversation, stream));
        streaming(events, place)
    }
}

/// Tells news until the client or this gateway goes.
async fn stand(edge: Arc<Edge>, conversation: Arc<Conversation>, stream: Arc<Resumable>) {
    let reader = edge.reader(&Sender::new(conversation.clone()));
    let mut news = News::new(edge.world.clone(), reader, &Topic::ALL, conversation.inbox().clone());
    let mut closing = edge.closing.subscribe();
    drop(edge);
    while !stream.is_over() {
        tokio::select! {
            changed = news.next() => for (method, params) in changed {
                stream.send(&notification(method, params, None));
            },
            () = stream.abandoned() => {
                stream.notice();
                // What happens meanwhile is seen when the client is back: lists are compared, not counted.
                if tokio::time::timeout(RETURN, stream.rejoined()).await.is_err() {
                    break;
                }
            }
            () = conversation.hung_up() => break,
            () = told_to_stop(&mut closing) => break,
            () = tokio::time::sleep(KEEP_ALIVE) => stream.comment(": still here\n\n"),
        }
    }
    stream.finish();
}
