//! The evidence, read and checked.

use std::sync::Arc;

use portcullis_audit::{Checks, Record, check_invariants, prove, verify_with};
use portcullis_core::EventId;
use portcullis_gateway::Control;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::history::{Bounds, HistoryService};
use crate::error::AdminError;

/// What checking the log came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Verification {
    /// How many records were checked.
    pub checked: u64,
    /// Whether everything holds.
    pub ok: bool,
    /// The first record that does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_break: Option<u64>,
    /// What is wrong, a few of them.
    pub problems: Vec<String>,
    /// The invariants, each with how often it was checked and where it fails.
    pub invariants: Value,
}

/// A record of the log, in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditEntry {
    /// Its id.
    pub entry_id: String,
    /// Its number.
    pub seq: u64,
    /// When.
    pub at: String,
    /// What.
    pub event: String,
    /// Who.
    pub actor: String,
    /// About which tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What was decided, where something was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
}

/// A record of the log, whole.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct AuditDetail {
    /// The row of the list.
    #[serde(flatten)]
    pub entry: AuditEntry,
    /// What it says.
    pub data: Value,
    /// What it refers to.
    pub refs: Vec<String>,
    /// The digests of its evidence.
    pub evidence: Value,
}

/// A record's place under a signed root.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ProofRecord {
    /// The record's number.
    pub index: u64,
    /// Its leaf hash.
    pub leaf: String,
    /// The hashes from the leaf to the root.
    pub path: Vec<String>,
    /// How many records the checkpoint is over.
    pub size: u64,
    /// Their root.
    pub root: String,
    /// The signed checkpoint itself.
    pub checkpoint: String,
}

/// The evidence.
#[derive(Debug, Clone)]
pub struct AuditService {
    pub(super) control: Arc<Control>,
}

impl AuditService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// The records of a stretch of time, newest first.
    pub async fn list(&self, (since, until): Bounds) -> Result<Vec<AuditEntry>, AdminError> {
        let history = HistoryService::new(self.control.clone());
        let mut rows = history
            .scan(Vec::new(), move |rows: &mut Vec<AuditEntry>, record| {
                if record.time >= since && record.time < until {
                    rows.push(entry(&record));
                }
            })
            .await?;
        rows.reverse();
        Ok(rows)
    }

    /// One record.
    pub async fn get(&self, id: EventId) -> Result<AuditDetail, AdminError> {
        let record = self.find(id).await?;
        Ok(AuditDetail {
            entry: entry(&record),
            refs: record
                .refs
                .iter()
                .map(|reference| format!("{}/{}", reference.log, reference.seq))
                .collect(),
            evidence: serde_json::to_value(&record.evidence).unwrap_or(Value::Null),
            data: record.data,
        })
    }

    /// Proof that a record is under the newest checkpoint.
    pub async fn proof(&self, id: EventId) -> Result<ProofRecord, AdminError> {
        let seq = self.find(id).await?.seq;
        let dir = self.control.log().dir().to_owned();
        let proved = tokio::task::spawn_blocking(move || prove(&dir, seq)).await;
        let proof = proved.map_err(|error| AdminError::failure(error.to_string()))??;
        let proof = proof.ok_or_else(|| {
            AdminError::conflict("the newest checkpoint does not reach so far yet; try again in a minute")
        })?;
        Ok(ProofRecord {
            index: proof.index,
            leaf: proof.leaf.to_string(),
            path: proof.path.iter().map(ToString::to_string).collect(),
            size: proof.size,
            root: proof.root.to_string(),
            checkpoint: proof.checkpoint,
        })
    }

    async fn find(&self, id: EventId) -> Result<Record, AdminError> {
        let history = HistoryService::new(self.control.clone());
        let found = history
            .scan(None, move |found: &mut Option<Record>, record| {
                if record.id == id {
                    *found = Some(record);
                }
            })
            .await?;
        found.ok_or_else(|| AdminError::not_found(format!("entry '{id}' does not exist")))
    }

    /// Checks the log, all of it or a part, and the invariants over it.
    pub async fn verify(&self, from: u64, to: Option<u64>) -> Result<Verification, AdminError> {
        let dir = self.control.log().dir().to_owned();
        let checked = tokio::task::spawn_blocking(move || -> Result<Verification, AdminError> {
            let report = verify_with(&dir, &Checks { from, to, ..Checks::default() })?;
            let invariants = check_invariants(std::slice::from_ref(&dir))?;
            let held = invariants.values().all(|verdict| verdict.violations.is_empty());
            let violated = invariants.values().flat_map(|verdict| &verdict.violations).map(|found| found.seq);
            let breaks = report.problems.iter().map(|problem| problem.seq).chain(violated);
            Ok(Verification {
                checked: report.checked,
                ok: report.ok && held,
                first_break: breaks.min(),
                problems: report.problems.iter().take(20).map(|problem| problem.detail.clone()).collect(),
                invariants: serde_json::to_value(&invariants).unwrap_or(Value::Null),
            })
        });
        checked.await.map_err(|error| AdminError::failure(error.to_string()))?
    }
}

fn entry(record: &Record) -> AuditEntry {
    let verdict = ["decision", "verdict", "outcome"].iter().find_map(|key| record.data[*key].as_str());
    AuditEntry {
        entry_id: record.id.to_string(),
        seq: record.seq,
        at: record.time.to_string(),
        event: record.event.to_string(),
        actor: record.actor.to_string(),
        tool: record.tool_id.as_ref().map(ToString::to_string),
        verdict: verdict.map(str::to_owned),
    }
}
