//! `portcullis why`: the whole story of one call on one page, told by its evidence.

mod page;

use std::path::Path;
use std::process::ExitCode;

use portcullis_audit::{EventName, Record, read_from};
use portcullis_core::{ErrorCode, ProposalId};
use portcullis_gateway::index::{Wanted, search};
use portcullis_gateway::story::Story;
use serde_json::Value;

use super::Context;
use super::audit::unreadable;
use crate::cli::WhyArgs;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, args: &WhyArgs) -> Result<ExitCode, Failure> {
    let dir = context.home.join("audit");
    let proposal = find(&dir, &args.call).await?;
    // An approval that a call rests on may be of an earlier one.
    let mut all =
        ask(&dir, Wanted { proposal: Some(proposal.to_string()), ..Wanted::default() }, usize::MAX).await?;
    all.extend(ask(&dir, Wanted { event: Some("approval.".into()), ..Wanted::default() }, usize::MAX).await?);
    all.sort_unstable_by_key(|record| record.seq);
    all.dedup_by_key(|record| record.seq);
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

async fn ask(dir: &Path, wanted: Wanted, most: usize) -> Result<Vec<Record>, Failure> {
    search(dir, &wanted, most).await.map_err(|error| unreadable(&error))
}

/// The proposal that `wanted` names: by itself, by its permit, by one of its records, or as the last one.
async fn find(dir: &Path, wanted: &str) -> Result<ProposalId, Failure> {
    let missing = || {
        let message =
            format!("there is no call {wanted}; `portcullis audit log --event proposal.received` lists them");
        Failure::new(ErrorCode::NotFound, message)
    };
    let by = |name: &str| Wanted {
        event: (name == "event").then(|| EventName::ProposalReceived.as_str().to_owned()),
        proposal: (name == "proposal").then(|| wanted.to_owned()),
        permit: (name == "permit").then(|| wanted.to_owned()),
        ..Wanted::default()
    };
    let found = match wanted {
        "last" => ask(dir, by("event"), 1).await?.pop(),
        _ => match wanted.parse::<u64>() {
            Ok(seq) => {
                let mut from = read_from(dir, seq).map_err(|error| unreadable(&error))?;
                from.next().transpose().map_err(|error| unreadable(&error))?
            }
            Err(_) => match ask(dir, by("proposal"), 1).await?.pop() {
                Some(found) => Some(found),
                None => ask(dir, by("permit"), usize::MAX)
                    .await?
                    .into_iter()
                    .find(|record| record.proposal.is_some()),
            },
        },
    };
    found.and_then(|record| record.proposal).ok_or_else(missing)
}
