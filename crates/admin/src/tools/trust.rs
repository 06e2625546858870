//! `portcullis_trust_*`.

use portcullis_core::ServerIdentity;

use crate::args::{Ident, NonBlank, Page};
use crate::error::AdminError;
use crate::registry::Module;
use crate::reply::Reply;
use crate::services::TrustRecord;
use crate::tool::read_tool;
use crate::{Cx, args, words};

words! {
    pub(crate) enum State { Untrusted = "untrusted", Probationary = "probationary", Trusted = "trusted" }
}

args! {
    pub(crate) struct List {
        server_id: Option<Ident<ServerIdentity>>, tool: Option<NonBlank>, state: Option<State>, page: Page,
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "approvals/trust",
        tools: vec![read_tool("trust", "list", "List the trust that servers and tools have earned.", list)],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<TrustRecord>>, AdminError> {
    let mut rows = cx.trust().list().await;
    rows.retain(|row| {
        args.server_id.as_ref().is_none_or(|id| row.server_id == id.0.as_str())
            && args.tool.as_ref().is_none_or(|tool| row.tool == tool.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}
