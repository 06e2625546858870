//! A call made within its limits, and again where it cannot have had an effect (CTX-91, CTX-93).

use std::borrow::Cow;

use portcullis_audit::{Event, EventName};
use portcullis_core::Actor;
use portcullis_core::error::{ErrorDocument, Fault, one_line};
use portcullis_governance::session::Session;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Answer, Edge};
use crate::lifecycle::{Call, Response};
use crate::shaping::journal::{Came, Entry, without_secrets};

impl Edge {
    /// Whether the limits leave room for a call. A refusal is on record before it is told.
    pub(super) fn within_limits(&self, call: &Call) -> Result<(), ErrorDocument> {
        let world = self.world.load();
        let name = call.target.name();
        let found = call.target.find(world.registry());
        let tool = found.as_ref().map_or(name, |found| found.entry.tool.id().short());
        self.admitted(&call.session, name, tool)
    }

    /// Whether the limits leave room for something that is called `name` and counted as `tool`: tools of our own are
    /// counted under their names.
    pub(super) fn admitted(&self, session: &Session, name: &str, tool: &str) -> Result<(), ErrorDocument> {
        let now = self.lifecycle.clock.uptime();
        let admitted = self.controls.admit(session.principal(), session.id(), tool, now);
        admitted.inspect_err(|document| {
            let data = json!({
                "error": document.error.as_str(), "name": one_line(name), "scope": document.details["scope"], "step": 0,
            });
            let actor = Actor::from(session.principal());
            let event = Event::new(EventName::ProposalRefused, &actor).session(session.id());
            let _ = self.lifecycle.log.append(vec![event.data(data)]);
        })
    }

    /// Counts what a model will read of an answer.
    pub(super) fn count_shown(&self, session: &Session, answer: &Answer) {
        if let Answer::Result(result) = answer {
            let now = self.lifecycle.clock.uptime();
            self.controls.shown(session.principal(), session.id(), result, now);
        }
    }

    /// Writes a call and what was shown of it into its session's file, where an operator wants that (CTX-52).
    pub(super) fn write_down(&self, call: &Call, answer: &Answer) {
        let Some(journal) = self.shaping.journal() else { return };
        let arguments = call.arguments.as_deref().map(RawValue::get);
        journal.note(Entry {
            session: call.session.id(),
            at: self.lifecycle.clock.now(),
            name: call.target.name().to_owned(),
            arguments: without_secrets(arguments, &self.gauntlet),
            came: match answer {
                Answer::Result(result) => Came::Result(result.clone()),
                Answer::Error { message, .. } => Came::Error(message.clone()),
            },
        });
    }

    /// One call, attempted as often as is configured: again only where nothing was sent, or where the tool is declared
    /// idempotent. Each attempt is a proposal of its own, with its own permit and intent, and names the one before.
    pub(super) async fn attempted(&self, call: &Call) -> Result<Response, ErrorDocument> {
        let mut call = Cow::Borrowed(call);
        for attempt in 1.. {
            let response = self.lifecycle.call(&call).await;
            let Err(document) = &response else { return response };
            let may_succeed = document.retryable
                && matches!(document.governed_fault(), Some(Fault::Unavailable | Fault::Timeout));
            let Some(wait) = self.controls.again_after(attempt).filter(|_| may_succeed) else {
                return response;
            };
            let previous = document.details.get("proposal_id").and_then(|id| id.as_str()?.parse().ok());
            let call = call.to_mut();
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
