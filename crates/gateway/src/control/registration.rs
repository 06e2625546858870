//! Registering, looking at, halting and removing servers (GOV §2).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use portcullis_audit::{Event, EventName, RetentionClass, Role};
use portcullis_core::error::{Fault, one_line};
use portcullis_core::name::has_visible_character;
use portcullis_core::{
    Actor, ApprovalId, ErrorCode, LogId, RegistrationEpoch, ServerIdentity, ServerVersion, Sha256Digest,
    failpoint,
};
use portcullis_governance::accepted::{Acceptance, AcceptedDeclaration, AcceptedTool};
use portcullis_governance::approval::State as ApprovalState;
use portcullis_governance::boundary::Prober;
use portcullis_governance::confinement;
use portcullis_governance::declaration::diff::{self, FieldChange};
use portcullis_governance::declaration::live::{Difference, LiveSurface};
use portcullis_governance::declaration::rules::Expectations;
use portcullis_governance::declaration::{Declaration, Rejection, Source, Via, compatible};
use portcullis_governance::endpoint::{HttpEndpoint, pin_artifact, pin_command, without_data};
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::policy::Settings as PolicySettings;
use portcullis_governance::record::{
    Isolation, Mode, Process, ProcessModel, RegistrationRecord, ServerState, Surface, Transport,
};
use portcullis_governance::registry::Names;
use portcullis_governance::session::Session;
use portcullis_sandbox::Limits;
use portcullis_upstream::{Endpoint, Settings, probe_once};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ahead::GrantAhead;
use super::permits::Invalidated;
use super::predicted::Waived;
use super::reacceptance::{carry_events, changed_event, superseded_event};
use super::watch::with_surface;
use super::{Control, ControlError, State, announced};
use crate::surface::Budgeting;
use crate::upstreams::surface;

/// How an operator says a server is reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A program to start.
    Stdio {
        /// Absolute path.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment.
        env: BTreeMap<String, String>,
        /// Files and folders that are part of it, besides the command and what its arguments name.
        #[serde(default)]
        artifacts: Vec<String>,
        /// How its tools are spread over processes, if the operator says so (SBX-12).
        #[serde(default)]
        process_model: Option<ProcessModel>,
    },
    /// A URL.
    Http {
        /// Where.
        url: String,
        /// The SHA-256 of the key that its certificate must hold, in hex.
        #[serde(default)]
        tls_spki: Option<String>,
    },
    /// A URL of a server of revision 2024-11-05.
    Sse {
        /// Where its stream is.
        url: String,
        /// The SHA-256 of the key that its certificate must hold, in hex.
        #[serde(default)]
        tls_spki: Option<String>,
    },
    /// A resource server of records, behind the built-in adapter.
    Records {
        /// Its base.
        url: String,
        /// The file that holds the bearer.
        credential_file: String,
    },
}

/// What an operator asks to be registered. Nothing in it is trusted yet.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Registration {
    pub name: String,
    pub target: Target,
    pub server_version: String,
    pub declaration_file: String,
    pub declaration: String,
    pub justification: String,
    pub modes: Vec<Mode>,
    pub trust_tier: u8,
    pub surface: Surface,
    pub attest: Option<String>,
    pub waive_isolation: Option<String>,
    /// What is approved in the same step (GOV-1404).
    #[serde(default)]
    pub grant: Option<GrantAhead>,
    /// Lints that do not stand against it (SURF §4).
    #[serde(default)]
    pub waive: Vec<String>,
    /// Whether it may make the list of tools too large for clients (SURF-55).
    #[serde(default)]
    pub allow_over_budget: bool,
}

/// What `mcp test` found.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct TestReport {
    pub reachable: bool,
    pub reason: Option<String>,
    pub version_ok: bool,
    pub protocol_version: Option<String>,
    pub matches: bool,
    pub difference: Difference,
    pub fields: Vec<FieldChange>,
    pub isolation: Isolation,
}

/// A registration whose fields have been understood.
pub(super) struct Checked {
    pub(super) identity: ServerIdentity,
    version: ServerVersion,
    pub(super) transport: Transport,
    pub(super) pins: Vec<portcullis_governance::endpoint::Pin>,
    isolation: Isolation,
    isolation_reason: Option<String>,
}

