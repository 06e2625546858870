//! Commands about the log and what it holds.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
