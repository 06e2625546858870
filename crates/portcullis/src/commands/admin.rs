//! `portcullis admin …`: every operation as a tool, for programs and for MCP clients (ADM-2).

use std::io::Read as _;
use std::process::ExitCode;

use portcullis_admin::{Registry, openapi};
use portcullis_core::ErrorCode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use super::Context;
use super::mcp::text;
use crate::cli::AdminCommand;
use crate::failure::Failure;
use crate::identity::new_credential;
use crate::operator::{Channel, Request};
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: AdminCommand) -> Result<ExitCode, Failure> {
    match command {
        AdminCommand::Call { tool, json } => {
            let args = if json == "-" { from_stdin()? } else { json };
            let answer = context.ask(&Request::AdminCall { tool, args }).await?;
            // The envelope's own bytes, in every format: programs compare them.
            context.output.bytes(&format!("{}\n", text(&answer["envelope"])));
            let exit = answer["exit"].as_u64().and_then(|exit| u8::try_from(exit).ok()).unwrap_or(1);
            Ok(ExitCode::from(exit))
        }
        AdminCommand::Tools { domain } => {
            let tools = tools(&registry()?, domain.as_deref());
            context.output.result(&tools, |tools| {
                let rows = tools.as_array().into_iter().flatten();
                let row =
                    |tool: &Value| ["name", "class", "description"].map(|key| text(&tool[key])).to_vec();
                table(&["tool", "class", "what it does"], rows.map(row).collect())
            });
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Capture { id, fd } => {
            let expected = context.ask(&Request::CaptureKind { id: id.clone() }).await?;
            let done = if expected["kind"] == "fetch" {
                context.ask(&Request::CaptureFetch { id }).await?
            } else {
                let value = new_credential(fd)?;
                context.ask(&Request::CaptureGive { id, value }).await?
            };
            context.output.result(&done, |done| match done["key"].as_str() {
                Some(key) => key.to_owned(),
                None => format!("stored: {}", text(&done["name"])),
            });
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Openapi => {
            let document = openapi::document(&registry()?, env!("CARGO_PKG_VERSION"));
            context
                .output
                .bytes(&format!("{}\n", serde_json::to_string_pretty(&document).unwrap_or_default()));
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Mcp { passthrough } => serve(context, passthrough).await,
    }
}

fn registry() -> Result<Registry, Failure> {
    Registry::build(portcullis_admin::tools::modules())
        .map_err(|fault| Failure::new(ErrorCode::Internal, fault.to_string()))
}

fn tools(registry: &Registry, domain: Option<&str>) -> Value {
    let shown = registry.tools().filter(|tool| tool.is_wired());
    let shown = shown.filter(|tool| domain.is_none_or(|domain| tool.domain() == domain));
    let row = |tool: &portcullis_admin::ToolDef| json!({"name": tool.short_name(), "class": tool.class(), "description": tool.description()});
    Value::Array(shown.map(row).collect())
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::field("json", format!("stdin cannot be read: {error}")))?;
    Ok(text)
}

/// One message per line, each carried to the gateway and answered by it.
async fn serve(context: &Context<'_>, passthrough: bool) -> Result<ExitCode, Failure> {
    let options = context.options()?;
    // Proved once at the start; the gateway checks it with every message.
    let credential = context.identity.credential(&options.operator_methods)?;
    let channel = Channel::open(options).await?;
    let broken =
        |error: std::io::Error| Failure::unavailable(format!("the client's connection broke: {error}"));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut stdout = tokio::io::stdout();
    while let Some(message) = lines.next_line().await.map_err(broken)? {
        if message.trim().is_empty() {
            continue;
        }
        let answer =
            channel.ask_again(&Request::AdminMcp { message, passthrough }, credential.clone()).await?;
        if let Some(answer) = answer.as_str() {
            stdout.write_all(format!("{answer}\n").as_bytes()).await.map_err(broken)?;
            stdout.flush().await.map_err(broken)?;
        }
    }
    channel.close().await;
    Ok(ExitCode::SUCCESS)
}
