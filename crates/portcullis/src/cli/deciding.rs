//! Commands about what is allowed: approvals, trust, grants, sessions, permits, checkpoints, policy.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// Write a session's calls and results as lines of JSON, for `context build`; needs `gateway.session_log = "on"`
    Export {
        /// Its id
        session: String,
    },
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
