//! `portcullis_servers_*`.

use portcullis_core::ServerIdentity;

use crate::args::{Ident, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{ServerDetail, ServerRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Transport { Stdio = "stdio", Http = "http", Sse = "sse" }
}

words! {
    pub(crate) enum State { Active = "active", Halted = "halted" }
}

args! {
    pub(crate) struct List { state: Option<State>, transport: Option<Transport>, page: Page }
}

args! {
    pub(crate) struct One { server_id: Ident<ServerIdentity> }
}

args! {
    pub(crate) struct SetState { server_id: Ident<ServerIdentity>, state: State }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/servers",
        tools: vec![
            read_tool("servers", "list", "List registered servers.", list),
            read_tool("servers", "get", "Show one server with its tools and pins.", get),
            admin_tool("servers", "set_state", "Halt a server, or let it run again.", set_state),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ServerRecord>>, AdminError> {
    let rows = cx.servers().list(args.state.map(State::as_str), args.transport.map(Transport::as_str));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<ServerDetail>, AdminError> {
    Ok(Reply::ok(cx.servers().get(&args.server_id.0).await?))
}

async fn set_state(cx: Cx, grant: AdminGrant, args: SetState) -> Result<Committed<ServerRecord>, AdminError> {
    let (servers, id) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &id);
    let (record, receipt) = grant
        .commit(target, move |op| async move {
            match args.state {
                State::Active => servers.resume(&op, &id).await,
                State::Halted => servers.halt(&op, &id).await,
            }
        })
        .await?;
    Ok(Committed::ok(record, receipt))
}
