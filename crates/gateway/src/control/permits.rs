//! Permits taken back by operators (GOV-1004).

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, PermitId, ServerIdentity};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::permit::LivePermit;
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

/// Which permits are meant.
#[derive(Debug, Clone)]
pub enum Meant {
    /// This one.
    Permit(PermitId),
    /// All of a tool, by its whole id or `<server>/<tool>`.
    Tool(String),
    /// All of an agent.
    Agent(String),
}

impl Meant {
    fn is(&self, permit: &LivePermit) -> bool {
        match self {
            Meant::Permit(id) => permit.permit_id == *id,
            Meant::Tool(tool) => permit.tool_id.as_str() == tool || permit.tool_id.short() == tool,
            Meant::Agent(agent) => permit.principal.to_string() == *agent || permit.principal.name() == agent,
        }
    }
}

/// What died with a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Invalidated {
    /// Approvals.
    pub approvals: usize,
    /// Permits that were issued and not under way.
    pub permits: usize,
}

impl Control {
    /// Ends the permits of a server that are issued and not under way, whatever happens next; with the events that say
    /// so (GOV-204, GOV-1004).
    pub(super) fn end_permits(&self, server: Option<&ServerIdentity>, reason: &str) -> Vec<Event> {
        let is_meant = |permit: &LivePermit| server.is_none_or(|server| permit.tool_id.server() == server);
        let event = |permit: LivePermit| {
            Event::new(EventName::PermitInvalidated, &Actor::system())
                .session(permit.session)
                .tool(&permit.tool_id)
                .data(json!({"permit_id": permit.permit_id, "reason": reason}))
        };
        self.permits.invalidate(is_meant).into_iter().map(event).collect()
    }

    /// The permits that are issued and not settled.
    pub fn live_permits(&self) -> Vec<LivePermit> {
        self.permits.list()
    }

    /// Takes permits back: at once, and then on record. What is under way is flagged by its result, or cut with `kill`.
    pub async fn revoke_permits(
        &self,
        operator: &OperatorProof,
        meant: &Meant,
        kill: bool,
        reason: &str,
    ) -> Result<Vec<LivePermit>, ControlError> {
        need_reason(reason)?;
        let revoked = self.permits.revoke(|permit| meant.is(permit), kill);
        if revoked.is_empty() {
            if let Meant::Permit(id) = meant {
                let message = format!(
                    "permit {id} is not in force: it was used, revoked or expired, or there never was one"
                );
                return Err(ControlError::new(ErrorCode::NotFound, message));
            }
            return Ok(revoked);
        }
        let event = |permit: &LivePermit| {
            let data = json!({
                "in_flight": permit.in_flight, "kill": kill, "permit_id": permit.permit_id, "reason": one_line(reason),
            });
            Event::new(EventName::PermitRevoked, &operator.actor())
                .session(permit.session)
                .tool(&permit.tool_id)
                .data(data)
        };
        self.commit(operator, revoked.iter().map(event).collect()).await?;
        Ok(revoked)
    }
}
