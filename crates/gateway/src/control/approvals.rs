//! Approvals, decided by operators (GOV §9).

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{ApprovalId, ErrorCode, failpoint};
use portcullis_governance::approval::{Approval, DecisionRefused, Scope, State};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

impl Control {
    /// All approvals, oldest first.
    pub fn approvals(&self, state: Option<State>) -> Vec<Approval> {
        self.book.list(state)
    }

    /// Tells that approvals were asked for, decided, used or ended.
    pub fn approval_changes(&self) -> tokio::sync::watch::Receiver<()> {
        self.book.changes()
    }

    /// The approvals of a server that would end with it.
    pub fn approvals_of(&self, server: &portcullis_core::ServerIdentity) -> Vec<ApprovalId> {
        let world = self.world();
        let entry = world.registry().server(server);
        entry.map(|entry| self.book.of_server(server, entry.epoch())).unwrap_or_default()
    }

    /// One approval.
    pub fn approval(&self, id: ApprovalId) -> Result<Approval, ControlError> {
        self.book.get(id).ok_or_else(|| refused(DecisionRefused::Unknown(id)))
    }

    /// What operators are shown of one before they decide.
    pub fn presented(&self, id: ApprovalId) -> Result<serde_json::Value, ControlError> {
        let bytes = self.book.presented(id).ok_or_else(|| refused(DecisionRefused::Unknown(id)))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Grants one. What waits for it goes on once the decision is durable.
    pub async fn grant(
        &self,
        operator: &OperatorProof,
        id: ApprovalId,
        scope: Scope,
        reason: &str,
    ) -> Result<Approval, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        // GOV-905: a quorum is people, not names.
        let approval = self.approval(id)?;
        let same = approval
            .decisions
            .iter()
            .map(|decision| decision.by.as_str())
            .find(|by| *by != operator.name() && !self.are_two(by, operator.name()));
        if let Some(by) = same {
            let message = format!(
                "you count as {by}, who agreed already: one of you enrolled the other; see users_vouch"
            );
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let decided = self.book.grant(id, scope, operator, reason, self.clock.now()).map_err(refused)?;
        self.record(operator, decided).await
    }

    /// Denies one. The call that waits for it is refused.
    pub async fn deny(
        &self,
        operator: &OperatorProof,
        id: ApprovalId,
        reason: &str,
    ) -> Result<Approval, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let decided = self.book.deny(id, operator, reason, self.clock.now()).map_err(refused)?;
        self.record(operator, decided).await
    }

    /// Takes a grant back. Permits that were issued under it die; what is under way is flagged by its result.
    pub async fn revoke(
        &self,
        operator: &OperatorProof,
        id: ApprovalId,
        reason: &str,
    ) -> Result<Approval, ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let mut approval = self.book.grant_in_force(id).map_err(refused)?;
        let data = json!({"approval_id": id, "reason": one_line(reason)});
        let mut events = vec![Event::new(EventName::ApprovalRevoked, &operator.actor()).data(data)];
        events.extend(approval.envelope().map(|envelope| {
            let data = json!({"envelope_id": envelope.envelope_id, "reason": "revoked"});
            Event::new(EventName::EnvelopeInvalidated, &operator.actor()).data(data)
        }));
        self.commit(operator, events).await?;
        self.book.end(&[id], State::Revoked);
        approval.state = State::Revoked;
        Ok(approval)
    }

    /// Takes a request back that the operator itself made.
    pub async fn withdraw(&self, operator: &OperatorProof, id: ApprovalId) -> Result<Approval, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let mut approval = self.approval(id)?;
        // Whose it is not, it is not there for.
        if !self.asked_by(&approval, operator) {
            return Err(refused(DecisionRefused::Unknown(id)));
        }
        if approval.state != State::Pending {
            return Err(refused(DecisionRefused::NotPending { id, state: approval.state }));
        }
        let data = json!({"approval_id": id, "reason": "withdrawn"});
        self.commit(operator, vec![Event::new(EventName::ApprovalWithdrawn, &operator.actor()).data(data)])
            .await?;
        self.book.end(&[id], State::Withdrawn);
        approval.state = State::Withdrawn;
        Ok(approval)
    }

    /// Step 6: bound to the tool id with its declaration version, durable before it counts.
    async fn record(&self, operator: &OperatorProof, decided: Approval) -> Result<Approval, ControlError> {
        let last = decided.decisions.last();
        let data = json!({
            "approval_id": decided.approval_id,
            "by": operator.name(),
            "decision": decided.state,
            "expires_at": decided.expires_at,
            "method": operator.method(),
            "presented_sha256": decided.presented_sha256,
            "reason": last.map(|decision| &decision.reason),
            "scope": decided.scope,
            "separation": operator.separation(),
            "uses": decided.uses_left,
        });
        let event = Event::new(EventName::ApprovalRecorded, &operator.actor())
            .session(decided.session)
            .proposal(decided.proposal_id)
            .tool(&decided.tool_id)
            .epoch(decided.registration_epoch)
            .policy(decided.policy_version)
            .data(data);
        failpoint::pass("approval.before_record");
        let mut events = vec![event];
        // GOV-1201: a wide approval has a record of what it covers.
        events.extend(decided.envelope().filter(|_| decided.state == State::Approved).map(|envelope| {
            Event::new(EventName::EnvelopeCreated, &operator.actor())
                .session(decided.session)
                .tool(&decided.tool_id)
                .epoch(decided.registration_epoch)
                .data(json!({"envelope": envelope}))
        }));
        // GOV-1203: approving the call that stopped a session lets the session go on, before the call does.
        let (stopped, resolutions) = match decided.state {
            State::Approved => self.stopped_until(operator, decided.approval_id),
            _ => Default::default(),
        };
        events.extend(resolutions);
        self.commit(operator, events).await?;
        for session in stopped {
            session.resolve_checkpoint();
        }
        self.book.apply(decided.clone());
        Ok(decided)
    }
}

fn refused(error: DecisionRefused) -> ControlError {
    let (code, field) = match &error {
        DecisionRefused::Unknown(_) => (ErrorCode::NotFound, None),
        DecisionRefused::NotPending { .. }
        | DecisionRefused::NotGranted { .. }
        | DecisionRefused::SamePerson(_)
        | DecisionRefused::OwnRequest(_) => (ErrorCode::Conflict, None),
        DecisionRefused::NotOffered { .. } => (ErrorCode::Validation, Some("scope")),
        DecisionRefused::NoReason => (ErrorCode::Validation, Some("reason")),
    };
    ControlError { field: field.map(Into::into), ..ControlError::new(code, error.to_string()) }
}
