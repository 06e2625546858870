//! The credential broker: values for calls that were permitted, for as long as they last (SBX §8).
//!
//! Everything else sees a [`CredentialHandle`]. A value leaves the [`vault`] only as a [`Lease`], a lease only for a
//! [`ValidatedPermit`] whose tool declares the class; since there is no such permit before its intent is durable, no value
//! moves that is not on record. The lease ends with the call, and that is on record too.

pub mod backend;
pub mod grant;
pub mod vault;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_core::{Actor, PermitId, Timestamp};
use portcullis_sandbox::broker::Secret;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::boundary::ValidatedPermit;
use crate::declaration::{Scope, Via};
use grant::Grant;
use vault::{Kind, Vault};

/// What a credential is good for, in an operator's words: `issues.read`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CredentialClass(String);

/// The text is not a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a credential class is up to 63 lowercase letters, digits, `.`, `_` and `-`, and begins with a letter"
)]
pub struct BadClass;

impl CredentialClass {
    /// The class as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for CredentialClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for CredentialClass {
    type Err = BadClass;
    fn from_str(text: &str) -> Result<Self, BadClass> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        let fits = text.len() <= 63
            && text.bytes().all(plain)
            && text.bytes().next().is_some_and(|first| first.is_ascii_lowercase());
        if fits { Ok(Self(text.to_owned())) } else { Err(BadClass) }
    }
}

impl TryFrom<String> for CredentialClass {
    type Error = BadClass;
    fn try_from(text: String) -> Result<Self, BadClass> {
        text.parse()
    }
}

impl From<CredentialClass> for String {
    fn from(class: CredentialClass) -> String {
        class.0
    }
}

/// How a credential reaches a server during a call, as its declaration says (SBX-52).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// What is needed.
    pub class: CredentialClass,
    /// How it travels.
    pub via: Via,
    /// The variable, header or file.
    pub name: String,
    /// The scope of the host it may travel to.
    pub toward: Option<String>,
    /// What it looks like.
    pub format: Option<String>,
    /// Where in a request a placeholder is replaced.
    pub within: Vec<String>,
}

impl Delivery {
    /// What a scope of kind `secret` says; `None` for other scopes, and for one that breaks the rules.
    pub(crate) fn of(scope: &Scope) -> Option<Self> {
        Some(Self {
            class: scope.credential_class.as_deref()?.parse().ok()?,
            via: scope.via?,
            name: scope.name.clone()?,
            toward: scope.toward.as_ref().map(ToString::to_string),
            format: scope.format.clone(),
            within: scope.within.clone().unwrap_or_else(|| vec!["header".into()]),
        })
    }
}

/// Under what class the key is kept that a server is shown.
pub fn class_of_client_key(server: &str) -> Option<CredentialClass> {
    format!("mtls.{server}").parse().ok()
}

/// What everything but the last hop sees of a credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialHandle {
    /// Which one; another one after each change of its value.
    pub id: String,
    /// What it is good for.
    pub class: CredentialClass,
    /// Raised by every change of its value.
    pub version: u32,
}

/// Why a call is given no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialDenied {
    /// The permit does not list the class.
    #[error("the call's permit does not list credentials of class {0}")]
    NotPermitted(CredentialClass),
    /// Nobody stored one.
    #[error("no credential of class {0} is stored; `portcullis secret set NAME --class {0}` stores one")]
    Missing(CredentialClass),
    /// It is stored, but cannot be had.
    #[error("the credential of class {class} cannot be used: {reason}")]
    Unusable {
        /// Of which class.
        class: CredentialClass,
        /// Why, without its value.
        reason: String,
    },
}

/// Hands out leases.
#[derive(Debug)]
pub struct Broker {
    vault: Vault,
    log: AuditLog,
    /// Leases under way, to be ended when their credential is changed.
    under_way: Mutex<HashMap<CredentialClass, Vec<Weak<Standing>>>>,
    /// What is kept from which server, by operators.
    withheld: RwLock<HashSet<(String, CredentialClass)>>,
}

#[derive(Debug)]
struct Standing {
    revoked: AtomicBool,
}

impl Broker {
    /// A broker of what is in `vault`; leases go on record in `log`.
    pub fn new(vault: Vault, log: AuditLog) -> Self {
        Self { vault, log, under_way: Mutex::default(), withheld: RwLock::default() }
    }

