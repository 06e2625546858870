//! Policies: which was in force when, and what would happen under which.

use std::sync::Arc;

use portcullis_core::ErrorCode;
use portcullis_gateway::Control;
use portcullis_gateway::ControlError;
use portcullis_gateway::control::{Activation, ArgumentError, Explanation, VerdictChange};
use portcullis_governance::policy::{Bundle, Policy};
use schemars::JsonSchema;
use serde::Serialize;

use super::OfferRecord;
use crate::error::AdminError;
use crate::grant::Op;

/// A policy that was put in force.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PolicyRecord {
    /// Its number: rises with every activation.
    pub version: u64,
    /// `bundle` or `preset`.
    pub kind: String,
    /// The digest of its texts.
    pub digest: String,
    /// Whether it is in force.
    pub active: bool,
    /// Who put it in force.
    pub by: String,
    /// When.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Why.
    pub reason: String,
}

/// One file of a bundle.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PolicyFileRecord {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A policy with its texts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PolicyDetail {
    /// The row of the list.
    #[serde(flatten)]
    pub policy: PolicyRecord,
    /// The ready-made policy it builds on.
    pub preset: String,
    /// The operator's own files.
    pub files: Vec<PolicyFileRecord>,
    /// The text of `settings.toml`.
    pub settings: String,
    /// The ids of all policies in it.
    pub policies: Vec<String>,
}

/// What would happen to a call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ExplanationRecord {
    /// Whether it could be made at all: `allow` or `deny`.
    pub invoke: String,
    /// Whether it could be made without asking anybody.
    pub invoke_unattended: String,
    /// The policies that decided.
    pub policies: Vec<String>,
    /// The approvals an operator could give.
    pub scopes: Vec<String>,
    /// How many operators the narrowest takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quorum: Option<u32>,
    /// All of them, each with its number of operators.
    pub offers: Vec<OfferRecord>,
    /// What would be called.
    pub tool: String,
    /// Under which version.
    pub version: String,
}

/// What would become of a call, from the gate to policy.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DryRunRecord {
    /// What would be called.
    pub tool_id: String,
    /// `refused`, `denied`, `asked` or `allowed`.
    pub outcome: String,
    /// The permission that is lacking, where the gate refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied_capability: Option<String>,
    /// What is wrong with the arguments, by place.
    pub errors: Vec<ArgumentProblem>,
    /// What policy says, where the call gets that far.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ExplanationRecord>,
}

/// An argument that does not fit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ArgumentProblem {
    /// RFC 6901 pointer.
    pub pointer: String,
    /// What is expected.
    pub problem: String,
}

/// What a bundle would be, and do.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ValidationRecord {
    /// Whether it could be put in force.
    pub ok: bool,
    /// Why not.
    pub problems: Vec<String>,
    /// How many past calls were asked about again.
    pub compared: u64,
    /// Those about which it decides otherwise than the policy in force.
    pub changed: Vec<VerdictRow>,
}

/// A past call about which a bundle decides otherwise.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct VerdictRow {
    /// The record of the call.
    pub seq: u64,
    /// `<server>/<tool>`.
    pub tool: String,
    /// What the policy in force says: `deny`, `approval` or `unattended`.
    pub now: String,
    /// What the bundle would say.
    pub then: String,
}

/// How many past calls a bundle is tried on.
const TRIED_ON: usize = 1_000;

/// Policies.
#[derive(Debug, Clone)]
pub struct PolicyService {
    control: Arc<Control>,
}

