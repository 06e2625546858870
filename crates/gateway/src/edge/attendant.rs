//! Who attends to a call for its client: passes on what the server says meanwhile, and puts its questions to the
//! client (PRO §3).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use portcullis_audit::{AuditBlocked, Event, EventName};
use portcullis_core::digest::to_hex;
use portcullis_core::error::ErrorDocument;
use portcullis_core::{Actor, ApprovalId, ErrorCode, ProposalId, Timestamp};
use portcullis_gauntlet::{Gauntlet, Raw};
use portcullis_governance::accepted::AcceptedDeclaration;
use portcullis_governance::boundary::{BoxFuture, Outcome, TransmitFailure};
use portcullis_governance::policy::Covering;
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::{Beside, Unanswered};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::log_level::Level;
use super::outlet::Outlet;
use super::questions::{self, Asker, Question};
use super::rounds::Turn;
use crate::lifecycle::questioning::{self, During};
use crate::lifecycle::{Call, Lifecycle, blocked};

/// How many notifications of a call pass in a second; the last report of progress always does.
const PER_SECOND: u32 = 20;
/// How many are even looked at (GOV-303).
const HEARD_PER_SECOND: u32 = 100;

/// Attends to one call.
#[derive(Debug)]
pub(crate) struct Attendant {
    /// The client's own progress token, as it wrote it.
    token: Option<Box<RawValue>>,
    /// The least severe log message wanted.
    threshold: u8,
    outlet: Outlet,
    asker: Asker,
    lifecycle: Arc<Lifecycle>,
    gauntlet: Arc<Gauntlet>,
    entry: OnceLock<Arc<ToolEntry>>,
    /// The call that questions belong to now.
    during: Mutex<Option<During>>,
    pace: Mutex<Pace>,
    heard: Mutex<Heard>,
    asked: AtomicU32,
}

/// What a server said beside its answer: counted and digested whatever becomes of it (GOV-303).
#[derive(Debug)]
struct Heard {
    count: u64,
    ignored: u64,
    digest: Sha256,
    second: Instant,
    in_second: u32,
}

/// How fast notifications pass.
#[derive(Debug)]
struct Pace {
    second: Instant,
    passed: u32,
    /// The last report that had to wait.
    held: Option<Vec<u8>>,
}

