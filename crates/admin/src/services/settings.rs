//! Settings and backups.

use std::sync::Arc;

use portcullis_audit::EventName;
use portcullis_gateway::Control;
use portcullis_gateway::control::{Backup, Setting};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::history::{HistoryService, text};
use crate::error::AdminError;
use crate::grant::Op;

/// A setting.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SettingRecord {
    /// Which.
    pub key: String,
    /// What it is.
    pub value: Value,
    /// `default`, `file` or `set`.
    pub source: String,
    /// Whether only a start reads it.
    pub startup_only: bool,
    /// How often an operator set it.
    pub version: u64,
}

/// A backup.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BackupRecord {
    /// Its id.
    pub backup_id: String,
    /// What an operator calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Since when.
    pub created_at: String,
    /// How large it is.
    pub bytes: u64,
    /// The digest of its files.
    pub sha256: String,
    /// How many records it holds.
    pub records: u64,
}

/// What looking at a backup came to.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BackupVerified {
    /// Which.
    pub backup_id: String,
    /// Whether its files are those that were copied.
    pub digest: bool,
    /// Whether its records are whole and under its checkpoint.
    pub checkpoint: bool,
}

/// What the next start does.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RestorePlan {
    /// With which backup.
    pub backup_id: String,
    /// In words.
    pub plan: String,
}

/// Settings and backups.
#[derive(Debug, Clone)]
pub struct SettingService {
    control: Arc<Control>,
}

impl SettingService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every setting that is told, by name.
    pub fn list(&self) -> Vec<SettingRecord> {
        let rows = self.control.settings().into_iter();
        rows.map(|row| SettingRecord {
            key: row.key.to_owned(),
            value: row.value,
            source: row.source.to_owned(),
            startup_only: row.startup_only,
            version: row.version,
        })
        .collect()
    }

    /// What settings were, as operators set them, in the order in which that happened.
    pub async fn history(&self) -> Result<Vec<SettingRecord>, AdminError> {
        let history = HistoryService::new(self.control.clone());
        history
            .scan(Vec::new(), |rows: &mut Vec<SettingRecord>, record| {
                let data = &record.data;
                if record.event == EventName::AdminStateChanged && data["kind"] == "setting" {
                    rows.push(SettingRecord {
                        key: text(&data["id"]),
                        value: data["document"]["value"].clone(),
                        source: if data["document"].is_null() { "reset" } else { "set" }.to_owned(),
                        startup_only: false,
                        version: data["version"].as_u64().unwrap_or_default(),
                    });
                }
            })
            .await
    }

    /// Changes one, from now on.
    pub async fn set(
        &self,
        op: &Op,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<SettingRecord, AdminError> {
        self.is_live(key)?;
        self.control.change_setting(op.operator(), key, value, expected).await?;
        self.one(key)
    }

    /// Goes back to what the configuration says.
    pub async fn reset(&self, op: &Op, key: &str) -> Result<SettingRecord, AdminError> {
        self.is_live(key)?;
        if self.control.document::<Setting>(key).is_none() {
            return Err(AdminError::not_found("nobody has set this setting"));
        }
        self.control.reset_setting(op.operator(), key).await?;
        self.one(key)
    }

    fn is_live(&self, key: &str) -> Result<(), AdminError> {
        match self.control.is_live_setting(key) {
            None => Err(AdminError::not_found("there is no such setting")),
            Some(false) => {
                Err(AdminError::capability_gap("only a start reads this setting; change the file"))
            }
            Some(true) => Ok(()),
        }
    }

    fn one(&self, key: &str) -> Result<SettingRecord, AdminError> {
        let found = self.list().into_iter().find(|row| row.key == key);
        found.ok_or_else(|| AdminError::not_found("there is no such setting"))
    }

    /// Every backup, oldest first.
    pub fn backups(&self) -> Vec<BackupRecord> {
        self.control.documents::<Backup>().into_iter().map(|backup| record(backup.document)).collect()
    }

    /// Makes one.
    pub async fn back_up(&self, op: &Op, label: Option<String>) -> Result<BackupRecord, AdminError> {
        Ok(record(self.control.create_backup(op.operator(), label).await?))
    }

    /// Looks at one.
    pub async fn verify(&self, id: &str) -> Result<BackupVerified, AdminError> {
        let verified = self.control.verify_backup(id).await?;
        Ok(BackupVerified {
            backup_id: id.to_owned(),
            digest: verified.digest,
            checkpoint: verified.checkpoint,
        })
    }

    /// Plans that the next start begins with one.
    pub async fn restore(&self, _: &Op, id: &str) -> Result<RestorePlan, AdminError> {
        self.control.plan_restore(id).await?;
        let plan =
            "the next start puts the evidence aside and begins with this backup; nothing changes before";
        Ok(RestorePlan { backup_id: id.to_owned(), plan: plan.to_owned() })
    }
}

fn record(backup: Backup) -> BackupRecord {
    BackupRecord {
        backup_id: backup.backup_id,
        label: backup.label,
        created_at: backup.created_at,
        bytes: backup.bytes,
        sha256: backup.sha256.to_string(),
        records: backup.records,
    }
}
