//! `portcullis_audit_*`.

use portcullis_core::{Clock as _, EventId, SystemClock};

use crate::args::{Ident, Integer, NonBlank, Page, TimeWindow};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::{AuditDetail, AuditEntry, ExportRecord, ProofRecord, Verification};
use crate::tool::read_tool;
use crate::tools::approvals::is_tool;
use crate::{Cx, args};

/// The number of a record.
pub(super) type Seq = Integer<0, 9_007_199_254_740_991>;

args! {
    pub(crate) struct List {
        actor: Option<NonBlank>, tool: Option<NonBlank>, event: Option<NonBlank>, verdict: Option<NonBlank>,
        window: TimeWindow, page: Page,
    }
}

args! {
    pub(crate) struct One { entry_id: Ident<EventId> }
}

args! {
    pub(crate) struct Exports { page: Page }
}

args! {
    pub(crate) struct Verify { from: Option<Seq>, to: Option<Seq> }
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure/audit",
        tools: vec![
            read_tool("audit", "list", "List records of the log, newest first.", list),
            read_tool("audit", "get", "Show one record of the log.", get),
            read_tool("audit", "proof", "Prove that a record is under a signed checkpoint.", proof),
            read_tool("exports", "list", "List what was taken out of the log.", exports),
            read_tool("audit", "verify", "Check the audit log and its invariants.", verify),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<AuditEntry>>, AdminError> {
    let mut rows = cx.audit().list(args.window.bounds(SystemClock.now())).await?;
    rows.retain(|row| {
        args.actor.as_ref().is_none_or(|actor| row.actor == actor.as_str())
            && args.event.as_ref().is_none_or(|event| row.event == event.as_str())
            && args.verdict.as_ref().is_none_or(|verdict| row.verdict.as_deref() == Some(verdict.as_str()))
            && args
                .tool
                .as_ref()
                .is_none_or(|tool| row.tool.as_ref().is_some_and(|of| is_tool(of, tool.as_str())))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<AuditDetail>, AdminError> {
    Ok(Reply::ok(cx.audit().get(args.entry_id.0).await?))
}

async fn proof(cx: Cx, args: One) -> Result<Reply<ProofRecord>, AdminError> {
    Ok(Reply::ok(cx.audit().proof(args.entry_id.0).await?))
}

async fn exports(cx: Cx, args: Exports) -> Result<Reply<Vec<ExportRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.history().exports().await?), args.page))
}

async fn verify(cx: Cx, args: Verify) -> Result<Reply<Verification>, AdminError> {
    let (from, to) = range(args.from, args.to)?;
    Ok(Reply::ok(cx.audit().verify(from, to).await?))
}

pub(super) fn range(from: Option<Seq>, to: Option<Seq>) -> Result<(u64, Option<u64>), AdminError> {
    let (from, to) = (from.map_or(0, Seq::get), to.map(Seq::get));
    if to.is_some_and(|to| to < from) {
        return Err(AdminError::argument("from", "must not be after to"));
    }
    Ok((from, to))
}
