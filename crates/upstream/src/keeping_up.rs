//! Having a server say when resources change, in the way of its era: `resources/subscribe` for each, or one
//! `subscriptions/listen` for all of them, opened anew when the set is another.
//!
//! Each request is under a probe permit of its own: it carries no arguments but URIs that were decided about when
//! their followers came, and brings nothing but the news that something could be read again, which is then decided
//! about like any reading.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use portcullis_governance::boundary::{CancellationSignal, Outcome};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::event::Events;
use crate::frame::fresh_id;
use crate::greeting::{Reply, http_failure};
use crate::link::{Answer, Exchange, Link, MESSAGE_LIMIT};
use crate::live::Live;
use crate::{Era, UpstreamError};

/// What the server was asked to say, and agreed to.
#[derive(Debug, Default)]
pub(crate) struct Told {
    asked: BTreeSet<String>,
    agreed: BTreeSet<String>,
    stream: Option<Standing>,
    /// Whether a legacy server over HTTP is listened to for this alone.
    pub(crate) hears: bool,
    /// Tells when the stream of such a server is open, if nobody has waited for that yet.
    pub(crate) opening: Option<oneshot::Receiver<()>>,
}

/// A `subscriptions/listen` that stays open until dropped.
#[derive(Debug)]
struct Standing {
    id: u64,
    task: JoinHandle<Answer>,
    events: Events,
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.events.followed().gave_up(self.id);
        // Dropping the exchange cancels it, each way as its transport does.
        self.task.abort();
    }
}

/// What a server would not say.
pub type Untold = Vec<(String, UpstreamError)>;

impl Live {
    /// Has the server announce exactly what somebody follows now; says what it will not announce.
    pub async fn keep_up(&self) -> Result<Untold, UpstreamError> {
        let _one_at_a_time = self.keeping_up.lock().await;
        let wanted = self.events.followed().wanted();
        if wanted.is_empty() && self.told().asked.is_empty() {
            return Ok(Vec::new());
        }
        if !self.greeting().announces_updates() || matches!(*self.link, Link::Records(_)) {
            let error = || UpstreamError::Refused { method: "resources/subscribe", code: -32601 };
            return Ok(wanted.into_iter().map(|uri| (uri, error())).collect());
        }
        match self.greeting().era {
            Era::Legacy => self.subscribe_to(wanted).await,
            Era::Modern => self.listen_for(wanted).await,
        }
    }

    async fn subscribe_to(&self, wanted: BTreeSet<String>) -> Result<Untold, UpstreamError> {
        self.hear_updates().await;
        let agreed = self.told().agreed.clone();
        let mut untold = Vec::new();
        for uri in wanted.difference(&agreed) {
            match self.ask_about("resources/subscribe", uri).await {
                Ok(()) => drop(self.told().agreed.insert(uri.clone())),
                Err(error @ UpstreamError::Refused { .. }) => untold.push((uri.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        for uri in agreed.difference(&wanted) {
            // Whatever it answers, nobody hears of it any more.
            self.told().agreed.remove(uri);
            let _ = self.ask_about("resources/unsubscribe", uri).await;
        }
        self.told().asked = wanted;
        Ok(untold)
    }

    /// After a new session on the same link: the old one took its subscriptions with it.
    pub(crate) async fn subscribe_again(&self) {
        let agreed = std::mem::take(&mut self.told().agreed);
        for uri in agreed {
            if self.ask_about("resources/subscribe", &uri).await.is_ok() {
                self.told().agreed.insert(uri);
            }
        }
    }

    async fn ask_about(&self, method: &'static str, uri: &str) -> Result<(), UpstreamError> {
        let timeout = self.settings.handshake_timeout;
        let frame = |id| self.frames.about(id, method, uri);
        match self.probe().ask(&self.link, method, frame, timeout).await? {
            Reply::Result(_) => Ok(()),
            Reply::Error(error) => Err(UpstreamError::Refused { method, code: error.code }),
            Reply::Status(status) => Err(http_failure(status)),
            Reply::Locked(error) => Err(error),
        }
    }

    async fn listen_for(&self, wanted: BTreeSet<String>) -> Result<Untold, UpstreamError> {
        let untold = |asked: &BTreeSet<String>, agreed: &BTreeSet<String>| {
            let error = || UpstreamError::Refused { method: "subscriptions/listen", code: -32602 };
            asked.difference(agreed).map(|uri| (uri.clone(), error())).collect()
        };
        {
            let told = self.told();
            let stands = told.stream.as_ref().is_some_and(|stream| !stream.task.is_finished());
            if stands && told.asked == wanted {
                return Ok(untold(&told.asked, &told.agreed));
            }
        }
        // The new one first, so that nothing falls between; then the old one ends.
        let (stream, agreed) = if wanted.is_empty() {
            (None, BTreeSet::new())
        } else {
            let (stream, agreed) = self.stand(&wanted).await?;
            (Some(stream), agreed)
        };
        let refused = untold(&wanted, &agreed);
        let mut told = self.told();
        (told.asked, told.agreed) = (wanted, agreed);
        let earlier = std::mem::replace(&mut told.stream, stream);
        drop(told);
        drop(earlier);
        Ok(refused)
    }

    async fn stand(&self, wanted: &BTreeSet<String>) -> Result<(Standing, BTreeSet<String>), UpstreamError> {
        let method = "subscriptions/listen";
        let permit = self.authority.authorise(&self.server, method).await?;
        let id = fresh_id();
        let bytes = self.frames.listen_for(id, wanted);
        let agreed = self.events.followed().expect(id);
        let link = Arc::clone(&self.link);
        let task = tokio::spawn(async move {
            let _permit = permit;
            let (_canceller, never) = CancellationSignal::pair();
            let exchange = Exchange {
                id,
                call: None,
                bytes: &bytes,
                method,
                name: None,
                mirrored: &[],
                timeout: Duration::MAX,
                max_response_bytes: MESSAGE_LIMIT,
                attendant: None,
                headers: &[],
            };
            link.exchange(exchange, never).await
        });
        let mut stream = Standing { id, task, events: self.events.clone() };
        let after = self.settings.handshake_timeout;
        tokio::select! {
            biased;
            Ok(agreed) = agreed => Ok((stream, agreed)),
            answer = &mut stream.task => Err(match answer {
                Ok(Answer::Of(Outcome::RpcError(_))) => UpstreamError::Refused { method, code: -32601 },
                Ok(Answer::Status(status) | Answer::Locked { status, .. }) => http_failure(status),
                _ => UpstreamError::unavailable("the server ended the subscription before it began"),
            }),
            () = tokio::time::sleep(after) => Err(UpstreamError::Timeout { method, after }),
        }
    }

    /// The connection is being closed: what stands open must not hold it.
    pub(crate) fn stop_keeping_up(&self) {
        let told = std::mem::take(&mut *self.told());
        drop(told);
    }

    pub(crate) fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
