//! `portcullis operator …`: who may decide, besides the user the gateway runs as.

use std::path::Path;
use std::process::ExitCode;

use portcullis_governance::declaration::Span;
use portcullis_governance::operator::ssh::PublicKey;
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
        OperatorCommand::Enrol { name, passkey: true, .. } => {
            let invited = context.ask(&Request::OperatorInvite { name }).await?;
            context.output.result(&invited, |invited| {
                format!(
                    "a link for operator {}, good once and for 15 minutes, shown this once; whoever opens it enrols a key:\n\n  {}",
                    text(&invited["name"]),
                    text(&invited["link"])
                )
            });
        }
        OperatorCommand::Enrol { name, new_passphrase_fd, ssh_key, .. } => {
            let request = match ssh_key {
                Some(file) => Request::OperatorEnrolKey { name, key: public_key(&file)? },
                None => Request::OperatorEnrol { name, passphrase: new_passphrase(new_passphrase_fd)? },
            };
            let enrolled = context.ask(&request).await?;
            context.output.result(&enrolled, |enrolled| format!("enrolled: {}", text(&enrolled["name"])));
        }
        OperatorCommand::List => {
            let operators = context.ask(&Request::OperatorList).await?;
            context.output.result(&operators, render_list);
        }
        OperatorCommand::Token(command) => token(context, command).await?,
        OperatorCommand::Remove { name, passkey: Some(passkey), reason } => {
            let removed = context.ask(&Request::OperatorRemovePasskey { name, passkey, reason }).await?;
            context
                .output
                .result(&removed, |removed| format!("removed: a security key of {}", text(&removed["name"])));
        }
        OperatorCommand::Remove { name, reason, .. } => {
            let removed = context.ask(&Request::OperatorRemove { name, reason }).await?;
            context.output.result(&removed, |removed| format!("removed: {}", text(&removed["name"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn public_key(file: &Path) -> Result<PublicKey, Failure> {
    let wrong = |problem: String| Failure::field("ssh-key", format!("{}: {problem}", file.display()));
    let line = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    PublicKey::parse(&line).map_err(|problem| wrong(problem.to_owned()))
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
    let proves_with = |operator: &Value| {
        let has = |member: &str, word| operator.get(member).map(|_| word);
        let ways =
            [has("verifier_sha256", "passphrase"), has("ssh_key", "ssh-agent"), has("passkeys", "webauthn")];
        ways.into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let rows = operators
        .iter()
        .map(|operator| vec![text(&operator["name"]), text(&operator["enrolled_at"]), proves_with(operator)]);
    table(&["name", "enrolled", "proves with"], rows.collect())
}