impl Control {
    /// Registers a server and accepts its declaration, in one durable step.
    pub async fn register(
        &self,
        operator: &OperatorProof,
        asked: Registration,
    ) -> Result<RegistrationRecord, ControlError> {
        self.register_or_replace(operator, asked, false).await.map(|(record, _)| record)
    }

    /// Registers another version of a server, up or down, in place of the one there is (GOV-1301): a new life, in
    /// which nothing of the old one counts. Returns also what died with the old one.
    pub async fn update(
        &self,
        operator: &OperatorProof,
        asked: Registration,
    ) -> Result<(RegistrationRecord, Invalidated), ControlError> {
        self.register_or_replace(operator, asked, true).await
    }

    async fn register_or_replace(
        &self,
        operator: &OperatorProof,
        asked: Registration,
        replacing: bool,
    ) -> Result<(RegistrationRecord, Invalidated), ControlError> {
        let name = asked.name.clone();
        match self.try_register(operator, asked, replacing).await {
            Ok(done) => Ok(done),
            Err(error) => {
                let event = if error.rejections.is_empty() {
                    EventName::ServerRejected
                } else {
                    EventName::DeclarationRejected
                };
                let data = json!({"field": error.field, "reason": one_line(&error.message), "server": one_line(&name)});
                self.log.append(vec![Event::new(event, &operator.actor()).data(data)])?;
                Err(error)
            }
        }
    }

