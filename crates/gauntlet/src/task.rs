//! A result that says "later": a task, and what its server reports of it (GNT-P7).
//!
//! A report is taken apart here, because nobody else can read what a server sent. What it says of itself is held to a
//! few words and numbers; the result inside stays raw and takes the way of any result, and so does an error.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::result::{misshapen, read, sound};
use crate::{Gauntlet, GauntletError, Raw, RawResult, ResultType, SafeResult, ToolSpec};

/// The longest id of a task that is carried.
const LONGEST_ID: usize = 1_024;
/// The longest message about a task that is shown.
const LONGEST_MESSAGE: usize = 4_096;

/// Where a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStatus {
    /// It goes on.
    Working,
    /// It waits for answers.
    InputRequired,
    /// It has a result.
    Completed,
    /// It ended with an error of the protocol.
    Failed,
    /// It was ended.
    Cancelled,
}

impl TaskStatus {
    /// The word of the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskStatus::Working => "working",
            TaskStatus::InputRequired => "input_required",
            TaskStatus::Completed => "completed",
            TaskStatus::Failed => "failed",
            TaskStatus::Cancelled => "cancelled",
        }
    }
}

/// A server's own name for a task: a text of its making, for the server and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct TaskHandle(String);

impl TaskHandle {
    fn new(spec: &ToolSpec, id: String) -> Result<Self, GauntletError> {
        if id.is_empty() || id.len() > LONGEST_ID {
            return Err(misshapen(spec, "the id of the task is empty or too long"));
        }
        Ok(Self(id))
    }

    /// As the server wrote it, to be sent back to it.
    pub fn for_its_server(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskHandle(..)")
    }
}

/// What a server says of a task.
#[derive(Debug)]
pub struct TaskReport {
    /// What the server knows it by.
    pub handle: TaskHandle,
    /// Where it is.
    pub status: TaskStatus,
    /// What the server says about that, safe to show.
    pub message: Option<String>,
    /// How long it is kept, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// How often it should be asked about.
    pub poll_interval_ms: Option<u64>,
    /// What its status comes with.
    pub payload: TaskPayload,
}

