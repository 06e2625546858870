//! Who asks, as the channel recognised it (ADM-70). Arguments never say who asks.

use portcullis_core::Principal;
use portcullis_core::name::has_visible_character;
use portcullis_governance::operator::{Method, OperatorProof};
use schemars::JsonSchema;
use serde::Serialize;

/// Which door a call came through (ADM-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Operators, authenticated as GOV-104 says: their socket, their listener, their commands.
    Operator,
    /// Agents: the MCP edge. Nothing that changes anything exists here.
    Agent,
}

impl Channel {
    /// The word in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Channel::Operator => "operator",
            Channel::Agent => "agent",
        }
    }
}

/// What kind of party asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A person with authority over the gateway, or a program with a token of one.
    Operator,
    /// An MCP client.
    Client,
    /// The gateway itself.
    System,
}

/// Who asks.
#[derive(Debug, Clone)]
pub struct Actor {
    id: String,
    name: Option<String>,
    kind: ActorKind,
    channel: Channel,
    auth_method: &'static str,
    proof: Option<OperatorProof>,
    /// Whether it is the gateway's own user, at its own machine.
    here: bool,
}

/// What anybody may know of an actor.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ActorRecord {
    /// Its id.
    pub id: String,
    /// What it is called, if otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is.
    pub kind: ActorKind,
    /// The door it came through.
    pub channel: Channel,
    /// How it was recognised.
    pub auth_method: String,
}

impl Actor {
    /// An operator whom the operator channel has authenticated.
    pub fn operator(proof: OperatorProof) -> Self {
        Self {
            id: proof.name().to_owned(),
            name: None,
            kind: ActorKind::Operator,
            channel: Channel::Operator,
            auth_method: method(proof.method()),
            proof: Some(proof),
            here: false,
        }
    }

    /// The same at the gateway's own socket, or in its own process: the user it runs as, whose files are its files.
    pub fn operator_here(proof: OperatorProof) -> Self {
        Self { here: true, ..Self::operator(proof) }
    }

    /// An agent, as the MCP edge knows it.
    pub fn client(principal: &Principal) -> Self {
        Self {
            id: principal.to_string(),
            name: None,
            kind: ActorKind::Client,
            channel: Channel::Agent,
            auth_method: "edge",
            proof: None,
            here: false,
        }
    }

    /// The id, or the name where the id is blank; `None` where nobody could say who it was (ADM-50).
    pub fn usable_id(&self) -> Option<&str> {
        [Some(self.id.as_str()), self.name.as_deref()]
            .into_iter()
            .flatten()
            .find(|text| has_visible_character(text))
    }

    /// The id as it was given.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The door it came through.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// A text for logs, whoever it is.
    pub fn label(actor: Option<&Actor>) -> &str {
        actor.and_then(Actor::usable_id).unwrap_or("mcp-anonymous")
    }

    /// What anybody may know of it.
    pub fn record(&self) -> ActorRecord {
        ActorRecord {
            id: self.id.clone(),
            name: self.name.clone(),
            kind: self.kind,
            channel: self.channel,
            auth_method: self.auth_method.to_owned(),
        }
    }

    /// Whether it may name files of the gateway's machine.
    pub(crate) fn is_here(&self) -> bool {
        self.here
    }

    pub(crate) fn proof(&self) -> Option<&OperatorProof> {
        self.proof.as_ref()
    }
}

fn method(method: Method) -> &'static str {
    match method {
        Method::Uid => "uid",
        Method::Passphrase => "passphrase",
        Method::SshAgent => "ssh-agent",
        Method::Webauthn => "webauthn",
        Method::Token => "token",
        Method::Local => "local",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_governance::operator::Separation;

    #[test]
    fn a_blank_id_identifies_nobody() {
        // ADM-50, SO-11
        let actor =
            |id: &str| Actor::operator(OperatorProof::authenticated(id, Method::Uid, Separation::SameUid));
        assert_eq!(actor("ada").usable_id(), Some("ada"));
        assert_eq!(actor("  \u{200b}").usable_id(), None);
        let named = Actor { name: Some("Ada".into()), ..actor(" ") };
        assert_eq!(named.usable_id(), Some("Ada"));
        assert_eq!(Actor::label(None), "mcp-anonymous");
    }
}
