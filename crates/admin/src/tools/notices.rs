//! `portcullis_signals_*`, `portcullis_notifications_*`, `portcullis_webhooks_*` and `portcullis_deliveries_list`.

use portcullis_core::{Clock as _, SystemClock};
use portcullis_gateway::webhooks::Webhook;

use crate::args::{NonBlank, Page, TimeWindow, Version};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{DeliveryRecord, NotificationRecord, SignalRecord, SignalSnapshot, WebhookRecord};
use crate::tool::{admin_tool, read_tool, write_tool};
use crate::{ActorRef, Cx, args, words};

words! {
    pub(crate) enum Kind {
        ErrorSpike = "error_spike", LatencySpike = "latency_spike", RefusalSpike = "refusal_spike", Drift = "drift",
        MarkerHits = "marker_hits", ScopeViolation = "scope_violation", QuotaNear = "quota_near",
        ApprovalBacklog = "approval_backlog", PermitFailures = "permit_failures", AuditLag = "audit_lag",
        SecretEcho = "secret_echo",
    }
}

words! {
    pub(crate) enum Severity { Info = "info", Warning = "warning", Critical = "critical" }
}

words! {
    pub(crate) enum State { Open = "open", Acknowledged = "acknowledged", Resolved = "resolved" }
}

words! {
    pub(crate) enum Delivered { Delivered = "delivered", Failed = "failed" }
}

args! {
    pub(crate) struct Signals {
        kind: Option<Kind>, severity: Option<Severity>, state: Option<State>, window: TimeWindow, page: Page,
    }
}

args! {
    pub(crate) struct Acknowledge { signal_id: NonBlank<80>, note: Option<NonBlank<500>> }
}

args! {
    pub(crate) struct Notifications { unread: Option<bool>, page: Page }
}

args! {
    pub(crate) struct Ack { notification_id: NonBlank<80> }
}

args! {
    pub(crate) struct Paged { page: Page }
}

args! {
    pub(crate) struct Put {
        webhook_id: NonBlank<63>, url: NonBlank<1024>, events: Vec<NonBlank<80>>, secret_handle: NonBlank<63>, enabled: bool,
        expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct One { webhook_id: NonBlank<63> }
}

args! {
    pub(crate) struct Deliveries { webhook_id: Option<NonBlank<63>>, status: Option<Delivered>, page: Page }
}

pub(super) fn module() -> Module {
    Module {
        name: "signals",
        tools: vec![
            read_tool("signals", "snapshot", "Count what is open, with the rules.", snapshot),
            read_tool("signals", "list", "List what somebody should look at, newest first.", signals),
            write_tool("signals", "acknowledge", "Say that you have looked at a signal.", acknowledge),
            read_tool(
                "notifications",
                "list",
                "List what operators may want to know, newest first.",
                notifications,
            ),
            write_tool("notifications", "ack", "Say that you have read a notification.", ack),
            read_tool("webhooks", "list", "List who is told what.", webhooks),
            admin_tool("webhooks", "put", "Tell a program elsewhere what happens.", put),
            admin_tool("webhooks", "delete", "Tell a program nothing any more.", delete),
            admin_tool("webhooks", "test", "Tell a program something now.", test),
            read_tool("deliveries", "list", "List what came of telling programs, newest first.", deliveries),
        ],
    }
}

async fn snapshot(cx: Cx, _: crate::args::NoArgs) -> Result<Reply<SignalSnapshot>, AdminError> {
    Ok(Reply::ok(cx.notices().snapshot().await?))
}

async fn signals(cx: Cx, args: Signals) -> Result<Reply<Vec<SignalRecord>>, AdminError> {
    let (since, until) = args.window.bounds(SystemClock.now());
    let (since, until) = (since.to_string(), until.to_string());
    let mut rows = cx.notices().signals().await?;
    rows.retain(|row| {
        args.kind.is_none_or(|kind| row.kind == kind.as_str())
            && args.severity.is_none_or(|severity| row.severity == severity.as_str())
            && args.state.is_none_or(|state| row.state == state.as_str())
            // Both are written the same way, so that they compare as they are.
            && row.opened_at >= since
            && row.opened_at < until
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn acknowledge(cx: Cx, actor: ActorRef, args: Acknowledge) -> Result<Reply<SignalRecord>, AdminError> {
    let note = args.note.map(String::from);
    Ok(Reply::ok(cx.notices().acknowledge(actor.op(), args.signal_id.as_str(), note).await?))
}

async fn notifications(cx: Cx, args: Notifications) -> Result<Reply<Vec<NotificationRecord>>, AdminError> {
    let mut rows = cx.notices().notifications().await?;
    rows.retain(|row| args.unread.is_none_or(|unread| row.unread == unread));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn ack(cx: Cx, actor: ActorRef, args: Ack) -> Result<Reply<NotificationRecord>, AdminError> {
    Ok(Reply::ok(cx.notices().read(actor.op(), args.notification_id.as_str()).await?))
}

async fn webhooks(cx: Cx, args: Paged) -> Result<Reply<Vec<WebhookRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.notices().webhooks()), args.page))
}

async fn put(cx: Cx, grant: AdminGrant, args: Put) -> Result<Committed<WebhookRecord>, AdminError> {
    let notices = cx.notices();
    let webhook = Webhook {
        webhook_id: args.webhook_id.into(),
        url: args.url.into(),
        events: args.events.into_iter().map(String::from).collect(),
        secret_handle: args.secret_handle.into(),
        enabled: args.enabled,
    };
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("webhook", &webhook.webhook_id);
    grant.answer(target, move |op| async move { notices.put_webhook(&op, webhook, expected).await }).await
}

async fn delete(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<()>, AdminError> {
    let (notices, id) = (cx.notices(), String::from(args.webhook_id));
    let target = TargetId::new("webhook", &id);
    grant.answer(target, move |op| async move { notices.delete_webhook(&op, &id).await }).await
}

async fn test(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<DeliveryRecord>, AdminError> {
    let (notices, id) = (cx.notices(), String::from(args.webhook_id));
    let target = TargetId::new("webhook", &id);
    grant.answer(target, move |op| async move { notices.test_webhook(&op, &id).await }).await
}

async fn deliveries(cx: Cx, args: Deliveries) -> Result<Reply<Vec<DeliveryRecord>>, AdminError> {
    let mut rows = cx.notices().deliveries().await?;
    rows.retain(|row| {
        args.webhook_id.as_ref().is_none_or(|id| row.webhook_id == id.as_str())
            && args.status.is_none_or(|status| row.status == status.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}
