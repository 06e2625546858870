//! What a server asks its client while it works on a call takes the path of a call too (GOV-101, GOV-408): it is decided
//! about as a `ServerRequest`, has a permit of its own, and is on record before the client hears it. What the client
//! answers is on record before the server does.
//!
//! The approval of the call covers what is asked while it runs, where policy allows that: whoever approved it approved a
//! tool of a server that may ask. Where it does not, or where the call needed no approval and the question does, an
//! operator is asked about the question.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_audit::{AuditBlocked, EventName};
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::{ErrorCode, ProposalId};
use portcullis_gauntlet::Grants;
use portcullis_governance::approval::State;
use portcullis_governance::boundary::{
    CancellationSignal, Denied, Now, Outcome, ReadyChannel, ValidatedPermit, WireCall, WireFrame,
};
use portcullis_governance::notes::{Determined, Evaluated};
use portcullis_governance::policy::{Authorised, Covering, Decision, Verdict};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::session::Session;
use portcullis_upstream::Wants;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::ceilings::Ceiling;
use super::{Call, Lifecycle, Proposal, blocked, denied_by_policy, on_record};
use crate::access::Access;
use crate::edge::attendant::Attendant;
use crate::edge::questions::Question;
use crate::target::Target;

/// The call a question belongs to.
#[derive(Debug, Clone)]
pub(crate) struct During {
    session: Arc<Session>,
    client: String,
    authenticated: bool,
    grants: Grants,
    access: Arc<Access>,
    pub(crate) cancel: CancellationSignal,
    proposal: ProposalId,
    /// What was called.
    called: Arc<ToolEntry>,
    /// The approval that the call was made under.
    pub(crate) covering: Option<Covering>,
}

impl During {
    pub(crate) fn new(call: &Call, called: &Arc<ToolEntry>, proposal: ProposalId) -> Self {
        Self {
            session: call.session.clone(),
            client: call.client.clone(),
            authenticated: call.authenticated,
            grants: call.grants.clone(),
            access: call.access.clone(),
            cancel: call.cancel.clone(),
            proposal,
            called: Arc::clone(called),
            covering: None,
        }
    }

    /// The same when the call is over: nobody gives it up any more.
    pub(crate) fn outlived(self) -> Self {
        let (_canceller, never) = CancellationSignal::pair();
        Self { cancel: never, ..self }
    }
}

/// A question that may be put, once.
pub(crate) struct Permitted {
    validated: ValidatedPermit,
    proposal: Proposal,
}

/// A client is where a question goes: what leaves is kept as it is put.
struct ToClient;

impl ReadyChannel for ToClient {
    fn frame(&self, call: &WireCall<'_>) -> WireFrame {
        let params = String::from_utf8_lossy(call.params);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{{{params}}}}}"#, call.method);
        let (method, bytes) = (call.method, Bytes::from(text));
        WireFrame { id: 0, bytes, method, name: None, mirrored: Vec::new() }
    }
}

impl Lifecycle {
    /// Steps 1 to 8 for a question. When this returns a permit, its intent is durable.
    pub(crate) async fn permit_question(
        &self,
        during: &During,
        question: &Question,
        attendant: Arc<Attendant>,
    ) -> Result<Permitted, ErrorDocument> {
        let call = self.as_call(during, question, attendant)?;
        let mut proposal = match self.intake(&call) {
            Ok(proposal) => proposal,
            Err(unknown) => return Err(on_record(unknown.document, unknown.trail).await),
        };
        match self.permitted(during, &call, &mut proposal).await {
            Ok(validated) => Ok(Permitted { validated, proposal }),
            Err(document) => {
                let document = document.with("proposal_id", json!(proposal.id));
                Err(on_record(document, Some(proposal.trail)).await)
            }
        }
    }

    /// Step 10: what came of it is durable, then it counts.
    pub(crate) async fn settle_question(
        &self,
        permitted: Permitted,
        outcome: Outcome,
    ) -> Result<(), AuditBlocked> {
        let Permitted { validated, mut proposal } = permitted;
        self.boundary.settle(validated.seal(outcome), &mut proposal.trail).await.map(|_| ())
    }

