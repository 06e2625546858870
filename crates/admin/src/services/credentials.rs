//! What is lent to servers, and what is let pass for them.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_gateway::Control;
use schemars::JsonSchema;
use serde::Serialize;

use super::word;
use crate::error::AdminError;
use crate::grant::Op;

/// A credential, without its value.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CredentialRecord {
    /// The operator's name for it.
    pub name: String,
    /// What tools declare that they need.
    pub credential_class: String,
    /// What kind of credential.
    pub kind: String,
    /// Rises with every new value.
    pub version: u32,
    /// Servers with a tool that may use it.
    pub bindings: Vec<String>,
    /// How old the value is.
    pub age_days: u64,
}

/// Something this machine lacks that is let pass for a server, for a while.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WaiverRecord {
    /// For which server.
    pub server_id: String,
    /// What is let pass.
    pub kind: String,
    /// Until when.
    pub expires_at: String,
    /// Who let it.
    pub by: String,
}

/// Credentials and waivers.
#[derive(Debug, Clone)]
pub struct CredentialService {
    control: Arc<Control>,
}

impl CredentialService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every credential, by name.
    pub fn list(&self) -> Vec<CredentialRecord> {
        let mut rows: Vec<CredentialRecord> = (self.control.secrets().into_iter())
            .map(|row| CredentialRecord {
                credential_class: word(&row.class),
                kind: word(&row.kind),
                name: row.name,
                version: row.version,
                bindings: row.bound_servers,
                age_days: row.age_days,
            })
            .collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// Forgets one.
    pub async fn delete(&self, op: &Op, name: &str) -> Result<(), AdminError> {
        Ok(self.control.remove_secret(op.operator(), name, op.reason()).await?)
    }

    /// Lets a server start without something this machine lacks.
    pub async fn waive(
        &self,
        op: &Op,
        server: &ServerIdentity,
        facility: &str,
        lifetime: Duration,
    ) -> Result<WaiverRecord, AdminError> {
        let waiver = self.control.waive(op.operator(), server, facility, op.reason(), lifetime).await?;
        Ok(WaiverRecord {
            server_id: waiver.server.to_string(),
            kind: waiver.facility,
            expires_at: waiver.expires_at.to_string(),
            by: waiver.by,
        })
    }
}
