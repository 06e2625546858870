//! Audit: whether the log is whole, checked now, in front of who asks.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::LoggedIn;
use crate::desk::{text, texts};
use crate::page::{Frame, rendered};

struct Invariant {
    words: &'static str,
    name: String,
    checked: String,
    violations: usize,
}

struct Report {
    ok: bool,
    checked: String,
    first_break: String,
    problems: Vec<String>,
    invariants: Vec<Invariant>,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    report: Option<Report>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    verify: String,
}

/// The log, and what a check of it says if one was asked for.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(asked): Query<Asked>,
) -> Response {
    let frame = console.frame(&session, "/audit").await;
    let report = match asked.verify.as_str() {
        "" => None,
        _ => match console.ask(&session, "audit_verify", json!({})).await {
            Ok(answer) => Some(report(&answer.data)),
            Err(refused) => return refused.page(frame),
        },
    };
    rendered(&AuditPage { frame, report })
}

/// What an invariant says, for who does not know its number.
fn in_words(name: &str) -> &'static str {
    match name {
        "AUD-68" => "Decisions of other replicas exist, and each is used once.",
        "AUD-A" => "What was sent names the approval it rests on.",
        "INV-MP-001" => "Nothing was sent without an accepted declaration.",
        "INV-MP-002" => "Each request that was sent had one permit, and each permit one request.",
        "INV-MP-003" => "Each permit was checked at the boundary first.",
        "INV-MP-004" => "Each server was registered by an operator.",
        "INV-MP-005" => "No approval outlived the server version it was given for.",
        "INV-MP-006" => "Nothing did more than its declaration says, or its server was halted.",
        _ => "",
    }
}

fn report(told: &Value) -> Report {
    let invariant = |(name, verdict): (&String, &Value)| Invariant {
        words: in_words(name),
        name: name.clone(),
        checked: text(&verdict["checked"]),
        violations: verdict["violations"].as_array().map_or(0, Vec::len),
    };
    Report {
        ok: told["ok"] == true,
        checked: text(&told["checked"]),
        first_break: text(&told["first_break"]),
        problems: texts(&told["problems"]),
        invariants: told["invariants"].as_object().into_iter().flatten().map(invariant).collect(),
    }
}
