//! The evidence, read and checked.

use std::sync::Arc;

use portcullis_audit::{Checks, check_invariants, verify_with};
use portcullis_gateway::Control;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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

/// The evidence.
#[derive(Debug, Clone)]
pub struct AuditService {
    control: Arc<Control>,
}

impl AuditService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
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
