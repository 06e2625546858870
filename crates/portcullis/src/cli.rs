//! Everything that can be typed, in one place; help and completions derive from it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use portcullis_gateway::control::GrantAhead;
use portcullis_governance::approval::Ahead;

use crate::commands::connect::client::Client;
use crate::commands::footprint::{FootprintArgs, LintArgs, SurfaceCommand};
use crate::commands::gate::GateCommand;
use crate::commands::results::ResultsCommand;

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

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Show what an agent would find: by what it wants done, or by path
    #[command(
        after_help = "Example:\n  portcullis catalog search open a ticket\n  portcullis catalog search --path /github"
    )]
    Search {
        /// What is wanted
        #[arg(required_unless_present = "path", conflicts_with = "path", value_name = "WORDS")]
        query: Vec<String>,
        /// Where to look instead: `/` has the namespaces
        #[arg(long, value_name = "PATH")]
        path: Option<String>,
        /// How many, 1 to 50
        #[arg(long, value_name = "N")]
        top_k: Option<usize>,
        /// What to look for
        #[arg(long, value_enum, default_value_t = ItemKind::Tool)]
        kind: ItemKind,
    },
    /// List what is odd about the accepted definitions
    Findings,
    /// Build the catalogue again from what is accepted
    Refresh,
    /// Write down what servers offer, as canonical JSON without times: two of one surface are the same bytes
    Snapshot {
        /// Only this server
        #[arg(long, value_name = "NAME")]
        server: Option<String>,
        /// What servers say now, instead of what was accepted
        #[arg(long)]
        live: bool,
    },
    /// Compare two snapshots; exit 1 if there is a change of the given class or a worse one
    Diff {
        /// The older file
        before: PathBuf,
        /// The newer file
        after: PathBuf,
        /// Which changes count
        #[arg(long, value_enum, default_value_t = FailOn::Breaking)]
        fail_on: FailOn,
    },
}

/// What is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ItemKind {
    Tool,
    Resource,
    Prompt,
}

/// Which changes make `catalog diff` fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// Those that hurt callers
    Breaking,
    /// Those, and all other changes of what can be called
    NonBreaking,
    /// Every change, texts included
    Documentation,
}

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Register a server and accept its declaration
    ///
    /// Nothing on a server can be called before it is registered with a capability declaration that its live surface
    /// equals. For a server that is started as a process, give its command after `--`.
    #[command(
        after_help = "Example:\n  portcullis mcp add notes --transport stdio --server-version 0.1.0 \\\n    \
        --capability-declaration notes.yaml --justification \"project notes\" --deployment-mode local \\\n    \
        -- /opt/notes/notes-server --dir /srv/notes"
    )]
    Add(Box<AddArgs>),
    /// Look at a program that is not registered, and draft its declaration
    ///
    /// It is started in a cage, with the folders its command names and without network. `mcp accept` registers what was
    /// drafted; edit it before as you like.
    #[command(
        after_help = "Example:\n  portcullis mcp draft notes -- /opt/notes/notes-server --dir /srv/notes\n  portcullis mcp accept notes --reason \"project notes\""
    )]
    Draft {
        /// Your name for the server: lowercase letters, digits and `-`
        name: String,
        /// A file or folder that is part of the program, such as its modules
        #[arg(long, value_name = "PATH")]
        artifact: Vec<String>,
        /// A variable of its environment; nothing is inherited
        #[arg(long, value_name = "NAME=VALUE")]
        env: Vec<String>,
        /// Propose scopes for what a registered server was denied; nothing changes until you accept them
        #[arg(long)]
        from_denials: bool,
        /// The command and its arguments
        #[arg(last = true, required_unless_present = "from_denials")]
        command: Vec<String>,
    },
    /// List the registered servers
    List,
    /// Show one server: its record, its tools, what it may do
    Show {
        /// The server
        name: String,
    },
    /// Look at a server without calling any tool, and compare it with its declaration
    Test {
        /// The server
        name: String,
    },
    /// Register another version of a server, up or down, in place of the one there is
    ///
    /// Takes the flags of `mcp add`. Permits, approvals and trust of the version before end in the same step.
    Update(Box<AddArgs>),
    /// Accept what a server has become: its changed tools under a new declaration version. Or accept a draft
    ///
    /// A server that is only drafted is registered with its draft, as the file is now.
    ///
    /// Without a file the accepted declaration is brought up to date with what the server lists now; `mcp show` and `mcp
    /// test` say what that is. What you declared about classes, scopes and credentials stays.
    Accept {
        /// The server
        name: String,
        /// A new declaration file
        #[arg(long, value_name = "FILE")]
        capability_declaration: Option<PathBuf>,
        /// Give wide approvals of tools that did not change anew, in your name
        #[arg(long)]
        carry_approvals: bool,
        #[command(flatten)]
        grant: GrantArgs,
        /// Let a lint pass that stands against it, as in L005; may be given several times
        #[arg(long, value_name = "RULE")]
        waive: Vec<String>,
        /// Let a list of tools pass that cannot be made to fit any more
        #[arg(long)]
        allow_over_budget: bool,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Remove a server; its permits and approvals end with it
    Remove(ReasonArgs),
    /// Stop a server from being called until it is resumed
    Halt(ReasonArgs),
    /// Let a halted server run again
    Resume(ReasonArgs),
}

