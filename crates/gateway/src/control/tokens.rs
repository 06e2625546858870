//! Tokens of operators: what their programs prove with that an operator sent them (GOV-104).
//!
//! A token is `pco_` and 256 random bits, shown once. Only its BLAKE3 hash is kept. It speaks for the operator who made
//! it, and dies with it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, Secret, Timestamp};
use portcullis_governance::operator::{Method, OperatorProof};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

/// How every token begins.
const PREFIX: &str = "pco_";
/// What tokens are called among the kept documents.
const KIND: &str = "operator_token";

/// A token as it is kept: everything but the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorToken {
    /// Its name.
    pub name: String,
    /// For whom it speaks.
    pub operator: String,
    /// BLAKE3 of the token, in hexadecimal.
    pub hash: String,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when; for ever if absent.
    pub expires_at: Option<Timestamp>,
}

impl Control {
    /// Every token, by name.
    pub fn operator_tokens(&self) -> Vec<OperatorToken> {
        let kept = self.kept(KIND).into_iter();
        kept.filter_map(|kept| serde_json::from_value(kept.document).ok()).collect()
    }

    /// Makes a token that speaks for the operator who asks. It is shown this once.
    pub async fn create_operator_token(
        &self,
        operator: &OperatorProof,
        name: &str,
        lifetime: Option<Duration>,
    ) -> Result<(Secret<String>, OperatorToken), ControlError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(ControlError::field("name", "up to 63 lowercase letters, digits, `.`, `_` and `-`"));
        }
        let random = Secret::random_key();
        let token = Secret::new(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random.expose())));
        let now = self.clock.now();
        let kept = OperatorToken {
            name: name.to_owned(),
            operator: operator.name().to_owned(),
            hash: blake3::hash(token.expose().as_bytes()).to_hex().to_string(),
            created_at: now,
            expires_at: lifetime.map(|lifetime| now.after(lifetime)),
        };
        // Expected not to be there: a name is one token, and a new one does not take a living one's place.
        let document = serde_json::to_value(&kept).expect("a token is plain JSON");
        self.keep(operator, KIND, name, document, Some(0)).await.map_err(|error| match error.code {
            ErrorCode::Conflict => {
                let message = format!("there is a token '{name}' already; revoke it first");
                ControlError { field: Some("name".into()), ..ControlError::new(ErrorCode::Conflict, message) }
            }
            _ => error,
        })?;
        Ok((token, kept))
    }

    /// Takes a token back: its next request is refused.
    pub async fn revoke_operator_token(
        &self,
        operator: &OperatorProof,
        name: &str,
        reason: &str,
    ) -> Result<(), ControlError> {
        need_reason(reason)?;
        self.forget(operator, KIND, name).await.map(drop)
    }

    /// Takes back every token of an operator who is none any more.
    pub(super) async fn revoke_tokens_of(
        &self,
        operator: &OperatorProof,
        name: &str,
    ) -> Result<(), ControlError> {
        for token in self.operator_tokens().iter().filter(|token| token.operator == name) {
            self.forget(operator, KIND, &token.name).await?;
        }
        Ok(())
    }

    /// The operator whom a token speaks for. What is presented and wrong is on record, but not more often than
    /// somebody could read.
    pub fn authenticate_token(&self, presented: &str) -> Result<OperatorProof, ControlError> {
        let now = self.clock.now();
        let hash = blake3::hash(presented.as_bytes()).to_hex().to_string();
        // Looked up by hash: how long it takes tells nothing about other tokens.
        let found = self.operator_tokens().into_iter().find(|token| token.hash == hash);
        match found.filter(|token| token.expires_at.is_none_or(|end| now < end)) {
            Some(token) => {
                self.is_enabled(&token.operator)?;
                Ok(OperatorProof::authenticated(token.operator, Method::Token, self.separation()))
            }
            None => {
                self.token_refused(now);
                Err(ControlError::new(ErrorCode::OperatorAuth, "not a token of an operator of this gateway"))
            }
        }
    }

    fn token_refused(&self, now: Timestamp) {
        let mut refusals = self.refused_tokens.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if refusals.locked(now).is_none() {
            refusals.failed(now);
            let data = json!({"method": Method::Token, "operator": one_line("")});
            let event = Event::new(EventName::OperatorAuthFailed, &Actor::system()).data(data);
            let _ = self.log.append(vec![event]);
        }
    }
}