    async fn try_register(
        &self,
        operator: &OperatorProof,
        asked: Registration,
        replacing: bool,
    ) -> Result<(RegistrationRecord, Invalidated), ControlError> {
        let mut checked = check(&asked, &self.options.limits)?;
        {
            let state = self.state.lock().await;
            state.room_for(&checked.identity, replacing)?;
            check_surface(state.policy.settings(), &asked)?;
        }
        let declaration =
            Declaration::parse(&Source { name: &asked.declaration_file, text: &asked.declaration })
                .map_err(|r| rejected(vec![r]))?;
        {
            let state = self.state.lock().await;
            let settings = state.policy.settings();
            check_credentials(settings, &declaration)?;
            check_isolation(settings, &asked.modes, checked.isolation)?;
            compatible::check(&declaration, &asked.declaration_file, settings, &asked.modes)
                .map_err(rejected)?;
        }
        confine(&mut checked, &declaration)?;
        let expect = Expectations {
            identity: &checked.identity,
            version: &checked.version,
            surface: asked.surface,
            pins: &checked.pins,
            home: &self.options.home,
            protected: &self.options.protected,
            process: checked.transport.process(),
        };
        // The rules that need only the file, before anything is started for its sake.
        portcullis_governance::declaration::rules::check(&declaration, &asked.declaration_file, &expect)
            .map_err(rejected)?;
        let live = self.look_at(&checked, declaration.body.client_capabilities()).await?;
        check_version(&checked, &live)?;

        let mut state = self.state.lock().await;
        state.room_for(&checked.identity, replacing)?;
        let policy = state.policy.clone();
        let settings = policy.settings();
        check_surface(settings, &asked)?;
        check_credentials(settings, &declaration)?;
        check_isolation(settings, &asked.modes, checked.isolation)?;
        compatible::check(&declaration, &asked.declaration_file, settings, &asked.modes).map_err(rejected)?;
        let now = self.clock.now();
        let epoch = RegistrationEpoch::new(now);
        let counter = state.counters.get(&checked.identity).copied().unwrap_or(0) + 1;
        let accepted = AcceptedDeclaration::accept(
            &declaration,
            &asked.declaration_file,
            live,
            &Acceptance { expect, epoch, counter },
        )
        .map_err(rejected)?;
        let record = RegistrationRecord {
            server_identity: checked.identity.clone(),
            boundary_kind: if checked.transport.is_builtin() { "builtin" } else { "mcp" }.into(),
            record_version: 1,
            registration_epoch: epoch,
            first_epoch: state.entries.get(&checked.identity).map(|entry| entry.record.since()),
            transport: checked.transport,
            server_version: checked.version,
            surface: asked.surface,
            requested_trust_tier: asked.trust_tier,
            assigned_trust_tier: settings.assigned_tier(&checked.identity, asked.trust_tier),
            justification: one_line(&asked.justification),
            policy_tags: asked.modes,
            isolation_class: checked.isolation,
            isolation_reason: checked.isolation_reason,
            artifact_pins: checked.pins,
            declaration_version: accepted.version(),
            instructions_sha256: accepted.live().instructions_sha256(),
            state: ServerState::Active,
            halt: None,
            registered_by: operator.actor().to_string(),
            registered_at: now,
        };
        let accepted = Arc::new(accepted);
        let waived = Waived { rules: &asked.waive, over_budget: asked.allow_over_budget };
        let options = &self.options.surface;
        let let_pass = state.check_lints(options, (&record, &accepted), &waived)?;
        if options.mode == Budgeting::Enforce {
            state.predict(options, (&record, &accepted), &waived)?;
        }
        failpoint::pass("declaration.before_accept");
        let ahead = self.give_ahead(
            operator,
            asked.grant.as_ref(),
            (&accepted, &record),
            &policy,
            &asked.justification,
        )?;
        let given = ahead.given.iter().flat_map(|(approval, view)| carry_events(operator, approval, view));
        let before = state.entries.get(&checked.identity).cloned();
        let Some(before) = before else {
            let mut events = registration_events(operator, &record, &accepted, let_pass.on_record());
            events.extend(given);
            self.commit(operator, events).await?;
            failpoint::pass("registry.before_commit");
            state.counters.insert(checked.identity, counter);
            state.add(record.clone(), accepted, &self.log, &self.settings);
            self.world.swap(state.world());
            self.enter_ahead(ahead);
            return Ok((record, Invalidated::default()));
        };
        let ended = self.book.of_server(&checked.identity, before.epoch());
        let mut changed = changed_event(operator, &record, "update", &asked.justification);
        if let Some(waived) = let_pass.on_record() {
            let data = json!({"how": "update", "reason": one_line(&asked.justification), "record": record, "server": record.server_identity, "waived": waived});
            changed = changed.data(data);
        }
        let mut events = vec![changed];
        events.push(superseded_event(operator, &before.record));
        events.extend(acceptance_events(operator, &record, &accepted));
        events.extend(self.invalidations(&ended, "version_change"));
        let permits = self.end_permits(Some(&checked.identity), "version_change");
        let invalidated = Invalidated { approvals: ended.len(), permits: permits.len() };
        events.extend(permits);
        let (stopped, resolutions) = self.stopped_because_of(operator, &checked.identity, "update");
        events.extend(resolutions);
        events.extend(given);
        self.commit(operator, events).await?;
        go_on(&stopped);
        failpoint::pass("registry.before_commit");
        state.counters.insert(checked.identity, counter);
        self.replace(&mut state, &before, record.clone(), accepted, &ended).await;
        self.enter_ahead(ahead);
        Ok((record, invalidated))
    }

    pub(super) async fn look_at(
        &self,
        checked: &Checked,
        capabilities: Value,
    ) -> Result<LiveSurface, ControlError> {
        // PRO-63: what a server lists depends on what it may ask.
        let settings = Settings { capabilities, ..self.settings.clone() };
        let endpoint = Endpoint::of_transport(&checked.transport, &checked.pins);
        let prober = Arc::new(Prober::new(self.log.clone(), checked.version.clone()));
        let snapshot =
            probe_once(&checked.identity, &endpoint, prober, &settings).await.map_err(|error| {
                ControlError::new(
                    error.code(),
                    format!("cannot look at server '{}': {error}", checked.identity),
                )
            })?;
        surface(&snapshot).map_err(|error| ControlError::new(ErrorCode::Validation, error.to_string()))
    }

