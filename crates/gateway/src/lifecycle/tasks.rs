//! What comes after a call that was answered with a task (PRO §3).
//!
//! The call is over and settled; its permit lives on in a [`Continuation`], to which everything belongs that its server is
//! asked about the task. A result that comes in the end takes the way of any result: recorded, validated, cleaned.
//!
//! A modern server reports a task with all that belongs to its status. One of 2025-11-25 says only where the task is; its
//! result is asked for apart, and what it wants to know in the meantime it asks while it is.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis_audit::AuditBlocked;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::{ErrorCode, Lineage, ProposalId};
use portcullis_gauntlet::{RawResult, Screened, TaskHandle, TaskPayload, TaskReport, TaskStatus};
use portcullis_governance::boundary::{CancellationSignal, Continuation, Denied, ReleasedResponse, WireCall};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::trail::Trail;
use portcullis_upstream::{Beside, Era, Greeting, UpstreamError, Wants};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Answered, Call, Lifecycle, Proposal, Response, UpstreamFailure, blocked, out_of_touch};
use crate::upstreams::Caller;

/// A task that a call was answered with.
#[derive(Debug)]
pub struct Begun {
    /// What its server said of it at first.
    pub(crate) report: TaskReport,
    pub(crate) work: Work,
}

/// What is needed to go on with a task.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) entry: Arc<ToolEntry>,
    pub(crate) handle: TaskHandle,
    pub(crate) proposal: ProposalId,
    /// In which form its server knows it.
    upstream: Era,
    lineage: Lineage,
    continuation: Continuation,
    /// Taken by the one result there is.
    screened: Mutex<Option<Screened>>,
}

/// What a task has come to.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) status: TaskStatus,
    pub(crate) message: Option<String>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) poll_interval_ms: Option<u64>,
    pub(crate) come: Come,
}

/// What a server's report brought.
#[derive(Debug)]
pub(crate) enum Come {
    /// Nothing yet.
    Nothing,
    /// There are questions, which are asked of who asks for the result.
    Unasked,
    /// Questions, safe to show.
    Questions(bytes::Bytes),
    /// The outcome of the call, or why it is withheld.
    Outcome(Box<Result<Response, ErrorDocument>>),
}

/// Whether a call may be answered with a task: its client takes one, the declaration allows it, and its server gives them,
/// unasked as modern ones do or as 2025-11-25 has it, to who asks for tools that say so.
pub(super) fn may_be_begun(call: &Call, entry: &ToolEntry, greeting: &Greeting) -> bool {
    call.attendant.takes_tasks(&entry.server.declaration)
        && match greeting.era {
            Era::Modern => true,
            Era::Legacy => greeting.gives_tasks_to_who_asks() && supports_tasks(entry),
        }
}

