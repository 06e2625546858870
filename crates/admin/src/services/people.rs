//! Operators, and the roles that say what each sees.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_gateway::control::{Enrolled, Enrolment, OWNER, OperatorToken, Passkey, User};
use portcullis_gateway::{Control, ControlError};
use portcullis_governance::operator::ssh::PublicKey;
use portcullis_governance::operator::webauthn::CredentialId;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::CaptureRecord;
use crate::error::{AdminError, Violation};
use crate::grant::Op;
use crate::roles::{self, Role};

/// A role.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RoleRecord {
    /// Its name.
    pub role_id: String,
    /// Tags it sees.
    pub patterns: Vec<String>,
    /// Tools it sees besides.
    pub allow: Vec<String>,
    /// Tools it does not see even so.
    pub deny: Vec<String>,
    /// How often it was set; 0 if it is built in or configured.
    pub version: u64,
}

/// An operator.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UserRecord {
    /// Its name.
    pub user_id: String,
    /// Its roles.
    pub roles: Vec<String>,
    /// Whether it is let in.
    pub enabled: bool,
    /// Since when it has a passphrase or key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrolled_at: Option<String>,
    /// The keys that it uses in the browser.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passkeys: Vec<PasskeyRecord>,
    /// Who enrolled it, and so counts as the same person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrolled_by: Option<String>,
    /// Who says that it is somebody else all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vouched_by: Option<String>,
    /// What it proves itself with, as it is on record: never a secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrolment: Option<Value>,
    /// How many tokens it has.
    pub tokens: usize,
    /// How often its roles were set.
    pub version: u64,
}

/// A key that an operator uses in the browser.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PasskeyRecord {
    /// Its id.
    pub id: String,
    /// What its operator calls it.
    pub label: String,
    /// Since when.
    pub added_at: String,
}

/// An operator who is enrolled, or whose passphrase or passkey is expected.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct EnrolledRecord {
    /// Its name.
    pub user_id: String,
    /// Since when, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enrolled_at: Option<String>,
    /// Where its passphrase is given, or the link for its passkey is fetched.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureRecord>,
}

/// A token of an operator, without the token.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TokenRecord {
    /// Its name.
    pub name: String,
    /// For whom it speaks.
    pub operator: String,
    /// Since when.
    pub created_at: String,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A new token, which waits to be fetched.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CreatedToken {
    /// It.
    #[serde(flatten)]
    pub token: TokenRecord,
    /// The token itself.
    #[serde(flatten)]
    pub capture: CaptureRecord,
}

/// Operators and roles.
#[derive(Debug, Clone)]
pub struct PeopleService {
    control: Arc<Control>,
}

