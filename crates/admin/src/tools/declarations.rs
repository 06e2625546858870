//! `portcullis_declarations_*` besides accepting: what is declared of servers, compared, drafted, handed in, rejected.

use portcullis_core::ServerIdentity;

use crate::args::{Ident, NonBlank};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{DeclarationDiff, DeclarationRecord, DraftedDeclaration};
use crate::tool::{admin_tool, read_tool, write_tool};
use crate::{ActorRef, Cx, args};

args! {
    pub(crate) struct One { server_id: Ident<ServerIdentity>, version: NonBlank<100> }
}

args! {
    pub(crate) struct Diff { server_id: Ident<ServerIdentity>, from: NonBlank<100>, to: NonBlank<100> }
}

args! {
    pub(crate) struct Draft { server_id: Ident<ServerIdentity>, from_denials: Option<bool> }
}

args! {
    pub(crate) struct Submit { server_id: Ident<ServerIdentity>, declaration: NonBlank<16777216> }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/declarations",
        tools: vec![
            read_tool("declarations", "get", "Show a declaration, accepted or handed in.", get),
            read_tool("declarations", "diff", "Compare two declarations of a server.", diff),
            write_tool("declarations", "draft", "Draft a declaration; nothing is accepted.", draft),
            write_tool("declarations", "submit", "Hand in a declaration, to be decided about.", submit),
            admin_tool("declarations", "reject", "Reject a declaration that was handed in.", reject),
        ],
    }
}

async fn get(cx: Cx, args: One) -> Result<Reply<DeclarationRecord>, AdminError> {
    Ok(Reply::ok(cx.servers().declaration(&args.server_id.0, args.version.as_str()).await?))
}

async fn diff(cx: Cx, args: Diff) -> Result<Reply<DeclarationDiff>, AdminError> {
    Ok(Reply::ok(cx.servers().compare(&args.server_id.0, args.from.as_str(), args.to.as_str()).await?))
}

async fn draft(cx: Cx, actor: ActorRef, args: Draft) -> Result<Reply<DraftedDeclaration>, AdminError> {
    let from_denials = args.from_denials.unwrap_or(false);
    Ok(Reply::ok(cx.servers().draft(actor.op(), &args.server_id.0, from_denials).await?))
}

async fn submit(cx: Cx, actor: ActorRef, args: Submit) -> Result<Reply<DeclarationRecord>, AdminError> {
    Ok(Reply::ok(cx.servers().submit(actor.op(), &args.server_id.0, args.declaration.as_str()).await?))
}

async fn reject(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<DeclarationRecord>, AdminError> {
    let (servers, id, version) = (cx.servers(), args.server_id.0, String::from(args.version));
    let target = TargetId::new("server", &id);
    grant.answer(target, move |op| async move { servers.reject(&op, &id, &version).await }).await
}
