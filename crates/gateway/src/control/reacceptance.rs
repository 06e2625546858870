//! Accepting what a server has become: a new declaration for a server that is registered already (GOV-503).
//!
//! New identities for everything, one durable step, and every permit, approval and envelope of the old ones ends in it.
//! What the operator declared about classes, scopes and credentials stays the operator's word; only what the server itself
//! says (schemas and descriptions of declared tools) is taken from what it says now.

use std::sync::Arc;

use bytes::Bytes;
use portcullis_audit::{Event, EventName, RetentionClass, Role};
use portcullis_core::canon::to_jcs;
use portcullis_core::error::one_line;
use portcullis_core::{ApprovalId, ErrorCode, ServerIdentity, Sha256Digest};
use portcullis_gauntlet::Raw;
use portcullis_governance::accepted::{Acceptance, AcceptedDeclaration, AcceptedTool};
use portcullis_governance::approval::{Approval, State as ApprovalState};
use portcullis_governance::boundary::Prober;
use portcullis_governance::confinement;
use portcullis_governance::declaration::diff::{self, FieldChange};
use portcullis_governance::declaration::live::{LiveSurface, closed};
use portcullis_governance::declaration::rules::Expectations;
use portcullis_governance::declaration::{Declaration, Source, compatible};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::record::{RegistrationRecord, ServerState, Transport};
use portcullis_governance::registry::ServerEntry;
use portcullis_upstream::{Endpoint, Settings, probe_once};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ahead::GrantAhead;
use super::predicted::{Predicted, Waived};
use super::registration::{acceptance_events, check_credentials, go_on, need_reason, rejected};
use super::{Control, ControlError};
use crate::upstreams::surface;

/// What an operator accepts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reacceptance {
    /// Which server.
    pub name: ServerIdentity,
    /// A new declaration, with the name of its file; without one, the old one brought up to date.
    pub declaration: Option<(String, String)>,
    /// Whether wide approvals of tools that did not change are given anew.
    pub carry_approvals: bool,
    /// What is approved in the same step (GOV-1404).
    #[serde(default)]
    pub grant: Option<GrantAhead>,
    /// Why.
    pub reason: String,
    /// Lints that are let pass, by rule.
    #[serde(default)]
    pub waive: Vec<String>,
    /// Whether a list that cannot be made to fit is let pass.
    #[serde(default)]
    pub allow_over_budget: bool,
}

/// What came of a change of a registered server.
#[derive(Debug, Clone, Serialize)]
pub struct Replaced {
    /// Which server.
    pub name: ServerIdentity,
    /// Its state.
    pub state: ServerState,
    /// Its declaration now.
    pub declaration_version: String,
    /// How many approvals ended.
    pub approvals_invalidated: usize,
    /// How many permits died before they were used.
    pub permits_invalidated: usize,
    /// How many were given anew.
    pub approvals_carried: usize,
    /// How many were given ahead.
    pub approvals_granted: usize,
    /// What it does to what clients read.
    pub surface: Predicted,
}

impl Control {
    /// In which fields a server is not what was accepted, as far as that was noticed. What the server says is cleaned,
    /// because whoever reads this may be a model.
    pub async fn drift(&self, name: &ServerIdentity) -> Vec<FieldChange> {
        let world = self.world();
        let entry = world.registry().server(name);
        let live = world.upstream(name).and_then(|upstream| upstream.drifted());
        let (Some(entry), Some(live)) = (entry, live) else { return Vec::new() };
        let gauntlet = self.state.lock().await.gauntlet.clone();
        let clean = |value: Value| match gauntlet.clean_value(Raw::new(value)) {
            Ok((clean, _)) => clean.get().clone(),
            Err(_) => Value::String("(cannot be shown)".into()),
        };
        let mut changes = diff::fields(entry.declaration.live(), &live);
        for change in &mut changes {
            change.before = change.before.take().map(clean);
            change.after = change.after.take().map(clean);
        }
        changes
    }

    /// The declaration of a server brought up to date with what it lists now. Nothing is accepted by looking.
    pub async fn declaration_of_now(&self, name: &ServerIdentity) -> Result<String, ControlError> {
        let entry = self.entry(name).await?;
        let live = self.look_again(&entry).await?;
        brought_up_to_date(&entry, &live)
    }

