//! `portcullis gate test`: the gates of the configuration, tried with their own cases.

use std::process::ExitCode;

use portcullis_core::ErrorCode;
use serde_json::{Value, json};

use super::Context;
use crate::config::gates;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::table;

/// What can be done with gates.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum GateCommand {
    /// Run the cases written beside each gate; needs no gateway
    #[command(
        after_help = "Examples:\n  portcullis gate test\n  portcullis gate test pdpp-expand --live\n\nExit codes: 0 all come out as they say, 7 one does not, or with --live a document cannot be had."
    )]
    Test {
        /// Only this gate
        id: Option<String>,
        /// Also ask each gate's source once, as every agent there is
        #[arg(long)]
        live: bool,
    },
}

pub(super) async fn run(context: &Context<'_>, command: &GateCommand) -> Result<ExitCode, Failure> {
    let GateCommand::Test { id, live } = command;
    let gates = gates::ready(&context.config.gate)?;
    let wanted: Vec<_> = gates.iter().filter(|gate| id.as_deref().is_none_or(|id| gate.id() == id)).collect();
    if let (Some(id), true) = (id, wanted.is_empty()) {
        return Err(Failure::new(
            ErrorCode::NotFound,
            format!("there is no gate '{id}' in the configuration"),
        ));
    }
    if *live {
        return tried(context, id.clone()).await;
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

/// What the sources answer now.
async fn tried(context: &Context<'_>, id: Option<String>) -> Result<ExitCode, Failure> {
    let tried = context.ask(&Request::GateTry { id }).await?;
    let rows = tried.as_array().cloned().unwrap_or_default();
    context.output.result(&tried, |_| {
        let cells = rows.iter().map(|row| {
            let text = |key: &str| row[key].as_str().map_or_else(|| row[key].to_string(), ToOwned::to_owned);
            let said = match (row["reason"].as_str(), row["rows"].as_u64(), row["supporting"].as_u64()) {
                (Some("not_authorised"), ..) => {
                    "policy does not let it run unattended: the gate will not decide".into()
                }
                (Some(reason), ..) if !reason.is_empty() => format!("no document: {reason}"),
                (_, Some(0), _) => "no rows: compare `rows` with what the source answers".into(),
                (_, _, Some(0)) => "deny: no row supports the arguments".into(),
                _ => "decides".to_owned(),
            };
            vec![text("gate"), text("tool"), text("principal"), text("rows"), text("supporting"), said]
        });
        table(&["gate", "before", "as", "rows", "supporting", "says"], cells.collect())
    });
    let readable = |row: &Value| row["reason"] == "" && row["rows"] != 0;
    Ok(if rows.iter().all(readable) { ExitCode::SUCCESS } else { ExitCode::from(7) })
}