    /// What is stored, without any value.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// A credential for one call. It takes a permit that passed the boundary:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use portcullis_governance::boundary::ValidatedPermit;
    /// use portcullis_governance::broker::{Broker, CredentialClass, CredentialDenied, Lease};
    /// fn during(broker: &Arc<Broker>, permit: &ValidatedPermit, class: &CredentialClass) -> Result<Lease, CredentialDenied> {
    ///     broker.lease(permit, class)
    /// }
    /// ```
    ///
    /// and nothing less, neither a permit before the boundary nor the class alone (GOV-1602):
    ///
    /// ```compile_fail,E0308
    /// use std::sync::Arc;
    /// use portcullis_governance::broker::{Broker, CredentialClass, CredentialDenied, Lease};
    /// use portcullis_governance::permit::Permit;
    /// fn before(broker: &Arc<Broker>, permit: &Permit, class: &CredentialClass) -> Result<Lease, CredentialDenied> {
    ///     broker.lease(permit, class)
    /// }
    /// ```
    ///
    /// ```compile_fail,E0624
    /// use portcullis_governance::broker::{Broker, CredentialClass};
    /// fn around(broker: &Broker, class: &CredentialClass) {
    ///     let _ = broker.vault().unseal(class);
    /// }
    /// ```
    pub fn lease(
        self: &Arc<Self>,
        permit: &ValidatedPermit,
        class: &CredentialClass,
    ) -> Result<Lease, CredentialDenied> {
        let permit_id = permit.permit_id();
        let found = if self.is_withheld(permit.server().as_str(), class) {
            let reason = "an operator keeps it from this server".to_owned();
            Err(CredentialDenied::Unusable { class: class.clone(), reason })
        } else if self.vault.kind(class) == Some(Kind::Mtls) {
            let reason = "it is a key of the gateway's own, which no call is lent".to_owned();
            Err(CredentialDenied::Unusable { class: class.clone(), reason })
        } else if permit.credentials().iter().any(|delivery| delivery.class == *class) {
            self.vault.unseal(class)
        } else {
            Err(CredentialDenied::NotPermitted(class.clone()))
        };
        let system = Actor::system();
        let (handle, secret) = found.inspect_err(|denied| {
            let data = json!({"class": class, "permit_id": permit_id, "reason": denied.to_string()});
            let _ = self.log.append(vec![Event::new(EventName::CredentialDenied, &system).data(data)]);
        })?;
        let data = json!({"class": class, "handle": handle, "permit_id": permit_id});
        // If it cannot go on record it does not move: the result could not either.
        let leased = self.log.append(vec![Event::new(EventName::CredentialLeased, &system).data(data)]);
        if let Err(blocked) = leased {
            return Err(CredentialDenied::Unusable { class: class.clone(), reason: blocked.to_string() });
        }
        let standing = Arc::new(Standing { revoked: AtomicBool::new(false) });
        let mut under_way = self.under_way();
        let of_class = under_way.entry(class.clone()).or_default();
        of_class.retain(|standing| standing.strong_count() > 0);
        of_class.push(Arc::downgrade(&standing));
        drop(under_way);
        Ok(Lease { handle, permit_id, secret: Arc::new(secret), standing, broker: Arc::clone(self) })
    }

    /// The gateway's own grant at a server's issuer, with which version of it this is. That it is taken out goes on record
    /// first; it is for the connection, and no call can name it.
    pub fn grant(&self, server: &str) -> Result<(CredentialHandle, Grant), CredentialDenied> {
        let class = self.class_of_grant(server)?;
        let unusable =
            |reason: &str| CredentialDenied::Unusable { class: class.clone(), reason: reason.into() };
        let (handle, secret) = self.vault.unseal(&class)?;
        let grant = Grant::read(secret.expose()).ok_or_else(|| unusable("it is not what a login leaves"))?;
        let data = json!({"class": class, "handle": handle, "server": server});
        let leased =
            self.log.append(vec![Event::new(EventName::CredentialLeased, &Actor::system()).data(data)]);
        leased.map_err(|blocked| unusable(&blocked.to_string()))?;
        Ok((handle, grant))
    }

