//! What commands can look at. Nothing here changes anything; what a look leaves in the log is that somebody looked.

use std::sync::Arc;

use portcullis_core::ServerIdentity;
use portcullis_gateway::access::agent_keys::AgentKey;
use portcullis_gateway::control::{Enrolled, OperatorToken, SessionRow, Waiver};
use portcullis_gateway::edge::Edge;
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::world::World;
use portcullis_gateway::{Control, ControlError};
use portcullis_governance::operator::OperatorProof;
use serde_json::{Value, json};

use super::Answer;

/// The control plane, to be looked at.
pub(super) struct Looking<'d> {
    control: &'d Arc<Control>,
    edge: &'d Arc<Edge>,
    /// Who looks, where that is recorded.
    operator: &'d OperatorProof,
}

impl<'d> Looking<'d> {
    pub(super) fn new(control: &'d Arc<Control>, edge: &'d Arc<Edge>, operator: &'d OperatorProof) -> Self {
        Self { control, edge, operator }
    }

    pub(super) fn world(&self) -> Arc<World> {
        self.control.world()
    }

    pub(super) fn approvals_of(&self, server: &ServerIdentity) -> usize {
        self.control.approvals_of(server).len()
    }

    pub(super) fn waiting_permits_of(&self, server: &ServerIdentity) -> usize {
        let permits = self.control.live_permits();
        permits.iter().filter(|permit| permit.tool_id.server() == server && !permit.in_flight).count()
    }

    /// The declaration that a server would have as it is now.
    pub(super) async fn declaration_of_now(&self, server: &ServerIdentity) -> Answer {
        Ok(json!(self.control.declaration_of_now(server).await?))
    }

    /// Whether agents run as another user than operators (GOV-105).
    pub(super) fn separation(&self) -> Value {
        json!({"separation": self.control.separation(), "shared": self.control.agents_share_our_user()})
    }

    pub(super) fn browse(
        &self,
        asked: portcullis_catalog::Request<'_>,
        kind: portcullis_catalog::Kind,
    ) -> Answer {
        Ok(json!({"text": self.control.browse(asked, kind)?}))
    }

    pub(super) fn findings(&self) -> Value {
        json!(self.control.findings())
    }

    pub(super) async fn capabilities(&self, only: Option<&ServerIdentity>, live: bool) -> Answer {
        Ok(json!(self.control.capabilities(only, live).await?))
    }

    pub(super) fn surface_parts(&self, mode: Option<Mode>, principal: Option<&str>) -> Answer {
        let agent = principal.map(|name| self.control.agent(name)).transpose()?;
        Ok(json!(self.control.surface_parts(mode, agent.as_ref())))
    }

    pub(super) async fn try_gates(&self, id: Option<&str>) -> Value {
        json!(self.control.try_gates(self.edge, id).await)
    }

    pub(super) fn alarms(&self) -> Value {
        json!(self.control.alarms())
    }

    pub(super) fn result_sizes(&self, seconds: u64, limit: Option<usize>) -> Value {
        json!(self.control.result_sizes(seconds, limit))
    }

    pub(super) fn sessions(&self) -> Vec<SessionRow> {
        self.control.sessions()
    }

    pub(super) fn operators(&self) -> Vec<Enrolled> {
        self.control.operators()
    }

    pub(super) fn operator_tokens(&self) -> Vec<OperatorToken> {
        self.control.operator_tokens()
    }

    pub(super) fn keys(&self) -> Vec<AgentKey> {
        self.control.keys()
    }

    pub(super) async fn explain_cage(&self, server: &ServerIdentity) -> Answer {
        Ok(self.control.explain_cage(server).await?)
    }

    pub(super) async fn test_cage(&self, server: &ServerIdentity) -> Answer {
        Ok(self.control.test_cage(server).await?)
    }

    pub(super) fn is_waivable(&self, facility: &str) -> Result<(), ControlError> {
        self.control.is_waivable(facility)
    }

    pub(super) fn waiver(&self, server: &ServerIdentity, facility: &str) -> Option<Waiver> {
        self.control.waiver(server, facility)
    }

    /// Part of an artifact, on record before it is shown.
    pub(super) async fn view_artifact(&self, handle: &str, selector: &Value) -> Answer {
        Ok(self.control.view_artifact(self.operator, handle, selector).await?)
    }
}
