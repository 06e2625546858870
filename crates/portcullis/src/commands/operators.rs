//! `portcullis operator …`: who may decide, besides the user the gateway runs as.

use std::process::ExitCode;

use portcullis_governance::declaration::Span;
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::{OperatorCommand, TokenCommand};
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
        OperatorCommand::Token(command) => token(context, command).await?,
        OperatorCommand::Remove { name, reason } => {
            let removed = context.ask(&Request::OperatorRemove { name, reason }).await?;
            context.output.result(&removed, |removed| format!("removed: {}", text(&removed["name"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn token(context: &Context<'_>, command: TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create { name, expires } => {
            let span = |text: String| text.parse::<Span>().map_err(|error| Failure::field("expires", error));
            let lifetime = expires.map(span).transpose()?.map(|span| span.0);
            let created = context.ask(&Request::OperatorTokenCreate { name, lifetime }).await?;
            context.output.result(&created, |created| {
                format!(
                    "token {} of operator {}, shown this once:\n\n  {}\n\nPrograms send it as `Authorization: Bearer …` to the \
                     operator listener.",
                    text(&created["name"]),
                    text(&created["operator"]),
                    text(&created["token"])
                )
            });
        }
        TokenCommand::List => {
            let tokens = context.ask(&Request::OperatorTokenList).await?;
            context.output.result(&tokens, |tokens| {
                let tokens = tokens.as_array().map(Vec::as_slice).unwrap_or_default();
                if tokens.is_empty() {
                    return "no tokens; `portcullis operator token create NAME` makes one".into();
                }
                let row = |token: &Value| {
                    ["name", "operator", "created_at", "expires_at"].map(|key| text(&token[key])).to_vec()
                };
                table(&["name", "operator", "made", "expires"], tokens.iter().map(row).collect())
            });
        }
        TokenCommand::Revoke { name, reason } => {
            let revoked = context.ask(&Request::OperatorTokenRevoke { name, reason }).await?;
            context.output.result(&revoked, |revoked| format!("revoked: token {}", text(&revoked["name"])));
        }
    }
    Ok(())
}

fn render_list(operators: &Value) -> String {
    let operators = operators.as_array().map(Vec::as_slice).unwrap_or_default();
    if operators.is_empty() {
        return "no operator is enrolled; `portcullis operator enrol NAME` enrols one".into();
    }
    let rows = operators.iter().map(|operator| vec![text(&operator["name"]), text(&operator["enrolled_at"])]);
    table(&["name", "enrolled"], rows.collect())
}
