//! Keys of agents, given and taken back by operators (PRO-34).

use std::time::Duration;

use portcullis_audit::{Event, EventName};
use portcullis_core::{Principal, Secret};
use portcullis_gauntlet::{CapMode, Capabilities};
use portcullis_governance::operator::OperatorProof;
use serde_json::json;

use super::{Control, ControlError};
use crate::access::DECLARED;
use crate::access::agent_keys::{AgentKey, is_group, principal_of};

/// What recorded credentials of this kind are called.
pub(super) const KIND: &str = "agent_key";

impl Control {
    /// All keys in force, by name. The keys themselves are not among it; nobody has them but their agents.
    pub fn keys(&self) -> Vec<AgentKey> {
        self.keys.list()
    }

    /// The groups that policy knows an agent by (GOV-802).
    pub fn groups_of(&self, principal: &Principal) -> Vec<String> {
        self.keys.groups_of(principal, self.orders().team(principal), self.clock.now())
    }

    /// Makes a key for an agent, in place of the one it had. The key is shown this once.
    pub async fn create_key(
        &self,
        operator: &OperatorProof,
        agent: &str,
        grants: Vec<String>,
        groups: Vec<String>,
        lifetime: Option<Duration>,
    ) -> Result<(Secret<String>, AgentKey), ControlError> {
        let principal =
            principal_of(agent).map_err(|error| ControlError::field("agent", error.to_string()))?;
        let limited = grants.iter().map(String::as_str).filter(|grant| *grant != DECLARED);
        Capabilities::parse(CapMode::Cleared, limited)
            .map_err(|error| ControlError::field("grant", error.to_string()))?;
        if let Some(group) = groups.iter().find(|group| !is_group(group)) {
            let shown = portcullis_core::name::printable(group);
            let message =
                format!("{shown} is no name of a group: letters, digits, '.', '-' and '_', at most 64");
            return Err(ControlError::field("group", message));
        }
        let one_at_a_time = self.state.lock().await;
        let now = self.clock.now();
        let expires_at = lifetime.map(|lifetime| now.after(lifetime));
        let (secret, key) = AgentKey::create(&principal, grants, now, expires_at);
        let key = AgentKey { groups, ..key };
        let event = Event::new(EventName::CredentialStored, &operator.actor());
        self.commit(operator, vec![event.data(json!({"kind": KIND, "key": key}))]).await?;
        self.keys.put(key.clone());
        drop(one_at_a_time);
        self.let_in_again(operator, agent).await?;
        Ok((secret, key))
    }
}
