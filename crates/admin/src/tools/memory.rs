//! `portcullis_artifacts_*` and `portcullis_sessions_replay`: what is kept of results, and sessions driven again.

use portcullis_core::SessionId;
use serde_json::Value;

use crate::args::{Ident, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::ArtifactRecord;
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args};

args! {
    pub(crate) struct List { session_id: Option<Ident<SessionId>>, tool: Option<NonBlank>, page: Page }
}

args! {
    pub(crate) struct One { artifact_id: NonBlank }
}

args! {
    pub(crate) struct Replay { session_id: Ident<SessionId> }
}

pub(super) fn module() -> Module {
    Module {
        name: "memory",
        tools: vec![
            read_tool("artifacts", "list", "List what is kept of results.", list),
            read_tool("artifacts", "get", "Say what one artifact is.", get),
            admin_tool("sessions", "replay", "Drive a session through today's rules; offline.", replay),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ArtifactRecord>>, AdminError> {
    let mut rows = cx.history().artifacts();
    rows.retain(|row| {
        args.session_id.as_ref().is_none_or(|session| row.session_id == session.0.to_string())
            && args.tool.as_ref().is_none_or(|tool| super::approvals::is_tool(&row.tool, tool.as_str()))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<ArtifactRecord>, AdminError> {
    let found = cx.history().artifacts().into_iter().find(|row| row.artifact_id == args.artifact_id.as_str());
    found.map(Reply::ok).ok_or_else(|| AdminError::not_found("there is no such artifact"))
}

async fn replay(cx: Cx, grant: AdminGrant, args: Replay) -> Result<Committed<Value>, AdminError> {
    let (history, session) = (cx.history(), args.session_id.0);
    let target = TargetId::new("session", session);
    let (report, receipt) =
        grant.commit(target, move |op| async move { history.replay(&op, session).await }).await?;
    Ok(Committed::ok(report, receipt))
}