    /// Looks at a registered server without calling any tool.
    pub async fn test(&self, name: &ServerIdentity) -> Result<TestReport, ControlError> {
        let found = self.state.lock().await.entries.get(name).cloned();
        let entry = found.ok_or_else(|| ControlError::not_found(name))?;
        let record = &entry.record;
        let live = self.look_again(&entry).await.map_err(|error| error.message);
        Ok(match live {
            Err(reason) => TestReport {
                reachable: false,
                reason: Some(reason),
                version_ok: false,
                protocol_version: None,
                matches: false,
                difference: Difference::default(),
                fields: Vec::new(),
                isolation: record.isolation_class,
            },
            Ok(live) => {
                let difference = entry.declaration.drift(&live);
                let fields = diff::fields(entry.declaration.live(), &live);
                TestReport {
                    reachable: true,
                    reason: None,
                    version_ok: live
                        .server_version
                        .as_deref()
                        .is_none_or(|version| version == record.server_version.as_str()),
                    protocol_version: Some(live.protocol_version),
                    matches: difference.is_empty(),
                    difference,
                    fields,
                    isolation: record.isolation_class,
                }
            }
        })
    }

    /// Removes a server: one durable step, after which its permits and approvals are dead; then what is under way is
    /// cut (GOV-204).
    pub async fn remove(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        reason: &str,
    ) -> Result<Invalidated, ControlError> {
        need_reason(reason)?;
        let mut state = self.state.lock().await;
        let entry = state.entries.get(name).cloned().ok_or_else(|| ControlError::not_found(name))?;
        let ended = self.book.of_server(name, entry.epoch());
        let removed = Event::new(EventName::ServerRemoved, &operator.actor())
            .epoch(entry.epoch())
            .data(json!({"reason": one_line(reason), "server": name}));
        let data = json!({"server": name, "version": entry.declaration.version()});
        let withdrawn =
            Event::new(EventName::DeclarationWithdrawn, &operator.actor()).epoch(entry.epoch()).data(data);
        let mut events = vec![removed, withdrawn];
        events.extend(self.invalidations(&ended, "removed"));
        let permits = self.end_permits(Some(name), "removed");
        let invalidated = Invalidated { approvals: ended.len(), permits: permits.len() };
        events.extend(permits);
        let (stopped, resolutions) = self.stopped_because_of(operator, name, "remove");
        events.extend(resolutions);
        self.commit(operator, events).await?;
        go_on(&stopped);
        entry.live.halt();
        self.book.end(&ended, ApprovalState::Invalidated);
        state.entries.remove(name);
        let upstream = state.upstreams.remove(name);
        self.world.swap(state.world());
        drop(state);
        self.permits.cut(|permit| permit.tool_id.server() == name && permit.in_flight);
        if let Some(upstream) = upstream {
            upstream.close().await;
        }
        Ok(invalidated)
    }

    /// Halts a server, by an operator or because of a fault, which `tools` are to blame for if that is known. Its
    /// approvals end, and after a fault trust is reset in the same step (GOV-1105).
    pub async fn halt(
        &self,
        actor: &Actor,
        name: &ServerIdentity,
        fault: Option<Fault>,
        tools: &[String],
        reason: &str,
    ) -> Result<Invalidated, ControlError> {
        self.halt_announced(actor, None, name, fault, tools, reason).await
    }

    /// Halts a server because an operator says so.
    pub async fn halt_by(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        reason: &str,
    ) -> Result<Invalidated, ControlError> {
        self.halt_announced(&operator.actor(), operator.operation(), name, None, &[], reason).await
    }