/// What is approved in the step that accepts (GOV-1404).
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct GrantArgs {
    /// Approve tools in the same step, until their version or declaration changes: those that only read, or all
    #[arg(long, value_enum, value_name = "WHICH")]
    pub(crate) grant: Option<GrantKind>,
    /// For which agent [default: agents that prove nothing]
    #[arg(long, value_name = "AGENT", requires = "grant")]
    pub(crate) grant_to: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GrantKind {
    /// Tools that only read
    Reads,
    /// All tools
    All,
}

impl GrantArgs {
    pub(crate) fn ahead(&self) -> Option<GrantAhead> {
        let which = match self.grant? {
            GrantKind::Reads => Ahead::Reads,
            GrantKind::All => Ahead::All,
        };
        Some(GrantAhead { which, agent: self.grant_to.clone() })
    }
}

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// Your name for the server: lowercase letters, digits and `-`
    pub(crate) name: String,
    /// How it is reached
    #[arg(long, value_enum)]
    pub(crate) transport: TransportKind,
    /// Where it listens (http, sse, records)
    #[arg(long, required_if_eq_any([("transport", "http"), ("transport", "sse"), ("transport", "records")]))]
    pub(crate) url: Option<String>,
    /// SHA-256 of the public key its certificate must hold, in hex (https)
    #[arg(long, value_name = "HEX")]
    pub(crate) tls_spki: Option<String>,
    /// The file that holds the bearer of its grant, readable by you alone (records)
    #[arg(long, value_name = "FILE", required_if_eq("transport", "records"))]
    pub(crate) credential_file: Option<PathBuf>,
    /// The version you register; the server must say the same [default for records: the adapter's]
    #[arg(long)]
    pub(crate) server_version: Option<String>,
    /// The declaration file [default: NAME.yaml in the configured `declarations` folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) capability_declaration: Option<PathBuf>,
    /// Why the server is here
    #[arg(long)]
    pub(crate) justification: Option<String>,
    /// Where it may be used: local, team, enterprise, ci; repeat for several
    #[arg(long, value_name = "MODE")]
    pub(crate) deployment_mode: Vec<String>,
    /// The trust tier you would like, 0 to 3; policy assigns
    #[arg(long, default_value_t = 0)]
    pub(crate) trust_tier: u8,
    /// Whether its tools may change
    #[arg(long, value_enum, default_value_t = SurfaceKind::Static)]
    pub(crate) surface: SurfaceKind,
    /// Why a server on another host may be relied on
    #[arg(long, value_name = "REASON")]
    pub(crate) attest: Option<String>,
    /// Why a loopback server that Portcullis did not start may be called although nothing confines it
    #[arg(long, value_name = "REASON")]
    pub(crate) waive_isolation: Option<String>,
    /// A file or folder that is part of the program, such as its modules; pinned, and readable in its cage (stdio)
    #[arg(long, value_name = "PATH")]
    pub(crate) artifact: Vec<String>,
    /// A variable of its environment (stdio); nothing is inherited
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
    /// The command and its arguments (stdio)
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportKind {
    /// A process that Portcullis starts
    Stdio,
    /// Streamable HTTP
    Http,
    /// HTTP with server-sent events, as servers of revision 2024-11-05 have it
    Sse,
    /// A resource server of personal records, behind the built-in adapter
    Records,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SurfaceKind {
    /// The live server must equal the declaration
    Static,
    /// The server says that its tools change
    Dynamic,
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
pub(crate) enum ApproveCommand {
    /// List approvals
    List {
        /// Only those in this state: pending, approved, denied, expired, consumed, invalidated
        #[arg(long)]
        status: Option<String>,
    },
    /// Show exactly what would be approved
    Show {
        /// The approval
        id: String,
    },
    /// Grant a pending approval
    Grant {
        /// The approval
        id: String,
        /// How far it reaches: once, session or until-version-change
        #[arg(long, default_value = "once")]
        scope: String,
        /// Why
        #[arg(long)]
        reason: String,
        /// Do not ask again before approving something that executes, writes or cannot be classified
        #[arg(long)]
        yes: bool,
    },
    /// Show what waits for an approval as it comes, and decide it
    ///
    /// On a terminal each request is shown and asked about. Otherwise each is a line, and so is what became of it.
    Watch {
        /// Stop when nothing waits any more
        #[arg(long)]
        until_empty: bool,
    },
    /// Deny a pending approval
    Deny {
        /// The approval
        id: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// List servers and tools with their trust and what it rests on
    List {
        /// Only this server and its tools
        #[arg(long)]
        server: Option<String>,
        /// Only those in this state: untrusted, probationary, trusted
        #[arg(long)]
        state: Option<String>,
    },
    /// Show one
    Show {
        /// A server, SERVER/TOOL, or a whole tool id
        id: String,
    },
    /// Trust what has earned it
    Grant(TrustArgs),
    /// Take all trust back; permits and wide approvals end with it
    Revoke(TrustArgs),
    /// Recompute everything from the log and compare
    #[command(after_help = "Exit codes: 0 nothing differs, 1 something does.")]
    Verify,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// A server, SERVER/TOOL, or a whole tool id
    pub(crate) id: String,
    /// Why
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrantsCommand {
    /// List the grants in force: what may be called without asking again
    List,
    /// Take a grant back; permits issued under it die
    Revoke {
        /// The approval behind it
        id: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions that are not over
    List,
    /// End a session; its permits die, and so does what was approved for its life
    End(SessionArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PermitCommand {
    /// List permits, the newest first
    List {
        /// issued, consumed, settled, revoked, expired or invalidated
        #[arg(long)]
        state: Option<String>,
    },
    /// Show one permit
    Show {
        /// Its id
        id: String,
    },
    /// Take a permit back: its request is not sent; if it is under way, its result is flagged
    Revoke {
        /// Its id
        id: String,
        /// Cut the call if it is under way
        #[arg(long)]
        kill: bool,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CheckpointCommand {
    /// List what stops sessions now
    List,
    /// Stop a session: its permits die, and its calls are refused until the checkpoint is resolved
    Open(SessionArgs),
    /// Let a stopped session go on
    Resolve(SessionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SessionArgs {
    /// The session's id
    pub(crate) session: String,
    /// Why
    #[arg(long)]
    pub(crate) reason: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Enrol an operator, or give one another passphrase
    #[command(
        after_help = "The new passphrase is asked for on the terminal, or read from --new-passphrase-fd. The first \
operator is enrolled by the user the gateway runs as; later ones by an operator."
    )]
    Enrol {
        /// The operator's name, by which records know it
        name: String,
        /// Read the new passphrase from this file descriptor
        #[arg(long, value_name = "N")]
        new_passphrase_fd: Option<i32>,
    },
    /// List the enrolled operators
    List,
    /// Make, list and take back tokens with which your programs reach the admin tools
    #[command(subcommand)]
    Token(TokenCommand),
    /// Remove an operator
    Remove {
        /// The operator's name
        name: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token that speaks for you; it is shown once
    #[command(
        after_help = "Example:\n  portcullis operator token create ci --expires 90d\n  curl -H \"Authorization: Bearer $TOKEN\" \
-H 'Content-Type: application/json' -d '{}' http://127.0.0.1:7412/api/admin/portcullis_servers_list"
    )]
    Create {
        /// What the token is called
        name: String,
        /// How long it holds, as in 12h or 90d [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// List the tokens in force
    List,
    /// Take a token back
    Revoke {
        /// What the token is called
        name: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Call an admin tool and print its envelope
    #[command(
        after_help = "Examples:\n  portcullis admin call servers_list\n  portcullis admin call servers_set_state --json \
'{\"server_id\": \"notes\", \"state\": \"halted\", \"confirm\": true, \"reason\": \"maintenance\"}'"
    )]
    Call {
        /// The tool, with or without `portcullis_`
        tool: String,
        /// Its arguments, a JSON object; `-` reads them from stdin
        #[arg(long, default_value = "{}", value_name = "JSON")]
        json: String,
    },
    /// List the admin tools
    Tools {
        /// Only of one part of the gateway
        domain: Option<String>,
    },
    /// Print the OpenAPI document of the HTTP surface
    Openapi,
    /// Serve the admin tools to one MCP client on stdin and stdout
    Mcp {
        /// List every tool instead of the three to browse, view and execute
        #[arg(long)]
        passthrough: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Show the policy in force, or an earlier one, and which there were
    Show {
        /// An earlier version, by its number
        version: Option<u64>,
        /// Print the texts too
        #[arg(long)]
        texts: bool,
    },
    /// Check a bundle without putting it in force; needs no gateway
    Validate(BundleArgs),
    /// Put a bundle in force, at once and for good; permits issued before die
    #[command(
        after_help = "Example:\n  portcullis policy validate policies/ && portcullis policy apply policies/ --reason \"no \
drafts\"\n\nIt stays in force over restarts, until another is applied or [policy] in portcullis.toml is changed."
    )]
    Apply {
        #[command(flatten)]
        bundle: BundleArgs,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Put an earlier policy in force again
    Rollback {
        /// Its number [default: the one before the current]
        version: Option<u64>,
        /// Why
        #[arg(long)]
        reason: String,
    },
    /// Say what would happen to a call, and which rules would decide; nothing is called
    #[command(after_help = "Exit codes: 0 it would be allowed or ask, 4 it would be denied.")]
    Explain {
        /// The tool: SERVER__TOOL, SERVER/TOOL, or its whole id
        #[arg(long)]
        tool: String,
        /// Its arguments, a JSON object
        #[arg(long, default_value = "{}")]
        args: String,
        /// The agent that would call [default: the one without a key]
        #[arg(long)]
        agent: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct BundleArgs {
    /// A folder with `*.cedar` files and perhaps `settings.toml` [default: as configured]
    pub(crate) dir: Option<PathBuf>,
    /// The preset beside it: strict, balanced or observe [default: as configured]
    #[arg(long)]
    pub(crate) preset: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each server is started in a cage, with the folders its command names and without network, only to see \
what it lists. Nothing is registered unless you say so.\n\nExamples:\n  portcullis import\n  portcullis import --client \
claude-desktop --vendor\n  portcullis import .mcp.json --vendor --accept"
)]
pub(crate) struct ImportArgs {
    /// A client's configuration file [default: the one that is here]
    pub(crate) file: Option<PathBuf>,
    /// Which client it is
    #[arg(long, value_enum)]
    pub(crate) client: Option<Client>,
    /// Fetch what npx, uvx and the like would fetch, once, and run it from here; nothing of a package runs meanwhile
    #[arg(long)]
    pub(crate) vendor: bool,
    /// Register without asking
    #[arg(long)]
    pub(crate) accept: bool,
    /// Have the client use this gateway instead of the servers that are registered; the file as it was is kept
    #[arg(long)]
    pub(crate) rewrite: bool,
    /// Where the secrets of a server go, if its configuration does not say
    #[arg(long, value_name = "NAME=HOST")]
    pub(crate) toward: Vec<String>,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// Why servers on other hosts may be relied on; without it they are left alone
    #[arg(long, value_name = "REASON")]
    pub(crate) attest: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What changes is shown first. The file as it was is kept beside it; --undo puts it back byte for \
byte.\n\nExamples:\n  portcullis connect claude-code\n  portcullis connect cursor --dry-run\n  portcullis connect codex --undo"
)]
pub(crate) struct ConnectArgs {
    /// Which agent
    pub(crate) client: Client,
    /// Its configuration file [default: where the agent looks for it]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Under which name
    #[arg(long, default_value = "portcullis", value_parser = plain_name)]
    pub(crate) name: String,
    /// Put the file back as it was
    #[arg(long)]
    pub(crate) undo: bool,
    /// Show what would change, and change nothing
    #[arg(long, conflicts_with = "undo")]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

fn plain_name(text: &str) -> Result<String, String> {
    let plain =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if plain { Ok(text.to_owned()) } else { Err("letters, digits, - and _".into()) }
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
        after_help = "Examples:\n  portcullis artifact view art_… --select '{\"type\":\"lines\",\"start\":-20}'\n  \
portcullis artifact view art_… --select '{\"type\":\"rows\",\"pattern\":\"where status = open | count by owner\"}'\n\nSelectors: \
head, tail, lines, rows, json_keys, json_pointer, grep, bytes, part. Looking goes on record."
    )]
    View {
        /// Which
        handle: String,
        /// Which part, as tool_view takes it
        #[arg(long, value_name = "JSON", default_value = r#"{"type":"head","chars":2000}"#)]
        select: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key for an agent, in place of the one it has; it is shown once
    #[command(
        after_help = "Example:\n  portcullis key create ci --expires 90d --grant 'mcp.call:notes/*'\n\nWithout --grant \
the agent may do whatever the accepted declarations offer (the grant `declared`)."
    )]
    Create {
        /// The agent's name, by which records and policies know it
        agent: String,
        /// What it may do at most; may be given several times
        #[arg(long, value_name = "GRANT")]
        grant: Vec<String>,
        /// How long the key holds, as in 12h or 90d [default: until revoked]
        #[arg(long, value_name = "SPAN")]
        expires: Option<String>,
    },
    /// List the keys in force
    List,
    /// Take an agent's key back
    Revoke {
        /// The agent's name
        agent: String,
        /// Why
        #[arg(long)]
        reason: String,
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
pub(crate) enum AuditCommand {
    /// Print records, newest last
    Log(LogArgs),
    /// Check that the log is whole: framing, canonical form, numbering, hash chain, tree and checkpoints
    #[command(
        after_help = "Whoever can write the log's files could cut off its end or write all of it anew. A checkpoint that \
was kept elsewhere tells: give it with --checkpoint. Exit codes: 0 whole, 1 not, 5 unreadable."
    )]
    Verify(VerifyArgs),
    /// Print one record; with --proof the proof that it is in the log, with --evidence the exact bytes behind it
    Show(ShowArgs),
    /// Write the log, or a part of it, to a folder that others can check with their own tools
    ///
    /// With --cassette: the recorded results, to be played with `portcullis serve --replay`.
    Export(ExportArgs),
    /// List the keys of the evidence, destroy those whose time is over, keep one longer
    #[command(subcommand)]
    Retention(RetentionCommand),
    /// Take calls again after the log could not be written; first remove the cause
    ///
    /// Verifies the whole log, reads its end anew and records what it could not record before.
    Unblock {
        /// Why, for the record
        #[arg(long)]
        reason: String,
    },
    /// Sign checkpoints with another key from now on; the next one is signed with both
    RotateSigner {
        /// Why, for the record
        #[arg(long)]
        reason: String,
    },
    /// Make the index anew that `audit log`, `audit show` and `why` find records by
    RebuildIndex,
    /// Drive a recorded session through today's rules again, or through other policies; nothing is called
    #[command(after_help = "Exit codes: 0 nothing would be different, 1 something would.")]
    Replay(ReplayArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// List the keys, and whether their time is over
    List,
    /// Destroy the keys whose time is over; the gateway does so by itself every hour
    Run,
    /// Keep everything that was sealed with a key until it is released
    Hold {
        /// The key, as `list` names it: `std-20261116-1`
        key: String,
        /// No longer
        #[arg(long)]
        release: bool,
        /// Why
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The session
    pub(crate) session: String,
    /// A folder of `*.cedar` files to use in place of the configured ones
    #[arg(long, value_name = "DIR")]
    pub(crate) policy: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The folder; it must be new or empty
    #[arg(long, value_name = "DIR", required_unless_present = "cassette")]
    pub(crate) out: Option<PathBuf>,
    /// A new file for the recorded results. It holds what servers answered, unsealed
    #[arg(long, value_name = "FILE")]
    pub(crate) cassette: Option<PathBuf>,
    /// Only the results of this session (with --cassette)
    #[arg(long, requires = "cassette")]
    pub(crate) session: Option<String>,
    /// The first record
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    pub(crate) from: u64,
    /// The last record [default: the newest]
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// With the exact bytes that were sent and received, which only the recipient can open
    #[arg(long, requires_all = ["out", "recipient", "reason"])]
    pub(crate) with_evidence: bool,
    /// Who can open the evidence: the public key of an age identity, age1…
    #[arg(long, value_name = "KEY", requires = "with_evidence")]
    pub(crate) recipient: Option<String>,
    /// Why the evidence is given out, for the record
    #[arg(long, requires = "with_evidence")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  portcullis why 01M7HH3ZJ9XQ4T3M5R7N9P1S2V\n\nReading what was sent and what came back is itself \
recorded, as reading evidence always is."
)]
pub(crate) struct WhyArgs {
    /// The call: its proposal or permit id, the number of one of its records, or `last`
    pub(crate) call: String,
    /// Tell the story without opening the evidence
    #[arg(long)]
    pub(crate) no_evidence: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// An audit folder, or an exported one; repeat for several [default: that of the home folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Vec<PathBuf>,
    /// Report nothing about records before this one
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: Option<u64>,
    /// Report nothing about records after this one
    #[arg(long, value_name = "SEQ")]
    pub(crate) to: Option<u64>,
    /// A checkpoint that was kept elsewhere; repeat for several
    #[arg(long, value_name = "FILE")]
    pub(crate) checkpoint: Vec<PathBuf>,
    /// Also check that the evidence the records name is there and unchanged; needs no key
    #[arg(long)]
    pub(crate) evidence: bool,
    /// Also check what the records say: that nothing happened that was not allowed to
    #[arg(long)]
    pub(crate) invariants: bool,
    /// The key that must have signed the checkpoints, or a file with it [default: those the log names]
    #[arg(long, value_name = "KEY")]
    pub(crate) vkey: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Its number or its id
    pub(crate) record: String,
    /// Prove that it is in the log, against the newest checkpoint
    #[arg(long)]
    pub(crate) proof: bool,
    /// Open its evidence; that you did, and why, is recorded first
    #[arg(long, conflicts_with = "dir", requires = "reason")]
    pub(crate) evidence: bool,
    /// Why the evidence is read
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// An audit folder [default: that of the home folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Only this event, or all of a group: `execution.intent`, `approval.`
    #[arg(long)]
    pub(crate) event: Option<String>,
    /// Only records about a tool whose id contains this
    #[arg(long)]
    pub(crate) tool: Option<String>,
    /// Only this session
    #[arg(long)]
    pub(crate) session: Option<String>,
    /// Only this proposal
    #[arg(long)]
    pub(crate) proposal: Option<String>,
    /// Only this author: `operator:ana`, `agent:local`
    #[arg(long)]
    pub(crate) actor: Option<String>,
    /// Only records at or after this time (RFC 3339)
    #[arg(long)]
    pub(crate) since: Option<String>,
    /// Only records before this time (RFC 3339)
    #[arg(long)]
    pub(crate) until: Option<String>,
    /// At most this many, the newest
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: usize,
    /// Leave out this many of the newest
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: usize,
    /// Go on with what comes, until interrupted
    #[arg(long, conflicts_with = "offset")]
    pub(crate) follow: bool,
    /// An audit folder [default: that of the home folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Keep a credential; its value is read from the terminal, or from a file descriptor
    #[command(
        after_help = "Example:\n  portcullis secret set github --class issues.read --fd 3 3< token.txt\n\nTools whose declared \
credentials list the class are lent the value, each for the time of one call. No command prints it."
    )]
    Set {
        /// Its name
        name: String,
        /// What it is good for, as declarations say it
        #[arg(long, value_name = "CLASS")]
        class: String,
        /// What kind of thing it is
        #[arg(long, value_name = "KIND", default_value = "static")]
        kind: String,
        /// Read the value from this file descriptor
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
    },
    /// List credentials, without their values
    List,
    /// Change the value of a credential; calls that have the old one lose it
    Rotate {
        /// Its name
        name: String,
        /// Read the value from this file descriptor
        #[arg(long, value_name = "N")]
        fd: Option<i32>,
    },
    /// Forget a credential
    Rm {
        /// Its name
        name: String,
        /// Why
        #[arg(long)]
        reason: String,
    },
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
