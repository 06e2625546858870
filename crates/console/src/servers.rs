//! Servers: which there are, what each may touch, whether it is still what was accepted; halting and letting run.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, Signed};
use crate::desk::{text, texts};
use crate::page::{Frame, rendered};
use crate::visible::{self, Piece};

struct Row {
    id: String,
    version: String,
    transport: String,
    state: String,
    isolation: String,
    tools: String,
    tier: String,
}

struct Tool {
    name: String,
    does: Vec<String>,
    scopes: Vec<String>,
    idempotency: String,
    trust: String,
}

/// A field that is not what was accepted.
struct Change {
    field: Vec<Piece>,
    before: Vec<Piece>,
    after: Vec<Piece>,
}

struct Detail {
    row: Row,
    justification: Vec<Piece>,
    halt: Vec<Piece>,
    registered_by: String,
    registered_at: String,
    declaration: String,
    pins: Vec<String>,
    tools: Vec<Tool>,
    drifted: bool,
    drift: Vec<Change>,
    connection: String,
    waivers: Vec<String>,
    surface: String,
}

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    frame: Frame,
    servers: Vec<Row>,
}

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: Frame,
    server: Detail,
}

/// All of them.
pub(crate) async fn page(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    let frame = console.frame(&session, "/servers").await;
    match console.ask(&session, "servers_list", json!({"limit": 500})).await {
        Ok(answer) => rendered(&ServersPage { frame, servers: answer.rows().iter().map(row).collect() }),
        Err(refused) => refused.page(frame),
    }
}

/// One of them.
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(id): Path<String>,
) -> Response {
    let frame = console.frame(&session, "/servers").await;
    match console.ask(&session, "servers_get", json!({"server_id": id})).await {
        Ok(answer) => rendered(&ServerPage { frame, server: detail(&answer.data) }),
        Err(refused) => refused.page(frame),
    }
}

/// What is to be done with a server, and why.
#[derive(Debug, Deserialize)]
pub(crate) struct Act {
    #[serde(default)]
    state: String,
    reason: String,
}

/// Halts one, or lets it run again.
pub(crate) async fn set_state(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Act>,
) -> Response {
    let args = json!({"server_id": id, "state": form.state, "confirm": true, "reason": form.reason});
    match console.ask(&session, "servers_set_state", args).await {
        Ok(_) => Redirect::to(&format!("/servers/{id}")).into_response(),
        Err(refused) => refused.page(console.frame(&session, "/servers").await),
    }
}

/// Accepts what one has become.
pub(crate) async fn accept(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Act>,
) -> Response {
    let args = json!({"server_id": id, "confirm": true, "reason": form.reason});
    match console.ask(&session, "declarations_accept", args).await {
        Ok(_) => Redirect::to(&format!("/servers/{id}")).into_response(),
        Err(refused) => refused.page(console.frame(&session, "/servers").await),
    }
}

fn row(server: &Value) -> Row {
    Row {
        id: text(&server["server_id"]),
        version: text(&server["version"]),
        transport: text(&server["transport"]),
        state: text(&server["state"]),
        isolation: text(&server["isolation_class"]),
        tools: text(&server["tools"]),
        tier: text(&server["tier_assigned"]),
    }
}

fn detail(server: &Value) -> Detail {
    let tool = |tool: &Value| Tool {
        name: text(&tool["name"]),
        does: texts(&tool["side_effects"]),
        scopes: texts(&tool["scopes"]),
        idempotency: text(&tool["idempotency"]),
        trust: text(&tool["trust"]),
    };
    let shown = |value: &Value| match value {
        Value::Null => visible::pieces("nothing"),
        Value::String(text) => visible::pieces(text),
        other => visible::json(other),
    };
    let change = |change: &Value| Change {
        field: visible::pieces(&text(&change["field"])),
        before: shown(&change["before"]),
        after: shown(&change["after"]),
    };
    let drift: Vec<Change> = server["drift"].as_array().into_iter().flatten().map(change).collect();
    Detail {
        row: row(server),
        justification: visible::pieces(&text(&server["justification"])),
        halt: visible::pieces(&text(&server["halt"])),
        registered_by: text(&server["registered_by"]),
        registered_at: text(&server["registered_at"]),
        declaration: text(&server["declaration_version"]),
        pins: texts(&server["pins"]).iter().map(|pin| pinned(pin)).collect(),
        tools: server["tool_rows"].as_array().into_iter().flatten().map(tool).collect(),
        drifted: server["drifted"] == true || !drift.is_empty(),
        drift,
        connection: text(&server["connection"]),
        waivers: texts(&server["waivers"]),
        surface: text(&server["surface"]),
    }
}

/// What is pinned, in words; as it is on record if it is of another kind.
fn pinned(pin: &str) -> String {
    match serde_json::from_str::<Value>(pin) {
        Ok(Value::Object(pin)) => {
            let part = |name: &str| pin.get(name).map(text).unwrap_or_default();
            format!("{} {} sha256:{}", part("role"), part("path"), part("sha256"))
        }
        _ => pin.to_owned(),
    }
}

impl Row {
    fn is_active(&self) -> bool {
        self.state == "active"
    }
}
