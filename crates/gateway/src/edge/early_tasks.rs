//! Tasks as revision 2025-11-25 has them (PRO §3, PRO-3).
//!
//! A client of that revision asks for a task with its call, `task: {ttl}`, and always gets one if it may: where the server
//! answers at once it has ended already. Where a task is and what came of it are asked for apart, and what the server wants
//! to know in the meantime is asked on the stream of `tasks/result`.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use portcullis_gauntlet::TaskStatus;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_upstream::{TaskWanted, Unanswered};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::outlet::Outlet;
use super::questions::{Asker, Question, RELATED_TASK};
use super::tasks::{Outcome, Task, refused, unable};
use super::{Answer, Asked, Edge, Era, Params, Sender};
use crate::target::{Found, Target};
use crate::world::World;

/// How often a server is asked about a task somebody waits for, if it does not say.
const USUAL_INTERVAL: Duration = Duration::from_millis(500);
/// However seldom it wants to be asked.
const LONGEST_INTERVAL: Duration = Duration::from_secs(10);

/// What `initialize` says.
pub(super) fn capability() -> Value {
    json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}})
}

impl Task {
    fn told_early(&self) -> Map<String, Value> {
        let state = self.state();
        let status = match &state.outcome {
            Some(Outcome::Result(result)) if is_failure(result) => TaskStatus::Failed,
            _ => state.status(),
        };
        let mut members = self.told(&state, status);
        members.insert("ttl".into(), json!(state.ttl_ms));
        if let Some(interval) = state.poll_interval_ms {
            members.insert("pollInterval".into(), json!(interval));
        }
        members
    }

    /// `CreateTaskResult`.
    pub(super) fn begun_early(&self, mark: &Value) -> Answer {
        let mut result = json!({"task": self.told_early()});
        if !mark.is_null() {
            result["_meta"] = json!({"io.portcullis/call": mark});
        }
        Answer::Result(result.to_string().into())
    }

    /// What came of the call, with what says whose it is; nothing while it goes on.
    fn ended_early(&self) -> Option<Answer> {
        let state = self.state();
        match &state.outcome {
            Some(Outcome::Result(result)) => {
                let mut result: Value = serde_json::from_slice(result).unwrap_or_default();
                let members = result.as_object_mut()?;
                let meta = members.entry("_meta").or_insert_with(|| json!({}));
                if let Some(meta) = meta.as_object_mut() {
                    meta.insert(RELATED_TASK.into(), json!({"taskId": self.id}));
                }
                Some(Answer::Result(result.to_string().into()))
            }
            Some(Outcome::Error(error)) => Some(Answer::Error {
                code: error["code"].as_i64().and_then(|code| code.try_into().ok()).unwrap_or(-32603),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                data: error.get("data").cloned(),
            }),
            None if state.status() == TaskStatus::Cancelled => {
                let message = "the task was cancelled".to_owned();
                Some(Answer::Error { code: -32603, message, data: None })
            }
            None => None,
        }
    }
}

impl Edge {
    /// Whether a call asks for a task, and for how long; why it may not. Where nobody has tasks the word means nothing.
    pub(super) fn task_wanted(
        &self,
        sender: &Sender,
        raw: Option<&RawValue>,
        target: &Target,
    ) -> Result<Option<TaskWanted>, Answer> {
        #[derive(Deserialize)]
        struct Wanted {
            #[serde(default)]
            ttl: Option<u64>,
        }
        let (Some(raw), Target::Tool(_)) = (raw, target) else { return Ok(None) };
        if !sender.conversation.revision().has_tasks() || !self.allows_tasks() {
            return Ok(None);
        }
        if let Some(Found { entry, .. }) = target.find(self.world.load().registry())
            && !entry.server.declaration.allows_tasks()
        {
            let message = "the declaration of the tool's server allows no tasks; call it without one".into();
            return Err(Answer::Error { code: -32601, message, data: None });
        }
        match serde_json::from_str::<Wanted>(raw.get()) {
            Ok(Wanted { ttl }) => Ok(Some(TaskWanted { ttl_ms: ttl })),
            Err(_) => Err(Answer::invalid_params("task is an object, with a ttl in milliseconds or without")),
        }
    }

