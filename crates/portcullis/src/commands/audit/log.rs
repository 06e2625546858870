//! `portcullis audit log`: records that match, the newest last, and with `--follow` those that come.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use portcullis_audit::{Record, read, read_from};
use portcullis_core::Timestamp;
use portcullis_gateway::index::{Wanted, matches, search};
use serde_json::Value;

use super::unreadable;
use crate::cli::{Format, LogArgs};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::visible;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(super) async fn run(context: &Context<'_>, args: &LogArgs, dir: &Path) -> Result<ExitCode, Failure> {
    let wanted = wanted(args)?;
    // Where to go on from: what is recorded while the others are looked for is not to be missed.
    let mut next_seq = if args.follow { size(dir)? } else { 0 };
    let mut newest = search(dir, &wanted, args.limit.saturating_add(args.offset))
        .await
        .map_err(|error| unreadable(&error))?;
    newest.truncate(newest.len().saturating_sub(args.offset));
    if !args.follow {
        print(context, &newest);
        return Ok(ExitCode::SUCCESS);
    }
    newest.retain(|record| record.seq < next_seq);
    newest.iter().for_each(|record| print_one(context, record));
    loop {
        for record in read_from(dir, next_seq).map_err(|error| unreadable(&error))? {
            let record = record.map_err(|error| unreadable(&error))?;
            next_seq = record.seq + 1;
            if matches(&wanted, &record) {
                print_one(context, &record);
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// How many records there are.
fn size(dir: &Path) -> Result<u64, Failure> {
    let mut size = 0;
    for record in read(dir).map_err(|error| unreadable(&error))? {
        size = record.map_err(|error| unreadable(&error))?.seq + 1;
    }
    Ok(size)
}

fn print(context: &Context<'_>, records: &[Record]) {
    let documents: Vec<Value> =
        records.iter().map(|record| serde_json::to_value(record).unwrap_or_default()).collect();
    context
        .output
        .result(&Value::Array(documents), |_| records.iter().map(line).collect::<Vec<_>>().join("\n"));
}

/// A followed log has no end, so each record is a document of its own in every format.
fn print_one(context: &Context<'_>, record: &Record) {
    let document = serde_json::to_value(record).unwrap_or_default();
    let output = match context.output.format {
        Format::Json => context.output.with_format(Format::Ndjson),
        _ => *context.output,
    };
    output.result(&document, |_| line(record));
}

/// What `audit log` was asked for.
fn wanted(args: &LogArgs) -> Result<Wanted, Failure> {
    let time = |name: &str, text: &Option<String>| {
        let parse = |text: &String| {
            text.parse::<Timestamp>().map_err(|error| Failure::field(name, error.to_string()))
        };
        text.as_ref().map(parse).transpose()
    };
    Ok(Wanted {
        event: args.event.clone(),
        tool: args.tool.clone(),
        session: args.session.clone(),
        proposal: args.proposal.clone(),
        actor: args.actor.clone(),
        since: time("since", &args.since)?,
        until: time("until", &args.until)?,
        ..Wanted::default()
    })
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
