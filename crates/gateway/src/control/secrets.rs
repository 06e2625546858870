//! Credentials that operators keep for calls (SBX-55, SBX-56). Values come in; no operation gives one back.

use std::sync::Arc;

use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{ErrorCode, EventId, ServerIdentity, Timestamp};
use portcullis_governance::broker::grant::Grant;
use portcullis_governance::broker::vault::{Entry, Kind, LONGEST, Vault};
use portcullis_governance::broker::{Broker, CredentialClass, class_of_client_key};
use portcullis_governance::operator::OperatorProof;
use portcullis_sandbox::broker::Secret;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Serialize;
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError, GatewayOptions};

/// What recorded credentials of this kind are called.
const KIND: &str = "secret";

/// One credential, as it is listed.
#[derive(Debug, Clone, Serialize)]
pub struct SecretRow {
    /// The operator's name for it.
    pub name: String,
    /// What it is good for.
    pub class: CredentialClass,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Raised by every change of its value.
    pub version: u32,
    /// Whose tools need it.
    pub bound_servers: Vec<String>,
    /// For how many days it has had this value.
    pub age_days: u64,
}

/// Opens the vault of a gateway.
pub(super) fn broker(options: &GatewayOptions, log: &AuditLog) -> Result<Arc<Broker>, ControlError> {
    let unusable = |error: String| {
        ControlError::new(ErrorCode::ControlUnavailable, format!("the vault cannot be opened: {error}"))
    };
    // SBX-55: what is in memory stays there.
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    let _ = setrlimit(Resource::Core, nothing);
    let key = log.vault_key().map_err(|error| unusable(error.to_string()))?;
    let path = options.home.join("keys/vault.json");
    let vault = Vault::open_with(path, key, options.secrets_backend.clone())
        .map_err(|error| unusable(error.to_string()))?;
    Ok(Arc::new(Broker::new(vault, log.clone())))
}

impl Control {
    /// Keeps a credential under a new name.
    pub async fn set_secret(
        &self,
        operator: &OperatorProof,
        name: &str,
        class: &str,
        kind: Kind,
        value: Vec<u8>,
    ) -> Result<SecretRow, ControlError> {
        let value = self.offered(kind, value)?;
        if kind == Kind::Mtls
            && class.strip_prefix("mtls.").is_none_or(|server| server.parse::<ServerIdentity>().is_err())
        {
            let message = "the key that a server is shown has the class mtls.SERVER";
            return Err(ControlError::field("class", message));
        }
        let _one_at_a_time = self.state.lock().await;
        let class = self.is_new_secret(name, class)?;
        let now = self.clock.now();
        let id = EventId::new(now).to_string();
        let entry = Entry { name: name.to_owned(), class, kind, version: 1, id, stored_at: now };
        self.keep_secret(operator, entry, value.as_ref()).await
    }

    /// A value that is fit to be kept; `None` where a program knows it and none was given.
    fn offered(&self, kind: Kind, value: Vec<u8>) -> Result<Option<Secret>, ControlError> {
        let refuse = |message: &str| Err(ControlError::field("value", message));
        match (self.broker.vault().keeps_values(), value.is_empty()) {
            (false, _) if kind == Kind::Oauth2 => refuse(
                "secrets.backend is a program, which cannot keep what a login leaves; use vault-file or keyring",
            ),
            (false, true) => Ok(None),
            (false, false) => refuse(
                "secrets.backend is a program, which has the values: put this one where the program finds it, then say --kept",
            ),
            (true, true) => {
                refuse("a credential has 1 byte to 64 KiB; --kept is for a secrets.backend that is a program")
            }
            (true, false) => {
                let value = taken(value)?;
                is_of_kind(kind, &value)?;
                Ok(Some(value))
            }
        }
    }

