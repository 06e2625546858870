//! `portcullis_approvals_*`. Approving is an admin operation: it gives authority (ADM-10).

use portcullis_core::{ApprovalId, Sha256Digest};
use portcullis_governance::approval::Scope;

use crate::args::{Ident, JsonObject, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{ApprovalDetail, ApprovalRecord, RiskLevel};
use crate::tool::{admin_tool, read_tool, write_tool};
use crate::{ActorRef, Cx, args, words};

words! {
    pub(crate) enum Status {
        Pending = "pending", Approved = "approved", Denied = "denied", Expired = "expired", Withdrawn = "withdrawn",
        Consumed = "consumed", Revoked = "revoked", Invalidated = "invalidated",
    }
}

words! {
    pub(crate) enum Risk { Low = "low", Medium = "medium", High = "high", Critical = "critical" }
}

words! {
    pub(crate) enum Reach { Once = "once", Session = "session", UntilVersionChange = "until-version-change" }
}

args! {
    pub(crate) struct List {
        status: Option<Status>, risk_level: Option<Risk>, action_type: Option<NonBlank>, tool: Option<NonBlank>, page: Page,
    }
}

args! {
    pub(crate) struct One { approval_id: Ident<ApprovalId> }
}

args! {
    pub(crate) struct Approve {
        approval_id: Ident<ApprovalId>, scope: Reach, presented_sha256: Ident<Sha256Digest>, comment: Option<NonBlank>,
    }
}

args! {
    pub(crate) struct Create {
        tool: NonBlank, arguments: JsonObject, justification: NonBlank<500>, risk_level: Option<Risk>,
    }
}

args! {
    pub(crate) struct Reject { approval_id: Ident<ApprovalId>, comment: Option<NonBlank> }
}

pub(super) fn module() -> Module {
    Module {
        name: "approvals",
        tools: vec![
            read_tool("approvals", "list", "List approvals.", list).for_owners(),
            read_tool("approvals", "get", "Show an approval as it must be shown before deciding.", get),
            admin_tool("approvals", "approve", "Approve a call.", approve),
            admin_tool("approvals", "reject", "Deny a call.", reject),
            write_tool("approvals", "create", "Ask ahead about a call, before it is made.", create),
            write_tool("approvals", "withdraw", "Take back what you asked for.", withdraw),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ApprovalRecord>>, AdminError> {
    let risk = args.risk_level.map(level);
    let mut rows = cx.approvals().list(None);
    rows.retain(|row| {
        cx.may_see(&row.requested_by)
            && args.status.is_none_or(|status| row.status == status.as_str())
            && risk.is_none_or(|risk| row.risk_level == risk)
            && args
                .action_type
                .as_ref()
                .is_none_or(|action| row.action_type.split('+').any(|a| a == action.as_str()))
            && args.tool.as_ref().is_none_or(|tool| is_tool(&row.tool, tool.as_str()))
    });
    if cx.is_for_an_agent() {
        rows.iter_mut().for_each(|row| row.decisions.clear());
    }
    Ok(Reply::page(args.page.cut(rows), args.page))
}

fn level(risk: Risk) -> RiskLevel {
    match risk {
        Risk::Low => RiskLevel::Low,
        Risk::Medium => RiskLevel::Medium,
        Risk::High => RiskLevel::High,
        Risk::Critical => RiskLevel::Critical,
    }
}

async fn get(cx: Cx, args: One) -> Result<Reply<ApprovalDetail>, AdminError> {
    Ok(Reply::ok(cx.approvals().get(args.approval_id.0)?))
}

async fn approve(cx: Cx, grant: AdminGrant, args: Approve) -> Result<Committed<ApprovalRecord>, AdminError> {
    let (approvals, id) = (cx.approvals(), args.approval_id.0);
    let scope = match args.scope {
        Reach::Once => Scope::Once,
        Reach::Session => Scope::Session,
        Reach::UntilVersionChange => Scope::UntilVersionChange,
    };
    grant
        .answer(TargetId::new("approval", id), move |op| async move {
            let comment = args.comment.as_ref().map(NonBlank::as_str);
            approvals.approve(&op, id, scope, args.presented_sha256.0, comment).await
        })
        .await
}

async fn reject(cx: Cx, grant: AdminGrant, args: Reject) -> Result<Committed<ApprovalRecord>, AdminError> {
    let (approvals, id) = (cx.approvals(), args.approval_id.0);
    grant
        .answer(TargetId::new("approval", id), move |op| async move {
            approvals.reject(&op, id, args.comment.as_ref().map(NonBlank::as_str)).await
        })
        .await
}

async fn create(cx: Cx, actor: ActorRef, args: Create) -> Result<Reply<ApprovalRecord>, AdminError> {
    let arguments = serde_json::Value::Object(args.arguments.0).to_string();
    let (tool, why) = (args.tool.as_str(), args.justification.as_str());
    let mut asked = cx.approvals().create(actor.op(), tool, &arguments, why).await?;
    // What the asker thinks it could do may raise what is said of it, never lower it.
    asked.risk_level = asked.risk_level.max(args.risk_level.map_or(RiskLevel::Low, level));
    Ok(Reply::ok(asked))
}

async fn withdraw(cx: Cx, actor: ActorRef, args: One) -> Result<Reply<ApprovalRecord>, AdminError> {
    Ok(Reply::ok(cx.approvals().withdraw(actor.op(), args.approval_id.0).await?))
}

/// A canonical identity, by itself or by its `<server>/<tool>`.
pub(crate) fn is_tool(identity: &str, named: &str) -> bool {
    identity == named || identity.split_once('@').is_some_and(|(short, _)| short == named)
}
