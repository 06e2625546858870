//! What operators take out of the evidence: exports, and the exact bytes things happened with. Both are recorded
//! before anything is given out (AUD-44).

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use portcullis_audit::{
    AuditError, AuditLog, Disclosed, Event, EventName, EvidenceProblem, Exported, KeyName, KeyState,
    Recipient, Record, Role, SignedCheckpoint, export, read_from,
};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode};
use portcullis_governance::operator::OperatorProof;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Control, ControlError};

/// One piece of evidence, opened.
#[derive(Debug, Clone, Serialize)]
pub struct Piece {
    /// The record that names it.
    pub seq: u64,
    /// What it is to that record.
    pub role: Role,
    /// How many bytes it has.
    pub bytes: u64,
    /// `present`, `destroyed` or `missing`.
    pub evidence: &'static str,
    /// The bytes, if they are text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes in base64, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}

/// Somebody for whom the evidence of an export is sealed, and why.
#[derive(Debug, Clone)]
pub struct Disclosure {
    /// Who can open it.
    pub recipient: Recipient,
    /// Why, for the record.
    pub reason: String,
}

impl Control {
    /// Exports the log, or some of it, for others to check.
    pub async fn export(
        &self,
        operator: &OperatorProof,
        from: u64,
        to: Option<u64>,
        out: PathBuf,
    ) -> Result<Exported, ControlError> {
        let data = json!({"from": from, "out": one_line(&out.display().to_string()), "to": to});
        let event = Event::new(EventName::AuditExported, &operator.actor()).data(data);
        self.commit(operator, vec![event]).await?;
        let log = self.log.clone();
        blocking(move || export_now(&log, from, to, &out)).await
    }

    /// Exports the log, or some of it, with the evidence, which only the recipient can open. That this evidence is given
    /// out, to whom and why, is on record first.
    pub async fn export_with_evidence(
        &self,
        operator: &OperatorProof,
        from: u64,
        to: Option<u64>,
        out: PathBuf,
        disclosure: Disclosure,
    ) -> Result<(Exported, Disclosed), ControlError> {
        let Disclosure { recipient, reason } = disclosure;
        if !portcullis_core::name::has_visible_character(&reason) {
            return Err(ControlError::field("reason", "giving out evidence needs a reason"));
        }
        // The evidence of what is recorded from here on stays: it is not among the objects on record.
        let before = self.log.next_seq().min(to.map_or(u64::MAX, |to| to.saturating_add(1)));
        let log = self.log.clone();
        let objects = blocking(move || log.evidence_of(from, before)).await?;
        let recipient_text = recipient.to_string();
        let data = json!({
            "from": from, "objects": objects.len(), "out": one_line(&out.display().to_string()),
            "recipient": recipient_text, "to": to,
        });
        let exported = Event::new(EventName::AuditExported, &operator.actor()).data(data);
        let data = json!({"objects": objects, "reason": one_line(&reason), "recipient": recipient_text});
        let read = Event::new(EventName::AuditEvidenceRead, &operator.actor()).data(data);
        self.commit(operator, vec![exported, read]).await?;
        let log = self.log.clone();
        blocking(move || {
            let exported = export_now(&log, from, to, &out)?;
            let disclosed = log.disclose(&exported, before, &recipient, &out)?;
            Ok((exported, disclosed))
        })
        .await
    }

