//! Portcullis administering itself: every operation on the gateway is one tool with one handler, whoever asks for it.
//!
//! MCP, the command line and the console call the same [`Invoker::call`]; none of them reaches the control plane or the
//! store by itself. A call says which tool, which arguments, who asks and through which door; the answer is an
//! [`Envelope`] whose bytes are the same on every surface.
//!
//! | module | the idea |
//! |---|---|
//! | [`actor`], [`roles`] | who asks, through which door, and what it sees |
//! | [`args`], [`boundary`] | arguments as structs; everything that is wrong with them is said at once |
//! | [`tool`], [`registry`] | a tool, its class, its handler; all of them |
//! | [`grant`], [`reply`] | permission to do one thing once, and the receipt that it is on record |
//! | [`invoker`], `deferred` | the one door, the order in which it refuses, and what waits for a second operator |
//! | [`agents`] | the tools that look, at the agents' door |
//! | [`mcp`], [`http`], [`openapi`] | the surfaces of programs: MCP, and JSON over HTTP with its description |
//! | [`services`], [`tools`] | what can be asked of the gateway, and the tools that ask it |
//!
//! # Invariants
//! - An admin handler cannot be written without an [`AdminGrant`], nor answer without an [`AuditReceipt`]; both are made
//!   in one place each. So each success has one executed event in the log, and each refusal none.
//! - A read handler has no way to change anything: what changes something takes an [`Op`].
//! - On the agents' channel nothing that changes anything exists.
//! - No answer, log line or event holds a secret: texts are scrubbed, and arguments that look like one are refused.
//! - This crate does not know the store.

pub mod actor;
pub mod agents;
pub mod args;
pub mod boundary;
pub mod context;
mod cx;
mod deferred;
pub mod envelope;
mod error;
mod events;
pub mod grant;
pub mod http;
pub mod invoker;
pub mod mcp;
mod metric;
pub mod openapi;
pub mod registry;
pub mod reply;
pub mod roles;
pub mod services;
pub mod tool;
pub mod tools;

pub use actor::{Actor, Channel};
pub use args::{NonBlank, Page, Paged};
pub use cx::{ActorRef, Cx};
pub use envelope::{DomainCode, Envelope, Pagination};
pub use error::{AdminError, Violation};
pub use grant::{AdminGrant, AuditReceipt, Op, TargetId};
pub use invoker::Invoker;
pub use metric::Calls;
pub use registry::{Module, Registry, RegistryFault};
pub use reply::{Committed, Reply};
pub use roles::{Role, Roles};
pub use tool::{Class, Data, ToolDef, admin_tool, read_tool, unwired_tool, write_tool};