    async fn halt_announced(
        &self,
        actor: &Actor,
        operation: Option<(LogId, u64)>,
        name: &ServerIdentity,
        fault: Option<Fault>,
        tools: &[String],
        reason: &str,
    ) -> Result<Invalidated, ControlError> {
        need_reason(reason)?;
        let mut state = self.state.lock().await;
        let entry = state.entries.get(name).cloned().ok_or_else(|| ControlError::not_found(name))?;
        // At once, before waiting for the disk: halting late is the one thing that must not happen.
        entry.live.halt();
        if entry.record.state == ServerState::Halted {
            return Ok(Invalidated::default());
        }
        let reason = one_line(reason);
        let mut ended = self.book.of_server(name, entry.epoch());
        if fault.is_some() && state.policy.settings().keeps_envelopes() {
            ended.retain(|id| self.book.get(*id).is_some_and(|approval| approval.envelope().is_none()));
        }
        let mut events = Vec::new();
        if let Some(fault) = fault {
            events.push(self.violation(&state, &entry, fault, tools));
        }
        let data = json!({"fault": fault.map(Fault::as_str), "reason": reason, "server": name});
        let halted = Event::new(EventName::ServerHalted, actor).epoch(entry.epoch()).data(data);
        let drifted = state.upstreams.get(name).and_then(|upstream| upstream.drifted());
        events.push(with_surface(halted, drifted.as_deref()));
        events.extend(self.invalidations(&ended, "halt"));
        let permits = self.end_permits(Some(name), if fault.is_some() { "trust_violation" } else { "halt" });
        let invalidated = Invalidated { approvals: ended.len(), permits: permits.len() };
        events.extend(permits);
        if let Some(fault) = fault {
            let contaminated = tools.is_empty() || state.policy.settings().contaminates(fault);
            let why = format!("which was halted: {reason}");
            events.extend(self.stop_users_of(&entry, (!contaminated).then_some(tools), &why));
        }
        self.change_in_any_case(announced(operation, events)).await?;
        self.book.end(&ended, ApprovalState::Invalidated);
        let mut record = (*entry.record).clone();
        (record.state, record.halt) = (ServerState::Halted, Some(reason));
        if let Some(entry) = state.entries.get_mut(name) {
            entry.record = Arc::new(record);
        }
        self.world.swap(state.world());
        Ok(invalidated)
    }

    /// Lets a halted server run again; what it had approved before stays ended.
    pub async fn resume(
        &self,
        operator: &OperatorProof,
        name: &ServerIdentity,
        reason: &str,
    ) -> Result<(), ControlError> {
        need_reason(reason)?;
        let mut state = self.state.lock().await;
        let entry = state.entries.get(name).cloned().ok_or_else(|| ControlError::not_found(name))?;
        if entry.record.state != ServerState::Halted {
            return Err(ControlError::new(ErrorCode::Conflict, format!("server '{name}' is not halted")));
        }
        let data = json!({"reason": one_line(reason), "server": name});
        let resumed = Event::new(EventName::ServerResumed, &operator.actor()).epoch(entry.epoch()).data(data);
        let (stopped, mut events) = self.stopped_because_of(operator, name, "resume");
        events.insert(0, resumed);
        self.commit(operator, events).await?;
        go_on(&stopped);
        let mut record = (*entry.record).clone();
        (record.state, record.halt) = (ServerState::Active, None);
        entry.live.resume();
        if let Some(entry) = state.entries.get_mut(name) {
            entry.record = Arc::new(record);
        }
        self.world.swap(state.world());
        Ok(())
    }
}

impl Control {
    /// The events of approvals that end, and of their envelopes.
    pub(super) fn invalidations(&self, ids: &[ApprovalId], reason: &str) -> Vec<Event> {
        let mut events = Vec::new();
        for id in ids {
            let data = json!({"approval_id": id, "reason": reason});
            events.push(Event::new(EventName::ApprovalInvalidated, &Actor::system()).data(data));
            if let Some(envelope) = self.book.get(*id).and_then(|approval| approval.envelope()) {
                let data = json!({"envelope_id": envelope.envelope_id, "reason": reason});
                events.push(Event::new(EventName::EnvelopeInvalidated, &Actor::system()).data(data));
            }
        }
        events
    }
}

