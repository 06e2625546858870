//! What a server said, made safe to show: results, errors of its own, and what a transport quotes of it (GNT-O4).

use bytes::Bytes;
use portcullis_audit::EventName;
use portcullis_core::ErrorCode;
use portcullis_core::error::{ErrorDocument, Fault, one_line};
use portcullis_gauntlet::sanitise::UNICODE_VERSION;
use portcullis_gauntlet::{Clean, GauntletError, Raw, RawResult, ResultType, SafeResult, Screened};
use portcullis_governance::boundary::TransmitFailure;
use portcullis_governance::declaration::Idempotency;
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::trail::Trail;
use serde_json::{Value, json};

use crate::lifecycle::{Answered, Lifecycle, UpstreamFailure};
use crate::long_work::off_the_async_threads;

impl Lifecycle {
    /// The gauntlet's second half. Gives also what is told about it, if anything was changed beyond escaping; the
    /// same goes on record.
    pub(crate) fn finish(
        &self,
        screened: Screened,
        raw: RawResult,
        trail: &mut Trail,
    ) -> Result<(SafeResult, Option<Value>), GauntletError> {
        let tool = screened.spec().tool.clone();
        let result = off_the_async_threads(raw.len(), || self.gauntlet.finish(screened, raw))?;
        if result.result_type() == ResultType::Task {
            return Err(GauntletError::Shape { tool, reason: "a result that is a task is not handled" });
        }
        let changed = result.report().changed() || result.dropped_structured();
        let report = changed.then(|| {
            let mut report = result.report().document(result.escape());
            if result.dropped_structured() {
                report["dropped_structured"] = json!(true);
            }
            let mut data = report.clone();
            data["unicode"] = json!(UNICODE_VERSION);
            trail.note(EventName::ExecutionSanitised, data);
            report
        });
        Ok((result, report))
    }

    /// One line of our words and a server's, safe to show.
    pub(crate) fn cleaned_line(&self, text: &str) -> String {
        one_line(self.gauntlet.clean_error(Raw::new(text)).get())
    }

    /// What a server's own error comes to: pages to be visited first, or a failure (PRO-70).
    pub(crate) fn upstream_words(&self, raw: Raw<Bytes>, path: &str) -> Result<Answered, ErrorDocument> {
        match self.gauntlet.pages_wanted(&raw) {
            Some(Ok(wanted)) => Ok(Answered::PagesWanted(wanted)),
            Some(Err(reason)) => {
                let message = format!("the server wants pages visited first, and {reason}");
                Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message))
            }
            None => self.upstream_failure(raw, path).map(Answered::Failure),
        }
    }

    /// A server's own JSON-RPC error. Its code passes (PRO-70) unless it would forge one of ours (GOV-1601).
    pub(crate) fn upstream_failure(
        &self,
        raw: Raw<Bytes>,
        path: &str,
    ) -> Result<UpstreamFailure, ErrorDocument> {
        let words = self.gauntlet.clean_rpc_error(raw);
        let Some((words, code)) =
            words.and_then(|words| i32::try_from(words.code).ok().map(|code| (words, code)))
        else {
            let message = "the server answered with a malformed error";
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message));
        };
        let message = words.message.into_inner();
        if (-31099..=-31000).contains(&code) {
            let message = format!("the server answered: {message}");
            return Err(ErrorDocument::new(ErrorCode::UpstreamError, path, message).with("recoded", true));
        }
        Ok(UpstreamFailure { code, message, data: words.data.map(Clean::into_inner) })
    }

    /// There is no answer. What the transport says about it may quote the server (GNT-Z13).
    pub(crate) fn transmit_refusal(&self, failure: &TransmitFailure, entry: &ToolEntry) -> ErrorDocument {
        let path = entry.tool.id().short();
        let name = entry.tool.id().item().name();
        match failure {
            TransmitFailure::Timeout => {
                let message =
                    format!("tool '{name}' did not answer in {} s", entry.tool.timeout().as_secs_f32());
                let idempotent = entry.tool.idempotency() == Idempotency::Idempotent;
                ErrorDocument::fault(Fault::Timeout, path, message)
                    .with("executed", "unknown")
                    .retryable(idempotent)
            }
            TransmitFailure::Unavailable { reason, sent } => {
                let executed = if *sent { "unknown" } else { "no" };
                ErrorDocument::fault(Fault::Unavailable, path, self.cleaned_line(reason))
                    .with("executed", executed)
                    .retryable(!sent)
            }
            TransmitFailure::Protocol { reason } => {
                ErrorDocument::new(ErrorCode::UpstreamError, path, self.cleaned_line(reason))
            }
            TransmitFailure::Cancelled => {
                ErrorDocument::new(ErrorCode::Cancelled, path, "the call was cancelled")
                    .with("executed", "unknown")
            }
        }
    }
}
