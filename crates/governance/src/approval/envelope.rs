//! Envelopes: what a wide approval covers, as a record of its own (GOV-1201).
//!
//! An envelope has no life apart from its approval: the same random id names both, so that neither can be in force
//! without the other. Each use mints a permit for one exact request, as ever, and is an event.

use portcullis_core::{ApprovalId, Principal, SessionId, Timestamp, ToolId};
use serde::Serialize;

use super::{Approval, Scope, State};

/// The record of a wide approval.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Envelope {
    pub envelope_id: String,
    pub approval_id: ApprovalId,
    pub principal: Principal,
    /// The session it is held to; none for one that outlives sessions.
    pub session: Option<SessionId>,
    pub tool_ids: Vec<ToolId>,
    pub uses_left: u64,
    pub expires_at: Timestamp,
    pub state: State,
}

/// The envelope of an approval.
pub(crate) fn id_of(approval: ApprovalId) -> String {
    format!("env-{approval}")
}

impl Approval {
    /// Its envelope, if it is a wide one.
    pub fn envelope(&self) -> Option<Envelope> {
        let session = match self.scope? {
            Scope::Once => return None,
            Scope::Session => Some(self.session),
            Scope::UntilVersionChange => None,
        };
        Some(Envelope {
            envelope_id: id_of(self.approval_id),
            approval_id: self.approval_id,
            principal: self.principal.clone(),
            session,
            tool_ids: vec![self.tool_id.clone()],
            uses_left: self.uses_left,
            expires_at: self.expires_at,
            state: self.state,
        })
    }
}
