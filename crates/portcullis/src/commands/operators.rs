//! `portcullis operator …`: who may decide, besides the user the gateway runs as.

use std::process::ExitCode;

use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::OperatorCommand;
use crate::failure::Failure;
use crate::identity::new_passphrase;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: OperatorCommand) -> Result<ExitCode, Failure> {
    match command {
        OperatorCommand::Enrol { name, new_passphrase_fd } => {
            let passphrase = new_passphrase(new_passphrase_fd)?;
            let enrolled = context.ask(&Request::OperatorEnrol { name, passphrase }).await?;
            context.output.result(&enrolled, |enrolled| format!("enrolled: {}", text(&enrolled["name"])));
        }
        OperatorCommand::List => {
            let operators = context.ask(&Request::OperatorList).await?;
            context.output.result(&operators, render_list);
        }
        OperatorCommand::Remove { name, reason } => {
            let removed = context.ask(&Request::OperatorRemove { name, reason }).await?;
            context.output.result(&removed, |removed| format!("removed: {}", text(&removed["name"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_list(operators: &Value) -> String {
    let operators = operators.as_array().map(Vec::as_slice).unwrap_or_default();
    if operators.is_empty() {
        return "no operator is enrolled; `portcullis operator enrol NAME` enrols one".into();
    }
    let rows = operators.iter().map(|operator| vec![text(&operator["name"]), text(&operator["enrolled_at"])]);
    table(&["name", "enrolled"], rows.collect())
}
