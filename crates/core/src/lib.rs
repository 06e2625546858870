//! The words every Portcullis crate shares.
//!
//! An MCP gateway is mostly agreement about small things: what a tool's full name is, when two argument
//! documents are the same document, who is asking, what time it is, what an error is called. Those agreements
//! live here, once, as types. Nothing in this crate opens a file or a socket (but for the system's own clock
//! and random numbers), and nothing in it knows about policies, permits or upstreams.
//!
//! | module | the word |
//! |---|---|
//! | [`id`] | ULID newtypes: session, proposal, permit, event, log, registration epoch; random approval ids |
//! | [`name`] | names with a grammar: server identity, server version, tool name |
//! | [`tool_id`] | the canonical identity `<server>/<tool>@<version>#<counter>:<sha256>` |
//! | [`canon`] | strict JSON in, RFC 8785 canonical JSON out |
//! | [`digest`] | SHA-256 digests and versions made of them |
//! | [`principal`], [`lineage`] | who asks, in which session, as which step |
//! | [`clock`] | time that tests can hold, and that never runs backwards |
//! | [`secret`] | a value that cannot be printed |
//! | [`scrub`] | secrets taken out of text |
//! | [`error`] | the one table of error codes |
//! | [`jsonrpc`] | the JSON-RPC envelope, read without parsing what it carries |
//! | [`tokens`] | how many tokens a text has |
//! | [`failpoint`] | named places where a test build may die |
//!
//! # Invariants
//! - A value of a newtype in this crate is well-formed: parsing is the only way in.
//! - Two documents are equal exactly if their [`canon::to_jcs`] bytes are equal.
//! - [`secret::Secret`] has no `Display`, no `Serialize` and a `Debug` that shows nothing.
//! - Every error a program may see has one [`error::ErrorCode`]; texts are for people and may change.

pub mod canon;
pub mod clock;
pub mod digest;
pub mod error;
pub mod failpoint;
pub mod id;
pub mod jsonrpc;
pub mod lineage;
pub mod name;
pub mod principal;
pub mod scrub;
pub mod secret;
pub mod tokens;
pub mod tool_id;

pub use canon::{CanonError, Limits};
pub use clock::{Clock, SystemClock, Timestamp};
pub use digest::Sha256Digest;
pub use error::ErrorCode;
pub use id::{ApprovalId, EventId, IncidentId, LogId, PermitId, ProposalId, RegistrationEpoch, SessionId};
pub use lineage::Lineage;
pub use name::{NameError, ServerIdentity, ServerVersion, ToolName};
pub use principal::{Actor, Principal};
pub use secret::Secret;
pub use tool_id::{DeclarationVersion, Item, PolicyVersion, ToolId};
