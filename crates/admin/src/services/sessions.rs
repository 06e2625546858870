//! Live sessions, and what stops them.

use std::sync::Arc;

use portcullis_core::{PermitId, ServerIdentity, SessionId};
use portcullis_gateway::Control;
use portcullis_gateway::control::{Meant, SessionRow};
use portcullis_gateway::turns::TurnRow;
use portcullis_governance::session::Checkpoint;
use schemars::JsonSchema;
use serde::Serialize;

use super::word;
use crate::error::AdminError;
use crate::grant::Op;

/// What stops a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CheckpointRecord {
    /// Which session.
    pub session_id: String,
    /// Whose.
    pub client_id: String,
    /// What its client calls itself.
    pub client: String,
    /// What opened it.
    pub trigger: String,
    /// Why, in words.
    pub reason: String,
    /// The server whose tool lost its trust.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Raised when it opened.
    pub epoch: u64,
    /// Since when.
    pub opened_at: String,
    /// The call that went too far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal_id: Option<String>,
    /// The approval that resolves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// What an equal call has in common with that call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
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

/// A turn that somebody has.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct LockRecord {
    /// Its id.
    pub lock_id: String,
    /// Who has it.
    pub holder: String,
    /// Of which server.
    pub scope: String,
    /// Since when.
    pub since: String,
}

/// What one of the eight checks would say of a permit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CheckRecord {
    /// Which check.
    pub check: String,
    /// Whether it would pass now.
    pub passes: bool,
}

/// A server that is started anew by the next call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RestartedRecord {
    /// Which.
    pub server_id: String,
    /// The processes that were ended.
    pub restarted: Vec<u32>,
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
        let rows = self.control.sessions();
        rows.iter()
            .filter_map(|row| Some(CheckpointRecord::of(row.checkpoint.as_ref()?, row.checkpoint_epoch)))
            .collect()
    }

    /// Stops a session until an operator lets it go on.
    pub async fn stop(&self, op: &Op, id: SessionId) -> Result<LiveSession, AdminError> {
        Ok(live(&self.control.open_checkpoint(op.operator(), id, op.reason()).await?))
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

    /// Turns that somebody has.
    pub fn locks(&self) -> Vec<LockRecord> {
        self.control.turns().iter().map(lock).collect()
    }

    /// Takes a turn away from who has it.
    pub fn release(&self, _: &Op, id: &str) -> Result<LockRecord, AdminError> {
        Ok(lock(&self.control.release_turn(id)?))
    }

    /// What the eight checks would say of a permit.
    pub async fn check(&self, id: PermitId, arguments: &str) -> Result<Vec<CheckRecord>, AdminError> {
        let verdicts = self.control.check_permit(id, arguments).await?;
        Ok(verdicts
            .into_iter()
            .map(|verdict| CheckRecord { check: verdict.check.to_owned(), passes: verdict.passes })
            .collect())
    }

    /// Ends a server's process; the next call starts another.
    pub async fn restart(
        &self,
        _: &Op,
        id: &ServerIdentity,
        process: Option<u32>,
    ) -> Result<RestartedRecord, AdminError> {
        let ended = self.control.restart_server(id, process).await?;
        Ok(RestartedRecord { server_id: id.to_string(), restarted: ended })
    }

    /// Ends a session.
    pub async fn terminate(&self, op: &Op, id: SessionId) -> Result<LiveSession, AdminError> {
        let ended = self.control.end_session(op.operator(), id, op.reason()).await?;
        Ok(LiveSession { approvals_ended: Some(ended.approvals_invalidated), ..live(&ended.session) })
    }
}

fn lock(row: &TurnRow) -> LockRecord {
    LockRecord {
        lock_id: row.lock_id.clone(),
        holder: row.holder.to_string(),
        scope: format!("server:{}", row.server),
        since: row.since.to_string(),
    }
}

impl CheckpointRecord {
    pub(crate) fn of(checkpoint: &Checkpoint, epoch: u64) -> Self {
        Self {
            session_id: checkpoint.session_id.to_string(),
            client_id: checkpoint.principal.to_string(),
            client: checkpoint.client.clone(),
            trigger: checkpoint.trigger.as_str().to_owned(),
            reason: checkpoint.reason.clone(),
            server_id: checkpoint.server.as_ref().map(ToString::to_string),
            epoch,
            opened_at: checkpoint.opened_at.to_string(),
            proposal_id: checkpoint.proposal_id.map(|id| id.to_string()),
            approval_id: checkpoint.approval_id.map(|id| id.to_string()),
            fingerprint: checkpoint.fingerprint.as_ref().map(word),
        }
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