    /// Whether there can be a new credential of this name and class.
    pub(super) fn is_new_secret(&self, name: &str, class: &str) -> Result<CredentialClass, ControlError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(ControlError::field("name", "up to 63 lowercase letters, digits, `.`, `_` and `-`"));
        }
        let class: CredentialClass =
            class.parse().map_err(|error| ControlError::field("class", format!("{error}")))?;
        let known = self.broker.vault().list();
        if known.iter().any(|entry| entry.name == name) {
            let message =
                format!("'{name}' is there already; `portcullis secret rotate {name}` changes its value");
            return Err(ControlError {
                field: Some("name".into()),
                ..ControlError::new(ErrorCode::Conflict, message)
            });
        }
        if let Some(other) = known.iter().find(|entry| entry.class == class) {
            let message = format!("'{}' has this class, and a class has one credential", other.name);
            return Err(ControlError {
                field: Some("class".into()),
                ..ControlError::new(ErrorCode::Conflict, message)
            });
        }
        Ok(class)
    }

    /// Changes the value of a credential. Leases of the old one end.
    pub async fn rotate_secret(
        &self,
        operator: &OperatorProof,
        name: &str,
        value: Vec<u8>,
    ) -> Result<SecretRow, ControlError> {
        let _one_at_a_time = self.state.lock().await;
        let before = self.stored(name)?;
        let value = self.offered(before.kind, value)?;
        let now = self.clock.now();
        let id = EventId::new(now).to_string();
        let entry = Entry { version: before.version.saturating_add(1), id, stored_at: now, ..before };
        self.keep_secret(operator, entry, value.as_ref()).await
    }

    /// Forgets a credential. Leases of it end.
    pub async fn remove_secret(
        &self,
        operator: &OperatorProof,
        name: &str,
        reason: &str,
    ) -> Result<(), ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let entry = self.stored(name)?;
        let data = json!({"class": entry.class, "kind": KIND, "name": name, "reason": one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::CredentialRemoved, &operator.actor()).data(data)])
            .await?;
        self.broker.vault().remove(name).map_err(|error| unwritable(&error))?;
        self.broker.revoke(&entry.class);
        Ok(())
    }

    /// Every credential, without its value.
    pub fn secrets(&self) -> Vec<SecretRow> {
        let now = self.clock.now();
        self.broker.vault().list().into_iter().map(|entry| self.secret_row(entry, now)).collect()
    }

    /// A text fit to be shown or recorded: without what looks like a secret, and without any credential that is kept
    /// (ADM-61).
    pub fn masked(&self, text: &str) -> String {
        self.broker.vault().masked(text)
    }

    /// A refusal in such words.
    pub fn masked_error(&self, error: &ControlError) -> ControlError {
        ControlError { message: self.masked(&error.message), ..error.clone() }
    }

    async fn keep_secret(
        &self,
        operator: &OperatorProof,
        entry: Entry,
        value: Option<&Secret>,
    ) -> Result<SecretRow, ControlError> {
        if value.is_none() {
            let known = self.broker.vault().is_known(&entry);
            known.map_err(|problem| ControlError::field("value", problem))?;
        }
        let data = json!({
            "class": entry.class, "handle": entry.id, "kind": KIND, "name": entry.name, "version": entry.version,
        });
        self.commit(operator, vec![Event::new(EventName::CredentialStored, &operator.actor()).data(data)])
            .await?;
        let kept = match value {
            Some(value) => self.broker.vault().put(&entry, value),
            None => self.broker.vault().put_known(&entry),
        };
        kept.map_err(|error| unwritable(&error))?;
        self.broker.revoke(&entry.class);
        let now = entry.stored_at;
        Ok(self.secret_row(entry, now))
    }

    pub(super) fn stored(&self, name: &str) -> Result<Entry, ControlError> {
        self.broker.vault().list().into_iter().find(|entry| entry.name == name).ok_or_else(|| {
            let shown = portcullis_core::name::printable(name);
            let message =
                format!("there is no credential {shown}; `portcullis secret list` names those there are");
            ControlError::new(ErrorCode::NotFound, message)
        })
    }

    fn secret_row(&self, entry: Entry, now: Timestamp) -> SecretRow {
        let world = self.world();
        let needs = |class: &CredentialClass| {
            let servers = world.registry().servers();
            let bound = servers.filter(|server| {
                let mut tools = server.declaration.everything();
                tools.any(|tool| tool.deliveries().iter().any(|delivery| delivery.class == *class))
                    || class_of_client_key(server.record.server_identity.as_str()).as_ref() == Some(class)
            });
            bound.map(|server| server.record.server_identity.to_string()).collect()
        };
        SecretRow {
            bound_servers: needs(&entry.class),
            name: entry.name,
            class: entry.class,
            kind: entry.kind,
            version: entry.version,
            age_days: now.since(entry.stored_at).as_secs() / 86_400,
        }
    }
}

/// Whether a value is what its kind says.
fn is_of_kind(kind: Kind, value: &Secret) -> Result<(), ControlError> {
    let has = |words: &[u8]| value.expose().windows(words.len()).any(|window| window == words);
    match kind {
        Kind::Oauth2 if Grant::read(value.expose()).is_none() => {
            Err(ControlError::field("value", "`portcullis auth login` makes credentials of this kind"))
        }
        Kind::Mtls if !(has(b"-----BEGIN CERTIFICATE-----") && has(b"PRIVATE KEY-----")) => {
            Err(ControlError::field("value", "a private key with its certificates is needed, in PEM form"))
        }
        Kind::Static | Kind::Oauth2 | Kind::Mtls => Ok(()),
    }
}

fn taken(value: Vec<u8>) -> Result<Secret, ControlError> {
    if value.is_empty() || value.len() > LONGEST {
        return Err(ControlError::field("value", "a credential has 1 byte to 64 KiB"));
    }
    Secret::take(value).map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
}

fn unwritable(error: &std::io::Error) -> ControlError {
    ControlError::new(ErrorCode::Internal, format!("the vault cannot be written: {error}"))
}
