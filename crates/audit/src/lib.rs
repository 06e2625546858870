//! The audit log: what Portcullis knows to have happened.
//!
//! Every decision is an event, every event a record, and a record is durable before anything acts on it: the
//! intent to call before the first byte of the call leaves, the result before any part of it is released
//! (AUD-1, AUD-2). State elsewhere is a projection of this log and can be rebuilt from it.
//!
//! A log is a folder of segments. Records are canonical JSON, each naming the hash of the one before, so that
//! changing, removing, inserting or reordering any of them shows. The exact bytes things happened with lie
//! beside the records as sealed evidence objects, whose keys can be destroyed on schedule while the log stays
//! whole.
//!
//! | module | what it holds |
//! |---|---|
//! | `event`, `event_name`, `canonical`, `record` | an event on its way in, its bytes, and a record read back |
//! | `log`, `options`, `opening`, `health` | [`AuditLog`]: how it is kept, opened, asked and unblocked |
//! | `packing`, `queue`, `committer` | group commit: many callers, one thread, one sync |
//! | `frame`, `cursor`, `recovery` | how records lie in segments, reading them, and a torn tail |
//! | `evidence`, `seal`, `keys`, `kek`, `pack`, `retention` | evidence: its words, sealing it, the keys and their key, the files it lies in, forgetting it |
//! | `tree`, `tile`, `note`, `signer`, `publisher`, `sinks`, `witness`, `rotation`, `proof`, `export`, `disclosure`, `age` | the Merkle tree, its files, signed checkpoints, and what others get of it |
//! | `layout`, `description`, `files`, `mount`, `reserve` | the folder, its lock, files that are private and really written, and room for a full disk |
//! | `read`, `merged`, `verify`, `invariants` | for everybody else: reading a log, and checking it and what it says |
//!
//! What this crate does not do: it does not decide, and but for `invariants` it does not know what events mean. It does not search;
//! an index would be another projection. It has no function that changes or removes a record.
//!
//! # Invariants
//! - A [`Receipt`] exists only for records that are on the disk with everything before them.
//! - A durable record never refers to an evidence object that is not durable.
//! - After the first failed write or sync nothing is acknowledged until the log is reopened.
//! - Nothing is repaired silently: a cut tail is kept and recorded, and damage elsewhere keeps the log shut.
//! - One process writes, and only the committer thread in it.

mod age;
mod canonical;
mod committer;
mod context;
mod cursor;
mod description;
mod disclosure;
mod error;
mod event;
mod event_name;
mod evidence;
mod export;
mod files;
mod filling;
mod frame;
mod health;
mod invariants;
mod kek;
mod keys;
mod layout;
mod log;
mod merged;
mod mount;
mod note;
mod opening;
mod options;
mod pack;
mod packing;
mod proof;
mod publisher;
mod queue;
mod read;
mod record;
mod recovery;
mod reserve;
mod retention;
mod rotation;
mod seal;
mod signer;
mod sinks;
mod tile;
mod tree;
mod verify;
mod witness;

pub use age::{Recipient, RecipientError};
pub use context::Context;
pub use disclosure::Disclosed;
pub use error::{AuditBlocked, AuditError, EvidenceProblem, ProblemKind};
pub use event::Event;
pub use event_name::{EventName, UnknownEvent};
pub use evidence::{EvidenceRef, KeyName, KeyNameError, RetentionClass, Role};
pub use export::{Exported, export};
pub use health::{Health, Stats};
pub use invariants::{Verdict, Violation, check_invariants};
pub use kek::KekSource;
pub use log::{AuditLog, DurableRecord, Receipt};
pub use note::{Checkpoint, NoteError, NoteKey, NoteSignature, SignedCheckpoint};
pub use options::Options;
pub use proof::{Proof, prove, prove_growth};
pub use read::{Located, Place, located, read, read_at, read_from};
pub use record::{Record, Reference, ReferenceError};
pub use retention::{KeyState, Retention};
pub use signer::SignerSource;
pub use sinks::{Sink, SinkError};
pub use tree::{verify_consistency, verify_inclusion};
pub use verify::{Checks, Problem, Report, verify, verify_with};
pub use witness::{Answer, Courier, Witness, Witnessing};