impl PolicyService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Every policy that was put in force, the oldest first.
    pub async fn list(&self) -> Vec<PolicyRecord> {
        let history = self.control.activations().await;
        let current = history.last().map(|last| last.version.counter);
        history.iter().map(|activation| record(activation, current)).collect()
    }

    /// One of them, or the one in force.
    pub async fn get(&self, version: Option<u64>) -> Result<PolicyDetail, AdminError> {
        let history = self.control.activations().await;
        let current = history.last().map(|last| last.version.counter);
        let found = find(&history, version)?;
        let compiled = self.control.validate_policy(&found.bundle).await?;
        let files = found.bundle.files.iter();
        Ok(PolicyDetail {
            policy: record(found, current),
            preset: found.bundle.preset.as_str().to_owned(),
            files: files
                .map(|file| PolicyFileRecord { name: file.name.clone(), text: file.text.clone() })
                .collect(),
            settings: found.bundle.settings.clone(),
            policies: compiled.ids().iter().map(ToString::to_string).collect(),
        })
    }

    /// What would happen to a call under the policy in force, or under another that once was.
    pub async fn explain(
        &self,
        client: Option<&str>,
        tool: &str,
        args: &str,
        version: Option<u64>,
    ) -> Result<ExplanationRecord, AdminError> {
        let explained = match version {
            None => self.control.explain(client, tool, args)?,
            Some(version) => {
                let history = self.control.activations().await;
                let policy: Policy =
                    self.control.validate_policy(&find(&history, Some(version))?.bundle).await?;
                self.control.explain_under(&policy, client, tool, args)?
            }
        };
        let mut record = explanation(explained);
        if let Some(version) = version {
            record.version = version.to_string();
        }
        Ok(record)
    }

    /// What would become of a call, from the gate to policy.
    pub fn dry_run(&self, client: &str, tool: &str, args: &str) -> Result<DryRunRecord, AdminError> {
        let run = self.control.dry_run(Some(client), tool, args)?;
        let outcome = match &run.policy {
            None => "refused",
            Some(policy) => match policy.decision {
                "deny" => "denied",
                "unattended" => "allowed",
                _ => "asked",
            },
        };
        let problem =
            |error: ArgumentError| ArgumentProblem { pointer: error.pointer, problem: error.problem };
        Ok(DryRunRecord {
            tool_id: run.tool_id,
            outcome: outcome.to_owned(),
            denied_capability: run.denied_capability,
            errors: run.errors.into_iter().map(problem).collect(),
            policy: run.policy.map(explanation),
        })
    }

    /// Whether a bundle could be put in force, and what it would have decided otherwise of late.
    pub async fn validate(
        &self,
        asking: &portcullis_core::Actor,
        bundle: &Bundle,
    ) -> Result<ValidationRecord, AdminError> {
        if let Err(error) = self.control.validate_policy(bundle).await {
            let problems = error.message.lines().map(str::to_owned).collect();
            return Ok(ValidationRecord { ok: false, problems, compared: 0, changed: Vec::new() });
        }
        let verdicts = self.control.verdicts_under(asking, bundle, TRIED_ON).await?;
        let row = |change: VerdictChange| VerdictRow {
            seq: change.seq,
            tool: change.tool,
            now: change.now.to_owned(),
            then: change.then.to_owned(),
        };
        Ok(ValidationRecord {
            ok: true,
            problems: Vec::new(),
            compared: verdicts.compared,
            changed: verdicts.changed.into_iter().map(row).collect(),
        })
    }

    /// Puts a bundle in force, if the one in force is still the expected one.
    pub async fn apply(
        &self,
        op: &Op,
        bundle: Bundle,
        expected: Option<u64>,
    ) -> Result<PolicyRecord, AdminError> {
        if let Some(expected) = expected {
            let current = self.control.activations().await.last().map_or(0, |last| last.version.counter);
            if current != expected {
                let text = format!("policy version {current} is in force, not {expected}");
                return Err(AdminError::conflict(text));
            }
        }
        let activation = self.control.apply_policy(op.operator(), bundle, op.reason()).await?;
        Ok(record(&activation, Some(activation.version.counter)))
    }

    /// Puts an earlier one in force again, under a version of its own; without a number the last that differs.
    pub async fn roll_back(&self, op: &Op, version: Option<u64>) -> Result<PolicyRecord, AdminError> {
        let activation = self.control.roll_back_policy(op.operator(), version, op.reason()).await?;
        Ok(record(&activation, Some(activation.version.counter)))
    }
}

fn explanation(explained: Explanation) -> ExplanationRecord {
    let word = |allowed: bool| if allowed { "allow" } else { "deny" }.to_owned();
    ExplanationRecord {
        invoke: word(explained.decision != "deny"),
        invoke_unattended: word(explained.decision == "unattended"),
        policies: explained.reasons,
        scopes: explained.scopes.iter().map(ToString::to_string).collect(),
        quorum: explained.quorum,
        offers: explained.offers.iter().map(OfferRecord::of).collect(),
        tool: explained.tool_id,
        version: explained.policy_version,
    }
}

fn find(history: &[Activation], version: Option<u64>) -> Result<&Activation, AdminError> {
    let wanted =
        |activation: &&Activation| version.is_none_or(|version| activation.version.counter == version);
    history.iter().rev().find(wanted).ok_or_else(|| {
        let text = format!("no policy version {} was ever in force", version.unwrap_or_default());
        AdminError::from(ControlError::new(ErrorCode::NotFound, text))
    })
}

fn record(activation: &Activation, current: Option<u64>) -> PolicyRecord {
    let own = !activation.bundle.files.is_empty() || !activation.bundle.settings.is_empty();
    PolicyRecord {
        version: activation.version.counter,
        kind: if own { "bundle" } else { "preset" }.to_owned(),
        digest: activation.version.sha256.to_string(),
        active: current == Some(activation.version.counter),
        by: activation.by.clone(),
        at: activation.at.clone(),
        reason: activation.reason.clone(),
    }
}
