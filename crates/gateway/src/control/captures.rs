//! Secrets on their way past the admin tools, which neither take nor return any (ADM-4, ADM-24): a key that was made waits
//! to be fetched once, a credential or a passphrase that was asked for waits to be given. All over the operators' channel, all
//! by the operator who asked for it and nobody else, all forgotten after a while.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use portcullis_core::{ErrorCode, EventId, Secret, Timestamp};
use portcullis_governance::broker::vault::Kind;
use portcullis_governance::operator::OperatorProof;
use serde::Serialize;

use super::{Control, ControlError, Enrolled, Enrolment, SecretRow};

/// How long one waits.
const LIFE: Duration = Duration::from_secs(15 * 60);

/// What waits, for whom, and until when.
#[derive(Debug)]
struct Capture {
    waiting: Waiting,
    /// The operator who asked for it: an id that somebody else came by is worth nothing.
    asked_by: String,
    until: Timestamp,
}

/// What waits for an operator.
#[derive(Debug)]
enum Waiting {
    /// To be fetched.
    Key(Secret<String>),
    /// To be given, as a new credential.
    Credential { name: String, class: String, kind: Kind },
    /// To be given, as another value of one that is there.
    Rotation { name: String },
    /// To be given, as what an operator proves itself with.
    Passphrase { operator: String, agreed: Option<String> },
}

/// What a capture is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureKind {
    /// A key is fetched.
    Fetch,
    /// A credential or a passphrase is given.
    Give,
}

/// What became of what was given.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Given {
    /// It is in the vault.
    Credential(SecretRow),
    /// An operator is enrolled with it.
    Operator(Box<Enrolled>),
}

/// Everything that waits.
#[derive(Debug, Default)]
pub(crate) struct Captures(Mutex<HashMap<String, Capture>>);

impl Captures {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Capture>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    fn await_capture(&self, operator: &OperatorProof, waiting: Waiting) -> String {
        let now = self.clock.now();
        let id = format!("cap_{}", EventId::new(now));
        let capture = Capture { waiting, asked_by: operator.name().to_owned(), until: now.after(LIFE) };
        let mut captures = self.captures.lock();
        captures.retain(|_, capture| capture.until > now);
        captures.insert(id.clone(), capture);
        id
    }

    /// A key waits to be fetched, once, by the operator who had it made.
    pub fn hand_over(&self, operator: &OperatorProof, key: Secret<String>) -> String {
        self.await_capture(operator, Waiting::Key(key))
    }

    /// A credential of a new name is expected. What is wrong with it but for its value is said now.
    pub fn expect_credential(
        &self,
        operator: &OperatorProof,
        name: &str,
        class: &str,
        kind: Kind,
    ) -> Result<String, ControlError> {
        self.is_new_secret(name, class)?;
        let (name, class) = (name.to_owned(), class.to_owned());
        Ok(self.await_capture(operator, Waiting::Credential { name, class, kind }))
    }

    /// Another value of a credential is expected.
    pub fn expect_rotation(&self, operator: &OperatorProof, name: &str) -> Result<String, ControlError> {
        self.stored(name)?;
        Ok(self.await_capture(operator, Waiting::Rotation { name: name.to_owned() }))
    }

    /// The passphrase of an operator is expected: of a new one, or in place of the one it has. `agreed`: who else wanted it.
    pub fn expect_passphrase(
        &self,
        operator: &OperatorProof,
        name: &str,
        agreed: Option<&str>,
    ) -> Result<String, ControlError> {
        super::operators::is_name(name)?;
        let waiting = Waiting::Passphrase { operator: name.to_owned(), agreed: agreed.map(str::to_owned) };
        Ok(self.await_capture(operator, waiting))
    }

    /// Where operators fetch and give, if there is a listener for them.
    pub fn capture_url(&self, id: &str) -> Option<String> {
        self.options.console.as_ref().map(|console| format!("{console}/api/captures/{id}"))
    }

    /// What a capture is for. To others than who asked for it, it is not there.
    pub fn capture_kind(&self, operator: &OperatorProof, id: &str) -> Result<CaptureKind, ControlError> {
        let now = self.clock.now();
        let captures = self.captures.lock();
        let own = captures.get(id).filter(|capture| capture.asked_by == operator.name());
        match own.filter(|capture| capture.until > now).map(|capture| &capture.waiting) {
            Some(Waiting::Key(_)) => Ok(CaptureKind::Fetch),
            Some(_) => Ok(CaptureKind::Give),
            None => Err(gone()),
        }
    }

    /// Takes it, so that nobody can again.
    fn take_capture(
        &self,
        operator: &OperatorProof,
        id: &str,
        kind: CaptureKind,
    ) -> Result<Waiting, ControlError> {
        if self.capture_kind(operator, id)? != kind {
            return Err(gone());
        }
        self.captures.lock().remove(id).map(|capture| capture.waiting).ok_or_else(gone)
    }

    /// The key, which nobody can fetch again.
    pub fn fetch_key(&self, operator: &OperatorProof, id: &str) -> Result<Secret<String>, ControlError> {
        match self.take_capture(operator, id, CaptureKind::Fetch)? {
            Waiting::Key(key) => Ok(key),
            _ => Err(gone()),
        }
    }

    /// Takes what is expected.
    pub async fn give(
        &self,
        operator: &OperatorProof,
        id: &str,
        value: Vec<u8>,
    ) -> Result<Given, ControlError> {
        match self.take_capture(operator, id, CaptureKind::Give)? {
            Waiting::Credential { name, class, kind } => {
                self.set_secret(operator, &name, &class, kind, value).await.map(Given::Credential)
            }
            Waiting::Rotation { name } => {
                self.rotate_secret(operator, &name, value).await.map(Given::Credential)
            }
            Waiting::Passphrase { operator: name, agreed } => {
                let text = String::from_utf8(value)
                    .map_err(|_| ControlError::field("passphrase", "a passphrase is text"))?;
                let with = Enrolment::Passphrase(Secret::new(text));
                let enrolled = self.enrol(operator, &name, with, agreed.as_deref()).await?;
                Ok(Given::Operator(Box::new(enrolled)))
            }
            Waiting::Key(_) => Err(gone()),
        }
    }
}

fn gone() -> ControlError {
    let message = "nothing waits for you under this id; it was used, its time is over, or another operator asked for it";
    ControlError::new(ErrorCode::NotFound, message)
}
