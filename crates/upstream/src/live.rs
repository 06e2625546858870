//! A connection that is up.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_governance::boundary::{
    CancellationSignal, Outcome, ProbeAuthority, ReadyChannel, SealedResponse, Transmit, TransmitFailure,
    ValidatedPermit, WireCall, WireFrame,
};
use portcullis_governance::declaration::Via;
use portcullis_sandbox::{Gate, Loan};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::beside::{Beside, Wants};
use crate::event::{Events, UpstreamEvent};
use crate::frame::{Frames, fresh_id};
use crate::greeting::Probe;
use crate::http::HttpLink;
use crate::keeping_up::Told;
use crate::lending::{Lent, OnLoan};
use crate::link::{Answer, Exchange, Link};
use crate::snapshot;
use crate::{Era, Greeting, Settings, Snapshot, UpstreamError};

/// A server that was greeted and takes calls. It stays valid as a value when the server goes away; calls then fail,
/// and [`is_alive`](Live::is_alive) says so.
#[derive(Debug)]
pub struct Live {
    pub(crate) server: ServerIdentity,
    pub(crate) link: Arc<Link>,
    pub(crate) frames: Frames,
    greeting: Greeting,
    greeted: Instant,
    pub(crate) authority: Arc<dyn ProbeAuthority>,
    pub(crate) settings: Settings,
    pub(crate) events: Events,
    renewal: Mutex<()>,
    on_loan: OnLoan,
    /// One call with a placeholder at a time: nothing in a request says which call it is of.
    placeholders: Mutex<()>,
    pub(crate) keeping_up: Mutex<()>,
    pub(crate) told: StdMutex<Told>,
}

impl Live {
    pub(crate) fn new(
        server: ServerIdentity,
        (link, greeting): (Link, Greeting),
        authority: Arc<dyn ProbeAuthority>,
        settings: Settings,
        events: Events,
    ) -> Self {
        let frames = Frames::new(greeting.era, &settings);
        let greeted = Instant::now();
        Self {
            server,
            link: Arc::new(link),
            frames,
            greeting,
            greeted,
            authority,
            settings,
            events,
            renewal: Mutex::default(),
            on_loan: OnLoan::default(),
            placeholders: Mutex::default(),
            keeping_up: Mutex::default(),
            told: StdMutex::default(),
        }
    }

    /// What the server said when it was greeted.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Whether a call sent now could be answered.
    pub fn is_alive(&self) -> bool {
        self.link.is_open()
    }

    /// How many requests are under way.
    pub fn in_flight(&self) -> usize {
        self.link.in_flight()
    }

    /// The child's process id, if the server is one.
    pub fn pid(&self) -> Option<i32> {
        match &*self.link {
            Link::Stdio(link) => link.pid(),
            Link::Http(_) | Link::LegacySse(_) | Link::Records(_) => None,
        }
    }

    /// The end of what a child wrote to stderr. Hostile text.
    pub fn last_words(&self) -> Option<String> {
        match &*self.link {
            Link::Stdio(link) => Some(link.last_words().text()),
            Link::Http(_) | Link::LegacySse(_) | Link::Records(_) => None,
        }
    }

    /// Asks the server for everything it lists, each page under a probe permit of its own.
    pub async fn snapshot(&self) -> Result<Snapshot, UpstreamError> {
        snapshot::take(self.probe(), &self.link, &self.greeting, &self.events, self.greeted).await
    }

    /// Has changes of the list announced, where the server does not do so by itself.
    pub(crate) async fn listen(&self) {
        if !self.greeting.announces_changes() {
            return;
        }
        match &*self.link {
            // Whoever has one stream for everything announces unasked.
            Link::Stdio(_) if self.greeting.era == Era::Legacy => {}
            Link::LegacySse(_) | Link::Records(_) => {}
            Link::Stdio(link) => {
                if self.authority.authorise(&self.server, "subscriptions/listen").await.is_ok() {
                    let id = fresh_id();
                    link.desk().subscribe(id, self.frames.listen(id));
                }
            }
            Link::Http(link) => self.hear(link),
        }
    }

    /// A legacy server over HTTP says what nobody asked on a stream of its own, which may be open already.
    pub(crate) fn hear_updates(&self) {
        let first = !std::mem::replace(&mut self.told().hears, true);
        if let Link::Http(link) = &*self.link
            && first
            && !self.greeting.announces_changes()
        {
            self.hear(link);
        }
    }

    fn hear(&self, link: &HttpLink) {
        let frames = (self.greeting.era == Era::Modern).then(|| self.frames.clone());
        link.listen(self.server.clone(), Arc::clone(&self.authority), frames);
    }

    pub(crate) async fn close(&self, drain: Duration) {
        self.stop_keeping_up();
        self.link.close(drain).await;
    }

