//! `portcullis results`: how large results are, which no list of tools tells.

use std::process::ExitCode;

use portcullis_governance::declaration::Span;
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

/// What can be asked about results.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ResultsCommand {
    /// Show how large the results of each tool were, and how many of them a client would cut
    #[command(
        after_help = "Examples:\n  portcullis results report\n  portcullis results report --profile claude-code --since 1d\n\nWhat a list of tools costs is another matter: `portcullis footprint` says nothing about results."
    )]
    Report {
        /// The client's profile [default: as configured]
        #[arg(long, value_name = "NAME")]
        profile: Option<String>,
        /// How far back
        #[arg(long, value_name = "SPAN", default_value = "7d", value_parser = span)]
        since: Span,
    },
}

fn span(text: &str) -> Result<Span, String> {
    serde_json::from_value(json!(text)).map_err(|error| error.to_string())
}

pub(super) async fn run(context: &Context<'_>, command: ResultsCommand) -> Result<ExitCode, Failure> {
    let ResultsCommand::Report { profile, since } = command;
    let options = context.options()?.surface;
    let name = profile.unwrap_or_else(|| options.profile.clone());
    let Some(profile) = options.profiles.get(&name) else {
        let known: Vec<&str> = options.profiles.keys().map(String::as_str).collect();
        let message = format!("there is no profile '{name}'; there are {}", known.join(", "));
        return Err(Failure::field("profile", message));
    };
    let seconds = since.0.as_secs();
    let limit = profile.result_max_tokens;
    let tools = context.ask(&Request::ResultSizes { seconds, limit }).await?;
    let rows = tools.as_array().cloned().unwrap_or_default();
    let document = json!({
        "format": "portcullis-results/1", "profile": name, "since_seconds": seconds, "result_max_tokens": limit, "tools": tools,
    });
    context.output.result(&document, |_| {
        if rows.is_empty() {
            return "no results in that time".into();
        }
        let cells = rows.iter().map(|row| {
            let number = |part: &str, key: &str| {
                super::footprint::grouped(row[part][key].as_u64().unwrap_or(0) as usize)
            };
            let share = row["cut_share"]
                .as_f64()
                .map_or_else(|| "-".into(), |share| format!("{:.0} %", share * 100.0));
            vec![
                visible(row["tool"].as_str().unwrap_or_default()),
                row["calls"].to_string(),
                number("content", "p50"),
                number("content", "p95"),
                number("content", "max"),
                number("structured", "p50"),
                number("structured", "p95"),
                number("structured", "max"),
                share,
            ]
        });
        let head = ["tool", "calls", "text p50", "p95", "max", "structure p50", "p95", "max", "cut"];
        let table = table(&head, cells.collect());
        let what = match limit {
            Some(limit) => {
                format!("cut: the share of results over {limit} tokens, which a {name} client shortens")
            }
            None => format!("it is not known where a {name} client cuts results"),
        };
        format!(
            "{table}\n\nBytes. {what}. To hold results to a size: [surface.results] in the configuration."
        )
    });
    Ok(ExitCode::SUCCESS)
}
