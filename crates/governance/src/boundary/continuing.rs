//! What comes after a call that was answered with a task: asking about it, answering its questions, ending it.
//!
//! None of it is a call of its own. It belongs to the permit of the call, which stays on the list of live permits until
//! the task is forgotten, and is revoked with it (PRO §3). Each exchange is on record before it leaves and again before its
//! answer is opened, like the call itself.

use portcullis_audit::{AuditBlocked, EventName, Role};
use portcullis_core::PermitId;
use serde_json::json;

use super::{
    Boundary, Check, Denied, Facts, IntentReceipt, Outcome, ReadyChannel, ReleasedResponse, SealedResponse,
    TransmitFailure, ValidatedPermit, WireCall,
};
use crate::registry::{ActiveRegistry, Registry};
use crate::trail::Trail;

/// The permit of a call that was sent, as far as its task needs it. Only a response has one.
///
/// ```compile_fail,E0451
/// use portcullis_governance::boundary::{Continuation, SealedResponse};
/// fn forge(sealed: &SealedResponse) -> Continuation {
///     Continuation { facts: todo!() }
/// }
/// ```
#[derive(Debug)]
pub struct Continuation {
    facts: Facts,
}

impl Continuation {
    /// The permit everything belongs to.
    pub fn permit_id(&self) -> PermitId {
        self.facts.permit_id
    }
}

impl SealedResponse {
    /// What a task needs to go on, should the response turn out to be one.
    pub fn continuation(&self) -> Continuation {
        Continuation { facts: self.facts.clone() }
    }
}

impl Boundary {
    /// Lets one question about a task pass, if what the call was permitted under still holds; the intent is durable when
    /// this returns. Time is not among it: a task may take longer than any permit lives.
    pub async fn follow(
        &self,
        continuation: &Continuation,
        registry: &dyn ActiveRegistry,
        call: &WireCall<'_>,
        channel: &dyn ReadyChannel,
        trail: &mut Trail,
    ) -> Result<ValidatedPermit, Denied> {
        let facts = Facts { follows: Some(call.method), ..continuation.facts.clone() };
        let permit_id = facts.permit_id;
        let deny = async |check: Check, trail: &mut Trail| {
            let data = json!({"check": check.as_str(), "method": call.method, "permit_id": permit_id});
            trail.note(EventName::ExecutionTaskRequest, data);
            trail.commit().await?;
            Err(Denied::Check(check))
        };
        if let Err(check) = still_holds(&facts, &registry.current()) {
            return deny(check, trail).await;
        }
        let frame = channel.frame(call);
        let data = json!({"method": call.method, "permit_id": permit_id});
        trail.note_with(
            EventName::ExecutionTaskRequest,
            data,
            [(Role::Request, facts.class, frame.bytes.clone())],
        );
        let receipt = trail.commit().await?;
        if let Err(check) = still_holds(&facts, &registry.current()) {
            return deny(check, trail).await;
        }
        Ok(ValidatedPermit { facts, frame, _intent: IntentReceipt { _receipt: receipt } })
    }

    /// The answer to such a question is durable, then it is released.
    pub(super) async fn settle_followed(
        &self,
        sealed: SealedResponse,
        method: &'static str,
        trail: &mut Trail,
    ) -> Result<(ReleasedResponse, u64), AuditBlocked> {
        let SealedResponse { facts, outcome } = sealed;
        let (said, evidence) = match &outcome {
            Outcome::Result(raw) => ("result", Some(raw.clone())),
            Outcome::RpcError(raw) => ("rpc_error", Some(raw.clone())),
            Outcome::TooLarge { prefix, .. } => ("too_large", Some(prefix.clone())),
            Outcome::Escaped { answer, .. } => ("scope_violation", answer.clone()),
            Outcome::PassedOn => ("passed_on", None),
            Outcome::Failed(TransmitFailure::Timeout) => ("timeout", None),
            Outcome::Failed(TransmitFailure::Protocol { .. }) => ("protocol_error", None),
            Outcome::Failed(TransmitFailure::Unavailable { .. }) => ("unavailable", None),
            Outcome::Failed(TransmitFailure::Cancelled) => ("cancelled", None),
        };
        let data = json!({"method": method, "outcome": said, "permit_id": facts.permit_id});
        let evidence = evidence.map(|bytes| (Role::Response, facts.class, bytes));
        trail.note_with(EventName::ExecutionTaskAnswer, data, evidence);
        let receipt = trail.commit().await?;
        Ok((outcome.released(), receipt.seq))
    }
}

/// Whether nothing has happened since that would have kept the call from being sent.
fn still_holds(facts: &Facts, registry: &Registry) -> Result<(), Check> {
    if facts.fate.is_revoked() {
        return Err(Check::Expiry);
    }
    let tool = &facts.tool;
    let server = registry.owner(tool).ok_or(Check::ToolIdentity)?;
    let trusted = server.is_active()
        && server.live.reset_epoch() == facts.trust.server_reset_epoch
        && server.live.tool_reset_epoch(tool.id()) == facts.trust.tool_reset_epoch
        && server.trust_in(tool.id()) >= facts.trust.min_state;
    if trusted { Ok(()) } else { Err(Check::Trust) }
}
