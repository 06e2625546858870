//! `portcullis_servers_*` and `portcullis_declarations_accept`.

use std::collections::BTreeMap;

use portcullis_core::ServerIdentity;
use portcullis_gateway::control::{GrantAhead, Reacceptance, Registration, Target};
use portcullis_governance::approval::Ahead;
use portcullis_governance::record::{Mode, ProcessModel, Surface};

use crate::args::{Ident, Integer, NonBlank, Page};
use crate::cx::ActorRef;
use crate::error::AdminError;
use crate::grant::{AdminGrant, TargetId};
use crate::registry::Module;
use crate::reply::{Committed, Reply};
use crate::services::{
    DraftRecord, RefreshRecord, RemovedRecord, ReplacedRecord, ServerDetail, ServerRecord, TestRecord,
};
use crate::tool::{admin_tool, read_tool, write_tool};
use crate::{Cx, args, words};

words! {
    pub(crate) enum Transport { Stdio = "stdio", Http = "http", Sse = "sse", Records = "records" }
}

words! {
    pub(crate) enum State { Active = "active", Halted = "halted" }
}

words! {
    pub(crate) enum ModelWord { PerProfile = "per_profile", PerCall = "per_call", Shared = "shared" }
}

words! {
    pub(crate) enum SurfaceWord { Static = "static", Dynamic = "dynamic" }
}

words! {
    pub(crate) enum ModeWord { Local = "local", Team = "team", Enterprise = "enterprise", Ci = "ci" }
}

words! {
    /// What is approved in the step that accepts (GOV-1404).
    pub(crate) enum GrantWord { Reads = "reads", All = "all" }
}

args! {
    pub(crate) struct List { state: Option<State>, transport: Option<Transport>, page: Page }
}

args! {
    pub(crate) struct Drafts { page: Page }
}

args! {
    pub(crate) struct One { server_id: Ident<ServerIdentity> }
}

args! {
    pub(crate) struct SetState { server_id: Ident<ServerIdentity>, state: State }
}

args! {
    pub(crate) struct Process {
        command: NonBlank, args: Option<Vec<String>>, env: Option<BTreeMap<String, String>>, artifacts: Option<Vec<NonBlank>>,
        process_model: Option<ModelWord>,
    }
}

args! {
    pub(crate) struct Register {
        server_id: NonBlank<63>, version: NonBlank<128>, transport: Transport, process: Option<Process>,
        url: Option<NonBlank>, credential_file: Option<NonBlank>, tls_spki: Option<NonBlank>, surface: SurfaceWord, trust_tier_requested: Integer<0, 3>,
        justification: NonBlank, policy_tags: Vec<ModeWord>, declaration: NonBlank<16777216>,
        declaration_file: Option<NonBlank>, attest: Option<NonBlank>, waive_isolation: Option<NonBlank>,
        grant: Option<GrantWord>, grant_to: Option<NonBlank>, waive: Option<Vec<NonBlank>>, allow_over_budget: Option<bool>,
    }
}

args! {
    pub(crate) struct Accept {
        server_id: Ident<ServerIdentity>, version: Option<NonBlank<100>>, declaration: Option<NonBlank<16777216>>,
        declaration_file: Option<NonBlank>, replaces: Option<NonBlank>, carry_approvals: Option<bool>, grant: Option<GrantWord>, grant_to: Option<NonBlank>,
        waive: Option<Vec<NonBlank>>, allow_over_budget: Option<bool>,
    }
}

pub(super) fn module() -> Module {
    Module {
        name: "integrations/servers",
        tools: vec![
            read_tool("servers", "list", "List registered servers.", list),
            read_tool("servers", "get", "Show one server with its tools and pins.", get),
            admin_tool("servers", "register", "Register a server and accept its declaration.", register),
            admin_tool("servers", "update", "Register another version of a server.", update),
            admin_tool("servers", "test", "Look at a server without calling any tool.", test),
            admin_tool("servers", "set_state", "Halt a server, or let it run again.", set_state),
            admin_tool("servers", "remove", "Remove a server; its approvals and permits end.", remove),
            write_tool(
                "servers",
                "refresh",
                "Compare what a server lists now with what was accepted.",
                refresh,
            ),
            read_tool("drafts", "list", "List drafts that nobody has accepted yet.", drafts),
            admin_tool("declarations", "accept", "Accept what a server has become, or a draft.", accept),
        ],
    }
}

