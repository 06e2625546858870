//! Operators: who they are, and how they prove it, apart from agents (GOV-104).
//!
//! The log names an enrolled operator, its public keys if it has any, and the digest of what is kept of the passphrase; what
//! is kept lies in a file of the keys folder, so that an exported log gives nobody anything to guess at. A file that does
//! not fit its digest recognises nobody.

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
use portcullis_governance::operator::ssh::PublicKey;
use portcullis_governance::operator::webauthn::{Assertion, Expected};
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use portcullis_governance::record::Mode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::passkeys::{Counters, Passkey};
use super::registration::need_reason;
use super::{Control, ControlError};

/// An operator with a passphrase or a key, as it is recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Enrolled {
    /// The operator's name.
    pub name: String,
    /// Since when.
    pub enrolled_at: Timestamp,
    /// The digest of what is kept of the passphrase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verifier_sha256: Option<Sha256Digest>,
    /// The key that its ssh-agent signs with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_key: Option<PublicKey>,
    /// The keys that it uses in the browser.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passkeys: Vec<Passkey>,
    /// Who gave it that, if it was not itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enrolled_by: Option<String>,
    /// Another operator who says that this is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched_by: Option<String>,
}

/// What an operator is enrolled with.
#[derive(Debug)]
pub enum Enrolment {
    /// A passphrase, in place of one it may have.
    Passphrase(Secret<String>),
    /// A key, likewise.
    SshKey(PublicKey),
    /// A key for the browser, besides those it may have.
    Passkey(Passkey),
}

/// What an operator proves with who it is.
#[derive(Debug)]
pub enum Credential {
    /// It knows this.
    Passphrase(Secret<String>),
    /// Its agent signed this request, which the channel made sure was never signed before.
    Signature {
        /// What was signed.
        digest: Sha256Digest,
        /// As the agent gave it.
        signature: Vec<u8>,
    },
    /// Its security key signed what is expected, which the channel made sure was never signed before. Whose key it is, is
    /// found out, and must be who is named, if somebody is.
    Passkey {
        /// What it must be about.
        expected: Expected,
        /// As the browser gave it.
        assertion: Assertion,
    },
}

/// Who asks, before anything is proved.
#[derive(Debug)]
pub struct Claimant {
    /// How the channel itself knows its peer: by uid, or because the command is the control plane.
    pub channel: Method,
    /// The user the peer is.
    pub user: String,
    /// The operator it says to be, and the proof.
    pub credential: Option<(String, Credential)>,
}

/// All enrolled operators, and the failures of late.
#[derive(Debug, Default)]
pub(crate) struct Operators {
    enrolled: Mutex<BTreeMap<String, (Enrolled, Option<Verifier>)>>,
    /// How often passkeys have signed, of those that count.
    pub(super) counters: Counters,
    /// Failures with passphrases, with signatures of agents, and with those of security keys.
    lockouts: [Mutex<Lockout>; 3],
}

impl Operators {
    /// Takes in a recorded operator, with what the keys folder has.
    pub(super) fn restore(&self, home: &Path, enrolled: Enrolled) {
        let verifier = kept(home, &enrolled);
        if verifier.is_none() && enrolled.verifier_sha256.is_some() {
            tracing::error!(
                operator = enrolled.name,
                "what is kept of the passphrase is gone or was changed; enrol again"
            );
        }
        self.counters.restore(home, &enrolled);
        self.lock().insert(enrolled.name.clone(), (enrolled, verifier));
    }

    /// Something else is said of an operator, who keeps its passphrase.
    pub(super) fn replace(&self, enrolled: Enrolled) {
        if let Some((known, _)) = self.lock().get_mut(&enrolled.name) {
            *known = enrolled;
        }
    }

