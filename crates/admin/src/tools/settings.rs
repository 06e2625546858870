//! `portcullis_config_*` and `portcullis_backups_*`.

use serde_json::Value;

use crate::args::{NonBlank, Page, Version};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{BackupRecord, BackupVerified, RestorePlan, SettingRecord};
use crate::tool::{admin_tool, read_tool};
use crate::{Cx, args};

args! {
    pub(crate) struct List { key: Option<NonBlank<80>>, history: Option<bool>, page: Page }
}

args! {
    pub(crate) struct Set { key: NonBlank<80>, value: Value, expected_version: Option<Version> }
}

args! {
    pub(crate) struct Reset { key: NonBlank<80> }
}

args! {
    pub(crate) struct Paged { page: Page }
}

args! {
    pub(crate) struct Create { label: Option<NonBlank<80>> }
}

args! {
    pub(crate) struct One { backup_id: NonBlank<80> }
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure/settings",
        tools: vec![
            read_tool("config", "list", "List settings, and where each comes from.", list),
            admin_tool("config", "set", "Change a setting that is read while the gateway runs.", set),
            admin_tool("config", "reset", "Go back to what the configuration says.", reset),
            read_tool("backups", "list", "List backups.", backups),
            admin_tool("backups", "create", "Copy the evidence.", create),
            read_tool("backups", "verify", "Say whether a backup is whole.", verify),
            admin_tool("backups", "restore", "Begin the next start with a backup.", restore),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<SettingRecord>>, AdminError> {
    let mut rows = match args.history {
        Some(true) => cx.settings().history().await?,
        _ => cx.settings().list(),
    };
    rows.retain(|row| args.key.as_ref().is_none_or(|key| row.key == key.as_str()));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn set(cx: Cx, grant: AdminGrant, args: Set) -> Result<Committed<SettingRecord>, AdminError> {
    let (settings, key) = (cx.settings(), String::from(args.key));
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("setting", &key);
    grant.answer(target, move |op| async move { settings.set(&op, &key, args.value, expected).await }).await
}

async fn reset(cx: Cx, grant: AdminGrant, args: Reset) -> Result<Committed<SettingRecord>, AdminError> {
    let (settings, key) = (cx.settings(), String::from(args.key));
    let target = TargetId::new("setting", &key);
    grant.answer(target, move |op| async move { settings.reset(&op, &key).await }).await
}

async fn backups(cx: Cx, args: Paged) -> Result<Reply<Vec<BackupRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.settings().backups()), args.page))
}

async fn create(cx: Cx, grant: AdminGrant, args: Create) -> Result<Committed<BackupRecord>, AdminError> {
    let settings = cx.settings();
    let label = args.label.map(String::from);
    grant
        .answer(TargetId::new("backup", "new"), move |op| async move { settings.back_up(&op, label).await })
        .await
}

async fn verify(cx: Cx, args: One) -> Result<Reply<BackupVerified>, AdminError> {
    Ok(Reply::ok(cx.settings().verify(args.backup_id.as_str()).await?))
}

async fn restore(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<RestorePlan>, AdminError> {
    let (settings, id) = (cx.settings(), String::from(args.backup_id));
    let target = TargetId::new("backup", &id);
    grant.answer(target, move |op| async move { settings.restore(&op, &id).await }).await
}
