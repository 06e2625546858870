//! Trust: what servers and tools have earned.

use std::sync::Arc;

use portcullis_gateway::Control;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::AdminError;
use crate::grant::Op;

/// The trust in a tool, or in a server as a whole.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TrustRecord {
    /// `<server>/<tool>`, or the server's name.
    pub tool: String,
    /// Its server.
    pub server_id: String,
    /// `untrusted`, `probationary` or `trusted`.
    pub state: String,
    /// Whether its server is halted.
    pub halted: bool,
    /// What its record is worth.
    pub score: Value,
    /// Calls without a fault.
    pub clean: u64,
    /// Faults.
    pub violations: u64,
    /// How often trust was taken back.
    pub reset_epoch: u64,
    /// Its canonical identity, if it is a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_id: Option<String>,
    /// What it would be on a higher tier.
    pub recorded: String,
    /// What it has earned.
    pub eligible: String,
    /// The tier of its server.
    pub tier: u64,
    /// Days with a call without a fault.
    pub days: u64,
    /// Sessions with one.
    pub sessions: u64,
    /// Under which policy that counts.
    pub policy_version: String,
    /// Since when it is in its state.
    pub since: String,
    /// The record that last changed anything.
    pub last_event: u64,
}

/// What the log says of trust, held against what the gateway goes by (GOV-1103).
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TrustVerified {
    /// How many records the log comes to.
    pub checked: u64,
    /// Those that differ.
    pub differences: Value,
}

/// Trust.
#[derive(Debug, Clone)]
pub struct TrustService {
    control: Arc<Control>,
}

impl TrustService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every record, servers before their tools.
    pub async fn list(&self) -> Vec<TrustRecord> {
        self.control.trust_records().await.iter().map(|row| self.record(row)).collect()
    }

    /// Computes everything again from the first record of the log, and compares.
    pub async fn verify(&self) -> Result<TrustVerified, AdminError> {
        let verified = self.control.verify_trust().await?;
        let checked = verified["checked"].as_u64().unwrap_or_default();
        Ok(TrustVerified { checked, differences: verified["differences"].clone() })
    }

    /// Trusts what has earned it.
    pub async fn grant(&self, op: &Op, id: &str) -> Result<TrustRecord, AdminError> {
        Ok(self.record(&self.control.grant_trust(op.operator(), id, op.reason()).await?))
    }

    /// Takes all trust back.
    pub async fn revoke(&self, op: &Op, id: &str) -> Result<TrustRecord, AdminError> {
        Ok(self.record(&self.control.revoke_trust(op.operator(), id, op.reason()).await?))
    }

    fn record(&self, row: &Value) -> TrustRecord {
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| row[key].as_u64().unwrap_or_default();
        let world = self.control.world();
        let server_id = text("server");
        let entry = server_id.parse().ok().and_then(|id| world.registry().server(&id).cloned());
        TrustRecord {
            tool: text("boundary_id"),
            halted: entry.is_some_and(|entry| entry.live.is_halted()),
            server_id,
            state: text("state"),
            score: row["score"].clone(),
            clean: number("clean"),
            violations: number("violations"),
            reset_epoch: number("reset_epoch"),
            tool_id: row["tool_id"].as_str().map(ToOwned::to_owned),
            recorded: text("recorded"),
            eligible: text("eligible"),
            tier: number("tier"),
            days: number("days"),
            sessions: number("sessions"),
            policy_version: text("policy_version"),
            since: text("since"),
            last_event: number("last_event"),
        }
    }
}