/// Every field by its rule (GOV-202); all that are missing are named together.
pub(super) fn check(asked: &Registration, limits: &Limits) -> Result<Checked, ControlError> {
    let identity: ServerIdentity = asked
        .name
        .parse()
        .map_err(|error: portcullis_core::NameError| ControlError::field("name", error.to_string()))?;
    let version: ServerVersion =
        asked.server_version.parse().map_err(|error: portcullis_core::NameError| {
            ControlError::field("server-version", error.to_string())
        })?;
    if !has_visible_character(&asked.justification) {
        return Err(ControlError::field("justification", "say in a few words why the server is here"));
    }
    if asked.modes.is_empty() {
        return Err(ControlError::field(
            "deployment-mode",
            "name at least one of local, team, enterprise, ci",
        ));
    }
    if asked.trust_tier > 3 {
        return Err(ControlError::field("trust-tier", "must be 0, 1, 2 or 3"));
    }
    let invalid = |field: &'static str| {
        move |error: portcullis_governance::endpoint::EndpointError| {
            ControlError::field(field, error.to_string())
        }
    };
    let (transport, pins, isolation, isolation_reason) = match &asked.target {
        Target::Stdio { command, args, env, artifacts, process_model } => {
            let (resolved, mut pins) = pin_command(command, args).map_err(invalid("command"))?;
            for artifact in artifacts {
                pins.push(pin_artifact(artifact).map_err(invalid("artifact"))?);
            }
            let process = Process {
                command: resolved.to_string_lossy().into_owned(),
                args: args.clone(),
                cwd: "/".into(),
                env: env.clone(),
                limits: limits.clone(),
                process_model: process_model.unwrap_or_default(),
                lasting_with_credentials: *process_model == Some(ProcessModel::PerProfile),
                // Made of the declaration, once that has been read.
                profile: confinement::undeclared(&resolved, args),
                profile_sha256: Sha256Digest::ZERO,
            };
            (Transport::Stdio { process }, pins, Isolation::Enforced, None)
        }
        Target::Http { url, tls_spki } | Target::Sse { url, tls_spki } => {
            let url = HttpEndpoint::parse(url).map_err(invalid("url"))?;
            let tls_spki_sha256 = tls_spki.as_deref().map(spki_pin).transpose()?;
            if tls_spki_sha256.is_some() && url.url().scheme() != "https" {
                return Err(ControlError::field("tls-spki", "only https servers have a key to pin"));
            }
            // Computed from the URL; the operator cannot choose a better class (SBX-65).
            let (class, reason) = if url.is_loopback() {
                if asked.attest.is_some() {
                    return Err(ControlError::field(
                        "attest",
                        "a loopback server cannot be attested as external",
                    ));
                }
                (Isolation::UnmanagedLocal, asked.waive_isolation.clone())
            } else {
                let attest = asked.attest.clone().filter(|text| has_visible_character(text));
                let attest = attest.ok_or_else(|| {
                    ControlError::field("attest", "say why this external server may be relied on")
                })?;
                (Isolation::External, Some(attest))
            };
            let transport = match &asked.target {
                Target::Sse { .. } => Transport::Sse { url, tls_spki_sha256 },
                _ => Transport::Http { url, tls_spki_sha256 },
            };
            (transport, Vec::new(), class, reason)
        }
        Target::Records { url, credential_file } => {
            let url = HttpEndpoint::parse(url).map_err(invalid("url"))?;
            let file = std::path::Path::new(credential_file);
            let name = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !file.is_absolute() {
                return Err(ControlError::field("credential-file", "must be an absolute path"));
            }
            if portcullis_upstream::records::is_named_like_an_owner(&name) {
                let message = "only grant-scoped tokens are used; this one is named like an owner's or a control plane's";
                return Err(ControlError::field("credential-file", message));
            }
            // What runs is this process; what is beyond the grant is the resource server's business.
            let reason = "built-in adapter; the records server holds it to its grant".to_owned();
            let transport = Transport::Records { url, credential_file: credential_file.clone() };
            (transport, Vec::new(), Isolation::External, Some(reason))
        }
    };
    if isolation_reason.as_deref().is_some_and(|reason| !has_visible_character(reason)) {
        return Err(ControlError::field("waive-isolation", "a waiver needs a reason"));
    }
    Ok(Checked {
        identity,
        version,
        transport,
        pins,
        isolation,
        isolation_reason: isolation_reason.map(|reason| one_line(&reason)),
    })
}

/// GOV-403 rule 9, GOV-502: a surface that changes only where policy allows one.
fn check_surface(settings: &PolicySettings, asked: &Registration) -> Result<(), ControlError> {
    let refused = asked.modes.iter().find(|mode| !settings.allows_dynamic(**mode));
    match (asked.surface, refused) {
        (Surface::Dynamic, Some(mode)) => {
            let message = format!(
                "policy allows no dynamic surface in mode {}; `[modes] dynamic` in its settings.toml would",
                mode.as_str()
            );
            Err(ControlError::field("surface", message))
        }
        _ => Ok(()),
    }
}

