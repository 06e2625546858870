//! The house itself: health, who is in it, its keys, its rules, and what can be done for it.

use portcullis_audit::Health;
use portcullis_core::ServerIdentity;
use portcullis_gateway::exposure::Mode;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::args::{Ident, NoArgs, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, Op, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{FootprintRecord, HouseService};
use crate::tool::{Class, admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Job { Retention = "retention", Reindex = "reindex", Checkpoint = "checkpoint" }
}

words! {
    pub(crate) enum ClientState { Active = "active", Expired = "expired" }
}

args! {
    pub(crate) struct HealthServers { server_id: Option<Ident<ServerIdentity>> }
}

args! {
    pub(crate) struct Paged { page: Page }
}

args! {
    pub(crate) struct Clients { state: Option<ClientState>, page: Page }
}

args! {
    pub(crate) struct OneClient { client_id: NonBlank<80> }
}

args! {
    pub(crate) struct OneUser { user_id: NonBlank<63> }
}

words! {
    pub(crate) enum ModeWord { Passthrough = "passthrough", Transparent = "transparent", Gateway = "gateway" }
}

args! {
    pub(crate) struct Footprint { profile: Option<NonBlank<80>>, mode: Option<ModeWord> }
}

args! {
    pub(crate) struct Maintenance { jobs: Vec<Job> }
}

/// How the gateway is.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HealthRecord {
    status: String,
    components: Vec<Component>,
    servers: usize,
    servers_halted: usize,
    approvals_pending: usize,
    operators_enrolled: usize,
}

/// A part of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Component {
    name: String,
    status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// How a server is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ServerHealth {
    /// Which.
    pub server_id: String,
    /// `active` or `halted`.
    pub state: String,
    /// Why it is halted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halt: Option<String>,
    /// Where the connection to it is.
    pub connection: String,
    /// Requests under way.
    pub in_flight: usize,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it has a process now.
    pub process: bool,
    /// Whether it says something else than was accepted.
    pub drifted: bool,
}

/// A client with a key.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ClientRecord {
    /// Whom records and policies know it as.
    pub client_id: String,
    /// `active` or `expired`.
    pub state: String,
    /// What it may do at most.
    pub grants: Vec<String>,
    /// Since when.
    pub created_at: String,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// An operator with a passphrase.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct UserRecord {
    /// Its name.
    pub user_id: String,
    /// Since when.
    pub enrolled_at: String,
    /// How many tokens it has.
    pub tokens: usize,
}

/// A key of the evidence, or the one that signs checkpoints.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct KeyRecord {
    /// Which.
    pub kid: String,
    /// `log` or `evidence`.
    pub purpose: String,
    /// Whether it is the one that the log announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// Whether it is kept beyond its time.
    pub held: bool,
    /// Whether its time is over.
    pub expired: bool,
}

/// A rule that holds.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RuleRecord {
    rule: String,
    text: String,
}

/// What was started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Started {
    started: Vec<String>,
    keys_destroyed: usize,
}

/// Somebody who is not let in any more.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ended {
    id: String,
    state: String,
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure",
        tools: vec![
            read_tool("health", "check", "Say how the gateway is.", health_check),
            read_tool("health", "servers", "Say how servers are.", health_servers),
            read_tool("clients", "list", "List clients that have a key.", clients),
            read_tool("clients", "get", "Show a client that has a key.", client),
            admin_tool("clients", "revoke", "Take a client's key back; its sessions end.", revoke_client),
            read_tool("users", "list", "List enrolled operators.", users),
            admin_tool("users", "delete", "Remove an operator and its tokens.", delete_user),
            read_tool("keys", "list", "List keys of the log and of the evidence.", keys),
            read_tool("analytics", "footprint", "Say what clients read first, and its cost.", footprint),
            read_tool("meta", "list_rules", "List the rules that hold for admin calls.", rules),
            admin_tool("meta", "run_maintenance", "Run maintenance jobs now.", maintenance),
            read_tool("replicas", "list", "List replicas.", replicas),
        ],
    }
}

async fn health_check(cx: Cx, _: NoArgs) -> Result<Reply<HealthRecord>, AdminError> {
    let house = cx.house();
    let (log, detail) = match house.log_health() {
        Health::Ok => ("ok", None),
        Health::Degraded { reason, .. } => ("degraded", Some(reason)),
        Health::Blocked { reason, .. } => ("blocked", Some(reason)),
    };
    let servers = house.servers(None)?;
    let halted = servers.iter().filter(|server| server.state == "halted").count();
    let failing = servers.iter().filter(|server| server.failures > 0).count();
    let status = if log == "blocked" {
        "blocked"
    } else if log == "degraded" || halted + failing > 0 {
        "degraded"
    } else {
        "ok"
    };
    let component =
        |name: &str, status: &str, detail| Component { name: name.into(), status: status.into(), detail };
    let about = (halted + failing > 0).then(|| format!("{halted} halted, {failing} failing"));
    Ok(Reply::ok(HealthRecord {
        status: status.into(),
        components: vec![
            component("audit", log, detail),
            component("servers", if about.is_some() { "degraded" } else { "ok" }, about),
        ],
        servers: servers.len(),
        servers_halted: halted,
        approvals_pending: house.pending(),
        operators_enrolled: house.users().len(),
    }))
}

