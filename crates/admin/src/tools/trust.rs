//! `portcullis_trust_*` and `portcullis_grants_*`.

use portcullis_core::{ApprovalId, Clock as _, ServerIdentity, SystemClock};

use crate::args::{Ident, NoArgs, NonBlank, Page, TimeWindow};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{GrantRecord, TrustEvent, TrustRecord, TrustVerified, short};
use crate::tool::{admin_tool, read_tool};
use crate::tools::approvals::is_tool;
use crate::{Cx, args, words};

words! {
    pub(crate) enum State { Untrusted = "untrusted", Probationary = "probationary", Trusted = "trusted" }
}

words! {
    /// What an operator can grant: probation is earned, not given.
    pub(crate) enum Granted { Trusted = "trusted" }
}

words! {
    pub(crate) enum GrantState { Approved = "approved" }
}

args! {
    pub(crate) struct List {
        server_id: Option<Ident<ServerIdentity>>, tool: Option<NonBlank>, state: Option<State>, page: Page,
    }
}

args! {
    pub(crate) struct History { tool: NonBlank, window: TimeWindow, page: Page }
}

args! {
    pub(crate) struct Grant { tool: NonBlank, state: Granted }
}

args! {
    pub(crate) struct Revoke { tool: Option<NonBlank>, server_id: Option<Ident<ServerIdentity>> }
}

args! {
    pub(crate) struct Grants { tool: Option<NonBlank>, client_id: Option<NonBlank>, state: Option<GrantState>, page: Page }
}

args! {
    pub(crate) struct RevokeGrant { grant_id: Ident<ApprovalId> }
}

pub(super) fn module() -> Module {
    Module {
        name: "approvals/trust",
        tools: vec![
            read_tool("trust", "list", "List the trust that servers and tools have earned.", list),
            read_tool("trust", "history", "Tell what became of the trust in a tool or server.", history),
            read_tool("trust", "verify", "Compute all trust again from the log, and compare.", verify),
            admin_tool("trust", "grant", "Trust a tool or server that has earned it.", grant),
            admin_tool("trust", "revoke", "Take all trust back from a tool or server.", revoke),
            read_tool("grants", "list", "List what operators granted.", grants).for_owners(),
            admin_tool("grants", "revoke", "Take a grant back; its permits die.", revoke_grant),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<TrustRecord>>, AdminError> {
    let mut rows = cx.trust().list().await;
    rows.retain(|row| {
        args.server_id.as_ref().is_none_or(|id| row.server_id == id.0.as_str())
            && args
                .tool
                .as_ref()
                .is_none_or(|tool| row.tool == tool.as_str() || row.tool_id.as_deref() == Some(tool.as_str()))
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn verify(cx: Cx, _: NoArgs) -> Result<Reply<TrustVerified>, AdminError> {
    Ok(Reply::ok(cx.trust().verify().await?))
}

async fn history(cx: Cx, args: History) -> Result<Reply<Vec<TrustEvent>>, AdminError> {
    let rows = cx.history().trust(&short(args.tool.as_str()), args.window.bounds(SystemClock.now())).await?;
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn grant(cx: Cx, grant: AdminGrant, args: Grant) -> Result<Committed<TrustRecord>, AdminError> {
    let (trust, tool) = (cx.trust(), String::from(args.tool));
    let target = TargetId::new("tool", &tool);
    let Granted::Trusted = args.state;
    grant.answer(target, move |op| async move { trust.grant(&op, &tool).await }).await
}

async fn revoke(cx: Cx, grant: AdminGrant, args: Revoke) -> Result<Committed<TrustRecord>, AdminError> {
    let (target, id) = match (args.tool, args.server_id) {
        (Some(tool), None) => (TargetId::new("tool", &tool), String::from(tool)),
        (None, Some(server)) => (TargetId::new("server", &server.0), server.0.to_string()),
        _ => return Err(AdminError::argument("tool", "give exactly one of tool and server_id")),
    };
    let trust = cx.trust();
    grant.answer(target, move |op| async move { trust.revoke(&op, &id).await }).await
}

async fn grants(cx: Cx, args: Grants) -> Result<Reply<Vec<GrantRecord>>, AdminError> {
    let mut rows = cx.grants().list();
    rows.retain(|row| {
        cx.may_see(&row.client_id)
            && args.tool.as_ref().is_none_or(|tool| is_tool(&row.tool, tool.as_str()))
            && args.client_id.as_ref().is_none_or(|client| row.client_id == client.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    if cx.is_for_an_agent() {
        rows.iter_mut().for_each(|row| row.decisions.clear());
    }
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn revoke_grant(
    cx: Cx,
    grant: AdminGrant,
    args: RevokeGrant,
) -> Result<Committed<GrantRecord>, AdminError> {
    let (grants, id) = (cx.grants(), args.grant_id.0);
    let target = TargetId::new("grant", id);
    grant.answer(target, move |op| async move { grants.revoke(&op, id).await }).await
}
