//! Tasks: calls that go on after their answer, for clients that take that (PRO §3, extension
//! `io.modelcontextprotocol/tasks`).
//!
//! A client knows a task by an id of ours, which nobody can guess and which is worth nothing to another principal
//! (PRO-11). It survives connections and sessions, not the gateway. What its server is asked about it belongs to the permit
//! of its call; what came of it is asked for once and told as often as somebody wants to know.
//!
//! Here is the modern form, and what both forms share; `early_tasks` words it as revision 2025-11-25 does. A server of that
//! revision asks its questions while it is asked for the result, so that is asked for in the background ([`Fetch`]) as soon
//! as it has any.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use portcullis_core::digest::to_hex;
use portcullis_core::error::ErrorDocument;
use portcullis_core::jsonrpc::Message;
use portcullis_core::{ErrorCode, Principal, Timestamp};
use portcullis_gauntlet::{TaskReport, TaskStatus};
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::declaration::TASKS;
use portcullis_upstream::{Beside, Unanswered};
use rand::RngExt as _;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::calling::Later;
use super::outlet::Outlet;
use super::questions::{self, Abilities, Question, RELATED_TASK};
use super::rounds::{Bound, Turn};
use super::{Answer, Asked, Edge, Era, Params, Sender};
use crate::exposure::Manner;
use crate::lifecycle::tasks::{Begun, Come, Progress, Work};
use crate::lifecycle::{Answered, Call, Response};

/// How long a task is kept that its server would keep longer, or for ever.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// How many one principal may have.
const MOST: usize = 256;
/// A server is not asked about a task more often.
const SOONEST: Duration = Duration::from_millis(50);
/// How long is waited for the question that a server says it has.
const QUESTION: Duration = Duration::from_secs(1);

/// All tasks there are.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: String,
    created: Timestamp,
    call: Call,
    manner: Manner,
    /// What its server knows of it; nothing for a call that was answered at once.
    work: Option<Arc<Work>>,
    /// One exchange about it at a time.
    pub(super) turn: tokio::sync::Mutex<Option<Fetch>>,
    state: Mutex<State>,
}

/// The request for the result of a task that has questions.
#[derive(Debug)]
pub(super) struct Fetch {
    done: JoinHandle<Result<Come, ErrorDocument>>,
    turns: mpsc::UnboundedReceiver<Turn>,
    /// Where the answers go, by our keys.
    waiting: BTreeMap<String, oneshot::Sender<Value>>,
    asked: u32,
}

#[derive(Debug)]
pub(super) struct State {
    status: TaskStatus,
    pub(super) message: Option<String>,
    pub(super) updated: Timestamp,
    pub(super) ttl_ms: u64,
    pub(super) poll_interval_ms: Option<u64>,
    /// What it waits for, by its server's own keys.
    pub(super) questions: BTreeMap<String, Question>,
    asked: u32,
    pub(super) outcome: Option<Outcome>,
    looked: Option<Instant>,
}

/// What came of a call in the end.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Result(Bytes),
    Error(Value),
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a task; false if its principal has too many.
    fn keep(&self, task: &Arc<Task>, now: Timestamp) -> bool {
        let mut tasks = self.lock();
        tasks.retain(|_, task| !task.is_over(now));
        if tasks.values().filter(|other| other.principal() == task.principal()).count() >= MOST {
            return false;
        }
        tasks.insert(task.id.clone(), task.clone());
        true
    }

    /// The tasks of a principal, the oldest first.
    pub(super) fn all_of(&self, principal: &Principal, now: Timestamp) -> Vec<Arc<Task>> {
        let tasks = self.lock();
        let theirs = tasks.values().filter(|task| task.principal() == principal && !task.is_over(now));
        let mut theirs: Vec<_> = theirs.cloned().collect();
        theirs.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        theirs
    }

    /// The task of an id, if it is this principal's.
    pub(super) fn of(&self, id: &str, principal: &Principal, now: Timestamp) -> Option<Arc<Task>> {
        let found = self.lock().get(id).cloned();
        found.filter(|task| task.principal() == principal && !task.is_over(now))
    }
}

