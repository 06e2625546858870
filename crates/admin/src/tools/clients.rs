//! `portcullis_clients_*`, `portcullis_profiles_*` and `portcullis_quotas_*`: agents, what they are shown, what they may use.

use portcullis_core::{Clock as _, SystemClock};
use portcullis_gateway::access::DECLARED;
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::orders::{Autonomy, Beyond, Metric, Profile, Quota, Subject, Window};

use crate::args::{Ident, Integer, Moment, NonBlank, Page, TimeWindow, Version};
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{
    ClientChange, ClientDetail, ClientRecord, CreatedClient, IssuedKey, ProfileRecord, QuotaRecord,
    RevokedClient, RotatedKey, UsageRecord,
};
use crate::tool::{admin_tool, read_tool};
use crate::tools::house::ModeWord;
use crate::{Cx, args, words};

words! {
    pub(crate) enum State { Active = "active", Expired = "expired", Revoked = "revoked" }
}

words! {
    pub(crate) enum Kind { Agent = "agent", Human = "human", Service = "service" }
}

words! {
    pub(crate) enum Level { Locked = "locked", Supervised = "supervised", Semi = "semi", Full = "full" }
}

words! {
    pub(crate) enum MetricWord {
        Calls = "calls", BytesOut = "bytes_out", TokensOut = "tokens_out", Concurrent = "concurrent",
        CostMicros = "cost_micros",
    }
}

words! {
    pub(crate) enum WindowWord { Minute = "minute", Hour = "hour", Day = "day", Month = "month", Session = "session" }
}

words! {
    pub(crate) enum ActionWord { Refuse = "refuse", Approve = "approve", Signal = "signal" }
}

args! {
    pub(crate) struct List { state: Option<State>, team_id: Option<NonBlank<80>>, page: Page }
}

args! {
    pub(crate) struct One { client_id: NonBlank<80> }
}

args! {
    pub(crate) struct Create {
        client_id: NonBlank<80>, display_name: NonBlank<200>, kind: Kind, team_id: Option<NonBlank<80>>,
        profile_id: Option<NonBlank<80>>, grants: Option<Vec<NonBlank<200>>>,
    }
}

