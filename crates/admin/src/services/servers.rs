//! Servers.

use std::sync::Arc;

use portcullis_core::ServerIdentity;
use portcullis_core::error::one_line;
use portcullis_core::scrub::scrub;
use portcullis_gateway::Control;
use portcullis_gateway::control::{FoundItem, GrantAhead, KeptDraft, Reacceptance, Registration, Target};
use portcullis_governance::declaration::diff::FieldChange;
use portcullis_governance::declaration::live::LiveSurface;
use portcullis_governance::record::{ServerState, Surface};
use portcullis_governance::registry::{Availability, ServerEntry, ToolEntry, Trust};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::error::AdminError;
use crate::grant::Op;

/// A registered server.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ServerRecord {
    /// The operator's name for it.
    pub server_id: String,
    /// The version that was registered.
    pub version: String,
    /// `stdio`, `http` or `sse`.
    pub transport: String,
    /// `active` or `halted`.
    pub state: String,
    /// `static` or `dynamic`.
    pub surface: String,
    /// `enforced`, `external` or `unmanaged-local`.
    pub isolation_class: String,
    /// The tier that was asked for.
    pub tier_requested: u8,
    /// The tier that policy gave.
    pub tier_assigned: u8,
    /// The accepted declaration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declaration_version: Option<String>,
    /// How many tools it has.
    pub tools: usize,
    /// The least trust in it and its tools.
    pub worst_trust: String,
}

/// A tool of a server, in its server's record.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolRow {
    /// Its canonical identity.
    pub tool: String,
    /// The name agents call it by.
    pub name: String,
    /// What it does to the world.
    pub side_effects: Vec<String>,
    /// The scopes it was accepted with.
    pub scopes: Vec<String>,
    /// Whether repeating it is harmless.
    pub idempotency: String,
    /// Whether its scopes are bound to its arguments.
    pub bound: bool,
    /// How far it is trusted.
    pub trust: String,
    /// What its record is worth.
    pub score: Value,
    /// The record of the log that last changed that.
    pub last_event: Value,
}

/// Something that a dynamic server lists otherwise than it was accepted (GOV-502).
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PendingRow {
    /// Its name.
    pub name: String,
    /// What has become of it.
    pub state: String,
}

/// A field in which a server is not what was accepted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DriftRow {
    /// Which, as an item and a JSON pointer.
    pub field: String,
    /// The item: a tool, or `prompt <name>`.
    pub item: String,
    /// Where in its definition, as a JSON pointer; empty for the whole of it.
    pub pointer: String,
    /// What was accepted; nothing if it is new.
    pub before: Value,
    /// What the server says now; nothing if it is gone.
    pub after: Value,
}

/// A server with everything an operator wants to know of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ServerDetail {
    /// The row of the list.
    #[serde(flatten)]
    pub server: ServerRecord,
    /// What an operator registered, whole, as it is on record.
    pub registration: Value,
    /// Why it is here.
    pub justification: String,
    /// Why it is halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<String>,
    /// Which operator registered it.
    pub registered_by: String,
    /// When.
    pub registered_at: String,
    /// The modes it may be used in.
    pub policy_tags: Vec<String>,
    /// What runs, by digest.
    pub pins: Vec<String>,
    /// What it says of itself, by digest, as accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions_sha256: Option<String>,
    /// Every version of its declaration, the one in force last.
    pub declarations: Vec<String>,
    /// Its tools.
    pub tool_rows: Vec<ToolRow>,
    /// What it says of itself that was not accepted.
    pub drifted: bool,
    /// In which fields.
    pub drift: Vec<DriftRow>,
    /// What of that waits to be declared, where a server may change.
    pub pending: Vec<PendingRow>,
    /// The state of the connection to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Why isolation was waived or attested, where that applies.
    pub waivers: Vec<String>,
    /// What may be touched: each scope of the declaration, with its kind and what it reaches.
    pub scope_rows: Vec<ScopeRow>,
    /// The id of its process, if it has one now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// Requests under way.
    pub in_flight: usize,
    /// Failures in a row.
    pub failures: u32,
    /// The last lines its process wrote to stderr, without secrets and cleaned.
    pub log: Vec<String>,
}

