//! `portcullis audit unblock`, `rotate-signer` and `rebuild-index`: looking after the log itself.

use std::process::ExitCode;

use serde_json::json;

use crate::commands::Context;
use crate::failure::Failure;
use crate::operator::Request;

pub(super) async fn unblock(context: &Context<'_>, reason: &str) -> Result<ExitCode, Failure> {
    let done = context.ask(&Request::AuditUnblock { reason: reason.to_owned() }).await?;
    context.output.result(&done, |done| {
        if done["unblocked"] == json!(true) {
            format!("the audit log takes records again, from record {} on", done["seq"])
        } else {
            "the audit log is not blocked".into()
        }
    });
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn rotate_signer(context: &Context<'_>, reason: &str) -> Result<ExitCode, Failure> {
    let done = context.ask(&Request::AuditRotateSigner { reason: reason.to_owned() }).await?;
    context.output.result(&done, |done| {
        let key = |name: &str| done[name].as_str().unwrap_or_default().to_owned();
        format!("checkpoints are signed with {}\nand the newest also with  {}", key("new"), key("old"))
    });
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn rebuild_index(context: &Context<'_>) -> Result<ExitCode, Failure> {
    let done = context.ask(&Request::AuditRebuildIndex).await?;
    context.output.result(&done, |done| format!("{} records are indexed", done["records"]));
    Ok(ExitCode::SUCCESS)
}
