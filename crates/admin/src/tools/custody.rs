//! `portcullis_audit_*` that take something out of the evidence, or do something for the log.

use portcullis_audit::KeyName;
use portcullis_core::SessionId;
use serde_json::Value;

use super::audit::{Seq, range};
use crate::args::{Ident, NoArgs, NonBlank};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CassetteRecord, ExportAsked, ExportedRecord, HeldKey};
use crate::tool::{admin_tool, write_tool};
use crate::{ActorRef, Cx, args};

args! {
    pub(crate) struct Export {
        from: Option<Seq>, to: Option<Seq>, recipient: Option<NonBlank<200>>, out: Option<NonBlank>,
    }
}

args! {
    pub(crate) struct Cassette { session_id: Option<Ident<SessionId>>, out: Option<NonBlank> }
}

args! {
    pub(crate) struct Open { seqs: Vec<Seq> }
}

args! {
    pub(crate) struct Hold { kid: Ident<KeyName>, held: bool }
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure/custody",
        tools: vec![
            admin_tool("audit", "export", "Write the log out for others to check.", export),
            admin_tool("audit", "cassette", "Write recorded results to a cassette.", cassette),
            admin_tool("audit", "open", "Open the evidence of records; recorded.", open),
            admin_tool("audit", "hold", "Keep evidence beyond its time, or no longer.", hold),
            admin_tool("audit", "unblock", "Have a blocked log take records again.", unblock),
            write_tool("audit", "rebuild_index", "Make the index of the log anew.", rebuild_index),
        ],
    }
}

async fn export(cx: Cx, grant: AdminGrant, args: Export) -> Result<Committed<ExportedRecord>, AdminError> {
    let (from, to) = range(args.from, args.to)?;
    let recipient = args.recipient.map(|text| text.as_str().parse()).transpose();
    let recipient = recipient.map_err(|error: portcullis_audit::RecipientError| {
        AdminError::argument("recipient", error.to_string())
    })?;
    let asked = ExportAsked { from, to, out: cx.named_path("out", args.out)?, recipient };
    let audit = cx.audit();
    let target = TargetId::new("log", format!("from {from}"));
    grant.answer(target, move |op| async move { audit.export(&op, asked).await }).await
}

async fn cassette(
    cx: Cx,
    grant: AdminGrant,
    args: Cassette,
) -> Result<Committed<CassetteRecord>, AdminError> {
    let (audit, out) = (cx.audit(), cx.named_path("out", args.out)?);
    let session = args.session_id.map(|session| session.0);
    let target = TargetId::new("log", "cassette");
    grant.answer(target, move |op| async move { audit.cassette(&op, session, out).await }).await
}

async fn open(cx: Cx, grant: AdminGrant, args: Open) -> Result<Committed<Vec<Value>>, AdminError> {
    let (audit, seqs) = (cx.audit(), args.seqs.into_iter().map(Seq::get).collect::<Vec<u64>>());
    let named = seqs.iter().take(20).map(u64::to_string).collect::<Vec<_>>().join("+");
    let target = TargetId::new("records", named);
    grant.answer(target, move |op| async move { audit.open(&op, &seqs).await }).await
}

async fn hold(cx: Cx, grant: AdminGrant, args: Hold) -> Result<Committed<HeldKey>, AdminError> {
    let (audit, key) = (cx.audit(), args.kid.0);
    let target = TargetId::new("key", key);
    grant.answer(target, move |op| async move { audit.hold(&op, key, args.held).await }).await
}

async fn unblock(cx: Cx, grant: AdminGrant, _: NoArgs) -> Result<Committed<Value>, AdminError> {
    let audit = cx.audit();
    let target = TargetId::new("log", "blocked");
    let (done, receipt) = grant.reopen(target, move |op| async move { audit.unblock(&op).await }).await?;
    Ok(Committed::ok(done, receipt))
}

async fn rebuild_index(cx: Cx, actor: ActorRef, _: NoArgs) -> Result<Reply<Value>, AdminError> {
    Ok(Reply::ok(cx.audit().rebuild_index(actor.op()).await?))
}
