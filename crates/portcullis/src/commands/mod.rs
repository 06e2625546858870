//! What happens for each command.

mod admin;
mod approve;
mod artifact;
mod audit;
mod auth;
mod cage;
mod call;
mod catalog;
pub(crate) mod connect;
mod context;
mod demo;
mod doctor;
pub(crate) mod footprint;
pub(crate) mod gate;
mod grants;
pub(crate) mod import;
mod key;
mod mcp;
mod operators;
mod permit;
mod policy;
pub(crate) mod results;
mod sandbox;
mod search;
mod secret;
mod serve;
mod session;
mod trust;
mod up;
mod why;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::CommandFactory as _;
use portcullis_gateway::GatewayOptions;

use crate::cli::{Cli, Command, ContextCommand, DemoCommand, Global, SandboxCommand, SearchCommand};
use crate::config::Config;
use crate::failure::Failure;
use crate::home;
use crate::identity::Identity;
use crate::operator::{Channel, Request};
use crate::output::Output;

/// What most commands need.
pub(crate) struct Context<'a> {
    pub(crate) home: PathBuf,
    pub(crate) config: Config,
    pub(crate) config_file: PathBuf,
    pub(crate) output: &'a Output,
    /// Who the operator says to be.
    pub(crate) identity: Identity,
}

impl<'a> Context<'a> {
    fn load(global: &Global, output: &'a Output) -> Result<Self, Failure> {
        let home = home::locate(global)?;
        let (config, config_file) = Config::load(global, &home)?;
        let identity = Identity::of(global);
        Ok(Self { home, config, config_file, output, identity })
    }

    pub(crate) fn options(&self) -> Result<GatewayOptions, Failure> {
        self.config.options(&self.home, &self.config_file)
    }

    /// Asks the control plane for one thing.
    pub(crate) async fn ask(&self, request: &Request) -> Result<serde_json::Value, Failure> {
        let options = self.options()?;
        let credential = match request.changes_something() {
            true => self.identity.credential(&options.operator_methods)?,
            false => None,
        };
        Channel::open(options).await?.ask(request, credential).await
    }
}

/// Runs one command to its end.
pub(crate) fn run(cli: Cli, output: &Output) -> Result<ExitCode, Failure> {
    if let Command::Completions { shell } = cli.command {
        clap_complete::generate(shell, &mut Cli::command(), "portcullis", &mut std::io::stdout());
        return Ok(ExitCode::SUCCESS);
    }
    // A confined program is started from a process without other threads, and needs nothing of ours.
    if let Command::Sandbox(command @ (SandboxCommand::Doctor | SandboxCommand::Run(_))) = &cli.command {
        return sandbox::run(output, command);
    }
    // Needs a file and nothing else.
    if let Command::Context(ContextCommand::Build(args)) = &cli.command {
        return context::build(output, args);
    }
    let context = Context::load(&cli.global, output)?;
    if let Command::Search(SearchCommand::Embeddings(command)) = &cli.command {
        return search::embeddings(&context, command);
    }
    // Files of other programs: nothing to wait for.
    if let Command::Connect(args) = &cli.command {
        return connect::run(&context, args);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unavailable(format!("cannot start: {error}")))?;
    runtime.block_on(async {
        match cli.command {
            Command::Up(args) => up::run(&context, &args).await,
            Command::Serve(args) => serve::run(&context, &args).await,
            Command::Mcp(command) => mcp::run(&context, command).await,
            Command::Approve(command) => approve::run(&context, command).await,
            Command::Catalog(command) => catalog::run(&context, command).await,
            Command::Demo(DemoCommand::Rugpull { keep }) => demo::rugpull(&context, keep).await,
            Command::Footprint(args) => footprint::footprint(&context, &args).await,
            Command::Gate(command) => gate::run(&context, &command).await,
            Command::Results(command) => results::run(&context, command).await,
            Command::Lint(args) => footprint::lint(&context, &args).await,
            Command::Surface(command) => footprint::surface(&context, command).await,
            Command::Import(args) => import::run(&context, &args).await,
            Command::Doctor => doctor::run(&context).await,
            Command::Trust(command) => trust::run(&context, command).await,
            Command::Grants(command) => grants::run(&context, command).await,
            Command::Session(command) => session::run(&context, command).await,
            Command::Checkpoint(command) => session::checkpoint(&context, command).await,
            Command::Permit(command) => permit::run(&context, command).await,
            Command::Operator(command) => operators::run(&context, command).await,
            Command::Policy(command) => policy::run(&context, command).await,
            Command::Artifact(command) => artifact::run(&context, command).await,
            Command::Key(command) => key::run(&context, command).await,
            Command::Auth(command) => auth::run(&context, command).await,
            Command::Secret(command) => secret::run(&context, command).await,
            Command::Admin(command) => admin::run(&context, command).await,
            Command::Call(args) => call::run(&context, &args).await,
            Command::Audit(command) => audit::run(&context, &command).await,
            Command::Why(args) => why::run(&context, &args).await,
            Command::Sandbox(command) => cage::run(&context, command).await,
            Command::Completions { .. } | Command::Context(_) | Command::Connect(_) | Command::Search(_) => {
                unreachable!("handled above")
            }
        }
    })
}

/// Asks a person; `None` if nobody can be asked.
pub(crate) fn confirm(question: &str) -> Option<bool> {
    use std::io::{BufRead as _, IsTerminal as _, Write as _};
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).ok()?;
    Some(matches!(answer.trim(), "y" | "Y" | "yes"))
}
