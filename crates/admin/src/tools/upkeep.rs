//! `portcullis_locks_*`, `portcullis_processes_restart`, `portcullis_catalog_refresh` and `portcullis_permits_check`: single things
//! put right.

use portcullis_core::{PermitId, ServerIdentity};
use serde_json::Value;

use crate::args::{Ident, Integer, JsonObject, NoArgs, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CheckRecord, LockRecord, RestartedRecord};
use crate::tool::{admin_tool, read_tool, write_tool};
use crate::{ActorRef, Cx, args};

args! {
    pub(crate) struct Locks { page: Page }
}

args! {
    pub(crate) struct OneLock { lock_id: NonBlank<80> }
}

args! {
    pub(crate) struct Restart { server_id: Ident<ServerIdentity>, process_id: Option<Integer<1, 4_194_304>> }
}

args! {
    pub(crate) struct Check { permit_id: Ident<PermitId>, arguments: JsonObject }
}

pub(super) fn module() -> Module {
    Module {
        name: "coordination",
        tools: vec![
            read_tool("locks", "list", "List turns of servers that answer one call at a time.", locks),
            admin_tool("locks", "release", "Take a turn away from who has it.", release),
            admin_tool("processes", "restart", "End a server's process; a call starts another.", restart),
            write_tool("catalog", "refresh", "Build the catalogue again.", refresh_catalogue),
            read_tool("permits", "check", "Say what the eight checks would say of a permit.", check),
        ],
    }
}

async fn locks(cx: Cx, args: Locks) -> Result<Reply<Vec<LockRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.sessions().locks()), args.page))
}

async fn release(cx: Cx, grant: AdminGrant, args: OneLock) -> Result<Committed<LockRecord>, AdminError> {
    let (sessions, id) = (cx.sessions(), String::from(args.lock_id));
    let target = TargetId::new("lock", &id);
    grant.answer(target, move |op| async move { sessions.release(&op, &id) }).await
}

async fn restart(cx: Cx, grant: AdminGrant, args: Restart) -> Result<Committed<RestartedRecord>, AdminError> {
    let (sessions, id) = (cx.sessions(), args.server_id.0);
    let process = args.process_id.map(|process| process.get() as u32);
    let target = TargetId::new("server", &id);
    grant.answer(target, move |op| async move { sessions.restart(&op, &id, process).await }).await
}

async fn refresh_catalogue(cx: Cx, actor: ActorRef, _: NoArgs) -> Result<Reply<Value>, AdminError> {
    Ok(Reply::ok(cx.house().reindex(actor.op()).await?))
}

async fn check(cx: Cx, args: Check) -> Result<Reply<Vec<CheckRecord>>, AdminError> {
    let arguments = Value::Object(args.arguments.0).to_string();
    Ok(Reply::ok(cx.sessions().check(args.permit_id.0, &arguments).await?))
}
