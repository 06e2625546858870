//! Approvals, and what operators are shown before they decide.

use std::sync::Arc;

use portcullis_core::{ApprovalId, Clock as _, Sha256Digest, SystemClock};
use portcullis_gateway::Control;
use portcullis_governance::approval::{Approval, OperatorDecision, Scope, State};
use portcullis_governance::policy::Offer;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::Invoker;
use crate::deferred::Operation;
use crate::error::AdminError;
use crate::grant::Op;

/// How much a call could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RiskLevel {
    /// Reads.
    Low,
    /// Writes what may be written twice.
    Medium,
    /// Writes, or cannot be classified.
    High,
    /// Executes.
    Critical,
}

impl RiskLevel {
    /// By what the tool was accepted to do, as it is presented to the operator.
    fn of(presented: &Value) -> Self {
        let classes: Vec<&str> =
            presented["classes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let is = |class: &str| classes.contains(&class);
        let repeatable = presented["idempotency"] == "idempotent";
        match () {
            () if is("execute") => RiskLevel::Critical,
            () if !classes.is_empty() && classes.iter().all(|class| *class == "read") => RiskLevel::Low,
            () if repeatable && !is("other") => RiskLevel::Medium,
            () => RiskLevel::High,
        }
    }
}

/// An approval.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalRecord {
    /// Its id.
    pub approval_id: String,
    /// Where in its life it is.
    pub status: String,
    /// What would be called.
    pub tool: String,
    /// What that does to the world.
    pub action_type: String,
    /// How much it could do.
    pub risk_level: RiskLevel,
    /// Who asked for the call.
    pub requested_by: String,
    /// When.
    pub requested_at: String,
    /// Which request.
    pub fingerprint: String,
    /// How far it reaches, once somebody chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Who decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided_by: Vec<String>,
    /// Until when it waits or holds.
    pub expires_at: String,
    /// What was decided so far, and by whom.
    pub decisions: Vec<DecisionRecord>,
    /// The digest of what is shown, which a decision repeats.
    pub presented_sha256: String,
    /// The call that is asked for, unless it is an admin operation.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub call: Option<AskedCall>,
    /// What an admin operation answered that a second operator agreed to (ADM-54).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
}

/// The call that an approval is about.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AskedCall {
    /// The call that asked first.
    pub proposal_id: String,
    /// In which session.
    pub session_id: String,
    /// Of which life of its server.
    pub registration_epoch: String,
    /// Under which policy.
    pub policy_version: String,
    /// By which rules its arguments were brought into one form.
    pub canon_version: String,
    /// What an operator may choose.
    pub offers: Vec<OfferRecord>,
    /// How often it can still be used.
    pub uses_left: u64,
}

/// A scope that an operator may choose.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct OfferRecord {
    /// Which.
    pub scope: String,
    /// How many operators it takes.
    pub quorum: u32,
}

impl OfferRecord {
    pub(crate) fn of(offer: &Offer) -> Self {
        Self { scope: offer.scope.as_str().to_owned(), quorum: offer.quorum }
    }
}

impl AskedCall {
    pub(crate) fn of(approval: &Approval) -> Self {
        Self {
            proposal_id: approval.proposal_id.to_string(),
            session_id: approval.session.to_string(),
            registration_epoch: approval.registration_epoch.to_string(),
            policy_version: approval.policy_version.to_string(),
            canon_version: approval.canon_version.clone(),
            offers: approval.offers.iter().map(OfferRecord::of).collect(),
            uses_left: approval.uses_left,
        }
    }
}

/// One operator's decision.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DecisionRecord {
    /// Who.
    pub by: String,
    /// How that was proved.
    pub method: String,
    /// When.
    pub at: String,
    /// Why.
    pub reason: String,
    /// Whether agents could be the same user (GOV-105).
    pub separation: String,
}

/// An approval with exactly what must be shown before it is decided (GOV-902).
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ApprovalDetail {
    /// The row of the list.
    #[serde(flatten)]
    pub approval: ApprovalRecord,
    /// What is shown.
    pub presented: Value,
    /// The scopes that can be chosen.
    pub scopes: Vec<String>,
}

/// Approvals.
#[derive(Debug, Clone)]
pub struct ApprovalService {
    control: Arc<Control>,
    invoker: Invoker,
}

impl ApprovalService {
    pub(crate) fn new(invoker: Invoker) -> Self {
        Self { control: invoker.control.clone(), invoker }
    }

    /// All of them, by id.
    pub fn list(&self, state: Option<State>) -> Vec<ApprovalRecord> {
        let mut approvals = self.control.approvals(state);
        approvals.sort_by_key(|approval| approval.approval_id);
        let mut rows: Vec<ApprovalRecord> = approvals.iter().map(|approval| self.record(approval)).collect();
        // ADM-54: operations that wait for a second operator are approvals too.
        let operations = self.invoker.operations().into_iter().map(|found| operation(&found.document));
        rows.extend(operations.filter(|row| state.is_none_or(|state| row.status == state.as_str())));
        rows.sort_by(|a, b| a.approval_id.cmp(&b.approval_id));
        rows
    }

    /// One of them, with what is shown.
    pub fn get(&self, id: ApprovalId) -> Result<ApprovalDetail, AdminError> {
        if let Some(found) = self.invoker.operation(id) {
            return Ok(ApprovalDetail {
                presented: found.document.presented(),
                scopes: vec![Scope::Once.as_str().to_owned()],
                approval: operation(&found.document),
            });
        }
        let approval = self.control.approval(id)?;
        let presented = self.control.presented(id)?;
        Ok(ApprovalDetail {
            presented,
            scopes: approval.offers.iter().map(|offer| offer.scope.as_str().to_owned()).collect(),
            approval: self.record(&approval),
        })
    }

