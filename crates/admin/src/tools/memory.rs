//! `portcullis_artifacts_*` and `portcullis_sessions_replay`: what is kept of results, and sessions driven again.

use portcullis_core::SessionId;
use serde_json::Value;

use crate::args::{Ident, JsonObject, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{ArtifactRecord, ArtifactSlice, ContextItem, ErasedRecord};
use crate::tool::{admin_tool, read_tool};
use crate::tools::policies::File;
use crate::{Cx, args};

args! {
    pub(crate) struct List { session_id: Option<Ident<SessionId>>, tool: Option<NonBlank>, page: Page }
}

args! {
    pub(crate) struct One { artifact_id: NonBlank }
}

args! {
    pub(crate) struct View { artifact_id: NonBlank, selector: JsonObject }
}

args! {
    pub(crate) struct Context { session_id: Ident<SessionId>, kind: Option<NonBlank<80>>, page: Page }
}

args! {
    pub(crate) struct Erase {
        client_id: Option<NonBlank<80>>, session_id: Option<Ident<SessionId>>, item_id: Option<NonBlank>,
    }
}

args! {
    pub(crate) struct Replay { session_id: Ident<SessionId>, policies: Option<Vec<File>> }
}

/// Which artifacts are meant.
type Meant = Box<dyn Fn(&ArtifactRecord) -> bool + Send>;

pub(super) fn module() -> Module {
    Module {
        name: "memory",
        tools: vec![
            read_tool("artifacts", "list", "List what is kept of results.", list),
            read_tool("artifacts", "get", "Say what one artifact is.", get),
            read_tool("artifacts", "view", "Show part of an artifact.", view),
            admin_tool("artifacts", "delete", "Forget an artifact; its digest stays on record.", delete),
            read_tool("context", "list", "List what is kept of a session's results.", context),
            admin_tool("context", "erase", "Forget what is kept of a client, session or item.", erase),
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
    let policies = args.policies.map(|files| files.into_iter().map(File::into_file).collect());
    let target = TargetId::new("session", session);
    grant.answer(target, move |op| async move { history.replay(&op, session, policies).await }).await
}

async fn view(cx: Cx, args: View) -> Result<Reply<ArtifactSlice>, AdminError> {
    let selector = Value::Object(args.selector.0);
    Ok(Reply::ok(cx.history().look_at_artifact(args.artifact_id.as_str(), &selector)?))
}

async fn delete(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<()>, AdminError> {
    let (history, id) = (cx.history(), String::from(args.artifact_id));
    let target = TargetId::new("artifact", &id);
    let (_, receipt) = grant
        .commit(target, move |op| async move {
            let erased = history.erase(&op, |row| row.artifact_id == id).await?;
            if erased.erased == 0 {
                Err(AdminError::not_found("there is no such artifact"))
            } else {
                Ok(erased)
            }
        })
        .await?;
    Ok(Committed::ok((), receipt))
}

async fn context(cx: Cx, args: Context) -> Result<Reply<Vec<ContextItem>>, AdminError> {
    let session = args.session_id.0.to_string();
    let mut rows = cx.history().context_items();
    rows.retain(|row| {
        row.session_id == session && args.kind.as_ref().is_none_or(|kind| row.kind == kind.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn erase(cx: Cx, grant: AdminGrant, args: Erase) -> Result<Committed<ErasedRecord>, AdminError> {
    let history = cx.history();
    let given = (args.client_id, args.session_id.map(|session| session.0.to_string()), args.item_id);
    let (target, is_meant): (TargetId, Meant) = match given {
        (Some(client), None, None) => {
            let client = String::from(client);
            let named = client.strip_prefix("agent:").unwrap_or(&client).to_owned();
            let is = move |row: &ArtifactRecord| row.client_id.trim_start_matches("agent:") == named;
            (TargetId::new("client", client), Box::new(is))
        }
        (None, Some(session), None) => {
            (TargetId::new("session", &session), Box::new(move |row| row.session_id == session))
        }
        (None, None, Some(item)) => {
            let item = String::from(item);
            (TargetId::new("artifact", &item), Box::new(move |row| row.artifact_id == item))
        }
        _ => {
            let text = "give exactly one of client_id, session_id and item_id";
            return Err(AdminError::argument("client_id", text));
        }
    };
    grant.answer(target, move |op| async move { history.erase(&op, is_meant).await }).await
}
