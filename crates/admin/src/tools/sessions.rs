//! `portcullis_checkpoints_*`, `portcullis_sessions_terminate` and `portcullis_permits_revoke`: stopping sessions and calls,
//! and letting them go on.

use portcullis_core::{PermitId, SessionId};
use portcullis_gateway::control::Meant;

use crate::args::{Ident, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CheckpointRecord, LiveSession, RevokedPermits};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args};

args! {
    pub(crate) struct Checkpoints { session_id: Option<Ident<SessionId>>, page: Page }
}

args! {
    pub(crate) struct Revoke {
        permit_id: Option<Ident<PermitId>>, tool: Option<NonBlank>, client_id: Option<NonBlank>, kill: Option<bool>,
    }
}

args! {
    pub(crate) struct One { session_id: Ident<SessionId> }
}

pub(super) fn module() -> Module {
    Module {
        name: "coordination/sessions",
        tools: vec![
            read_tool("checkpoints", "list", "List the checkpoints that stop sessions.", checkpoints),
            admin_tool("checkpoints", "open", "Stop a session until somebody lets it go on.", open),
            admin_tool("checkpoints", "resolve", "Let a stopped session go on.", resolve),
            admin_tool("permits", "revoke", "Take permits back before they are used, or cut calls.", revoke),
            admin_tool("sessions", "terminate", "End a session; its permits and approvals end.", terminate),
        ],
    }
}

async fn checkpoints(cx: Cx, args: Checkpoints) -> Result<Reply<Vec<CheckpointRecord>>, AdminError> {
    let mut rows = cx.sessions().checkpoints();
    let wanted = args.session_id.map(|session| session.0.to_string());
    rows.retain(|row| wanted.as_ref().is_none_or(|session| row.session_id == *session));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn open(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<LiveSession>, AdminError> {
    let (sessions, id) = (cx.sessions(), args.session_id.0);
    let target = TargetId::new("session", id.to_string());
    grant.answer(target, move |op| async move { sessions.stop(&op, id).await }).await
}

async fn resolve(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<LiveSession>, AdminError> {
    let (sessions, id) = (cx.sessions(), args.session_id.0);
    let target = TargetId::new("session", id.to_string());
    grant.answer(target, move |op| async move { sessions.resolve(&op, id).await }).await
}

async fn revoke(cx: Cx, grant: AdminGrant, args: Revoke) -> Result<Committed<RevokedPermits>, AdminError> {
    let meant = match (args.permit_id, args.tool, args.client_id) {
        (Some(id), None, None) => Meant::Permit(id.0),
        (None, Some(tool), None) => Meant::Tool(tool.into()),
        (None, None, Some(client)) => Meant::Agent(client.into()),
        _ => return Err(AdminError::argument("permit_id", "exactly one of permit_id, tool and client_id")),
    };
    let (sessions, kill) = (cx.sessions(), args.kill.unwrap_or(false));
    let target = TargetId::new("permits", format!("{meant:?}"));
    grant.answer(target, move |op| async move { sessions.revoke(&op, &meant, kill).await }).await
}

async fn terminate(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<LiveSession>, AdminError> {
    let (sessions, id) = (cx.sessions(), args.session_id.0);
    let target = TargetId::new("session", id.to_string());
    grant.answer(target, move |op| async move { sessions.terminate(&op, id).await }).await
}
