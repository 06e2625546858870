//! `portcullis audit retention`: how long evidence is kept, and what is done about it.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::cli::RetentionCommand;
use crate::commands::Context;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

pub(super) async fn run(context: &Context<'_>, command: &RetentionCommand) -> Result<ExitCode, Failure> {
    match command {
        RetentionCommand::List => {
            let keys = context.ask(&Request::AuditKeys).await?;
            context.output.result(&keys, render);
        }
        RetentionCommand::Run => {
            let done = context.ask(&Request::AuditForget).await?;
            context.output.result(&done, |done| match done["destroyed"].as_array().map(Vec::as_slice) {
                None | Some([]) => "nothing is over yet".into(),
                Some(keys) => {
                    let names: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
                    format!("destroyed: {}", names.join(", "))
                }
            });
        }
        RetentionCommand::Hold { key, release, reason } => {
            let request = Request::AuditHold { key: key.clone(), held: !release, reason: reason.clone() };
            let held = context.ask(&request).await?;
            let word = if *release { "released" } else { "held" };
            context.output.result(&held, |_| format!("{word}: {key}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render(keys: &Value) -> String {
    let rows = keys.as_array().into_iter().flatten().map(|key| {
        let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
        let state = match (key["held"] == json!(true), key["expired"] == json!(true)) {
            (true, _) => "held",
            (_, true) => "over",
            _ => "kept",
        };
        vec![text("key"), text("class"), text("day"), state.into(), text("check")]
    });
    table(&["key", "class", "day", "state", "check"], rows.collect())
}
