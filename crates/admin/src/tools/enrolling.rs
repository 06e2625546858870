//! `portcullis_users_enrol` and `portcullis_tokens_*`: what operators and their programs prove themselves with. A passphrase is
//! given, a token or a link for a passkey fetched past the tools (ADM-4, ADM-24).

use portcullis_core::{Clock as _, SystemClock};
use portcullis_governance::operator::ssh::PublicKey;
use portcullis_governance::operator::webauthn::CredentialId;

use crate::args::{Moment, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{CreatedToken, EnrolledRecord, TokenRecord, UserRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args};

args! {
    pub(crate) struct Enrol { user_id: NonBlank<63>, ssh_key: Option<NonBlank>, passkey: Option<bool> }
}

args! {
    pub(crate) struct RemovePasskey { user_id: NonBlank<63>, passkey: NonBlank<1400> }
}

args! {
    pub(crate) struct Vouch { user_id: NonBlank<63> }
}

args! {
    pub(crate) struct Tokens { page: Page }
}

args! {
    pub(crate) struct Create { name: NonBlank<63>, expires_at: Option<Moment> }
}

args! {
    pub(crate) struct One { name: NonBlank<63> }
}

pub(super) fn module() -> Module {
    Module {
        name: "organisation/enrolling",
        tools: vec![
            admin_tool(
                "users",
                "enrol",
                "Enrol an operator: with this ssh key, by a link for a passkey, else a passphrase.",
                enrol,
            ),
            admin_tool("users", "remove_passkey", "Remove one passkey of an operator.", remove_passkey),
            admin_tool("users", "vouch", "Say that an operator is not who enrolled it.", vouch),
            read_tool("tokens", "list", "List tokens of operators' programs.", list),
            admin_tool("tokens", "create", "Make a token that speaks for the caller.", create),
            admin_tool("tokens", "revoke", "Take a token back.", revoke),
        ],
    }
}

async fn enrol(cx: Cx, grant: AdminGrant, args: Enrol) -> Result<Committed<EnrolledRecord>, AdminError> {
    let (people, id) = (cx.people(), String::from(args.user_id));
    let key = args.ssh_key.map(|line| PublicKey::parse(line.as_str())).transpose();
    let key = key.map_err(|problem| AdminError::argument("ssh_key", problem))?;
    let passkey = args.passkey.unwrap_or_default();
    if passkey && key.is_some() {
        return Err(AdminError::argument("passkey", "one at a time: ssh_key or passkey"));
    }
    let target = TargetId::new("user", &id);
    grant
        .answer(target, move |op| async move {
            match key {
                Some(key) => people.enrol_key(&op, &id, key).await,
                None if passkey => people.invite_passkey(&op, &id),
                None => people.expect_passphrase(&op, &id),
            }
        })
        .await
}

async fn remove_passkey(
    cx: Cx,
    grant: AdminGrant,
    args: RemovePasskey,
) -> Result<Committed<UserRecord>, AdminError> {
    let (people, id) = (cx.people(), String::from(args.user_id));
    let passkey = CredentialId::try_from(String::from(args.passkey));
    let passkey = passkey.map_err(|problem| AdminError::argument("passkey", problem))?;
    let target = TargetId::new("user", &id);
    grant.answer(target, move |op| async move { people.remove_passkey(&op, &id, &passkey).await }).await
}

async fn vouch(cx: Cx, grant: AdminGrant, args: Vouch) -> Result<Committed<UserRecord>, AdminError> {
    let (people, id) = (cx.people(), String::from(args.user_id));
    let target = TargetId::new("user", &id);
    grant.answer(target, move |op| async move { people.vouch(&op, &id).await }).await
}

async fn list(cx: Cx, args: Tokens) -> Result<Reply<Vec<TokenRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.people().tokens()), args.page))
}

async fn create(cx: Cx, grant: AdminGrant, args: Create) -> Result<Committed<CreatedToken>, AdminError> {
    let (people, name) = (cx.people(), String::from(args.name));
    let lifetime = args.expires_at.map(|end| end.0.since(SystemClock.now()));
    let target = TargetId::new("token", &name);
    grant.answer(target, move |op| async move { people.create_token(&op, &name, lifetime).await }).await
}

async fn revoke(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<()>, AdminError> {
    let (people, name) = (cx.people(), String::from(args.name));
    let target = TargetId::new("token", &name);
    grant.answer(target, move |op| async move { people.revoke_token(&op, &name).await }).await
}