    pub(super) fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Enrolled, Option<Verifier>)>> {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lockout(&self, method: Method) -> std::sync::MutexGuard<'_, Lockout> {
        let which = match method {
            Method::SshAgent => 1,
            Method::Webauthn => 2,
            _ => 0,
        };
        self.lockouts[which].lock().unwrap_or_else(PoisonError::into_inner)
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
        let proof = self.proved(claimant, enrolling).await?;
        self.is_enabled(proof.name())?;
        Ok(proof)
    }

    async fn proved(&self, claimant: Claimant, enrolling: bool) -> Result<OperatorProof, ControlError> {
        let methods = &self.options.operator_methods;
        let separation = self.separation();
        let proof = |name: String, method| OperatorProof::authenticated(name, method, separation);
        match claimant.credential {
            Some((name, Credential::Passphrase(passphrase))) => {
                // Who names security keys and no passphrases wants them to be the only way in.
                if !self.takes(Method::Passphrase) {
                    let message = "operator.auth does not name passphrase";
                    return Err(self.not_recognised(&name, Method::Passphrase, message));
                }
                self.is_open(&name, Method::Passphrase)?;
                self.recognise(&name, passphrase).await?;
                Ok(proof(name, Method::Passphrase))
            }
            Some((name, Credential::Signature { digest, signature })) => {
                if !methods.contains(&Method::SshAgent) {
                    let message = "operator.auth does not name ssh-agent";
                    return Err(self.not_recognised(&name, Method::SshAgent, message));
                }
                self.is_open(&name, Method::SshAgent)?;
                if !self.ssh_key(&name).is_some_and(|key| key.verifies(&digest, &signature)) {
                    let message = "not signed with the key of an operator of this gateway";
                    return Err(self.failed(&name, Method::SshAgent, message));
                }
                Ok(proof(name, Method::SshAgent))
            }
            Some((name, Credential::Passkey { expected, assertion })) => {
                let name = self.recognise_passkey(&name, &expected, &assertion)?;
                Ok(proof(name, Method::Webauthn))
            }
            // GOV-104, GOV-105: where agents run as this user, being it proves nothing; one person's machine is exempt.
            None if methods.contains(&Method::Uid)
                && self.options.mode != Mode::Local
                && self.access.users().ever_shared_ours() =>
            {
                let message = "agents have connected as this user, so being it proves nothing; enrol an operator with a \
                               passphrase or a key before agents connect, and name that in operator.auth";
                Err(self.not_recognised(&claimant.user, Method::Uid, message))
            }
            None if methods.contains(&Method::Uid) => Ok(proof(claimant.user, claimant.channel)),
            None if enrolling && self.operators.lock().is_empty() => {
                Ok(proof(claimant.user, claimant.channel))
            }
            None => {
                let with_key = methods.contains(&Method::SshAgent);
                let (method, how) = match methods.contains(&Method::Passphrase) {
                    true if with_key => (
                        Method::Passphrase,
                        "have your ssh-agent at SSH_AUTH_SOCK, type your passphrase or give it with --passphrase-fd",
                    ),
                    true => (Method::Passphrase, "type your passphrase or give it with --passphrase-fd"),
                    false if !with_key => {
                        let message = "operators of this gateway prove who they are with a security key, in the console";
                        return Err(self.not_recognised(&claimant.user, Method::Webauthn, message));
                    }
                    false => (Method::SshAgent, "have your ssh-agent at SSH_AUTH_SOCK"),
                };
                let message = format!(
                    "operators of this gateway prove who they are: name yourself with --operator, and {how}"
                );
                Err(self.not_recognised(&claimant.user, method, &message))
            }
        }
    }

    /// Whether operators can prove with this who they are. In the browser passphrases are taken where nothing else would be.
    pub fn takes(&self, method: Method) -> bool {
        let named = |method: Method| self.options.operator_methods.contains(&method);
        named(method) || (method == Method::Passphrase && !named(Method::Webauthn))
    }

    /// Whether agents run as other users than operators, as far as that was seen (GOV-105).
    pub fn separation(&self) -> Separation {
        self.access.users().separation()
    }

    /// Whether an agent was seen to run as operators do.
    pub fn agents_share_our_user(&self) -> bool {
        self.access.users().shares_ours()
    }

    async fn recognise(&self, name: &str, passphrase: Secret<String>) -> Result<(), ControlError> {
        let verifier = self.operators.lock().get(name).and_then(|(_, verifier)| verifier.clone());
        let checked = tokio::task::spawn_blocking(move || match verifier {
            Some(verifier) => verifier.matches(&passphrase),
            // As long as with one: whether a name is enrolled is not told by the time it takes.
            None => Verifier::new(&Secret::new("x".repeat(SHORTEST))).is_none(),
        });
        if checked.await.unwrap_or(false) {
            return Ok(());
        }
        Err(self.failed(name, Method::Passphrase, "not the passphrase of an operator of this gateway"))
    }

    /// The key that an operator's ssh-agent signs with.
    pub fn ssh_key(&self, name: &str) -> Option<PublicKey> {
        self.operators.lock().get(name).and_then(|(enrolled, _)| enrolled.ssh_key.clone())
    }

    pub(super) fn is_open(&self, name: &str, method: Method) -> Result<(), ControlError> {
        let Some(until) = self.operators.lockout(method).locked(self.clock.now()) else { return Ok(()) };
        let how = match method {
            Method::SshAgent => "signature",
            Method::Webauthn => "security key",
            _ => "passphrase",
        };
        let message = format!("too many failures; nobody is let in by {how} before {until}");
        Err(self.not_recognised(name, method, &message))
    }

    pub(super) fn failed(&self, name: &str, method: Method, message: &str) -> ControlError {
        self.operators.lockout(method).failed(self.clock.now());
        self.not_recognised(name, method, message)
    }

    pub(super) fn not_recognised(&self, name: &str, method: Method, message: &str) -> ControlError {
        let data = json!({"method": method, "operator": one_line(name)});
        let event = Event::new(EventName::OperatorAuthFailed, &Actor::system()).data(data);
        let _ = self.log.append(vec![event]);
        ControlError::new(ErrorCode::OperatorAuth, message)
    }

    /// Enrols an operator, or gives one another passphrase or key. `agreed`: the other operator who wanted it, where two did.
    pub async fn enrol(
        &self,
        operator: &OperatorProof,
        name: &str,
        with: Enrolment,
        agreed: Option<&str>,
    ) -> Result<Enrolled, ControlError> {
        is_name(name)?;
        let (method, verifier, key, passkey) = match with {
            Enrolment::Passphrase(passphrase) => {
                (Method::Passphrase, Some(verifier_of(passphrase).await?), None, None)
            }
            Enrolment::SshKey(key) => (Method::SshAgent, None, Some(key), None),
            Enrolment::Passkey(passkey) => (Method::Webauthn, None, None, Some(passkey)),
        };
        let _one_at_a_time = self.state.lock().await;
        let before = self.operators.lock().get(name).cloned();
        let (known, kept) = before.unzip();
        if let Some(passkey) = &passkey {
            self.is_new_passkey(known.as_ref(), passkey)?;
        }
        // Sessions are of an enrolment: another key beside those there are ends none.
        let since = known.as_ref().filter(|_| passkey.is_some()).map(|known| known.enrolled_at);
        let mut passkeys = known.as_ref().map(|known| known.passkeys.clone()).unwrap_or_default();
        passkeys.extend(passkey);
        // What it had besides, it keeps.
        let text = verifier.as_ref().map(|verifier| serde_json::to_vec(verifier).expect("plain JSON"));
        let digest = text.as_deref().map(Sha256Digest::of);
        // Who changes what is its own stays who it was; to whom another gave a passphrase, that other may be.
        let own = known.as_ref().filter(|known| known.name == operator.name());
        let (enrolled_by, vouched_by) = match own {
            Some(known) => (known.enrolled_by.clone(), known.vouched_by.clone()),
            None => (Some(operator.name().to_owned()), agreed.map(str::to_owned)),
        };
        let enrolled = Enrolled {
            enrolled_by,
            vouched_by,
            name: name.to_owned(),
            enrolled_at: since.unwrap_or_else(|| self.clock.now()),
            passkeys,
            verifier_sha256: digest.or_else(|| known.as_ref()?.verifier_sha256),
            ssh_key: key.or_else(|| known.as_ref()?.ssh_key.clone()),
        };
        if let (Some(path), Some(text)) = (file_of(&self.options.home, &enrolled), text) {
            write(&path, &text).map_err(|error| {
                ControlError::new(ErrorCode::Internal, format!("cannot keep the passphrase: {error}"))
            })?;
        }
        let data = json!({"by": operator.name(), "method": method, "operator": enrolled});
        self.commit(operator, vec![Event::new(EventName::OperatorEnrolled, &operator.actor()).data(data)])
            .await?;
        let verifier = verifier.or_else(|| kept.flatten());
        self.operators.lock().insert(name.to_owned(), (enrolled.clone(), verifier));
        if let Some(known) = known.filter(|known| known.verifier_sha256 != enrolled.verifier_sha256) {
            forget(&self.options.home, &known);
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
        // ADM-71: somebody must be left who sees everything.
        if self.owners(operator.name()).iter().all(|owner| owner == name) {
            let message = "nobody would be left who sees everything";
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let data = json!({"operator": name, "reason": one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::OperatorRemoved, &operator.actor()).data(data)])
            .await?;
        self.operators.lock().remove(name);
        self.operators.counters.forget(&self.options.home, &enrolled);
        self.withdraw_invitations_of(name);
        forget(&self.options.home, &enrolled);
        drop(one_at_a_time);
        self.revoke_tokens_of(operator, name).await
    }
}

