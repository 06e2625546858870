//! Lists that are the rows of a tool, told in the words of commands: the data is the tool's, and nothing is looked up beside it
//! (ADM-1, ADM-2).

use portcullis_governance::approval::State;
use serde_json::{Value, json};

use super::Request;
use super::door::Door;
use super::rows::{approval_row, granted, operation_row, trust};
use crate::failure::Failure;

/// The rows, if the request is for such a list.
pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Option<Result<Vec<Value>, Failure>> {
    match request {
        Request::ApproveList { status } => return Some(approvals(door, *status).await),
        Request::AuditKeys => return Some(keys(door).await),
        _ => {}
    }
    let (tool, args, row): (_, _, fn(&Value) -> Option<Value>) = match request {
        Request::McpList => ("servers_list", json!({}), server),
        Request::TrustList { server, state } => {
            ("trust_list", json!({"server_id": server, "state": state}), |row| Some(trust(row)))
        }
        Request::CheckpointList => ("checkpoints_list", json!({}), checkpoint),
        Request::OperatorTokenList => ("tokens_list", json!({}), as_it_is),
        Request::KeyList => ("clients_list", json!({}), key),
        Request::SecretList => ("credentials_list", json!({}), secret),
        Request::GrantsList => ("grants_list", json!({}), |row| Some(granted(row))),
        Request::SessionList => ("sessions_list", json!({}), session),
        Request::OperatorList => ("users_list", json!({}), |row| row.get("enrolment").cloned()),
        Request::ArtifactList => ("artifacts_list", json!({}), |row| row.get("record").cloned()),
        Request::PermitList { state } => ("permits_list", json!({"state": state}), as_it_is),
        _ => return None,
    };
    let told = door.rows(tool, args).await.map(|rows| {
        let mut rows: Vec<Value> = rows.iter().filter_map(row).collect();
        // What the tool lists newest first, a terminal shows newest last.
        if tool == "permits_list" {
            rows.reverse();
        }
        rows
    });
    Some(told)
}

/// Approvals of calls, and after them the admin operations that wait for a second operator (ADM-54).
async fn approvals(door: &Door<'_>, status: Option<State>) -> Result<Vec<Value>, Failure> {
    let rows = door.rows("approvals_list", json!({"status": status})).await?;
    let (operations, calls): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| row["action_type"] == "admin");
    Ok(calls.into_iter().map(approval_row).chain(operations.into_iter().map(operation_row)).collect())
}

/// The keys of the evidence. The tool lists them all at once.
async fn keys(door: &Door<'_>) -> Result<Vec<Value>, Failure> {
    let all = door.ask("keys_list", json!({})).await?;
    let of_evidence = all.as_array().into_iter().flatten().filter(|key| key["purpose"] == "evidence");
    let told = |key: &Value| {
        json!({
            "check": key["check"], "class": key["class"], "day": key["day"], "expired": key["expired"], "held": key["held"],
            "key": key["kid"],
        })
    };
    Ok(of_evidence.map(told).collect())
}

/// A session that is still there.
fn session(row: &Value) -> Option<Value> {
    let used_at = row.get("used_at")?;
    let mut told = json!({
        "session_id": row["session_id"], "principal": row["client_id"], "client": row["client"], "state": row["state"],
        "opened_at": row["started_at"], "used_at": used_at, "steps": row["steps"],
        "checkpoint_epoch": row["checkpoint_epoch"],
    });
    if let Some(mut found) = row.get("checkpoint").and_then(checkpoint) {
        found.as_object_mut().map(|found| found.shift_remove("epoch"));
        told["checkpoint"] = found;
    }
    Some(told)
}

fn as_it_is(row: &Value) -> Option<Value> {
    Some(row.clone())
}

fn server(row: &Value) -> Option<Value> {
    Some(json!({
        "name": row["server_id"], "version": row["version"], "transport": row["transport"], "state": row["state"],
        "surface": row["surface"], "tier": {"requested": row["tier_requested"], "assigned": row["tier_assigned"]},
        "tools": row["tools"], "worst_trust": row["worst_trust"], "isolation": row["isolation_class"],
    }))
}

fn checkpoint(row: &Value) -> Option<Value> {
    let names = [("client_id", "principal"), ("server_id", "server")];
    let members = row.as_object()?.iter().map(|(name, value)| {
        let other = names.iter().find(|(old, _)| old == name).map(|(_, new)| *new);
        (other.unwrap_or(name).to_owned(), value.clone())
    });
    Some(Value::Object(members.collect()))
}

/// The key of an agent that has one.
fn key(row: &Value) -> Option<Value> {
    let since = row.get("key_since")?;
    let mut told = json!({
        "agent": row["client_id"], "grants": row["grants"], "created_at": since, "expires_at": row["expires_at"],
    });
    if let Some(groups) = row.get("groups") {
        told["groups"] = groups.clone();
    }
    Some(told)
}

fn secret(row: &Value) -> Option<Value> {
    Some(json!({
        "name": row["name"], "class": row["credential_class"], "kind": row["kind"], "version": row["version"],
        "bound_servers": row["bindings"], "age_days": row["age_days"],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_without_a_key_is_in_no_list_of_keys() {
        // ADM-2
        assert_eq!(key(&json!({"client_id": "local", "grants": []})), None);
        let row = json!({"client_id": "ci", "grants": ["declared"], "groups": ["ops"], "key_since": "t"});
        let told = json!({"agent": "ci", "grants": ["declared"], "groups": ["ops"], "created_at": "t", "expires_at": null});
        assert_eq!(key(&row), Some(told));
    }

    #[test]
    fn members_keep_their_values_under_other_names() {
        let told = checkpoint(&json!({"client_id": "agent:ci", "trigger": "operator", "epoch": 3})).unwrap();
        assert_eq!(told, json!({"principal": "agent:ci", "trigger": "operator", "epoch": 3}));
        let told = trust(&json!({"tool": "spy", "server_id": "spy", "score": 3}));
        assert_eq!(
            (&told["boundary_id"], &told["tool_id"], &told["score"]),
            (&json!("spy"), &Value::Null, &json!(3))
        );
    }
}
