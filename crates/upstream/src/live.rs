//! A connection that is up.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use portcullis_core::ServerIdentity;
use portcullis_governance::boundary::{
    CancellationSignal, Outcome, ProbeAuthority, ReadyChannel, SealedResponse, Transmit, TransmitFailure,
    ValidatedPermit, WireCall, WireFrame,
};
use portcullis_governance::declaration::Via;
use portcullis_sandbox::broker::Secret;
use portcullis_sandbox::{Gate, Loan};
use tokio::sync::{Mutex, oneshot};
use tokio::time::Instant;

use crate::beside::{Beside, Wants};
use crate::event::{Events, UpstreamEvent};
use crate::frame::{Frames, fresh_id};
use crate::greeting::{Probe, locked};
use crate::http::HttpLink;
use crate::keeping_up::Told;
use crate::last_words::LastWords;
use crate::lending::{Lent, OnLoan};
use crate::link::{Answer, Exchange, Link};
use crate::snapshot;
use crate::{Endpoint, Era, Greeting, Settings, Snapshot, UpstreamError};

/// How long the first call, and whoever follows a resource, may wait for the stream on which questions and updates come.
const OPENING: Duration = Duration::from_secs(2);
/// How long a process that did not answer in time may still be heard.
const LATE: Duration = Duration::from_secs(2);