/// A link on its way to whom a client works for.
pub(crate) enum Shown {
    /// On the stream of the call, which goes on.
    Beside(BoxFuture<'static, ()>),
    /// By ending the call with `input_required`: it goes on when the client comes back.
    ByEndingTheCall(BoxFuture<'static, ()>),
}

impl Attendant {
    pub(crate) fn new(
        token: Option<Box<RawValue>>,
        threshold: u8,
        outlet: Outlet,
        asker: Asker,
        lifecycle: Arc<Lifecycle>,
        gauntlet: Arc<Gauntlet>,
    ) -> Self {
        Self {
            token,
            threshold,
            outlet,
            asker,
            lifecycle,
            gauntlet,
            entry: OnceLock::new(),
            during: Mutex::new(None),
            pace: Mutex::new(Pace { second: Instant::now(), passed: 0, held: None }),
            heard: Mutex::new(Heard {
                count: 0,
                ignored: 0,
                digest: Sha256::new(),
                second: Instant::now(),
                in_second: 0,
            }),
            asked: AtomicU32::new(0),
        }
    }

    /// Which call this is about, once that is known.
    pub(crate) fn serve(&self, entry: &Arc<ToolEntry>, call: &Call, proposal: ProposalId) {
        let _ = self.entry.set(Arc::clone(entry));
        *self.during() = Some(During::new(call, entry, proposal));
    }

    /// The approval that the call is made under, once it is permitted.
    pub(crate) fn covered_by(&self, covering: Option<Covering>) {
        if let Some(during) = self.during().as_mut() {
            during.covering = covering;
        }
    }

    fn during(&self) -> MutexGuard<'_, Option<During>> {
        self.during.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server may ask this client.
    pub(crate) fn capabilities(&self, declaration: &AcceptedDeclaration) -> Value {
        self.asker.abilities.within(declaration.client_capabilities())
    }

    /// Whether a call may be answered with a task: the client takes them, and the declaration allows them.
    pub(crate) fn takes_tasks(&self, declaration: &AcceptedDeclaration) -> bool {
        declaration.allows_tasks() && self.asker.abilities.takes_tasks()
    }

    /// Puts a modern server's questions to a legacy client, one by one.
    pub(crate) async fn put(&self, questions: BTreeMap<String, Question>) -> Result<Value, Unanswered> {
        let mut answers = serde_json::Map::new();
        for (key, question) in questions {
            answers.insert(key, self.governed(question).await?);
        }
        Ok(Value::Object(answers))
    }

    /// Permits questions that a client takes along and answers in a call of its own, or has answered already.
    pub(crate) async fn pass_on<'q>(
        &self,
        questions: impl IntoIterator<Item = &'q Question>,
    ) -> Result<(), ErrorDocument> {
        for question in questions {
            let Some(during) = self.during().clone() else { continue };
            let path = question.method.clone();
            let permitted = self.lifecycle.permit_question(&during, question, self.aside()).await?;
            let settled = self.lifecycle.settle_question(permitted, Outcome::PassedOn).await;
            settled.map_err(|AuditBlocked { reason }| blocked(&path, &reason))?;
        }
        Ok(())
    }

    /// Puts one question to the client under a permit of its own. It is settled even if the call is given up meanwhile.
    fn governed(&self, question: Question) -> BoxFuture<'static, Result<Value, Unanswered>> {
        let refused = |code, message: &str| Unanswered::Refused { code, message: message.into() };
        let during = self.during().clone();
        let Some(during) = during.filter(|_| self.asker.reaches(&question, &self.outlet)) else {
            let error = refused(-32601, "the client cannot be asked this");
            return Box::pin(async move { Err(error) });
        };
        let (lifecycle, aside) = (self.lifecycle.clone(), self.aside());
        let (asker, outlet) = (self.asker.clone(), self.outlet.clone());
        let asking = tokio::spawn(async move {
            let permitted = lifecycle.permit_question(&during, &question, aside).await;
            // Which rule it was is not for the server.
            let permitted = permitted.map_err(|document| match document.error {
                ErrorCode::AuthRequired => {
                    refused(document.rpc_code(), "an operator must allow this question first")
                }
                _ => refused(document.rpc_code(), "the gateway does not let this question pass"),
            })?;
            let mut gone = during.cancel.clone();
            let answer = tokio::select! {
                answer = asker.ask(question, outlet) => answer,
                () = gone.cancelled() => Err(refused(-32603, "the call was given up")),
            };
            let outcome = match &answer {
                Ok(answer) => questioning::answered(answer),
                Err(_) if gone.is_cancelled() => Outcome::Failed(TransmitFailure::Cancelled),
                Err(_) => {
                    Outcome::Failed(TransmitFailure::Protocol { reason: "no answer that counts".into() })
                }
            };
            match lifecycle.settle_question(permitted, outcome).await {
                Ok(()) => answer,
                Err(AuditBlocked { .. }) => Err(refused(-32603, "what the client said cannot be recorded")),
            }
        });
        Box::pin(async move {
            asking.await.unwrap_or_else(|_| Err(refused(-32603, "the question could not be put")))
        })
    }

    /// Attends to what became of this call when it was answered with a task: there is no stream of its own any more, and
    /// whoever asks about the task hears the questions.
    pub(crate) fn of_task(&self, turns: mpsc::UnboundedSender<Turn>) -> Arc<Self> {
        let (lifecycle, gauntlet) = (self.lifecycle.clone(), self.gauntlet.clone());
        let asker = Asker { turns: Some(turns), ..self.asker.clone() };
        let attendant = Self::new(None, Level::OFF, Outlet::None, asker, lifecycle, gauntlet);
        if let Some(entry) = self.entry.get() {
            let _ = attendant.entry.set(Arc::clone(entry));
        }
        *attendant.during() = self.during().clone().map(During::outlived);
        Arc::new(attendant)
    }

