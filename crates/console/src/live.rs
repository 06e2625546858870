//! What changed, told to open pages.
//!
//! A stream of server-sent events says which kind of thing changed, never what: the page asks for the part of it that
//! shows that, with its session, and gets it as everybody would. Changes that come close together are told once.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use portcullis_audit::EventName;
use portcullis_gateway::Control;
use portcullis_gateway::control::told_to_stop;
use tokio::sync::{broadcast, watch};

use crate::Console;
use crate::admission::LoggedIn;
use crate::session::Use;

/// Changes within this time are told together: a busy gateway must not make every open page ask a thousand times.
const TOGETHER: Duration = Duration::from_millis(150);

/// How often a stream looks whether its session has ended.
const LOOK: Duration = Duration::from_secs(1);

/// What pages show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topic {
    Approvals,
    Calls,
    World,
}

impl Topic {
    const ALL: [Topic; 3] = [Topic::Approvals, Topic::Calls, Topic::World];

    fn as_str(self) -> &'static str {
        match self {
            Topic::Approvals => "approvals",
            Topic::Calls => "calls",
            Topic::World => "world",
        }
    }
}

/// Where changes are heard.
#[derive(Debug)]
pub(crate) struct Live(broadcast::Sender<Topic>);

impl Live {
    /// Follows a gateway until it stops.
    pub(crate) fn follow(control: &Control, stop: watch::Receiver<bool>) -> Self {
        let (sender, _) = broadcast::channel(256);
        tell(control.approval_changes(), Topic::Approvals, sender.clone(), stop.clone());
        tell(control.world_changes(), Topic::World, sender.clone(), stop);
        // Ends with the log.
        let records = control.log().subscribe(ends_a_call);
        let calls = sender.clone();
        std::thread::spawn(move || {
            while records.recv().is_ok() {
                let _ = calls.send(Topic::Calls);
            }
        });
        Self(sender)
    }
}

fn ends_a_call(name: EventName) -> bool {
    use EventName as E;
    matches!(
        name,
        E::ProposalRefused
            | E::ExecutionResult
            | E::ExecutionDenied
            | E::ExecutionIndeterminate
            | E::ExecutionCancelled
    )
}

fn tell<T: Send + Sync + 'static>(
    mut changes: watch::Receiver<T>,
    topic: Topic,
    sender: broadcast::Sender<Topic>,
    mut stop: watch::Receiver<bool>,
) {
    tokio::spawn(async move {
        loop {
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { break },
                () = told_to_stop(&mut stop) => break,
            }
            let _ = sender.send(topic);
        }
    });
}

/// The stream of one page.
pub(crate) async fn events(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    LoggedIn(_): LoggedIn,
) -> Response {
    let state = Stream {
        topics: console.live.0.subscribe(),
        waiting: BTreeSet::new(),
        console,
        headers,
        over: false,
    };
    let events = stream::unfold(state, |mut state| async {
        let event = state.next().await?;
        Some((Ok::<_, Infallible>(event), state))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

struct Stream {
    console: Arc<Console>,
    headers: HeaderMap,
    topics: broadcast::Receiver<Topic>,
    /// Changed and not told yet.
    waiting: BTreeSet<Topic>,
    over: bool,
}

impl Stream {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.over {
                return None;
            }
            if let Some(topic) = self.waiting.pop_first() {
                return Some(Event::default().event(topic.as_str()).data("changed"));
            }
            let mut stop = self.console.stop.clone();
            tokio::select! {
                topic = self.topics.recv() => {
                    self.heard(topic)?;
                    tokio::time::sleep(TOGETHER).await;
                    self.drain()?;
                }
                () = told_to_stop(&mut stop) => return None,
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.console.session(&self.headers, Use::Watches).is_none() {
                self.over = true;
                return Some(Event::default().event("ended").data("session"));
            }
        }
    }

    fn heard(&mut self, topic: Result<Topic, broadcast::error::RecvError>) -> Option<()> {
        match topic {
            Ok(topic) => {
                self.waiting.insert(topic);
            }
            // Too much at once to know what: anything may have changed.
            Err(broadcast::error::RecvError::Lagged(_)) => self.waiting.extend(Topic::ALL),
            Err(broadcast::error::RecvError::Closed) => return None,
        }
        Some(())
    }

    fn drain(&mut self) -> Option<()> {
        loop {
            match self.topics.try_recv() {
                Ok(topic) => self.heard(Ok(topic))?,
                Err(broadcast::error::TryRecvError::Empty) => return Some(()),
                Err(broadcast::error::TryRecvError::Closed) => return None,
                Err(broadcast::error::TryRecvError::Lagged(_)) => self.waiting.extend(Topic::ALL),
            }
        }
    }
}
