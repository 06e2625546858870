//! An answer as it should travel: one document, or a stream if something is said before it, if it takes its time, or if
//! its client prefers that (PRO-31).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use portcullis_governance::boundary::{BoxFuture, CancellationSignal};
use tokio::sync::mpsc;

use super::body::{event, streaming};
use super::eras::Hold;
use super::headers::{accepts, prefers_events};
use super::resumable::Resumable;
use super::{Reply, rpc};
use crate::edge::conversation::Conversation;
use crate::edge::outlet::{Beside, Outlet};
use crate::edge::{Edge, Rendered, Revision, Sender};

/// A stream that is quiet for so long says that it is still there.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// An answer that takes longer gets a stream, which can be kept alive and come back to.
const PROMPT: Duration = Duration::from_secs(2);
/// How long a client may leave events unread before it counts as gone.
const STALLED: Duration = Duration::from_secs(30);
/// How many events may wait for a client that does not read.
const QUEUE: usize = 64;

impl Edge {
    pub(super) async fn respond(
        self: &Arc<Self>,
        sender: Sender,
        headers: &HeaderMap,
        message: &Bytes,
        cancel: CancellationSignal,
        hold: Hold,
    ) -> Reply {
        let streams = accepts(headers, "text/event-stream")
            && self.places.has_room(sender.conversation.session().principal());
        let (outlet, mut beside) = Outlet::events();
        let outlet = if streams { outlet } else { Outlet::None };
        let (edge, message, conversation) = (self.clone(), message.clone(), sender.conversation.clone());
        let mut answer: BoxFuture<'static, Rendered> =
            Box::pin(async move { edge.run(sender, &message, outlet, cancel).await });
        let first = tokio::select! {
            biased;
            Some(first) = beside.recv() => Some(first),
            reply = &mut answer => {
                let (first, status) = (beside.try_recv().ok(), hold.status(&reply));
                // A stream has no status of its own to say that something is wrong.
                let as_stream = streams && status == StatusCode::OK && prefers_events(headers);
                if first.is_none() && !as_stream {
                    hold.over();
                    return rpc(status, reply.text);
                }
                answer = Box::pin(async move { reply });
                first
            }
            () = tokio::time::sleep(PROMPT), if streams => None,
        };
        let Some(place) = self.places.take(conversation.session().principal()) else {
            return whole(answer, beside, hold).await;
        };
        let (way, stream) = Way::open(&conversation, &hold);
        tokio::spawn(async move {
            let mut next = first;
            loop {
                if let Some(said) = next.take()
                    && !way.pass(said).await
                {
                    return;
                }
                tokio::select! {
                    biased;
                    Some(said) = beside.recv() => next = Some(said),
                    reply = &mut answer => {
                        while let Ok(said) = beside.try_recv() {
                            if !way.pass(said).await {
                                return;
                            }
                        }
                        if !way.pass(Beside::Message(reply.text)).await {
                            return;
                        }
                        way.finish();
                        return hold.over();
                    }
                    () = way.abandoned() => return,
                    () = tokio::time::sleep(KEEP_ALIVE) => way.keep_alive(),
                }
            }
        });
        streaming(stream, place)
    }
}

/// The answer alone, for an agent that has no room for one more stream: what is said before it is not heard.
async fn whole(
    mut answer: BoxFuture<'static, Rendered>,
    mut beside: mpsc::Receiver<Beside>,
    hold: Hold,
) -> Reply {
    let reply = loop {
        tokio::select! {
            reply = &mut answer => break reply,
            Some(_) = beside.recv() => {}
        }
    };
    let status = hold.status(&reply);
    hold.over();
    rpc(status, reply.text)
}

/// How events reach the client.
enum Way {
    /// On this response or not at all.
    Once(mpsc::Sender<Bytes>),
    /// On this response, or on the one that the client comes back with.
    Kept(Arc<Resumable>),
}

impl Way {
    fn open(conversation: &Conversation, hold: &Hold) -> (Self, mpsc::Receiver<Bytes>) {
        if let Hold::Legacy(_) = hold
            && let Some(stream) = conversation.streams().open()
            && let Ok(events) = stream.attach(0)
        {
            // Older clients take an event without data for a broken message.
            if conversation.revision() >= Revision::V2025_11_25 {
                stream.prime();
            }
            return (Way::Kept(stream), events);
        }
        let (events, stream) = mpsc::channel(QUEUE);
        (Way::Once(events), stream)
    }

    /// Says something; false if nobody will ever read it. A client that is gone reads nothing, one that does not read is as
    /// good as gone, and a modern one cancels by going (PRO-67).
    async fn pass(&self, said: Beside) -> bool {
        match (self, said) {
            (Way::Once(events), Beside::Message(message)) => {
                let sent = tokio::time::timeout(STALLED, events.send(event(&message))).await;
                return matches!(sent, Ok(Ok(())));
            }
            (Way::Kept(stream), Beside::Message(message)) => stream.send(&message),
            (Way::Kept(stream), Beside::Pause) => stream.pause(),
            (Way::Once(_), Beside::Pause) => {}
        }
        true
    }

    fn keep_alive(&self) {
        const COMMENT: &str = ": still here\n\n";
        match self {
            Way::Once(events) => drop(events.try_send(Bytes::from_static(COMMENT.as_bytes()))),
            Way::Kept(stream) => stream.comment(COMMENT),
        }
    }

    fn finish(&self) {
        if let Way::Kept(stream) = self {
            stream.finish();
        }
    }

    /// Resolves when nobody will read the answer any more.
    async fn abandoned(&self) {
        match self {
            Way::Once(events) => events.closed().await,
            Way::Kept(_) => std::future::pending().await,
        }
    }
}

impl Hold {
    /// The answer was given.
    fn over(self) {
        if let Hold::Modern(on_drop) = self {
            on_drop.over();
        }
    }

    /// Some errors of the modern era have a status of their own.
    fn status(&self, reply: &Rendered) -> StatusCode {
        match (self, reply.code) {
            (Hold::Modern(_), Some(-32021)) => StatusCode::BAD_REQUEST,
            (Hold::Modern(_), Some(-32601)) => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        }
    }
}
