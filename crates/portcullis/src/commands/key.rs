//! `portcullis key …`: keys with which agents prove who they are.

use std::process::ExitCode;

use portcullis_governance::declaration::Span;
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::KeyCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: KeyCommand) -> Result<ExitCode, Failure> {
    match command {
        KeyCommand::Create { agent, grant, group, expires } => {
            let span = |text: String| text.parse::<Span>().map_err(|error| Failure::field("expires", error));
            let lifetime = expires.map(span).transpose()?.map(|span| span.0);
            let grants =
                if grant.is_empty() { vec![portcullis_gateway::access::DECLARED.into()] } else { grant };
            let created = context.ask(&Request::KeyCreate { agent, grants, groups: group, lifetime }).await?;
            context.output.result(&created, render_created);
        }
        KeyCommand::List => {
            let keys = context.ask(&Request::KeyList).await?;
            context.output.result(&keys, render_list);
        }
        KeyCommand::Revoke { agent, reason } => {
            let revoked = context.ask(&Request::KeyRevoke { agent, reason }).await?;
            context
                .output
                .result(&revoked, |revoked| format!("revoked: the key of {}", text(&revoked["agent"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_created(created: &Value) -> String {
    format!(
        "{}\n\nThis is the key of agent {}. It is shown this once; the gateway keeps only its hash.\nThe agent sends \
         it with every request: Authorization: Bearer {}…",
        text(&created["key"]),
        text(&created["agent"]),
        portcullis_gateway::access::agent_keys::PREFIX,
    )
}

fn render_list(keys: &Value) -> String {
    let keys = keys.as_array().map(Vec::as_slice).unwrap_or_default();
    if keys.is_empty() {
        return "no agent has a key; `portcullis key create NAME` makes one".into();
    }
    let rows = keys.iter().map(|key| {
        let grants = key["grants"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        let groups = key["groups"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        let expires = if key["expires_at"].is_null() { "never".into() } else { text(&key["expires_at"]) };
        vec![text(&key["agent"]), text(&key["created_at"]), expires, groups, grants]
    });
    table(&["agent", "created", "expires", "groups", "may do"], rows.collect())
}
