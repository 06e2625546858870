//! What came through acceptance: the only things that can be called (INV-MP-001).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::canon::to_jcs;
use portcullis_core::name::ScopeName;
use portcullis_core::{
    DeclarationVersion, Item, RegistrationEpoch, ServerIdentity, ServerVersion, Sha256Digest, ToolId,
    ToolName,
};
use portcullis_gauntlet::{CompiledSchema, SchemaRole, ToolSpec};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::binding::Binding;
use crate::broker::Delivery;
use crate::capability;
use crate::confinement::{self, Cage};
use crate::declaration::live::{self, Changed, Difference, LiveSurface, LiveTool};
use crate::declaration::rules::{self, Expectations};
use crate::declaration::{
    AcceptedRequest, Declaration, Idempotency, Rejection, Replay, ScopeKind, Sharing, SideEffect, ToolClause,
};
use crate::endpoint::Pin;
use crate::mirrored::{self, Mirrored};
use crate::record::{Process, ProcessModel};
use crate::subject::Subject;

/// A declaration that passed every rule of GOV-403 against a live server.
#[derive(Debug)]
pub struct AcceptedDeclaration {
    version: DeclarationVersion,
    document: Vec<u8>,
    live: LiveSurface,
    tools: Vec<Arc<AcceptedTool>>,
    resources: Vec<Arc<AcceptedTool>>,
    prompts: Vec<Arc<AcceptedTool>>,
    completions: Vec<Arc<AcceptedTool>>,
    /// The questions it may put to clients, as things to decide about.
    requests: Vec<Arc<AcceptedTool>>,
    /// The resources that clients may subscribe to.
    followable: Vec<ToolName>,
    server_requests: Vec<AcceptedRequest>,
    client_capabilities: Value,
    tasks: bool,
    session: Sharing,
    /// How often a dynamic surface is looked at.
    refresh: Option<Duration>,
}

/// One callable tool, or a resource, template or prompt, which are asked for in the same way.
#[derive(Debug)]
pub struct AcceptedTool {
    id: ToolId,
    epoch: RegistrationEpoch,
    spec: Arc<ToolSpec>,
    side_effects: Vec<SideEffect>,
    scopes: Vec<ScopeName>,
    credentials: Vec<String>,
    bindings: Vec<Binding>,
    bound: bool,
    idempotency: Idempotency,
    timeout: Duration,
    replay: Replay,
    definition: Box<RawValue>,
    subject: Subject,
    mirrored: Vec<Mirrored>,
    reach: Option<Arc<Reach>>,
    deliveries: Arc<[Delivery]>,
    cage: Option<Arc<Cage>>,
}

/// What a call may reach beyond the server's own process (SBX-47).
#[derive(Debug, PartialEq, Eq)]
pub struct Reach {
    /// Scopes of hosts.
    pub scopes: Vec<String>,
    /// How many bytes it may send.
    pub bytes: u64,
}

impl Reach {
    /// None for a tool that does not say that it uses the network.
    fn of(declaration: &Declaration, clause: &ToolClause) -> Option<Arc<Self>> {
        let is_host = |name: &&ScopeName| {
            declaration.body.scopes.get(*name).is_some_and(|scope| scope.kind == ScopeKind::Egress)
        };
        let scopes: Vec<String> = clause.scopes.iter().filter(is_host).map(ToString::to_string).collect();
        let reaches = clause.side_effects.contains(&SideEffect::Network) && !scopes.is_empty();
        reaches.then(|| Arc::new(Self { scopes, bytes: clause.limits.max_egress_bytes }))
    }
}

/// The credentials of a tool, in the order of its scopes.
fn deliveries(declaration: &Declaration, clause: &ToolClause) -> Arc<[Delivery]> {
    let scopes = clause.scopes.iter().filter_map(|name| declaration.body.scopes.get(name));
    scopes.filter(|scope| scope.kind == ScopeKind::Secret).filter_map(Delivery::of).collect()
}

/// Whether the kernel holds the tool to its scopes (GOV-1405): its process is one of ours, and has exactly what the tool
/// declares. Where all tools share one process, that is so for a tool that has every scope.
fn confined(declaration: &Declaration, clause: &ToolClause, cage: Option<&Cage>) -> bool {
    cage.is_some_and(|cage| {
        cage.model != ProcessModel::Shared
            || declaration.body.scopes.keys().all(|name| clause.scopes.contains(name))
    })
}

/// Which registration a declaration is accepted for.
#[derive(Debug, Clone, Copy)]
pub struct Acceptance<'a> {
    /// The rules' expectations.
    pub expect: Expectations<'a>,
    /// This life of the server.
    pub epoch: RegistrationEpoch,
    /// Counter of the declaration version: rising per identity, never reused (GOV-405).
    pub counter: u64,
}

