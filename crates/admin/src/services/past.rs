//! More of what the log tells: what became of trust, where time went, what was taken out; and what is kept beside it.

use portcullis_audit::EventName;
use portcullis_core::SessionId;
use portcullis_governance::policy::PolicyFile;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::calls::StepTime;
use super::history::{Bounds, HistoryService, short, text};
use crate::error::AdminError;
use crate::grant::Op;

/// Something that happened to the trust in a tool or server.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TrustEvent {
    /// When.
    pub at: String,
    /// `promoted`, `granted`, `revoked` or `violation`.
    pub what: String,
    /// Who did it.
    pub by: String,
    /// Why.
    pub why: String,
    /// The record of the log that says so.
    pub entry_id: String,
}

/// Part of a result, kept for who made the call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ArtifactRecord {
    /// The id of its record; the handle is the agent's (CTX-21).
    pub artifact_id: String,
    /// Whose it is.
    pub client_id: String,
    /// In which session.
    pub session_id: String,
    /// Of which tool.
    pub tool: String,
    /// What kind of bytes.
    pub media_type: String,
    /// How many.
    pub bytes: u64,
    /// Their digest.
    pub sha256: String,
    /// Since when.
    pub created_at: String,
    /// Until when.
    pub expires_at: String,
    /// Everything that is on record of it but its bytes (CTX-21).
    pub record: Value,
}

/// Something that was taken out of the log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ExportRecord {
    /// The record of the log that says so.
    pub export_id: String,
    /// When.
    pub at: String,
    /// By whom.
    pub by: String,
    /// `tiles` or `cassette`.
    pub format: String,
    /// Where it was written, on the gateway's machine.
    pub path: String,
}

/// Part of an artifact.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ArtifactSlice {
    /// Of which.
    pub artifact_id: String,
    /// The part, cleaned as everything that is kept is.
    pub slice: Value,
    /// How to see more, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
}

/// Something that is kept of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ContextItem {
    /// Its id.
    pub item_id: String,
    /// Of which session.
    pub session_id: String,
    /// What it is: the media type of what is kept.
    pub kind: String,
    /// How large it is.
    pub bytes: u64,
    /// How careful one has to be with it.
    pub sensitivity: String,
}

/// What was forgotten.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ErasedRecord {
    /// How many items; their keys are destroyed with them.
    pub erased: usize,
    /// Their digests, which stay on record.
    pub digests: Vec<String>,
}

/// Where events of trust say what they are about.
const TRUST_SUBJECTS: [&str; 4] = ["boundary_id", "tool_id", "tools", "server"];

impl HistoryService {
    /// What became of the trust in a tool or server, newest first. Violations of a server are its tools' too.
    pub async fn trust(&self, about: &str, (since, until): Bounds) -> Result<Vec<TrustEvent>, AdminError> {
        let about = about.to_owned();
        let server = about.split_once('/').map_or(about.clone(), |(server, _)| server.to_owned());
        let mut rows = self
            .scan(Vec::new(), move |rows: &mut Vec<TrustEvent>, record| {
                let what = match record.event {
                    EventName::TrustPromoted => "promoted",
                    EventName::TrustGranted => "granted",
                    EventName::TrustRevoked => "revoked",
                    EventName::TrustViolation => "violation",
                    _ => return,
                };
                let named = |text: &str| short(text) == about || text == server;
                let concerned = record.tool_id.as_ref().is_some_and(|id| named(id.as_str()))
                    || TRUST_SUBJECTS.iter().any(|key| match &record.data[*key] {
                        Value::String(text) => named(text),
                        Value::Array(list) => list.iter().filter_map(Value::as_str).any(named),
                        _ => false,
                    });
                if concerned && record.time >= since && record.time < until {
                    let why = ["reason", "fault"].iter().find_map(|key| record.data[*key].as_str());
                    rows.push(TrustEvent {
                        at: record.time.to_string(),
                        what: what.to_owned(),
                        by: record.actor.to_string(),
                        why: why.unwrap_or_default().to_owned(),
                        entry_id: record.id.to_string(),
                    });
                }
            })
            .await?;
        rows.reverse();
        Ok(rows)
    }