/// What a tool of a server of 2025-11-25 says about tasks; nothing means no.
fn supports_tasks(entry: &ToolEntry) -> bool {
    #[derive(Deserialize)]
    struct Tool {
        #[serde(default)]
        execution: Option<Execution>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Execution {
        #[serde(default)]
        task_support: Option<String>,
    }
    let tool = serde_json::from_str::<Tool>(entry.tool.definition().get()).ok();
    let support = tool.and_then(|tool| tool.execution?.task_support);
    matches!(support.as_deref(), Some("optional" | "required"))
}

impl Lifecycle {
    /// Takes note of a task instead of a result.
    pub(super) fn begun(
        report: TaskReport,
        screened: Screened,
        continuation: Continuation,
        upstream: Era,
        mark: Value,
        proposal: &Proposal,
    ) -> Response {
        let work = Work {
            entry: proposal.entry.clone(),
            handle: report.handle.clone(),
            proposal: proposal.id,
            upstream,
            lineage: proposal.lineage.clone(),
            continuation,
            screened: Mutex::new(Some(screened)),
        };
        Response {
            answered: Answered::Task(Box::new(Begun { report, work })),
            proposal: proposal.id,
            entry: proposal.entry.clone(),
            upstream,
            mark,
            cache_hit: false,
        }
    }

    /// Asks a task's server how far it is.
    pub(crate) async fn look_at_task(
        &self,
        work: &Work,
        call: &Call,
        cancel: CancellationSignal,
    ) -> Result<Progress, ErrorDocument> {
        let asked = self.ask_about(work, call, ("tasks/get", None), cancel.clone(), None).await?;
        let (released, seq, mut trail) = asked;
        let progress = match work.upstream {
            Era::Modern => self.progress(work, released, seq, &mut trail),
            Era::Legacy => self.early_progress(work, released, seq),
        };
        // What was noted of it is on record before it is shown.
        let settled = trail.settle().await;
        settled.map_err(|AuditBlocked { reason }| blocked(work.entry.tool.id().short(), &reason))?;
        let progress = progress?;
        let ended = matches!(progress.status, TaskStatus::Completed | TaskStatus::Failed);
        if ended && let Come::Nothing = progress.come {
            let come = self.result_of_task(work, call, cancel, None).await?;
            return Ok(Progress { come, ..progress });
        }
        Ok(progress)
    }

    /// Asks a server of 2025-11-25 for the result of a task, which it has when the task has ended. What it asks until then
    /// is put to whoever attends.
    pub(crate) async fn result_of_task(
        &self,
        work: &Work,
        call: &Call,
        cancel: CancellationSignal,
        attendant: Option<&Arc<dyn Beside>>,
    ) -> Result<Come, ErrorDocument> {
        let path = work.entry.tool.id().short();
        let asked = self.ask_about(work, call, ("tasks/result", None), cancel, attendant).await?;
        let (released, seq, mut trail) = asked;
        let outcome = match released {
            ReleasedResponse::Result(raw) => self.finished(work, raw, seq, &mut trail),
            ReleasedResponse::RpcError(raw) => Ok(self
                .upstream_failure(raw, path)
                .map(|failure| self.of_task(work, Answered::Failure(failure), seq))),
            other => Err(self.no_report(other, &work.entry)),
        };
        let settled = trail.settle().await;
        settled.map_err(|AuditBlocked { reason }| blocked(path, &reason))?;
        outcome.map(|outcome| Come::Outcome(Box::new(outcome)))
    }

    /// Gives a task's server answers to its questions.
    pub(crate) async fn answer_task(
        &self,
        work: &Work,
        call: &Call,
        responses: &Value,
        cancel: CancellationSignal,
    ) -> Result<(), ErrorDocument> {
        let members = format!("\"inputResponses\":{responses}");
        let (released, ..) =
            self.ask_about(work, call, ("tasks/update", Some(&members)), cancel, None).await?;
        self.acknowledged(work, released)
    }

    /// Has a task's server end it.
    pub(crate) async fn cancel_task(
        &self,
        work: &Work,
        call: &Call,
        cancel: CancellationSignal,
    ) -> Result<(), ErrorDocument> {
        let (released, ..) = self.ask_about(work, call, ("tasks/cancel", None), cancel, None).await?;
        self.acknowledged(work, released)
    }

    /// One exchange about a task, under the permit of its call.
    async fn ask_about(
        &self,
        work: &Work,
        call: &Call,
        (method, more): (&'static str, Option<&str>),
        cancel: CancellationSignal,
        attendant: Option<&Arc<dyn Beside>>,
    ) -> Result<(ReleasedResponse, u64, Trail), ErrorDocument> {
        let (entry, path) = (&work.entry, work.entry.tool.id().short());
        if let Some(AuditBlocked { reason }) = self.log.blocked() {
            return Err(blocked(path, &reason));
        }
        if let Some(reason) = self.replicas.as_ref().and_then(|replicas| replicas.down()) {
            tracing::error!(reason, "calls are refused: the shared state cannot be reached");
            return Err(out_of_touch(path));
        }
        let mut trail = Trail::open(&self.log, work.proposal, &work.lineage);
        trail.about(&entry.tool, entry.server.trust_in(entry.tool.id()).as_str());
        let world = self.world.load();
        let capabilities = call.attendant.capabilities(&entry.server.declaration);
        let caller = Caller { session: &call.session, capabilities: &capabilities };
        let ready = match world.upstream(entry.tool.id().server()) {
            Some(upstream) => upstream.ready(&entry.server, &entry.tool, caller).await,
            None => Err(UpstreamError::Closed.into()),
        };
        let channel = ready.map_err(|error| self.unusable(&error, entry))?;
        let mut params = format!("\"taskId\":{}", json!(work.handle.for_its_server()));
        if let Some(more) = more {
            params.push(',');
            params.push_str(more);
        }
        let wire = WireCall {
            method,
            name: Some(work.handle.for_its_server()),
            params: params.as_bytes(),
            mirrored: &[],
        };
        let wants = Wants { capabilities, ..Wants::default() };
        let channel_of_call = channel.addressed(&wants);
        let admitted = self
            .boundary
            .follow(&work.continuation, &*self.world, &wire, &channel_of_call, &mut trail)
            .await
            .map_err(|denied| match denied {
                Denied::Check(check) => {
                    let message =
                        format!("the permit of the task's call no longer holds: {}", check.as_str());
                    ErrorDocument::fault(Fault::Permit, path, message).with("check", check.as_str())
                }
                Denied::Audit(AuditBlocked { reason }) => blocked(path, &reason),
            })?;
        let sealed = channel.converse(admitted, cancel, attendant).await;
        let settled = self.boundary.settle(sealed, &mut trail).await;
        let (released, seq) = settled.map_err(|AuditBlocked { reason }| blocked(path, &reason))?;
        Ok((released, seq, trail))
    }

    fn progress(
        &self,
        work: &Work,
        released: ReleasedResponse,
        seq: u64,
        trail: &mut Trail,
    ) -> Result<Progress, ErrorDocument> {
        let (entry, path) = (&work.entry, work.entry.tool.id().short());
        let raw = match released {
            ReleasedResponse::Result(raw) => raw,
            ReleasedResponse::RpcError(raw) => {
                let failure = self.upstream_failure(raw, path)?;
                if failure.code != -32602 {
                    let document = ErrorDocument::new(ErrorCode::UpstreamError, path, failure.message);
                    return Err(document.with("rpc_code", failure.code));
                }
                return Ok(self.forgotten(work, failure, seq));
            }
            other => return Err(self.no_report(other, entry)),
        };
        let spec = entry.tool.spec();
        let report = self.gauntlet.task_reported(spec, raw);
        let report = report.map_err(|error| super::gauntlet_refusal(&error, entry))?;
        let TaskReport { handle, status, message, ttl_ms, poll_interval_ms, payload } = report;
        if handle != work.handle {
            let message = "the server reported about another task";
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message));
        }
        let come = match payload {
            TaskPayload::None => Come::Nothing,
            TaskPayload::Questions(questions) => Come::Questions(questions.json().clone()),
            TaskPayload::Error(raw) => Come::Outcome(Box::new(
                self.upstream_failure(raw, path)
                    .map(|failure| self.of_task(work, Answered::Failure(failure), seq)),
            )),
            TaskPayload::Result(raw) => Come::Outcome(Box::new(self.finished(work, raw, seq, trail)?)),
        };
        Ok(Progress { status, message, ttl_ms, poll_interval_ms, come })
    }

    /// What a server of 2025-11-25 said of a task.
    fn early_progress(
        &self,
        work: &Work,
        released: ReleasedResponse,
        seq: u64,
    ) -> Result<Progress, ErrorDocument> {
        let (entry, path) = (&work.entry, work.entry.tool.id().short());
        let raw = match released {
            ReleasedResponse::Result(raw) => raw,
            ReleasedResponse::RpcError(raw) => {
                let failure = self.upstream_failure(raw, path)?;
                if failure.code != -32602 {
                    let document = ErrorDocument::new(ErrorCode::UpstreamError, path, failure.message);
                    return Err(document.with("rpc_code", failure.code));
                }
                return Ok(self.forgotten(work, failure, seq));
            }
            other => return Err(self.no_report(other, entry)),
        };
        let report = self.gauntlet.early_task_reported(entry.tool.spec(), &raw);
        let report = report.map_err(|error| super::gauntlet_refusal(&error, entry))?;
        let TaskReport { handle, status, message, ttl_ms, poll_interval_ms, .. } = report;
        if handle != work.handle {
            let message = "the server reported about another task";
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message));
        }
        let come = if status == TaskStatus::InputRequired { Come::Unasked } else { Come::Nothing };
        Ok(Progress { status, message, ttl_ms, poll_interval_ms, come })
    }

    /// A server that does not know its task any more will not know it later either.
    fn forgotten(&self, work: &Work, failure: UpstreamFailure, seq: u64) -> Progress {
        let outcome = Ok(self.of_task(work, Answered::Failure(failure), seq));
        Progress {
            status: TaskStatus::Failed,
            message: None,
            ttl_ms: None,
            poll_interval_ms: None,
            come: Come::Outcome(Box::new(outcome)),
        }
    }

    /// The one result of a task, held to what was declared; inside, why it is withheld.
    fn finished(
        &self,
        work: &Work,
        raw: RawResult,
        seq: u64,
        trail: &mut Trail,
    ) -> Result<Result<Response, ErrorDocument>, ErrorDocument> {
        let screened = work.screened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(screened) = screened else {
            let message = "the result of this task was taken before";
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, work.entry.tool.id().short(), message));
        };
        Ok(match self.finish(screened, raw, trail) {
            Ok((result, report)) => {
                let mut response = self.of_task(work, Answered::Result(result), seq);
                if let Some(report) = report {
                    response.mark["gauntlet"] = report;
                }
                Ok(response)
            }
            Err(error) => Err(self.withheld(&error, &work.entry, trail)),
        })
    }

    fn acknowledged(&self, work: &Work, released: ReleasedResponse) -> Result<(), ErrorDocument> {
        match released {
            ReleasedResponse::Result(_) => Ok(()),
            ReleasedResponse::RpcError(raw) => {
                let path = work.entry.tool.id().short();
                let failure = self.upstream_failure(raw, path)?;
                let document = ErrorDocument::new(ErrorCode::UpstreamError, path, failure.message);
                Err(document.with("rpc_code", failure.code))
            }
            other => Err(self.no_report(other, &work.entry)),
        }
    }

    fn no_report(&self, released: ReleasedResponse, entry: &ToolEntry) -> ErrorDocument {
        let path = entry.tool.id().short();
        match released {
            ReleasedResponse::Failed(failure) => self.transmit_refusal(&failure, entry),
            ReleasedResponse::Escaped => {
                entry.server.live.halt();
                let message =
                    "the server tried to leave its declared scopes; its answer is withheld and it is halted";
                ErrorDocument::fault(Fault::ScopeViolation, path, message)
            }
            ReleasedResponse::TooLarge { bytes } => {
                let message = "the server's report is larger than a result of the tool may be";
                ErrorDocument::new(ErrorCode::ResultTooLarge, path, message).with("bytes", bytes)
            }
            ReleasedResponse::Result(_) | ReleasedResponse::RpcError(_) | ReleasedResponse::PassedOn => {
                ErrorDocument::new(ErrorCode::UpstreamError, path, "no answer")
            }
        }
    }

    fn of_task(&self, work: &Work, answered: Answered, seq: u64) -> Response {
        let event = format!("{}/{seq}", self.log.id());
        Response {
            answered,
            proposal: work.proposal,
            entry: work.entry.clone(),
            upstream: work.upstream,
            mark: json!({"event": event, "proposal_id": work.proposal}),
            cache_hit: false,
        }
    }
}