async fn health_servers(cx: Cx, args: HealthServers) -> Result<Reply<Vec<ServerHealth>>, AdminError> {
    Ok(Reply::ok(cx.house().servers(args.server_id.as_ref().map(|id| &id.0))?))
}

async fn clients(cx: Cx, args: Clients) -> Result<Reply<Vec<ClientRecord>>, AdminError> {
    let mut rows = cx.house().clients();
    rows.retain(|row| args.state.is_none_or(|state| row.state == state.as_str()));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn client(cx: Cx, args: OneClient) -> Result<Reply<ClientRecord>, AdminError> {
    let wanted = args.client_id.as_str();
    let found = cx.house().clients().into_iter().find(|row| row.client_id == wanted);
    found.map(Reply::ok).ok_or_else(|| AdminError::not_found("there is no client of this name with a key"))
}

async fn revoke_client(cx: Cx, grant: AdminGrant, args: OneClient) -> Result<Committed<Ended>, AdminError> {
    let (house, id) = (cx.house(), String::from(args.client_id));
    let target = TargetId::new("client", &id);
    let (ended, receipt) = grant
        .commit(target, move |op| async move {
            house.revoke_client(&op, &id).await?;
            Ok(Ended { id, state: "revoked".into() })
        })
        .await?;
    Ok(Committed::ok(ended, receipt))
}

async fn users(cx: Cx, args: Paged) -> Result<Reply<Vec<UserRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.house().users()), args.page))
}

async fn delete_user(cx: Cx, grant: AdminGrant, args: OneUser) -> Result<Committed<Ended>, AdminError> {
    let (house, id) = (cx.house(), String::from(args.user_id));
    let target = TargetId::new("user", &id);
    let (ended, receipt) = grant
        .commit(target, move |op| async move {
            house.delete_user(&op, &id).await?;
            Ok(Ended { id, state: "removed".into() })
        })
        .await?;
    Ok(Committed::ok(ended, receipt))
}

async fn keys(cx: Cx, _: NoArgs) -> Result<Reply<Vec<KeyRecord>>, AdminError> {
    Ok(Reply::ok(cx.house().keys().await?))
}

async fn footprint(cx: Cx, args: Footprint) -> Result<Reply<FootprintRecord>, AdminError> {
    let mode = args.mode.map(|mode| match mode {
        ModeWord::Passthrough => Mode::Passthrough,
        ModeWord::Transparent => Mode::Transparent,
        ModeWord::Gateway => Mode::Gateway,
    });
    Ok(Reply::ok(cx.house().footprint(args.profile.map(String::from), mode).await?))
}

async fn rules(cx: Cx, args: Paged) -> Result<Reply<Vec<RuleRecord>>, AdminError> {
    let rule = |rule: &str, text: String| RuleRecord { rule: rule.into(), text };
    let admin = cx.registry.tools().filter(|tool| tool.class() == Class::Admin).count();
    let rows = vec![
        rule(
            "actor",
            format!("{admin} admin tools need an identified operator, confirm: true and a visible reason"),
        ),
        rule("evidence", "nothing changes before its intent is durable; every intent has one outcome".into()),
        rule(
            "pages",
            "offset 0 to 1000000, limit 1 to 500, 50 unless said; answers end at 64 KiB of whole rows".into(),
        ),
        rule("secrets", "arguments that look like a secret are refused; texts are scrubbed".into()),
        rule("agents", "on the agents' channel nothing that changes anything exists".into()),
    ];
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn maintenance(cx: Cx, grant: AdminGrant, args: Maintenance) -> Result<Committed<Started>, AdminError> {
    let house = cx.house();
    let target =
        TargetId::new("maintenance", args.jobs.iter().map(|job| job.as_str()).collect::<Vec<_>>().join("+"));
    let (started, receipt) =
        grant.commit(target, move |op| async move { run(&house, &op, &args.jobs).await }).await?;
    Ok(Committed::ok(started, receipt))
}

async fn run(house: &HouseService, op: &Op, jobs: &[Job]) -> Result<Started, AdminError> {
    let mut done = Started { started: Vec::new(), keys_destroyed: 0 };
    for job in jobs {
        match job {
            Job::Retention => done.keys_destroyed += house.destroy_expired(op).await?,
            Job::Reindex => house.reindex(op).await?,
            Job::Checkpoint => house.checkpoint(op).await?,
        }
        done.started.push(job.as_str().to_owned());
    }
    Ok(done)
}

/// The store of this gateway is its own: there is nobody else to list.
async fn replicas(_: Cx, _: NoArgs) -> Result<Reply<Vec<Value>>, AdminError> {
    Err(AdminError::capability_gap("this gateway keeps its state in SQLite and has no replicas"))
}
