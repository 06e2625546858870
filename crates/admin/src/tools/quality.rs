//! `portcullis_quality_*` and `portcullis_reports_generate`: how good tools are, and reports.

use std::time::Duration;

use portcullis_core::{Clock as _, ServerIdentity, SystemClock, Timestamp};

use crate::args::{Ident, NonBlank, Page, TimeWindow};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::{Bounds, QualitySummary, ReportRecord, ScoreRecord, short};
use crate::tool::{read_tool, write_tool};
use crate::{ActorRef, Cx, args, words};

/// How far back scores go.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

words! {
    pub(crate) enum ReportType { Usage = "usage", Governance = "governance", Quality = "quality", Access = "access" }
}

words! {
    pub(crate) enum Format { Json = "json", Csv = "csv", Md = "md" }
}

args! {
    pub(crate) struct Summary { window: TimeWindow }
}

args! {
    pub(crate) struct Scores { server_id: Option<Ident<ServerIdentity>>, tool: Option<NonBlank>, page: Page }
}

args! {
    pub(crate) struct Generate { report_type: ReportType, window: TimeWindow, format: Format }
}

pub(super) fn module() -> Module {
    Module {
        name: "quality",
        tools: vec![
            read_tool("quality", "summary", "Say how good tools are together.", summary),
            read_tool("quality", "list_scores", "List scores of tools over 30 days.", scores),
            write_tool("reports", "generate", "Write a report to be fetched.", generate),
        ],
    }
}

/// Thirty days, unless another stretch of time is asked for.
fn month() -> Bounds {
    let now = SystemClock.now();
    let since = now.as_millis().saturating_sub(MONTH.as_millis() as u64);
    (Timestamp::from_millis(since), now.after(Duration::from_millis(1)))
}

async fn summary(cx: Cx, args: Summary) -> Result<Reply<QualitySummary>, AdminError> {
    let asked = args.window != TimeWindow::default();
    let bounds = if asked { args.window.bounds(SystemClock.now()) } else { month() };
    Ok(Reply::ok(cx.history().quality(bounds).await?))
}

async fn scores(cx: Cx, args: Scores) -> Result<Reply<Vec<ScoreRecord>>, AdminError> {
    let mut rows = cx.history().scores(month()).await?;
    rows.retain(|row| {
        let of_server = |id: &Ident<ServerIdentity>| {
            row.tool.split_once('/').is_some_and(|(server, _)| server == id.0.as_str())
        };
        args.server_id.as_ref().is_none_or(of_server)
            && args.tool.as_ref().is_none_or(|tool| row.tool == short(tool.as_str()))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn generate(cx: Cx, actor: ActorRef, args: Generate) -> Result<Reply<ReportRecord>, AdminError> {
    let bounds = args.window.bounds(SystemClock.now());
    let kind = (args.report_type.as_str(), args.format.as_str());
    Ok(Reply::ok(cx.history().report(actor.op(), kind, bounds).await?))
}
