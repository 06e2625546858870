//! Keys that operators give to agents.
//!
//! A key is `pck_` and 256 random bits. Only its BLAKE3 hash is kept, so nothing that is stored or recorded lets
//! anybody in. An agent has one key; a new one takes the old one's place.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_core::{Principal, Secret, Timestamp};
use serde::{Deserialize, Serialize};

use super::OAUTH_PREFIX;

/// How every key begins.
pub const PREFIX: &str = "pck_";

/// A key as it is stored and recorded: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentKey {
    /// Whose it is: the name in `agent:<name>`.
    pub agent: String,
    /// BLAKE3 of the key, in hexadecimal.
    pub hash: String,
    /// What its holder may do at most.
    pub grants: Vec<String>,
    /// The groups that policy knows it by (GOV-802).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when; for ever if absent.
    pub expires_at: Option<Timestamp>,
}

/// All keys in force, read without a lock.
#[derive(Debug, Default)]
pub struct AgentKeys {
    by_hash: ArcSwap<HashMap<[u8; 32], (Principal, AgentKey)>>,
}

/// The name cannot be that of a key's holder.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NameRefused(String);

/// The principal of a key for `name`.
pub fn principal_of(name: &str) -> Result<Principal, NameRefused> {
    let principal = Principal::agent(name).map_err(|error| NameRefused(error.to_string()))?;
    if name == "local" || name.starts_with(OAUTH_PREFIX) {
        return Err(NameRefused(format!("'{name}' is taken: it names agents that have no key")));
    }
    Ok(principal)
}

/// What a group may be called: it is written in policies.
pub fn is_group(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

impl AgentKey {
    /// A new key and what is kept of it.
    pub fn create(
        agent: &Principal,
        grants: Vec<String>,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> (Secret<String>, AgentKey) {
        let random = Secret::random_key();
        let key = Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random.expose())));
        let hash = blake3::hash(key.expose().as_bytes()).to_hex().to_string();
        (
            key,
            AgentKey { agent: agent.name().into(), hash, grants, groups: Vec::new(), created_at, expires_at },
        )
    }

    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| now >= end)
    }
}

impl AgentKeys {
    /// Whose key this is, if it is in force. The look-up is by hash: its timing tells nothing about other keys.
    pub(crate) fn holder(&self, key: &str, now: Timestamp) -> Option<Principal> {
        let keys = self.by_hash.load();
        let (principal, key) = keys.get(blake3::hash(key.as_bytes()).as_bytes())?;
        (!key.has_expired(now)).then(|| principal.clone())
    }

    pub(crate) fn grants_of(&self, principal: &Principal, now: Timestamp) -> Vec<String> {
        let keys = self.by_hash.load();
        let found = keys.values().find(|(holder, key)| holder == principal && !key.has_expired(now));
        found.map(|(_, key)| key.grants.clone()).unwrap_or_default()
    }

    /// The groups an agent is in: those its key was given, and its team.
    pub(crate) fn groups_of(&self, principal: &Principal, team: Option<&str>, now: Timestamp) -> Vec<String> {
        let keys = self.by_hash.load();
        let found = keys.values().find(|(holder, key)| holder == principal && !key.has_expired(now));
        let mut groups = found.map(|(_, key)| key.groups.clone()).unwrap_or_default();
        groups.extend(team.filter(|team| !groups.iter().any(|group| group == team)).map(str::to_owned));
        groups
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<AgentKey> {
        let mut keys: Vec<AgentKey> = self.by_hash.load().values().map(|(_, key)| key.clone()).collect();
        keys.sort_by(|a, b| a.agent.cmp(&b.agent));
        keys
    }

    /// Puts a key in force in place of its agent's last one. False if it cannot be one.
    pub(crate) fn put(&self, key: AgentKey) -> bool {
        let Ok(principal) = principal_of(&key.agent) else { return false };
        let Ok(hash) = blake3::Hash::from_hex(&key.hash) else { return false };
        self.by_hash.rcu(|keys| {
            let mut keys = HashMap::clone(keys);
            keys.retain(|_, (_, other)| other.agent != key.agent);
            keys.insert(*hash.as_bytes(), (principal.clone(), key.clone()));
            keys
        });
        true
    }

    /// Takes an agent's key out of force. False if it had none.
    pub(crate) fn remove(&self, agent: &str) -> bool {
        let before = self.by_hash.rcu(|keys| {
            let mut keys = HashMap::clone(keys);
            keys.retain(|_, (_, key)| key.agent != agent);
            keys
        });
        before.values().any(|(_, key)| key.agent == agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_key_lets_its_agent_in_until_it_expires_or_is_replaced() {
        // PRO-34
        let keys = AgentKeys::default();
        let ci = principal_of("ci").unwrap();
        let end = at(0).after(Duration::from_secs(60));
        let (old, stored) = AgentKey::create(&ci, vec!["declared".into()], at(0), Some(end));
        assert!(keys.put(stored));
        assert_eq!(keys.holder(old.expose(), at(59_999)), Some(ci.clone()));
        assert_eq!(keys.holder(old.expose(), at(60_000)), None);
        assert_eq!(keys.grants_of(&ci, at(0)), ["declared"]);
        assert!(keys.grants_of(&ci, at(60_000)).is_empty());

        let (new, stored) = AgentKey::create(&ci, Vec::new(), at(0), None);
        assert!(keys.put(stored));
        assert_eq!(keys.holder(old.expose(), at(1)), None, "an agent has one key");
        assert_eq!(keys.holder(new.expose(), at(u64::MAX / 2)), Some(ci));
        assert!(keys.remove("ci") && !keys.remove("ci"));
        assert_eq!(keys.holder(new.expose(), at(1)), None);
    }

    #[test]
    fn what_is_stored_does_not_let_anybody_in() {
        let keys = AgentKeys::default();
        let (key, stored) = AgentKey::create(&principal_of("ci").unwrap(), Vec::new(), at(0), None);
        let text = serde_json::to_string(&stored).unwrap();
        assert!(!text.contains(&key.expose()[PREFIX.len()..]));
        keys.put(stored.clone());
        assert_eq!(keys.holder(&stored.hash, at(0)), None);
        assert_eq!(keys.holder(&format!("{PREFIX}{}", stored.hash), at(0)), None);
    }

    #[test]
    fn names_of_agents_without_keys_cannot_have_one() {
        for name in ["local", "oauth.ci", "", "a b", "operator:ana"] {
            assert!(principal_of(name).is_err(), "{name}");
        }
    }
}
