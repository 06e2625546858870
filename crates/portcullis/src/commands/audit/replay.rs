//! `portcullis audit replay`: a recorded session under today's rules, or under others.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::ReplayArgs;
use crate::commands::Context;
use crate::config::read_policies;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn run(context: &Context<'_>, args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let policies = args.policy.as_deref().map(read_policies).transpose()?;
    let session = args.session.clone();
    let replayed = context.ask(&Request::AuditReplay { session, policies }).await?;
    context.output.result(&replayed, render);
    let equal = ["policy_diffs", "output_diffs"].iter().all(|name| replayed[name] == json!([]));
    Ok(if equal { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn render(replayed: &Value) -> String {
    let mut lines = vec![format!(
        "session {}: {} calls, {} driven again, {} could not be",
        replayed["session"].as_str().unwrap_or_default(),
        replayed["calls"],
        replayed["hits"],
        replayed["misses"]
    )];
    for (name, what) in [("policy_diffs", "policy"), ("output_diffs", "result")] {
        for diff in replayed[name].as_array().into_iter().flatten() {
            let word = |name: &str| diff[name].as_str().unwrap_or_default().to_owned();
            lines.push(format!(
                "  record {}: {what} was {}, would be {}",
                diff["seq"],
                word("then"),
                word("now")
            ));
        }
    }
    if lines.len() == 1 {
        lines.push("  nothing would be different".into());
    }
    lines.join("\n")
}
