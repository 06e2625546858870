//! `portcullis_tools_*`: what servers offer, and what would happen to a call.

use std::collections::HashMap;
use std::sync::Arc;

use portcullis_catalog::signature::Signature;
use portcullis_core::ServerIdentity;
use portcullis_core::error::one_line;
use portcullis_governance::registry::ToolEntry;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use portcullis_gateway::orders::ToolOrder;

use crate::args::{Ident, JsonObject, NonBlank, Page, Version};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{DryRunRecord, ServerService, ToolOrderRecord, word};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Kind { Tool = "tool", Resource = "resource", Prompt = "prompt" }
}

words! {
    pub(crate) enum State { Active = "active", Halted = "halted", Quarantined = "quarantined" }
}

words! {
    pub(crate) enum InUse { Active = "active", Quarantined = "quarantined" }
}

words! {
    pub(crate) enum EscapeWord { Html = "html", None = "none" }
}

words! {
    pub(crate) enum TextJsonWord { Leaf = "leaf", String = "string" }
}

args! {
    pub(crate) struct List {
        server_id: Option<Ident<ServerIdentity>>, kind: Option<Kind>, state: Option<State>, query: Option<NonBlank>, page: Page,
    }
}

args! {
    pub(crate) struct One { tool: NonBlank }
}

args! {
    pub(crate) struct DryRun { tool: NonBlank, arguments: JsonObject, client_id: Option<NonBlank> }
}

args! {
    pub(crate) struct SetState { tool: NonBlank, state: InUse }
}

args! {
    pub(crate) struct Override {
        tool: NonBlank, extra_permissions: Option<Vec<NonBlank<200>>>, escape: Option<EscapeWord>,
        text_json: Option<TextJsonWord>, deprecated: Option<bool>, expected_version: Option<Version>,
    }
}

/// What a word of a query was worth to a tool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct WhyRow {
    word: String,
    term: String,
    how: String,
    points: u32,
}

/// Something a server offers.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ToolRecord {
    tool: String,
    name: String,
    kind: String,
    server_id: String,
    description: String,
    state: String,
    side_effects: Vec<String>,
    trust: String,
    signature: String,
    /// How well it fits the query; comparable within one answer only.
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<u32>,
    /// What each word of the query was worth to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    why: Vec<WhyRow>,
}

