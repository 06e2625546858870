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
    scopes: Vec<Scope>,
    process: String,
    log: Vec<Piece>,
}

/// Something it may touch.
struct Scope {
    name: String,
    kind: String,
    reaches: Vec<Piece>,
}

/// What looking at it just now showed.
struct Tested {
    tone: &'static str,
    words: String,
    lists: Vec<(&'static str, Vec<String>)>,
}

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    frame: Frame,
    servers: Vec<Row>,
    drafts: Vec<DraftCard>,
}

/// What accepting a draft would mean.
struct DraftCard {
    id: String,
    version: String,
    reached: Vec<Piece>,
    manner: String,
    tools: Vec<(Vec<Piece>, Vec<String>, Vec<Piece>)>,
    left_out: Vec<String>,
    scopes: Vec<Scope>,
    declaration: Vec<Piece>,
}

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: Frame,
    server: Detail,
    tested: Option<Tested>,
}

/// All of them.
pub(crate) async fn page(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    let frame = console.frame(&session, "/servers").await;
    let (servers, drafts) = match (
        console.ask(&session, "servers_list", json!({"limit": 500})).await,
        console.ask(&session, "drafts_list", json!({"limit": 100})).await,
    ) {
        (Ok(servers), Ok(drafts)) => (servers, drafts),
        (Err(refused), _) | (_, Err(refused)) => return refused.page(frame),
    };
    let servers = servers.rows().iter().map(row).collect();
    let drafts = drafts.rows().iter().map(draft).collect();
    rendered(&ServersPage { frame, servers, drafts })
}

fn draft(told: &Value) -> DraftCard {
    let tool = |tool: &Value| {
        let (name, reason) = (visible::pieces(&text(&tool["name"])), visible::pieces(&text(&tool["reason"])));
        (name, texts(&tool["side_effects"]), reason)
    };
    DraftCard {
        id: text(&told["server_id"]),
        version: text(&told["version"]),
        reached: visible::pieces(&text(&told["reached"])),
        manner: text(&told["manner"]),
        tools: told["tools"].as_array().into_iter().flatten().map(tool).collect(),
        left_out: texts(&told["left_out"]),
        scopes: told["scope_rows"].as_array().into_iter().flatten().map(scope).collect(),
        declaration: visible::pieces(&text(&told["declaration"])),
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
        Ok(answer) => rendered(&ServerPage { frame, server: detail(&answer.data), tested: None }),
        Err(refused) => refused.page(frame),
    }
}

/// Looks at one now: it is started if need be, and asked what it lists. No tool is called.
pub(crate) async fn test(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Act>,
) -> Response {
    let frame = console.frame(&session, "/servers").await;
    let args = json!({"server_id": id, "confirm": true, "reason": form.reason});
    let tested = match console.ask(&session, "servers_test", args).await {
        Ok(answer) => tested(&answer.data),
        Err(refused) => return refused.page(frame),
    };
    match console.ask(&session, "servers_get", json!({"server_id": id})).await {
        Ok(answer) => rendered(&ServerPage { frame, server: detail(&answer.data), tested: Some(tested) }),
        Err(refused) => refused.page(frame),
    }
}

fn tested(told: &Value) -> Tested {
    let (tone, words) = if told["reachable"] != true {
        ("bad", format!("It does not answer. {}", text(&told["problem"])))
    } else if told["version_ok"] == true && told["declaration_match"] == true {
        ("good", format!("It answers, in revision {}, and is what was accepted.", text(&told["handshake"])))
    } else {
        ("warn", "It answers, but is not what was accepted.".to_owned())
    };
    let lists = [("new", "added"), ("gone", "removed"), ("changed", "changed")];
    let lists =
        lists.into_iter().map(|(word, key)| (word, texts(&told[key]))).filter(|(_, list)| !list.is_empty());
    Tested { tone, words, lists: lists.collect() }
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
        scopes: server["scope_rows"].as_array().into_iter().flatten().map(scope).collect(),
        process: match server["pid"].as_i64() {
            Some(pid) => {
                format!(
                    "process {pid}, {} under way, {} failures in a row",
                    server["in_flight"], server["failures"]
                )
            }
            None => format!("none now, {} failures in a row", server["failures"]),
        },
        log: visible::pieces(&texts(&server["log"]).join("\n")),
    }
}

fn scope(row: &Value) -> Scope {
    Scope {
        name: text(&row["name"]),
        kind: text(&row["kind"]),
        reaches: visible::pieces(&text(&row["reaches"])),
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
