//! What the log tells: activities, sessions, permits, analytics, usage.

use portcullis_core::{Clock as _, SessionId, SystemClock, Timestamp};

use crate::args::{Ident, NonBlank, Page, TimeWindow};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::{
    ActivityRecord, CallCounts, CallRecord, ErrorCounts, PermitRecord, SessionRecord, ToolCounts, short,
};
use crate::tool::read_tool;
use crate::tools::approvals::is_tool;
use crate::{Cx, args, words};

words! {
    pub(crate) enum PermitState {
        Issued = "issued", Consumed = "consumed", Settled = "settled", Revoked = "revoked", Expired = "expired",
        Invalidated = "invalidated",
    }
}

words! {
    pub(crate) enum SessionState {
        Active = "active", Suspended = "suspended", Ended = "ended", Expired = "expired",
    }
}

args! {
    pub(crate) struct Activities {
        kind: Option<NonBlank>, client_id: Option<NonBlank>, last_n_hours: Option<Hours>, page: Page,
    }
}

args! {
    pub(crate) struct Sessions { client_id: Option<NonBlank>, state: Option<SessionState>, page: Page }
}

args! {
    pub(crate) struct OneSession { session_id: Ident<SessionId> }
}

args! {
    pub(crate) struct Frames { session_id: Ident<SessionId>, page: Page }
}

args! {
    pub(crate) struct Permits {
        tool: Option<NonBlank>, client_id: Option<NonBlank>, state: Option<PermitState>, page: Page,
    }
}

args! {
    pub(crate) struct Window { window: TimeWindow }
}

args! {
    pub(crate) struct Tools { window: TimeWindow, tools: Option<Vec<NonBlank>>, page: Page }
}

args! {
    pub(crate) struct Usage {
        client_id: Option<NonBlank>, session_id: Option<Ident<SessionId>>, window: TimeWindow, page: Page,
    }
}

/// 24, 48 or 168.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hours(u64);

impl crate::args::ArgValue for Hours {
    fn read(value: &serde_json::Value, at: &str, complaints: &mut crate::args::Complaints) -> Option<Self> {
        match value.as_u64() {
            Some(hours @ (24 | 48 | 168)) => Some(Self(hours)),
            _ => {
                complaints.push(at, "must be one of 24 48 168");
                None
            }
        }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({"enum": [24, 48, 168]})
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "history",
        tools: vec![
            read_tool("activities", "list", "List what happened lately, newest first.", activities)
                .for_owners(),
            read_tool("sessions", "list", "List sessions of clients.", sessions).for_owners(),
            read_tool("sessions", "get", "Show one session.", session).for_owners(),
            read_tool("sessions", "frames", "List the calls of a session, newest first.", frames)
                .for_owners(),
            read_tool("permits", "list", "List permits.", permits).for_owners(),
            read_tool("budget", "records_list", "List calls with what they cost, newest first.", usage)
                .for_owners(),
            read_tool("analytics", "overview", "Count calls, errors and refusals, with latencies.", overview),
            read_tool("analytics", "tools", "Count the calls of each tool.", tools),
            read_tool("analytics", "errors", "Count errors by code, with samples.", errors),
        ],
    }
}

async fn activities(cx: Cx, args: Activities) -> Result<Reply<Vec<ActivityRecord>>, AdminError> {
    let hours = args.last_n_hours.map_or(24, |hours| hours.0);
    let since = SystemClock.now().as_millis().saturating_sub(hours * 3_600_000);
    let mut rows = cx.history().activities(Timestamp::from_millis(since)).await?;
    rows.retain(|row| {
        cx.may_see(row.client_id.as_deref().unwrap_or_default())
            && args.kind.as_ref().is_none_or(|kind| row.kind == kind.as_str())
            && args.client_id.as_ref().is_none_or(|client| row.client_id.as_deref() == Some(client.as_str()))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn sessions(cx: Cx, args: Sessions) -> Result<Reply<Vec<SessionRecord>>, AdminError> {
    let mut rows = cx.history().sessions().await?;
    rows.retain(|row| {
        cx.may_see(&row.client_id)
            && args.client_id.as_ref().is_none_or(|client| row.client_id == client.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    rows.iter_mut().for_each(|row| fit_for_its_reader(&cx, row));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

/// Why an operator stopped a session is what it tells the agent, if it likes.
fn fit_for_its_reader(cx: &Cx, row: &mut SessionRecord) {
    if let Some(live) = row.live.as_mut().filter(|_| cx.is_for_an_agent()) {
        live.checkpoint = None;
    }
}

async fn session(cx: Cx, args: OneSession) -> Result<Reply<SessionRecord>, AdminError> {
    let id = args.session_id.0.to_string();
    let found = cx.history().sessions().await?.into_iter().find(|row| row.session_id == id);
    let mut found = found.filter(|row| cx.may_see(&row.client_id));
    found.iter_mut().for_each(|row| fit_for_its_reader(&cx, row));
    found.map(Reply::ok).ok_or_else(|| AdminError::not_found(format!("session '{id}' does not exist")))
}

async fn frames(cx: Cx, args: Frames) -> Result<Reply<Vec<CallRecord>>, AdminError> {
    let id = args.session_id.0.to_string();
    let mut rows = cx.history().calls((Timestamp::from_millis(0), Timestamp::from_millis(u64::MAX))).await?;
    rows.retain(|row| cx.may_see(&row.client_id) && row.session_id.as_deref() == Some(id.as_str()));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn permits(cx: Cx, args: Permits) -> Result<Reply<Vec<PermitRecord>>, AdminError> {
    let mut rows = cx.history().permits().await?;
    rows.retain(|row| {
        cx.may_see(&row.client_id)
            && args.tool.as_ref().is_none_or(|tool| is_tool(&row.tool, tool.as_str()))
            && args.client_id.as_ref().is_none_or(|client| row.client_id == client.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn usage(cx: Cx, args: Usage) -> Result<Reply<Vec<CallRecord>>, AdminError> {
    let mut rows = cx.history().calls(args.window.bounds(SystemClock.now())).await?;
    let session = args.session_id.map(|session| session.0.to_string());
    rows.retain(|row| {
        cx.may_see(&row.client_id)
            && args.client_id.as_ref().is_none_or(|client| row.client_id == client.as_str())
            && session.as_ref().is_none_or(|session| row.session_id.as_ref() == Some(session))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn overview(cx: Cx, args: Window) -> Result<Reply<CallCounts>, AdminError> {
    Ok(Reply::ok(cx.history().overall(args.window.bounds(SystemClock.now())).await?))
}

async fn tools(cx: Cx, args: Tools) -> Result<Reply<Vec<ToolCounts>>, AdminError> {
    let mut rows = cx.history().by_tool(args.window.bounds(SystemClock.now())).await?;
    if let Some(wanted) = &args.tools {
        rows.retain(|row| wanted.iter().any(|tool| short(tool.as_str()) == row.tool));
    }
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn errors(cx: Cx, args: Window) -> Result<Reply<Vec<ErrorCounts>>, AdminError> {
    Ok(Reply::ok(cx.history().errors(args.window.bounds(SystemClock.now())).await?))
}
