//! Requests that are one document of a tool, told in the words of commands: the data is the tool's (ADM-1, ADM-2).

use portcullis_core::ErrorCode;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::door::Door;
use super::rows::{activation, approval, approval_row, granted, operation_row, server, trust};
use super::{Answer, Request};
use crate::failure::Failure;

/// The document, if the request is for such a one.
pub(super) async fn perform(door: &Door<'_>, request: &Request) -> Option<Answer> {
    Some(match request {
        Request::McpShow { name } => show(door, name).await,
        Request::ApproveShow { id } => approval_shown(door, id).await,
        Request::TrustShow { id } => trusted(door, id).await,
        Request::TrustVerify => door.ask("trust_verify", json!({})).await,
        Request::PolicyShow { version } => policy(door, *version).await,
        Request::PolicyExplain { tool, args, agent } => explained(door, tool, args, agent.as_deref()).await,
        _ => return None,
    })
}

async fn show(door: &Door<'_>, name: &str) -> Answer {
    let name = server(name)?;
    let absent = || format!("there is no server '{name}'; `portcullis mcp list` names those there are");
    let found = door.found("servers_get", json!({"server_id": name}), absent).await?;
    let tools = found["tool_rows"].as_array().into_iter().flatten().map(|tool| {
        json!({
            "score": tool["score"], "last_event": tool["last_event"], "name": tool["name"], "tool_id": tool["tool"],
            "classes": tool["side_effects"], "scopes": tool["scopes"], "bound": tool["bound"],
            "idempotency": tool["idempotency"], "trust": tool["trust"],
        })
    });
    let drift = found["drift"].as_array().into_iter().flatten().map(|change| {
        json!({
            "item": change["item"], "pointer": change["pointer"], "before": change["before"], "after": change["after"],
        })
    });
    let mut document = found["registration"].clone();
    document["tools"] = tools.collect();
    document["grants"] = granted_of(door, name.as_str()).await?;
    document["pending"] = found["pending"].clone();
    document["drift"] = drift.collect();
    document["connection"] = found["connection"].clone();
    Ok(document)
}

/// What is granted of a server's tools; nothing is said of it to who is not shown grants (ADM-71).
async fn granted_of(door: &Door<'_>, server: &str) -> Answer {
    if !door.sees("grants_list") {
        return Ok(Value::Null);
    }
    let grants = door.rows("grants_list", json!({})).await?;
    let is_its = |grant: &&Value| {
        let tool = grant["tool"].as_str().and_then(|tool| tool.split_once('/'));
        tool.is_some_and(|(of, _)| of == server)
    };
    let without_envelope = |grant: &Value| {
        let mut row = granted(grant);
        row.as_object_mut().map(|row| row.shift_remove("envelope"));
        row
    };
    Ok(grants.iter().filter(is_its).map(without_envelope).collect())
}

async fn approval_shown(door: &Door<'_>, id: &str) -> Answer {
    let detail = door.ask("approvals_get", json!({"approval_id": approval(id)?})).await?;
    if detail["action_type"] != "admin" {
        let mut document = approval_row(&detail);
        document["presented"] = detail["presented"].clone();
        return Ok(document);
    }
    let mut document = operation_row(&detail);
    document["presented"] = detail["presented"].clone();
    document["presented"]["tool_id"] = detail["tool"].clone();
    document["presented"]["classes"] = json!(["admin"]);
    Ok(document)
}

async fn trusted(door: &Door<'_>, id: &str) -> Answer {
    let found = door.rows("trust_list", json!({"tool": id})).await?;
    found.first().map(trust).ok_or_else(|| {
        let shown = portcullis_core::name::printable(id);
        let message =
            format!("there is no server or tool {shown}; `portcullis trust list` names those there are");
        Failure::new(ErrorCode::NotFound, message)
    })
}

async fn policy(door: &Door<'_>, version: Option<u64>) -> Answer {
    let found = door.ask("policies_get", json!({"version": version})).await?;
    let history = door.rows("policies_list", json!({})).await?;
    let mut document = activation(&found);
    document["bundle"] =
        json!({"preset": found["preset"], "files": found["files"], "settings": found["settings"]});
    document["in_force"] = found["active"].clone();
    document["policies"] = found["policies"].clone();
    document["history"] = history.iter().map(activation).collect();
    Ok(document)
}

/// The arguments go to the tool as they were written: what is wrong with them is its to say.
async fn explained(door: &Door<'_>, tool: &str, args: &str, agent: Option<&str>) -> Answer {
    #[derive(Serialize)]
    struct Args<'a> {
        tool: &'a str,
        arguments: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        client_id: Option<&'a str>,
    }
    let no_json = |_| Failure::field("args", "the arguments are not JSON");
    let arguments = RawValue::from_string(args.to_owned()).map_err(no_json)?;
    let args = to_raw_value(&Args { tool, arguments, client_id: agent })
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    let said = door.ask_raw("policies_explain", &args).await?;
    let decision = match (said["invoke"].as_str(), said["invoke_unattended"].as_str()) {
        (Some("allow"), Some("allow")) => "unattended",
        (Some("allow"), _) => "approval",
        _ => "deny",
    };
    Ok(json!({
        "decision": decision, "reasons": said["policies"], "scopes": said["scopes"], "quorum": said["quorum"],
        "offers": said["offers"], "tool_id": said["tool"], "policy_version": said["version"],
    }))
}