/// A server that was looked at and drafted, and that nobody has accepted yet.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DraftRecord {
    /// The name it would be registered under.
    pub server_id: String,
    /// The version that it gives itself.
    pub version: String,
    /// How it is reached: its command line, or its address.
    pub reached: String,
    /// `suggested` or `worst-case`.
    pub manner: String,
    /// What each tool is taken to do, and why.
    pub tools: Vec<DraftedRow>,
    /// Tools that cannot be declared, and why.
    pub left_out: Vec<String>,
    /// What it could touch.
    pub scope_rows: Vec<ScopeRow>,
    /// The drafted declaration, as it is now.
    pub declaration: String,
}

/// A drafted tool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DraftedRow {
    /// Its name.
    pub name: String,
    /// What it is taken to do.
    pub side_effects: Vec<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A scope of a declaration.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ScopeRow {
    /// Its name.
    pub name: String,
    /// `fs`, `egress`, `secret`, `exec` or `remote`.
    pub kind: String,
    /// What it reaches, in words.
    pub reaches: String,
}

/// How many lines of a server's own log are shown.
const LOG_LINES: usize = 40;

/// A server that is another from now on.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReplacedRecord {
    /// What it is now.
    #[serde(flatten)]
    pub server: ServerRecord,
    /// How many approvals ended.
    pub approvals_ended: usize,
    /// Permits that died before they were used.
    pub permits_ended: usize,
    /// How many were given anew.
    pub approvals_carried: usize,
    /// How many were given ahead (GOV-1404).
    pub approvals_granted: usize,
    /// What it does to the list of tools, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

/// A server that is gone.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RemovedRecord {
    /// Which.
    pub server_id: String,
    /// How many tools went with it.
    pub tools_removed: usize,
    /// How many approvals ended.
    pub approvals_ended: usize,
    /// Permits that died before they were used.
    pub permits_ended: usize,
}

/// What looking at a server found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TestRecord {
    /// Whether it answered.
    pub reachable: bool,
    /// The revision it speaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<String>,
    /// Why it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Whether it says the version that was registered.
    pub version_ok: bool,
    /// Whether it lists what was accepted.
    pub declaration_match: bool,
    /// What it lists besides.
    pub added: Vec<String>,
    /// What it does not list any more.
    pub removed: Vec<String>,
    /// What it lists otherwise.
    pub changed: Vec<String>,
    /// The same, by tool and member.
    pub changes: Vec<ChangedRow>,
    /// Everything in which it differs, also what no rule looks at.
    pub fields: Vec<FieldRow>,
    /// What stands between it and the machine.
    pub isolation: String,
}

/// A member of a tool's definition that differs.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ChangedRow {
    /// The tool.
    pub tool: String,
    /// Which member.
    pub field: String,
}

/// A field of a definition, as it was accepted and as it is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FieldRow {
    /// The tool, or `prompt <name>`.
    pub item: String,
    /// Where in its definition.
    pub pointer: String,
    /// What was accepted; nothing if it is new.
    pub before: Option<Value>,
    /// What the server says now; nothing if it is gone.
    pub after: Option<Value>,
}

/// What a server lists now that was not accepted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RefreshRecord {
    /// New.
    pub added: Vec<String>,
    /// Gone.
    pub removed: Vec<String>,
    /// Otherwise.
    pub changed: Vec<String>,
}

/// Servers, and what is declared of them.
#[derive(Debug, Clone)]
pub struct ServerService {
    pub(super) control: Arc<Control>,
}

