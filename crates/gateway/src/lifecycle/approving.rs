//! Steps 5 and 6: whether somebody must approve, asking, and waiting for the word.

use std::time::Duration;

use bytes::Bytes;
use portcullis_audit::{EventName, RetentionClass, Role};
use portcullis_core::error::ErrorDocument;
use portcullis_core::{ApprovalId, ErrorCode};
use portcullis_governance::approval::{Asked, State};
use portcullis_governance::evidence::Evidence;
use portcullis_governance::notes::Determined;
use portcullis_governance::policy::{Authorised, Decision};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::request::CanonicalRequest;
use serde_json::json;

use super::ceilings::Ceiling;
use super::stopping::Passing;
use super::{Call, Lifecycle, Proposal, blocked};
use crate::edge::attendant::Shown;

/// How often a client hears that its call waits (GOV-904).
const TELLS_EACH: Duration = Duration::from_secs(5);

impl Lifecycle {
    /// Steps 5 and 6. Not needed, already met, or asked for and waited for. Operators decide in the control
    /// plane; what comes back here is a claim on what they recorded.
    pub(super) async fn approve<'r>(
        &self,
        call: &Call,
        request: &'r CanonicalRequest,
        entry: &ToolEntry,
        (decision, ceiling): (&Decision<'r>, &Ceiling),
        evidence: &Evidence,
        proposal: &mut Proposal,
    ) -> Result<Authorised<'r>, ErrorDocument> {
        // GOV-1203: a call that stops its session is asked about, whatever was granted before.
        if proposal.passing == Passing::Freely {
            if let Some(authorised) = decision.unattended().filter(|_| !ceiling.asks) {
                let not_needed = Determined { approval_id: None, outcome: "not_needed", scope: None };
                proposal.trail.note(EventName::ApprovalDetermined, not_needed);
                return Ok(authorised);
            }
            if let Some(authorised) = self.claim(request, decision, ceiling, proposal) {
                return Ok(authorised);
            }
        }
        // SURF-90: for the document of a gate what was granted counts, but nobody is asked.
        if call.is_source {
            let message = "the document of a gate may not be fetched without asking";
            return Err(ErrorDocument::new(ErrorCode::PolicyDenied, entry.tool.id().short(), message));
        }
        let id = self.ask(request, entry, (decision, ceiling), evidence, proposal).await?;
        if proposal.passing == Passing::OnceApproved {
            call.session.checkpoint_awaits(id);
        }
        match self.wait_for_decision(id, entry, call).await {
            State::Approved | State::Consumed => {}
            State::Denied => {
                let document = ErrorDocument::new(
                    ErrorCode::PolicyDenied,
                    entry.tool.id().short(),
                    "an operator denied this call",
                );
                return Err(document.with("code", "approval_denied").with("approval_id", json!(id)));
            }
            _ => return Err(self.auth_required(id, entry)),
        }
        // The world may have moved while we waited (CTX-94): same tool, same policy, or nothing.
        self.claim(request, decision, ceiling, proposal).ok_or_else(|| self.auth_required(id, entry))
    }

    fn claim<'r>(
        &self,
        request: &'r CanonicalRequest,
        decision: &Decision<'r>,
        ceiling: &Ceiling,
        proposal: &mut Proposal,
    ) -> Option<Authorised<'r>> {
        let claim = self.book.claim_within(request, ceiling.widest, self.clock.now())?;
        let (approval_id, scope) = (claim.approval_id(), claim.scope());
        let current = self.world.load();
        let authorised = current.registry().policy().approved(decision, claim)?;
        let met = Determined { approval_id: Some(approval_id), outcome: "met", scope: Some(scope) };
        proposal.trail.note(EventName::ApprovalDetermined, met);
        Some(authorised)
    }

    async fn ask(
        &self,
        request: &CanonicalRequest,
        entry: &ToolEntry,
        (decision, ceiling): (&Decision<'_>, &Ceiling),
        evidence: &Evidence,
        proposal: &mut Proposal,
    ) -> Result<ApprovalId, ErrorDocument> {
        let path = entry.tool.id().short();
        let policy = proposal.world.registry().policy().clone();
        let mut offers = policy.offers(decision);
        offers.retain(|offer| offer.scope <= ceiling.widest);
        if offers.is_empty() {
            let document =
                ErrorDocument::new(ErrorCode::PolicyDenied, path, "policy offers no approval for this call");
            return Err(document.with("code", "policy").with("reasons", json!(decision.reasons())));
        }
        let waived = self.waivers.of(&entry.server.record.server_identity);
        let presented = evidence.present(request, entry, decision, &offers, &waived);
        let _one_at_a_time = self.asking.lock().await;
        let now = self.clock.now();
        let asked = self.book.ask(request, proposal.id, offers, &policy, presented.sha256(), now);
        let outcome = |id| json!({"approval_id": id, "outcome": "required"});
        match asked {
            Asked::Joined(id) => {
                proposal.trail.note(EventName::ApprovalDetermined, outcome(Some(id)));
                proposal.trail.commit().await.map_err(|error| blocked(path, &error.reason))?;
                Ok(id)
            }
            Asked::New(approval) => {
                let id = approval.approval_id;
                proposal.trail.note(EventName::ApprovalDetermined, outcome(Some(id)));
                let view = Bytes::copy_from_slice(presented.bytes());
                proposal.trail.note_with(
                    EventName::ApprovalRequested,
                    json!({"approval": approval}),
                    [(Role::Presented, RetentionClass::Hold, view)],
                );
                // Durable first, then visible to operators (AUD-22).
                let receipt = proposal.trail.commit().await.map_err(|error| blocked(path, &error.reason))?;
                if let Some(replicas) = &self.replicas {
                    replicas.publish(receipt).await;
                }
                self.book.enter(*approval, presented.bytes());
                Ok(id)
            }
            Asked::Suppressed { until } => {
                proposal
                    .trail
                    .note(EventName::ApprovalDetermined, json!({"outcome": "suppressed", "until": until}));
                let message =
                    format!("operators denied this call three times; nobody is asked again before {until}");
                let document = ErrorDocument::new(ErrorCode::PolicyDenied, path, message);
                Err(document.with("code", "approval_suppressed"))
            }
        }
    }

    /// Waits as long as configured, or until the agent gives up. Who sits at the client is shown the way to the
    /// console meanwhile, if the client can do that (GOV-903); what it answers decides nothing.
    async fn wait_for_decision(&self, id: ApprovalId, entry: &ToolEntry, call: &Call) -> State {
        let Some(mut state) = self.book.watch(id) else { return State::Expired };
        let link = self.link_to(id);
        let shown = link.and_then(|link| call.attendant.show_the_way(entry, id, &link));
        let shown = match shown {
            // The client went away to show it and has come back: what was decided meanwhile is known at once.
            Some(Shown::ByEndingTheCall(answered)) => {
                answered.await;
                None
            }
            Some(Shown::Beside(answered)) => Some(answered),
            None => None,
        };
        let shown = async {
            if let Some(answered) = shown {
                answered.await;
            }
            std::future::pending::<State>().await
        };
        let wait = self.orders.load().approval_wait().unwrap_or(self.approval_wait);
        let mut cancel = call.cancel.clone();
        let decided = async {
            state.wait_for(|state| *state != State::Pending).await.map_or(State::Expired, |state| *state)
        };
        let telling = async {
            for nth in 1.. {
                tokio::time::sleep(TELLS_EACH).await;
                call.attendant.waits_for_an_operator(nth);
            }
            std::future::pending::<State>().await
        };
        tokio::select! {
            state = decided => state,
            state = telling => state,
            () = tokio::time::sleep(wait) => State::Pending,
            () = cancel.cancelled() => State::Pending,
            state = shown => state,
        }
    }

    /// The page where one approval is decided.
    fn link_to(&self, id: ApprovalId) -> Option<String> {
        self.console.as_ref().map(|console| format!("{console}/approvals/{id}"))
    }

    fn auth_required(&self, id: ApprovalId, entry: &ToolEntry) -> ErrorDocument {
        let expires_at = self.book.get(id).map(|approval| approval.expires_at);
        let link = self.link_to(id);
        let way = match &link {
            Some(link) => {
                format!("in the browser at {link}, or with: portcullis approve grant {id} --reason WHY")
            }
            None => format!("portcullis approve grant {id} --reason WHY"),
        };
        let message =
            format!("an operator must approve this call: {way}; then call again with equal arguments");
        let document = ErrorDocument::new(ErrorCode::AuthRequired, entry.tool.id().short(), message)
            .with("approval", "required")
            .with("approval_id", json!(id))
            .with("expires_at", json!(expires_at));
        match link {
            Some(link) => document.with("url", link),
            None => document,
        }
    }
}
