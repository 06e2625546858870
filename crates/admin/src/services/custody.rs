//! What operators take out of the evidence, and what they do for the log itself. Everything is on record before it is given
//! out (AUD-44).

use std::path::PathBuf;

use portcullis_audit::{KeyName, Recipient};
use portcullis_core::SessionId;
use portcullis_gateway::control::Disclosure;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::AuditService;
use crate::error::AdminError;
use crate::grant::Op;

/// A part of the log that is wanted.
#[derive(Debug, Clone)]
pub struct ExportAsked {
    /// The first record.
    pub from: u64,
    /// The last; all if nobody says.
    pub to: Option<u64>,
    /// Where to; a new folder of the gateway's if nobody says.
    pub out: Option<PathBuf>,
    /// For whom the evidence is sealed, if it goes along.
    pub recipient: Option<Recipient>,
}

/// A part of the log, written out for others.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ExportedRecord {
    /// Where it is, on the gateway's machine.
    pub path: String,
    /// What was written.
    pub exported: Value,
    /// What of the evidence went along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Value>,
}

/// Results of calls, to be played back.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CassetteRecord {
    /// Where it is, on the gateway's machine.
    pub path: String,
    /// How many results it has.
    pub entries: u64,
}

/// A key of the evidence, kept beyond its time or no longer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct HeldKey {
    /// Which.
    pub kid: String,
    /// Whether it is kept.
    pub held: bool,
}

impl AuditService {
    /// Writes the log, or a part of it, for others to check.
    pub async fn export(&self, op: &Op, asked: ExportAsked) -> Result<ExportedRecord, AdminError> {
        let ExportAsked { from, to, out, recipient } = asked;
        let out = match out {
            Some(out) => out,
            None => self.own_folder()?.join(op.id()),
        };
        let path = out.display().to_string();
        let (exported, evidence) = match recipient {
            None => (self.control.export(op.operator(), from, to, out).await?, None),
            Some(recipient) => {
                let disclosure = Disclosure { recipient, reason: op.reason().to_owned() };
                let done =
                    self.control.export_with_evidence(op.operator(), from, to, out, disclosure).await?;
                (done.0, Some(value(&done.1)))
            }
        };
        Ok(ExportedRecord { path, exported: value(&exported), evidence })
    }

    /// Writes the results of one session's calls, or of all, to a cassette.
    pub async fn cassette(
        &self,
        op: &Op,
        session: Option<SessionId>,
        out: Option<PathBuf>,
    ) -> Result<CassetteRecord, AdminError> {
        let out = match out {
            Some(out) => out,
            None => self.own_folder()?.join(format!("{}.jsonl", op.id())),
        };
        let path = out.display().to_string();
        let entries = self.control.record_cassette(op.operator(), session, out).await?;
        Ok(CassetteRecord { path, entries })
    }

    /// The evidence of these records, opened.
    pub async fn open(&self, op: &Op, seqs: &[u64]) -> Result<Vec<Value>, AdminError> {
        let pieces = self.control.read_evidence(op.operator(), seqs, op.reason()).await?;
        Ok(pieces.iter().map(value).collect())
    }

    /// Keeps what one key sealed beyond its time, or no longer.
    pub async fn hold(&self, op: &Op, key: KeyName, held: bool) -> Result<HeldKey, AdminError> {
        let kid = key.to_string();
        self.control.hold_evidence(op.operator(), key, held, op.reason()).await?;
        Ok(HeldKey { kid, held })
    }

    /// Has the log take records again.
    pub async fn unblock(&self, op: &Op) -> Result<Value, AdminError> {
        Ok(self.control.unblock(op.operator(), op.reason()).await?)
    }

    /// Makes the index of the log anew.
    pub async fn rebuild_index(&self, op: &Op) -> Result<Value, AdminError> {
        Ok(self.control.rebuild_index(op.operator()).await?)
    }

    fn own_folder(&self) -> Result<PathBuf, AdminError> {
        let folder = self.control.home().join("exports");
        std::fs::create_dir_all(&folder).map_err(|error| AdminError::failure(error.to_string()))?;
        Ok(folder)
    }
}

fn value(record: &impl Serialize) -> Value {
    serde_json::to_value(record).unwrap_or_default()
}
