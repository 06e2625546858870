//! What is lent to servers, and what is let pass for them.

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::ServerIdentity;
use portcullis_gateway::Control;
use portcullis_governance::broker::vault::Kind;
use schemars::JsonSchema;
use serde::Serialize;

use super::{CaptureRecord, word};
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
    /// Servers that operators keep it from.
    pub withheld_from: Vec<String>,
    /// How old the value is.
    pub age_days: u64,
}

/// What is known of a credential before its value.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// What tools declare that they need; else what the server lacks, else the name.
    pub class: Option<String>,
    /// For which server.
    pub server: Option<ServerIdentity>,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Whether it must be another value of one that is there, or must not; either, if nobody says.
    pub again: Option<bool>,
}

/// Something this machine lacks that is let pass for a server, for a while.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct WaiverRecord {
    /// Its id.
    pub waiver_id: String,
    /// For which server.
    pub server_id: String,
    /// What is let pass.
    pub kind: String,
    /// Until when.
    pub expires_at: String,
    /// Who let it.
    pub by: String,
}

/// Where a signing key was written; the key itself is not told.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SigningKeyFile {
    /// The file, which its owner alone can read.
    pub file: String,
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
                withheld_from: self.control.kept_from(&row.name),
                name: row.name,
                version: row.version,
                bindings: row.bound_servers,
                age_days: row.age_days,
            })
            .collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    /// A credential is expected past the tools: a new one, or another value of one that is there.
    pub fn capture(&self, op: &Op, name: &str, expected: Expected) -> Result<CaptureRecord, AdminError> {
        let known = self.control.secrets();
        let is_known = known.iter().any(|row| row.name == name);
        if expected.again.unwrap_or(is_known) {
            return Ok(CaptureRecord::of(&self.control, self.control.expect_rotation(op.operator(), name)?));
        }
        let class = match (expected.class, expected.server) {
            (Some(class), _) => class,
            (None, None) => name.to_owned(),
            (None, Some(server)) => {
                let server = &server;
                let world = self.control.world();
                let entry = world.registry().server(server);
                let entry = entry
                    .ok_or_else(|| AdminError::not_found(format!("server '{server}' does not exist")))?;
                let declared = entry.declaration.everything().flat_map(|tool| tool.deliveries().iter());
                let open = declared.map(|delivery| word(&delivery.class));
                let mut open = open.filter(|class| !known.iter().any(|row| word(&row.class) == *class));
                open.next().ok_or_else(|| {
                    AdminError::conflict(
                        "this server declares no class of credentials that is not stored already",
                    )
                })?
            }
        };
        let expected = self.control.expect_credential(op.operator(), name, &class, expected.kind)?;
        Ok(CaptureRecord::of(&self.control, expected))
    }

    /// Gives a credential the class that a server declares.
    pub async fn bind(
        &self,
        op: &Op,
        name: &str,
        server: &ServerIdentity,
        class: &str,
    ) -> Result<CredentialRecord, AdminError> {
        self.control.bind_secret(op.operator(), name, server, class).await?;
        self.one(name)
    }

    /// Keeps a credential from a server.
    pub async fn unbind(
        &self,
        op: &Op,
        name: &str,
        server: &ServerIdentity,
    ) -> Result<CredentialRecord, AdminError> {
        self.control.unbind_secret(op.operator(), name, server).await?;
        self.one(name)
    }

    fn one(&self, name: &str) -> Result<CredentialRecord, AdminError> {
        let found = self.list().into_iter().find(|row| row.name == name);
        found.ok_or_else(|| AdminError::conflict("somebody removed it meanwhile"))
    }

    /// Has the key that deliveries of a records server are signed with written to a file, once (REC-70).
    pub async fn export_signing_key(
        &self,
        op: &Op,
        server: &ServerIdentity,
        subscription: &str,
    ) -> Result<SigningKeyFile, AdminError> {
        let file = self.control.export_signing_key(op.operator(), server, subscription, op.reason()).await?;
        Ok(SigningKeyFile { file: file.display().to_string() })
    }

    /// Forgets one.
    pub async fn delete(&self, op: &Op, name: &str) -> Result<(), AdminError> {
        Ok(self.control.remove_secret(op.operator(), name, op.reason()).await?)
    }

    /// Ends a waiver: `<server>/<what>`.
    pub async fn revoke_waiver(&self, op: &Op, id: &str) -> Result<WaiverRecord, AdminError> {
        let waiver = self.control.revoke_waiver(op.operator(), id, op.reason()).await?;
        Ok(WaiverRecord {
            waiver_id: id.to_owned(),
            server_id: waiver.server.to_string(),
            kind: waiver.facility,
            expires_at: waiver.expires_at.to_string(),
            by: waiver.by,
        })
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
            waiver_id: format!("{}/{}", waiver.server, waiver.facility),
            server_id: waiver.server.to_string(),
            kind: waiver.facility,
            expires_at: waiver.expires_at.to_string(),
            by: waiver.by,
        })
    }
}
