//! Roles of operators, and which operator has which (ADM-71). What a role shows is for the admin tools to say; here it is
//! kept, and an operator who is switched off is let in nowhere.

use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde::{Deserialize, Serialize};

use super::kept::{Document, Versioned};
use super::{Control, ControlError};
use crate::orders::Client;

/// The role that sees everything.
pub const OWNER: &str = "owner";

/// A role: names and patterns of tags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name.
    pub id: String,
    /// Tags it sees: `servers:read`, `servers:*`, `*:read`, `*`.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// Tools it sees whatever the patterns say.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Tools it does not see whatever else is said.
    #[serde(default)]
    pub deny: Vec<String>,
}

impl Document for Role {
    const KIND: &'static str = "role";

    fn id(&self) -> String {
        self.id.clone()
    }
}

/// What an operator sees, and whether it is let in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The operator's name.
    pub user_id: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// Whether it is let in.
    pub enabled: bool,
}

impl Document for User {
    const KIND: &'static str = "user";

    fn id(&self) -> String {
        self.user_id.clone()
    }
}

/// How the gateway is administered.
#[derive(Debug, Clone)]
pub struct AdminOptions {
    /// Tags of tools that take two operators (ADM-54).
    pub four_eyes: Vec<String>,
    /// How long one waits for the second.
    pub four_eyes_ttl: Duration,
    /// Operators who are somebody else, whoever enrolled them.
    pub founders: Vec<String>,
    /// Roles that the configuration names.
    pub roles: Vec<Role>,
    /// Hosts in private networks that webhooks may lead to.
    pub webhook_hosts: Vec<String>,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self {
            four_eyes: Vec::new(),
            four_eyes_ttl: Duration::from_secs(24 * 3600),
            founders: Vec::new(),
            roles: Vec::new(),
            webhook_hosts: Vec::new(),
        }
    }
}

impl Control {
    /// How the gateway is administered.
    pub fn admin_options(&self) -> &AdminOptions {
        &self.options.admin
    }

    /// Every role there is besides the owner's: what operators set takes the place of what the configuration says.
    pub fn roles(&self) -> Vec<Versioned<Role>> {
        let mut roles: Vec<Versioned<Role>> = self.documents();
        for configured in &self.options.admin.roles {
            if !roles.iter().any(|role| role.document.id == configured.id) {
                roles.push(Versioned { document: configured.clone(), version: 0 });
            }
        }
        roles.sort_by(|a, b| a.document.id.cmp(&b.document.id));
        roles
    }

    /// Sets a role.
    pub async fn set_role(
        &self,
        operator: &OperatorProof,
        role: Role,
        expected: Option<u64>,
    ) -> Result<Versioned<Role>, ControlError> {
        let version = self
            .set(operator, &role, expected, Vec::new(), |_| match role.id == OWNER {
                true => Err(ControlError::field("role_id", "the owner's role is built in")),
                false => Ok(()),
            })
            .await?;
        Ok(Versioned { document: role, version })
    }

    /// Removes a role that operators set; nobody may have it.
    pub async fn remove_role(&self, operator: &OperatorProof, id: &str) -> Result<(), ControlError> {
        let conflict = |message: String| Err(ControlError::new(ErrorCode::Conflict, message));
        self.unset::<Role>(operator, id, |control| {
            if id == OWNER {
                return conflict("the owner's role is built in".into());
            }
            let users: Vec<Versioned<User>> = control.documents();
            let has = users.iter().find(|user| user.document.roles.iter().any(|role| role == id));
            let clients: Vec<Versioned<Client>> = control.documents();
            let client = clients.iter().find(|client| client.document.roles.iter().any(|role| role == id));
            match (has, client) {
                (Some(user), _) => conflict(format!("operator {} has this role", user.document.user_id)),
                (_, Some(client)) => conflict(format!("client {} has this role", client.document.client_id)),
                (None, None) => Ok(()),
            }
        })
        .await
    }

    /// Gives an operator its roles, or switches it off.
    pub async fn set_user(
        &self,
        operator: &OperatorProof,
        user: User,
        expected: Option<u64>,
    ) -> Result<Versioned<User>, ControlError> {
        let version = self
            .set(operator, &user, expected, Vec::new(), |control| {
                control.are_roles(&user.roles)?;
                let owns = user.enabled && user.roles.iter().any(|role| role == OWNER);
                if !owns && control.owners(operator.name()).iter().all(|owner| *owner == user.user_id) {
                    let message = "nobody would be left who sees everything";
                    return Err(ControlError::new(ErrorCode::Conflict, message));
                }
                Ok(())
            })
            .await?;
        Ok(Versioned { document: user, version })
    }

    /// Whether there are such roles.
    pub(super) fn are_roles(&self, roles: &[String]) -> Result<(), ControlError> {
        let known: Vec<String> = self.roles().into_iter().map(|role| role.document.id).collect();
        match roles.iter().find(|role| *role != OWNER && !known.contains(role)) {
            Some(unknown) => {
                let shown = portcullis_core::name::printable(unknown);
                Err(ControlError::field("roles", format!("there is no role {shown}")))
            }
            None => Ok(()),
        }
    }

    /// Who sees everything: enrolled operators, and the one who asks, unless something else is said of them.
    pub fn owners(&self, asking: &str) -> Vec<String> {
        let mut names: Vec<String> = self.operators().into_iter().map(|enrolled| enrolled.name).collect();
        names.push(asking.to_owned());
        names.extend(self.documents::<User>().into_iter().map(|user| user.document.user_id));
        names.sort();
        names.dedup();
        names.retain(|name| match self.document::<User>(name) {
            Some(user) => user.document.enabled && user.document.roles.iter().any(|role| role == OWNER),
            None => true,
        });
        names
    }

    /// Whether an operator is let in.
    pub(super) fn is_enabled(&self, name: &str) -> Result<(), ControlError> {
        match self.document::<User>(name) {
            Some(user) if !user.document.enabled => {
                Err(ControlError::new(ErrorCode::OperatorAuth, "this operator is switched off"))
            }
            _ => Ok(()),
        }
    }
}