impl AcceptedDeclaration {
    /// Applies every rule. `file` names the source in messages.
    pub fn accept(
        declaration: &Declaration,
        file: &str,
        live: LiveSurface,
        acceptance: &Acceptance<'_>,
    ) -> Result<Self, Vec<Rejection>> {
        rules::check(declaration, file, &acceptance.expect)?;
        let reject =
            |rule, pointer: &str, message: String| vec![declaration.reject(file, rule, pointer, message)];
        let versions = &declaration.body.server.protocol_versions;
        if !versions.contains(&live.protocol_version) {
            let message = format!("the server speaks {}, which is not declared", live.protocol_version);
            return Err(reject(8, "/server/protocol_versions", message));
        }
        let difference = live::compare(declaration, &live);
        if !difference.is_empty() {
            return Err(vec![declaration.reject(file, 8, "/tools", difference.summary())]);
        }
        Self::build(declaration, live, acceptance).map_err(|message| reject(6, "/tools", message))
    }

    /// Rebuilds an accepted declaration from its recorded evidence, after a restart. `process` is what is started, if it is
    /// a process of ours, with what it was pinned to.
    pub fn restore(
        document: &[u8],
        live: LiveSurface,
        version: DeclarationVersion,
        identity: &ServerIdentity,
        server_version: &ServerVersion,
        epoch: RegistrationEpoch,
        process: Option<(&Process, &[Pin])>,
    ) -> Result<Self, String> {
        if Sha256Digest::of(document) != version.sha256 {
            return Err("the recorded declaration does not have the recorded digest".into());
        }
        let text = std::str::from_utf8(document).map_err(|_| "the recorded declaration is not UTF-8")?;
        let source = crate::declaration::Source { name: "recorded declaration", text };
        let declaration = Declaration::parse(&source).map_err(|rejection| rejection.to_string())?;
        let expect = Expectations {
            identity,
            version: server_version,
            surface: declaration.body.server.surface,
            pins: process.map_or(&[], |(_, pins)| pins),
            home: std::path::Path::new("/nonexistent"),
            protected: &[],
            process: process.map(|(process, _)| process),
        };
        Self::build(&declaration, live, &Acceptance { expect, epoch, counter: version.counter })
    }

    fn build(
        declaration: &Declaration,
        live: LiveSurface,
        acceptance: &Acceptance<'_>,
    ) -> Result<Self, String> {
        let document = to_jcs(&declaration.document).map_err(|error| error.to_string())?;
        let version = DeclarationVersion { counter: acceptance.counter, sha256: Sha256Digest::of(&document) };
        let definitions: HashMap<&str, &RawValue> =
            live.tools.iter().map(|tool| (tool.name.as_str(), &*tool.definition)).collect();
        let tools = (declaration.body.tools.iter())
            .map(|clause| {
                let definition =
                    definitions.get(clause.name.as_str()).ok_or("a declared tool has no live definition")?;
                let item = Item::Tool(clause.name.clone());
                AcceptedTool::build(
                    declaration,
                    clause,
                    (item, Subject::Tool),
                    &live,
                    definition,
                    version,
                    acceptance,
                )
            })
            .collect::<Result<_, String>>()?;
        let mut completions = Vec::new();
        let mut accept = |clause: &ToolClause, item: Item, subject: Subject, definition: &RawValue| {
            let reference = match &subject {
                Subject::Prompt => Some(json!({"type": "ref/prompt", "name": clause.name})),
                Subject::Template(template) => {
                    Some(json!({"type": "ref/resource", "uri": template.as_str()}))
                }
                _ => None,
            };
            let has_arguments =
                clause.parameters["properties"].as_object().is_some_and(|map| !map.is_empty());
            if let Some(reference) = reference.filter(|_| live.completions && has_arguments) {
                let what = (item.clone(), Subject::Completion { reference });
                let clause = clause.completion();
                completions.push(AcceptedTool::build(
                    declaration,
                    &clause,
                    what,
                    &live,
                    definition,
                    version,
                    acceptance,
                )?);
            }
            AcceptedTool::build(declaration, clause, (item, subject), &live, definition, version, acceptance)
        };
        let resources = (declaration.body.resources.iter())
            .map(|clause| {
                let subject = clause.subject()?;
                let (listed, key) = match &subject {
                    Subject::Template(template) => (&live.templates, template.as_str()),
                    _ => (&live.resources, clause.uri.as_deref().unwrap_or_default()),
                };
                let definition = listed.iter().find(|found| found.name == key);
                let definition =
                    definition.map_or_else(|| clause.described(), |found| found.definition.clone());
                let item = Item::Resource(clause.name.clone());
                accept(&clause.as_tool(&subject), item, subject, &definition)
            })
            .collect::<Result<_, String>>()?;
        let prompts = (declaration.body.prompts.iter())
            .map(|clause| {
                let definition = live.prompts.iter().find(|found| found.name == clause.name.as_str());
                let definition = definition.ok_or("a declared prompt has no live definition")?;
                let item = Item::Prompt(clause.name.clone());
                accept(&clause.as_tool(), item, Subject::Prompt, &definition.definition)
            })
            .collect::<Result<_, String>>()?;
        let followable = (declaration.body.resources.iter())
            .filter(|resource| resource.subscribe)
            .map(|resource| resource.name.clone())
            .collect();
        let server_requests = declaration.body.accepted_requests();
        let requests = (server_requests.iter())
            .map(|request| {
                let clause = request.as_tool()?;
                let what = (Item::Request(clause.name.clone()), Subject::Request(request.kind));
                let definition = RawValue::from_string("{}".into()).expect("an empty object");
                AcceptedTool::build(declaration, &clause, what, &live, &definition, version, acceptance)
            })
            .collect::<Result<_, String>>()?;
        let client_capabilities = declaration.body.client_capabilities();
        Ok(Self {
            version,
            document,
            live,
            tools,
            resources,
            prompts,
            completions,
            requests,
            followable,
            server_requests,
            client_capabilities,
            tasks: declaration.body.tasks,
            session: declaration.body.server.session,
            refresh: declaration.body.server.refresh.as_ref().map(|refresh| refresh.max_age.0),
        })
    }