impl Task {
    fn principal(&self) -> &Principal {
        self.call.session.principal()
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.as_millis() >= self.created.as_millis().saturating_add(self.state().ttl_ms)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members that every answer about it has.
    fn described(&self) -> Map<String, Value> {
        let state = self.state();
        let mut members = self.told(&state, state.status());
        members.insert("ttlMs".into(), json!(state.ttl_ms));
        if let Some(interval) = state.poll_interval_ms {
            members.insert("pollIntervalMs".into(), json!(interval));
        }
        members
    }

    /// The members that every answer about it has in both forms.
    pub(super) fn told(&self, state: &State, status: TaskStatus) -> Map<String, Value> {
        let members = json!({
            "taskId": self.id,
            "status": status.as_str(),
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
        });
        let Value::Object(mut members) = members else { return Map::new() };
        if let Some(message) = &state.message {
            members.insert("statusMessage".into(), json!(message));
        }
        members
    }
}

impl State {
    /// Where the task is, for who looks: it waits for answers when it is known to what.
    pub(super) fn status(&self) -> TaskStatus {
        match self.status {
            TaskStatus::InputRequired if self.questions.is_empty() => TaskStatus::Working,
            status => status,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some() || self.status == TaskStatus::Cancelled
    }

    pub(super) fn cancelled(&mut self, now: Timestamp) {
        (self.status, self.updated) = (TaskStatus::Cancelled, now);
        self.questions.clear();
    }
}

impl Edge {
    /// Whether any declaration in force allows tasks.
    pub(super) fn allows_tasks(&self) -> bool {
        self.world.load().registry().servers().any(|server| server.declaration.allows_tasks())
    }

    /// A call was answered with a task: the client gets one of ours that stands for it.
    pub(super) async fn task_begun(&self, era: Era, later: Later, manner: &Manner) -> Answer {
        let Later { call, begun: Begun { report, work }, mark } = later;
        let TaskReport { status, message, ttl_ms, poll_interval_ms, .. } = report;
        let now = self.lifecycle.clock.now();
        let state = State {
            status,
            message,
            updated: now,
            ttl_ms: kept_for(ttl_ms),
            poll_interval_ms: poll_interval_ms.filter(|interval| *interval > 0),
            questions: BTreeMap::new(),
            asked: 0,
            outcome: None,
            looked: None,
        };
        let work = Arc::new(work);
        let task = Arc::new(Task {
            id: to_hex(&rand::rng().random::<[u8; 16]>()),
            created: now,
            call,
            manner: manner.clone(),
            work: Some(work.clone()),
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        });
        if !self.tasks.keep(&task, now) {
            // It must not go on behind the back of everybody.
            let (_canceller, never) = CancellationSignal::pair();
            let _ = self.lifecycle.cancel_task(&work, &task.call, never).await;
            let message = "there are too many tasks under way; cancel some, or wait for their end";
            let document = ErrorDocument::new(ErrorCode::RateLimited, work.entry.tool.id().short(), message);
            return Answer::refused(document.with("limit", MOST), era, "tools/call", manner);
        }
        if era == Era::Legacy {
            return task.begun_early(&mark);
        }
        let mut members = task.described();
        members.insert("resultType".into(), json!("task"));
        members.insert("_meta".into(), json!({"io.portcullis/call": mark}));
        Answer::Result(Value::Object(members).to_string().into())
    }

    /// A client that wants a task for an answer gets one that has ended, if its call has. A client with too many of them
    /// has the answer at once.
    pub(super) fn task_done_at_once(&self, call: Call, manner: &Manner, result: Bytes) -> Answer {
        let now = self.lifecycle.clock.now();
        let wanted = call.wants.task.unwrap_or_default();
        let task = Arc::new(Task {
            id: to_hex(&rand::rng().random::<[u8; 16]>()),
            created: now,
            call,
            manner: manner.clone(),
            work: None,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                status: TaskStatus::Completed,
                message: None,
                updated: now,
                ttl_ms: kept_for(wanted.ttl_ms),
                poll_interval_ms: None,
                questions: BTreeMap::new(),
                asked: 0,
                outcome: Some(Outcome::Result(result.clone())),
                looked: None,
            }),
        });
        if !self.tasks.keep(&task, now) {
            return Answer::Result(result);
        }
        task.begun_early(&Value::Null)
    }

