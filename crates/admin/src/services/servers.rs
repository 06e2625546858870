//! Servers.

use std::sync::Arc;

use portcullis_core::ServerIdentity;
use portcullis_gateway::Control;
use portcullis_gateway::control::Reacceptance;
use portcullis_governance::record::ServerState;
use portcullis_governance::registry::ServerEntry;
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
    /// How far it is trusted.
    pub trust: String,
}

/// A field in which a server is not what was accepted.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct DriftRow {
    /// Which, as an item and a JSON pointer.
    pub field: String,
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
    /// Every version of its declaration, the one in force last.
    pub declarations: Vec<String>,
    /// Its tools.
    pub tool_rows: Vec<ToolRow>,
    /// What it says of itself that was not accepted.
    pub drifted: bool,
    /// In which fields.
    pub drift: Vec<DriftRow>,
    /// The state of the connection to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<String>,
    /// Why isolation was waived or attested, where that applies.
    pub waivers: Vec<String>,
}

/// Servers, and what is declared of them.
#[derive(Debug, Clone)]
pub struct ServerService {
    control: Arc<Control>,
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
            before: change.before.unwrap_or_default(),
            after: change.after.unwrap_or_default(),
        });
        let world = self.control.world();
        let entry = world.registry().server(id).ok_or_else(|| absent(id))?;
        let upstream = world.upstream(id);
        let told = &entry.record;
        let tools = world.registry().tools().iter().filter(|tool| tool.tool.id().server() == id);
        let tool_rows = tools.map(|tool| ToolRow {
            tool: tool.tool.id().to_string(),
            name: tool.wire_name.to_string(),
            side_effects: tool.tool.side_effects().iter().map(|class| class.as_str().to_owned()).collect(),
            scopes: tool.tool.scopes().iter().map(ToString::to_string).collect(),
            idempotency: word(&tool.tool.idempotency()),
            trust: tool.server.trust_in(tool.tool.id()).as_str().to_owned(),
        });
        Ok(ServerDetail {
            server: record(entry),
            justification: told.justification.clone(),
            halt: told.halt.clone(),
            registered_by: told.registered_by.clone(),
            registered_at: told.registered_at.to_string(),
            policy_tags: told.policy_tags.iter().map(|mode| mode.as_str().to_owned()).collect(),
            pins: told.artifact_pins.iter().map(word).collect(),
            declarations: vec![told.declaration_version.to_string()],
            tool_rows: tool_rows.collect(),
            drifted: upstream.is_some_and(|upstream| upstream.drifted().is_some()),
            drift: drift.collect(),
            connection: upstream
                .map(|upstream| format!("{:?}", upstream.connection().status().phase).to_lowercase()),
            waivers: told.isolation_reason.iter().cloned().collect(),
        })
    }

    /// Accepts what one offers now, if `replaces` is still the declaration in force. Its tools get new identities.
    pub async fn accept_live(
        &self,
        op: &Op,
        id: &ServerIdentity,
        replaces: Option<&str>,
        carry_approvals: bool,
    ) -> Result<ServerDetail, AdminError> {
        let world = self.control.world();
        let entry = world.registry().server(id).ok_or_else(|| absent(id))?;
        if replaces.is_some_and(|version| entry.record.declaration_version.to_string() != version) {
            let text = "the declaration in force is another one by now; look at the server again";
            return Err(AdminError::conflict(text).with(crate::ctx! { server_id: id }));
        }
        let reason = op.reason().to_owned();
        let asked = Reacceptance { name: id.clone(), declaration: None, carry_approvals, reason };
        self.control.reaccept(op.operator(), asked).await?;
        self.get(id).await
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

    fn row(&self, id: &ServerIdentity) -> Result<ServerRecord, AdminError> {
        self.control.world().registry().server(id).map(record).ok_or_else(|| absent(id))
    }
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
    }
}

/// The text a thing has in JSON.
pub(crate) fn word<T: Serialize>(thing: &T) -> String {
    match serde_json::to_value(thing) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