    /// Where the time of calls goes until they are sent, in the order of the steps. A call that waited for a person is left
    /// out: that says nothing about the gateway.
    pub async fn step_times(&self, (since, until): Bounds) -> Result<Vec<StepTime>, AdminError> {
        let times = self
            .scan(Vec::new(), move |times: &mut Vec<(String, Vec<u64>)>, record| {
                let counts = record.event == EventName::ExecutionIntent
                    && record.time >= since
                    && record.time < until
                    && record.data["approval_id"].is_null();
                if !counts {
                    return;
                }
                let steps: Vec<(String, u64)> =
                    serde_json::from_value(record.data["steps_us"].clone()).unwrap_or_default();
                let mut before = 0;
                for (step, at) in steps {
                    let took = at.saturating_sub(before);
                    before = at;
                    match times.iter_mut().find(|(known, _)| *known == step) {
                        Some((_, all)) => all.push(took),
                        None => times.push((step, vec![took])),
                    }
                }
            })
            .await?;
        let median = |(step, mut all): (String, Vec<u64>)| {
            all.sort_unstable();
            StepTime { step, p50_us: all[all.len() / 2] }
        };
        Ok(times.into_iter().map(median).collect())
    }

    /// What is kept of results, the oldest first.
    pub fn artifacts(&self) -> Vec<ArtifactRecord> {
        let record = |kept: &Value| ArtifactRecord {
            artifact_id: text(&kept["id"]),
            client_id: text(&kept["principal"]),
            session_id: text(&kept["session"]),
            tool: text(&kept["tool_identity"]),
            media_type: text(&kept["media_type"]),
            bytes: kept["size_bytes"].as_u64().unwrap_or_default(),
            sha256: text(&kept["content_hash"]),
            created_at: text(&kept["created_at"]),
            expires_at: text(&kept["expires_at"]),
            record: kept.clone(),
        };
        self.control.artifacts().iter().map(record).collect()
    }

    /// Part of an artifact.
    pub fn look_at_artifact(&self, id: &str, selector: &Value) -> Result<ArtifactSlice, AdminError> {
        let (slice, more) = self.control.look_at_artifact(id, selector)?;
        Ok(ArtifactSlice { artifact_id: id.to_owned(), slice, more })
    }

    /// What is kept of sessions.
    pub fn context_items(&self) -> Vec<ContextItem> {
        let item = |kept: &Value| ContextItem {
            item_id: text(&kept["id"]),
            session_id: text(&kept["session"]),
            kind: text(&kept["media_type"]),
            bytes: kept["size_bytes"].as_u64().unwrap_or_default(),
            sensitivity: text(&kept["sensitivity"]),
        };
        self.control.artifacts().iter().map(item).collect()
    }

    /// Forgets what is meant; that it was there stays on record.
    pub async fn erase(
        &self,
        op: &Op,
        is_meant: impl Fn(&ArtifactRecord) -> bool,
    ) -> Result<ErasedRecord, AdminError> {
        let meant: Vec<ArtifactRecord> = self.artifacts().into_iter().filter(|row| is_meant(row)).collect();
        let ids: Vec<String> = meant.iter().map(|row| row.artifact_id.clone()).collect();
        let erased = self.control.erase_artifacts(op.operator(), &ids, op.reason()).await?;
        Ok(ErasedRecord { erased, digests: meant.into_iter().map(|row| row.sha256).collect() })
    }

    /// Drives a recorded session through the rules as they are now; nothing is called (AUD-74).
    pub async fn replay(
        &self,
        op: &Op,
        session: SessionId,
        policies: Option<Vec<PolicyFile>>,
    ) -> Result<Value, AdminError> {
        let replayed = self.control.replay_session(op.operator(), session, policies).await?;
        serde_json::to_value(&replayed).map_err(|error| AdminError::failure(error.to_string()))
    }

    /// Exports that were made of the log, newest first.
    pub async fn exports(&self) -> Result<Vec<ExportRecord>, AdminError> {
        let mut rows = self
            .scan(Vec::new(), |rows: &mut Vec<ExportRecord>, record| {
                if record.event == EventName::AuditExported {
                    let of = |key: &str| text(&record.data[key]);
                    let (out, cassette) = (of("out"), of("cassette"));
                    rows.push(ExportRecord {
                        export_id: record.id.to_string(),
                        at: record.time.to_string(),
                        by: record.actor.to_string(),
                        format: if cassette.is_empty() { "tiles" } else { "cassette" }.to_owned(),
                        path: if cassette.is_empty() { out } else { cassette },
                    });
                }
            })
            .await?;
        rows.reverse();
        Ok(rows)
    }
}
