//! How things are told by commands.

use portcullis_core::{ApprovalId, ErrorCode, ServerIdentity, SessionId};
use portcullis_gateway::ControlError;
use portcullis_gateway::control::Activation;
use portcullis_governance::approval::{Approval, State};
use portcullis_governance::declaration::diff;
use portcullis_governance::record::Surface;
use portcullis_governance::registry::Availability;
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

/// An approval after a decision; one that a waiting call has used up at once is as it was decided.
pub(super) fn approval_decided(looking: &Looking<'_>, id: ApprovalId, decided: &Value) -> Answer {
    let mut row = approval_row(&looking.approval(id)?);
    row["state"] = decided["status"].clone();
    Ok(row)
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

pub(super) async fn show(looking: &Looking<'_>, name: &ServerIdentity) -> Answer {
    let standings = looking.trust_records().await;
    let world = looking.world();
    let entry = world.registry().server(name).ok_or_else(|| {
        let message = format!("there is no server '{name}'; `portcullis mcp list` names those there are");
        Failure::from(ControlError::new(ErrorCode::NotFound, message))
    })?;
    let tools = world.registry().tools().iter().filter(|tool| tool.tool.id().server() == name).map(|tool| {
        let standing = standings.iter().find(|row| row["tool_id"] == json!(tool.tool.id()));
        json!({
            "score": standing.map(|row| &row["score"]), "last_event": standing.map(|row| &row["last_event"]),
            "name": tool.wire_name, "tool_id": tool.tool.id(), "classes": tool.tool.side_effects(), "scopes": tool.tool.scopes(),
            "bound": tool.tool.bound(), "idempotency": tool.tool.idempotency(), "trust": tool.server.trust_in(tool.tool.id()),
        })
    });
    let grants: Vec<Value> = (looking.approvals(Some(State::Approved)).iter())
        .filter(|approval| approval.tool_id.server() == name)
        .map(approval_row)
        .collect();
    let mut document = json!(*entry.record);
    document["tools"] = tools.collect();
    document["grants"] = json!(grants);
    let drifted = world.upstream(name).and_then(|upstream| upstream.drifted());
    // GOV-502
    let pending = drifted.as_ref().filter(|_| entry.record.surface == Surface::Dynamic).map(|live| {
        let difference = entry.declaration.drift(live);
        let changed = difference.changed.iter().map(|change| change.tool.clone());
        let waiting = difference.added.iter().cloned().chain(changed);
        let waiting = waiting.map(|name| json!({"name": name, "state": Availability::PendingRedeclaration}));
        let gone =
            difference.removed.iter().map(|name| json!({"name": name, "state": Availability::Withdrawn}));
        waiting.chain(gone).collect::<Vec<_>>()
    });
    document["pending"] = json!(pending.unwrap_or_default());
    document["drift"] = match drifted {
        Some(live) => json!(diff::fields(entry.declaration.live(), &live)),
        None => json!([]),
    };
    document["connection"] = match world.upstream(name) {
        Some(upstream) => json!(format!("{:?}", upstream.status().phase).to_lowercase()),
        None => Value::Null,
    };
    Ok(document)
}

pub(super) async fn policy(looking: &Looking<'_>, version: Option<u64>) -> Answer {
    let history = looking.activations().await;
    let wanted = |activation: &&Activation| version.is_none_or(|n| activation.version.counter == n);
    let shown = history.iter().rev().find(wanted).ok_or_else(|| {
        let message = format!("no policy version {} was ever in force", version.unwrap_or_default());
        Failure::new(ErrorCode::NotFound, message)
    })?;
    let mut document = json!(shown);
    document["bundle"] = json!(shown.bundle);
    document["in_force"] = json!(history.last().is_some_and(|last| last.version == shown.version));
    document["policies"] = looking.policies_in(&shown.bundle).await?;
    document["history"] = json!(history);
    Ok(document)
}

/// A grant with its envelope, if it is a wide one (GOV-1201).
pub(super) fn granted(approval: &Approval) -> Value {
    let mut row = approval_row(approval);
    row["envelope"] = json!(approval.envelope());
    row
}

pub(super) fn operation_row(row: &Value) -> Value {
    json!({
        "approval_id": row["approval_id"], "state": row["status"], "principal": row["requested_by"],
        "tool_id": row["tool"], "requested_at": row["requested_at"], "expires_at": row["expires_at"],
        "decided_by": row["decided_by"],
    })
}

pub(super) fn approval_row(approval: &Approval) -> Value {
    json!(approval)
}

pub(super) fn shown(looking: &Looking<'_>, approval: &Approval) -> Answer {
    let mut document = approval_row(approval);
    document["presented"] = looking.presented(approval.approval_id)?;
    Ok(document)
}
