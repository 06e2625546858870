//! Talking to MCP servers.
//!
//! One [`Connection`] per registered server, shared by every client: it starts the process or opens the HTTP
//! connection when somebody needs it, finds out which era of the protocol the server speaks, carries any number
//! of calls at once, and comes back after a failure, a little later each time. A connection that is up is a
//! [`Live`] one; only a live one can build the frame of a call, and only a validated permit can send it.
//!
//! | module | the idea |
//! |---|---|
//! | [`endpoint`] | where a server is: a command line, or a URL |
//! | [`connection`] | the lasting thing: connects once for all who ask, backs off, closes |
//! | [`live`] | a connection that is up: builds frames, transmits permits |
//! | [`snapshot`] | what a server says it is and has: the greeting, and every page of its tools |
//! | [`era`], `greeting` | the two eras, and finding out which one this is |
//! | [`beside`] | what a server says and asks while it works on a call |
//! | `frame` | the exact bytes of our messages |
//! | `pending` | who waits for which answer |
//! | `desk` | one stream for all calls: whose answer, whose question |
//! | `stdio`, `process`, `last_words` | a child process: lines in, lines out, and its end |
//! | `http`, `sse` | streamable HTTP: one POST, one answer, as JSON or as events; and listening |
//! | `legacy_sse` | HTTP of the first revision: a stream to hear on, an address to post to |
//! | `pool`, `tls` | connections of HTTP/1.1 and 2, to this machine in the clear, to others in private |
//! | [`records`] | the built-in adapter for records servers, a server in this process |
//! | `lending` | credentials, for the time of one call; and looking for them in what comes back |
//! | [`event`] | what a server does unasked |
//! | [`followed`], `keeping_up` | who wants to hear of which resource, and having the server say so once for all of them |
//! | [`oauth`] | proving to servers who we are: discovery, login, tokens that are renewed |
//! | [`web`] | documents that are not MCP: keys of issuers, metadata |
//! | [`error`], [`settings`] | what can go wrong; how patient to be |
//!
//! # Invariants
//! - A call leaves only through [`Transmit`](portcullis_governance::boundary::Transmit), which takes a
//!   `ValidatedPermit` by value; a handshake or a listing only with a `ProbePermit`, one per exchange.
//! - Every request has a fresh random id (PRO-68). An answer goes to the one call that waits for it, or to nobody
//!   and is reported.
//! - The reader of a child's output never waits for a consumer (PRO-36).
//! - A result is a slice of the bytes that were received; it is never parsed and written again here (PRO-10).
//! - No process outlives its connection, nor the gateway.
//!
//! # Not here
//! Whether a call may be made, what may be declared, what a result must look like, and what a child may touch.

pub mod beside;
pub mod connection;
mod desk;
pub mod endpoint;
pub mod era;
pub mod error;
pub mod event;
pub mod followed;
mod frame;
#[cfg(test)]
mod framing_fuzz;
mod greeting;
mod http;
mod keeping_up;
mod last_words;
mod legacy_sse;
mod lending;
mod link;
pub mod live;
pub mod oauth;
mod pending;
mod pool;
mod process;
pub mod records;
#[cfg(test)]
mod scenarios;
pub mod settings;
pub mod snapshot;
mod sse;
mod stdio;
mod tls;
pub mod trace;
pub mod waivers;
pub mod web;

pub use beside::{Beside, Input, TaskWanted, Unanswered, Wants};
pub use connection::{Connection, Phase, Status, probe_once};
pub use endpoint::{Endpoint, Remote, StdioEndpoint};
pub use era::Era;
pub use error::UpstreamError;
pub use event::UpstreamEvent;
pub use followed::{Followed, Following, Inbox};
pub use keeping_up::Untold;
pub use live::Live;
pub use process::rehearse;
pub use settings::Settings;
pub use snapshot::{Greeting, Snapshot};
pub use trace::Trace;
