//! What a model sees of a result, and where the rest of it is.
//!
//! A server may answer with a megabyte. A model should read the beginning, be told what else there is, and be able to
//! look at exactly the part it needs. This crate decides what is shown, in short and without ever making it longer.
//!
//! | module | the idea |
//! |---|---|
//! | [`result`], [`part`] | a result as a server sent it, read where it stands; reading never fails |
//! | [`envelope`] | [`result_to_envelope`]: a result in short, and what is worth keeping of it |
//! | [`summary`], [`outline`] | the words of an envelope |
//! | [`wire`] | an envelope as a model reads it, lean or full |
//! | [`firewall`] | whether a result is shown as it stands or in short |
//! | [`bound`] | results held to a size where tools are called directly |
//! | [`projection`] | the paths an operator wants to see instead of a summary |
//! | [`handle`] | names of artifacts that nobody can guess |
//! | [`artifacts`] | what is kept, sealed, for whom and how long |
//! | [`item`], [`session_log`] | what a conversation is made of, and how it is read from a file |
//! | [`builder`] | a prompt out of a conversation, within a budget of tokens |
//! | [`repair`](mod@repair) | arguments that were nearly right |
//! | [`redact`] | secrets taken out of texts, of JSON, and of texts that come in pieces |
//! | [`view`] | looking at part of an artifact: lines, matches, pointers, rows with filter, sort and count |
//!
//! # Invariants
//! - What is shown for a result is never larger than the result (B-CTX-10).
//! - Nothing here follows a link, opens a socket or asks a model.
//! - Nobody but the principal and session that made a call can open what is kept of its result, nor learn that it is there.
//! - No selector can make a view panic, take long or show more than fits.
//! - No claim of a server hides a part from anybody (CTX-9).
//!
//! # Not here
//! Whether a call may be made or an artifact looked at; sanitising, which happens before.

pub mod artifacts;
pub mod bound;
pub mod builder;
pub mod envelope;
pub mod firewall;
pub mod handle;
pub mod item;
mod lines;
pub mod outline;
pub mod part;
pub mod projection;
pub mod redact;
pub mod repair;
pub mod result;
pub mod session_log;
pub mod summary;
pub mod view;
pub mod wire;

pub use artifacts::{Artifacts, Limits, NotKept, NotThere, Origin, Owner, Record, Sensitivity};
pub use builder::{Build, BuildError, Built, ContextBuilder, Phase};
pub use envelope::result_to_envelope;
pub use envelope::{ArtifactRef, NewArtifact, Provenance, ResultEnvelope, Source, Stats, Status, Strategy};
pub use firewall::{About, Cut, Firewall, Kept};
pub use handle::Handle;
pub use item::{ContextItem, Kind};
pub use portcullis_core::tokens::Encoding;
pub use projection::Keep;
pub use redact::{RedactionRules, Redactor};
pub use repair::{Repair, repair};
pub use result::CallToolResult;
pub use view::{Selector, View, ViewError, view as view_artifact};
pub use wire::Format;
