//! `portcullis_calls_*`: what calls came to. Not among the tools of the specification, which lists what happened by
//! event and by session; people look at calls.

use std::time::Duration;

use portcullis_core::{Clock as _, SystemClock, Timestamp};
use portcullis_gateway::control::{CallFilter, Outcome};

use crate::args::{Integer, NonBlank, Page, TimeWindow};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CallDetail, CallEvidence, CallSummary, CallsOverview};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Kind {
        Answered = "answered", Asked = "asked", Denied = "denied", Refused = "refused", Failed = "failed",
        Withheld = "withheld", Stopped = "stopped", TimedOut = "timed-out", Cancelled = "cancelled",
        Unknown = "unknown", Running = "running",
    }
}

words! {
    pub(crate) enum Step { Hour = "hour", Day = "day" }
}

args! {
    pub(crate) struct List {
        kind: Option<Kind>, client_id: Option<NonBlank>, tool: Option<NonBlank>, last_n_hours: Option<Integer<1, 168>>,
        page: Page,
    }
}

args! {
    pub(crate) struct One { call_id: NonBlank }
}

args! {
    pub(crate) struct Window { window: TimeWindow, bucket: Option<Step> }
}

pub(super) fn module() -> Module {
    Module {
        name: "calls",
        tools: vec![
            read_tool("calls", "list", "List calls, newest first.", list),
            read_tool("calls", "get", "Tell the whole story of one call.", get),
            admin_tool("calls", "open", "Open what a call sent and got; recorded.", open),
            read_tool("calls", "overview", "Count calls and refusals over time.", overview),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<CallSummary>>, AdminError> {
    let hours = args.last_n_hours.map(|hours| Duration::from_secs(hours.0.unsigned_abs() * 3600));
    let since = |back: Duration| {
        Timestamp::from_millis(SystemClock.now().as_millis().saturating_sub(back.as_millis() as u64))
    };
    let filter = CallFilter {
        outcome: args
            .kind
            .and_then(|kind| Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == kind.as_str())),
        agent: args.client_id.map(String::from),
        tool: args.tool.map(String::from),
        since: hours.map(since),
    };
    Ok(Reply::page(cx.calls().list(filter, args.page).await?, args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<CallDetail>, AdminError> {
    Ok(Reply::ok(cx.calls().get(args.call_id.as_str()).await?))
}

async fn open(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<CallEvidence>, AdminError> {
    let (calls, id) = (cx.calls(), String::from(args.call_id));
    let target = TargetId::new("call", &id);
    grant.answer(target, move |op| async move { calls.open(&op, &id).await }).await
}

async fn overview(cx: Cx, args: Window) -> Result<Reply<CallsOverview>, AdminError> {
    let (since, until) = args.window.bounds(SystemClock.now());
    let hour = 3_600_000;
    let step = match args.bucket {
        None | Some(Step::Hour) => hour,
        Some(Step::Day) => 24 * hour,
    };
    if until.as_millis().saturating_sub(since.as_millis()) / step > 1_000 {
        return Err(AdminError::argument("bucket", "too many stretches; ask for days, or for less time"));
    }
    Ok(Reply::ok(cx.calls().overview(since, until, step).await?))
}
