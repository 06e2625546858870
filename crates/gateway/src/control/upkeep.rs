//! Single things put right by operators: a server started anew, a turn taken away, a permit looked at, an approval asked for
//! ahead, a waiver ended.

use std::collections::HashMap;
use std::sync::Arc;

use portcullis_audit::{Event, EventName, read};
use portcullis_core::error::one_line;
use portcullis_core::{ApprovalId, ErrorCode, PermitId, Principal, ServerIdentity};
use portcullis_governance::approval::Approval;
use portcullis_governance::boundary::{Check, Prober};
use portcullis_governance::operator::OperatorProof;
use portcullis_upstream::{Connection, Endpoint, Settings};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kept::Document;
use super::registration::need_reason;
use super::{Control, ControlError, State};
use crate::turns::TurnRow;
use crate::upstreams::Upstream;

/// Who asked for an approval ahead, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AskedAhead {
    /// Which approval.
    pub approval_id: ApprovalId,
    /// Who.
    pub by: String,
    /// Why.
    pub justification: String,
}

impl Document for AskedAhead {
    const KIND: &'static str = "asked_ahead";

    fn id(&self) -> String {
        self.approval_id.to_string()
    }
}

/// A replica.
#[derive(Debug, Clone, Serialize)]
pub struct ReplicaRow {
    /// The log it writes, which is its id.
    pub log_id: String,
    /// `present` or `gone`.
    pub state: &'static str,
    /// Records that are not known to be published, where that is ours to know.
    pub lag: Option<u64>,
}

/// What one of the eight checks would say of a permit.
#[derive(Debug, Clone, Serialize)]
pub struct PermitVerdict {
    /// Which check.
    pub check: &'static str,
    /// Whether it would pass now.
    pub passes: bool,
}

impl Control {
    /// Ends a server's processes and connections; the next call starts another. Gives the processes that were ended.
    pub async fn restart_server(
        &self,
        name: &ServerIdentity,
        process: Option<u32>,
    ) -> Result<Vec<u32>, ControlError> {
        let mut state = self.state.lock().await;
        let upstream = state.upstreams.get(name).cloned().ok_or_else(|| ControlError::not_found(name))?;
        let pids = upstream.pids();
        if process.is_some_and(|process| !pids.contains(&process)) {
            return Err(ControlError::new(ErrorCode::NotFound, "this server has no such process now"));
        }
        state.reconnect(name, &self.log, &self.settings);
        self.world.swap(state.world());
        drop(state);
        upstream.close().await;
        Ok(pids)
    }

    /// Every replica that ever took part; `None` where there are no others (AUD-68).
    pub async fn replica_rows(&self) -> Result<Option<Vec<ReplicaRow>>, ControlError> {
        let Some(replicas) = &self.replicas else { return Ok(None) };
        let rows = replicas.shared().replicas().await;
        let rows = rows.map_err(|error| ControlError::from(crate::replicas::NotShared::from(error)))?;
        let own = self.log.id().to_string();
        let row = |(log_id, settled, present): (String, u64, bool)| ReplicaRow {
            lag: (log_id == own).then(|| self.log.next_seq().saturating_sub(settled)),
            state: if present { "present" } else { "gone" },
            log_id,
        };
        Ok(Some(rows.into_iter().map(row).collect()))
    }

    /// Turns that somebody has (PRO-21).
    pub fn turns(&self) -> Vec<TurnRow> {
        self.lifecycle.turns.list()
    }

    /// Takes a turn away from who has it.
    pub fn release_turn(&self, id: &str) -> Result<TurnRow, ControlError> {
        self.lifecycle.turns.release(id).ok_or_else(|| {
            ControlError::new(ErrorCode::NotFound, "nobody has this turn; it ended, or there never was one")
        })
    }

    /// Asks operators about a call before there is one.
    pub async fn ask_ahead(
        &self,
        operator: &OperatorProof,
        tool: &str,
        arguments: &str,
        justification: &str,
    ) -> Result<Approval, ControlError> {
        need_reason(justification)?;
        let principal = self.options.principal.clone();
        let asked = self.lifecycle.ask_ahead((&operator.actor(), &principal), tool, arguments).await;
        let id = asked.map_err(|document| ControlError::new(document.error, document.message))?;
        let ahead = AskedAhead {
            approval_id: id,
            by: operator.name().to_owned(),
            justification: one_line(justification),
        };
        self.set(operator, &ahead, None, Vec::new(), |_| Ok(())).await?;
        self.approval(id)
    }

    /// Whether an operator asked for an approval itself.
    pub(super) fn asked_by(&self, approval: &Approval, operator: &OperatorProof) -> bool {
        let ahead = self.document::<AskedAhead>(&approval.approval_id.to_string());
        ahead.is_some_and(|ahead| ahead.document.by == operator.name())
            || approval.principal.name() == operator.name()
    }

