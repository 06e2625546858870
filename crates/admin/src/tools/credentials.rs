//! `portcullis_credentials_*` and `portcullis_waivers_*`: what is lent to servers, and what is let pass for them. Values enter
//! by the command line alone; no tool takes or returns one (ADM-4, ADM-24).

use portcullis_core::{Clock as _, ServerIdentity, SystemClock};

use crate::args::{Ident, Moment, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CredentialRecord, WaiverRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Facility { Landlock = "landlock", SeccompNotify = "seccomp_notify" }
}

args! {
    pub(crate) struct List { page: Page }
}

args! {
    pub(crate) struct One { name: NonBlank<63> }
}

args! {
    pub(crate) struct Waive { server_id: Ident<ServerIdentity>, kind: Facility, expires_at: Moment }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/credentials",
        tools: vec![
            read_tool("credentials", "list", "List credentials, without their values.", list),
            admin_tool("credentials", "delete", "Forget a credential; leases of it end.", delete),
            admin_tool("waivers", "put", "Start a server without what this machine lacks.", waive),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<CredentialRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.credentials().list()), args.page))
}

async fn delete(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<()>, AdminError> {
    let (credentials, name) = (cx.credentials(), String::from(args.name));
    let target = TargetId::new("credential", &name);
    let ((), receipt) =
        grant.commit(target, move |op| async move { credentials.delete(&op, &name).await }).await?;
    Ok(Committed::ok((), receipt))
}

async fn waive(cx: Cx, grant: AdminGrant, args: Waive) -> Result<Committed<WaiverRecord>, AdminError> {
    let left = args.expires_at.0.since(SystemClock.now());
    let (credentials, server) = (cx.credentials(), args.server_id.0);
    let target = TargetId::new("server", &server);
    let (waiver, receipt) = grant
        .commit(
            target,
            move |op| async move { credentials.waive(&op, &server, args.kind.as_str(), left).await },
        )
        .await?;
    Ok(Committed::ok(waiver, receipt))
}