    /// Accepts what a server offers now.
    pub async fn reaccept(
        &self,
        operator: &OperatorProof,
        asked: Reacceptance,
    ) -> Result<Replaced, ControlError> {
        need_reason(&asked.reason)?;
        let name = &asked.name;
        let entry = self.entry(name).await?;
        let live = self.look_again(&entry).await?;
        let record = &entry.record;
        if let Some(version) =
            live.server_version.as_deref().filter(|version| *version != record.server_version.as_str())
        {
            let shown = portcullis_core::name::printable(version);
            let message = format!(
                "the server says it is version {shown}: that takes `portcullis mcp update`, not accept"
            );
            return Err(ControlError::field("name", message));
        }
        let (file, text) = match &asked.declaration {
            Some((file, text)) => (file.clone(), text.clone()),
            None => ("the accepted declaration".into(), brought_up_to_date(&entry, &live)?),
        };
        let declaration =
            Declaration::parse(&Source { name: &file, text: &text }).map_err(|r| rejected(vec![r]))?;
        let mut state = self.state.lock().await;
        // Somebody else may have changed it while we looked.
        if state.entries.get(name).is_none_or(|current| !Arc::ptr_eq(&current.record, &entry.record)) {
            let message = format!("server '{name}' was changed meanwhile; look at it again");
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let counter = state.counters.get(name).copied().unwrap_or(0) + 1;
        check_credentials(state.policy.settings(), &declaration)?;
        compatible::check(&declaration, &file, state.policy.settings(), &record.policy_tags)
            .map_err(rejected)?;
        let mut next: RegistrationRecord = (**record).clone();
        (next.state, next.halt) = (ServerState::Active, None);
        if let Transport::Stdio { process } = &mut next.transport {
            let profile = confinement::derive(&declaration, process, &next.artifact_pins)
                .map_err(|error| ControlError::field("confine", error.to_string()))?;
            process.confine(profile);
        }
        let expect = Expectations {
            identity: name,
            version: &record.server_version,
            surface: record.surface,
            pins: &record.artifact_pins,
            home: &self.options.home,
            protected: &self.options.protected,
            process: next.transport.process(),
        };
        let acceptance = Acceptance { expect, epoch: entry.epoch(), counter };
        let accepted =
            AcceptedDeclaration::accept(&declaration, &file, live, &acceptance).map_err(rejected)?;
        next.declaration_version = accepted.version();
        next.instructions_sha256 = accepted.live().instructions_sha256();
        let accepted = Arc::new(accepted);
        let waived = Waived { rules: &asked.waive, over_budget: asked.allow_over_budget };
        let let_pass = state.check_lints(&self.options.surface, (&next, &accepted), &waived)?;
        let surface = state.predict(&self.options.surface, (&next, &accepted), &waived)?;
        let carried = match asked.carry_approvals {
            true => self.carried(operator, &entry, &accepted, &asked.reason),
            false => Vec::new(),
        };
        let policy = state.policy.clone();
        let ahead =
            self.give_ahead(operator, asked.grant.as_ref(), (&accepted, &next), &policy, &asked.reason)?;
        let granted = ahead.given.len();
        let ended = self.book.of_server(name, entry.epoch());
        let mut changed = changed_event(operator, &next, "accept", &asked.reason);
        if let Some(waived) = let_pass.on_record() {
            let record = json!({"how": "accept", "reason": one_line(&asked.reason), "record": next, "server": name, "waived": waived});
            changed = changed.data(record);
        }
        let mut events = vec![changed];
        events.push(superseded_event(operator, record));
        events.extend(acceptance_events(operator, &next, &accepted));
        events.extend(self.invalidations(&ended, "declaration_change"));
        let permits = self.end_permits(Some(name), "declaration_change");
        let permits_invalidated = permits.len();
        events.extend(permits);
        events.extend(carried.iter().flat_map(|(approval, view)| carry_events(operator, approval, view)));
        events.extend(ahead.given.iter().flat_map(|(approval, view)| carry_events(operator, approval, view)));
        let (stopped, resolutions) = self.stopped_because_of(operator, name, "accept");
        events.extend(resolutions);
        portcullis_core::failpoint::pass("declaration.before_accept");
        self.commit(operator, events).await?;
        go_on(&stopped);
        portcullis_core::failpoint::pass("registry.before_commit");
        self.replace(&mut state, &entry, next.clone(), accepted, &ended).await;
        for (approval, view) in &carried {
            self.book.enter(approval.clone(), view);
        }
        self.enter_ahead(ahead);
        state.counters.insert(name.clone(), counter);
        Ok(Replaced {
            name: name.clone(),
            state: next.state,
            declaration_version: next.declaration_version.to_string(),
            approvals_invalidated: ended.len(),
            permits_invalidated,
            approvals_carried: carried.len(),
            approvals_granted: granted,
            surface,
        })
    }

    /// Puts a changed server in the place of what it was. Its change is durable.
    pub(super) async fn replace(
        &self,
        state: &mut super::State,
        before: &ServerEntry,
        record: RegistrationRecord,
        declaration: Arc<AcceptedDeclaration>,
        ended: &[ApprovalId],
    ) {
        // Permits of the old identities are dead, whatever still holds one.
        before.live.halt();
        self.book.end(ended, ApprovalState::Invalidated);
        let old = state.upstreams.remove(&record.server_identity);
        state.add(record, declaration, &self.log, &self.settings);
        self.world.swap(state.world());
        if let Some(upstream) = old {
            tokio::spawn(async move { upstream.close().await });
        }
    }

    pub(super) async fn entry(&self, name: &ServerIdentity) -> Result<ServerEntry, ControlError> {
        let found = self.state.lock().await.entries.get(name).cloned();
        found.ok_or_else(|| ControlError::not_found(name))
    }

    /// What a registered server lists now, under a probe permit.
    pub(super) async fn look_again(&self, entry: &ServerEntry) -> Result<LiveSurface, ControlError> {
        let record = &entry.record;
        let endpoint = Endpoint::of_transport(&record.transport, &record.artifact_pins);
        let prober = Arc::new(Prober::new(self.log.clone(), record.server_version.clone()));
        let capabilities = entry.declaration.client_capabilities().clone();
        let settings = Settings { capabilities, ..self.settings.clone() };
        let name = &record.server_identity;
        let snapshot = probe_once(name, &endpoint, prober, &settings).await.map_err(|error| {
            ControlError::new(error.code(), format!("cannot look at server '{name}': {error}"))
        })?;
        surface(&snapshot).map_err(|error| ControlError::new(ErrorCode::Validation, error.to_string()))
    }

    /// New approvals by this operator for what did not change, in place of wide ones that end (GOV-503). Where
    /// policy wants several operators, one cannot speak for all.
    fn carried(
        &self,
        operator: &OperatorProof,
        before: &ServerEntry,
        accepted: &AcceptedDeclaration,
        reason: &str,
    ) -> Vec<(Approval, Vec<u8>)> {
        let now = self.clock.now();
        let same = |approval: &Approval| -> Option<Arc<AcceptedTool>> {
            let old = before.declaration.everything().find(|tool| *tool.id() == approval.tool_id)?;
            let new = accepted.everything().find(|tool| tool.id().item() == old.id().item())?;
            let unchanged = old.definition().get() == new.definition().get()
                && old.side_effects() == new.side_effects()
                && old.scopes() == new.scopes()
                && old.credentials() == new.credentials();
            unchanged.then(|| new.clone())
        };
        let wide = self.book.of_server(&before.record.server_identity, before.epoch());
        let wide = wide.into_iter().filter_map(|id| self.book.get(id));
        wide.filter(|approval| approval.state == ApprovalState::Approved)
            .filter(|approval| approval.envelope().is_some() && approval.expires_at > now)
            .filter(|approval| approval.offers.iter().all(|offer| offer.quorum == 1))
            .filter_map(|approval| {
                let tool = same(&approval)?;
                let view =
                    to_jcs(&json!({"carried_from": approval.approval_id, "tool_id": tool.id()})).ok()?;
                let carried = Approval {
                    approval_id: ApprovalId::random(),
                    tool_id: tool.id().clone(),
                    decisions: vec![operator.decision(reason, now)],
                    requested_at: now,
                    presented_sha256: Sha256Digest::of(&view),
                    ..approval
                };
                Some((carried, view))
            })
            .collect()
    }
}

pub(super) fn carry_events(operator: &OperatorProof, approval: &Approval, view: &[u8]) -> Vec<Event> {
    let event = |name| {
        Event::new(name, &operator.actor())
            .session(approval.session)
            .proposal(approval.proposal_id)
            .tool(&approval.tool_id)
            .epoch(approval.registration_epoch)
            .policy(approval.policy_version)
    };
    let pending = json!({"approval": Approval { decisions: Vec::new(), state: ApprovalState::Pending, ..approval.clone() }});
    let decided = json!({
        "approval_id": approval.approval_id, "by": operator.name(), "decision": approval.state,
        "expires_at": approval.expires_at, "method": operator.method(), "presented_sha256": approval.presented_sha256,
        "reason": approval.decisions.last().map(|decision| &decision.reason), "scope": approval.scope,
        "separation": operator.separation(), "uses": approval.uses_left,
    });
    vec![
        event(EventName::ApprovalRequested).data(pending).evidence(
            Role::Presented,
            RetentionClass::Hold,
            Bytes::copy_from_slice(view),
        ),
        event(EventName::ApprovalRecorded).data(decided),
        event(EventName::EnvelopeCreated).data(json!({"envelope": approval.envelope()})),
    ]
}

/// The event by which a registered server is another from now on.
pub(super) fn changed_event(
    operator: &OperatorProof,
    record: &RegistrationRecord,
    how: &str,
    reason: &str,
) -> Event {
    let data =
        json!({"how": how, "reason": one_line(reason), "record": record, "server": record.server_identity});
    Event::new(EventName::ServerVersionChanged, &operator.actor()).epoch(record.registration_epoch).data(data)
}

pub(super) fn superseded_event(operator: &OperatorProof, before: &RegistrationRecord) -> Event {
    let data = json!({"server": before.server_identity, "version": before.declaration_version});
    Event::new(EventName::DeclarationSuperseded, &operator.actor())
        .epoch(before.registration_epoch)
        .data(data)
}

/// The accepted declaration with the schemas and descriptions that the server has now. A tool that is gone goes; one
/// that nobody declared cannot be made up: it takes a file.
fn brought_up_to_date(entry: &ServerEntry, live: &LiveSurface) -> Result<String, ControlError> {
    let internal = |error: String| ControlError::new(ErrorCode::Internal, error);
    let mut document: Value =
        serde_json::from_slice(entry.declaration.document()).map_err(|error| internal(error.to_string()))?;
    let Some(tools) = document["tools"].as_array_mut() else {
        return Err(internal("the accepted declaration has no tools".into()));
    };
    let declared = |name: &str| tools.iter().any(|tool| tool["name"] == name);
    let new: Vec<String> = (live.tools.iter())
        .filter(|tool| !declared(&tool.name))
        .map(|tool| portcullis_core::name::printable(&tool.name))
        .collect();
    if !new.is_empty() {
        let message = format!(
            "the server lists {} that nobody declared; give a declaration with --capability-declaration",
            new.join(", ")
        );
        return Err(ControlError::field("capability-declaration", message));
    }
    tools.retain(|tool| live.tools.iter().any(|found| tool["name"] == found.name.as_str()));
    for tool in tools {
        let Some(found) = live.tools.iter().find(|found| tool["name"] == found.name.as_str()) else {
            continue;
        };
        let definition: Value =
            serde_json::from_str(found.definition.get()).map_err(|error| internal(error.to_string()))?;
        tool["parameters"] = closed(definition["inputSchema"].clone());
        if !tool["description"].is_null() {
            tool["description"] = definition["description"].clone();
        }
        match definition.get("outputSchema") {
            Some(schema) => tool["output"] = json!({"schema": schema}),
            None if tool["output"].get("schema").is_some() => tool["output"] = json!({"type": "json"}),
            None => {}
        }
    }
    Ok(document.to_string())
}