/// Whether an operator can be called so.
pub(super) fn is_name(name: &str) -> Result<(), ControlError> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
    match !name.is_empty() && name.len() <= 63 && name.bytes().all(plain) {
        true => Ok(()),
        false => Err(ControlError::field("name", "up to 63 lowercase letters, digits, `.`, `_` and `-`")),
    }
}

/// The digest is part of the name: a new passphrase takes no old one's place before it is on record.
fn file_of(home: &Path, enrolled: &Enrolled) -> Option<PathBuf> {
    let digest = enrolled.verifier_sha256?.to_string();
    Some(home.join("keys/operators").join(format!("{}-{}.json", enrolled.name, &digest[..16])))
}

fn kept(home: &Path, enrolled: &Enrolled) -> Option<Verifier> {
    let text = fs::read(file_of(home, enrolled)?).ok()?;
    (Some(Sha256Digest::of(&text)) == enrolled.verifier_sha256).then(|| serde_json::from_slice(&text).ok())?
}

fn forget(home: &Path, enrolled: &Enrolled) {
    if let Some(path) = file_of(home, enrolled) {
        let _ = fs::remove_file(path);
    }
}

async fn verifier_of(passphrase: Secret<String>) -> Result<Verifier, ControlError> {
    let made = tokio::task::spawn_blocking(move || Verifier::new(&passphrase)).await;
    let made = made.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
    made.ok_or_else(|| {
        ControlError::field("passphrase", format!("a passphrase has at least {SHORTEST} characters"))
    })
}

pub(super) fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}
