//! Answers that are given again, on their way through the lifecycle (CTX-92).
//!
//! Policy was asked, and checkpoint and gates were passed, as for any call. What needs an approval is never among them:
//! an approval is for a call that is made.

use portcullis_audit::{AuditBlocked, EventName};
use portcullis_core::error::ErrorDocument;
use portcullis_governance::policy::{Decision, Verdict};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::request::{CanonicalRequest, Fingerprint};
use serde_json::json;

use super::{Answered, Call, Lifecycle, Proposal, Response, blocked};
use crate::remembered::Kept;

impl Lifecycle {
    /// Whether the answer to a call may be one that was given before, or be given again.
    pub(super) fn remembers(&self, call: &Call, entry: &ToolEntry, decision: &Decision<'_>) -> bool {
        self.remembered.concerns(entry)
            && decision.verdict() == Verdict::Unattended
            && !call.after_questions
            && !call.is_source
            && self.replaying.is_none()
    }

    /// The answer that was given before, if there is one. That it is given again is on record first.
    pub(super) async fn answer_again(
        &self,
        request: &CanonicalRequest,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<Option<Response>, ErrorDocument> {
        let (epoch, now) = (entry.tool.epoch(), self.clock.uptime());
        let Some(Kept { result, era, event }) = self.remembered.answer_to(request.fingerprint(), epoch, now)
        else {
            return Ok(None);
        };
        proposal
            .trail
            .note(EventName::ResultCacheHit, json!({"event": event, "request_sha256": request.sha256()}));
        proposal
            .trail
            .commit()
            .await
            .map_err(|AuditBlocked { reason }| blocked(entry.tool.id().short(), &reason))?;
        Ok(Some(Response {
            answered: Answered::Result(result),
            proposal: proposal.id,
            entry: proposal.entry.clone(),
            upstream: era,
            mark: json!({"cache_hit": true, "event": event, "proposal_id": proposal.id}),
            cache_hit: true,
        }))
    }

    /// Keeps an answer for the next who asks the same.
    pub(super) fn remember(&self, request: Fingerprint, response: &Response, entry: &ToolEntry) {
        let (Answered::Result(result), Some(event)) = (&response.answered, response.mark["event"].as_str())
        else {
            return;
        };
        let kept = Kept { result: result.clone(), era: response.upstream, event: event.to_owned() };
        self.remembered.keep(request, entry.tool.epoch(), kept, self.clock.uptime());
    }
}
