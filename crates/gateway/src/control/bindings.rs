//! Which server may be lent which credential, where operators say more than declarations do: a credential is given the class
//! that a server declares, or is kept from one server.

use portcullis_audit::{Event, EventName};
use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_governance::broker::CredentialClass;
use portcullis_governance::operator::OperatorProof;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::kept::Document;
use super::{Control, ControlError, SecretRow};

/// A server that is not lent a credential, whatever its declaration says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Withheld {
    /// The credential's name.
    pub name: String,
    /// The server.
    pub server_id: String,
}

impl Document for Withheld {
    const KIND: &'static str = "withheld_credential";

    fn id(&self) -> String {
        format!("{}|{}", self.name, self.server_id)
    }
}

impl Control {
    /// Gives a credential the class that a server declares, and lends it to that server again if it was kept from it.
    pub async fn bind_secret(
        &self,
        operator: &OperatorProof,
        name: &str,
        server: &ServerIdentity,
        class: &str,
    ) -> Result<SecretRow, ControlError> {
        let class: CredentialClass =
            class.parse().map_err(|error| ControlError::field("credential_class", format!("{error}")))?;
        let known = self.secret_named(name)?;
        let world = self.world();
        let entry = world.registry().server(server).ok_or_else(|| ControlError::not_found(server))?;
        let declares = |tool: &std::sync::Arc<portcullis_governance::accepted::AcceptedTool>| {
            tool.deliveries().iter().any(|delivery| delivery.class == class)
        };
        if !entry.declaration.everything().any(declares) {
            let message = format!("no tool of '{server}' declares credentials of this class");
            return Err(ControlError::field("credential_class", message));
        }
        if let Some(other) = self.secrets().iter().find(|row| row.class == class && row.name != name) {
            let message = format!("'{}' has this class, and a class has one credential", other.name);
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let id = Withheld { name: name.to_owned(), server_id: server.to_string() }.id();
        if self.document::<Withheld>(&id).is_some() {
            self.unset::<Withheld>(operator, &id, |_| Ok(())).await?;
        }
        if known.class != class {
            let data = json!({
                "class": class, "kind": "credential", "name": name, "version": known.version, "was": known.class,
            });
            let event = Event::new(EventName::CredentialStored, &operator.actor()).data(data);
            self.commit(operator, vec![event]).await?;
            self.broker.vault().assign(name, &class).map_err(|error| {
                ControlError::new(ErrorCode::Internal, format!("the vault cannot be written: {error}"))
            })?;
            self.broker.revoke(&known.class);
        }
        self.secret_named(name)
    }

    /// Keeps a credential from a server. Leases of it end.
    pub async fn unbind_secret(
        &self,
        operator: &OperatorProof,
        name: &str,
        server: &ServerIdentity,
    ) -> Result<SecretRow, ControlError> {
        let known = self.secret_named(name)?;
        if self.world().registry().server(server).is_none() {
            return Err(ControlError::not_found(server));
        }
        let withheld = Withheld { name: name.to_owned(), server_id: server.to_string() };
        self.set(operator, &withheld, Some(0), Vec::new(), |_| Ok(())).await?;
        self.broker.revoke(&known.class);
        self.secret_named(name)
    }

    /// Tells the broker what it keeps from whom.
    pub(super) fn follow_withheld(&self) {
        let secrets = self.broker.vault().list();
        let all = self.documents::<Withheld>().into_iter().filter_map(|withheld| {
            let Withheld { name, server_id } = withheld.document;
            let class = secrets.iter().find(|entry| entry.name == name)?.class.clone();
            Some((server_id, class))
        });
        self.broker.withhold(all.collect());
    }

    /// Servers that a credential is kept from.
    pub fn kept_from(&self, name: &str) -> Vec<String> {
        let all = self.documents::<Withheld>().into_iter().map(|withheld| withheld.document);
        all.filter(|withheld| withheld.name == name).map(|withheld| withheld.server_id).collect()
    }

    fn secret_named(&self, name: &str) -> Result<SecretRow, ControlError> {
        self.secrets().into_iter().find(|row| row.name == name).ok_or_else(|| {
            let shown = portcullis_core::name::printable(name);
            ControlError::new(ErrorCode::NotFound, format!("there is no credential {shown}"))
        })
    }
}