    fn as_call(
        &self,
        during: &During,
        question: &Question,
        attendant: Arc<Attendant>,
    ) -> Result<Call, ErrorDocument> {
        let called = during.called.tool.id();
        let world = self.world.load();
        let kind = question.kind();
        let entry = kind.and_then(|kind| world.registry().request(called.server(), kind)).cloned();
        let arguments = RawValue::from_string(question.params.to_string()).ok();
        let (Some(entry), Some(arguments)) = (entry, arguments) else {
            let message = "the server may not ask this any more";
            return Err(ErrorDocument::fault(Fault::NotAccepted, called.short(), message));
        };
        let message = json!({"method": question.method, "params": question.params}).to_string();
        Ok(Call {
            session: during.session.clone(),
            client: during.client.clone(),
            authenticated: during.authenticated,
            grants: Grants::Declared,
            groups: self.groups_of(during.session.principal()),
            access: during.access.clone(),
            message: Bytes::from(message),
            target: Target::Resolved {
                id: entry.tool.id().short().to_owned(),
                entry,
                arguments: Some(arguments),
            },
            arguments: None,
            repairs: Vec::new(),
            parent: Some(during.proposal),
            after_questions: false,
            wants: Wants::default(),
            is_source: false,
            attendant,
            cancel: during.cancel.clone(),
        })
    }

    async fn permitted(
        &self,
        during: &During,
        call: &Call,
        proposal: &mut Proposal,
    ) -> Result<ValidatedPermit, ErrorDocument> {
        let entry = &*proposal.entry.clone();
        let path = entry.tool.id().short();
        self.is_in_touch(entry, proposal)?;
        self.may_still_call(during, entry, proposal)?;
        let (request, _) = self.canonicalise(call, entry, proposal)?;
        let decision = self.evaluate(call, &request, entry, proposal);
        let covered = self.cover(during, &decision, proposal);
        let word = if covered.is_some() { "covered" } else { decision.verdict().as_str() };
        proposal
            .trail
            .note(EventName::PolicyEvaluated, Evaluated { decision: word, reasons: decision.reasons() });
        if decision.verdict() == Verdict::Denied {
            return Err(denied_by_policy(&decision, entry));
        }
        let evidence = self.prepare_evidence(&request, entry, &decision, proposal);
        let authorised = match covered {
            Some((approval_id, authorised)) => {
                let met = Determined { approval_id: Some(approval_id), outcome: "covered", scope: None };
                proposal.trail.note(EventName::ApprovalDetermined, met);
                authorised
            }
            None => {
                let ceiling = Ceiling::none();
                self.approve(call, &request, entry, (&decision, &ceiling), &evidence, proposal).await?
            }
        };
        let permit = self.issue(authorised, entry, call, proposal);
        self.take_use(&permit, entry, proposal).await?;
        let now = Now { registry: &*self.world, session: &call.session, lineage: &proposal.lineage };
        let message = call.message.clone();
        let admitted = self.boundary.admit(permit, request, &ToClient, now, message, &mut proposal.trail);
        admitted.await.map_err(|denied| match denied {
            Denied::Check(check) => {
                let message = format!("permit check failed: {}", check.as_str());
                ErrorDocument::fault(Fault::Permit, path, message).with("check", check.as_str())
            }
            Denied::Audit(AuditBlocked { reason }) => blocked(path, &reason),
        })
    }

    /// GNT-C12: an agent that may not make the call any more is not asked for it either.
    fn may_still_call(
        &self,
        during: &During,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(), ErrorDocument> {
        let granted = during.access.granted(during.session.principal());
        if granted == during.grants {
            return Ok(());
        }
        let message = "what the agent may do has changed since its call was made";
        let document = ErrorDocument::new(ErrorCode::PermissionDenied, entry.tool.id().short(), message);
        let data = json!({"error": document.error.as_str(), "message": message, "step": 2});
        proposal.trail.note(EventName::ProposalRefused, data);
        Err(document)
    }

    /// The authorisation that the call's own approval gives, as long as that approval has not been taken back.
    fn cover<'r>(
        &self,
        during: &During,
        decision: &Decision<'r>,
        proposal: &Proposal,
    ) -> Option<(portcullis_core::ApprovalId, Authorised<'r>)> {
        let covering = during.covering.as_ref().filter(|_| decision.verdict() == Verdict::NeedsApproval)?;
        let id = covering.approval_id();
        let state = self.book.get(id).map(|approval| approval.state);
        // The one use of an approval for one call is this call's.
        let stands = matches!(state, Some(State::Approved | State::Consumed));
        let policy = proposal.world.registry().policy();
        stands.then(|| policy.covered(decision, covering)).flatten().map(|authorised| (id, authorised))
    }
}

/// What the client said, as evidence.
pub(crate) fn answered(answer: &Value) -> Outcome {
    Outcome::Result(Bytes::from(answer.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_question_is_what_is_put() {
        // AUD-40
        let call = WireCall { method: "roots/list", name: None, params: br#""a":1"#, mirrored: &[] };
        let frame = ToClient.frame(&call);
        assert_eq!(&frame.bytes[..], br#"{"jsonrpc":"2.0","method":"roots/list","params":{"a":1}}"#);
    }
}
