//! `portcullis approve …`: seeing and deciding what waits for an operator.

mod watch;

use std::process::ExitCode;

use portcullis_core::ErrorCode;
use portcullis_governance::approval::{Scope, State};
use serde_json::Value;

use super::mcp::text;
use super::{Context, confirm};
use crate::cli::ApproveCommand;
use crate::failure::Failure;
use crate::operator::Request;
use crate::output::{table, visible};

pub(super) async fn run(context: &Context<'_>, command: ApproveCommand) -> Result<ExitCode, Failure> {
    match command {
        ApproveCommand::List { status } => {
            let status = status.map(|word| parse_state(&word)).transpose()?;
            let approvals = context.ask(&Request::ApproveList { status }).await?;
            context.output.result(&approvals, render_list);
        }
        ApproveCommand::Show { id } => {
            let approval = context.ask(&Request::ApproveShow { id }).await?;
            context.output.result(&approval, render_one);
        }
        ApproveCommand::Grant { id, scope, reason, yes } => {
            let scope: Scope = scope.parse().map_err(|error: String| Failure::field("scope", error))?;
            let approval = context.ask(&Request::ApproveShow { id: id.clone() }).await?;
            if !yes && needs_second_confirmation(&approval) {
                context.output.note(render_one(&approval));
                match confirm("This call can change things. Approve it?") {
                    Some(true) => {}
                    Some(false) => return Err(Failure::new(ErrorCode::Cancelled, "not approved")),
                    None => {
                        return Err(Failure::field(
                            "yes",
                            "this call can change things; look at `approve show`, then add --yes",
                        ));
                    }
                }
            }
            let granted = context.ask(&Request::ApproveGrant { id, scope, reason }).await?;
            context.output.result(&granted, |granted| match granted["state"].as_str() {
                Some("approved") => {
                    format!("approved: {} ({})", text(&granted["tool_id"]), text(&granted["scope"]))
                }
                _ => "recorded; another operator must approve too".into(),
            });
        }
        ApproveCommand::Watch { until_empty } => return watch::run(context, until_empty).await,
        ApproveCommand::Deny { id, reason } => {
            let denied = context.ask(&Request::ApproveDeny { id, reason }).await?;
            context.output.result(&denied, |denied| format!("denied: {}", text(&denied["tool_id"])));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_state(word: &str) -> Result<State, Failure> {
    serde_json::from_value(Value::String(word.into())).map_err(|_| {
        Failure::field(
            "status",
            "must be one of pending, approved, denied, expired, withdrawn, consumed, revoked, invalidated",
        )
    })
}

/// GOV-902: what executes, cannot be classified, or writes without being repeatable.
fn needs_second_confirmation(approval: &Value) -> bool {
    let presented = &approval["presented"];
    let class =
        |wanted: &str| presented["classes"].as_array().into_iter().flatten().any(|class| class == wanted);
    class("execute") || class("other") || (class("write") && presented["idempotency"] != "idempotent")
}

pub(super) fn render_list(approvals: &Value) -> String {
    let approvals = approvals.as_array().map(Vec::as_slice).unwrap_or_default();
    if approvals.is_empty() {
        return "nothing waits for an approval".into();
    }
    let rows = approvals.iter().map(|approval| {
        let tool = text(&approval["tool_id"]);
        let tool = tool.split_once('@').map_or(tool.as_str(), |(short, _)| short);
        vec![
            text(&approval["approval_id"]),
            text(&approval["state"]),
            text(&approval["principal"]),
            tool.to_owned(),
            text(&approval["expires_at"]),
        ]
    });
    table(&["id", "state", "agent", "tool", "expires"], rows.collect())
}

/// Everything the decision rests on, with invisible characters made visible (GOV-902).
pub(super) fn render_one(approval: &Value) -> String {
    let presented = &approval["presented"];
    let list = |value: &Value| {
        let items = value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(", ");
        if items.is_empty() { "-".to_owned() } else { items }
    };
    let arguments = serde_json::to_string_pretty(&presented["arguments"]).unwrap_or_default();
    let arguments: Vec<String> = arguments.lines().map(|line| format!("    {}", visible(line))).collect();
    let offers = presented["offers"].as_array().into_iter().flatten().map(|offer| {
        format!(
            "    {:<21} {} (operators: {})",
            text(&offer["scope"]),
            text(&offer["covers"]),
            offer["quorum"]
        )
    });
    format!(
        "approval {}  {}\n  {} asks to call\n  {}\n  arguments\n{}\n  classes      {}\n  scopes       {}\n  credentials  {}\n  idempotency  {}\n  \
         trust        {}, isolation {}\n  policy       {}\n  you may grant\n{}\n  expires      {}",
        text(&approval["approval_id"]),
        text(&approval["state"]),
        text(&approval["principal"]),
        text(&presented["tool_id"]),
        arguments.join("\n"),
        list(&presented["classes"]),
        list(&presented["scopes"]),
        list(&presented["credentials"]),
        text(&presented["idempotency"]),
        text(&presented["evidence"]["trust"]),
        text(&presented["server"]["isolation"]),
        list(&presented["policies"]),
        offers.collect::<Vec<_>>().join("\n"),
        text(&approval["expires_at"]),
    )
}
