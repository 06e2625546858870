//! Operators' passkeys (GOV-104): enrolled by a link that is good once, used in the console, removed one by one.
//!
//! Public halves are on record with their operator. What changes with each use, the count that some keys keep, lies in a
//! file of the keys folder; where that is gone, the count at enrolment holds.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_audit::{Event, EventName};
use portcullis_core::digest::to_hex;
use portcullis_core::error::one_line;
use portcullis_core::{ErrorCode, Secret, Sha256Digest, Timestamp};
use portcullis_governance::operator::webauthn::{
    Assertion, CredentialId, Expected, PasskeyKey, Registration, RelyingParty, counted_on,
};
use portcullis_governance::operator::{Method, OperatorProof};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use url::Url;

use super::operators::{Enrolled, Enrolment, write};
use super::registration::need_reason;
use super::{Control, ControlError};

/// How long a link is good for.
const LIFE: Duration = Duration::from_secs(15 * 60);
/// Keys of one operator at most.
const MOST: usize = 16;
/// Links that wait at most; the oldest goes first.
const MOST_LINKS: usize = 1000;

/// A key that an operator uses in the browser, as it is recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Passkey {
    /// The name that the authenticator gave it.
    pub id: CredentialId,
    /// What its operator calls it.
    pub label: String,
    /// The public half.
    pub key: PasskeyKey,
    /// How often it had signed when it was enrolled.
    pub counter: u32,
    /// The host that browsers bind it to.
    pub rp_id: String,
    /// Since when.
    pub added_at: Timestamp,
}

/// Who may enrol a passkey by a link.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The operator, who is enrolled by it if it is not yet.
    pub operator: String,
    asked_by: OperatorProof,
    agreed: Option<String>,
    until: Timestamp,
}

/// Links that wait, by the digest of what is secret in them.
#[derive(Debug, Default)]
pub(crate) struct Invitations(Mutex<HashMap<Sha256Digest, Invitation>>);

impl Invitations {
    fn lock(&self) -> MutexGuard<'_, HashMap<Sha256Digest, Invitation>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Where passkeys of this gateway are used.
    pub fn relying_party(&self) -> Result<RelyingParty, ControlError> {
        let missing = |message: &str| ControlError::new(ErrorCode::Conflict, message);
        if !self.takes(Method::Webauthn) {
            return Err(missing("operator.auth does not name webauthn"));
        }
        let Some(console) = self.options.console.as_deref().and_then(|console| Url::parse(console).ok())
        else {
            return Err(missing(
                "security keys are used in the console: start the gateway first (portcullis serve)",
            ));
        };
        RelyingParty::of(&console).map_err(|problem| missing(&format!("operator.url: {problem}")))
    }

    /// A link by which an operator, known or new, enrols a passkey. Whoever has it can, once; so it is handed over past the
    /// tools. `agreed`: who else wanted it.
    pub fn invite_passkey(
        &self,
        operator: &OperatorProof,
        name: &str,
        agreed: Option<&str>,
    ) -> Result<Secret<String>, ControlError> {
        super::operators::is_name(name)?;
        let party = self.relying_party()?;
        let token = to_hex(&rand::rng().random::<[u8; 32]>());
        let now = self.clock.now();
        let invitation = Invitation {
            operator: name.to_owned(),
            asked_by: operator.clone(),
            agreed: agreed.map(str::to_owned),
            until: now.after(LIFE),
        };
        let mut waiting = self.invitations.lock();
        waiting.retain(|_, invitation| invitation.until > now);
        if waiting.len() >= MOST_LINKS {
            let oldest = waiting.iter().min_by_key(|(_, invitation)| invitation.until).map(|(key, _)| *key);
            oldest.map(|key| waiting.remove(&key));
        }
        waiting.insert(Sha256Digest::of(token.as_bytes()), invitation);
        // Behind the `#`, which browsers keep to themselves.
        Ok(Secret::new(format!("{}/enrol#{token}", party.origin)))
    }

    /// Links for an operator who is gone are good for nothing, and so are those that it asked for.
    pub(super) fn withdraw_invitations_of(&self, name: &str) {
        let mut waiting = self.invitations.lock();
        waiting.retain(|_, invitation| invitation.operator != name && invitation.asked_by.name() != name);
    }

    /// Whom a link is for, if it is still good.
    pub fn invited(&self, token: &str) -> Result<Invitation, ControlError> {
        let now = self.clock.now();
        let found = self.invitations.lock().get(&Sha256Digest::of(token.as_bytes())).cloned();
        found.filter(|invitation| invitation.until > now).ok_or_else(|| {
            let message = "this link was used, or its time is over; ask for another one";
            ControlError::new(ErrorCode::NotFound, message)
        })
    }

    /// What a key that is made by a link must sign.
    pub fn enrolment_challenge(token: &str) -> Sha256Digest {
        Sha256Digest::of(format!("portcullis/passkey-enrolment-v1\n{token}").as_bytes())
    }

    /// Enrols the key that was made by a link, which is good for nothing afterwards.
    pub async fn enrol_passkey(
        &self,
        token: &str,
        label: &str,
        registration: &Registration,
    ) -> Result<Enrolled, ControlError> {
        let party = self.relying_party()?;
        let Invitation { operator, .. } = self.invited(token)?;
        self.is_open(&operator, Method::Webauthn)?;
        let expected = Expected { party: party.clone(), challenge: Self::enrolment_challenge(token) };
        let made = registration.verified(&expected);
        let made = made.map_err(|problem| self.failed(&operator, Method::Webauthn, problem))?;
        // Of two who use one link at once, one comes too late.
        let taken = self.invitations.lock().remove(&Sha256Digest::of(token.as_bytes()));
        let Some(Invitation { operator, asked_by, agreed, .. }) = taken else {
            return Err(ControlError::new(ErrorCode::NotFound, "this link was used"));
        };
        self.is_enabled(asked_by.name())?;
        let label: String = one_line(label).trim().chars().take(60).collect();
        let label = if label.is_empty() { "security key".to_owned() } else { label };
        let added_at = self.clock.now();
        let passkey =
            Passkey { id: made.id, label, key: made.key, counter: made.counter, rp_id: party.id, added_at };
        self.enrol(&asked_by, &operator, Enrolment::Passkey(passkey), agreed.as_deref()).await
    }