    /// `tasks/get`, `tasks/update`, `tasks/cancel`, and what 2025-11-25 has instead.
    pub(super) async fn task_method(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Answer {
        if sender.era() == Era::Legacy {
            return self.early_task_method(sender, asked, outlet, cancel).await;
        }
        let Some(Ok(params)) = asked.params.map(Params::read) else {
            return Answer::invalid_params(&format!("{} takes an object with taskId", asked.method));
        };
        let abilities = Abilities::read(params.meta.as_ref().and_then(|meta| meta.client_capabilities));
        if !abilities.takes_tasks() {
            return needs_tasks();
        }
        let now = self.lifecycle.clock.now();
        let principal = sender.conversation.session().principal();
        let found = params.task_id.as_deref().and_then(|id| self.tasks.of(id, principal, now));
        let Some(task) = found else {
            return Answer::invalid_params("the task is unknown, or was kept as long as it was to be kept");
        };
        let mut turn = task.turn.lock().await;
        let answered = match asked.method {
            "tasks/get" => match self.look_at(sender, &task, &mut turn, cancel).await {
                Ok(()) => shown(&task, &abilities),
                Err(answer) => Err(answer),
            },
            "tasks/update" => self.update_task(&task, &params, &mut turn, cancel).await,
            _ => self.end_task(&task, cancel).await,
        };
        answered.unwrap_or_else(|answer| answer)
    }

    /// Brings what is known of a task up to date.
    pub(super) async fn look_at(
        &self,
        sender: &Sender,
        task: &Task,
        turn: &mut Option<Fetch>,
        cancel: CancellationSignal,
    ) -> Result<(), Answer> {
        let looked = async {
            let Some(work) = &task.work else { return Ok(()) };
            let fresh = {
                let state = task.state();
                state.has_ended() || state.looked.is_some_and(|looked| looked.elapsed() < SOONEST)
            };
            if fresh {
                return Ok(());
            }
            if let Some(fetch) = turn {
                let Some(done) = fetch.go_on(task).await else { return Ok(()) };
                *turn = None;
                let come = done?;
                return self.take_end(sender, task, work, come).await;
            }
            let progress = self.lifecycle.look_at_task(work, &task.call, cancel).await?;
            let unasked = matches!(progress.come, Come::Unasked);
            self.take_progress(sender, task, work, progress).await?;
            if unasked {
                let mut fetch = self.fetch(task, work);
                match fetch.go_on(task).await {
                    None => *turn = Some(fetch),
                    Some(done) => {
                        let come = done?;
                        return self.take_end(sender, task, work, come).await;
                    }
                }
            }
            Ok(())
        };
        looked.await.map_err(|document: ErrorDocument| refused(&document, sender.era()))
    }

    /// Asks for the result of a task in the background, to hear what its server wants to know.
    fn fetch(&self, task: &Task, work: &Arc<Work>) -> Fetch {
        let (sending, turns) = mpsc::unbounded_channel();
        let attendant: Arc<dyn Beside> = task.call.attendant.of_task(sending);
        let (lifecycle, work, call) = (self.lifecycle.clone(), work.clone(), task.call.clone());
        let done = tokio::spawn(async move {
            let (_canceller, never) = CancellationSignal::pair();
            // PRO-21: only one call of a child can be the one that asks.
            let _turn = lifecycle.turn_of(&work.entry).await;
            lifecycle.result_of_task(&work, &call, never, Some(&attendant)).await
        });
        Fetch { done, turns, waiting: BTreeMap::new(), asked: 0 }
    }

    /// A result that was asked for in the background.
    async fn take_end(
        &self,
        sender: &Sender,
        task: &Task,
        work: &Work,
        come: Come,
    ) -> Result<(), ErrorDocument> {
        let (status, message, ttl_ms, poll_interval_ms) = (TaskStatus::Completed, None, None, None);
        let progress = Progress { status, message, ttl_ms, poll_interval_ms, come };
        self.take_progress(sender, task, work, progress).await
    }

    /// What a server reported becomes the state of a task.
    async fn take_progress(
        &self,
        sender: &Sender,
        task: &Task,
        work: &Work,
        progress: Progress,
    ) -> Result<(), ErrorDocument> {
        let Progress { status, message, ttl_ms, poll_interval_ms, come } = progress;
        let mut questions = BTreeMap::new();
        let mut outcome = None;
        match come {
            Come::Nothing | Come::Unasked => {}
            Come::Questions(asked) => {
                let required = self.required(&work.entry, &asked).map_err(|document| *document)?;
                questions = required.questions;
                let news: Vec<_> = {
                    let known = task.state();
                    let is_new = |key: &String| !known.questions.contains_key(key);
                    let new = questions.iter().filter(|(key, _)| is_new(key));
                    new.map(|(_, question)| question.clone()).collect()
                };
                task.call.attendant.pass_on(&news).await?;
            }
            Come::Outcome(response) => outcome = Some(self.outcome(sender, task, *response).await),
        }
        let now = self.lifecycle.clock.now();
        let mut state = task.state();
        // GOV-408: rounds of questions are counted over the whole of the task.
        if questions.keys().any(|key| !state.questions.contains_key(key)) {
            state.asked += 1;
        }
        if state.status != status || state.message != message || state.questions.len() != questions.len() {
            state.updated = now;
        }
        state.status = match (&outcome, status) {
            // A result that is withheld is an error of the protocol's kind.
            (Some(Outcome::Error(_)), _) => TaskStatus::Failed,
            // A tool's own failure is a result; 2025-11-25 calls such a task failed all the same.
            (Some(Outcome::Result(_)), _) => TaskStatus::Completed,
            (None, status) => status,
        };
        if state.asked > super::rounds::ROUNDS {
            let message = "the server asked for input more often than is allowed";
            let path = work.entry.tool.id().short();
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message));
        }
        (state.message, state.questions, state.looked) = (message, questions, Some(Instant::now()));
        if ttl_ms.is_some() {
            state.ttl_ms = kept_for(ttl_ms);
        }
        state.poll_interval_ms = poll_interval_ms.filter(|interval| *interval > 0).or(state.poll_interval_ms);
        if outcome.is_some() {
            state.outcome = outcome;
        }
        Ok(())
    }

    /// The end of a call, in the words in which it would have been answered.
    async fn outcome(
        &self,
        sender: &Sender,
        task: &Task,
        response: Result<Response, ErrorDocument>,
    ) -> Outcome {
        let (call, manner) = (&task.call, &task.manner);
        let parsed = Message::read(&call.message);
        let params = parsed.as_ref().and_then(|message| message.params);
        let bound = &Bound::new(sender, &call.message, self.world.load());
        let asked = Asked { method: "tools/call", params, message: &call.message, bound };
        let short = self.in_short(sender, &asked, &response, call, manner).await;
        let failed = matches!(&response, Ok(Response { answered: Answered::Failure(_), .. }));
        let answer = match response {
            // In a task the protocol's errors stay what they are.
            Err(document) => Answer::as_error(&document),
            response => self.shown(sender.era(), "tools/call", response, short, manner),
        };
        self.count_shown(&call.session, &answer);
        match answer {
            Answer::Result(result) if !failed => Outcome::Result(result),
            Answer::Result(result) => {
                let data: Value = serde_json::from_slice(&result).unwrap_or_default();
                Outcome::Error(json!({"code": -32603, "message": "the task failed", "data": data}))
            }
            Answer::Error { code, message, data } => {
                let mut error = json!({"code": code, "message": message});
                if let Some(data) = data {
                    error["data"] = data;
                }
                Outcome::Error(error)
            }
        }
    }

    async fn update_task(
        &self,
        task: &Task,
        params: &Params<'_>,
        turn: &mut Option<Fetch>,
        cancel: CancellationSignal,
    ) -> Result<Answer, Answer> {
        let given = params.input_responses.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let Some(mut given): Option<Map<String, Value>> = given else {
            return Err(Answer::invalid_params("tasks/update takes an object of inputResponses"));
        };
        let mut responses = Map::new();
        for (key, question) in &task.state().questions {
            let Some(answer) = given.remove(key) else { continue };
            match questions::judge(question, answer) {
                Ok(answer) => drop(responses.insert(key.clone(), answer)),
                Err(Unanswered::Refused { message, .. }) => return Err(Answer::invalid_params(&message)),
                Err(Unanswered::Undeclared) => return Err(Answer::invalid_params("an answer to nothing")),
            }
        }
        // Answers to what was not asked mean nothing, and are no error.
        if !responses.is_empty() {
            self.answer_questions(task, responses, turn, cancel)
                .await
                .map_err(|document| refused(&document, Era::Modern))?;
        }
        Ok(acknowledged())
    }

    /// Hands answers that were judged to the server that asked.
    pub(super) async fn answer_questions(
        &self,
        task: &Task,
        responses: Map<String, Value>,
        turn: &mut Option<Fetch>,
        cancel: CancellationSignal,
    ) -> Result<(), ErrorDocument> {
        let keys: Vec<String> = responses.keys().cloned().collect();
        match (turn, &task.work) {
            (Some(fetch), _) => {
                for (key, answer) in responses {
                    if let Some(waiting) = fetch.waiting.remove(&key) {
                        let _ = waiting.send(answer);
                    }
                }
            }
            (None, Some(work)) => {
                self.lifecycle.answer_task(work, &task.call, &Value::Object(responses), cancel).await?;
            }
            (None, None) => {}
        }
        let mut state = task.state();
        state.looked = None;
        state.questions.retain(|key, _| !keys.contains(key));
        Ok(())
    }

    pub(super) async fn end_task(&self, task: &Task, cancel: CancellationSignal) -> Result<Answer, Answer> {
        let ended = task.state().has_ended();
        if let (false, Some(work)) = (ended, &task.work) {
            let told = self.lifecycle.cancel_task(work, &task.call, cancel).await;
            told.map_err(|document| refused(&document, Era::Modern))?;
            task.state().looked = None;
        }
        Ok(acknowledged())
    }
}

