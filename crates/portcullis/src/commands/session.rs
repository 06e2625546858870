//! `portcullis session …` and `portcullis checkpoint …`: who is talking, and stopping them.

use std::process::ExitCode;

use portcullis_core::id::IdError;
use portcullis_core::{ErrorCode, SessionId};
use portcullis_gateway::shaping::journal;
use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::{CheckpointCommand, SessionArgs, SessionCommand};
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

pub(super) async fn run(context: &Context<'_>, command: SessionCommand) -> Result<ExitCode, Failure> {
    match command {
        SessionCommand::List => {
            let sessions = context.ask(&Request::SessionList).await?;
            context.output.result(&sessions, render_sessions);
        }
        SessionCommand::End(SessionArgs { session, reason }) => {
            let ended = context.ask(&Request::SessionEnd { session, reason }).await?;
            context.output.result(&ended, |ended| format!("ended: {}", text(&ended["session_id"])));
        }
        SessionCommand::Export { session } => export(context, &session)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The file as it is: it is what prompts are built of.
fn export(context: &Context<'_>, session: &str) -> Result<(), Failure> {
    let id: SessionId =
        session.parse().map_err(|error: IdError| Failure::field("session", error.to_string()))?;
    let file = journal::folder(&context.home).join(format!("{id}.jsonl"));
    let text = std::fs::read_to_string(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            let message = format!(
                "nothing was written of {id}; sessions are if `session_log = \"on\"` stands in [gateway]"
            );
            Failure::new(ErrorCode::PathNotFound, message)
        }
        _ => Failure::unavailable(format!("{}: {error}", file.display())),
    })?;
    context.output.bytes(&text);
    Ok(())
}

pub(super) async fn checkpoint(
    context: &Context<'_>,
    command: CheckpointCommand,
) -> Result<ExitCode, Failure> {
    match command {
        CheckpointCommand::List => {
            let checkpoints = context.ask(&Request::CheckpointList).await?;
            context.output.result(&checkpoints, render_checkpoints);
        }
        CheckpointCommand::Open(SessionArgs { session, reason }) => {
            let stopped = context.ask(&Request::CheckpointOpen { session, reason }).await?;
            context.output.result(&stopped, |stopped| format!("stopped: {}", text(&stopped["session_id"])));
        }
        CheckpointCommand::Resolve(SessionArgs { session, reason }) => {
            let session = context.ask(&Request::CheckpointResolve { session, reason }).await?;
            context.output.result(&session, |session| format!("goes on: {}", text(&session["session_id"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_sessions(sessions: &Value) -> String {
    let sessions = sessions.as_array().map(Vec::as_slice).unwrap_or_default();
    if sessions.is_empty() {
        return "no agent has a session".into();
    }
    let rows = sessions.iter().map(|session| {
        let shown = ["session_id", "principal"].map(|key| text(&session[key]));
        let client = visible(session["client"].as_str().unwrap_or_default());
        let rest = ["state", "steps", "used_at"].map(|key| text(&session[key]));
        shown.into_iter().chain([client]).chain(rest).collect()
    });
    table(&["id", "agent", "client", "state", "steps", "last used"], rows.collect())
}

fn render_checkpoints(checkpoints: &Value) -> String {
    let checkpoints = checkpoints.as_array().map(Vec::as_slice).unwrap_or_default();
    if checkpoints.is_empty() {
        return "nothing stops any session".into();
    }
    let columns = ["session_id", "principal", "trigger", "opened_at", "reason"];
    let rows = checkpoints.iter().map(|found| columns.iter().map(|key| text(&found[*key])).collect());
    table(&["session", "agent", "trigger", "since", "why"], rows.collect())
}