    /// Whether a key can be enrolled beside those that `known` has.
    pub(super) fn is_new_passkey(
        &self,
        known: Option<&Enrolled>,
        passkey: &Passkey,
    ) -> Result<(), ControlError> {
        if self.operators().iter().any(|other| other.passkeys.iter().any(|key| key.id == passkey.id)) {
            return Err(ControlError::new(ErrorCode::Conflict, "this key is enrolled already"));
        }
        if known.is_some_and(|known| known.passkeys.len() >= MOST) {
            let message = format!("an operator has at most {MOST} keys; remove one first");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        Ok(())
    }

    /// Removes one key of an operator, with which nothing is done any more.
    pub async fn remove_passkey(
        &self,
        operator: &OperatorProof,
        name: &str,
        id: &CredentialId,
        reason: &str,
    ) -> Result<Enrolled, ControlError> {
        need_reason(reason)?;
        let _one_at_a_time = self.state.lock().await;
        let known = self.operators.lock().get(name).map(|(enrolled, _)| enrolled.clone());
        let known = known.filter(|known| known.passkeys.iter().any(|key| key.id == *id));
        let Some(mut enrolled) = known else {
            let message = "no such key is enrolled; `portcullis operator list` has them";
            return Err(ControlError::new(ErrorCode::NotFound, message));
        };
        enrolled.passkeys.retain(|key| key.id != *id);
        if enrolled.passkeys.is_empty() && enrolled.ssh_key.is_none() && enrolled.verifier_sha256.is_none() {
            let message = "this is all that the operator can prove itself with; enrol something else first, or remove \
                           the operator";
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let data = json!({
            "by": operator.name(), "method": Method::Webauthn, "operator": enrolled, "passkey_removed": id,
            "reason": one_line(reason),
        });
        self.commit(operator, vec![Event::new(EventName::OperatorEnrolled, &operator.actor()).data(data)])
            .await?;
        self.operators.replace(enrolled.clone());
        Ok(enrolled)
    }

    /// Whose key signed what is expected. `named`: who it must be, unless that is blank.
    pub(super) fn recognise_passkey(
        &self,
        named: &str,
        expected: &Expected,
        assertion: &Assertion,
    ) -> Result<String, ControlError> {
        if !self.takes(Method::Webauthn) {
            let message = "operator.auth does not name webauthn";
            return Err(self.not_recognised(named, Method::Webauthn, message));
        }
        self.is_open(named, Method::Webauthn)?;
        let found = self.operators().into_iter().find_map(|enrolled| {
            let key = enrolled.passkeys.iter().find(|key| key.id == assertion.id)?.clone();
            (named.is_empty() || named == enrolled.name).then_some((enrolled.name, key))
        });
        let Some((name, passkey)) = found else {
            let message = "not a security key of an operator of this gateway";
            return Err(self.failed(named, Method::Webauthn, message));
        };
        let refused = |problem: &str| {
            let message = format!("the security key's answer does not count: {problem}");
            self.failed(&name, Method::Webauthn, &message)
        };
        let count = assertion.verified(expected, &passkey.key).map_err(refused)?;
        match self.operators.counters.advance(&self.options.home, &name, &passkey, count) {
            Ok(true) => Ok(name),
            Ok(false) => Err(refused("it has counted backwards, so it may be a copy; remove it")),
            Err(error) => {
                let message = format!("how often the key has signed cannot be kept: {error}");
                Err(ControlError::new(ErrorCode::Internal, message))
            }
        }
    }
}

/// How often keys have signed, by operator and key.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<BTreeMap<String, BTreeMap<CredentialId, u32>>>);

impl Counters {
    /// Takes in what the keys folder has.
    pub(super) fn restore(&self, home: &Path, enrolled: &Enrolled) {
        let kept = fs::read(file_of(home, &enrolled.name)).ok();
        let kept = kept.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        self.lock().insert(enrolled.name.clone(), kept);
    }

    /// Whether a key has counted on; if so, that is kept.
    fn advance(&self, home: &Path, name: &str, key: &Passkey, now: u32) -> std::io::Result<bool> {
        let mut all = self.lock();
        let counters = all.entry(name.to_owned()).or_default();
        let before = counters.get(&key.id).copied().unwrap_or_default().max(key.counter);
        if !counted_on(before, now) {
            return Ok(false);
        }
        if now > 0 {
            counters.insert(key.id.clone(), now);
            let path = file_of(home, name);
            let fresh = path.with_extension("new");
            write(&fresh, &serde_json::to_vec(counters)?)?;
            fs::rename(&fresh, &path)?;
        }
        Ok(true)
    }

    /// The operator is gone.
    pub(super) fn forget(&self, home: &Path, enrolled: &Enrolled) {
        self.lock().remove(&enrolled.name);
        let _ = fs::remove_file(file_of(home, &enrolled.name));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<CredentialId, u32>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file_of(home: &Path, name: &str) -> PathBuf {
    home.join("keys/operators").join(format!("{name}.counters.json"))
}
