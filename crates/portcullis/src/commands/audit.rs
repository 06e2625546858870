//! `portcullis audit …`: reading and verifying the evidence, without a lock and without a gateway; and what only an
//! operator may take out of it, through the control plane, which records it first.

mod export;
mod show;
mod verify;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::ExitCode;

use portcullis_audit::{AuditError, Record};
use portcullis_core::Timestamp;
use serde_json::Value;

use super::Context;
use crate::cli::{AuditCommand, LogArgs};
use crate::failure::Failure;
use crate::output::visible;

pub(super) async fn run(context: &Context<'_>, command: &AuditCommand) -> Result<ExitCode, Failure> {
    let dir = |dir: &Option<PathBuf>| dir.clone().unwrap_or_else(|| context.home.join("audit"));
    match command {
        AuditCommand::Log(args) => log(context, args, &dir(&args.dir)),
        AuditCommand::Verify(args) => verify::run(context, args),
        AuditCommand::Show(args) => show::run(context, args, &dir(&args.dir)).await,
        AuditCommand::Export(args) => export::run(context, args).await,
    }
}

pub(crate) fn unreadable(error: &AuditError) -> Failure {
    Failure { exit: 5, ..Failure::new(error.code(), error.to_string()) }
}

fn log(context: &Context<'_>, args: &LogArgs, dir: &std::path::Path) -> Result<ExitCode, Failure> {
    let time = |name: &str, text: &Option<String>| {
        text.as_ref()
            .map(|text| text.parse::<Timestamp>().map_err(|error| Failure::field(name, error.to_string())))
            .transpose()
    };
    let (since, until) = (time("since", &args.since)?, time("until", &args.until)?);
    let mut newest: VecDeque<Record> = VecDeque::new();
    for record in portcullis_audit::read(dir).map_err(|error| unreadable(&error))? {
        let record = record.map_err(|error| unreadable(&error))?;
        let event = record.event.as_str();
        let same = |wanted: &Option<String>, found: Option<String>| {
            wanted.as_ref().is_none_or(|wanted| found.as_ref() == Some(wanted))
        };
        let matches =
            args.event
                .as_ref()
                .is_none_or(|wanted| event == wanted || (wanted.ends_with('.') && event.starts_with(wanted)))
                && args.tool.as_ref().is_none_or(|wanted| {
                    record.tool_id.as_ref().is_some_and(|id| id.as_str().contains(wanted))
                })
                && same(&args.session, record.session.map(|id| id.to_string()))
                && same(&args.proposal, record.proposal.map(|id| id.to_string()))
                && same(&args.actor, Some(record.actor.to_string()))
                && since.is_none_or(|since| record.time >= since)
                && until.is_none_or(|until| record.time < until);
        if matches {
            if newest.len() == args.limit {
                newest.pop_front();
            }
            newest.push_back(record);
        }
    }
    let records: Vec<Value> =
        newest.iter().map(|record| serde_json::to_value(record).unwrap_or_default()).collect();
    context.output.result(&Value::Array(records), |_| newest.iter().map(line).collect::<Vec<_>>().join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// One record on one line.
fn line(record: &Record) -> String {
    let about = record.tool_id.as_ref().map(|id| format!("  {}", id.short())).unwrap_or_default();
    let mut detail = record.data.to_string();
    if detail.chars().count() > 110 {
        detail = detail.chars().take(110).chain("…".chars()).collect();
    }
    format!(
        "{:>6}  {}  {:<28} {}{about}  {}",
        record.seq,
        record.time,
        record.event.as_str(),
        record.actor,
        visible(&detail)
    )
}
