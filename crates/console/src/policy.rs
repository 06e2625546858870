//! Policy: what is in force, what was, what it would decide; putting an earlier one in force again.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, Signed};
use crate::desk::{text, texts};
use crate::page::{Frame, rendered};
use crate::visible::{self, Piece};

struct Version {
    number: String,
    kind: String,
    digest: String,
    active: bool,
    by: String,
    at: String,
    reason: Vec<Piece>,
}

struct File {
    name: String,
    text: Vec<Piece>,
}

struct Bundle {
    preset: String,
    files: Vec<File>,
    settings: Vec<Piece>,
    ids: Vec<String>,
}

/// What policy says about a call.
struct Verdict {
    words: &'static str,
    tone: &'static str,
    rules: Vec<String>,
    scopes: Vec<String>,
    quorum: String,
    tool: String,
}

/// A question about a call.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    tool: String,
    agent: String,
    arguments: String,
}

#[derive(Template)]
#[template(path = "policy.html")]
struct PolicyPage {
    frame: Frame,
    versions: Vec<Version>,
    bundle: Bundle,
    asked: Asked,
    verdict: Option<Verdict>,
    problem: String,
}

/// The policy, and an answer if a question is in the address.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(mut asked): Query<Asked>,
) -> Response {
    let frame = console.frame(&session, "/policy").await;
    let (list, current) = match (
        console.ask(&session, "policies_list", json!({"limit": 500})).await,
        console.ask(&session, "policies_get", json!({})).await,
    ) {
        (Ok(list), Ok(current)) => (list, current),
        (Err(refused), _) | (_, Err(refused)) => return refused.page(frame),
    };
    let (mut verdict, mut problem) = (None, String::new());
    // A link that names a tool alone asks for arguments first.
    if !asked.tool.trim().is_empty() && !asked.arguments.trim().is_empty() {
        match serde_json::from_str::<Value>(asked.arguments.trim()) {
            Ok(arguments) => {
                let args = json!({"tool": asked.tool.trim(), "arguments": arguments, "client_id": asked.agent.trim()});
                match console.ask(&session, "policies_explain", args).await {
                    Ok(answer) => verdict = Some(self::verdict(&answer.data)),
                    Err(refused) => problem = refused.message,
                }
            }
            Err(error) => problem = format!("the arguments are not JSON: {error}"),
        }
    }
    for (field, usual) in [(&mut asked.agent, "local"), (&mut asked.arguments, "{}")] {
        if field.is_empty() {
            usual.clone_into(field);
        }
    }
    let versions = list.rows().iter().rev().map(version).collect();
    rendered(&PolicyPage { frame, versions, bundle: bundle(&current.data), asked, verdict, problem })
}

/// Which version, and why.
#[derive(Debug, Deserialize)]
pub(crate) struct Back {
    version: String,
    reason: String,
}

/// Puts an earlier policy in force again.
pub(crate) async fn roll_back(
    State(console): State<Arc<Console>>,
    Signed { session, form }: Signed<Back>,
) -> Response {
    let version = form.version.parse::<u64>().map_or(Value::Null, Value::from);
    let args = json!({"version": version, "confirm": true, "reason": form.reason});
    match console.ask(&session, "policies_rollback", args).await {
        Ok(_) => Redirect::to("/policy").into_response(),
        Err(refused) => refused.page(console.frame(&session, "/policy").await),
    }
}

fn version(row: &Value) -> Version {
    Version {
        number: text(&row["version"]),
        kind: text(&row["kind"]),
        digest: text(&row["digest"]),
        active: row["active"] == true,
        by: text(&row["by"]),
        at: text(&row["at"]),
        reason: visible::pieces(&text(&row["reason"])),
    }
}

fn bundle(policy: &Value) -> Bundle {
    let file = |file: &Value| File { name: text(&file["name"]), text: visible::pieces(&text(&file["text"])) };
    Bundle {
        preset: text(&policy["preset"]),
        files: policy["files"].as_array().into_iter().flatten().map(file).collect(),
        settings: visible::pieces(&text(&policy["settings"])),
        ids: texts(&policy["policies"]),
    }
}

fn verdict(explained: &Value) -> Verdict {
    let (words, tone) = match (explained["invoke"].as_str(), explained["invoke_unattended"].as_str()) {
        (_, Some("allow")) => ("Allowed, and nobody is asked", "good"),
        (Some("allow"), _) => ("Allowed if an operator approves", "warn"),
        _ => ("Denied", "bad"),
    };
    Verdict {
        words,
        tone,
        rules: texts(&explained["policies"]),
        scopes: texts(&explained["scopes"]),
        quorum: text(&explained["quorum"]),
        tool: text(&explained["tool"]),
    }
}
