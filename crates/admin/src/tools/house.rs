//! The house itself: health, who is in it, its keys, its rules, and what can be done for it.

use portcullis_audit::Health;
use portcullis_core::ServerIdentity;
use portcullis_gateway::exposure::Mode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{Ident, NoArgs, NonBlank, Page};
use crate::error::AdminError;
use crate::grant::{AdminGrant, Op, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{FootprintRecord, HouseService};
use crate::tool::{Class, admin_tool, read_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Job { Retention = "retention", Reindex = "reindex", Checkpoint = "checkpoint", Refresh = "refresh" }
}

args! {
    pub(crate) struct HealthServers { server_id: Option<Ident<ServerIdentity>> }
}

args! {
    pub(crate) struct Paged { page: Page }
}

words! {
    pub(crate) enum ModeWord { Passthrough = "passthrough", Transparent = "transparent", Gateway = "gateway" }
}

words! {
    pub(crate) enum Purpose { Log = "log", Evidence = "evidence", Artifact = "artifact" }
}

args! {
    pub(crate) struct Rotate { purpose: Purpose }
}

/// The key in use now.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rotated {
    kid: String,
    purpose: String,
    /// The one that it takes the place of.
    replaces: String,
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
    /// What it seals, if it is one of the evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Of which day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
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
    /// Which.
    destroyed: Vec<String>,
}

pub(super) fn module() -> Module {
    Module {
        name: "infrastructure",
        tools: vec![
            read_tool("health", "check", "Say how the gateway is.", health_check),
            read_tool("health", "servers", "Say how servers are.", health_servers),
            read_tool("keys", "list", "List keys of the log and of the evidence.", keys),
            admin_tool("keys", "rotate", "Sign or seal with another key from now on.", rotate_key),
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
        operators_enrolled: house.operators(),
    }))
}

async fn health_servers(cx: Cx, args: HealthServers) -> Result<Reply<Vec<ServerHealth>>, AdminError> {
    Ok(Reply::ok(cx.house().servers(args.server_id.as_ref().map(|id| &id.0))?))
}

async fn keys(cx: Cx, _: NoArgs) -> Result<Reply<Vec<KeyRecord>>, AdminError> {
    Ok(Reply::ok(cx.house().keys().await?))
}

async fn rotate_key(cx: Cx, grant: AdminGrant, args: Rotate) -> Result<Committed<Rotated>, AdminError> {
    let (house, purpose) = (cx.house(), args.purpose);
    let target = TargetId::new("key", purpose.as_str());
    grant.answer(target, move |op| async move {
            let (kid, replaces) = match purpose {
                Purpose::Log => house.rotate_signer(&op).await?,
                // Both change by themselves: every day has keys of its own, and every artifact is sealed with its own.
                Purpose::Evidence | Purpose::Artifact => {
                    let text = "these keys change by themselves: evidence has another key each day, each artifact its own";
                    return Err(AdminError::capability_gap(text));
                }
            };
            Ok(Rotated { kid, purpose: purpose.as_str().to_owned(), replaces })
        }).await
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
    let four_eyes = cx.control.four_eyes().join(" ");
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
        rule(
            "four_eyes",
            match four_eyes.is_empty() {
                true => "no tool takes two operators; admin.four_eyes names those that would".into(),
                false => format!("a second operator agrees to: {four_eyes}"),
            },
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
    grant.answer(target, move |op| async move { run(&house, &op, &args.jobs).await }).await
}

async fn run(house: &HouseService, op: &Op, jobs: &[Job]) -> Result<Started, AdminError> {
    let mut done = Started { started: Vec::new(), keys_destroyed: 0, destroyed: Vec::new() };
    // Each once, however often it is named.
    let all = [Job::Retention, Job::Reindex, Job::Checkpoint, Job::Refresh];
    for job in all.into_iter().filter(|job| jobs.contains(job)) {
        match job {
            Job::Retention => {
                done.destroyed = house.destroy_expired(op).await?;
                done.keys_destroyed = done.destroyed.len();
            }
            Job::Reindex => drop(house.reindex(op).await?),
            Job::Checkpoint => house.checkpoint(op).await?,
            Job::Refresh => house.refresh(op).await?,
        }
        done.started.push(job.as_str().to_owned());
    }
    Ok(done)
}

/// A replica.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ReplicaRecord {
    replica_id: String,
    log_id: String,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lag: Option<u64>,
}

async fn replicas(cx: Cx, _: NoArgs) -> Result<Reply<Vec<ReplicaRecord>>, AdminError> {
    let Some(rows) = cx.house().replicas().await? else {
        return Err(AdminError::capability_gap("this gateway keeps its state in SQLite and has no replicas"));
    };
    let record = |row: portcullis_gateway::control::ReplicaRow| ReplicaRecord {
        replica_id: row.log_id.clone(),
        log_id: row.log_id,
        state: row.state.to_owned(),
        lag: row.lag,
    };
    Ok(Reply::ok(rows.into_iter().map(record).collect()))
}
