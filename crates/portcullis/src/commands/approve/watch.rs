//! `portcullis approve watch`: requests as they come, and what becomes of them.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use portcullis_governance::approval::{Scope, State};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

use super::{Context, Failure, Request, render_one, text};
use crate::cli::Format;
use crate::operator::running;
use crate::output::visible;

/// How often the gateway is asked; a question over a local socket costs next to nothing.
const ROUND: Duration = Duration::from_millis(250);

pub(super) async fn run(context: &Context<'_>, until_empty: bool) -> Result<ExitCode, Failure> {
    if running(&context.home).await.is_none() {
        return Err(Failure::unavailable(
            "no gateway is running in this home; `portcullis serve` starts one",
        ));
    }
    let interactive = context.output.format == Format::Text
        && std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal();
    let mut typed = interactive.then(|| BufReader::new(tokio::io::stdin()).lines());
    if interactive {
        context.output.note("waiting for requests; Ctrl-C ends");
    }
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    loop {
        let pending = context.ask(&Request::ApproveList { status: Some(State::Pending) }).await?;
        let pending = pending.as_array().cloned().unwrap_or_default();
        for id in ended(&known, &pending) {
            known.remove(&id);
            let approval = context.ask(&Request::ApproveShow { id }).await?;
            context.output.result(&approval, line);
        }
        for approval in &pending {
            let id = text(&approval["approval_id"]);
            if known.insert(id.clone(), approval.clone()).is_some() {
                continue;
            }
            match &mut typed {
                Some(typed) => decide(context, &id, typed).await?,
                None => context.output.result(approval, line),
            }
        }
        if until_empty && pending.is_empty() {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(ROUND) => {}
        }
    }
}

/// Those that waited and no longer do.
fn ended(known: &BTreeMap<String, Value>, pending: &[Value]) -> Vec<String> {
    let still = |id: &String| pending.iter().any(|approval| approval["approval_id"] == id.as_str());
    known.keys().filter(|id| !still(id)).cloned().collect()
}

fn line(approval: &Value) -> String {
    let tool = text(&approval["tool_id"]);
    let short = tool.split_once('@').map_or(tool.as_str(), |(short, _)| short);
    let by = approval["decisions"].as_array().into_iter().flatten().next_back();
    let by =
        by.map(|decision| format!(" by {}: {}", text(&decision["by"]), visible(&text(&decision["reason"]))));
    format!(
        "{:<9} {}  {} {short}{}",
        text(&approval["state"]),
        text(&approval["approval_id"]),
        text(&approval["principal"]),
        by.unwrap_or_default()
    )
}

/// Shows one request and asks what to do about it.
async fn decide(context: &Context<'_>, id: &str, typed: &mut Lines<BufReader<Stdin>>) -> Result<(), Failure> {
    let approval = context.ask(&Request::ApproveShow { id: id.to_owned() }).await?;
    context.output.say(format!("\n{}", render_one(&approval)));
    let offered: Vec<Scope> = (approval["offers"].as_array().into_iter().flatten())
        .filter_map(|offer| offer["scope"].as_str()?.parse().ok())
        .collect();
    let choices: Vec<String> = offered.iter().map(|scope| scope.as_str().to_owned()).collect();
    let Some(word) = prompt(&format!("grant {} / deny / later? ", choices.join(" / ")), typed).await else {
        return Ok(());
    };
    let request = match word.as_str() {
        "deny" | "d" => {
            let reason = prompt("why? ", typed).await.unwrap_or_default();
            Request::ApproveDeny { id: id.to_owned(), reason }
        }
        word => match offered.into_iter().find(|scope| scope.as_str() == word) {
            Some(scope) => {
                if super::needs_second_confirmation(&approval)
                    && prompt("This call can change things. Type yes to approve it: ", typed).await.as_deref()
                        != Some("yes")
                {
                    return Ok(());
                }
                let reason = prompt("why? ", typed).await.unwrap_or_default();
                Request::ApproveGrant { id: id.to_owned(), scope, reason }
            }
            None => return Ok(()),
        },
    };
    // Decided by somebody else meanwhile, or without a reason: said, and the watching goes on.
    if let Err(failure) = context.ask(&request).await {
        context.output.note(format!("error: {}", failure.message));
    }
    Ok(())
}

async fn prompt(question: &str, typed: &mut Lines<BufReader<Stdin>>) -> Option<String> {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question}");
    let _ = stderr.flush();
    Some(typed.next_line().await.ok()??.trim().to_owned())
}