    /// The key and the certificate with which the gateway proves to a server who it is, if an operator keeps some for it
    /// (SBX-55). That they are taken out goes on record first; they are for the connection, and no call can name them.
    pub fn client_key(&self, server: &str) -> Result<Option<Secret>, CredentialDenied> {
        let Some(class) = class_of_client_key(server) else { return Ok(None) };
        if self.vault.kind(&class) != Some(Kind::Mtls) {
            return Ok(None);
        }
        let (handle, secret) = self.vault.unseal(&class)?;
        let data = json!({"class": class, "handle": handle, "server": server});
        let leased =
            self.log.append(vec![Event::new(EventName::CredentialLeased, &Actor::system()).data(data)]);
        leased.map_err(|blocked| CredentialDenied::Unusable { class, reason: blocked.to_string() })?;
        Ok(Some(secret))
    }

    /// Which version of a server's grant there is, if there is one.
    pub fn grant_handle(&self, server: &str) -> Option<CredentialHandle> {
        let class = Grant::class_of(server)?;
        self.vault.handle(&class)
    }

    /// Keeps a grant that was renewed. What was there before is gone: an issuer that rotates tokens takes none twice.
    pub fn renewed(
        &self,
        server: &str,
        grant: &Grant,
        now: Timestamp,
    ) -> Result<CredentialHandle, CredentialDenied> {
        let class = self.class_of_grant(server)?;
        let unusable = |reason: String| CredentialDenied::Unusable { class: class.clone(), reason };
        let found = self.vault.list().into_iter().find(|entry| entry.class == class);
        let before = found.ok_or_else(|| CredentialDenied::Missing(class.clone()))?;
        let id = portcullis_core::EventId::new(now).to_string();
        let entry = vault::Entry { version: before.version.saturating_add(1), id, stored_at: now, ..before };
        let data = json!({
            "class": class, "handle": entry.id, "kind": "oauth2", "name": entry.name, "version": entry.version,
        });
        let stored =
            self.log.append(vec![Event::new(EventName::CredentialStored, &Actor::system()).data(data)]);
        stored.map_err(|blocked| unusable(blocked.to_string()))?;
        let secret = Secret::take(grant.written()).map_err(|error| unusable(error.to_string()))?;
        self.vault.put(&entry, &secret).map_err(|error| unusable(error.to_string()))?;
        Ok(CredentialHandle { id: entry.id, class: entry.class, version: entry.version })
    }

    fn class_of_grant(&self, server: &str) -> Result<CredentialClass, CredentialDenied> {
        let fallback = || "oauth".parse::<CredentialClass>().expect("a class");
        Grant::class_of(server).ok_or_else(|| CredentialDenied::Missing(fallback()))
    }

    /// Keeps these classes from these servers, and no others.
    pub fn withhold(&self, withheld: HashSet<(String, CredentialClass)>) {
        *self.withheld.write().unwrap_or_else(PoisonError::into_inner) = withheld;
    }

    fn is_withheld(&self, server: &str, class: &CredentialClass) -> bool {
        let withheld = self.withheld.read().unwrap_or_else(PoisonError::into_inner);
        !withheld.is_empty() && withheld.contains(&(server.to_owned(), class.clone()))
    }

    /// Ends all leases of a class: its credential was changed or taken away.
    pub fn revoke(&self, class: &CredentialClass) {
        for standing in self.under_way().remove(class).into_iter().flatten() {
            if let Some(standing) = standing.upgrade() {
                standing.revoked.store(true, Ordering::Release);
            }
        }
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<CredentialClass, Vec<Weak<Standing>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A credential for the time of one call. Dropping it ends it.
pub struct Lease {
    handle: CredentialHandle,
    permit_id: PermitId,
    secret: Arc<Secret>,
    standing: Arc<Standing>,
    broker: Arc<Broker>,
}

impl Lease {
    /// Which credential it is.
    pub fn handle(&self) -> &CredentialHandle {
        &self.handle
    }

    /// The value, unless an operator took it away meanwhile.
    pub fn secret(&self) -> Option<&Arc<Secret>> {
        (!self.standing.revoked.load(Ordering::Acquire)).then_some(&self.secret)
    }

    /// The value to look for in what comes back, also after it was taken away.
    pub fn to_look_for(&self) -> &Arc<Secret> {
        &self.secret
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("handle", &self.handle).finish_non_exhaustive()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let data = json!({"class": self.handle.class, "handle": self.handle, "permit_id": self.permit_id});
        let event = Event::new(EventName::CredentialReleased, &Actor::system()).data(data);
        let _ = self.broker.log.append(vec![event]);
    }
}

#[cfg(test)]
#[path = "broker_tests.rs"]
mod tests;
