//! Putting policies in force, going back to an earlier one, and knowing which were (GOV-801).
//!
//! A bundle is compiled and validated first, then its activation is durable, then the world is swapped. Permits of
//! the version before die at the boundary, which compares versions; approvals stay, and are asked about again under the
//! new policy at each use.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use portcullis_audit::{AuditLog, Event, EventName, RetentionClass, Role};
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, LogId, PolicyVersion, Sha256Digest, failpoint};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::policy::{Bundle, Policy};
use portcullis_store::Store;
use serde::Serialize;
use serde_json::{Value, json};

use super::registration::need_reason;
use super::{Control, ControlError, GatewayOptions, State, announced};

/// A policy that was put in force.
#[derive(Debug, Clone, Serialize)]
pub struct Activation {
    /// `<counter>:<sha256>`.
    pub version: PolicyVersion,
    /// Who.
    pub by: String,
    /// When.
    pub at: Option<String>,
    /// Why.
    pub reason: String,
    /// What.
    #[serde(skip)]
    pub bundle: Bundle,
    /// The digest of the policy that the configuration named at that time.
    #[serde(skip)]
    configured: Option<Sha256Digest>,
}

impl Control {
    /// Every policy that was put in force, the current one last.
    pub async fn activations(&self) -> Vec<Activation> {
        self.state.lock().await.activations.clone()
    }

    /// What a bundle would be if it were put in force: its version. Nothing changes.
    pub async fn validate_policy(&self, bundle: &Bundle) -> Result<Policy, ControlError> {
        let next = self.state.lock().await.policy.version().counter + 1;
        compile(bundle, &self.options, next)
    }

    /// Puts a bundle in force.
    pub async fn apply_policy(
        &self,
        operator: &OperatorProof,
        bundle: Bundle,
        reason: &str,
    ) -> Result<Activation, ControlError> {
        need_reason(reason)?;
        let mut state = self.state.lock().await;
        self.put_in_force(&mut state, operator, bundle, reason).await
    }