    /// Attends to a question about this call, for which an operator may have to be asked.
    fn aside(&self) -> Arc<Self> {
        let (lifecycle, gauntlet) = (self.lifecycle.clone(), self.gauntlet.clone());
        Arc::new(Self::new(None, Level::OFF, self.outlet.clone(), self.asker.clone(), lifecycle, gauntlet))
    }

    /// Shows whom the client works for where an approval is decided, if the client can (GOV-903). What comes back is
    /// not told: a client speaks for an agent, and an agent approves nothing.
    pub(crate) fn show_the_way(&self, entry: &ToolEntry, id: ApprovalId, link: &str) -> Option<Shown> {
        if !self.asker.opens_links(&self.outlet) {
            return None;
        }
        let message = format!(
            "An operator must approve {} before it runs. This page opens the gateway's console, where an operator logs in \
             and decides; your answer here decides nothing.",
            entry.tool.id().short()
        );
        let params = json!({"mode": "url", "elicitationId": id, "url": link, "message": message});
        let asked =
            self.asker.ask(Question { method: "elicitation/create".into(), params }, self.outlet.clone());
        let answered: BoxFuture<'static, ()> = Box::pin(async move {
            let _ = asked.await;
        });
        Some(match self.asker.turns {
            Some(_) => Shown::ByEndingTheCall(answered),
            None => Shown::Beside(answered),
        })
    }

    /// Tells a client that wants to hear of progress that its call waits for an operator, for the `nth` time (GOV-904).
    /// The numbers are small: what the server reports later must be more.
    pub(crate) fn waits_for_an_operator(&self, nth: u32) {
        let Some(token) = &self.token else { return };
        let progress = f64::from(nth) / 1_000.0;
        let params = format!(
            r#"{{"progressToken":{},"progress":{progress},"message":"waiting for an operator to approve this call"}}"#,
            token.get()
        );
        self.pass(notification("notifications/progress", &params), true);
    }

    /// What time it is.
    pub(crate) fn now(&self) -> Timestamp {
        self.lifecycle.clock.now()
    }

    /// Whether the server asked anything while it worked on the call.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// Whether the client can be asked all of this.
    pub(crate) fn can_answer(&self, question: &Question) -> bool {
        self.asker.can_answer(question)
    }

    /// The call is over: a report that had to wait goes out before the answer.
    pub(crate) fn finish(&self) {
        if let Some(held) = self.pace().held.take() {
            self.outlet.send(held);
        }
    }

    fn progress(&self, params: &RawValue) {
        let Some(token) = &self.token else { return };
        let Ok(Value::Object(mut params)) = serde_json::from_str(params.get()) else { return };
        params.retain(|name, _| matches!(name.as_str(), "progress" | "total" | "message"));
        if !params.get("progress").is_some_and(Value::is_number) {
            return;
        }
        if let Some(Value::String(message)) = params.get_mut("message") {
            *message = self.clean(message);
        }
        let mut params = Value::Object(params).to_string();
        params.insert_str(1, &format!("\"progressToken\":{},", token.get()));
        self.pass(notification("notifications/progress", &params), true);
    }

    fn message(&self, params: &RawValue) {
        let Ok(mut params) = serde_json::from_str::<Value>(params.get()) else { return };
        let level = params["level"].as_str().and_then(Level::named);
        if level.is_none_or(|level| (level as u8) < self.threshold) {
            return;
        }
        let Some(entry) = self.entry.get() else { return };
        // Who says it is ours to say; the server's own word comes behind.
        let server = entry.tool.id().server();
        let logger = match params["logger"].as_str() {
            Some(logger) => format!("{server}/{}", self.clean(logger)),
            None => server.to_string(),
        };
        let data = params["data"].take();
        let Ok((data, _)) = self.gauntlet.clean_value(Raw::new(data)) else { return };
        let params = json!({"level": params["level"], "logger": logger, "data": data.get()});
        self.pass(notification("notifications/message", &params.to_string()), false);
    }

    /// PRO §3: rate-limited, but the last report always passes.
    fn pass(&self, message: Vec<u8>, keep_last: bool) {
        let mut pace = self.pace();
        if pace.second.elapsed() >= Duration::from_secs(1) {
            (pace.second, pace.passed) = (Instant::now(), 0);
        }
        if pace.passed < PER_SECOND {
            pace.passed += 1;
            if keep_last {
                pace.held = None;
            }
            self.outlet.send(message);
        } else if keep_last {
            pace.held = Some(message);
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clean(&self, text: &str) -> String {
        self.gauntlet
            .clean_text(Raw::new(text))
            .map_or_else(|_| String::new(), |clean| clean.into_inner().into())
    }
}

impl Beside for Attendant {
    fn notified(&self, method: &str, params: &RawValue) {
        if !self.heard.lock().unwrap_or_else(PoisonError::into_inner).takes(method, params) {
            return;
        }
        match method {
            "notifications/progress" => self.progress(params),
            _ => self.message(params),
        }
    }

    fn paused(&self) {
        self.outlet.pause();
    }

    fn asked(&self, method: String, params: Box<RawValue>) -> BoxFuture<'static, Result<Value, Unanswered>> {
        let refused = |error| -> BoxFuture<'static, _> { Box::pin(async move { Err(error) }) };
        let Some(entry) = self.entry.get() else { return refused(Unanswered::Undeclared) };
        let count = self.asked.fetch_add(1, Ordering::Relaxed);
        let prepared = questions::prepare(entry, &method, &params, count, Some(&self.gauntlet));
        let server = entry.tool.id().server().as_str();
        let data = json!({"kind": portcullis_core::error::one_line(&method), "tool": entry.tool.id()});
        let event = move |outcome: &str, server: &str, mut data: Value| {
            data["outcome"] = outcome.into();
            Event::new(EventName::ExecutionServerRequest, &Actor::server(server)).data(data)
        };
        match prepared {
            Ok(question) => {
                let (log, server) = (self.lifecycle.log.clone(), server.to_owned());
                let governed = self.governed(question);
                Box::pin(async move {
                    let answer = governed.await;
                    let outcome = if answer.is_ok() { "carried" } else { "refused" };
                    let _ = log.append(vec![event(outcome, &server, data)]);
                    answer
                })
            }
            Err(error) => {
                let outcome = if error == Unanswered::Undeclared { "undeclared" } else { "refused" };
                let _ = self.lifecycle.log.append(vec![event(outcome, server, data)]);
                refused(error)
            }
        }
    }
}

impl Heard {
    /// Whether this one is looked at.
    fn takes(&mut self, method: &str, params: &RawValue) -> bool {
        self.count += 1;
        // Neither can hold a line end of its own.
        for part in [method, "\n", params.get(), "\n"] {
            self.digest.update(part.as_bytes());
        }
        if self.second.elapsed() >= Duration::from_secs(1) {
            (self.second, self.in_second) = (Instant::now(), 0);
        }
        self.in_second = self.in_second.saturating_add(1);
        let takes = self.in_second <= HEARD_PER_SECOND;
        self.ignored += u64::from(!takes);
        takes
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        let heard = self.heard.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let (Some(entry), true) = (self.entry.get(), heard.count > 0) {
            let digest = to_hex(&std::mem::take(&mut heard.digest).finalize());
            let data = json!({"count": heard.count, "ignored": heard.ignored, "sha256": digest, "tool": entry.tool.id()});
            let actor = Actor::server(entry.tool.id().server().as_str());
            let _ = self
                .lifecycle
                .log
                .append(vec![Event::new(EventName::ExecutionNotifications, &actor).data(data)]);
        }
    }
}

fn notification(method: &str, params: &str) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#).into_bytes()
}
