//! The pure halves of a call: what is checked before the server is asked, and after it has answered.
//!
//! An agent's arguments pass [`screen`] on their way in, a server's result passes [`Gauntlet::finish`] on its way out.
//! Neither opens a file or a socket or waits: given the same tool and the same bytes, both answer the same. That is what
//! makes a refusal explainable later, from the evidence alone. One clock is read, by validations that visit thousands of
//! subschemas, and it can only refuse (`mcp-schema-budget`).
//!
//! | module | the idea |
//! |---|---|
//! | [`schema`] | a JSON Schema, measured, compiled once and shared |
//! | `survey` | what a schema costs before anything is compiled: caps, references, cycles |
//! | `validator` | whether a value fits a schema, within a budget |
//! | [`violations`] | what is wrong with a value, in an order that never changes and words that quote nothing |
//! | [`advertised`] | what clients are told about a tool: clean labels, an output schema sanitised results fit |
//! | [`bind`] | a server's tools, read from a session and held together with it |
//! | [`capability`] | grants, requirements, and whether the first cover the second |
//! | [`args`] | arguments as they come from the one strict reader |
//! | [`spec`] | a tool as the gauntlet knows it; [`screen`] |
//! | [`result`] | a result that only [`Gauntlet::finish`] can read, and what may leave afterwards |
//! | [`redact`] | when secrets are taken out, by somebody who knows them |
//! | `kind` | what a result must look like, by what was asked for |
//! | `leaves`, `blocks` | the strings of a result, cleaned where they stand |
//! | [`upstream_words`] | what servers say when something goes wrong |
//! | [`pages`] | pages that servers want visited first |
//! | [`glob`] | patterns for scopes and tools |
//! | `tape` | a JSON text, read once |
//! | `payload` | what a tool's result is, told from its members |
//! | [`task`] | a result that says "later", and what its server reports of it |
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
//!   [`Gauntlet::finish`] and, for questions, from the report of a task; the bytes inside a [`RawResult`] have no other reader.
//!
//! # Not here
//! Whether policy wants the call, and what it does to the world.

pub mod advertised;
pub mod args;
pub mod bind;
mod blocks;
pub mod capability;
pub mod error;
pub mod gate;
pub mod gate_meter;
pub mod gauntlet;
pub mod glob;
mod kind;
mod leaves;
pub mod pages;
mod payload;
pub mod redact;
pub mod result;
pub mod sanitise;
pub mod schema;
pub mod spec;
mod survey;
mod tape;
pub mod task;
pub mod upstream_words;
mod validator;
pub mod violations;

pub use args::Args;
pub use blocks::BlockMark;
pub use capability::{CapMode, Capabilities, Grants, Requirement, covers_by_name};
pub use error::GauntletError;
pub use gauntlet::{Gauntlet, GauntletConfig, TextJson, ToolOverride, Treatment};
pub use glob::Glob;
pub use kind::ResultKind;
pub use pages::{PagesWanted, URL_ELICITATION_REQUIRED};
pub use redact::Redact;
pub use result::{RawResult, ResultType, SafeResult};
pub use sanitise::clean::{Clean, Raw};
pub use sanitise::{Escape, Report};
pub use schema::{CompiledSchema, SchemaRole};
pub use spec::{Screened, ToolSpec, recheck, screen};
pub use task::{TaskHandle, TaskPayload, TaskReport, TaskStatus};
pub use upstream_words::UpstreamWords;
pub use violations::{SchemaViolations, Violation};