async fn list(cx: Cx, args: List) -> Result<Reply<Vec<ServerRecord>>, AdminError> {
    let rows = cx.servers().list(args.state.map(State::as_str), args.transport.map(Transport::as_str));
    Ok(Reply::page(args.page.cut(rows), args.page))
}

async fn get(cx: Cx, args: One) -> Result<Reply<ServerDetail>, AdminError> {
    Ok(Reply::ok(cx.servers().get(&args.server_id.0).await?))
}

async fn register(cx: Cx, grant: AdminGrant, args: Register) -> Result<Committed<ServerRecord>, AdminError> {
    let (servers, target) = (cx.servers(), TargetId::new("server", &args.server_id));
    let asked = registration(args)?;
    grant.answer(target, move |op| async move { servers.register(&op, asked).await }).await
}

async fn update(cx: Cx, grant: AdminGrant, args: Register) -> Result<Committed<ReplacedRecord>, AdminError> {
    let (servers, target) = (cx.servers(), TargetId::new("server", &args.server_id));
    let asked = registration(args)?;
    grant.answer(target, move |op| async move { servers.update(&op, asked).await }).await
}

async fn test(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<TestRecord>, AdminError> {
    let (servers, id) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &id);
    grant.answer(target, move |op| async move { servers.test(&op, &id).await }).await
}

async fn set_state(cx: Cx, grant: AdminGrant, args: SetState) -> Result<Committed<ServerRecord>, AdminError> {
    let (servers, id) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &id);
    grant
        .answer(target, move |op| async move {
            match args.state {
                State::Active => servers.resume(&op, &id).await,
                State::Halted => servers.halt(&op, &id).await,
            }
        })
        .await
}

async fn remove(cx: Cx, grant: AdminGrant, args: One) -> Result<Committed<RemovedRecord>, AdminError> {
    let (servers, id) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &id);
    grant.answer(target, move |op| async move { servers.remove(&op, &id).await }).await
}

async fn refresh(cx: Cx, actor: ActorRef, args: One) -> Result<Reply<RefreshRecord>, AdminError> {
    Ok(Reply::ok(cx.servers().refresh(actor.op(), &args.server_id.0).await?))
}

async fn drafts(cx: Cx, args: Drafts) -> Result<Reply<Vec<DraftRecord>>, AdminError> {
    Ok(Reply::page(args.page.cut(cx.servers().drafts()), args.page))
}

async fn accept(cx: Cx, grant: AdminGrant, args: Accept) -> Result<Committed<ReplacedRecord>, AdminError> {
    let (servers, name) = (cx.servers(), args.server_id.0);
    let target = TargetId::new("server", &name);
    let ahead = ahead(args.grant, args.grant_to);
    let waive: Vec<String> = args.waive.unwrap_or_default().into_iter().map(String::from).collect();
    let allow_over_budget = args.allow_over_budget.unwrap_or(false);
    if let Some(version) = args.version {
        let asked = Reacceptance {
            name: name.clone(),
            declaration: None,
            carry_approvals: args.carry_approvals.unwrap_or(false),
            grant: ahead,
            reason: grant.reason().to_owned(),
            waive,
            allow_over_budget,
        };
        let version = String::from(version);
        let (record, receipt) = grant
            .commit(target, move |op| async move { servers.accept_submission(&op, asked, &version).await })
            .await?;
        return Ok(Committed::ok(record, receipt));
    }
    if !servers.is_registered(&name) && args.declaration.is_none() {
        let waived = (waive, allow_over_budget);
        let (record, receipt) = grant
            .commit(target, move |op| async move { servers.accept_draft(&op, &name, ahead, waived).await })
            .await?;
        return Ok(Committed::ok(record, receipt));
    }
    let file = args.declaration_file.map_or_else(|| "the declaration".to_owned(), String::from);
    let asked = Reacceptance {
        name,
        declaration: args.declaration.map(|text| (file, text.into())),
        carry_approvals: args.carry_approvals.unwrap_or(false),
        grant: ahead,
        reason: grant.reason().to_owned(),
        waive,
        allow_over_budget,
    };
    grant
        .answer(target, move |op| async move {
            servers.accept(&op, asked, args.replaces.as_ref().map(NonBlank::as_str)).await
        })
        .await
}

