//! `portcullis_credentials_*` and `portcullis_waivers_*`: what is lent to servers, and what is let pass for them. Values enter
//! past the tools, by capture or by command; no tool takes or returns one (ADM-4, ADM-24).

use portcullis_core::{Clock as _, ServerIdentity, SystemClock};
use portcullis_governance::broker::vault::Kind;

use crate::args::{Ident, Moment, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CaptureRecord, CredentialRecord, Expected, SigningKeyFile, WaiverRecord};
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

words! {
    pub(crate) enum CredentialKind { Token = "token", Basic = "basic", Oauth2 = "oauth2", Mtls = "mtls", Env = "env" }
}

args! {
    pub(crate) struct Capture {
        name: NonBlank<63>, kind: CredentialKind, server_id: Option<Ident<ServerIdentity>>,
        credential_class: Option<NonBlank<80>>, rotate: Option<bool>,
    }
}

args! {
    pub(crate) struct Bind { name: NonBlank<63>, server_id: Ident<ServerIdentity>, credential_class: NonBlank<80> }
}

args! {
    pub(crate) struct Unbind { name: NonBlank<63>, server_id: Ident<ServerIdentity> }
}

args! {
    pub(crate) struct Subscription { server_id: Ident<ServerIdentity>, subscription_id: NonBlank<200> }
}

args! {
    pub(crate) struct OneWaiver { waiver_id: NonBlank<200> }
}

args! {
    pub(crate) struct Waive { server_id: Ident<ServerIdentity>, kind: Facility, expires_at: Moment }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/credentials",
        tools: vec![
            read_tool("credentials", "list", "List credentials, without their values.", list),
            admin_tool(
                "credentials",
                "capture",
                "Expect a credential, which is given past the tools.",
                capture,
            ),
            admin_tool("credentials", "bind", "Give a credential the class that a server declares.", bind),
            admin_tool("credentials", "unbind", "Keep a credential from a server.", unbind),
            admin_tool("credentials", "delete", "Forget a credential; leases of it end.", delete),
            admin_tool(
                "credentials",
                "export_signing_key",
                "Write the signing key of a subscription to a file, once.",
                export_signing_key,
            ),
            admin_tool("waivers", "revoke", "End a waiver.", revoke_waiver),
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
    grant.answer(target, move |op| async move { credentials.delete(&op, &name).await }).await
}

async fn export_signing_key(
    cx: Cx,
    grant: AdminGrant,
    args: Subscription,
) -> Result<Committed<SigningKeyFile>, AdminError> {
    let (credentials, server) = (cx.credentials(), args.server_id.0);
    let subscription = String::from(args.subscription_id);
    let target = TargetId::new("server", &server);
    grant
        .answer(
            target,
            move |op| async move { credentials.export_signing_key(&op, &server, &subscription).await },
        )
        .await
}

async fn waive(cx: Cx, grant: AdminGrant, args: Waive) -> Result<Committed<WaiverRecord>, AdminError> {
    let left = args.expires_at.0.since(SystemClock.now());
    let (credentials, server) = (cx.credentials(), args.server_id.0);
    let target = TargetId::new("server", &server);
    grant
        .answer(
            target,
            move |op| async move { credentials.waive(&op, &server, args.kind.as_str(), left).await },
        )
        .await
}

async fn revoke_waiver(
    cx: Cx,
    grant: AdminGrant,
    args: OneWaiver,
) -> Result<Committed<WaiverRecord>, AdminError> {
    let (credentials, id) = (cx.credentials(), String::from(args.waiver_id));
    let target = TargetId::new("waiver", &id);
    grant.answer(target, move |op| async move { credentials.revoke_waiver(&op, &id).await }).await
}

async fn capture(cx: Cx, grant: AdminGrant, args: Capture) -> Result<Committed<CaptureRecord>, AdminError> {
    let oauth2 = args.kind == CredentialKind::Oauth2;
    // A login is made by a command, which hands over what it left.
    if oauth2 && !cx.actor.as_ref().is_some_and(crate::Actor::is_here) {
        return Err(AdminError::capability_gap(
            "the vault keeps values that stay as they are; oauth2 is not among them",
        ));
    }
    let (credentials, name) = (cx.credentials(), String::from(args.name));
    let expected = Expected {
        class: args.credential_class.map(String::from),
        server: args.server_id.map(|server| server.0),
        kind: match args.kind {
            CredentialKind::Oauth2 => Kind::Oauth2,
            CredentialKind::Mtls => Kind::Mtls,
            CredentialKind::Token | CredentialKind::Basic | CredentialKind::Env => Kind::Static,
        },
        again: args.rotate,
    };
    let target = TargetId::new("credential", &name);
    grant.answer(target, move |op| async move { credentials.capture(&op, &name, expected) }).await
}

async fn bind(cx: Cx, grant: AdminGrant, args: Bind) -> Result<Committed<CredentialRecord>, AdminError> {
    let (credentials, name, server) = (cx.credentials(), String::from(args.name), args.server_id.0);
    let target = TargetId::new("credential", &name);
    grant
        .answer(target, move |op| async move {
            credentials.bind(&op, &name, &server, args.credential_class.as_str()).await
        })
        .await
}

async fn unbind(cx: Cx, grant: AdminGrant, args: Unbind) -> Result<Committed<CredentialRecord>, AdminError> {
    let (credentials, name, server) = (cx.credentials(), String::from(args.name), args.server_id.0);
    let target = TargetId::new("credential", &name);
    grant.answer(target, move |op| async move { credentials.unbind(&op, &name, &server).await }).await
}