    /// The evidence of these records, opened. That it was read, by whom and why, is on record first.
    pub async fn read_evidence(
        &self,
        operator: &OperatorProof,
        seqs: &[u64],
        reason: &str,
    ) -> Result<Vec<Piece>, ControlError> {
        let (dir, wanted) = (self.log.dir().to_owned(), seqs.to_vec());
        let records = blocking(move || find(&dir, &wanted)).await?;
        let objects: Vec<_> =
            records.iter().flat_map(|record| &record.evidence).map(|reference| reference.object).collect();
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let data = json!({"objects": objects, "reason": one_line(reason)});
        self.commit(operator, vec![Event::new(EventName::AuditEvidenceRead, &operator.actor()).data(data)])
            .await?;
        let log = self.log.clone();
        blocking(move || {
            let mut pieces = Vec::with_capacity(objects.len());
            for record in &records {
                for reference in &record.evidence {
                    let opened = match log.evidence(reference, record.proposal) {
                        Ok(bytes) => Ok(bytes),
                        Err(AuditError::Evidence { problem: EvidenceProblem::KeyDestroyed, .. }) => {
                            Err("destroyed")
                        }
                        Err(AuditError::Evidence { problem: EvidenceProblem::Missing, .. }) => Err("missing"),
                        Err(error) => return Err(error),
                    };
                    let (seq, role, bytes) = (record.seq, reference.role, reference.bytes);
                    let mut piece = Piece { seq, role, bytes, evidence: "present", text: None, base64: None };
                    match opened.map(String::from_utf8) {
                        Ok(Ok(text)) => piece.text = Some(text),
                        Ok(Err(raw)) => piece.base64 = Some(BASE64.encode(raw.as_bytes())),
                        Err(gone) => piece.evidence = gone,
                    }
                    pieces.push(piece);
                }
            }
            Ok(pieces)
        })
        .await
    }
}

impl Control {
    /// The keys of the evidence and what becomes of them; `check` says whether each is the one the log announced.
    pub async fn evidence_keys(&self) -> Result<Vec<Value>, ControlError> {
        let log = self.log.clone();
        blocking(move || {
            let swapped = log.check_keys()?;
            let is_swapped = |key: &KeyState| swapped.iter().any(|p| p.detail.contains(&format!("key {} ", key.key)));
            let row = |key: KeyState| {
                let check = if is_swapped(&key) { "swapped" } else { "ok" };
                json!({
                    "check": check, "class": key.class, "day": key.key.day(), "expired": key.expired, "held": key.held,
                    "key": key.key,
                })
            };
            Ok(log.data_keys().into_iter().map(row).collect())
        })
        .await
    }

    /// Destroys the keys whose time is over (AUD-43).
    pub async fn destroy_expired(&self, actor: Actor) -> Result<Vec<KeyName>, ControlError> {
        let log = self.log.clone();
        blocking(move || log.destroy_expired(&actor)).await
    }

    /// Keeps what one key sealed beyond its time, or no longer.
    pub async fn hold_evidence(
        &self,
        operator: &OperatorProof,
        key: KeyName,
        held: bool,
        reason: &str,
    ) -> Result<(), ControlError> {
        let data =
            json!({"held": held, "key": key, "op": "audit.retention.hold", "reason": one_line(reason)});
        let known = self.log.data_keys().iter().any(|state| state.key == key);
        if !known {
            let message =
                format!("there is no key {key}; `portcullis audit retention list` names those there are");
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        self.commit(operator, vec![Event::new(EventName::AdminOpExecuted, &operator.actor()).data(data)])
            .await?;
        let log = self.log.clone();
        blocking(move || log.hold(key, held).map(drop)).await
    }
}

/// Under a checkpoint over everything there is.
fn export_now(log: &AuditLog, from: u64, to: Option<u64>, out: &Path) -> Result<Exported, AuditError> {
    let _: SignedCheckpoint = log.checkpoint()?;
    export(log.dir(), &log.vkey(), from, to, out)
}

fn find(dir: &Path, seqs: &[u64]) -> Result<Vec<Record>, AuditError> {
    let mut found = Vec::with_capacity(seqs.len());
    for seq in seqs {
        found.extend(read_from(dir, *seq)?.next().transpose()?);
    }
    Ok(found)
}

/// Reads files where nothing else waits for the thread.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AuditError> + Send + 'static,
) -> Result<T, ControlError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?
        .map_err(|error| ControlError::new(error.code(), error.to_string()))
}