args! {
    pub(crate) struct Update {
        client_id: NonBlank<80>, display_name: Option<NonBlank<200>>, team_id: Option<NonBlank<80>>,
        profile_id: Option<NonBlank<80>>, roles: Option<Vec<NonBlank<80>>>, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct SetGrants {
        client_id: NonBlank<80>, grants: Vec<NonBlank<200>>, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct IssueKey {
        client_id: NonBlank<80>, grants: Option<Vec<NonBlank<200>>>, groups: Option<Vec<NonBlank<80>>>,
        expires_at: Option<Moment>,
    }
}

args! {
    pub(crate) struct SetAutonomy { client_id: NonBlank<80>, level: Level }
}

args! {
    pub(crate) struct Paged { page: Page }
}

args! {
    pub(crate) struct PutProfile {
        profile_id: NonBlank<80>, mode: ModeWord, namespaces: Option<Vec<NonBlank<80>>>,
        result_budget: Option<Integer<256, 16_777_216>>, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct OneProfile { profile_id: NonBlank<80> }
}

args! {
    pub(crate) struct Quotas {
        subject: Option<Ident<Subject>>, metric: Option<MetricWord>, history: Option<bool>, page: Page,
    }
}

args! {
    pub(crate) struct Usage { subject: Ident<Subject>, window: TimeWindow }
}

args! {
    pub(crate) struct SetQuota {
        subject: Ident<Subject>, metric: MetricWord, limit: Integer<0, 9_007_199_254_740_991>, window: WindowWord,
        action: ActionWord, expected_version: Option<Version>,
    }
}

args! {
    pub(crate) struct ClearQuota { subject: Ident<Subject>, metric: MetricWord }
}

pub(super) fn module() -> Module {
    Module {
        name: "agents",
        tools: vec![
            read_tool("clients", "list", "List agents.", list),
            read_tool("clients", "get", "Show an agent with its quotas.", get).for_owners(),
            admin_tool("clients", "create", "Make an agent; its key waits to be fetched.", create),
            admin_tool("clients", "update", "Change what is known of an agent.", update),
            admin_tool("clients", "rotate_key", "Give an agent another key.", rotate_key),
            admin_tool("clients", "issue_key", "Give an agent a key, known before or not.", issue_key),
            admin_tool("clients", "revoke", "Take back an agent's access.", revoke),
            admin_tool("clients", "set_grants", "Change what an agent may do at most.", set_grants),
            admin_tool("clients", "set_autonomy", "Change how far an agent goes by itself.", set_autonomy),
            read_tool("profiles", "list", "List exposure profiles.", profiles),
            admin_tool("profiles", "put", "Set what clients of a profile are shown.", put_profile),
            admin_tool("profiles", "delete", "Remove a profile that nobody has.", delete_profile),
            read_tool("quotas", "list", "List quotas.", quotas),
            read_tool("quotas", "usage", "Say what is used of a subject's quotas.", usage),
            admin_tool("quotas", "set", "Limit what a subject uses in a while.", set_quota),
            admin_tool("quotas", "clear", "Take a quota away.", clear_quota),
        ],
    }
}

fn texts<const N: usize>(list: Option<Vec<NonBlank<N>>>) -> Vec<String> {
    list.unwrap_or_default().into_iter().map(String::from).collect()
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ClientRecord>>, AdminError> {
    let mut rows = cx.clients().list();
    rows.retain(|row| {
        args.state.is_none_or(|state| row.state == state.as_str())
            && args.team_id.as_ref().is_none_or(|team| row.team_id.as_deref() == Some(team.as_str()))
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<ClientDetail>, AdminError> {
    let id = args.client_id.as_str();
    let principal = format!("agent:{}", id.trim_start_matches("agent:"));
    // Of others an agent learns not even whether they are there.
    if !cx.may_see(&principal) {
        let shown = portcullis_core::name::printable(id);
        return Err(AdminError::not_found(format!("client {shown} does not exist")));
    }
    let found = cx.clients().get(id)?;
    let last_seen = cx.history().last_seen(principal).await?;
    Ok(Reply::ok(ClientDetail { last_seen, ..found }))
}

async fn create(cx: Cx, grant: AdminGrant, args: Create) -> Result<Committed<CreatedClient>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let change = ClientChange {
        display_name: Some(args.display_name.into()),
        team_id: args.team_id.map(String::from),
        profile_id: args.profile_id.map(String::from),
        roles: None,
    };
    let (kind, grants) = (args.kind, texts(args.grants));
    grant
        .answer(TargetId::new("client", &id), move |op| async move {
            clients.create(&op, (&id, kind.as_str()), change, grants).await
        })
        .await
}

async fn update(cx: Cx, grant: AdminGrant, args: Update) -> Result<Committed<ClientRecord>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let change = ClientChange {
        display_name: args.display_name.map(String::from),
        team_id: args.team_id.map(String::from),
        profile_id: args.profile_id.map(String::from),
        roles: args.roles.map(|roles| texts(Some(roles))),
    };
    let expected = args.expected_version.map(Version::get);
    grant
        .answer(TargetId::new("client", &id), move |op| async move {
            clients.update(&op, &id, change, expected).await
        })
        .await
}

async fn rotate_key(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<RotatedKey>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let target = TargetId::new("client", &id);
    grant.answer(target, move |op| async move { clients.rotate_key(&op, &id).await }).await
}

async fn issue_key(cx: Cx, grant: AdminGrant, args: IssueKey) -> Result<Committed<IssuedKey>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let grants = match args.grants {
        Some(grants) => texts(Some(grants)),
        None => vec![DECLARED.to_owned()],
    };
    let groups = texts(args.groups);
    let lifetime = args.expires_at.map(|end| end.0.since(SystemClock.now()));
    let target = TargetId::new("client", &id);
    grant
        .answer(
            target,
            move |op| async move { clients.issue_key(&op, &id, (grants, groups), lifetime).await },
        )
        .await
}

async fn revoke(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<RevokedClient>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let target = TargetId::new("client", &id);
    grant.answer(target, move |op| async move { clients.revoke(&op, &id).await }).await
}

async fn set_grants(
    cx: Cx,
    grant: AdminGrant,
    args: SetGrants,
) -> Result<Committed<ClientRecord>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let (grants, expected) = (texts(Some(args.grants)), args.expected_version.map(Version::get));
    grant
        .answer(TargetId::new("client", &id), move |op| async move {
            clients.set_grants(&op, &id, grants, expected).await
        })
        .await
}

async fn set_autonomy(
    cx: Cx,
    grant: AdminGrant,
    args: SetAutonomy,
) -> Result<Committed<ClientRecord>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.client_id));
    let level = match args.level {
        Level::Locked => Autonomy::Locked,
        Level::Supervised => Autonomy::Supervised,
        Level::Semi => Autonomy::Semi,
        Level::Full => Autonomy::Full,
    };
    let target = TargetId::new("client", &id);
    grant.answer(target, move |op| async move { clients.set_autonomy(&op, &id, level).await }).await
}