/// A server that was greeted and takes calls. It stays valid as a value when the server goes away; calls then fail,
/// and [`is_alive`](Live::is_alive) says so.
#[derive(Debug)]
pub struct Live {
    pub(crate) server: ServerIdentity,
    endpoint: Arc<Endpoint>,
    pub(crate) link: Arc<Link>,
    pub(crate) frames: Frames,
    greeting: Greeting,
    greeted: Instant,
    /// What it listed when it was last asked.
    listed: ArcSwapOption<Snapshot>,
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
        endpoint: Arc<Endpoint>,
        (link, greeting): (Link, Greeting),
        authority: Arc<dyn ProbeAuthority>,
        settings: Settings,
        events: Events,
    ) -> Self {
        let frames = Frames::new(greeting.era, &settings);
        let greeted = Instant::now();
        Self {
            server,
            endpoint,
            link: Arc::new(link),
            frames,
            greeting,
            greeted,
            listed: ArcSwapOption::empty(),
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
        let taken =
            snapshot::take(self.probe(), &self.link, &self.greeting, &self.events, self.greeted).await?;
        self.listed.store(Some(Arc::new(taken.clone())));
        Ok(taken)
    }

    /// Has changes of the list announced, where the server does not do so by itself.
    pub(crate) async fn listen(&self) {
        if !self.hears_unasked() {
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
            Link::Http(link) => {
                let opened = self.hear(link);
                // Its first question may come with the first call.
                if self.greeting.era == Era::Legacy && self.may_be_asked() {
                    let _ = tokio::time::timeout(OPENING, opened).await;
                } else {
                    self.told().opening = Some(opened);
                }
            }
        }
    }

    /// Whether there is anything to hear beside answers: changes, and questions of a legacy server, which may ask on the
    /// stream that is no call's.
    fn hears_unasked(&self) -> bool {
        self.greeting.announces_changes() || self.greeting.era == Era::Legacy && self.may_be_asked()
    }

    fn may_be_asked(&self) -> bool {
        self.settings.capabilities.as_object().is_some_and(|members| !members.is_empty())
    }

    /// A legacy server over HTTP says what nobody asked on a stream of its own, which may be open already. What changed
    /// before that would be said to nobody.
    pub(crate) async fn hear_updates(&self) {
        let Link::Http(link) = &*self.link else { return };
        let opening = {
            let mut told = self.told();
            let first = !std::mem::replace(&mut told.hears, true);
            if first && !self.hears_unasked() { Some(self.hear(link)) } else { told.opening.take() }
        };
        if let Some(opened) = opening {
            let _ = tokio::time::timeout(OPENING, opened).await;
        }
    }

    fn hear(&self, link: &HttpLink) -> oneshot::Receiver<()> {
        let frames = (self.greeting.era == Era::Modern).then(|| self.frames.clone());
        link.listen(self.server.clone(), Arc::clone(&self.authority), frames)
    }

    /// Lets calls under way end for a while, then ends the connection and what is behind it.
    pub async fn close(&self, drain: Duration) {
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
                Ok(()) => outcome(&self.server, self.link.exchange(exchange, cancel).await),
                Err(error) => unavailable(format!("the session expired and cannot be renewed: {error}")),
            },
            answer => outcome(&self.server, answer),
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
                if self.hears_unasked() || self.told().hears {
                    let _ = tokio::time::timeout(OPENING, self.hear(http)).await;
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

fn outcome(server: &ServerIdentity, answer: Answer) -> Outcome {
    match answer {
        Answer::Of(outcome) => outcome,
        Answer::SessionExpired => unavailable("the session expired".into()),
        // PRO-70: never raw.
        Answer::Locked { status, scope } => unavailable(locked(server.as_str(), status, scope.as_deref())),
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
        Outcome::PassedOn | Outcome::Failed(_) => None,
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
        let substituted = permit.credentials().iter().any(|delivery| delivery.via == Via::Proxy);
        let _turn = if substituted { Some(self.placeholders.lock().await) } else { None };
        let lent = Lent::to(&permit, self.settings.broker.as_ref());
        let (lent, variables) = match lent.and_then(|lent| lent.variables().map(|own| (lent, own))) {
            Ok(lent) => lent,
            Err(denied) => return permit.seal(not_sent(denied.to_string())),
        };
        if variables.is_empty() {
            return self.carry(permit, lent, cancel, attendant).await;
        }
        match self.started_with(&variables).await {
            Ok(own) => {
                drop(variables);
                let sealed = own.carry(permit, lent, cancel, attendant).await;
                tokio::spawn(async move { own.close(Duration::ZERO).await });
                sealed
            }
            Err(error) => permit.seal(not_sent(error.to_string())),
        }
    }

    /// Another process, with something in its environment that nobody else has; it says of itself what this one says,
    /// or it is not used (GOV-501).
    async fn started_with(&self, variables: &[(String, Arc<Secret>)]) -> Result<Self, UpstreamError> {
        let (era, events) = (Some(self.greeting.era), self.events.sibling());
        let connected = self.probe().connect(&self.endpoint, era, &events, variables).await?;
        let own = Self::new(
            self.server.clone(),
            Arc::clone(&self.endpoint),
            connected,
            Arc::clone(&self.authority),
            self.settings.clone(),
            events,
        );
        let looked_at = self.listed.load_full();
        let checked = match own.snapshot().await {
            Ok(listed) if looked_at.is_some_and(|looked_at| looked_at.is_like(&listed)) => return Ok(own),
            Ok(_) => Err(UpstreamError::protocol(
                "the process for this call lists other things than was looked at",
            )),
            Err(error) => Err(error),
        };
        own.link.kill();
        own.close(Duration::ZERO).await;
        checked
    }

    /// Sends the permit's frame with what was lent to it, waits for the answer, and looks for what may not come back.
    /// MP-FH-004: a process that did not answer in time is ended. It is left a moment in which its answer is known to be
    /// late, and other calls that it works on are let finish.
    fn end_process(&self) {
        let link = Arc::clone(&self.link);
        let Link::Stdio(_) = &*link else { return };
        let patience = self.settings.drain;
        tokio::spawn(async move {
            tokio::time::sleep(LATE).await;
            if let Link::Stdio(stdio) = &*link {
                let _ = tokio::time::timeout(patience, stdio.desk().pending.idle()).await;
            }
            link.kill();
        });
    }

    async fn carry(
        &self,
        permit: ValidatedPermit,
        lent: Lent,
        cancel: CancellationSignal,
        attendant: Option<&Arc<dyn Beside>>,
    ) -> SealedResponse {
        let gate = self.link.gate();
        let _pass = gate.map(|gate| {
            let (scopes, bytes) =
                permit.reach().map_or((Vec::new(), 0), |reach| (reach.scopes.clone(), reach.bytes));
            gate.admit(permit.permit_id().to_string(), scopes, bytes)
        });
        let ready = lent.headers().and_then(|headers| Ok((headers, lent.write(self.link.files())?)));
        let (headers, written) = match ready {
            Ok(ready) => ready,
            Err(denied) => return permit.seal(not_sent(denied.to_string())),
        };
        let loans: Vec<Loan> = gate.map(|gate| lent.through(gate)).unwrap_or_default();
        let token = match &*self.link {
            Link::Http(link) => link.token(),
            Link::LegacySse(link) => link.token(),
            Link::Stdio(_) | Link::Records(_) => None,
        };
        let listening = self.on_loan.listen(&lent, token, attendant);
        let words = match &*self.link {
            Link::Stdio(link) => Some(link.last_words()),
            Link::Http(_) | Link::LegacySse(_) | Link::Records(_) => None,
        };
        if let (Some(words), Some(listening)) = (words, &listening) {
            words.must_not_hold(listening.echoes());
        }
        let beside = listening.clone().map(|listening| listening as Arc<dyn Beside>);
        let exchange = Exchange::of(&permit, beside.as_ref().or(attendant), &headers);
        let mut outcome = self.exchange(exchange, permit.idempotent(), cancel).await;
        let mut echoed = false;
        if let Some(listening) = listening {
            (outcome, echoed) = listening.finish(outcome);
        }
        echoed |= words.is_some_and(LastWords::take_echo);
        // SBX-52: nothing after the call, and so nobody who knows.
        if lent.is_known_inside() {
            self.link.kill();
        }
        if let Outcome::Failed(TransmitFailure::Timeout) = &outcome {
            self.end_process();
        }
        drop((loans, written, lent));
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

fn not_sent(reason: String) -> Outcome {
    Outcome::Failed(TransmitFailure::Unavailable { reason, sent: false })
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
