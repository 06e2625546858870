//! What confines servers, for operators: what a server may touch, whether it can be confined now, and what is waived for
//! it (SBX-70 to SBX-72).

use std::time::Duration;

use portcullis_audit::{Event, EventName};
use portcullis_core::error::one_line;
use portcullis_core::{ErrorCode, RegistrationEpoch, ServerIdentity, Timestamp};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::record::{ProcessModel, Transport};
use portcullis_governance::registry::ServerEntry;
use portcullis_sandbox::launch::WAIVABLE;
use portcullis_upstream::{Endpoint, rehearse};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::registration::need_reason;
use super::{Control, ControlError};

/// What waivers are called among the kept documents.
pub(super) const KIND: &str = "sandbox_waiver";
/// The longest time for which anything is waived.
const LONGEST: Duration = Duration::from_secs(90 * 86_400);

/// A facility that a server is started without.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Waiver {
    /// Which server.
    pub server: ServerIdentity,
    /// This life of it; another version is another server.
    pub epoch: RegistrationEpoch,
    /// What is waived.
    pub facility: String,
    /// Why.
    pub reason: String,
    /// Until when.
    pub expires_at: Timestamp,
    /// By whom.
    pub by: String,
}

impl Control {
    /// What a server may touch, as it is enforced.
    pub async fn explain_cage(&self, name: &ServerIdentity) -> Result<Value, ControlError> {
        let entry = self.entry_of(name).await?;
        let tool = |tool: &std::sync::Arc<portcullis_governance::accepted::AcceptedTool>| {
            json!({
                "name": tool.id().item().name(), "side_effects": tool.side_effects(), "scopes": tool.scopes(),
                "credentials": tool.credentials(),
                "process_model": tool.cage().map(|cage| cage.model),
                "profile_sha256": tool.cage().map(|cage| cage.sha256),
                "profile": tool.cage().filter(|cage| cage.model != ProcessModel::Shared).map(|cage| &cage.profile),
            })
        };
        let tools: Vec<Value> = entry.declaration.everything().map(tool).collect();
        let record = &entry.record;
        let mut document = json!({
            "server": name, "version": record.server_version, "isolation_class": record.isolation_class,
            "isolation_reason": record.isolation_reason, "transport": record.transport.as_str(), "tools": tools,
            "waivers": self.waivers_of(&entry),
        });
        match &record.transport {
            Transport::Stdio { process } => {
                document["process_model"] = json!(process.process_model);
                document["profile"] = json!(process.profile);
                document["profile_sha256"] = json!(process.profile_sha256);
            }
            Transport::Http { url, .. } | Transport::Sse { url, .. } | Transport::Records { url, .. } => {
                document["url"] = json!(url);
            }
        }
        Ok(document)
    }

    /// Starts a server's cage, tests it, and ends it before the program runs.
    pub async fn test_cage(&self, name: &ServerIdentity) -> Result<Value, ControlError> {
        let entry = self.entry_of(name).await?;
        let Endpoint::Stdio(program) = Endpoint::from(&*entry.record) else {
            let message = format!("server '{name}' is not started here, so nothing confines it");
            return Err(ControlError::new(ErrorCode::Validation, message));
        };
        match rehearse(name, &program, &self.settings).await {
            Ok((layers, cgroup)) => {
                Ok(json!({"ok": true, "server": name, "cgroup": cgroup, "layers": layers}))
            }
            Err(error) => Err(ControlError::new(error.code(), error.to_string())),
        }
    }

    /// Has a server started without a facility that this machine lacks, for a while.
    pub async fn waive(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        facility: &str,
        reason: &str,
        lifetime: Duration,
    ) -> Result<Waiver, ControlError> {
        need_reason(reason)?;
        self.is_waivable(facility)?;
        if lifetime.is_zero() || lifetime > LONGEST {
            return Err(ControlError::field("expires", "a waiver lasts for 90 days at most"));
        }
        let entry = self.entry_of(name).await?;
        let waiver = Waiver {
            server: name.clone(),
            epoch: entry.epoch(),
            facility: facility.to_owned(),
            reason: one_line(reason),
            expires_at: self.clock.now().after(lifetime),
            by: operator.name().to_owned(),
        };
        let document = serde_json::to_value(&waiver).expect("a waiver is plain JSON");
        let granted = Event::new(EventName::SandboxWaiverGranted, &operator.actor()).data(document.clone());
        self.commit(operator, vec![granted.epoch(entry.epoch())]).await?;
        self.keep(operator, KIND, &format!("{name}/{facility}"), document, None).await?;
        self.settings.waivers.grant(name, facility, waiver.expires_at);
        Ok(waiver)
    }

    /// Whether a server may be started without this.
    pub fn is_waivable(&self, facility: &str) -> Result<(), ControlError> {
        if WAIVABLE.contains(&facility) {
            return Ok(());
        }
        let shown = portcullis_core::name::printable(facility);
        let message = format!("{shown} cannot be waived; what can is: {}", WAIVABLE.join(", "));
        Err(ControlError::field("facility", message))
    }

    /// What is let pass for a server, if it is.
    pub fn waiver(&self, name: &ServerIdentity, facility: &str) -> Option<Waiver> {
        let kept = self.kept_one(KIND, &format!("{name}/{facility}"))?;
        serde_json::from_value(kept.document).ok()
    }

    /// Puts what is on record in force, at a start.
    pub(super) async fn restore_waivers(&self) {
        let entries: Vec<ServerEntry> = self.state.lock().await.entries.values().cloned().collect();
        for entry in entries {
            for waiver in self.waivers_of(&entry) {
                self.settings.waivers.grant(&waiver.server, &waiver.facility, waiver.expires_at);
            }
        }
    }

    /// What is waived for a server, in this life of it, now.
    fn waivers_of(&self, entry: &ServerEntry) -> Vec<Waiver> {
        let now = self.clock.now();
        let kept = self.kept(KIND).into_iter();
        let waivers = kept.filter_map(|kept| serde_json::from_value::<Waiver>(kept.document).ok());
        let counts = |waiver: &Waiver| {
            waiver.server == entry.record.server_identity
                && waiver.epoch == entry.epoch()
                && now < waiver.expires_at
        };
        waivers.filter(counts).collect()
    }

    async fn entry_of(&self, name: &ServerIdentity) -> Result<ServerEntry, ControlError> {
        let found = self.state.lock().await.entries.get(name).cloned();
        found.ok_or_else(|| ControlError::not_found(name))
    }
}