    /// Approves one, if what the operator saw is what there is to see.
    pub async fn approve(
        &self,
        op: &Op,
        id: ApprovalId,
        scope: Scope,
        seen: Sha256Digest,
        comment: Option<&str>,
    ) -> Result<ApprovalRecord, AdminError> {
        if self.invoker.operation(id).is_some() {
            let result = self.invoker.agree(op, id, seen).await?;
            return Ok(ApprovalRecord { result: Some(result), ..self.operation(id)? });
        }
        if self.control.approval(id)?.presented_sha256 != seen {
            let text = "what was decided about is not what is to be decided; look at the approval again";
            return Err(AdminError::conflict(text).with(crate::ctx! { approval_id: id }));
        }
        let granted = self.control.grant(op.operator(), id, scope, comment.unwrap_or(op.reason())).await?;
        Ok(self.record(&granted))
    }

    /// Denies one.
    pub async fn reject(
        &self,
        op: &Op,
        id: ApprovalId,
        comment: Option<&str>,
    ) -> Result<ApprovalRecord, AdminError> {
        if self.invoker.operation(id).is_some() {
            self.invoker.refuse(op, id, false).await?;
            return self.operation(id);
        }
        let denied = self.control.deny(op.operator(), id, comment.unwrap_or(op.reason())).await?;
        Ok(self.record(&denied))
    }

    /// Asks about a call before it is made.
    pub async fn create(
        &self,
        op: &Op,
        tool: &str,
        arguments: &str,
        why: &str,
    ) -> Result<ApprovalRecord, AdminError> {
        Ok(self.record(&self.control.ask_ahead(op.operator(), tool, arguments, why).await?))
    }

    /// Takes a request back, which only who made it can.
    pub async fn withdraw(&self, op: &Op, id: ApprovalId) -> Result<ApprovalRecord, AdminError> {
        if self.invoker.operation(id).is_some() {
            self.invoker.refuse(op, id, true).await?;
            return self.operation(id);
        }
        Ok(self.record(&self.control.withdraw(op.operator(), id).await?))
    }

    fn operation(&self, id: ApprovalId) -> Result<ApprovalRecord, AdminError> {
        let found = self.invoker.operation(id);
        let found = found.ok_or_else(|| AdminError::not_found(format!("approval '{id}' does not exist")))?;
        Ok(operation(&found.document))
    }

    fn record(&self, approval: &Approval) -> ApprovalRecord {
        let presented = self.control.presented(approval.approval_id).unwrap_or(Value::Null);
        let classes = presented["classes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        ApprovalRecord {
            approval_id: approval.approval_id.to_string(),
            status: approval.state.as_str().to_owned(),
            tool: approval.tool_id.to_string(),
            action_type: classes.collect::<Vec<_>>().join("+"),
            risk_level: RiskLevel::of(&presented),
            requested_by: approval.principal.to_string(),
            requested_at: approval.requested_at.to_string(),
            fingerprint: super::servers::word(&approval.fingerprint),
            scope: approval.scope.map(|scope| scope.as_str().to_owned()),
            decided_by: approval.decisions.iter().map(|decision| decision.by.clone()).collect(),
            expires_at: approval.expires_at.to_string(),
            decisions: approval.decisions.iter().map(DecisionRecord::of).collect(),
            presented_sha256: approval.presented_sha256.to_string(),
            call: Some(AskedCall::of(approval)),
            result: None,
        }
    }
}

fn operation(operation: &Operation) -> ApprovalRecord {
    ApprovalRecord {
        approval_id: operation.approval_id.to_string(),
        status: operation.status(SystemClock.now()).to_owned(),
        tool: operation.tool.clone(),
        action_type: "admin".into(),
        risk_level: RiskLevel::Critical,
        requested_by: format!("operator:{}", operation.requested_by),
        requested_at: operation.requested_at.to_string(),
        fingerprint: operation.args_sha256.to_string(),
        scope: None,
        decided_by: operation.decided_by.iter().cloned().collect(),
        expires_at: operation.expires_at.to_string(),
        decisions: Vec::new(),
        presented_sha256: operation.presented_sha256().to_string(),
        call: None,
        result: None,
    }
}

impl DecisionRecord {
    pub(crate) fn of(decision: &OperatorDecision) -> Self {
        Self {
            by: decision.by.clone(),
            method: super::word(&decision.method),
            at: decision.at.to_string(),
            reason: decision.reason.clone(),
            separation: super::word(&decision.separation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn risk_follows_what_a_tool_was_accepted_to_do() {
        let risk = |classes: &[&str], idempotency: &str| {
            RiskLevel::of(&json!({"classes": classes, "idempotency": idempotency}))
        };
        assert_eq!(risk(&["read"], "idempotent"), RiskLevel::Low);
        assert_eq!(risk(&["read", "write"], "idempotent"), RiskLevel::Medium);
        assert_eq!(risk(&["write"], "unknown"), RiskLevel::High);
        assert_eq!(risk(&["other"], "idempotent"), RiskLevel::High);
        assert_eq!(risk(&["read", "execute"], "idempotent"), RiskLevel::Critical);
        assert_eq!(risk(&[], ""), RiskLevel::High, "what is not known is not harmless");
    }
}