impl Fetch {
    /// Takes what the server asks; its answer, if that has come.
    async fn go_on(&mut self, task: &Task) -> Option<Result<Come, ErrorDocument>> {
        let asked = tokio::select! {
            biased;
            Some(turn) = self.turns.recv() => turn,
            done = &mut self.done => return Some(done.unwrap_or_else(|_| Err(broken(task)))),
            () = tokio::time::sleep(QUESTION), if self.waiting.is_empty() => return None,
            () = std::future::ready(()), if !self.waiting.is_empty() => return None,
        };
        self.asked += 1;
        let key = format!("question{}", self.asked);
        self.waiting.insert(key.clone(), asked.answer);
        let mut state = task.state();
        state.updated = task.call.attendant.now();
        state.status = TaskStatus::InputRequired;
        state.questions.insert(key, asked.question);
        None
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        // Nobody waits for it any more; the server is told.
        self.done.abort();
    }
}

fn broken(task: &Task) -> ErrorDocument {
    let message = "the result of the task could not be fetched";
    ErrorDocument::new(ErrorCode::UpstreamError, task.call.target.name(), message)
}

/// A task for a modern client that can do this much.
fn shown(task: &Task, abilities: &Abilities) -> Result<Answer, Answer> {
    let mut members = task.described();
    let state = task.state();
    match &state.outcome {
        Some(Outcome::Result(result)) => {
            let mut result: Value = serde_json::from_slice(result).unwrap_or(Value::Null);
            // PRO-11: what a server calls its task is for the server.
            if let Some(meta) = result.get_mut("_meta").and_then(Value::as_object_mut) {
                meta.shift_remove(RELATED_TASK);
            }
            members.insert("result".into(), result);
        }
        Some(Outcome::Error(error)) => {
            members.insert("error".into(), error.clone());
        }
        None if state.status() == TaskStatus::InputRequired => {
            if let Some(unable) = unable(&state, abilities) {
                return Err(unable);
            }
            let requests = (state.questions.iter())
                .map(|(key, one)| (key.clone(), json!({"method": one.method, "params": one.params})));
            members.insert("inputRequests".into(), Value::Object(requests.collect()));
        }
        None => {}
    }
    members.insert("resultType".into(), json!("complete"));
    Ok(Answer::Result(Value::Object(members).to_string().into()))
}

