//! Permission to do one thing once, and the receipt that it is on record (admin §7).
//!
//! The invoker makes a grant after the guardrails. A handler spends it with [`AdminGrant::commit`]: the intent is durable
//! first, then the effect happens, then its outcome is durable. Nothing else makes a receipt, so there is exactly one
//! executed event for each success, and none for a refusal.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use portcullis_audit::{Event, EventName};
use portcullis_core::{EventId, Sha256Digest, failpoint};
use portcullis_gateway::Control;
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use crate::error::AdminError;
use crate::reply::Committed;
use crate::tool::Data;

/// What an operation is about: `server:filesystem`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetId(String);

impl TargetId {
    /// `<kind>:<id>`.
    pub fn new(kind: &str, id: impl fmt::Display) -> Self {
        Self(format!("{kind}:{}", portcullis_core::error::one_line(&id.to_string())))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An operation that may change something now: what mutating methods of services take (ADM-52).
///
/// ```compile_fail
/// // ADM-52: only the door hands one out.
/// fn make() -> portcullis_admin::Op {
///     portcullis_admin::Op { }
/// }
/// ```
#[derive(Debug)]
pub struct Op {
    op_id: String,
    operator: OperatorProof,
    reason: String,
    agreed: Option<String>,
}

impl Op {
    pub(crate) fn new(op_id: String, operator: OperatorProof, reason: String) -> Self {
        Self { op_id, operator, reason, agreed: None }
    }

    /// Its id, which its events carry.
    pub fn id(&self) -> &str {
        &self.op_id
    }

    /// Who does it.
    pub fn operator(&self) -> &OperatorProof {
        &self.operator
    }

    /// Why.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Who agreed to it, where two had to (ADM-54).
    pub fn agreed(&self) -> Option<&str> {
        self.agreed.as_deref()
    }
}

/// Permission to do one admin operation once. Only the invoker makes one; it cannot be copied.
///
/// ```compile_fail,E0599
/// // ADM-51: a grant is spent once.
/// fn twice(grant: portcullis_admin::AdminGrant) -> (portcullis_admin::AdminGrant, portcullis_admin::AdminGrant) {
///     (grant.clone(), grant)
/// }
/// ```
#[derive(Debug)]
pub struct AdminGrant {
    pub(crate) tool: String,
    pub(crate) op_id: String,
    pub(crate) operator: OperatorProof,
    pub(crate) reason: String,
    pub(crate) args_sha256: Sha256Digest,
    pub(crate) control: Arc<Control>,
    /// Who agreed, where two had to (ADM-54).
    pub(crate) approver: Option<String>,
}

/// Proof that an operation was done and is on record.
#[derive(Debug)]
pub struct AuditReceipt {
    pub(crate) op_id: String,
    pub(crate) target: TargetId,
    pub(crate) reason: String,
    pub(crate) approver: Option<String>,
}

impl AdminGrant {
    /// Why, as the caller said.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Has a log take records again that takes none. The one operation whose intent cannot be durable before its effect:
    /// it is on record right after, together with the outcome.
    pub(crate) async fn reopen<T, F, Fut>(
        self,
        target: TargetId,
        effect: F,
    ) -> Result<(T, AuditReceipt), AdminError>
    where
        F: FnOnce(Op) -> Fut + Send,
        Fut: Future<Output = Result<T, AdminError>> + Send,
    {
        if self.control.log().blocked().is_none() {
            return self.commit(target, effect).await;
        }
        let reason = self.control.masked(&self.reason);
        let op = Op::new(self.op_id.clone(), self.operator.clone(), reason);
        let value = effect(op).await?;
        let ((), receipt) = self.commit(target, |_| async { Ok(()) }).await?;
        Ok((value, receipt))
    }

    /// Does it, and answers with what the effect came to.
    pub async fn answer<D, F, Fut>(self, target: TargetId, effect: F) -> Result<Committed<D>, AdminError>
    where
        D: Data,
        F: FnOnce(Op) -> Fut + Send,
        Fut: Future<Output = Result<D, AdminError>> + Send,
    {
        let (data, receipt) = self.commit(target, effect).await?;
        Ok(Committed::ok(data, receipt))
    }

    /// Does it: intent, effect, outcome. If the intent cannot be made durable nothing has changed.
    pub async fn commit<T, F, Fut>(self, target: TargetId, effect: F) -> Result<(T, AuditReceipt), AdminError>
    where
        F: FnOnce(Op) -> Fut + Send,
        Fut: Future<Output = Result<T, AdminError>> + Send,
    {
        let actor = self.operator.actor();
        // ADM-61: also what effects record of it is masked.
        let reason = self.control.masked(&self.reason);
        let log = self.control.log().clone();
        let mut intent = json!({
            "actor": self.operator.name(), "args_sha256": self.args_sha256, "op_id": self.op_id, "reason": reason,
            "target": target.as_str(), "tool": self.tool,
        });
        if let Some(approver) = &self.approver {
            intent["approver"] = json!(approver);
        }
        failpoint::pass("admin.before_intent");
        let recorded = log.commit(vec![Event::new(EventName::AdminOpIntent, &actor).data(intent)]).await?;
        let at = (log.id(), recorded.seq);
        let outcome = |name: EventName, data: serde_json::Value| {
            Event::new(name, &actor).reference(at.0, at.1).data(data)
        };
        let op = Op {
            agreed: self.approver.clone(),
            ..Op::new(self.op_id.clone(), self.operator.during(at.0, at.1), reason.clone())
        };
        // A defect in the effect must not leave the log without an outcome.
        let done = AssertUnwindSafe(effect(op)).catch_unwind().await;
        let done = done.unwrap_or_else(|_| Err(AdminError::failure("the handler panicked")));
        failpoint::pass("admin.before_outcome");
        match done {
            Ok(value) => {
                let data = json!({"op_id": self.op_id, "target": target.as_str(), "tool": self.tool});
                log.commit(vec![outcome(EventName::AdminOpExecuted, data)]).await.map_err(|error| {
                    let text = "it was done, but the log cannot take that it was; a restart settles it";
                    AdminError::failure(format!("{text}: {}", error.reason))
                })?;
                let receipt = AuditReceipt { op_id: self.op_id, target, reason, approver: self.approver };
                Ok((value, receipt))
            }
            Err(error) => {
                let error = error.masked(&self.control);
                let data = json!({
                    "error": error.message(), "error_type": error.error_type(), "op_id": self.op_id,
                    "target": target.as_str(), "tool": self.tool,
                });
                // If not even this is durable, a restart finds the intent and settles it.
                let _ = log.commit(vec![outcome(EventName::AdminOpFailed, data)]).await;
                Err(error)
            }
        }
    }
}

pub(crate) fn new_op_id(now: portcullis_core::Timestamp) -> String {
    format!("op_{}", EventId::new(now))
}
