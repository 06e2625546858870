//! Lists that are the rows of a tool, told in the words of commands: the data is the tool's, and nothing is looked up beside it
//! (ADM-1, ADM-2).

use serde_json::{Value, json};

use super::Request;
use super::door::Door;
use crate::failure::Failure;

/// The rows, if the request is for such a list.
pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Option<Result<Vec<Value>, Failure>> {
    let (tool, args, row): (_, _, fn(&Value) -> Option<Value>) = match request {
        Request::McpList => ("servers_list", json!({}), server),
        Request::TrustList { server, state } => {
            ("trust_list", json!({"server_id": server, "state": state}), trust)
        }
        Request::CheckpointList => ("checkpoints_list", json!({}), checkpoint),
        Request::OperatorTokenList => ("tokens_list", json!({}), as_it_is),
        Request::KeyList => ("clients_list", json!({}), key),
        Request::SecretList => ("credentials_list", json!({}), secret),
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

fn trust(row: &Value) -> Option<Value> {
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
    Some(told)
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
        let told = trust(&json!({"tool": "spy", "server_id": "spy", "score": 3})).unwrap();
        assert_eq!(
            (&told["boundary_id"], &told["tool_id"], &told["score"]),
            (&json!("spy"), &Value::Null, &json!(3))
        );
    }
}
