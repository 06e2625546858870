//! `portcullis_tools_*`: what servers offer, and what would happen to a call.

use std::sync::Arc;

use portcullis_core::ServerIdentity;
use portcullis_core::error::one_line;
use portcullis_governance::registry::ToolEntry;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::args::{Ident, JsonObject, NonBlank, Page};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::{ExplanationRecord, ServerService, word};
use crate::tool::read_tool;
use crate::{Cx, args, words};

words! {
    pub(crate) enum Kind { Tool = "tool", Resource = "resource", Prompt = "prompt" }
}

words! {
    pub(crate) enum State { Active = "active", Halted = "halted" }
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
            read_tool("tools", "dry_run", "Say what would happen to a call; nothing is sent.", dry_run),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ToolRecord>>, AdminError> {
    let words: Vec<String> = (args.query.as_ref())
        .map(|query| query.as_str().split_whitespace().map(str::to_lowercase).collect())
        .unwrap_or_default();
    let servers = cx.servers();
    let mut records = Vec::new();
    for (kind, entry) in servers.tools() {
        records.push(record(&servers, kind, &entry).await);
    }
    let mut rows: Vec<(usize, ToolRecord)> = (records.into_iter())
        .filter(|row| args.server_id.as_ref().is_none_or(|id| row.server_id == id.0.as_str()))
        .filter(|row| args.kind.is_none_or(|kind| row.kind == kind.as_str()))
        .filter(|row| args.state.is_none_or(|state| row.state == state.as_str()))
        .map(|row| {
            let text = format!("{} {}", row.name, row.description).to_lowercase();
            (words.iter().filter(|word| text.contains(word.as_str())).count(), row)
        })
        .filter(|(found, _)| words.is_empty() || *found > 0)
        .collect();
    rows.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.tool.cmp(&other.tool)));
    let rows = rows.into_iter().map(|(_, row)| row).collect();
    Ok(Reply::page(args.page.cut(rows), args.page))
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

async fn dry_run(cx: Cx, args: DryRun) -> Result<Reply<ExplanationRecord>, AdminError> {
    let arguments = Value::Object(args.arguments.0).to_string();
    let client = args.client_id.as_ref().map_or("local", NonBlank::as_str);
    Ok(Reply::ok(cx.policies().explain(client, args.tool.as_str(), &arguments, None).await?))
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
        state: if entry.server.is_active() { "active" } else { "halted" }.to_owned(),
        side_effects: entry.tool.side_effects().iter().map(|class| class.as_str().to_owned()).collect(),
        trust: entry.server.trust_in(id).as_str().to_owned(),
    }
}