/// The same with everything that was accepted of it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(crate) struct ToolDetail {
    #[serde(flatten)]
    tool: ToolRecord,
    scopes: Vec<String>,
    idempotency: String,
    definition: Value,
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/tools",
        tools: vec![
            read_tool("tools", "list", "List what servers offer.", list),
            read_tool("tools", "get", "Show a tool with its accepted definition.", get),
            admin_tool("tools", "override", "Treat a tool otherwise than declared.", override_tool),
            admin_tool("tools", "set_state", "Put a tool under quarantine, or into use again.", set_state),
            read_tool("tools", "dry_run", "Say what would happen to a call; nothing is sent.", dry_run),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ToolRecord>>, AdminError> {
    let servers = cx.servers();
    let mut rows = Vec::new();
    for (kind, entry) in servers.tools() {
        rows.push(record(&servers, kind, &entry).await);
    }
    rows.retain(|row| {
        args.server_id.as_ref().is_none_or(|id| row.server_id == id.0.as_str())
            && args.kind.is_none_or(|kind| row.kind == kind.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    match &args.query {
        Some(query) => rows = ranked(&servers, query.as_str(), args.kind, rows)?,
        None => rows.sort_by(|a, b| a.tool.cmp(&b.tool)),
    }
    Ok(Reply::page(args.page.cut(rows), args.page))
}

/// The rows that fit, the best first: what an agent would find with the same words.
fn ranked(
    servers: &ServerService,
    query: &str,
    kind: Option<Kind>,
    rows: Vec<ToolRecord>,
) -> Result<Vec<ToolRecord>, AdminError> {
    let kind = match kind {
        None | Some(Kind::Tool) => portcullis_catalog::Kind::Tool,
        Some(Kind::Resource) => portcullis_catalog::Kind::Resource,
        Some(Kind::Prompt) => portcullis_catalog::Kind::Prompt,
    };
    let mut rows: HashMap<String, ToolRecord> = rows.into_iter().map(|row| (row.tool.clone(), row)).collect();
    let found = servers.find(query, kind)?.into_iter().filter_map(|found| {
        let mut row = rows.remove(&found.identity)?;
        row.score = Some(found.score);
        row.why = (found.why.into_iter())
            .map(|matched| WhyRow {
                how: word(&matched.how),
                word: one_line(&matched.word),
                term: one_line(&matched.term),
                points: matched.points,
            })
            .collect();
        Some(row)
    });
    Ok(found.collect())
}

async fn get(cx: Cx, args: One) -> Result<Reply<ToolDetail>, AdminError> {
    let servers = cx.servers();
    let (kind, entry) = find(&servers, args.tool.as_str())?;
    Ok(Reply::ok(ToolDetail {
        tool: record(&servers, kind, &entry).await,
        scopes: entry.tool.scopes().iter().map(ToString::to_string).collect(),
        idempotency: word(&entry.tool.idempotency()),
        definition: servers.definition(&entry).await,
    }))
}

async fn dry_run(cx: Cx, args: DryRun) -> Result<Reply<DryRunRecord>, AdminError> {
    let arguments = Value::Object(args.arguments.0).to_string();
    let client = args.client_id.as_ref().map_or("local", NonBlank::as_str);
    Ok(Reply::ok(cx.policies().dry_run(client, args.tool.as_str(), &arguments)?))
}

async fn set_state(
    cx: Cx,
    grant: AdminGrant,
    args: SetState,
) -> Result<Committed<ToolOrderRecord>, AdminError> {
    let (clients, tool) = (cx.clients(), String::from(args.tool));
    let quarantined = args.state == InUse::Quarantined;
    grant
        .answer(TargetId::new("tool", &tool), move |op| async move {
            clients.order_tool(&op, &tool, None, |order| order.quarantined = quarantined).await
        })
        .await
}

async fn override_tool(
    cx: Cx,
    grant: AdminGrant,
    args: Override,
) -> Result<Committed<ToolOrderRecord>, AdminError> {
    let (clients, tool) = (cx.clients(), String::from(args.tool));
    let expected = args.expected_version.map(Version::get);
    let change = move |order: &mut ToolOrder| {
        if let Some(wanted) = args.extra_permissions {
            order.extra_permissions = wanted.into_iter().map(String::from).collect();
        }
        if let Some(escape) = args.escape {
            order.escape = Some(escape.as_str().to_owned());
        }
        if let Some(text_json) = args.text_json {
            order.text_json = Some(text_json.as_str().to_owned());
        }
        order.deprecated = args.deprecated.unwrap_or(order.deprecated);
    };
    grant
        .answer(TargetId::new("tool", &tool), move |op| async move {
            clients.order_tool(&op, &tool, expected, change).await
        })
        .await
}

fn find(servers: &ServerService, name: &str) -> Result<(&'static str, Arc<ToolEntry>), AdminError> {
    let is = |entry: &ToolEntry| {
        let id = entry.tool.id();
        id.as_str() == name || id.short() == name || entry.wire_name == name
    };
    let found = servers.tools().into_iter().find(|(_, entry)| is(entry));
    found.ok_or_else(|| AdminError::not_found("there is no such tool"))
}

async fn record(servers: &ServerService, kind: &str, entry: &ToolEntry) -> ToolRecord {
    let id = entry.tool.id();
    let definition = servers.definition(entry).await;
    ToolRecord {
        tool: id.to_string(),
        name: entry.wire_name.clone(),
        kind: kind.to_owned(),
        server_id: id.server().to_string(),
        description: definition["description"].as_str().map(one_line).unwrap_or_default(),
        state: match servers.is_quarantined(id.short()) {
            true => "quarantined",
            false if entry.server.is_active() => "active",
            false => "halted",
        }
        .to_owned(),
        side_effects: entry.tool.side_effects().iter().map(|class| class.as_str().to_owned()).collect(),
        trust: entry.server.trust_in(id).as_str().to_owned(),
        signature: Signature::of(&definition["inputSchema"]).text(usize::MAX),
        score: None,
        why: Vec::new(),
    }
}
