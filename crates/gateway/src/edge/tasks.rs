//! Tasks: calls that go on after their answer, for clients that take that (PRO §3, extension
//! `io.modelcontextprotocol/tasks`).
//!
//! A client knows a task by an id of ours, which nobody can guess and which is worth nothing to another principal
//! (PRO-11). It survives connections and sessions, not the gateway. What its server is asked about it belongs to the permit
//! of its call; what came of it is asked for once and told as often as somebody wants to know.

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
use portcullis_upstream::Unanswered;
use rand::RngExt as _;
use serde_json::{Map, Value, json};

use super::questions::{self, Abilities, Question};
use super::rounds::Bound;
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

/// All tasks there are.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Task {
    id: String,
    created: Timestamp,
    call: Call,
    manner: Manner,
    work: Work,
    /// One exchange about it at a time.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    status: TaskStatus,
    message: Option<String>,
    updated: Timestamp,
    ttl_ms: u64,
    poll_interval_ms: Option<u64>,
    /// What it waits for, by its server's own keys.
    questions: BTreeMap<String, Question>,
    asked: u32,
    outcome: Option<Outcome>,
    looked: Option<Instant>,
}

/// What came of a call in the end.
#[derive(Debug, Clone)]
enum Outcome {
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

    /// The task of an id, if it is this principal's.
    fn of(&self, id: &str, principal: &Principal, now: Timestamp) -> Option<Arc<Task>> {
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members that every answer about it has.
    fn described(&self) -> Map<String, Value> {
        let state = self.state();
        let members = json!({
            "taskId": self.id,
            "status": state.status.as_str(),
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttlMs": state.ttl_ms,
        });
        let Value::Object(mut members) = members else { return Map::new() };
        if let Some(message) = &state.message {
            members.insert("statusMessage".into(), json!(message));
        }
        if let Some(interval) = state.poll_interval_ms {
            members.insert("pollIntervalMs".into(), json!(interval));
        }
        members
    }
}

impl Edge {
    /// Whether any declaration in force allows tasks.
    pub(super) fn allows_tasks(&self) -> bool {
        self.world.load().registry().servers().any(|server| server.declaration.allows_tasks())
    }

    /// A call was answered with a task: the client gets one of ours that stands for it.
    pub(super) async fn task_begun(
        &self,
        era: Era,
        call: Call,
        manner: &Manner,
        begun: Begun,
        mark: Value,
    ) -> Answer {
        let Begun { report, work } = begun;
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
        let task = Arc::new(Task {
            id: to_hex(&rand::rng().random::<[u8; 16]>()),
            created: now,
            call,
            manner: manner.clone(),
            work,
            turn: tokio::sync::Mutex::default(),
            state: Mutex::new(state),
        });
        if !self.tasks.keep(&task, now) {
            // It must not go on behind the back of everybody.
            let (_canceller, never) = CancellationSignal::pair();
            let _ = self.lifecycle.cancel_task(&task.work, &task.call, never).await;
            let message = "there are too many tasks under way; cancel some, or wait for their end";
            let path = task.work.entry.tool.id().short();
            let document = ErrorDocument::new(ErrorCode::RateLimited, path, message);
            return Answer::refused(document.with("limit", MOST), era, "tools/call", manner);
        }
        let mut members = task.described();
        members.insert("resultType".into(), json!("task"));
        members.insert("_meta".into(), json!({"io.portcullis/call": mark}));
        Answer::Result(Value::Object(members).to_string().into())
    }

    /// `tasks/get`, `tasks/update`, `tasks/cancel`.
    pub(super) async fn task_method(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        cancel: CancellationSignal,
    ) -> Answer {
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
        let _turn = task.turn.lock().await;
        let answered = match asked.method {
            "tasks/get" => self.get_task(sender, &task, &abilities, cancel).await,
            "tasks/update" => self.update_task(&task, &params, cancel).await,
            _ => self.end_task(&task, cancel).await,
        };
        answered.unwrap_or_else(|answer| answer)
    }

    async fn get_task(
        &self,
        sender: &Sender,
        task: &Task,
        abilities: &Abilities,
        cancel: CancellationSignal,
    ) -> Result<Answer, Answer> {
        let fresh = {
            let state = task.state();
            state.outcome.is_some()
                || state.status == TaskStatus::Cancelled
                || state.looked.is_some_and(|looked| looked.elapsed() < SOONEST)
        };
        if !fresh {
            let progress = self.lifecycle.look_at_task(&task.work, &task.call, cancel).await;
            let progress = progress.map_err(|document| refused(&document, sender.era()))?;
            self.take_progress(sender, task, progress)
                .await
                .map_err(|document| refused(&document, sender.era()))?;
        }
        let mut members = task.described();
        let state = task.state();
        match &state.outcome {
            Some(Outcome::Result(result)) => {
                let result = serde_json::from_slice(result).unwrap_or(Value::Null);
                members.insert("result".into(), result);
            }
            Some(Outcome::Error(error)) => {
                members.insert("error".into(), error.clone());
            }
            None if state.status == TaskStatus::InputRequired => {
                if let Some(question) =
                    state.questions.values().find(|question| !abilities.can_answer(question))
                {
                    // PRO-63: the client did not say that it can.
                    let message = format!("the task needs a client that can do {}", question.needed());
                    let data = json!({"requiredCapabilities": question.needs()});
                    return Err(Answer::Error { code: -32021, message, data: Some(data) });
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

    /// What a server reported becomes the state of a task.
    async fn take_progress(
        &self,
        sender: &Sender,
        task: &Task,
        progress: Progress,
    ) -> Result<(), ErrorDocument> {
        let Progress { status, message, ttl_ms, poll_interval_ms, come } = progress;
        let mut questions = BTreeMap::new();
        let mut outcome = None;
        match come {
            Come::Nothing => {}
            Come::Questions(asked) => {
                let required = self.required(&task.work.entry, &asked).map_err(|document| *document)?;
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
            (_, status) => status,
        };
        if state.asked > super::rounds::ROUNDS {
            let message = "the server asked for input more often than is allowed";
            let path = task.work.entry.tool.id().short();
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
            let responses = Value::Object(responses);
            let told = self.lifecycle.answer_task(&task.work, &task.call, &responses, cancel).await;
            told.map_err(|document| refused(&document, Era::Modern))?;
            let mut state = task.state();
            state.looked = None;
            for key in responses.as_object().into_iter().flat_map(Map::keys) {
                state.questions.remove(key);
            }
        }
        Ok(acknowledged())
    }

    async fn end_task(&self, task: &Task, cancel: CancellationSignal) -> Result<Answer, Answer> {
        let ended = {
            let state = task.state();
            state.outcome.is_some() || state.status == TaskStatus::Cancelled
        };
        if !ended {
            let told = self.lifecycle.cancel_task(&task.work, &task.call, cancel).await;
            told.map_err(|document| refused(&document, Era::Modern))?;
            task.state().looked = None;
        }
        Ok(acknowledged())
    }
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

fn refused(document: &ErrorDocument, era: Era) -> Answer {
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