fn ahead(which: Option<GrantWord>, agent: Option<NonBlank>) -> Option<GrantAhead> {
    let which = match which? {
        GrantWord::Reads => Ahead::Reads,
        GrantWord::All => Ahead::All,
    };
    Some(GrantAhead { which, agent: agent.map(String::from) })
}

/// Where a server is, as arguments say it.
pub(super) struct Place {
    pub(super) transport: Transport,
    pub(super) process: Option<Process>,
    pub(super) url: Option<NonBlank>,
    pub(super) credential_file: Option<NonBlank>,
    pub(super) tls_spki: Option<NonBlank>,
}

impl Place {
    pub(super) fn target(self) -> Result<Target, AdminError> {
        let missing = |field: &str| AdminError::argument(field, "required for this transport");
        let tls_spki = self.tls_spki.map(String::from);
        let url = self.url.map(String::from).ok_or_else(|| missing("url"));
        Ok(match self.transport {
            Transport::Stdio => {
                let process = self.process.ok_or_else(|| missing("process"))?;
                Target::Stdio {
                    command: process.command.into(),
                    args: process.args.unwrap_or_default(),
                    env: process.env.unwrap_or_default(),
                    artifacts: process.artifacts.unwrap_or_default().into_iter().map(String::from).collect(),
                    process_model: process.process_model.map(|model| match model {
                        ModelWord::PerProfile => ProcessModel::PerProfile,
                        ModelWord::PerCall => ProcessModel::PerCall,
                        ModelWord::Shared => ProcessModel::Shared,
                    }),
                }
            }
            Transport::Http => Target::Http { url: url?, tls_spki },
            Transport::Sse => Target::Sse { url: url?, tls_spki },
            Transport::Records => Target::Records {
                url: url?,
                credential_file: self
                    .credential_file
                    .map(String::from)
                    .ok_or_else(|| missing("credential_file"))?,
            },
        })
    }
}

fn registration(args: Register) -> Result<Registration, AdminError> {
    let Register { transport, process, url, credential_file, tls_spki, .. } = args;
    let target = Place { transport, process, url, credential_file, tls_spki }.target()?;
    let mode = |mode: ModeWord| match mode {
        ModeWord::Local => Mode::Local,
        ModeWord::Team => Mode::Team,
        ModeWord::Enterprise => Mode::Enterprise,
        ModeWord::Ci => Mode::Ci,
    };
    Ok(Registration {
        name: args.server_id.into(),
        target,
        server_version: args.version.into(),
        declaration_file: args.declaration_file.map_or_else(|| "the declaration".to_owned(), String::from),
        declaration: args.declaration.into(),
        justification: args.justification.into(),
        modes: args.policy_tags.into_iter().map(mode).collect(),
        trust_tier: u8::try_from(args.trust_tier_requested.0).unwrap_or_default(),
        surface: match args.surface {
            SurfaceWord::Static => Surface::Static,
            SurfaceWord::Dynamic => Surface::Dynamic,
        },
        attest: args.attest.map(String::from),
        waive_isolation: args.waive_isolation.map(String::from),
        grant: ahead(args.grant, args.grant_to),
        waive: args.waive.unwrap_or_default().into_iter().map(String::from).collect(),
        allow_over_budget: args.allow_over_budget.unwrap_or_default(),
    })
}
