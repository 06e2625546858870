//! `portcullis artifact …`: what is kept of long results.

use std::process::ExitCode;

use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::ArtifactCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

pub(super) async fn run(context: &Context<'_>, command: ArtifactCommand) -> Result<ExitCode, Failure> {
    match command {
        ArtifactCommand::List => {
            let artifacts = context.ask(&Request::ArtifactList).await?;
            context.output.result(&artifacts, render_list);
        }
        ArtifactCommand::View { handle, select } => {
            let selector: Value = serde_json::from_str(&select)
                .map_err(|error| Failure::field("select", format!("--select is not JSON: {error}")))?;
            let view = context.ask(&Request::ArtifactView { handle, selector }).await?;
            context.output.result(&view, render_view);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_list(artifacts: &Value) -> String {
    let artifacts = artifacts.as_array().map(Vec::as_slice).unwrap_or_default();
    if artifacts.is_empty() {
        return "nothing is kept; long results are, where `firewall.passthrough = true` or a mode shapes them".into();
    }
    let rows = artifacts.iter().map(|artifact| {
        // The version and digest of a tool are in the JSON form.
        let tool = text(&artifact["tool_identity"]);
        let tool = tool.split('@').next().unwrap_or_default().to_owned();
        vec![
            text(&artifact["id"]),
            text(&artifact["principal"]),
            tool,
            text(&artifact["media_type"]),
            text(&artifact["size_bytes"]),
            text(&artifact["expires_at"]),
        ]
    });
    table(&["id", "agent", "tool", "type", "bytes", "until"], rows.collect())
}

/// On a terminal nothing a server wrote may act on it.
fn render_view(view: &Value) -> String {
    let slice = text(&view["slice"]);
    let mut shown = slice.lines().map(visible).collect::<Vec<_>>().join("\n");
    if let Some(more) = view["more"].as_str() {
        shown.push_str("\n\n");
        shown.push_str(&visible(more));
    }
    shown
}
