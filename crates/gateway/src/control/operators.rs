//! Operators: who they are, and how they prove it, apart from agents (GOV-104).
//!
//! The log names an enrolled operator and the digest of what is kept of the passphrase; what is kept lies in a file of
//! the keys folder, so that an exported log gives nobody anything to guess at. A file that does not fit its digest
//! recognises nobody.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, Secret, Sha256Digest, Timestamp};
use portcullis_governance::operator::passphrase::{Lockout, SHORTEST, Verifier};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::registration::need_reason;
use super::{Control, ControlError};

/// An operator with a passphrase, as it is recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The operator's name.
    pub name: String,
    /// Since when.
    pub enrolled_at: Timestamp,
    /// The digest of what is kept of the passphrase.
    verifier_sha256: Sha256Digest,
}

/// Who asks, before anything is proved.
#[derive(Debug)]
pub struct Claimant {
    /// How the channel itself knows its peer: by uid, or because the command is the control plane.
    pub channel: Method,
    /// The user the peer is.
    pub user: String,
    /// The operator it says to be, and the passphrase.
    pub credential: Option<(String, Secret<String>)>,
}

/// All enrolled operators, and the failures of late.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    enrolled: Mutex<BTreeMap<String, (Enrolled, Option<Verifier>)>>,
    lockout: Mutex<Lockout>,
}

impl Operators {
    /// Takes in a recorded operator, with what the keys folder has.
    pub(super) fn restore(&self, home: &Path, enrolled: Enrolled) {
        let verifier = kept(home, &enrolled);
        if verifier.is_none() {
            tracing::error!(
                operator = enrolled.name,
                "what is kept of the passphrase is gone or was changed; enrol again"
            );
        }
        self.lock().insert(enrolled.name.clone(), (enrolled, verifier));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Enrolled, Option<Verifier>)>> {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lockout(&self) -> std::sync::MutexGuard<'_, Lockout> {
        self.lockout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Who is enrolled.
    pub fn operators(&self) -> Vec<Enrolled> {
        self.operators.lock().values().map(|(enrolled, _)| enrolled.clone()).collect()
    }

    /// Proof that the claimant is an operator. `enrolling`: the first operator of a gateway that asks for
    /// passphrases is enrolled by its own user, because somebody has to be.
    pub async fn authenticate(
        &self,
        claimant: Claimant,
        enrolling: bool,
    ) -> Result<OperatorProof, ControlError> {
        let methods = &self.options.operator_methods;
        let proof = |name: String, method| OperatorProof::authenticated(name, method, Separation::SameUid);
        match claimant.credential {
            Some((name, passphrase)) => {
                self.recognise(&name, passphrase).await?;
                Ok(proof(name, Method::Passphrase))
            }
            None if methods.contains(&Method::Uid) => Ok(proof(claimant.user, claimant.channel)),
            None if enrolling && self.operators.lock().is_empty() => {
                Ok(proof(claimant.user, claimant.channel))
            }
            None => {
                let message = "operators of this gateway prove who they are: name yourself with --operator, and type your \
                     passphrase or give it with --passphrase-fd";
                Err(self.not_recognised(&claimant.user, message))
            }
        }
    }

    async fn recognise(&self, name: &str, passphrase: Secret<String>) -> Result<(), ControlError> {
        if let Some(until) = self.operators.lockout().locked(self.clock.now()) {
            let message = format!("too many failures; nobody is let in by passphrase before {until}");
            return Err(self.not_recognised(name, &message));
        }
        let verifier = self.operators.lock().get(name).and_then(|(_, verifier)| verifier.clone());
        let checked = tokio::task::spawn_blocking(move || match verifier {
            Some(verifier) => verifier.matches(&passphrase),
            // As long as with one: whether a name is enrolled is not told by the time it takes.
            None => Verifier::new(&Secret::new("x".repeat(SHORTEST))).is_none(),
        });
        if checked.await.unwrap_or(false) {
            return Ok(());
        }
        self.operators.lockout().failed(self.clock.now());
        Err(self.not_recognised(name, "not the passphrase of an operator of this gateway"))
    }

    fn not_recognised(&self, name: &str, message: &str) -> ControlError {
        let data = json!({"method": "passphrase", "operator": one_line(name)});
        let event = Event::new(EventName::OperatorAuthFailed, &Actor::system()).data(data);
        let _ = self.log.append(vec![event]);
        ControlError::new(ErrorCode::OperatorAuth, message)
    }

    /// Enrols an operator, or gives one another passphrase.
    pub async fn enrol(
        &self,
        operator: &OperatorProof,
        name: &str,
        passphrase: Secret<String>,
    ) -> Result<Enrolled, ControlError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 63 || !name.bytes().all(plain) {
            return Err(ControlError::field("name", "up to 63 lowercase letters, digits, `.`, `_` and `-`"));
        }
        let made = tokio::task::spawn_blocking(move || Verifier::new(&passphrase)).await;
        let made = made.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
        let verifier = made.ok_or_else(|| {
            ControlError::field("passphrase", format!("a passphrase has at least {SHORTEST} characters"))
        })?;
        let _one_at_a_time = self.state.lock().await;
        let text = serde_json::to_vec(&verifier).expect("a verifier is plain JSON");
        let enrolled = Enrolled {
            name: name.to_owned(),
            enrolled_at: self.clock.now(),
            verifier_sha256: Sha256Digest::of(&text),
        };
        write(&file_of(&self.options.home, &enrolled), &text).map_err(|error| {
            ControlError::new(ErrorCode::Internal, format!("cannot keep the passphrase: {error}"))
        })?;
        let data = json!({"by": operator.name(), "method": Method::Passphrase, "operator": enrolled});
        self.commit(operator, vec![Event::new(EventName::OperatorEnrolled, &operator.actor()).data(data)])
            .await?;
        let before = self.operators.lock().insert(name.to_owned(), (enrolled.clone(), Some(verifier)));
        if let Some((before, _)) = before {
            let _ = fs::remove_file(file_of(&self.options.home, &before));
        }
        Ok(enrolled)
    }

    /// Removes an operator, who can decide nothing any more; what was decided stays.
    pub async fn remove_operator(
        &self,
        operator: &OperatorProof,
        name: &str,
        reason: &str,
    ) -> Result<(), ControlError> {
        need_reason(reason)?;
        let one_at_a_time = self.state.lock().await;
        let Some((enrolled, _)) = self.operators.lock().get(name).cloned() else {
            let message = format!("no operator {} is enrolled", portcullis_core::name::printable(name));
            return Err(ControlError::new(ErrorCode::NotFound, message));
        };
        let data = json!({"operator": name, "reason": one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::OperatorRemoved, &operator.actor()).data(data)])
            .await?;
        self.operators.lock().remove(name);
        let _ = fs::remove_file(file_of(&self.options.home, &enrolled));
        drop(one_at_a_time);
        self.revoke_tokens_of(operator, name).await
    }
}

/// The digest is part of the name: a new passphrase takes no old one's place before it is on record.
fn file_of(home: &Path, enrolled: &Enrolled) -> PathBuf {
    let digest = enrolled.verifier_sha256.to_string();
    home.join("keys/operators").join(format!("{}-{}.json", enrolled.name, &digest[..16]))
}

fn kept(home: &Path, enrolled: &Enrolled) -> Option<Verifier> {
    let text = fs::read(file_of(home, enrolled)).ok()?;
    (Sha256Digest::of(&text) == enrolled.verifier_sha256).then(|| serde_json::from_slice(&text).ok())?
}

fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