    pub(crate) fn probe(&self) -> Probe<'_> {
        Probe { server: &self.server, authority: &self.authority, settings: &self.settings }
    }

    /// One exchange. A session that expired is renewed once; the request is repeated only if doing a thing twice is
    /// declared to be like doing it once, since it did leave (PRO-37).
    pub(crate) async fn exchange(
        &self,
        exchange: Exchange<'_>,
        repeatable: bool,
        cancel: CancellationSignal,
    ) -> Outcome {
        match self.link.exchange(exchange, cancel.clone()).await {
            Answer::SessionExpired if repeatable => match self.renew_session().await {
                Ok(()) => outcome(self.link.exchange(exchange, cancel).await),
                Err(error) => unavailable(format!("the session expired and cannot be renewed: {error}")),
            },
            answer => outcome(answer),
        }
    }

    async fn renew_session(&self) -> Result<(), UpstreamError> {
        let _one_at_a_time = self.renewal.lock().await;
        let Link::Http(http) = &*self.link else { return Err(UpstreamError::Closed) };
        if http.is_open() {
            return Ok(());
        }
        http.begin(self.greeting.era);
        http.reopen();
        match self.probe().initialize(&self.link).await {
            Ok(greeting) if greeting.protocol_version == self.greeting.protocol_version => {
                if self.greeting.announces_changes() || self.told().hears {
                    self.hear(http);
                }
                self.subscribe_again().await;
                Ok(())
            }
            Ok(_) => {
                self.link.close(Duration::ZERO).await;
                Err(UpstreamError::protocol("the server came back with another revision"))
            }
            Err(error) => {
                self.link.close(Duration::ZERO).await;
                Err(error)
            }
        }
    }
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Of(outcome) => outcome,
        Answer::SessionExpired => unavailable("the session expired".into()),
        Answer::Status(status @ 500..=599) => unavailable(format!("the server failed (HTTP {status})")),
        Answer::Status(status) => {
            let reason = format!("HTTP {status} without an answer");
            Outcome::Failed(TransmitFailure::Protocol { reason })
        }
    }
}

fn escaped(violation: &'static str, outcome: Outcome) -> Outcome {
    let answer = match outcome {
        Outcome::Result(raw) | Outcome::RpcError(raw) | Outcome::TooLarge { prefix: raw, .. } => Some(raw),
        Outcome::Escaped { answer, .. } => answer,
        Outcome::Failed(_) => None,
    };
    Outcome::Escaped { violation, answer }
}

fn unavailable(reason: String) -> Outcome {
    Outcome::Failed(TransmitFailure::Unavailable { reason, sent: true })
}

/// A live connection that builds the frames of one call, with what that call wants said around its arguments.
#[derive(Debug, Clone, Copy)]
pub struct Addressed<'l> {
    live: &'l Live,
    wants: &'l Wants,
}

impl Live {
    /// The connection as one call sees it.
    pub fn addressed<'l>(&'l self, wants: &'l Wants) -> Addressed<'l> {
        Addressed { live: self, wants }
    }

    /// Sends the permit's frame and waits for its answer, with somebody who attends to the call meanwhile.
    pub async fn converse(
        &self,
        permit: ValidatedPermit,
        cancel: CancellationSignal,
        attendant: Option<&Arc<dyn Beside>>,
    ) -> SealedResponse {
        let gate = self.link.gate();
        let _pass = gate.map(|gate| {
            let (scopes, bytes) =
                permit.reach().map_or((Vec::new(), 0), |reach| (reach.scopes.clone(), reach.bytes));
            gate.admit(permit.permit_id().to_string(), scopes, bytes)
        });
        let substituted = permit.credentials().iter().any(|delivery| delivery.via == Via::Proxy);
        let _turn = if substituted { Some(self.placeholders.lock().await) } else { None };
        let lent = Lent::to(&permit, self.settings.broker.as_ref());
        let (lent, headers) = match lent.and_then(|lent| lent.headers().map(|headers| (lent, headers))) {
            Ok(lent) => lent,
            Err(denied) => {
                let reason = denied.to_string();
                return permit.seal(Outcome::Failed(TransmitFailure::Unavailable { reason, sent: false }));
            }
        };
        let loans: Vec<Loan> = gate.map(|gate| lent.through(gate)).unwrap_or_default();
        let listening = self.on_loan.listen(&lent, attendant);
        let beside = listening.clone().map(|listening| listening as Arc<dyn Beside>);
        let exchange = Exchange::of(&permit, beside.as_ref().or(attendant), &headers);
        let mut outcome = self.exchange(exchange, permit.idempotent(), cancel).await;
        let mut echoed = false;
        if let Some(listening) = listening {
            (outcome, echoed) = listening.finish(outcome);
        }
        drop((loans, lent));
        // Whatever it answered: it is not believed any more (SBX-60).
        if echoed {
            let reason = "it gave a credential back that was lent to a call".into();
            self.events.emit(UpstreamEvent::Escaped { reason });
            return permit.seal(escaped("secret_echo", outcome));
        }
        if let (Some(gate), Outcome::Result(raw) | Outcome::RpcError(raw)) = (gate, &outcome) {
            gate.has_bait(raw);
        }
        if let Some(violation) = gate.and_then(Gate::escaped) {
            return permit.seal(escaped(violation, outcome));
        }
        permit.seal(outcome)
    }
}

impl ReadyChannel for Addressed<'_> {
    fn frame(&self, call: &WireCall<'_>) -> WireFrame {
        self.live.frames.call(call, self.wants)
    }
}

impl ReadyChannel for Live {
    fn frame(&self, call: &WireCall<'_>) -> WireFrame {
        self.frames.call(call, &Wants::default())
    }
}

impl Transmit for Live {
    async fn transmit(&self, permit: ValidatedPermit, cancel: CancellationSignal) -> SealedResponse {
        self.converse(permit, cancel, None).await
    }
}
