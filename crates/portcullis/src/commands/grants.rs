//! `portcullis grants …`: what may be called without asking again, and taking it back.

use std::process::ExitCode;

use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::GrantsCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: GrantsCommand) -> Result<ExitCode, Failure> {
    match command {
        GrantsCommand::List => {
            let grants = context.ask(&Request::GrantsList).await?;
            context.output.result(&grants, render_list);
        }
        GrantsCommand::Revoke { id, reason } => {
            let revoked = context.ask(&Request::GrantsRevoke { id, reason }).await?;
            context.output.result(&revoked, |revoked| format!("revoked: {}", text(&revoked["tool_id"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_list(grants: &Value) -> String {
    let grants = grants.as_array().map(Vec::as_slice).unwrap_or_default();
    if grants.is_empty() {
        return "nothing is granted; every call that needs an approval asks".into();
    }
    let rows = grants.iter().map(|grant| {
        let tool = text(&grant["tool_id"]);
        let by = grant["decisions"].as_array().into_iter().flatten().map(|decision| text(&decision["by"]));
        vec![
            text(&grant["approval_id"]),
            text(&grant["principal"]),
            tool.split_once('@').map_or(tool.as_str(), |(short, _)| short).to_owned(),
            text(&grant["scope"]),
            text(&grant["uses_left"]),
            text(&grant["expires_at"]),
            by.collect::<Vec<_>>().join(", "),
        ]
    });
    table(&["id", "agent", "tool", "scope", "uses left", "expires", "granted by"], rows.collect())
}
