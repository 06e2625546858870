//! A call made within its limits, and again where it cannot have had an effect (CTX-91, CTX-93).

use portcullis_audit::{Event, EventName};
use portcullis_core::Actor;
use portcullis_core::error::{ErrorDocument, Fault, one_line};
use serde_json::json;

use super::{Answer, Edge};
use crate::lifecycle::{Call, Response};

impl Edge {
    /// Whether the limits leave room for a call. A refusal is on record before it is told.
    pub(super) fn within_limits(&self, call: &Call) -> Result<(), ErrorDocument> {
        let world = self.world.load();
        let name = call.target.name();
        let found = call.target.find(world.registry());
        let tool = found.as_ref().map_or(name, |found| found.entry.tool.id().short());
        let now = self.lifecycle.clock.uptime();
        let admitted = self.controls.admit(call.session.principal(), call.session.id(), tool, now);
        admitted.inspect_err(|document| {
            let data = json!({
                "error": document.error.as_str(), "name": one_line(name), "scope": document.details["scope"], "step": 0,
            });
            let actor = Actor::from(call.session.principal());
            let event = Event::new(EventName::ProposalRefused, &actor).session(call.session.id());
            let _ = self.lifecycle.log.append(vec![event.data(data)]);
        })
    }

    /// Counts what a model will read of an answer.
    pub(super) fn count_shown(&self, call: &Call, answer: &Answer) {
        if let Answer::Result(result) = answer {
            let now = self.lifecycle.clock.uptime();
            self.controls.shown(call.session.principal(), call.session.id(), result, now);
        }
    }

    /// One call, attempted as often as is configured: again only where nothing was sent, or where the tool is declared
    /// idempotent. Each attempt is a proposal of its own, with its own permit and intent, and names the one before.
    pub(super) async fn attempted(&self, call: &Call) -> Result<Response, ErrorDocument> {
        let mut call = call.clone();
        for attempt in 1.. {
            let response = self.lifecycle.call(call.clone()).await;
            let Err(document) = &response else { return response };
            let may_succeed = document.retryable
                && matches!(document.governed_fault(), Some(Fault::Unavailable | Fault::Timeout));
            let Some(wait) = self.controls.again_after(attempt).filter(|_| may_succeed) else {
                return response;
            };
            let previous = document.details.get("proposal_id").and_then(|id| id.as_str()?.parse().ok());
            call.parent = previous.or(call.parent);
            let mut cancel = call.cancel.clone();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = cancel.cancelled() => return response,
            }
        }
        unreachable!("there is a last attempt")
    }
}
