//! Everything that can be typed, in one place; help and completions derive from it.

mod deciding;
mod evidence;
mod mcp;
mod people;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands::footprint::{FootprintArgs, LintArgs, SurfaceCommand};
use crate::commands::gate::GateCommand;
use crate::commands::results::ResultsCommand;

pub(crate) use deciding::*;
pub(crate) use evidence::*;
pub(crate) use mcp::*;
pub(crate) use people::*;

/// The governed gateway for MCP.
#[derive(Debug, Parser)]
#[command(
    name = "portcullis",
    version,
    about,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
#[command(
    after_help = "Start with `portcullis up`: it runs a gateway with a demo server behind it and shows the first \
governed call.\n\nExit codes: 0 ok, 1 failure, 2 denied, 3 interrupted or timed out, 4 would be denied, 5 control plane unavailable, \
6 operator authentication, 7 validation, 8 not found."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Where Portcullis keeps everything [default: ~/.portcullis]
    #[arg(long, global = true, env = "PORTCULLIS_HOME", value_name = "DIR", help_heading = "Global options")]
    pub(crate) home: Option<PathBuf>,
    /// The configuration file [default: portcullis.toml in the home folder]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// How results are printed
    #[arg(long, global = true, value_enum, default_value_t = Format::Text, help_heading = "Global options")]
    pub(crate) output: Format,
    /// Who you are as an operator [default: your login name]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub(crate) operator: Option<String>,
    /// Read your passphrase from this file descriptor instead of the terminal
    #[arg(long, global = true, value_name = "N", help_heading = "Global options")]
    pub(crate) passphrase_fd: Option<i32>,
    /// Print nothing but results and errors
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
}

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON document
    Json,
    /// One JSON document per line
    Ndjson,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a gateway with the demo server behind it and show the first governed call
    Up(UpArgs),
    /// Run the gateway
    Serve(ServeArgs),
    /// Register, list, inspect, test, halt, resume and remove MCP servers
    #[command(subcommand)]
    Mcp(McpCommand),
    /// List and decide pending approvals
    #[command(subcommand)]
    Approve(ApproveCommand),
    /// See who has earned how much trust, grant and take it back
    #[command(subcommand)]
    Trust(TrustCommand),
    /// List and take back what operators granted
    #[command(subcommand)]
    Grants(GrantsCommand),
    /// List the sessions of agents, and end them
    #[command(subcommand)]
    Session(SessionCommand),
    /// Stop a session until somebody has looked, and let it go on
    #[command(subcommand)]
    Checkpoint(CheckpointCommand),
    /// List permits, and take back those that were not used yet
    #[command(subcommand)]
    Permit(PermitCommand),
    /// Enrol, list and remove operators with passphrases
    #[command(subcommand)]
    Operator(OperatorCommand),
    /// See, check, apply, roll back and explain the policy
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Search what agents can find, see what is odd about it, and what servers changed
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Have search find by meaning too, not by words alone
    #[command(subcommand)]
    Search(SearchCommand),
    /// Measure what clients read before they call anything: bytes and tokens, by tool and server, against a budget
    Footprint(FootprintArgs),
    /// Find what is wrong with tool descriptions
    Lint(LintArgs),
    /// Try the gates of the configuration with their own cases
    #[command(subcommand)]
    Gate(GateCommand),
    /// Measure how large results are, and how many of them clients would cut
    #[command(subcommand)]
    Results(ResultsCommand),
    /// See what is published differently from what was accepted
    #[command(subcommand)]
    Surface(SurfaceCommand),
    /// Give agents keys with which they prove who they are
    #[command(subcommand)]
    Key(KeyCommand),
    /// Keep credentials for calls: given in, lent to permitted calls, never shown
    #[command(subcommand)]
    Secret(SecretCommand),
    /// Log in at the issuers of servers that want to know who calls
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Take over the servers that an agent reaches today: look at each, draft its declaration, register it
    Import(ImportArgs),
    /// Write this gateway into an agent's own configuration, or take it out again
    Connect(ConnectArgs),
    /// See what is kept of long results
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Make prompts out of recorded conversations
    #[command(subcommand)]
    Context(ContextCommand),
    /// Call admin tools: everything operators can do, as one surface for programs
    #[command(subcommand)]
    Admin(AdminCommand),
    /// Call one tool through the gateway, as an agent would
    Call(CallArgs),
    /// Read and verify the evidence
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Tell the whole story of one call: who, what, which rule, which approval, what was sent and what came back
    Why(WhyArgs),
    /// Try what confines servers: see what this machine can do, run a command confined
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Find what is not as it should be, and what to do about it
    Doctor,
    /// See the gate at work against a server that turns bad
    #[command(subcommand)]
    Demo(DemoCommand),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it runs until it is ended, so that what it has to say is said as it happens.
    pub(crate) fn stays(&self) -> bool {
        matches!(self, Command::Up(_) | Command::Serve(_))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// A server changes a tool after it was accepted, and is caught before the model sees it
    ///
    /// Ten seconds, in a folder of its own below the home folder, which is removed afterwards.
    Rugpull {
        /// Keep the folder with all evidence
        #[arg(long)]
        keep: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Where agents connect [default: 127.0.0.1:7411, or `listen` of the configuration]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Approve the demo call without asking
    #[arg(long)]
    pub(crate) yes: bool,
    /// Stop after the first call instead of serving
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where agents connect [default: 127.0.0.1:7411, or `listen` of the configuration]
    #[arg(long, value_name = "ADDR", conflicts_with = "stdio")]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Serve one agent on stdin and stdout; uses the running gateway if there is one
    #[arg(long)]
    pub(crate) stdio: bool,
    /// What agents see of the tools there are [default: `mode` of [exposure] in the configuration, else auto]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) mode: Option<crate::config::ModeWord>,
    /// Answer calls from this cassette instead of making them; policy, approvals and permits apply as always
    #[arg(long, value_name = "FILE", conflicts_with = "stdio")]
    pub(crate) replay: Option<PathBuf>,
    /// Write `{"mcp": URL, "pid": N}` to this file once agents can connect
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReasonArgs {
    /// The server
    pub(crate) name: String,
    /// Why
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// Build a prompt out of a session file, within a budget of tokens
    #[command(
        after_help = "A session file has one JSON object per line with id, type and text (or content).\n\nExample:\n  \
portcullis context build --session s.jsonl --phase answer --query 'invoice status' --explain"
    )]
    Build(ContextBuildArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ContextBuildArgs {
    /// The session file
    #[arg(long, value_name = "FILE")]
    pub(crate) session: PathBuf,
    /// What the prompt is for
    #[arg(long, value_parser = ["route", "call", "interpret", "answer"])]
    pub(crate) phase: String,
    /// What it is about
    #[arg(long, default_value = "")]
    pub(crate) query: String,
    /// What it is about, in tags; they count instead of the query
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
    /// What stands before everything
    #[arg(long, default_value = "")]
    pub(crate) header: String,
    /// What stands behind everything
    #[arg(long, default_value = "")]
    pub(crate) footer: String,
    /// How many tokens it may have [default: 2000 for route, 3000 call, 4000 interpret, 6000 answer]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget: Option<usize>,
    /// Whose tokens
    #[arg(long, default_value = "cl100k_base", value_parser = ["cl100k_base", "o200k_base"])]
    pub(crate) encoder: String,
    /// Leave a line for what is too sensitive, instead of nothing
    #[arg(long)]
    pub(crate) redact_sensitive: bool,
    /// Leave bad lines of the file out, and name them
    #[arg(long)]
    pub(crate) lenient: bool,
    /// Say what is in the prompt, what is not, and why, instead of the prompt
    #[arg(long)]
    pub(crate) explain: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// List what is kept, for whom and how long
    List,
    /// Show part of an artifact
    #[command(
        after_help = "Examples:\n  portcullis artifact view rec_… --select '{\"type\":\"lines\",\"start\":-20}'\n  \
portcullis artifact view rec_… --select '{\"type\":\"rows\",\"pattern\":\"where status = open | count by owner\"}'\n\nSelectors: \
head, tail, lines, rows, json_keys, json_pointer, grep, bytes, part. Looking goes on record."
    )]
    View {
        /// Which: its id, or the handle that an agent was given
        #[arg(value_name = "ID")]
        handle: String,
        /// Which part, as tool_view takes it
        #[arg(long, value_name = "JSON", default_value = r#"{"type":"head","chars":2000}"#)]
        select: String,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  portcullis call demo-notes__notes_search '{\"query\": \"gate\"}'\n\nWithout a tool, the \
tools are listed."
)]
pub(crate) struct CallArgs {
    /// The tool, as agents name it: SERVER__TOOL
    pub(crate) tool: Option<String>,
    /// Its arguments, a JSON object; `-` reads them from stdin
    #[arg(default_value = "{}")]
    pub(crate) arguments: String,
    /// Show the receipt: decision, approval, permit, evidence
    #[arg(long)]
    pub(crate) receipt: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Say what this machine can confine, and what to change where it cannot
    Doctor,
    /// Run a command confined: it sees its own program, the system's libraries, and what the flags name
    #[command(
        after_help = "Example:\n  portcullis sandbox run --ro ~/project --exec /usr/bin/wc -- /usr/bin/find ~/project\n\n\
There is no network in there, nothing can be executed but the command and what --exec names, and the environment is \
empty but for HOME, LANG, PATH and TMPDIR."
    )]
    Run(SandboxRunArgs),
    /// Show what a server may touch: files, programs, hosts, credentials
    Explain {
        /// The server
        server: String,
    },
    /// Confine a server's program, test that, and end it before it runs
    Test {
        /// The server
        server: String,
    },
    /// Have a server started without a facility that this machine lacks; recorded, and for a while
    #[command(
        after_help = "Example:\n  portcullis sandbox waive --server notes --facility landlock --reason 'kernel update is planned' \\\n    --expires 30d\n\n\
Only landlock and seccomp_notify can be waived. A waiver ends when its time is over, and with another version of the server."
    )]
    Waive {
        /// The server
        #[arg(long, value_name = "NAME")]
        server: String,
        /// What is waived
        #[arg(long, value_name = "FACILITY")]
        facility: String,
        /// Why
        #[arg(long)]
        reason: String,
        /// For how long, at most 90d
        #[arg(long, value_name = "SPAN")]
        expires: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SandboxRunArgs {
    /// A file or folder it may read
    #[arg(long, value_name = "PATH")]
    pub(crate) ro: Vec<PathBuf>,
    /// A file or folder it may read and write
    #[arg(long, value_name = "PATH")]
    pub(crate) rw: Vec<PathBuf>,
    /// A program it may start
    #[arg(long, value_name = "PATH")]
    pub(crate) exec: Vec<PathBuf>,
    /// A file or folder that is part of the program, such as its modules
    #[arg(long, value_name = "PATH")]
    pub(crate) artifact: Vec<PathBuf>,
    /// A variable of its environment
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Where it starts [default: an empty home folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// How much memory it may use, in MiB [default: 512]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=8192))]
    pub(crate) memory: Option<u64>,
    /// How many processes and threads it may have [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(crate) pids: Option<u64>,
    /// The command
    #[arg(last = true, required = true, num_args = 1.., value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}
