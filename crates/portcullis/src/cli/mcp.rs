//! Commands about servers and what they offer.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use portcullis_gateway::control::GrantAhead;
use portcullis_governance::approval::Ahead;
use portcullis_governance::record::ProcessModel;

use super::ReasonArgs;
use crate::commands::connect::client::Client;

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

#[derive(Debug, Subcommand)]
pub(crate) enum SearchCommand {
    /// The table of embeddings that says which words mean alike
    #[command(subcommand)]
    Embeddings(EmbeddingsCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum EmbeddingsCommand {
    /// Check a table, put it into the home folder and into the configuration
    #[command(
        after_help = "In a checkout of Portcullis, `cargo xtask embeddings` makes such a file.\n\nExample:\n  portcullis search embeddings install wordllama-256.pclemb"
    )]
    Install {
        /// The table
        file: PathBuf,
    },
    /// Search by words alone again
    Remove,
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
        /// A program that it starts, such as /usr/bin/git
        #[arg(long, value_name = "PATH")]
        exec: Vec<PathBuf>,
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
        /// Print the declaration it would have if it were accepted as it is now; nothing is accepted
        #[arg(long)]
        emit_declaration: bool,
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
        /// Do not ask for confirmation before a draft is registered
        #[arg(long)]
        yes: bool,
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
    /// Let a lint pass that stands against it, as in L005; may be given several times. Your justification is on record
    #[arg(long, value_name = "RULE")]
    pub(crate) waive: Vec<String>,
    /// Let a list of tools pass that cannot be made to fit any more
    #[arg(long)]
    pub(crate) allow_over_budget: bool,
    /// A file or folder that is part of the program, such as its modules; pinned, and readable in its cage (stdio)
    #[arg(long, value_name = "PATH")]
    pub(crate) artifact: Vec<String>,
    /// A variable of its environment (stdio); nothing is inherited
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// How its tools are spread over processes (stdio): by default one for each set of scopes and each agent, and one for each
    /// call of a tool with a credential; `shared` is for servers that keep what they are told in memory
    #[arg(long, value_enum, value_name = "MODEL")]
    pub(crate) process_model: Option<ModelKind>,
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
#[value(rename_all = "snake_case")]
pub(crate) enum ModelKind {
    /// One process for each set of scopes and each agent
    PerProfile,
    /// One process for each call
    PerCall,
    /// One process for all tools, with the scopes of all of them
    Shared,
}

impl ModelKind {
    pub(crate) fn model(self) -> ProcessModel {
        match self {
            ModelKind::PerProfile => ProcessModel::PerProfile,
            ModelKind::PerCall => ProcessModel::PerCall,
            ModelKind::Shared => ProcessModel::Shared,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SurfaceKind {
    /// The live server must equal the declaration
    Static,
    /// The server says that its tools change
    Dynamic,
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
    /// A program that a server starts, such as git=/usr/bin/git; without it a server starts nothing
    #[arg(long, value_name = "NAME=PATH")]
    pub(crate) exec: Vec<String>,
    #[command(flatten)]
    pub(crate) grant: GrantArgs,
    /// Why servers on other hosts may be relied on; without it they are left alone
    #[arg(long, value_name = "REASON")]
    pub(crate) attest: Option<String>,
}
