//! An answer as it should travel: one document, or a stream if something is said before it (PRO-31).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use portcullis_governance::boundary::{BoxFuture, CancellationSignal};
use tokio::sync::mpsc;

use super::body::{event, streaming};
use super::eras::Hold;
use super::headers::accepts;
use super::{Reply, rpc};
use crate::edge::outlet::Outlet;
use crate::edge::{Edge, Sender};

/// A stream that is quiet for so long says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
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
        let (outlet, mut beside) = Outlet::events();
        let outlet = if accepts(headers, "text/event-stream") { outlet } else { Outlet::None };
        let (edge, message) = (self.clone(), message.clone());
        let mut answer: BoxFuture<'static, Vec<u8>> =
            Box::pin(async move { edge.run(sender, &message, outlet, cancel).await });
        let first = tokio::select! {
            biased;
            Some(first) = beside.recv() => first,
            reply = &mut answer => {
                let Ok(first) = beside.try_recv() else {
                    hold.over();
                    return rpc(StatusCode::OK, reply);
                };
                answer = Box::pin(async move { reply });
                first
            }
        };
        let (events, stream) = mpsc::channel(QUEUE);
        tokio::spawn(async move {
            let mut next = Some(first);
            loop {
                if let Some(message) = next.take() {
                    // A legacy client that is gone may come back; the call goes on without it (PRO-67).
                    let _ = events.send(event(&message)).await;
                }
                tokio::select! {
                    biased;
                    Some(message) = beside.recv() => next = Some(message),
                    reply = &mut answer => {
                        while let Ok(message) = beside.try_recv() {
                            let _ = events.send(event(&message)).await;
                        }
                        let _ = events.send(event(&reply)).await;
                        return hold.over();
                    }
                    () = events.closed(), if hold.ends_with_stream() => return,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        let _ = events.try_send(Bytes::from_static(b": still here\n\n"));
                    }
                }
            }
        });
        streaming(stream)
    }
}

impl Hold {
    /// The answer was given.
    fn over(self) {
        if let Hold::Modern(on_drop) = self {
            on_drop.over();
        }
    }

    fn ends_with_stream(&self) -> bool {
        matches!(self, Hold::Modern(_))
    }
}
