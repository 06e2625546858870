//! Policy: what is in force, what was, what it would decide; trying a change, putting it in force, and going back.

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

/// A bundle that is being written: one file of rules, and settings.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Draft {
    preset: String,
    #[serde(default)]
    rules: String,
    #[serde(default)]
    settings: String,
    /// The version it is meant to replace.
    #[serde(default)]
    replaces: String,
    #[serde(default)]
    reason: String,
    /// `try` or `apply`.
    #[serde(default)]
    act: String,
}

/// A past call about which a draft decides otherwise.
struct Otherwise {
    seq: String,
    tool: String,
    now: String,
    then: String,
}

/// What trying a draft showed.
struct Tried {
    ok: bool,
    problems: Vec<Vec<Piece>>,
    compared: String,
    changed: Vec<Otherwise>,
}

#[derive(Template)]
#[template(path = "policy_draft.html")]
struct DraftPage {
    frame: Frame,
    draft: Draft,
    tried: Option<Tried>,
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

/// The files of a bundle are edited as one: rules have no order.
const FILE: &str = "console.cedar";

/// A form with what is in force, to change.
pub(crate) async fn draft(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    let frame = console.frame(&session, "/policy").await;
    let current = match console.ask(&session, "policies_get", json!({})).await {
        Ok(answer) => answer.data,
        Err(refused) => return refused.page(frame),
    };
    let files = current["files"].as_array().into_iter().flatten();
    let rules: Vec<String> = files.map(|file| text(&file["text"])).collect();
    let draft = Draft {
        preset: text(&current["preset"]),
        rules: rules.join("\n"),
        settings: text(&current["settings"]),
        replaces: text(&current["version"]),
        ..Draft::default()
    };
    rendered(&DraftPage { frame, draft, tried: None })
}

/// Tries a draft, or puts it in force.
pub(crate) async fn change(
    State(console): State<Arc<Console>>,
    Signed { session, form: draft }: Signed<Draft>,
) -> Response {
    let frame = console.frame(&session, "/policy").await;
    let mut bundle = json!({"preset": draft.preset});
    if !draft.rules.trim().is_empty() {
        bundle["files"] = json!([{"name": FILE, "text": draft.rules}]);
    }
    if !draft.settings.trim().is_empty() {
        bundle["settings"] = json!(draft.settings);
    }
    if draft.act == "apply" {
        let replaces = draft.replaces.parse::<u64>().map_or(Value::Null, Value::from);
        let args =
            json!({"bundle": bundle, "expected_version": replaces, "confirm": true, "reason": draft.reason});
        return match console.ask(&session, "policies_apply", args).await {
            Ok(_) => Redirect::to("/policy").into_response(),
            Err(refused) => refused.page(frame),
        };
    }
    match console.ask(&session, "policies_validate", json!({"bundle": bundle})).await {
        Ok(answer) => rendered(&DraftPage { frame, draft, tried: Some(tried(&answer.data)) }),
        Err(refused) => refused.page(frame),
    }
}

fn tried(told: &Value) -> Tried {
    let otherwise = |row: &Value| Otherwise {
        seq: text(&row["seq"]),
        tool: text(&row["tool"]),
        now: text(&row["now"]),
        then: text(&row["then"]),
    };
    Tried {
        ok: told["ok"] == true,
        problems: texts(&told["problems"]).iter().map(|problem| visible::pieces(problem)).collect(),
        compared: text(&told["compared"]),
        changed: told["changed"].as_array().into_iter().flatten().map(otherwise).collect(),
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