/// PRO-63: that a client did not say that it can answer what a task waits for.
pub(super) fn unable(state: &State, abilities: &Abilities) -> Option<Answer> {
    let question = state.questions.values().find(|question| !abilities.can_answer(question))?;
    let message = format!("the task needs a client that can do {}", question.needed());
    let data = json!({"requiredCapabilities": question.needs()});
    Some(Answer::Error { code: -32021, message, data: Some(data) })
}

/// What a client must be able to do for these methods.
fn needs_tasks() -> Answer {
    let message = format!("this needs a client that declares the extension {TASKS}");
    let data = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    Answer::Error { code: -32021, message, data: Some(data) }
}

fn acknowledged() -> Answer {
    Answer::Result(Bytes::from_static(br#"{"resultType":"complete"}"#))
}

pub(super) fn refused(document: &ErrorDocument, era: Era) -> Answer {
    match document.details.get("rpc_code").and_then(Value::as_i64).map(i32::try_from) {
        // PRO-70: a server's own error passes.
        Some(Ok(code)) => Answer::Error { code, message: document.message.clone(), data: None },
        _ => Answer::refusal(document, era, "tasks/get"),
    }
}

/// How long a task is kept, by what its server says.
fn kept_for(ttl_ms: Option<u64>) -> u64 {
    let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
    ttl_ms.filter(|ttl| *ttl > 0).unwrap_or(longest).min(longest)
}