impl ServerService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// All of them, by name.
    pub fn list(&self, state: Option<&str>, transport: Option<&str>) -> Vec<ServerRecord> {
        let world = self.control.world();
        let wanted = |record: &ServerRecord| {
            state.is_none_or(|state| record.state == state)
                && transport.is_none_or(|transport| record.transport == transport)
        };
        world.registry().servers().map(record).filter(wanted).collect()
    }

    /// One of them.
    pub async fn get(&self, id: &ServerIdentity) -> Result<ServerDetail, AdminError> {
        let drift = self.control.drift(id).await;
        let drift = drift.into_iter().map(|change| DriftRow {
            field: format!("{}{}", change.item, change.pointer),
            item: change.item,
            pointer: change.pointer,
            before: change.before.unwrap_or_default(),
            after: change.after.unwrap_or_default(),
        });
        let log = self.log_of(id).await;
        let standings = self.control.trust_records().await;
        let world = self.control.world();
        let entry = world.registry().server(id).ok_or_else(|| absent(id))?;
        let upstream = world.upstream(id);
        let status = upstream.map(|upstream| upstream.status());
        let told = &entry.record;
        let tools = world.registry().tools().iter().filter(|tool| tool.tool.id().server() == id);
        let standing = |tool: &ToolEntry, member: &str| {
            let of_it = standings.iter().find(|row| row["tool_id"] == word(tool.tool.id()));
            of_it.map(|row| row[member].clone()).unwrap_or_default()
        };
        let tool_rows = tools.map(|tool| ToolRow {
            tool: tool.tool.id().to_string(),
            name: tool.wire_name.to_string(),
            side_effects: tool.tool.side_effects().iter().map(|class| class.as_str().to_owned()).collect(),
            scopes: tool.tool.scopes().iter().map(ToString::to_string).collect(),
            idempotency: word(&tool.tool.idempotency()),
            bound: tool.tool.bound(),
            trust: tool.server.trust_in(tool.tool.id()).as_str().to_owned(),
            score: standing(tool, "score"),
            last_event: standing(tool, "last_event"),
        });
        let drifted = upstream.and_then(|upstream| upstream.drifted());
        Ok(ServerDetail {
            server: record(entry),
            registration: serde_json::to_value(&**told).unwrap_or_default(),
            justification: told.justification.clone(),
            halt: told.halt.clone(),
            registered_by: told.registered_by.clone(),
            registered_at: told.registered_at.to_string(),
            policy_tags: told.policy_tags.iter().map(|mode| mode.as_str().to_owned()).collect(),
            pins: told.artifact_pins.iter().map(word).collect(),
            instructions_sha256: told.instructions_sha256.map(|digest| digest.to_string()),
            declarations: vec![told.declaration_version.to_string()],
            tool_rows: tool_rows.collect(),
            drifted: drifted.is_some(),
            drift: drift.collect(),
            pending: drifted.map(|live| pending(entry, &live)).unwrap_or_default(),
            connection: status.as_ref().map(|status| format!("{:?}", status.phase).to_lowercase()),
            waivers: told.isolation_reason.iter().cloned().collect(),
            scope_rows: scopes(entry.declaration.document()),
            pid: status.as_ref().and_then(|status| status.pid),
            in_flight: status.as_ref().map_or(0, |status| status.in_flight),
            failures: status.as_ref().map_or(0, |status| status.failures),
            log,
        })
    }

    /// The end of what its process wrote to stderr, fit to be shown (ADM-5, ADM-61).
    async fn log_of(&self, id: &ServerIdentity) -> Vec<String> {
        let words = {
            let world = self.control.world();
            world.upstream(id).and_then(|upstream| upstream.last_words())
        };
        let words = words.unwrap_or_default();
        let lines: Vec<&str> = words.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        match self.control.clean_words(Value::String(self.control.masked(&last))).await {
            Value::String(clean) => clean.lines().map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    /// Halts one. Its approvals end.
    pub async fn halt(&self, op: &Op, id: &ServerIdentity) -> Result<ServerRecord, AdminError> {
        self.control.halt_by(op.operator(), id, op.reason()).await?;
        self.row(id)
    }

    /// Lets a halted one run again.
    pub async fn resume(&self, op: &Op, id: &ServerIdentity) -> Result<ServerRecord, AdminError> {
        self.control.resume(op.operator(), id, op.reason()).await?;
        self.row(id)
    }

    /// Registers one.
    pub async fn register(&self, op: &Op, asked: Registration) -> Result<ServerRecord, AdminError> {
        let record = self.control.register(op.operator(), asked).await?;
        self.row(&record.server_identity)
    }

    /// Registers another version of one, in place of the one there is.
    pub async fn update(&self, op: &Op, asked: Registration) -> Result<ReplacedRecord, AdminError> {
        let (record, ended) = self.control.update(op.operator(), asked).await?;
        Ok(ReplacedRecord {
            server: self.row(&record.server_identity)?,
            approvals_ended: ended.approvals,
            permits_ended: ended.permits,
            approvals_carried: 0,
            approvals_granted: self.granted(&record.server_identity),
            surface: None,
        })
    }

    /// Drafts that nobody has accepted yet, by name.
    pub fn drafts(&self) -> Vec<DraftRecord> {
        self.control.drafts().iter().map(|(name, kept)| drafted(name, kept)).collect()
    }

    /// Registers a draft.
    pub async fn accept_draft(
        &self,
        op: &Op,
        name: &ServerIdentity,
        grant: Option<GrantAhead>,
        waived: (Vec<String>, bool),
    ) -> Result<ReplacedRecord, AdminError> {
        self.control.accept_draft(op.operator(), name, op.reason(), grant, waived).await?;
        let (server, approvals_granted) = (self.row(name)?, self.granted(name));
        Ok(ReplacedRecord {
            server,
            approvals_ended: 0,
            permits_ended: 0,
            approvals_carried: 0,
            approvals_granted,
            surface: None,
        })
    }

    /// What is granted of a server that has just been registered, whose grants were all given with that.
    fn granted(&self, name: &ServerIdentity) -> usize {
        self.control.approvals_of(name).len()
    }

    /// Whether there is a server of this name.
    pub fn is_registered(&self, name: &ServerIdentity) -> bool {
        self.control.world().registry().server(name).is_some()
    }

    /// Accepts what one has become, if `replaces` is still the declaration in force.
    pub async fn accept(
        &self,
        op: &Op,
        asked: Reacceptance,
        replaces: Option<&str>,
    ) -> Result<ReplacedRecord, AdminError> {
        let name = asked.name.clone();
        let current = self.row(&name)?.declaration_version;
        if replaces.is_some_and(|version| current.as_deref() != Some(version)) {
            let text = "the declaration in force is another one by now; look at the server again";
            return Err(AdminError::conflict(text).with(crate::ctx! { server_id: name }));
        }
        let replaced = self.control.reaccept(op.operator(), asked).await?;
        Ok(ReplacedRecord {
            server: self.row(&name)?,
            approvals_ended: replaced.approvals_invalidated,
            permits_ended: replaced.permits_invalidated,
            approvals_carried: replaced.approvals_carried,
            approvals_granted: replaced.approvals_granted,
            surface: Some(replaced.surface.summary),
        })
    }

    /// Accepts a declaration that was handed in.
    pub async fn accept_submission(
        &self,
        op: &Op,
        asked: Reacceptance,
        version: &str,
    ) -> Result<ReplacedRecord, AdminError> {
        let found = self.control.submission(&asked.name, version)?;
        let file = format!("declaration {version}");
        let asked = Reacceptance { declaration: Some((file, found.document.declaration.clone())), ..asked };
        let replaced = self.accept(op, asked, None).await?;
        self.control.settle_submission(op.operator(), found, "accepted").await?;
        Ok(replaced)
    }

    /// Removes one.
    pub async fn remove(&self, op: &Op, id: &ServerIdentity) -> Result<RemovedRecord, AdminError> {
        let tools_removed = self.row(id)?.tools;
        let ended = self.control.remove(op.operator(), id, op.reason()).await?;
        Ok(RemovedRecord {
            server_id: id.to_string(),
            tools_removed,
            approvals_ended: ended.approvals,
            permits_ended: ended.permits,
        })
    }

    /// Looks at one without calling any tool.
    pub async fn test(&self, _: &Op, id: &ServerIdentity) -> Result<TestRecord, AdminError> {
        let report = self.control.test(id).await?;
        // ADM-5: what a server says is cleaned before anybody reads it.
        let mut fields = Vec::new();
        for FieldChange { item, pointer, before, after } in report.fields {
            let (before, after) = (self.cleaned(before).await, self.cleaned(after).await);
            fields.push(FieldRow { item: one_line(&item), pointer: one_line(&pointer), before, after });
        }
        Ok(TestRecord {
            reachable: report.reachable,
            handshake: report.protocol_version.clone(),
            problem: report.reason.as_deref().map(|reason| one_line(&self.control.masked(reason))),
            version_ok: report.version_ok,
            declaration_match: report.matches,
            added: names(&report.difference.added),
            removed: names(&report.difference.removed),
            changed: names(&report.difference.changed),
            changes: (report.difference.changed.iter())
                .map(|change| ChangedRow { tool: one_line(&change.tool), field: change.field.to_owned() })
                .collect(),
            fields,
            isolation: word(&report.isolation),
        })
    }

    async fn cleaned(&self, value: Option<Value>) -> Option<Value> {
        match value {
            Some(value) => Some(self.control.clean_words(value).await),
            None => None,
        }
    }

    /// What one lists now, against what was accepted. Accepts nothing.
    pub async fn refresh(&self, op: &Op, id: &ServerIdentity) -> Result<RefreshRecord, AdminError> {
        let seen = self.test(op, id).await?;
        if let Some(problem) = seen.problem {
            return Err(AdminError::failure(problem).with(crate::ctx! { server_id: id }));
        }
        Ok(RefreshRecord { added: seen.added, removed: seen.removed, changed: seen.changed })
    }

    /// Whether nobody uses a tool for now.
    pub fn is_quarantined(&self, short: &str) -> bool {
        self.control.orders().tool(short).is_some_and(|order| order.quarantined)
    }

    /// Everything servers offer, with what it is.
    pub fn tools(&self) -> Vec<(&'static str, Arc<ToolEntry>)> {
        let world = self.control.world();
        let registry = world.registry();
        let kinds = [
            ("tool", registry.tools()),
            ("resource", registry.resources()),
            ("resource", registry.templates()),
            ("prompt", registry.prompts()),
        ];
        kinds
            .into_iter()
            .flat_map(|(kind, list)| list.iter().map(move |entry| (kind, entry.clone())))
            .collect()
    }

    /// A definition as it was accepted, with the server's words cleaned (ADM-5).
    pub async fn definition(&self, entry: &ToolEntry) -> Value {
        let raw = serde_json::from_str(entry.tool.definition().get()).unwrap_or(Value::Null);
        self.control.clean_words(raw).await
    }

    /// What an agent would find with these words, and why.
    pub fn find(&self, query: &str, kind: portcullis_catalog::Kind) -> Result<Vec<FoundItem>, AdminError> {
        Ok(self.control.find_items(query, kind)?)
    }

    fn row(&self, id: &ServerIdentity) -> Result<ServerRecord, AdminError> {
        self.control.world().registry().server(id).map(record).ok_or_else(|| absent(id))
    }
}

fn drafted(name: &ServerIdentity, kept: &KeptDraft) -> DraftRecord {
    let draft = &kept.drafted.draft;
    let reached = match &kept.target {
        Target::Stdio { command, args, .. } => {
            std::iter::once(command).chain(args).cloned().collect::<Vec<_>>().join(" ")
        }
        Target::Http { url, .. } | Target::Sse { url, .. } | Target::Records { url, .. } => url.clone(),
    };
    // A draft writes each scope on a line of its own, as JSON.
    let scopes = draft.document.lines().filter_map(|line| {
        let (name, scope) = line.trim().split_once(": ")?;
        let scope: Value = serde_json::from_str(scope).ok()?;
        scope["kind"].is_string().then(|| scope_row(name, &scope))
    });
    DraftRecord {
        server_id: name.to_string(),
        version: one_line(&kept.drafted.server_version),
        reached: one_line(&scrub(&reached)),
        manner: word(&kept.drafted.manner),
        tools: (draft.tools.iter())
            .map(|tool| DraftedRow {
                name: one_line(&tool.name),
                side_effects: tool.classes.iter().map(|class| class.as_str().to_owned()).collect(),
                reason: tool.reason.as_deref().map(one_line),
            })
            .collect(),
        left_out: draft.left_out.iter().map(|(tool, why)| one_line(&format!("{tool}: {why}"))).collect(),
        scope_rows: scopes.collect(),
        declaration: draft.document.clone(),
    }
}

/// The scopes of a declaration, in words.
fn scopes(declaration: &[u8]) -> Vec<ScopeRow> {
    let declaration: Value = serde_json::from_slice(declaration).unwrap_or_default();
    let scopes = declaration["scopes"].as_object().into_iter().flatten();
    scopes.map(|(name, scope)| scope_row(name, scope)).collect()
}

fn scope_row(name: &str, scope: &Value) -> ScopeRow {
    let of = |key: &str| scope[key].as_str().unwrap_or_default();
    let kind = of("kind");
    let reaches = match kind {
        "fs" if of("access") == "rw" => format!("reads and writes below {}", of("path")),
        "fs" => format!("reads below {}", of("path")),
        "egress" => {
            let how = if of("tls") == "none" { "in the clear" } else { "over TLS" };
            format!("talks to {}:{} {how}", of("host"), scope["port"])
        }
        "exec" => format!("runs {}", of("path")),
        "secret" => format!("uses a credential of class {}", of("credential_class")),
        "remote" => format!("changes things at {}", of("system")),
        _ => String::new(),
    };
    ScopeRow { name: name.to_owned(), kind: kind.to_owned(), reaches }
}

/// What a server that may change lists otherwise, and what that is until somebody declares it (GOV-502).
fn pending(entry: &ServerEntry, live: &LiveSurface) -> Vec<PendingRow> {
    if entry.record.surface != Surface::Dynamic {
        return Vec::new();
    }
    let difference = entry.declaration.drift(live);
    let changed = difference.changed.iter().map(|change| change.tool.clone());
    let waiting: Vec<String> = names(&difference.added.iter().cloned().chain(changed).collect::<Vec<_>>());
    let gone = names(&difference.removed);
    let row = |state: Availability| move |name: String| PendingRow { name, state: word(&state) };
    let waiting = waiting.into_iter().map(row(Availability::PendingRedeclaration));
    waiting.chain(gone.into_iter().map(row(Availability::Withdrawn))).collect()
}

/// Names that a server made up, safe to show (ADM-5).
fn names<T: Serialize>(list: &[T]) -> Vec<String> {
    list.iter().map(|name| one_line(&word(name))).collect()
}

fn absent(id: &ServerIdentity) -> AdminError {
    AdminError::not_found(format!("server '{id}' does not exist")).with(crate::ctx! { server_id: id })
}

fn record(entry: &ServerEntry) -> ServerRecord {
    let told = &entry.record;
    let state = if told.state == ServerState::Active { "active" } else { told.state.as_str() };
    ServerRecord {
        server_id: told.server_identity.to_string(),
        version: told.server_version.to_string(),
        transport: told.transport.as_str().to_owned(),
        state: state.to_owned(),
        surface: told.surface.as_str().to_owned(),
        isolation_class: told.isolation_class.as_str().to_owned(),
        tier_requested: told.requested_trust_tier,
        tier_assigned: told.assigned_trust_tier,
        declaration_version: Some(told.declaration_version.to_string()),
        tools: entry.declaration.tools().len(),
        worst_trust: worst_trust(entry).as_str().to_owned(),
    }
}

/// The least trusted of a server and its tools.
fn worst_trust(entry: &ServerEntry) -> Trust {
    let tools = entry.declaration.tools().iter().map(|tool| entry.trust_in(tool.id()));
    tools.min().unwrap_or(entry.trust)
}

/// The text a thing has in JSON.
pub(crate) fn word<T: Serialize>(thing: &T) -> String {
    match serde_json::to_value(thing) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
