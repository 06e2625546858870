//! `portcullis why`: the whole story of one call on one page, told by its evidence.

mod page;

use std::process::ExitCode;

use portcullis_audit::{EventName, Record, read};
use portcullis_core::{ErrorCode, ProposalId};
use portcullis_gateway::story::Story;
use serde_json::Value;

use super::Context;
use super::audit::unreadable;
use crate::cli::WhyArgs;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, args: &WhyArgs) -> Result<ExitCode, Failure> {
    let dir = context.home.join("audit");
    let all: Vec<Record> =
        read(&dir).and_then(Iterator::collect::<Result<_, _>>).map_err(|error| unreadable(&error))?;
    let proposal = find(&all, &args.call)?;
    let mut story = Story::of(&all, proposal);
    if !args.no_evidence {
        let reason = format!("why {proposal}");
        let seqs = story.records_with_evidence();
        let pieces = context.ask(&Request::AuditEvidence { seqs, reason }).await?;
        story.add_evidence(&pieces);
    }
    let document =
        serde_json::to_value(&story).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    context.output.result(&document, |_: &Value| page::render(&story, context.output));
    Ok(ExitCode::SUCCESS)
}

/// The proposal that `wanted` names: by itself, by its permit, by one of its records, or as the last one.
fn find(all: &[Record], wanted: &str) -> Result<ProposalId, Failure> {
    let missing = || {
        let message =
            format!("there is no call {wanted}; `portcullis audit log --event proposal.received` lists them");
        Failure::new(ErrorCode::NotFound, message)
    };
    let found = match wanted {
        "last" => all.iter().rev().find(|record| record.event == EventName::ProposalReceived),
        _ => match wanted.parse::<u64>() {
            Ok(seq) => all.get(usize::try_from(seq).map_err(|_| missing())?),
            Err(_) => all.iter().find(|record| {
                record.proposal.is_some_and(|id| id.to_string() == wanted)
                    || (record.proposal.is_some() && record.data["permit_id"] == wanted)
            }),
        },
    };
    found.and_then(|record| record.proposal).ok_or_else(missing)
}
