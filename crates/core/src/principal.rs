//! Who asks, and who is named as the author of an event.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::name::printable;

/// The kinds of author an event can have (AUD-10).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A person with operator authority.
    Operator,
    /// An MCP client.
    Agent,
    /// The gateway itself.
    System,
    /// An upstream server.
    Server,
}

/// The author of an event.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Actor {
    /// What it is. Field order is the canonical (sorted) one: `id`, `kind`.
    id: String,
    kind: ActorKind,
}

/// An MCP client as the gateway knows it: `agent:claude-code`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal(std::sync::Arc<str>);

/// The text is not a principal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a principal: {shown}; expected agent:<name>, the name being 1 to 64 of [A-Za-z0-9._-]")]
pub struct PrincipalError {
    shown: String,
}

impl ActorKind {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            ActorKind::Operator => "operator",
            ActorKind::Agent => "agent",
            ActorKind::System => "system",
            ActorKind::Server => "server",
        }
    }
}

impl Actor {
    /// The gateway acting by itself.
    pub fn system() -> Self {
        Self { id: "portcullis".into(), kind: ActorKind::System }
    }

    /// A person.
    pub fn operator(name: impl Into<String>) -> Self {
        Self { id: name.into(), kind: ActorKind::Operator }
    }

    /// An upstream server.
    pub fn server(name: impl Into<String>) -> Self {
        Self { id: name.into(), kind: ActorKind::Server }
    }

    /// What kind of author this is.
    pub fn kind(&self) -> ActorKind {
        self.kind
    }

    /// The author's name within its kind.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl From<&Principal> for Actor {
    fn from(principal: &Principal) -> Self {
        Self { id: principal.name().into(), kind: ActorKind::Agent }
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.id)
    }
}

impl Principal {
    /// The agent with this name; refused if the name has a character that could be mistaken for structure.
    pub fn agent(name: &str) -> Result<Self, PrincipalError> {
        let valid = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if valid {
            Ok(Self(format!("agent:{name}").into()))
        } else {
            Err(PrincipalError { shown: printable(name) })
        }
    }

    /// The name without `agent:`.
    pub fn name(&self) -> &str {
        &self.0["agent:".len()..]
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Principal {
    type Err = PrincipalError;
    fn from_str(text: &str) -> Result<Self, PrincipalError> {
        let name = text.strip_prefix("agent:").ok_or_else(|| PrincipalError { shown: printable(text) })?;
        Self::agent(name)
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({self})")
    }
}

impl Serialize for Principal {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Principal {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_one_spelling() {
        let principal: Principal = "agent:claude-code".parse().unwrap();
        assert_eq!(principal.name(), "claude-code");
        for bad in ["claude-code", "agent:", "agent:a b", "operator:ana", "agent:a:b", "agent:\u{430}"] {
            assert!(bad.parse::<Principal>().is_err(), "{bad}");
        }
    }
}
