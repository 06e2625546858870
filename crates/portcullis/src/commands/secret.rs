//! `portcullis secret …`: credentials for calls. Values are read from the terminal or a descriptor, and never shown.

use std::process::ExitCode;

use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::SecretCommand;
use crate::failure::Failure;
use crate::identity::{Passphrase, new_credential};
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: SecretCommand) -> Result<ExitCode, Failure> {
    match command {
        SecretCommand::Set { name, class, kind, fd, kept } => {
            let value = value_of(fd, kept)?;
            let stored = context.ask(&Request::SecretSet { name, class, kind, value }).await?;
            context.output.result(&stored, |stored| {
                format!("stored: {} of class {}", text(&stored["name"]), text(&stored["class"]))
            });
        }
        SecretCommand::List => {
            let secrets = context.ask(&Request::SecretList).await?;
            context.output.result(&secrets, render_list);
        }
        SecretCommand::Rotate { name, fd, kept } => {
            let value = value_of(fd, kept)?;
            let stored = context.ask(&Request::SecretRotate { name, value }).await?;
            context.output.result(&stored, |stored| {
                format!("changed: {} is at version {}", text(&stored["name"]), stored["version"])
            });
        }
        SecretCommand::Rm { name, reason } => {
            let removed = context.ask(&Request::SecretRemove { name, reason }).await?;
            context.output.result(&removed, |removed| format!("removed: {}", text(&removed["name"])));
        }
        SecretCommand::ExportSigningKey { server, subscription, reason } => {
            let asked = Request::SigningKeyExport { name: server, id: subscription, reason };
            let written = context.ask(&asked).await?;
            context.output.result(&written, |written| format!("written to {}", text(&written["file"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The value; nothing where the backend's program has it.
fn value_of(fd: Option<i32>, kept: bool) -> Result<Passphrase, Failure> {
    if kept { Ok(Passphrase::found(String::new())) } else { new_credential(fd) }
}

fn render_list(secrets: &Value) -> String {
    let secrets = secrets.as_array().map(Vec::as_slice).unwrap_or_default();
    if secrets.is_empty() {
        return "no credentials; `portcullis secret set NAME --class CLASS` stores one".into();
    }
    let rows = secrets.iter().map(|secret| {
        let servers = secret["bound_servers"].as_array().into_iter().flatten().map(text);
        vec![
            text(&secret["name"]),
            text(&secret["class"]),
            text(&secret["kind"]),
            secret["version"].to_string(),
            format!("{} d", secret["age_days"]),
            servers.collect::<Vec<_>>().join(", "),
        ]
    });
    table(&["name", "class", "kind", "version", "age", "needed by"], rows.collect())
}
