//! What comes after a call that was answered with a task (PRO §3).
//!
//! The call is over and settled; its permit lives on in a [`Continuation`], to which everything belongs that its server is
//! asked about the task. A result that comes in the end takes the way of any result: recorded, validated, cleaned.

use std::sync::{Arc, Mutex, PoisonError};

use portcullis_audit::AuditBlocked;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::{ErrorCode, Lineage, ProposalId};
use portcullis_gauntlet::{Screened, TaskHandle, TaskPayload, TaskReport, TaskStatus};
use portcullis_governance::boundary::{CancellationSignal, Continuation, Denied, ReleasedResponse, WireCall};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::trail::Trail;
use portcullis_upstream::{Era, UpstreamError, Wants};
use serde_json::{Value, json};

use super::{Answered, Call, Lifecycle, Proposal, Response, blocked, out_of_touch};
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
    /// Questions, safe to show.
    Questions(bytes::Bytes),
    /// The outcome of the call, or why it is withheld.
    Outcome(Box<Result<Response, ErrorDocument>>),
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
        let (released, seq, mut trail) = self.ask_about(work, call, "tasks/get", None, cancel).await?;
        let progress = self.progress(work, released, seq, &mut trail);
        // What was noted of it is on record before it is shown.
        let settled = trail.settle().await;
        settled.map_err(|AuditBlocked { reason }| blocked(work.entry.tool.id().short(), &reason))?;
        progress
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
        let (released, ..) = self.ask_about(work, call, "tasks/update", Some(&members), cancel).await?;
        self.acknowledged(work, released)
    }

    /// Has a task's server end it.
    pub(crate) async fn cancel_task(
        &self,
        work: &Work,
        call: &Call,
        cancel: CancellationSignal,
    ) -> Result<(), ErrorDocument> {
        let (released, ..) = self.ask_about(work, call, "tasks/cancel", None, cancel).await?;
        self.acknowledged(work, released)
    }

    /// One exchange about a task, under the permit of its call.
    async fn ask_about(
        &self,
        work: &Work,
        call: &Call,
        method: &'static str,
        more: Option<&str>,
        cancel: CancellationSignal,
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
        let sealed = channel.converse(admitted, cancel, None).await;
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
                // A server that does not know its task any more will not know it later either.
                let outcome = Ok(self.of_task(work, Answered::Failure(failure), seq));
                return Ok(Progress {
                    status: TaskStatus::Failed,
                    message: None,
                    ttl_ms: None,
                    poll_interval_ms: None,
                    come: Come::Outcome(Box::new(outcome)),
                });
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
            TaskPayload::Result(raw) => {
                let screened = work.screened.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(screened) = screened else {
                    let message = "the result of this task was taken before";
                    return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message));
                };
                let finished = self.finish(screened, raw, trail);
                Come::Outcome(Box::new(match finished {
                    Ok((result, report)) => {
                        let mut response = self.of_task(work, Answered::Result(result), seq);
                        if let Some(report) = report {
                            response.mark["gauntlet"] = report;
                        }
                        Ok(response)
                    }
                    Err(error) => Err(self.withheld(&error, entry, trail)),
                }))
            }
        };
        Ok(Progress { status, message, ttl_ms, poll_interval_ms, come })
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
            upstream: Era::Modern,
            mark: json!({"event": event, "proposal_id": work.proposal}),
            cache_hit: false,
        }
    }
}
