//! `portcullis permit …`: which requests may be sent, and taking that back.

use std::process::ExitCode;

use portcullis_core::ErrorCode;
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::PermitCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: PermitCommand) -> Result<ExitCode, Failure> {
    match command {
        PermitCommand::List { state } => {
            let permits = context.ask(&Request::PermitList { state }).await?;
            context.output.result(&permits, render_list);
        }
        PermitCommand::Show { id } => {
            let permits = context.ask(&Request::PermitList { state: None }).await?;
            let found =
                permits.as_array().into_iter().flatten().find(|permit| permit["permit_id"] == id.as_str());
            let missing = || Failure::new(ErrorCode::NotFound, format!("there is no permit {id}"));
            context.output.result(found.ok_or_else(missing)?, |permit| {
                render_list(&Value::Array(vec![permit.clone()]))
            });
        }
        PermitCommand::Revoke { id, kill, reason } => {
            let revoked = context.ask(&Request::PermitRevoke { id, kill, reason }).await?;
            context.output.result(&revoked, |revoked| match revoked["in_flight"].as_u64() {
                Some(0) | None => "revoked: nothing of it was sent".into(),
                Some(_) => "revoked while its request is under way".into(),
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_list(permits: &Value) -> String {
    let permits = permits.as_array().map(Vec::as_slice).unwrap_or_default();
    if permits.is_empty() {
        return "no permits".into();
    }
    let columns = ["permit_id", "client_id", "tool", "state", "expires_at"];
    let rows = permits.iter().map(|permit| {
        columns
            .iter()
            .map(|key| text(&permit[*key]).split('@').next().unwrap_or_default().to_owned())
            .collect()
    });
    table(&["id", "agent", "tool", "state", "expires"], rows.collect())
}