    /// Puts an earlier bundle in force again: the one with this counter, else the last that differs from the
    /// current one. It gets a version of its own; history is not rewritten.
    pub async fn roll_back_policy(
        &self,
        operator: &OperatorProof,
        counter: Option<u64>,
        reason: &str,
    ) -> Result<Activation, ControlError> {
        need_reason(reason)?;
        let mut state = self.state.lock().await;
        let current = state.policy.version();
        let wanted = |activation: &&Activation| match counter {
            Some(counter) => activation.version.counter == counter,
            None => activation.version.sha256 != current.sha256,
        };
        let found = state.activations.iter().rev().find(wanted).cloned().ok_or_else(|| {
            let message = match counter {
                Some(counter) => format!(
                    "no policy version {counter} was ever in force; `portcullis policy show` lists them"
                ),
                None => "no other policy was ever in force".to_owned(),
            };
            ControlError::new(ErrorCode::NotFound, message)
        })?;
        if found.version.sha256 == current.sha256 {
            let message = format!("policy version {} is what is in force now", found.version.counter);
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        self.put_in_force(&mut state, operator, found.bundle, reason).await
    }

    async fn put_in_force(
        &self,
        state: &mut State,
        operator: &OperatorProof,
        bundle: Bundle,
        reason: &str,
    ) -> Result<Activation, ControlError> {
        let compiled = compile(&bundle, &self.options, state.policy.version().counter + 1);
        let policy = match compiled {
            Ok(policy) => policy,
            Err(error) => {
                let data = json!({"reason": one_line(&error.message)});
                self.log.append(vec![Event::new(EventName::PolicyRejected, &operator.actor()).data(data)])?;
                return Err(error);
            }
        };
        if policy.version().sha256 == state.policy.version().sha256 {
            let message = format!("that is the policy in force: version {}", state.policy.version().counter);
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let by = (&operator.actor(), operator.operation());
        let (sessions, mut passages) = self.all_pass();
        // GOV-801: what was permitted under the policy before is not any more.
        passages.extend(self.end_permits(None, "policy"));
        let activation = activate(&self.log, by, &policy, reason, &self.options, passages).await?;
        for session in sessions {
            session.pass_checkpoint();
        }
        state.policy = Arc::new(policy);
        state.activations.push(activation.clone());
        state.assign_tiers();
        self.close_doors(state);
        self.world.swap(state.world());
        Ok(activation)
    }
}

impl Control {
    /// SBX-10: policy may take away what was declared, from processes that run already too.
    pub(super) fn close_doors(&self, state: &State) {
        self.settings.conditions.closed.store(state.policy.settings().denies_egress(), Ordering::Release);
    }
}

impl State {
    /// GOV-806: tiers are what the policy in force says, whenever a server was registered.
    fn assign_tiers(&mut self) {
        let settings = self.policy.settings();
        for entry in self.entries.values_mut() {
            let record = &entry.record;
            let tier = settings.assigned_tier(&record.server_identity, record.requested_trust_tier);
            if tier != record.assigned_trust_tier {
                let mut record = (**record).clone();
                record.assigned_trust_tier = tier;
                entry.record = Arc::new(record);
            }
        }
    }
}

/// The policy to start with: the one last put in force, unless the configuration has changed since; then the
/// configuration is the operator's latest word. What is not in force yet is activated.
pub(super) async fn at_start(
    options: &GatewayOptions,
    store: &Store,
    log: &AuditLog,
) -> Result<(Arc<Policy>, Vec<Activation>), ControlError> {
    let rows =
        store.policies().await.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?;
    let mut activations: Vec<Activation> =
        rows.iter().filter_map(|row| restored(&row.version, &row.document, &row.activation)).collect();
    // Every version counts, also one whose document is of an older form.
    let counters = rows.iter().filter_map(|row| row.version.parse::<PolicyVersion>().ok());
    let counter = counters.map(|version| version.counter).max().unwrap_or(0);
    let configured = Sha256Digest::of(&options.policy.document());
    let last = activations.last().filter(|last| last.configured == Some(configured));
    let (bundle, reason) = match last {
        Some(last) => (last.bundle.clone(), "the texts that come with the program changed"),
        None => (options.policy.clone(), "as configured"),
    };
    if let Some(last) = last {
        let policy = compile(&bundle, options, last.version.counter)?;
        if policy.version() == last.version {
            return Ok((Arc::new(policy), activations));
        }
    }
    let policy = compile(&bundle, options, counter + 1)?;
    activations.push(activate(log, (&Actor::system(), None), &policy, reason, options, Vec::new()).await?);
    Ok((Arc::new(policy), activations))
}

fn compile(bundle: &Bundle, options: &GatewayOptions, counter: u64) -> Result<Policy, ControlError> {
    Policy::compile(bundle, options.mode, counter)
        .map_err(|error| ControlError::field("policy", error.to_string()))
}

/// One durable event, with the texts as evidence.
async fn activate(
    log: &AuditLog,
    (actor, operation): (&Actor, Option<(LogId, u64)>),
    policy: &Policy,
    reason: &str,
    options: &GatewayOptions,
    passages: Vec<Event>,
) -> Result<Activation, ControlError> {
    let configured = Sha256Digest::of(&options.policy.document());
    let reason = one_line(reason);
    failpoint::pass("policy.before_activate");
    let data = json!({
        "configured": configured, "preset": policy.bundle().preset, "reason": reason, "version": policy.version(),
    });
    let event = Event::new(EventName::PolicyActivated, actor).policy(policy.version()).data(data).evidence(
        Role::Policy,
        RetentionClass::Hold,
        Bytes::copy_from_slice(policy.document()),
    );
    let receipt = log.commit(announced(operation, [vec![event], passages].concat())).await?;
    Ok(Activation {
        version: policy.version(),
        by: actor.to_string(),
        at: Some(receipt.time.to_string()),
        reason,
        bundle: policy.bundle().clone(),
        configured: Some(configured),
    })
}

/// An activation as it was recorded; `None` if its document is not one of ours.
fn restored(version: &str, document: &[u8], activation: &Value) -> Option<Activation> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    Some(Activation {
        version: version.parse().ok()?,
        by: serde_json::from_value::<Actor>(activation["actor"].clone())
            .map_or_else(|_| Actor::system().to_string(), |actor| actor.to_string()),
        at: text(&activation["time"]),
        reason: text(&activation["data"]["reason"]).unwrap_or_default(),
        bundle: Bundle::recorded(document)?,
        configured: text(&activation["data"]["configured"]).and_then(|digest| digest.parse().ok()),
    })
}