    /// How often the server is looked at again, if its surface may change (GOV-502).
    pub fn refresh(&self) -> Option<Duration> {
        self.refresh
    }

    /// Whether clients share its sessions (PRO-39).
    pub fn session(&self) -> Sharing {
        self.session
    }

    /// `<counter>:<sha256>`.
    pub fn version(&self) -> DeclarationVersion {
        self.version
    }

    /// The canonical document: evidence.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// The surface it was accepted against.
    pub fn live(&self) -> &LiveSurface {
        &self.live
    }

    /// Whether clients may be told when a resource changes (GOV-407).
    pub fn allows_subscriptions(&self, resource: &AcceptedTool) -> bool {
        matches!(resource.id.item(), Item::Resource(name) if self.followable.contains(name))
    }

    /// What a later probe shows that was not accepted (GOV-501).
    pub fn drift(&self, now: &LiveSurface) -> Difference {
        let mut difference = live::drift(&self.live, now);
        for prompt in &self.prompts {
            let name = prompt.id.item().name();
            let find = |live: &LiveSurface| {
                live.prompts.iter().find(|found| found.name == name).map(LiveTool::digest)
            };
            match find(now) {
                None => difference.removed.push(format!("prompt {name}")),
                found if found != find(&self.live) => {
                    difference.changed.push(Changed { tool: format!("prompt {name}"), field: "definition" });
                }
                Some(_) => {}
            }
        }
        difference
    }

    /// The callable tools, in declared order.
    pub fn tools(&self) -> &[Arc<AcceptedTool>] {
        &self.tools
    }

    /// The readable resources and templates, in declared order.
    pub fn resources(&self) -> &[Arc<AcceptedTool>] {
        &self.resources
    }

    /// The prompts, in declared order.
    pub fn prompts(&self) -> &[Arc<AcceptedTool>] {
        &self.prompts
    }

    /// The requests the server may make while it works on a call (GOV-408).
    pub fn server_requests(&self) -> &[AcceptedRequest] {
        &self.server_requests
    }

    /// The same, as the capabilities we announce to it.
    pub fn client_capabilities(&self) -> &Value {
        &self.client_capabilities
    }

    /// Whether calls may be answered with tasks.
    pub fn allows_tasks(&self) -> bool {
        self.tasks
    }

    /// The prompts and templates whose arguments the server completes.
    pub fn completions(&self) -> &[Arc<AcceptedTool>] {
        &self.completions
    }

    /// The questions it may put to clients: each is decided about like a call (GOV-408).
    pub fn requests(&self) -> &[Arc<AcceptedTool>] {
        &self.requests
    }

    /// Everything that can be asked of the server: tools, resources, prompts, completions.
    pub fn everything(&self) -> impl Iterator<Item = &Arc<AcceptedTool>> {
        self.tools.iter().chain(&self.resources).chain(&self.prompts).chain(&self.completions)
    }
}

