//! What a server says and asks while it works on a call.
//!
//! A progress report names its call by the token we gave it, which is the request's own id. Over HTTP everything on a
//! call's stream belongs to that call. A child process has one stream for all, and nothing in a log message or in a
//! question of its says which call it is about: it belongs to the one call under way, or to none (PRO-20, PRO-21).

use std::fmt;
use std::sync::Arc;

use portcullis_governance::boundary::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Trace;

/// Who attends to a call: hears what is said beside it, and answers what is asked.
pub trait Beside: Send + Sync + fmt::Debug {
    /// A notification that belongs to the call. Never waits.
    fn notified(&self, method: &str, params: &RawValue);

    /// The server ended the call's stream before its answer, to be asked for the rest later. Never waits.
    fn paused(&self) {}

    /// A question of the server's to the client, to be answered within the call.
    fn asked(&self, method: String, params: Box<RawValue>) -> BoxFuture<'static, Result<Value, Unanswered>>;
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unanswered {
    /// The declaration does not list it: the server may not ask this (MP-FH-005).
    Undeclared,
    /// It may ask, but nobody answers.
    Refused {
        /// The JSON-RPC code for the server.
        code: i32,
        /// Why, in our words.
        message: String,
    },
}

/// What one call wants said around its arguments.
#[derive(Debug, Clone, Default)]
pub struct Wants {
    /// Whether anybody listens for progress.
    pub progress: bool,
    /// The least severe log message wanted; in the modern era none come without.
    pub log_level: Option<&'static str>,
    /// What the client can be asked, as the modern era says it with every request (PRO-63).
    pub capabilities: Value,
    /// The answers to an earlier `input_required`, and its state byte for byte (PRO-68).
    pub input: Option<Input>,
    /// Whose work it is part of.
    pub trace: Trace,
    /// Whether the server is asked for a task in the form of 2025-11-25.
    pub task: Option<TaskWanted>,
}

/// That a call is to be answered with a task, as revision 2025-11-25 says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskWanted {
    /// How long it should be kept, in milliseconds.
    pub ttl_ms: Option<u64>,
}

/// What a repeated call brings along.
#[derive(Debug, Clone)]
pub struct Input {
    /// By the server's own keys.
    pub responses: Value,
    /// The server's own state, if it gave one.
    pub state: Option<String>,
}

pub(crate) type Attendant = Option<Arc<dyn Beside>>;
