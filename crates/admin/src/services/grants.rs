//! What operators granted, and its end.

use std::sync::Arc;

use portcullis_core::ApprovalId;
use portcullis_gateway::Control;
use portcullis_governance::approval::{Approval, State};
use schemars::JsonSchema;
use serde::Serialize;

use super::{AskedCall, DecisionRecord, word};
use crate::error::AdminError;
use crate::grant::Op;

/// An approval that was given.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GrantRecord {
    /// Its id, which is the approval's.
    pub grant_id: String,
    /// What may be called.
    pub tool: String,
    /// By whom.
    pub client_id: String,
    /// How far it reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The approval.
    pub approval_id: String,
    /// `approved` while it holds, `revoked` when it was taken back.
    pub state: String,
    /// Which request it was asked for.
    pub fingerprint: String,
    /// When.
    pub requested_at: String,
    /// Until when.
    pub expires_at: String,
    /// Who granted it, and why.
    pub decisions: Vec<DecisionRecord>,
    /// The digest of what was shown.
    pub presented_sha256: String,
    /// The call that asked for it.
    #[serde(flatten)]
    pub call: AskedCall,
    /// What it covers, if it is a wide one (GOV-1201).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub envelope: Option<EnvelopeRecord>,
}

/// What a wide grant covers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EnvelopeRecord {
    /// Its id.
    pub envelope_id: String,
    /// The session it is held to; none if it outlives sessions.
    pub session_id: Option<String>,
    /// The tools that may be called.
    pub tool_ids: Vec<String>,
}

/// What operators granted.
#[derive(Debug, Clone)]
pub struct GrantService {
    control: Arc<Control>,
}

impl GrantService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// All that hold, by id.
    pub fn list(&self) -> Vec<GrantRecord> {
        let mut grants: Vec<GrantRecord> =
            self.control.approvals(Some(State::Approved)).iter().map(record).collect();
        grants.sort_by(|a, b| a.grant_id.cmp(&b.grant_id));
        grants
    }

    /// Takes one back. Permits that were issued under it die.
    pub async fn revoke(&self, op: &Op, id: ApprovalId) -> Result<GrantRecord, AdminError> {
        Ok(record(&self.control.revoke(op.operator(), id, op.reason()).await?))
    }
}

fn record(approval: &Approval) -> GrantRecord {
    GrantRecord {
        grant_id: approval.approval_id.to_string(),
        tool: approval.tool_id.to_string(),
        client_id: approval.principal.to_string(),
        scope: approval.scope.map(|scope| scope.as_str().to_owned()),
        approval_id: approval.approval_id.to_string(),
        state: approval.state.as_str().to_owned(),
        fingerprint: word(&approval.fingerprint),
        requested_at: approval.requested_at.to_string(),
        expires_at: approval.expires_at.to_string(),
        decisions: approval.decisions.iter().map(DecisionRecord::of).collect(),
        presented_sha256: approval.presented_sha256.to_string(),
        call: AskedCall::of(approval),
        envelope: approval.envelope().map(|envelope| EnvelopeRecord {
            envelope_id: envelope.envelope_id,
            session_id: envelope.session.map(|session| session.to_string()),
            tool_ids: envelope.tool_ids.iter().map(ToString::to_string).collect(),
        }),
    }
}
