//! The operator channel (GOV-104): how a command reaches the running gateway, or takes its place.
//!
//! One JSON document each way over a Unix socket that only the gateway's own user can open; the peer's uid is
//! checked besides. Without a running gateway the command takes the writer lock and does the same in its own
//! process. Either way each request is an admin tool ([`Request::behind`]), and its answer is the same document.
//!
//! | module | the idea |
//! |---|---|
//! | `request` | what can be asked for, and which tool each of it is |
//! | `channel`, `socket` | the two ends |
//! | `desk` | who asks, and carrying it out |
//! | `door`, `looking` | the one way to change something, and what can be looked at |
//! | `acts`, `arguments`, `looks`, `captures`, `surface` | the requests, by what stands behind them |
//! | `listed`, `shown` | lists that are the rows of a tool, and documents that are its data |
//! | `rows` | how things are told |
//!
//! # Invariant
//! What carries out a request has no control plane to change anything with: a [`door::Door`] calls tools, and a
//! [`looking::Looking`] looks. So roles, two operators and the record of each operation cannot be gone around (ADM-1).

mod acts;
mod arguments;
mod captures;
mod channel;
mod desk;
mod door;
mod listed;
mod looking;
mod looks;
mod request;
mod rows;
mod shown;
mod socket;
mod surface;

use serde_json::Value;

pub(crate) use channel::{Channel, running};
pub(crate) use desk::{Desk, user_name};
pub(crate) use request::Request;
pub(crate) use socket::serve;

use crate::failure::Failure;

type Answer = Result<Value, Failure>;
