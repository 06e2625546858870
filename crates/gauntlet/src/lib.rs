//! The pure halves of a call: what is checked before the server is asked, and after it has answered.
//!
//! An agent's arguments pass [`screen`] on their way in, a server's result passes [`finish`] on its way out.
//! Neither opens a file or a socket, reads a clock or waits: given the same tool and the same bytes, both
//! answer the same, always. That is what makes a refusal explainable later, from the evidence alone.
//!
//! | module | the idea |
//! |---|---|
//! | [`schema`] | a JSON Schema, measured, compiled once and shared |
//! | `survey` | what a schema costs before anything is compiled: caps, references, cycles |
//! | [`violations`] | what is wrong with a value, in an order that never changes and words that quote nothing |
//! | [`args`] | arguments as they come from the one strict reader |
//! | [`spec`] | a tool as the gauntlet knows it; [`screen`] |
//! | [`result`] | a result that only [`finish`] can read, and what may leave afterwards |
//! | `kind` | what a result must look like, by what was asked for |
//! | `payload` | reading a result's bytes without building what nobody asked for |
//! | [`gauntlet`] | how everything is set up; text, labels and values made safe to show |
//! | [`sanitise`] | control characters out, markup escaped, markers removed in every reading |
//! | [`error`] | every refusal, its stable word and its code |
//!
//! # Invariants
//! - No reference is ever fetched: no resolver is compiled in, and a reference that leaves its document is
//!   refused before compilation (GNT-S3).
//! - No error text holds a value of the instance it is about (GNT-S10).
//! - What a server wrote is [`Raw`] and what may be shown is [`Clean`]; only the sanitiser makes the second from
//!   the first, once (GNT-Z14).
//! - [`Args`] come only from the strict parser, [`Screened`] only from [`screen`], [`SafeResult`] only from
//!   [`finish`]; the bytes inside a [`RawResult`] have no other reader.
//!
//! # Not here
//! Whether a caller may call the tool (that is policy and capability), and what the call does to the world.

pub mod args;
pub mod error;
pub mod gauntlet;
mod kind;
mod payload;
pub mod result;
pub mod sanitise;
pub mod schema;
pub mod spec;
mod survey;
pub mod violations;

pub use args::Args;
pub use error::GauntletError;
pub use gauntlet::{Gauntlet, GauntletConfig, TextJson};
pub use kind::ResultKind;
pub use result::{RawResult, SafeResult, finish};
pub use sanitise::clean::{Clean, Raw};
pub use sanitise::{Escape, Report};
pub use schema::{CompiledSchema, SchemaRole};
pub use spec::{Screened, ToolSpec, screen};
pub use violations::{SchemaViolations, Violation};
