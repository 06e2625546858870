//! The gateway: the path of one `tools/call`, and what stands around it.
//!
//! Start reading at [`lifecycle`]: ten steps, each a function from one type to the next, top to bottom in one
//! file. Around it stand
//!
//! | module | what it is |
//! |---|---|
//! | [`lifecycle`] | the ten steps of a governed call |
//! | [`access`] | who may reach the edge over HTTP |
//! | `upstream_said` | what a server said, made safe to show |
//! | [`upstreams`] | connections, held to their declarations |
//! | [`world`] | the one immutable snapshot the data plane reads |
//! | [`control`] | the control plane: registration, approvals, start and stop; the only maker of worlds |
//! | [`controls`] | limits on calls and tokens, and how often a failed call is made again |
//! | [`edge`] | MCP towards agents: both eras, over stdio and streamable HTTP |
//! | [`exposure`] | how much of the catalogue a client sees at once: everything, names, or a way to search |
//! | [`result`] | the result as the client's era wants it, byte for byte where it can be |
//! | [`alarms`] | what somebody should look at and no call fails for |
//! | [`shaping`] | results in short, what is kept of them, and `tool_view` |
//! | [`target`] | what an agent asks for, by the name it knows |
//! | `sealed` | opaque texts that clients carry for us |
//! | [`projector`] | state in the store, following the log |
//! | [`recovery`] | what a crash left open |
//! | [`story`] | what the log says about one call |
//! | [`cassette`], [`replay`] | recorded results, and calls answered from them |
//!
//! It deliberately holds no policy of its own and knows nothing of command lines or configuration files.
//!
//! # Invariants
//! - The data plane never takes a lock of the control plane: it reads a [`world::World`] through an atomic
//!   pointer, and a change is seen wholly or not at all.
//! - A change is durable before a world that has it is made.
//! - A call, once its intent is durable, is settled even if its client has gone.
//! - Nothing is broadcast: an answer goes to the one request it answers.

/// The built-in adapter for records servers.
pub use portcullis_upstream::records;

pub mod access;
pub mod alarms;
pub mod cassette;
pub mod control;
pub mod controls;
mod courier;
pub mod edge;
pub mod exposure;
mod following;
pub mod gates;
pub mod index;
pub mod lifecycle;
mod listing;
mod long_work;
pub mod orders;
pub mod projector;
pub mod quotas;
pub mod recovery;
pub mod remembered;
pub mod replay;
pub mod replicas;
pub mod result;
mod sealed;
pub mod separation;
pub mod shaping;
pub mod signals;
pub mod story;
pub mod surface;
pub mod target;
pub mod turns;
mod upstream_said;
pub mod upstreams;
pub mod webhooks;
pub mod world;

pub use control::{Control, ControlError, Gateway, GatewayOptions};
pub use world::World;
