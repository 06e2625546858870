//! `portcullis trust …`: who has earned how much, and what it rests on.

use std::process::ExitCode;

use serde_json::Value;

use super::Context;
use super::mcp::text;
use crate::cli::TrustCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: TrustCommand) -> Result<ExitCode, Failure> {
    let shown = match command {
        TrustCommand::List { server, state } => {
            let known = ["untrusted", "probationary", "trusted"];
            if state.as_deref().is_some_and(|state| !known.contains(&state)) {
                return Err(Failure::field("state", "must be untrusted, probationary or trusted"));
            }
            let records = context.ask(&Request::TrustList { server, state }).await?;
            context.output.result(&records, render_list);
            return Ok(ExitCode::SUCCESS);
        }
        TrustCommand::Verify => {
            let verified = context.ask(&Request::TrustVerify).await?;
            let differences = verified["differences"].as_array().map_or(0, Vec::len);
            context.output.result(&verified, |verified| match differences {
                0 => format!("{} records equal what the log says", verified["checked"]),
                _ => format!("these differ from what the log says: {}", verified["differences"]),
            });
            return Ok(ExitCode::from(u8::from(differences > 0)));
        }
        TrustCommand::Show { id } => Request::TrustShow { id },
        TrustCommand::Grant(args) => Request::TrustGrant { id: args.id, reason: args.reason },
        TrustCommand::Revoke(args) => Request::TrustRevoke { id: args.id, reason: args.reason },
    };
    let record = context.ask(&shown).await?;
    context.output.result(&record, render_one);
    Ok(ExitCode::SUCCESS)
}

fn render_list(records: &Value) -> String {
    let records = records.as_array().map(Vec::as_slice).unwrap_or_default();
    if records.is_empty() {
        return "nothing to show".into();
    }
    let columns =
        ["boundary_id", "state", "tier", "score", "clean", "days", "sessions", "violations", "since"];
    let rows = records.iter().map(|record| columns.iter().map(|column| text(&record[*column])).collect());
    table(
        &["of", "state", "tier", "score", "clean", "days", "sessions", "violations", "since"],
        rows.collect(),
    )
}

fn render_one(record: &Value) -> String {
    let value = |key: &str| text(&record[key]);
    let limited = if record["recorded"] == record["state"] {
        String::new()
    } else {
        format!(" (would be {}, but for tier {})", value("recorded"), value("tier"))
    };
    format!(
        "{}  {}{limited}\n  since      {}\n  score      {} of 100: {} clean executions, {} days, {} sessions\n  violations {}\n  earned     {}, on tier {}",
        value("boundary_id"),
        value("state"),
        value("since"),
        value("score"),
        value("clean"),
        value("days"),
        value("sessions"),
        value("violations"),
        value("eligible"),
        value("tier"),
    )
}
