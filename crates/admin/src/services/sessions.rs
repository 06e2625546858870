//! Live sessions, and what stops them.

use std::sync::Arc;

use portcullis_core::SessionId;
use portcullis_gateway::Control;
use portcullis_gateway::control::{Meant, SessionRow};
use portcullis_governance::session::Checkpoint;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::AdminError;
use crate::grant::Op;

/// What stops a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CheckpointRecord {
    /// Which session.
    pub session_id: String,
    /// Whose.
    pub client_id: String,
    /// What opened it.
    pub trigger: String,
    /// Why, in words.
    pub reason: String,
    /// Since when.
    pub opened_at: String,
    /// The approval that resolves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
}

/// A session as it is now.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LiveSession {
    /// Its id.
    pub session_id: String,
    /// Whose it is.
    pub client_id: String,
    /// Where in its life it is.
    pub state: String,
    /// Since when.
    pub started_at: String,
    /// How many steps it took.
    pub steps: u64,
    /// Raised when a checkpoint opens, and when it resolves.
    pub checkpoint_epoch: u64,
    /// How many approvals ended with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals_ended: Option<usize>,
}

/// Permits that were taken back.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RevokedPermits {
    /// How many.
    pub revoked: usize,
    /// How many of them were under way.
    pub in_flight: usize,
}

/// Live sessions.
#[derive(Debug, Clone)]
pub struct SessionService {
    control: Arc<Control>,
}

impl SessionService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// What stops sessions, by session.
    pub fn checkpoints(&self) -> Vec<CheckpointRecord> {
        self.control.checkpoints().iter().map(checkpoint).collect()
    }

    /// Lets a stopped session go on.
    pub async fn resolve(&self, op: &Op, id: SessionId) -> Result<LiveSession, AdminError> {
        Ok(live(&self.control.resolve_checkpoint(op.operator(), id, op.reason()).await?))
    }

    /// Takes permits back.
    pub async fn revoke(&self, op: &Op, meant: &Meant, kill: bool) -> Result<RevokedPermits, AdminError> {
        let revoked = self.control.revoke_permits(op.operator(), meant, kill, op.reason()).await?;
        let in_flight = revoked.iter().filter(|permit| permit.in_flight).count();
        Ok(RevokedPermits { revoked: revoked.len(), in_flight })
    }

    /// Ends a session.
    pub async fn terminate(&self, op: &Op, id: SessionId) -> Result<LiveSession, AdminError> {
        let ended = self.control.end_session(op.operator(), id, op.reason()).await?;
        Ok(LiveSession { approvals_ended: Some(ended.approvals_invalidated), ..live(&ended.session) })
    }
}

fn checkpoint(checkpoint: &Checkpoint) -> CheckpointRecord {
    CheckpointRecord {
        session_id: checkpoint.session_id.to_string(),
        client_id: checkpoint.principal.to_string(),
        trigger: checkpoint.trigger.as_str().to_owned(),
        reason: checkpoint.reason.clone(),
        opened_at: checkpoint.opened_at.to_string(),
        approval_id: checkpoint.approval_id.map(|id| id.to_string()),
    }
}

fn live(row: &SessionRow) -> LiveSession {
    LiveSession {
        session_id: row.session_id.to_string(),
        client_id: row.principal.clone(),
        state: row.state.as_str().to_owned(),
        started_at: row.opened_at.clone(),
        steps: row.steps,
        checkpoint_epoch: row.checkpoint_epoch,
        approvals_ended: None,
    }
}
