//! How things are told by commands.

use portcullis_core::{ApprovalId, ErrorCode, ServerIdentity, SessionId};
use serde_json::{Value, json};

use super::Answer;
use super::looking::Looking;
use crate::failure::Failure;

/// The record of a registered server.
pub(super) fn record(looking: &Looking<'_>, name: &str) -> Answer {
    let name = server(name)?;
    let world = looking.world();
    let entry = world.registry().server(&name);
    entry
        .map(|entry| json!(*entry.record))
        .ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("server '{name}' went away meanwhile")))
}

pub(super) fn server(name: &str) -> Result<ServerIdentity, Failure> {
    name.parse().map_err(|error: portcullis_core::NameError| Failure::field("name", error.to_string()))
}

pub(super) fn session(id: &str) -> Result<SessionId, Failure> {
    id.parse().map_err(|error: portcullis_core::id::IdError| Failure::field("session", error.to_string()))
}

pub(super) fn approval(id: &str) -> Result<ApprovalId, Failure> {
    id.parse().map_err(|error: portcullis_core::id::IdError| Failure::field("id", error.to_string()))
}

/// A policy that was put in force, without its texts.
pub(super) fn activation(row: &Value) -> Value {
    let digest = row["digest"].as_str().unwrap_or_default();
    let version = format!("{}:{digest}", row["version"]);
    json!({"version": version, "by": row["by"], "at": row["at"], "reason": row["reason"]})
}

/// The approval of a call, from its row.
pub(super) fn approval_row(row: &Value) -> Value {
    asked(row, "requested_by", "status")
}

/// A grant with its envelope, if it is a wide one (GOV-1201).
pub(super) fn granted(row: &Value) -> Value {
    let mut told = asked(row, "client_id", "state");
    let covers = |envelope: &Value| {
        json!({
            "envelope_id": envelope["envelope_id"], "approval_id": row["approval_id"], "principal": row["client_id"],
            "session": envelope["session_id"], "tool_ids": envelope["tool_ids"], "uses_left": row["uses_left"],
            "expires_at": row["expires_at"], "state": row["state"],
        })
    };
    told["envelope"] = row.get("envelope").map_or(Value::Null, covers);
    told
}

/// What approvals and grants have in common, with the names that the two have for who asked and what came of it.
fn asked(row: &Value, principal: &str, state: &str) -> Value {
    json!({
        "approval_id": row["approval_id"], "proposal_id": row["proposal_id"], "fingerprint": row["fingerprint"],
        "tool_id": row["tool"], "registration_epoch": row["registration_epoch"], "principal": row[principal],
        "session": row["session_id"], "policy_version": row["policy_version"], "canon_version": row["canon_version"],
        "offers": row["offers"], "scope": row["scope"], "decisions": row["decisions"],
        "requested_at": row["requested_at"], "expires_at": row["expires_at"], "uses_left": row["uses_left"],
        "presented_sha256": row["presented_sha256"], "state": row[state],
    })
}

/// An admin operation that waits for a second operator, or did (ADM-54).
pub(super) fn operation_row(row: &Value) -> Value {
    json!({
        "approval_id": row["approval_id"], "state": row["status"], "principal": row["requested_by"],
        "tool_id": row["tool"], "requested_at": row["requested_at"], "expires_at": row["expires_at"],
        "decided_by": row["decided_by"],
    })
}

/// What a tool or server has earned.
pub(super) fn trust(row: &Value) -> Value {
    let mut told = json!({"boundary_id": row["tool"], "tool_id": row["tool_id"], "server": row["server_id"]});
    for name in [
        "state",
        "recorded",
        "eligible",
        "tier",
        "score",
        "clean",
        "days",
        "sessions",
        "violations",
        "reset_epoch",
        "policy_version",
        "since",
        "last_event",
    ] {
        told[name] = row[name].clone();
    }
    told
}