impl PeopleService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every role, by name.
    pub fn roles(&self) -> Vec<RoleRecord> {
        let mut rows: Vec<RoleRecord> =
            self.control.roles().into_iter().map(|role| role_record(role.document, role.version)).collect();
        rows.push(role_record(roles::owner(), 0));
        rows.sort_by(|a, b| a.role_id.cmp(&b.role_id));
        rows
    }

    /// Sets a role.
    pub async fn put_role(
        &self,
        op: &Op,
        role: Role,
        expected: Option<u64>,
    ) -> Result<RoleRecord, AdminError> {
        let set = self.control.set_role(op.operator(), role, expected).await?;
        Ok(role_record(set.document, set.version))
    }

    /// Removes a role.
    pub async fn delete_role(&self, op: &Op, id: &str) -> Result<(), AdminError> {
        Ok(self.control.remove_role(op.operator(), id).await?)
    }

    /// Operators who are enrolled or of whom something is set, by name.
    pub fn users(&self) -> Vec<UserRecord> {
        let tokens = self.control.operator_tokens();
        let enrolled = self.control.operators();
        let set = self.control.documents::<User>();
        let mut names: Vec<String> = enrolled.iter().map(|operator| operator.name.clone()).collect();
        names.extend(set.iter().map(|user| user.document.user_id.clone()));
        names.sort();
        names.dedup();
        let record = |name: String| {
            let known = set.iter().find(|user| user.document.user_id == name);
            let operator = enrolled.iter().find(|operator| operator.name == name);
            UserRecord {
                roles: known.map_or_else(|| vec![OWNER.to_owned()], |user| user.document.roles.clone()),
                enabled: known.is_none_or(|user| user.document.enabled),
                enrolled_at: operator.map(|operator| operator.enrolled_at.to_string()),
                passkeys: operator.map(passkeys).unwrap_or_default(),
                enrolled_by: operator.and_then(|operator| operator.enrolled_by.clone()),
                vouched_by: operator.and_then(|operator| operator.vouched_by.clone()),
                enrolment: operator.and_then(|operator| serde_json::to_value(operator).ok()),
                tokens: tokens.iter().filter(|token| token.operator == name).count(),
                version: known.map_or(0, |user| user.version),
                user_id: name,
            }
        };
        names.into_iter().map(record).collect()
    }

    /// Gives an operator its roles, or switches it off. Nobody does that to itself.
    pub async fn put_user(
        &self,
        op: &Op,
        user: User,
        expected: Option<u64>,
    ) -> Result<UserRecord, AdminError> {
        if user.user_id == op.operator().name() {
            return Err(AdminError::guardrail(Violation::SelfApproval));
        }
        let id = user.user_id.clone();
        self.control.set_user(op.operator(), user, expected).await?;
        self.user(&id)
    }

    fn user(&self, id: &str) -> Result<UserRecord, AdminError> {
        let found = self.users().into_iter().find(|row| row.user_id == id);
        found.ok_or_else(|| AdminError::conflict("somebody removed this operator meanwhile"))
    }

    /// Enrols an operator with a key.
    pub async fn enrol_key(&self, op: &Op, id: &str, key: PublicKey) -> Result<EnrolledRecord, AdminError> {
        let enrolled = self.control.enrol(op.operator(), id, Enrolment::SshKey(key), op.agreed()).await?;
        let enrolled_at = Some(enrolled.enrolled_at.to_string());
        Ok(EnrolledRecord { user_id: enrolled.name, enrolled_at, capture: None })
    }

    /// Expects the passphrase of an operator past the tools, who is enrolled when it comes.
    pub fn expect_passphrase(&self, op: &Op, id: &str) -> Result<EnrolledRecord, AdminError> {
        let expected = self.control.expect_passphrase(op.operator(), id, op.agreed())?;
        let capture = CaptureRecord::of(&self.control, expected);
        Ok(EnrolledRecord { user_id: id.to_owned(), enrolled_at: None, capture: Some(capture) })
    }

    /// Makes a link by which an operator enrols a passkey. It is fetched past the tools.
    pub fn invite_passkey(&self, op: &Op, id: &str) -> Result<EnrolledRecord, AdminError> {
        let link = self.control.invite_passkey(op.operator(), id, op.agreed())?;
        let capture = CaptureRecord::of(&self.control, self.control.hand_over(op.operator(), link));
        Ok(EnrolledRecord { user_id: id.to_owned(), enrolled_at: None, capture: Some(capture) })
    }

    /// Removes one passkey of an operator.
    pub async fn remove_passkey(
        &self,
        op: &Op,
        id: &str,
        passkey: &CredentialId,
    ) -> Result<UserRecord, AdminError> {
        self.control.remove_passkey(op.operator(), id, passkey, op.reason()).await?;
        self.user(id)
    }

    /// Says that an operator is somebody else than who enrolled it. Nobody says so of itself, or of whom it enrolled.
    pub async fn vouch(&self, op: &Op, id: &str) -> Result<UserRecord, AdminError> {
        let vouched = self.control.vouch(op.operator(), id).await;
        vouched.map_err(|error| match error.code {
            ErrorCode::PolicyDenied => AdminError::guardrail(Violation::SelfApproval),
            _ => error.into(),
        })?;
        self.user(id)
    }

    /// Every token, by name.
    pub fn tokens(&self) -> Vec<TokenRecord> {
        self.control.operator_tokens().into_iter().map(token_record).collect()
    }

    /// Makes a token that speaks for the operator who asks.
    pub async fn create_token(
        &self,
        op: &Op,
        name: &str,
        lifetime: Option<Duration>,
    ) -> Result<CreatedToken, AdminError> {
        let (secret, kept) = self.control.create_operator_token(op.operator(), name, lifetime).await?;
        let capture = CaptureRecord::of(&self.control, self.control.hand_over(op.operator(), secret));
        Ok(CreatedToken { token: token_record(kept), capture })
    }

    /// Takes a token back.
    pub async fn revoke_token(&self, op: &Op, name: &str) -> Result<(), AdminError> {
        Ok(self.control.revoke_operator_token(op.operator(), name, op.reason()).await?)
    }

    /// Removes an operator, with its tokens and roles.
    pub async fn delete_user(&self, op: &Op, id: &str) -> Result<(), AdminError> {
        let removed = self.control.remove_operator(op.operator(), id, op.reason()).await;
        match self.control.document::<User>(id) {
            // Who was never enrolled can still have roles.
            Some(_) => {
                if let Err(error) = removed
                    && error.code != ErrorCode::NotFound
                {
                    return Err(error.into());
                }
                let asking = op.operator().name();
                let removed = self.control.unset::<User>(op.operator(), id, |control| {
                    match control.owners(asking).iter().all(|owner| owner == id) {
                        true => Err(ControlError::new(
                            ErrorCode::Conflict,
                            "nobody would be left who sees everything",
                        )),
                        false => Ok(()),
                    }
                });
                Ok(removed.await?)
            }
            None => Ok(removed?),
        }
    }
}

fn passkeys(operator: &Enrolled) -> Vec<PasskeyRecord> {
    let record = |key: &Passkey| {
        let (id, label) = (key.id.as_str().to_owned(), key.label.clone());
        PasskeyRecord { id, label, added_at: key.added_at.to_string() }
    };
    operator.passkeys.iter().map(record).collect()
}

fn token_record(token: OperatorToken) -> TokenRecord {
    let OperatorToken { name, operator, created_at, expires_at, .. } = token;
    let (created_at, expires_at) = (created_at.to_string(), expires_at.map(|end| end.to_string()));
    TokenRecord { name, operator, created_at, expires_at }
}

fn role_record(role: Role, version: u64) -> RoleRecord {
    let Role { id, patterns, allow, deny } = role;
    RoleRecord { role_id: id, patterns, allow, deny, version }
}
