//! Whether a client may be told when a resource changes: what would let it read the resource lets it hear of it.
//!
//! A subscription takes the steps of a reading up to its approval, and stops before the permit: nothing is read, and
//! nothing of an approval is used up. What the server is asked, once for all who follow, goes under a permit of its
//! own (GOV-404); what a client then reads is decided about like any reading.

use std::sync::Arc;

use portcullis_audit::{AuditBlocked, EventName};
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_core::{ErrorCode, ProposalId};
use portcullis_governance::registry::ToolEntry;
use serde_json::json;

use super::{Call, Lifecycle, Proposal, Unknown, blocked, on_record};

/// A subscription that was decided about and is on record.
#[derive(Debug)]
pub(crate) struct Subscribable {
    pub(crate) entry: Arc<ToolEntry>,
    /// The server's own URI.
    pub(crate) uri: String,
    pub(crate) proposal: ProposalId,
}

impl Lifecycle {
    /// Decides about a subscription to the resource that `call` names.
    pub(crate) async fn subscribe(&self, call: &Call) -> Result<Subscribable, ErrorDocument> {
        let mut proposal = match self.intake(call) {
            Ok(proposal) => proposal,
            Err(Unknown { document, trail }) => return Err(on_record(document, trail).await),
        };
        match self.subscribable(call, &mut proposal).await {
            Ok(uri) => Ok(Subscribable { entry: proposal.entry.clone(), uri, proposal: proposal.id }),
            Err(document) => {
                let document = document.with("proposal_id", json!(proposal.id));
                Err(on_record(document, Some(proposal.trail)).await)
            }
        }
    }

    async fn subscribable(&self, call: &Call, proposal: &mut Proposal) -> Result<String, ErrorDocument> {
        let entry = &*proposal.entry.clone();
        let path = entry.tool.id().short();
        let (request, _) = self.canonicalise(call, entry, proposal)?;
        let values = serde_json::from_str(request.args()).unwrap_or_default();
        let uri = entry.tool.subject().uri(&values);
        let refused = match uri {
            // GOV-407
            Some(_) if !entry.server.declaration.allows_subscriptions(&entry.tool) => {
                Err(("subscribe_undeclared", "its declaration does not allow subscriptions to this resource"))
            }
            Some(_) if self.replaying.is_some() => {
                Err(("replaying", "calls are answered from a recording, in which nothing changes"))
            }
            Some(uri) => Ok(uri),
            None => Err(("not_a_resource", "only a resource can be subscribed to")),
        };
        let uri = refused.map_err(|(code, message)| {
            let data = json!({"error": ErrorCode::PolicyDenied.as_str(), "message": message, "step": 2});
            proposal.trail.note(EventName::ProposalRefused, data);
            ErrorDocument::new(ErrorCode::PolicyDenied, path, message).with("code", code)
        })?;
        let decision = self.decide(call, &request, entry, proposal)?;
        let ceiling = self.below_ceilings(call, entry, proposal)?;
        self.pass_checkpoint(call, &request, entry, proposal)?;
        self.pass_gates(call, request.args(), entry, proposal).await?;
        let evidence = self.prepare_evidence(&request, entry, &decision, proposal);
        // Dropped unused: a claim that is not spent goes back to its approval.
        drop(self.approve(call, &request, entry, (&decision, &ceiling), &evidence, proposal).await?);
        self.is_isolated(entry, proposal)?;
        proposal.trail.note(EventName::SubscriptionOpened, json!({"uri": one_line(call.target.name())}));
        let durable = proposal.trail.commit().await;
        durable.map_err(|AuditBlocked { reason }| blocked(path, &reason))?;
        Ok(uri)
    }
}
