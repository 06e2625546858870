//! `portcullis audit log`: records that match, the newest last, and with `--follow` those that come.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use portcullis_audit::{Record, read, read_from};
use portcullis_core::Timestamp;
use serde_json::Value;

use super::unreadable;
use crate::cli::{Format, LogArgs};
use crate::commands::Context;
use crate::failure::Failure;
use crate::output::visible;

/// How often a followed log is looked at.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn run(context: &Context<'_>, args: &LogArgs, dir: &Path) -> Result<ExitCode, Failure> {
    let filter = Filter::new(args)?;
    let keep = args.limit.saturating_add(args.offset);
    let mut newest: VecDeque<Record> = VecDeque::new();
    let mut next_seq = 0;
    for record in read(dir).map_err(|error| unreadable(&error))? {
        let record = record.map_err(|error| unreadable(&error))?;
        next_seq = record.seq + 1;
        if filter.matches(&record) {
            if newest.len() == keep {
                newest.pop_front();
            }
            newest.push_back(record);
        }
    }
    newest.truncate(newest.len().saturating_sub(args.offset));
    if !args.follow {
        print(context, newest.make_contiguous());
        return Ok(ExitCode::SUCCESS);
    }
    newest.iter().for_each(|record| print_one(context, record));
    loop {
        for record in read_from(dir, next_seq).map_err(|error| unreadable(&error))? {
            let record = record.map_err(|error| unreadable(&error))?;
            next_seq = record.seq + 1;
            if filter.matches(&record) {
                print_one(context, &record);
            }
        }
        std::thread::sleep(LOOK);
    }
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
struct Filter<'a> {
    args: &'a LogArgs,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl<'a> Filter<'a> {
    fn new(args: &'a LogArgs) -> Result<Self, Failure> {
        let time = |name: &str, text: &Option<String>| {
            text.as_ref()
                .map(|text| {
                    text.parse::<Timestamp>().map_err(|error| Failure::field(name, error.to_string()))
                })
                .transpose()
        };
        Ok(Self { args, since: time("since", &args.since)?, until: time("until", &args.until)? })
    }

    fn matches(&self, record: &Record) -> bool {
        let (args, event) = (self.args, record.event.as_str());
        let same = |wanted: &Option<String>, found: Option<String>| {
            wanted.as_ref().is_none_or(|wanted| found.as_ref() == Some(wanted))
        };
        let is_event =
            |wanted: &String| event == wanted || (wanted.ends_with('.') && event.starts_with(wanted));
        let is_tool =
            |wanted: &String| record.tool_id.as_ref().is_some_and(|id| id.as_str().contains(wanted));
        args.event.as_ref().is_none_or(is_event)
            && args.tool.as_ref().is_none_or(is_tool)
            && same(&args.session, record.session.map(|id| id.to_string()))
            && same(&args.proposal, record.proposal.map(|id| id.to_string()))
            && same(&args.actor, Some(record.actor.to_string()))
            && self.since.is_none_or(|since| record.time >= since)
            && self.until.is_none_or(|until| record.time < until)
    }
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
