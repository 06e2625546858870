//! Keys of agents, given and taken back by operators (PRO-34).

use std::time::Duration;

use portcullis_audit::{Event, EventName};
use portcullis_core::{ErrorCode, Secret};
use portcullis_gauntlet::{CapMode, Capabilities};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::{Control, ControlError};
use crate::access::DECLARED;
use crate::access::agent_keys::{AgentKey, principal_of};

/// What recorded credentials of this kind are called.
const KIND: &str = "agent_key";

impl Control {
    /// All keys in force, by name. The keys themselves are not among it; nobody has them but their agents.
    pub fn keys(&self) -> Vec<AgentKey> {
        self.keys.list()
    }

    /// Makes a key for an agent, in place of the one it had. The key is shown this once.
    pub async fn create_key(
        &self,
        operator: &OperatorProof,
        agent: &str,
        grants: Vec<String>,
        lifetime: Option<Duration>,
    ) -> Result<(Secret<String>, AgentKey), ControlError> {
        let principal =
            principal_of(agent).map_err(|error| ControlError::field("agent", error.to_string()))?;
        let limited = grants.iter().map(String::as_str).filter(|grant| *grant != DECLARED);
        Capabilities::parse(CapMode::Cleared, limited)
            .map_err(|error| ControlError::field("grant", error.to_string()))?;
        let _one_at_a_time = self.state.lock().await;
        let now = self.clock.now();
        let expires_at = lifetime.map(|lifetime| now.after(lifetime));
        let (secret, key) = AgentKey::create(&principal, grants, now, expires_at);
        let event = Event::new(EventName::CredentialStored, &operator.actor());
        self.commit(operator, vec![event.data(json!({"kind": KIND, "key": key}))]).await?;
        self.keys.put(key.clone());
        Ok((secret, key))
    }

    /// Takes an agent's key back. Its sessions end with their next request.
    pub async fn revoke_key(
        &self,
        operator: &OperatorProof,
        agent: &str,
        reason: &str,
    ) -> Result<(), ControlError> {
        let _one_at_a_time = self.state.lock().await;
        if !self.keys.list().iter().any(|key| key.agent == agent) {
            let shown = portcullis_core::name::printable(agent);
            let message = format!("there is no key for {shown}; `portcullis key list` names those there are");
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        let event = Event::new(EventName::CredentialRemoved, &operator.actor());
        let data = json!({"kind": KIND, "agent": agent, "reason": portcullis_core::error::one_line(reason)});
        self.commit(operator, vec![event.data(data)]).await?;
        self.keys.remove(agent);
        Ok(())
    }
}