/// GOV-403 rule 9: confined as policy wants it in every mode. A server that runs unmanaged on this machine may be registered
/// all the same (SBX-65); its calls are refused for as long as nobody takes that upon themselves.
fn check_isolation(settings: &PolicySettings, modes: &[Mode], class: Isolation) -> Result<(), ControlError> {
    match modes.iter().find(|mode| !settings.allows_isolation(**mode, class)) {
        Some(mode) => {
            let (mode, class) = (mode.as_str(), class.as_str());
            let message = format!(
                "policy allows no server of isolation class {class} in mode {mode}; `[acceptance.{mode}] isolation` in \
                 its settings.toml would"
            );
            Err(ControlError::field("deployment-mode", message))
        }
        None => Ok(()),
    }
}

/// SBX-52: credentials in the environment of a process only where policy allows them.
pub(super) fn check_credentials(
    settings: &PolicySettings,
    declaration: &Declaration,
) -> Result<(), ControlError> {
    let in_environment = declaration.body.scopes.iter().find(|(_, scope)| scope.via == Some(Via::Env));
    match in_environment {
        Some((name, _)) if !settings.allows_env_credentials() => {
            let message = format!(
                "scope {name}: policy allows no credentials in the environment of a process; use proxy or fd, or set \
                 `allow_env_credentials = true` in [isolation] of its settings.toml"
            );
            Err(ControlError::field("capability-declaration", message))
        }
        _ => Ok(()),
    }
}

/// Derives the cage of a server that we start.
fn confine(checked: &mut Checked, declaration: &Declaration) -> Result<(), ControlError> {
    if let Transport::Stdio { process } = &mut checked.transport {
        let writable = confinement::writable(declaration);
        checked.pins = without_data(std::mem::take(&mut checked.pins), &writable);
        let profile = confinement::derive(declaration, process, &checked.pins)
            .map_err(|error| ControlError::field("capability-declaration", error.to_string()))?;
        process.confine(profile);
    }
    Ok(())
}

/// GOV-1302: what the server says it is must agree; it may say nothing only if its bytes are pinned.
fn check_version(checked: &Checked, live: &LiveSurface) -> Result<(), ControlError> {
    match live.server_version.as_deref() {
        Some(version) if version == checked.version.as_str() => Ok(()),
        Some(version) => {
            let shown = portcullis_core::name::printable(version);
            Err(ControlError::field(
                "server-version",
                format!("the server says it is version {shown}, not {:?}", checked.version.as_str()),
            ))
        }
        None if !checked.pins.is_empty() => Ok(()),
        None => Err(ControlError::field(
            "server-version",
            "the server does not say its version, and nothing pins it",
        )),
    }
}

fn registration_events(
    operator: &OperatorProof,
    record: &RegistrationRecord,
    accepted: &AcceptedDeclaration,
    waived: Option<Value>,
) -> Vec<Event> {
    let actor = operator.actor();
    let (server, epoch) = (&record.server_identity, record.registration_epoch);
    let submitted =
        Event::new(EventName::ServerSubmitted, &actor).epoch(epoch).data(json!({"server": server}));
    let mut data = json!({"record": record});
    if let Some(waived) = waived {
        data["waived"] = waived;
    }
    let registered = Event::new(EventName::ServerRegistered, &actor).epoch(epoch).data(data);
    let mut events = vec![submitted, registered];
    events.extend(acceptance_events(operator, record, accepted));
    events
}