impl AcceptedTool {
    fn build(
        declaration: &Declaration,
        clause: &ToolClause,
        (item, subject): (Item, Subject),
        live: &LiveSurface,
        definition: &RawValue,
        version: DeclarationVersion,
        acceptance: &Acceptance<'_>,
    ) -> Result<Arc<Self>, String> {
        let Expectations { identity, version: server_version, .. } = acceptance.expect;
        let id = ToolId::new(identity.clone(), item, server_version.clone(), version);
        let compile = |schema, role| CompiledSchema::compile(schema, role).map_err(|error| error.to_string());
        let spec = ToolSpec {
            tool: id.clone(),
            result: subject.result(),
            input: compile(&clause.parameters, SchemaRole::Input)?,
            output: clause
                .output
                .schema
                .as_ref()
                .map(|schema| compile(schema, SchemaRole::Output))
                .transpose()?,
            permissions: capability::permissions(declaration, clause)?,
            ceiling: Arc::new(capability::ceiling(identity, declaration)?),
            scopes_bound: true,
            any_root: live.protocol_version.as_str() >= "2026-07-28",
            max_request_bytes: clause.limits.max_request_bytes as usize,
            max_response_bytes: clause.limits.max_response_bytes as usize,
        };
        let bindings = (clause.scope_bindings.iter())
            .map(|binding| {
                let scope = declaration.body.scopes.get(&binding.scope)?;
                Binding::new(&binding.param, &binding.scope, binding.reading, scope)
            })
            .collect::<Option<_>>()
            .ok_or("a binding does not fit its scope")?;
        // A question goes to the client: no process of ours serves it.
        let cage = (acceptance.expect.process)
            .filter(|_| !matches!(subject, Subject::Request(_)))
            .map(|process| confinement::of_tool(declaration, clause, process, acceptance.expect.pins))
            .transpose()
            .map_err(|error| error.to_string())?
            .map(Arc::new);
        let mut side_effects = clause.side_effects.clone();
        side_effects.sort_unstable_by_key(|class| class.as_str());
        let mut scopes = clause.scopes.clone();
        scopes.sort_unstable();
        Ok(Arc::new(Self {
            id,
            epoch: acceptance.epoch,
            spec: Arc::new(spec),
            side_effects,
            scopes,
            credentials: clause.credentials.clone(),
            bindings,
            bound: !clause.unbound || confined(declaration, clause, cage.as_deref()),
            cage,
            idempotency: clause.idempotency,
            timeout: clause.limits.timeout.0,
            replay: clause.replay,
            definition: definition.to_owned(),
            subject,
            mirrored: mirrored::read(&clause.parameters)?,
            reach: Reach::of(declaration, clause),
            deliveries: deliveries(declaration, clause),
        }))
    }

    /// What a call of it may reach over the network; nothing for most.
    pub fn reach(&self) -> Option<&Arc<Reach>> {
        self.reach.as_ref()
    }

    /// What confines the process that serves it, if that is one of ours.
    pub fn cage(&self) -> Option<&Arc<Cage>> {
        self.cage.as_ref()
    }

    /// The credentials that a call of it is given, and how (SBX-52).
    pub fn deliveries(&self) -> &Arc<[Delivery]> {
        &self.deliveries
    }

    /// The arguments that go into headers too.
    pub fn mirrored(&self) -> &[Mirrored] {
        &self.mirrored
    }

    /// What is asked for, and how.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Canonical identity.
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    /// The registration it belongs to.
    pub fn epoch(&self) -> RegistrationEpoch {
        self.epoch
    }

    /// What the gauntlet checks.
    pub fn spec(&self) -> &Arc<ToolSpec> {
        &self.spec
    }

    /// Declared classes, sorted by name.
    pub fn side_effects(&self) -> &[SideEffect] {
        &self.side_effects
    }

    /// Declared scopes, sorted.
    pub fn scopes(&self) -> &[ScopeName] {
        &self.scopes
    }

    /// Required credential classes.
    pub fn credentials(&self) -> &[String] {
        &self.credentials
    }

    /// Which arguments must lie in which scopes.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// Whether every scoped argument is bound (GOV-804).
    pub fn bound(&self) -> bool {
        self.bound
    }

    /// Whether it may be repeated.
    pub fn idempotency(&self) -> Idempotency {
        self.idempotency
    }

    /// How long one call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What replay does with it (AUD-70). Only what reads is done again, whatever an old declaration says.
    pub fn replay(&self) -> Replay {
        let reads = self.side_effects.iter().all(|class| *class == SideEffect::Read);
        if self.replay == Replay::Reexecute && !reads { Replay::MustStub } else { self.replay }
    }

    /// The definition as the server lists it, byte for byte.
    pub fn definition(&self) -> &RawValue {
        &self.definition
    }
}