/// What the status of a task comes with.
#[derive(Debug)]
pub enum TaskPayload {
    /// Nothing.
    None,
    /// Questions, in the form of a result that asks them.
    Questions(SafeResult),
    /// The result of the call, to be finished like any.
    Result(RawResult),
    /// The error of the call.
    Error(Raw<Bytes>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    #[serde(default)]
    result_type: Option<String>,
    task_id: String,
    status: TaskStatus,
    #[serde(default)]
    status_message: Option<String>,
    #[serde(default)]
    ttl_ms: Option<u64>,
    #[serde(default)]
    poll_interval_ms: Option<u64>,
    #[serde(borrow, default)]
    input_requests: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// What a server of revision 2025-11-25 says of a task: never its result, which is asked for apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EarlyReport {
    task_id: String,
    status: TaskStatus,
    #[serde(default)]
    status_message: Option<String>,
    #[serde(default)]
    ttl: Option<u64>,
    #[serde(default)]
    poll_interval: Option<u64>,
}

impl Gauntlet {
    /// The task that a call was answered with which asked for one in the form of 2025-11-25, if it was.
    pub fn early_task_created(
        &self,
        spec: &ToolSpec,
        raw: &RawResult,
    ) -> Result<Option<TaskReport>, GauntletError> {
        #[derive(Deserialize)]
        struct Created<'a> {
            #[serde(borrow, default)]
            task: Option<&'a RawValue>,
        }
        match serde_json::from_slice::<Created<'_>>(&raw.0) {
            Ok(Created { task: Some(task) }) => {
                self.early_report(spec, &raw.0.slice_ref(task.get().as_bytes())).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// What a server of 2025-11-25 answered when it was asked about a task.
    pub fn early_task_reported(&self, spec: &ToolSpec, raw: &RawResult) -> Result<TaskReport, GauntletError> {
        self.early_report(spec, &raw.0)
    }

    fn early_report(&self, spec: &ToolSpec, text: &Bytes) -> Result<TaskReport, GauntletError> {
        let report: EarlyReport =
            serde_json::from_slice(text).map_err(|_| misshapen(spec, "this is no report of a task"))?;
        Ok(TaskReport {
            handle: TaskHandle::new(spec, report.task_id)?,
            status: report.status,
            message: report.status_message.map(|text| self.message(&text)).transpose()?,
            ttl_ms: report.ttl,
            poll_interval_ms: report.poll_interval,
            payload: TaskPayload::None,
        })
    }

    /// The task that a call was answered with, if it was.
    pub fn task_created(
        &self,
        spec: &ToolSpec,
        raw: &RawResult,
    ) -> Result<Option<TaskReport>, GauntletError> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, default, rename = "resultType")]
            result_type: Option<std::borrow::Cow<'a, str>>,
        }
        // Most results are none: a search is cheaper than taking them apart.
        if memchr::memmem::find(&raw.0, b"\"task").is_none() {
            return Ok(None);
        }
        match serde_json::from_slice::<Kind<'_>>(&raw.0) {
            Ok(Kind { result_type: Some(kind) }) if kind == "task" => {
                let report = self.report(spec, &raw.0)?;
                match report.payload {
                    TaskPayload::None => Ok(Some(report)),
                    _ => Err(misshapen(spec, "a task that has just begun has no outcome")),
                }
            }
            _ => Ok(None),
        }
    }

    /// What a server answered when it was asked about a task.
    pub fn task_reported(&self, spec: &ToolSpec, raw: RawResult) -> Result<TaskReport, GauntletError> {
        self.report(spec, &raw.0)
    }

    fn report(&self, spec: &ToolSpec, text: &Bytes) -> Result<TaskReport, GauntletError> {
        if text.len() > spec.max_response_bytes {
            let (limit, unit) = (spec.max_response_bytes, "bytes");
            return Err(GauntletError::OutputTooLarge { tool: spec.tool.clone(), limit, unit });
        }
        let report: Report<'_> =
            serde_json::from_slice(text).map_err(|_| misshapen(spec, "this is no report of a task"))?;
        let handle = TaskHandle::new(spec, report.task_id)?;
        let creates = report.result_type.as_deref() == Some("task");
        let lacks = |what| Err(misshapen(spec, what));
        let payload = match (report.status, report.input_requests, report.result, report.error) {
            // What a task has to say comes when it is asked about.
            _ if creates => TaskPayload::None,
            (TaskStatus::InputRequired, Some(questions), ..) => {
                let text = format!(r#"{{"inputRequests":{}}}"#, questions.get());
                TaskPayload::Questions(self.questions(spec, &text.into())?)
            }
            (TaskStatus::Completed, _, Some(result), _) => {
                TaskPayload::Result(RawResult::new(text.slice_ref(result.get().as_bytes())))
            }
            (TaskStatus::Failed, _, _, Some(error)) => {
                TaskPayload::Error(Raw::new(text.slice_ref(error.get().as_bytes())))
            }
            (TaskStatus::InputRequired, ..) => return lacks("a task that waits says for what"),
            (TaskStatus::Completed, ..) => return lacks("a completed task has a result"),
            (TaskStatus::Failed, ..) => return lacks("a failed task has an error"),
            (TaskStatus::Working | TaskStatus::Cancelled, ..) => TaskPayload::None,
        };
        let message = report.status_message.map(|text| self.message(&text)).transpose()?;
        Ok(TaskReport {
            handle,
            status: report.status,
            message,
            ttl_ms: report.ttl_ms,
            poll_interval_ms: report.poll_interval_ms,
            payload,
        })
    }

    fn questions(&self, spec: &ToolSpec, text: &Bytes) -> Result<SafeResult, GauntletError> {
        let tape = read(spec, text)?;
        sound(spec, &tape, None)?;
        self.clean(spec, text, &tape, ResultType::InputRequired)
    }

    fn message(&self, text: &str) -> Result<String, GauntletError> {
        let mut end = text.len().min(LONGEST_MESSAGE);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.clean_text(Raw::new(&text[..end])).map(|clean| clean.into_inner().into_owned())
    }
}