/// The submission and the acceptance (GOV-405), and behind them what did not fit: a record that is too long would hide in evidence what each tool was
/// accepted with (AUD-10).
pub(super) fn acceptance_events(
    operator: &OperatorProof,
    record: &RegistrationRecord,
    accepted: &AcceptedDeclaration,
) -> Vec<Event> {
    let (server, epoch, version) = (&record.server_identity, record.registration_epoch, accepted.version());
    let probe = serde_json::to_vec(accepted.live()).expect("a surface is plain JSON");
    let mut parts = described(accepted).into_iter();
    let (first, count) = (parts.next().unwrap_or_default(), accepted_items(accepted).count());
    let data = json!({"epoch": epoch, "items": count, "server": server, "tools": first, "version": version});
    let actor = operator.actor();
    let event = Event::new(EventName::DeclarationAccepted, &actor)
        .epoch(epoch)
        .data(data)
        .evidence(Role::Declaration, RetentionClass::Hold, Bytes::copy_from_slice(accepted.document()))
        .evidence(Role::Probe, RetentionClass::Hold, Bytes::from(probe));
    let submitted = Event::new(EventName::DeclarationSubmitted, &actor)
        .epoch(epoch)
        .data(json!({"server": server, "version": version}));
    let rest = parts.map(|tools| {
        let data = json!({"server": server, "tools": tools, "version": version});
        Event::new(EventName::DeclarationDescribed, &actor).epoch(epoch).data(data)
    });
    [submitted, event].into_iter().chain(rest).collect()
}

fn accepted_items(accepted: &AcceptedDeclaration) -> impl Iterator<Item = &Arc<AcceptedTool>> {
    let items = accepted.tools().iter().chain(accepted.resources()).chain(accepted.prompts());
    items.chain(accepted.requests())
}

/// AUD-51: what each item may do, for who checks the log without the keys of the evidence; in parts of which each fits
/// into a record.
fn described(accepted: &AcceptedDeclaration) -> Vec<serde_json::Map<String, Value>> {
    const FITS: usize = 8 * 1024;
    let mut parts = vec![serde_json::Map::new()];
    let mut bytes = 0;
    for tool in accepted_items(accepted) {
        let name = tool.id().item().to_string();
        let what = json!({
            "profile_sha256": tool.cage().map(|cage| cage.sha256), "scopes": tool.scopes(),
            "side_effects": tool.side_effects(),
        });
        let size = name.len() + what.to_string().len() + 4;
        if bytes + size > FITS && bytes > 0 {
            parts.push(serde_json::Map::new());
            bytes = 0;
        }
        bytes += size;
        if let Some(part) = parts.last_mut() {
            part.insert(name, what);
        }
    }
    parts
}

/// Lets sessions go on that were stopped because of a server, now that an operator has decided about it.
pub(super) fn go_on(stopped: &[Arc<Session>]) {
    for session in stopped {
        session.resolve_checkpoint();
    }
}

pub(super) fn need_reason(reason: &str) -> Result<(), ControlError> {
    if has_visible_character(reason) {
        Ok(())
    } else {
        Err(ControlError::field("reason", "say why, in a few words"))
    }
}

impl State {
    /// Whether a server of this name can be taken in, or replaced.
    fn room_for(&self, name: &ServerIdentity, replacing: bool) -> Result<(), ControlError> {
        if replacing {
            return self.entries.get(name).map(|_| ()).ok_or_else(|| ControlError::not_found(name));
        }
        let conflict = |field: &str, message: String| {
            Err(ControlError { field: Some(field.into()), ..ControlError::new(ErrorCode::Conflict, message) })
        };
        if self.entries.contains_key(name) {
            let message = format!(
                "server '{name}' is already registered; `portcullis mcp update` registers another version of it"
            );
            return conflict("name", message);
        }
        if let (Names::Bare, Some(other)) = (self.names, self.entries.keys().next()) {
            let message =
                format!("'{other}' is registered, and with `gateway.names = \"bare\"` there is room for one");
            return conflict("gateway.names", message);
        }
        Ok(())
    }
}

fn spki_pin(text: &str) -> Result<Sha256Digest, ControlError> {
    text.parse().map_err(|_| {
        ControlError::field(
            "tls-spki",
            "expected the SHA-256 of the server's public key, 64 hexadecimal digits",
        )
    })
}

pub(super) fn rejected(rejections: Vec<Rejection>) -> ControlError {
    let lines: Vec<String> = rejections.iter().map(ToString::to_string).collect();
    let message = format!("the declaration is not acceptable:\n  {}", lines.join("\n  "));
    ControlError {
        rejections,
        field: Some("capability-declaration".into()),
        ..ControlError::new(ErrorCode::Validation, message)
    }
}
