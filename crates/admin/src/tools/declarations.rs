//! `portcullis_declarations_*`: accepting what a server has become.

use portcullis_core::ServerIdentity;

use crate::args::{Ident, NonBlank};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::Committed;
use crate::services::ServerDetail;
use crate::tool::admin_tool;
use crate::{Cx, args};

args! {
    pub(crate) struct Accept {
        server_id: Ident<ServerIdentity>, replaces: Option<NonBlank>, carry_approvals: Option<bool>,
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/declarations",
        tools: vec![admin_tool(
            "declarations",
            "accept",
            "Accept what a server offers now in place of a declaration.",
            accept,
        )],
    }
}

async fn accept(cx: Cx, grant: AdminGrant, args: Accept) -> Result<Committed<ServerDetail>, AdminError> {
    let (servers, id) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &id);
    let (detail, receipt) = grant
        .commit(target, move |op| async move {
            let replaces = args.replaces.as_ref().map(NonBlank::as_str);
            servers.accept_live(&op, &id, replaces, args.carry_approvals.unwrap_or(false)).await
        })
        .await?;
    Ok(Committed::ok(detail, receipt))
}