async fn profiles(cx: Cx, args: Paged) -> Result<Reply<Vec<ProfileRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.clients().profiles()), args.page))
}

async fn put_profile(
    cx: Cx,
    grant: AdminGrant,
    args: PutProfile,
) -> Result<Committed<ProfileRecord>, AdminError> {
    let clients = cx.clients();
    let profile = Profile {
        profile_id: args.profile_id.into(),
        mode: match args.mode {
            ModeWord::Passthrough => Mode::Passthrough,
            ModeWord::Transparent => Mode::Transparent,
            ModeWord::Gateway => Mode::Gateway,
        },
        namespaces: texts(args.namespaces),
        result_budget: args.result_budget.map(Integer::get),
    };
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("profile", &profile.profile_id);
    grant.answer(target, move |op| async move { clients.put_profile(&op, profile, expected).await }).await
}

async fn delete_profile(cx: Cx, grant: AdminGrant, args: OneProfile) -> Result<Committed<()>, AdminError> {
    let (clients, id) = (cx.clients(), String::from(args.profile_id));
    let target = TargetId::new("profile", &id);
    grant.answer(target, move |op| async move { clients.delete_profile(&op, &id).await }).await
}

async fn quotas(cx: Cx, args: Quotas) -> Result<Reply<Vec<QuotaRecord>>, AdminError> {
    let mut rows = match args.history {
        Some(true) => cx.history().quotas().await?,
        _ => cx.clients().quotas(),
    };
    rows.retain(|row| {
        args.subject.as_ref().is_none_or(|subject| row.subject == subject.0.to_string())
            && args.metric.is_none_or(|metric| row.metric == metric.as_str())
    });
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn usage(cx: Cx, args: Usage) -> Result<Reply<Vec<UsageRecord>>, AdminError> {
    let mut rows = cx.clients().usage(&args.subject.0);
    // A stretch of time that was asked for is counted from the log; the running windows are known without.
    if args.window != TimeWindow::default() {
        let bounds = args.window.bounds(SystemClock.now());
        rows = cx.history().used(&args.subject.0, bounds, rows).await?;
    }
    Ok(Reply::ok(rows))
}

async fn set_quota(cx: Cx, grant: AdminGrant, args: SetQuota) -> Result<Committed<QuotaRecord>, AdminError> {
    let clients = cx.clients();
    let quota = Quota {
        subject: args.subject.0,
        metric: metric(args.metric),
        limit: args.limit.get(),
        window: match args.window {
            WindowWord::Minute => Window::Minute,
            WindowWord::Hour => Window::Hour,
            WindowWord::Day => Window::Day,
            WindowWord::Month => Window::Month,
            WindowWord::Session => Window::Session,
        },
        action: match args.action {
            ActionWord::Refuse => Beyond::Refuse,
            ActionWord::Approve => Beyond::Approve,
            ActionWord::Signal => Beyond::Signal,
        },
    };
    let expected = args.expected_version.map(Version::get);
    let target = TargetId::new("quota", Quota::key(&quota.subject, quota.metric));
    grant.answer(target, move |op| async move { clients.set_quota(&op, quota, expected).await }).await
}

async fn clear_quota(
    cx: Cx,
    grant: AdminGrant,
    args: ClearQuota,
) -> Result<Committed<QuotaRecord>, AdminError> {
    let (clients, subject, metric) = (cx.clients(), args.subject.0, metric(args.metric));
    let target = TargetId::new("quota", Quota::key(&subject, metric));
    grant.answer(target, move |op| async move { clients.clear_quota(&op, &subject, metric).await }).await
}

fn metric(word: MetricWord) -> Metric {
    match word {
        MetricWord::Calls => Metric::Calls,
        MetricWord::BytesOut => Metric::BytesOut,
        MetricWord::TokensOut => Metric::TokensOut,
        MetricWord::Concurrent => Metric::Concurrent,
        MetricWord::CostMicros => Metric::CostMicros,
    }
}
