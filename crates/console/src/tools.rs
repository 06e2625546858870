//! Tools: found as agents find them, with why each ranks where it does; one tool with its schema, its trust and a
//! rehearsal of a call.

mod form;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, RawQuery, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, fields};
use crate::desk::{text, texts};
use crate::page::{Frame, Pager, address, rendered};
use crate::visible::{self, Piece};
use form::Field;

const ROWS: u64 = 50;

/// What is looked for, in the address of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    q: String,
    kind: String,
    server: String,
    offset: u64,
}

struct Row {
    name: String,
    /// Where its page is.
    href: String,
    signature: Vec<Piece>,
    server: String,
    state: String,
    does: Vec<String>,
    trust: String,
    description: Vec<Piece>,
    score: String,
    why: Vec<Why>,
}

/// What a word was worth.
struct Why {
    word: Vec<Piece>,
    term: Vec<Piece>,
    how: String,
    points: String,
}

#[derive(Template)]
#[template(path = "tools.html")]
struct ToolsPage {
    frame: Frame,
    wanted: Wanted,
    servers: Vec<String>,
    rows: Vec<Row>,
    pager: Pager,
    problem: String,
}

/// Everything servers offer, or what fits the words.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(wanted): Query<Wanted>,
) -> Response {
    let frame = console.frame(&session, "/tools").await;
    let mut args = json!({"limit": ROWS, "offset": wanted.offset.min(1_000_000)});
    for (name, value) in [("query", &wanted.q), ("kind", &wanted.kind), ("server_id", &wanted.server)] {
        if !value.trim().is_empty() {
            args[name] = json!(value.trim());
        }
    }
    let servers = match console.ask(&session, "servers_list", json!({"limit": 500})).await {
        Ok(answer) => answer.rows().iter().map(|server| text(&server["server_id"])).collect(),
        Err(refused) => return refused.page(frame),
    };
    let (rows, total, problem) = match console.ask(&session, "tools_list", args).await {
        Ok(answer) => (answer.rows().iter().map(row).collect(), answer.total(), String::new()),
        Err(refused) => (Vec::new(), 0, refused.message),
    };
    let pager = Pager::new(wanted.offset, rows.len() as u64, total, ROWS, |offset| wanted.address(offset));
    rendered(&ToolsPage { frame, wanted, servers, rows, pager, problem })
}

impl Wanted {
    /// The same question about other rows.
    fn address(&self, offset: u64) -> String {
        let asked = [("q", &*self.q), ("kind", &self.kind), ("server", &self.server)];
        address("/tools", &asked, offset)
    }
}

fn row(tool: &Value) -> Row {
    let why = |why: &Value| Why {
        word: visible::pieces(&text(&why["word"])),
        term: visible::pieces(&text(&why["term"])),
        how: text(&why["how"]),
        points: text(&why["points"]),
    };
    let name = text(&tool["name"]);
    // Names of resources are URIs.
    let segment: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    Row {
        href: format!("/tools/{}", segment.replace('+', "%20")),
        name,
        signature: visible::pieces(&text(&tool["signature"])),
        server: text(&tool["server_id"]),
        state: text(&tool["state"]),
        does: texts(&tool["side_effects"]),
        trust: text(&tool["trust"]),
        description: visible::pieces(&text(&tool["description"])),
        score: text(&tool["score"]),
        why: tool["why"].as_array().into_iter().flatten().map(why).collect(),
    }
}

/// Something that happened to the trust in it.
struct Happened {
    at: String,
    what: String,
    tone: &'static str,
    by: String,
    why: Vec<Piece>,
}

/// What a rehearsal came to.
struct Rehearsal {
    words: &'static str,
    tone: &'static str,
    lacking: String,
    errors: Vec<(String, String)>,
    rules: Vec<String>,
    scopes: Vec<String>,
    arguments: Vec<Piece>,
}

#[derive(Template)]
#[template(path = "tool.html")]
struct ToolPage {
    frame: Frame,
    row: Row,
    id: String,
    kind: String,
    scopes: Vec<String>,
    idempotency: String,
    input: Vec<Piece>,
    output: Vec<Piece>,
    history: Vec<Happened>,
    fields: Vec<Field>,
    rehearsal: Option<Rehearsal>,
    problem: String,
}

/// One of them; with `dry=1` in the address, a rehearsal of the call that the form says.
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let frame = console.frame(&session, "/tools").await;
    let tool = match console.ask(&session, "tools_get", json!({"tool": name})).await {
        Ok(answer) => answer.data,
        Err(refused) => return refused.page(frame),
    };
    let id = text(&tool["tool"]);
    let history = match console
        .ask(&session, "trust_history", json!({"tool": id, "since": "2020-01-01T00:00:00Z"}))
        .await
    {
        Ok(answer) => answer.rows().iter().map(happened).collect(),
        Err(refused) => return refused.page(frame),
    };
    let asked = fields(query.unwrap_or_default().as_bytes());
    let input = &tool["definition"]["inputSchema"];
    let mut fields = form::of(input);
    let (mut rehearsal, mut problem) = (None, String::new());
    if asked.contains_key("dry") {
        match form::arguments(&mut fields, &asked) {
            Ok(arguments) => {
                let args = json!({"tool": id, "arguments": arguments, "client_id": "local"});
                match console.ask(&session, "tools_dry_run", args).await {
                    Ok(answer) => rehearsal = Some(rehearsed(&answer.data, &arguments)),
                    Err(refused) => problem = refused.message,
                }
            }
            Err(wrong) => problem = wrong,
        }
    }
    let schema = |value: &Value| if value.is_null() { Vec::new() } else { visible::json(value) };
    rendered(&ToolPage {
        frame,
        row: row(&tool),
        kind: text(&tool["kind"]),
        scopes: texts(&tool["scopes"]),
        idempotency: text(&tool["idempotency"]),
        input: schema(input),
        output: schema(&tool["definition"]["outputSchema"]),
        id,
        history,
        fields,
        rehearsal,
        problem,
    })
}

fn happened(event: &Value) -> Happened {
    let what = text(&event["what"]);
    Happened {
        at: text(&event["at"]),
        tone: if matches!(what.as_str(), "promoted" | "granted") { "good" } else { "bad" },
        what,
        by: text(&event["by"]),
        why: visible::pieces(&text(&event["why"])),
    }
}

fn rehearsed(run: &Value, arguments: &Value) -> Rehearsal {
    let (words, tone) = match run["outcome"].as_str() {
        Some("allowed") => ("It would be made, and nobody would be asked", "good"),
        Some("asked") => ("An operator would be asked", "warn"),
        Some("denied") => ("Policy would deny it", "bad"),
        _ => ("It would be refused before policy is asked", "bad"),
    };
    let error = |error: &Value| (text(&error["pointer"]), text(&error["problem"]));
    Rehearsal {
        words,
        tone,
        lacking: text(&run["denied_capability"]),
        errors: run["errors"].as_array().into_iter().flatten().map(error).collect(),
        rules: texts(&run["policies"]),
        scopes: texts(&run["scopes"]),
        arguments: visible::json(arguments),
    }
}
