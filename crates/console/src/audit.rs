//! Audit: the records, whether the log is whole, checked now, in front of who asks; proofs, and exports for others.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, Signed};
use crate::desk::{text, texts};
use crate::page::{Frame, Pager, address, rendered};
use crate::visible::{self, Piece};

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

struct Entry {
    id: String,
    seq: String,
    at: String,
    event: String,
    actor: Vec<Piece>,
    tool: Vec<Piece>,
    verdict: String,
}

struct Export {
    at: String,
    by: String,
    format: String,
    path: Vec<Piece>,
}

struct Key {
    id: String,
    purpose: String,
    note: &'static str,
}

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    frame: Frame,
    report: Option<Report>,
    entries: Vec<Entry>,
    pager: Pager,
    exports: Vec<Export>,
    keys: Vec<Key>,
    /// The newest signed checkpoint, with the signatures of witnesses.
    checkpoint: String,
    asked: Asked,
}

#[derive(Template)]
#[template(path = "record.html")]
struct RecordPage {
    frame: Frame,
    entry: Entry,
    data: Vec<Piece>,
    refs: Vec<String>,
    evidence: Vec<Piece>,
    proof: Option<Proof>,
    unproven: String,
}

/// Why a record is under a signed root.
struct Proof {
    index: String,
    size: String,
    leaf: String,
    path: Vec<String>,
    root: String,
    checkpoint: String,
}

const ROWS: u64 = 50;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Asked {
    verify: String,
    event: String,
    offset: u64,
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
    let mut wanted =
        json!({"limit": ROWS, "offset": asked.offset.min(1_000_000), "since": "2020-01-01T00:00:00Z"});
    if !asked.event.trim().is_empty() {
        wanted["event"] = json!(asked.event.trim());
    }
    let (entries, exports, keys) = (
        console.ask(&session, "audit_list", wanted).await,
        console.ask(&session, "exports_list", json!({"limit": 5})).await,
        console.ask(&session, "keys_list", json!({})).await,
    );
    let (entries, exports, keys) = match (entries, exports, keys) {
        (Ok(entries), Ok(exports), Ok(keys)) => (entries, exports, keys),
        (Err(refused), ..) | (_, Err(refused), _) | (.., Err(refused)) => return refused.page(frame),
    };
    let newest = match entries.rows().first().filter(|_| asked.offset == 0) {
        Some(row) => console.ask(&session, "audit_proof", json!({"entry_id": row["entry_id"]})).await.ok(),
        None => None,
    };
    let checkpoint = newest.map(|proof| text(&proof.data["checkpoint"])).unwrap_or_default();
    let total = entries.total();
    let rows: Vec<Entry> = entries.rows().iter().map(entry).collect();
    let pager = Pager::new(asked.offset, rows.len() as u64, total, ROWS, |offset| {
        address("/audit", &[("event", &asked.event)], offset)
    });
    let export = |row: &Value| Export {
        at: text(&row["at"]),
        by: text(&row["by"]),
        format: text(&row["format"]),
        path: visible::pieces(&text(&row["path"])),
    };
    rendered(&AuditPage {
        frame,
        report,
        entries: rows,
        pager,
        exports: exports.rows().iter().map(export).collect(),
        keys: keys.rows().iter().map(key).collect(),
        checkpoint,
        asked,
    })
}

/// One record, with the proof that it is under a signed checkpoint.
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(id): Path<String>,
) -> Response {
    let frame = console.frame(&session, "/audit").await;
    let told = match console.ask(&session, "audit_get", json!({"entry_id": id})).await {
        Ok(answer) => answer.data,
        Err(refused) => return refused.page(frame),
    };
    let (proof, unproven) = match console.ask(&session, "audit_proof", json!({"entry_id": id})).await {
        Ok(answer) => (Some(proof(&answer.data)), String::new()),
        Err(refused) => (None, refused.message),
    };
    rendered(&RecordPage {
        frame,
        entry: entry(&told),
        data: visible::json(&told["data"]),
        refs: texts(&told["refs"]),
        evidence: visible::json(&told["evidence"]),
        proof,
        unproven,
    })
}

/// Why it is written out.
#[derive(Debug, Deserialize)]
pub(crate) struct Exporting {
    reason: String,
}

/// Writes the log out for others.
pub(crate) async fn export(
    State(console): State<Arc<Console>>,
    Signed { session, form }: Signed<Exporting>,
) -> Response {
    let args = json!({"confirm": true, "reason": form.reason});
    match console.ask(&session, "audit_export", args).await {
        Ok(_) => Redirect::to("/audit#exports").into_response(),
        Err(refused) => refused.page(console.frame(&session, "/audit").await),
    }
}

fn entry(row: &Value) -> Entry {
    let tool = text(&row["tool"]);
    Entry {
        id: text(&row["entry_id"]),
        seq: text(&row["seq"]),
        at: text(&row["at"]),
        event: text(&row["event"]),
        actor: visible::pieces(&text(&row["actor"])),
        tool: visible::pieces(tool.split_once('@').map_or(tool.as_str(), |(short, _)| short)),
        verdict: text(&row["verdict"]),
    }
}

fn key(row: &Value) -> Key {
    let note = match (row["check"].as_str(), &row["held"], &row["expired"]) {
        (Some("swapped"), ..) => "not the one that the log announced",
        (_, Value::Bool(true), _) => "held beyond its time",
        (_, _, Value::Bool(true)) => "its time is over",
        _ => "",
    };
    Key { id: text(&row["kid"]), purpose: text(&row["purpose"]), note }
}

fn proof(told: &Value) -> Proof {
    Proof {
        index: text(&told["index"]),
        size: text(&told["size"]),
        leaf: text(&told["leaf"]),
        path: texts(&told["path"]),
        root: text(&told["root"]),
        checkpoint: text(&told["checkpoint"]),
    }
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