    /// Ends a waiver: the server's next start wants what was waived.
    pub async fn revoke_waiver(
        &self,
        operator: &OperatorProof,
        id: &str,
        reason: &str,
    ) -> Result<super::Waiver, ControlError> {
        need_reason(reason)?;
        let absent = || ControlError::new(ErrorCode::NotFound, "there is no such waiver");
        let kept = self.kept_one(super::cage::KIND, id).ok_or_else(absent)?;
        let waiver: super::Waiver = serde_json::from_value(kept.document).map_err(|_| absent())?;
        let data = json!({"facility": waiver.facility, "reason": one_line(reason), "server": waiver.server});
        let revoked = Event::new(EventName::SandboxWaiverRevoked, &operator.actor()).data(data);
        self.commit(operator, vec![revoked]).await?;
        self.forget(operator, super::cage::KIND, id).await?;
        self.settings.waivers.end_of(&waiver.server, &waiver.facility);
        Ok(waiver)
    }

    /// What the eight checks would say of a permit, if it were used with these arguments now (GOV §10).
    pub async fn check_permit(
        &self,
        id: PermitId,
        arguments: &str,
    ) -> Result<Vec<PermitVerdict>, ControlError> {
        let dir = self.log.dir().to_owned();
        let wanted = id.to_string();
        let found = tokio::task::spawn_blocking(move || {
            let (mut issued, mut over) = (None, false);
            let mut fingerprints = HashMap::new();
            for record in read(&dir).ok()?.flatten() {
                match (record.event, record.proposal) {
                    (EventName::ProposalCanonicalized, Some(proposal)) => {
                        fingerprints.insert(proposal, record.data["fingerprint"].clone());
                    }
                    (EventName::PermitIssued, _) if record.data["permit_id"] == json!(wanted) => {
                        issued = Some(record);
                    }
                    (
                        EventName::ExecutionIntent
                        | EventName::PermitRevoked
                        | EventName::PermitInvalidated
                        | EventName::PermitExpired
                        | EventName::ExecutionDenied,
                        _,
                    ) if record.data["permit_id"] == json!(wanted) => over = true,
                    _ => {}
                }
            }
            issued.map(|record| {
                let fingerprint = record.proposal.and_then(|proposal| fingerprints.remove(&proposal));
                (record, fingerprint, over)
            })
        });
        let found = found.await.ok().flatten();
        let (record, fingerprint, over) = found.ok_or_else(|| {
            ControlError::new(ErrorCode::NotFound, format!("there never was a permit {id}"))
        })?;
        let data = &record.data;
        let world = self.world();
        let registry = world.registry();
        let entry = record.tool_id.as_ref().and_then(|tool| {
            let found = registry.tools().iter().find(|entry| entry.tool.id() == tool);
            found.cloned()
        });
        let live = self.permits.list().into_iter().any(|permit| permit.permit_id == id);
        let principal: Option<Principal> =
            data["lineage"]["principal"].as_str().and_then(|text| text.parse().ok());
        let same_arguments = || {
            let entry = entry.as_ref()?;
            let asked = self.lifecycle.fingerprint_of(principal.as_ref()?, entry, arguments)?;
            Some(*fingerprint.as_ref()? == json!(asked))
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let session = record.session.and_then(|session| self.sessions.get(session));
        let epoch = data["checkpoint_epoch"].as_u64();
        let passes = |check: Check| match check {
            Check::Authenticity => live && !over && text(&data["aud"]) == self.log.id().to_string(),
            Check::Expiry => text(&data["exp"]) > self.clock.now().to_string(),
            Check::ToolIdentity => entry.as_ref().is_some_and(|entry| {
                entry.server.is_active()
                    && text(&data["registration_epoch"]) == entry.tool.epoch().to_string()
            }),
            Check::ArgumentScope => same_arguments() == Some(true),
            Check::SideEffectClass => {
                entry.as_ref().is_some_and(|entry| data["side_effects"] == json!(entry.tool.side_effects()))
            }
            Check::Lineage => {
                session.is_some() && text(&data["policy_version"]) == registry.policy().version().to_string()
            }
            Check::Trust => entry.as_ref().is_some_and(|entry| {
                let now = entry.server.trust_in(entry.tool.id());
                text(&data["trust"]["min_state"]) == now.as_str()
            }),
            Check::Checkpoint => {
                session.as_ref().is_some_and(|session| Some(session.checkpoint_epoch()) == epoch)
            }
        };
        let all = [
            Check::Authenticity,
            Check::Expiry,
            Check::ToolIdentity,
            Check::ArgumentScope,
            Check::SideEffectClass,
            Check::Lineage,
            Check::Trust,
            Check::Checkpoint,
        ];
        Ok(all
            .into_iter()
            .map(|check| PermitVerdict { check: check.as_str(), passes: passes(check) })
            .collect())
    }
}

impl State {
    /// Another connection for a registered server, which starts nothing yet.
    fn reconnect(&mut self, name: &ServerIdentity, log: &portcullis_audit::AuditLog, settings: &Settings) {
        let Some(entry) = self.entries.get(name) else { return };
        let record = &entry.record;
        let endpoint = Endpoint::of_transport(&record.transport, &record.artifact_pins);
        let prober = Arc::new(Prober::new(log.clone(), record.server_version.clone()));
        let capabilities = entry.declaration.client_capabilities().clone();
        let settings = Settings { capabilities, ..settings.clone() };
        let connection = Connection::new(name.clone(), endpoint, prober, settings);
        self.upstreams.insert(name.clone(), Arc::new(Upstream::new(connection)));
    }
}
