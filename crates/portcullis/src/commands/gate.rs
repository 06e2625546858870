//! `portcullis gate test`: the gates of the configuration, tried with their own cases.

use std::process::ExitCode;

use portcullis_core::ErrorCode;
use serde_json::{Value, json};

use super::Context;
use crate::config::gates;
use crate::failure::Failure;
use crate::output::table;

/// What can be done with gates.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum GateCommand {
    /// Run the cases written beside each gate; needs no gateway
    #[command(after_help = "Exit codes: 0 all come out as they say, 7 one does not.")]
    Test {
        /// Only this gate
        id: Option<String>,
    },
}

pub(super) fn run(context: &Context<'_>, command: &GateCommand) -> Result<ExitCode, Failure> {
    let GateCommand::Test { id } = command;
    let gates = gates::ready(&context.config.gate)?;
    let wanted: Vec<_> = gates.iter().filter(|gate| id.as_deref().is_none_or(|id| gate.id() == id)).collect();
    if let (Some(id), true) = (id, wanted.is_empty()) {
        return Err(Failure::new(
            ErrorCode::NotFound,
            format!("there is no gate '{id}' in the configuration"),
        ));
    }
    let rows: Vec<Value> = wanted
        .iter()
        .map(|gate| {
            let (allowing, denying) = gate.cases();
            json!({"id": gate.id(), "tools": gate.tools(), "allow": allowing, "deny": denying, "complete": allowing > 0 && denying > 0})
        })
        .collect();
    context.output.result(&Value::Array(rows.clone()), |_| {
        if rows.is_empty() {
            return "there are no gates in the configuration".into();
        }
        let cells = rows.iter().map(|row| {
            let tools: Vec<&str> =
                row["tools"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let said = if row["complete"] == true {
                "good"
            } else {
                "give it a case that allows and one that denies"
            };
            let text = |key: &str| row[key].as_str().map_or_else(|| row[key].to_string(), ToOwned::to_owned);
            vec![text("id"), tools.join(", "), text("allow"), text("deny"), said.to_owned()]
        });
        table(&["gate", "before", "allow", "deny", "cases"], cells.collect())
    });
    Ok(ExitCode::SUCCESS)
}