    /// A page of `tools/list` in which the tools that may be called as tasks say so, as clients of 2025-11-25 need to hear
    /// it. What a server said itself stays.
    pub(super) fn with_task_support(&self, sender: &Sender, world: &World, page: Bytes) -> Bytes {
        #[derive(Deserialize)]
        struct Page<'a> {
            #[serde(borrow)]
            tools: Vec<&'a RawValue>,
        }
        #[derive(Deserialize)]
        struct Tool<'a> {
            #[serde(borrow)]
            name: Cow<'a, str>,
            #[serde(borrow, default)]
            execution: Option<&'a RawValue>,
        }
        let revision = sender.conversation.revision();
        if revision.era() == Era::Modern || !revision.has_tasks() || !self.allows_tasks() {
            return page;
        }
        let Ok(Page { tools }) = serde_json::from_slice(&page) else { return page };
        let (mut out, mut copied) = (Vec::with_capacity(page.len() + tools.len() * 40), 0);
        for raw in tools {
            let Ok(Tool { name, execution: None }) = serde_json::from_str(raw.get()) else { continue };
            let found = Target::Tool(name.into_owned()).find(world.registry());
            if found.is_some_and(|found| found.entry.server.declaration.allows_tasks()) {
                let text = page.slice_ref(raw.get().as_bytes());
                let brace = text.as_ptr() as usize - page.as_ptr() as usize + text.len() - 1;
                out.extend_from_slice(&page[copied..brace]);
                out.extend_from_slice(br#","execution":{"taskSupport":"optional"}"#);
                copied = brace;
            }
        }
        out.extend_from_slice(&page[copied..]);
        out.into()
    }

    pub(super) async fn early_task_method(
        &self,
        sender: &Sender,
        asked: &Asked<'_>,
        outlet: Outlet,
        cancel: CancellationSignal,
    ) -> Answer {
        let principal = sender.conversation.session().principal();
        let now = self.lifecycle.clock.now();
        if asked.method == "tasks/list" {
            let tasks = self.tasks.all_of(principal, now);
            let tasks: Vec<_> = tasks.iter().map(|task| task.told_early()).collect();
            return Answer::Result(json!({"tasks": tasks}).to_string().into());
        }
        let Some(Ok(params)) = asked.params.map(Params::read) else {
            return Answer::invalid_params(&format!("{} takes an object with taskId", asked.method));
        };
        let Some(task) = params.task_id.as_deref().and_then(|id| self.tasks.of(id, principal, now)) else {
            return Answer::invalid_params("the task is unknown, or was kept as long as it was to be kept");
        };
        let answered = match asked.method {
            "tasks/result" => self.wait_for(sender, &task, &outlet, cancel).await,
            "tasks/cancel" => self.cancel_early(&task, cancel).await,
            _ => {
                let mut turn = task.turn.lock().await;
                self.look_at(sender, &task, &mut turn, cancel).await.map(|()| told(&task))
            }
        };
        answered.unwrap_or_else(|answer| answer)
    }

    /// What has ended cannot be cancelled; what is cancelled stays so, whatever its server says later.
    async fn cancel_early(&self, task: &Task, cancel: CancellationSignal) -> Result<Answer, Answer> {
        let mut turn = task.turn.lock().await;
        if task.state().has_ended() {
            return Err(Answer::invalid_params("the task has ended already"));
        }
        self.end_task(task, cancel).await?;
        *turn = None;
        task.state().cancelled(self.lifecycle.clock.now());
        Ok(told(task))
    }

    /// `tasks/result`: waits until the task has ended, and asks its client meanwhile what the server wants to know.
    async fn wait_for(
        &self,
        sender: &Sender,
        task: &Task,
        outlet: &Outlet,
        mut cancel: CancellationSignal,
    ) -> Result<Answer, Answer> {
        let conversation = &sender.conversation;
        let asker = Asker {
            abilities: conversation.abilities().clone(),
            owed: conversation.owed().clone(),
            turns: None,
            patience: self.controls.answer_timeout(),
        };
        let mut last = task.state().status();
        loop {
            self.look_at(sender, task, &mut *task.turn.lock().await, cancel.clone()).await?;
            if let Some(ended) = task.ended_early() {
                return Ok(ended);
            }
            let (status, interval, question) = {
                let state = task.state();
                if let Some(unable) = unable(&state, &asker.abilities) {
                    return Err(unable);
                }
                let question = state.questions.first_key_value();
                let question = question.map(|(key, question)| (key.clone(), question.clone()));
                (state.status(), state.poll_interval_ms.map(Duration::from_millis), question)
            };
            if std::mem::replace(&mut last, status) != status {
                let params = task.told_early();
                let news =
                    json!({"jsonrpc": "2.0", "method": "notifications/tasks/status", "params": params});
                outlet.send(news.to_string().into_bytes());
            }
            if let Some((key, question)) = question {
                let answer = asker.ask(of_task(question, &task.id), outlet.clone()).await;
                let answer = answer.map_err(|unanswered| match unanswered {
                    Unanswered::Refused { code, message } => Answer::Error { code, message, data: None },
                    Unanswered::Undeclared => Answer::invalid_params("the client cannot be asked this"),
                })?;
                let mut turn = task.turn.lock().await;
                let responses = Map::from_iter([(key, answer)]);
                let told = self.answer_questions(task, responses, &mut turn, cancel.clone()).await;
                told.map_err(|document| refused(&document, Era::Legacy))?;
                continue;
            }
            let interval = interval.unwrap_or(USUAL_INTERVAL).min(LONGEST_INTERVAL);
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = cancel.cancelled() => {
                    let message = "the wait for the task was given up; it goes on".to_owned();
                    return Err(Answer::Error { code: -32603, message, data: None });
                }
            }
        }
    }
}

fn told(task: &Task) -> Answer {
    Answer::Result(Value::Object(task.told_early()).to_string().into())
}

/// A question that says which task it belongs to. A server's own word for that is not the client's.
fn of_task(mut question: Question, id: &str) -> Question {
    if !question.params["_meta"].is_object() {
        question.params["_meta"] = json!({});
    }
    question.params["_meta"][RELATED_TASK] = json!({"taskId": id});
    question
}

fn is_failure(result: &[u8]) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Told {
        #[serde(default)]
        is_error: bool,
    }
    serde_json::from_slice::<Told>(result).is_ok_and(|told| told.is_error)
}
