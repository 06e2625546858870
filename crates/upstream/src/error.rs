//! What can go wrong before a call: starting, greeting, listing. (What goes wrong with a call is an
//! [`Outcome`](portcullis_governance::boundary::Outcome), and sealed.)

use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_core::error::Fault;
use portcullis_governance::boundary::ProbeDenied;
use portcullis_governance::endpoint::EndpointError;

/// Why there is no connection, or no list.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The program did not start.
    #[error("cannot start {command}: {reason}")]
    Spawn {
        /// The program.
        command: String,
        /// The system's reason.
        reason: String,
    },
    /// The program or one of its files is not what was registered.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// It cannot be confined as its declaration wants, so it was not started (MP-FH-007).
    #[error(
        "the server cannot be confined: {facility}: {detail}; {}`portcullis sandbox doctor` says more",
        portcullis_sandbox::doctor::advice(facility).map_or_else(String::new, |fix| format!("what helps: {fix}; "))
    )]
    Isolation {
        /// What is missing.
        facility: String,
        /// What the kernel or the test said.
        detail: String,
    },
    /// The connection failed or ended.
    #[error("{reason}")]
    Unavailable {
        /// Why, in our words.
        reason: String,
    },
    /// No answer in time.
    #[error("the server did not answer {method} in {} s", .after.as_secs_f32())]
    Timeout {
        /// What was asked.
        method: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// The server answered with an error.
    #[error("the server refused {method} with error {code}")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// The JSON-RPC code. Its text is hostile and stays out.
        code: i64,
    },
    /// The server said something that is not the protocol.
    #[error("the server broke the protocol: {reason}")]
    Protocol {
        /// How, in our words.
        reason: String,
    },
    /// The server speaks no revision that we know.
    #[error("the server speaks no protocol revision that is known here")]
    UnknownRevision,
    /// A list has no array of tools.
    #[error("the server's tool list has no array of tools")]
    ListShape,
    /// A cursor came back.
    #[error("the server's tool list names the same next page twice")]
    CursorLoop,
    /// A list beyond its caps.
    #[error("the server's tool list has more than {limit} {unit}")]
    ListTooLong {
        /// The cap.
        limit: usize,
        /// What was counted.
        unit: &'static str,
    },
    /// Too many failures in a row: nobody is let through until the pause is over.
    #[error("the server failed {failures} times in a row and is left alone for {} s; last: {last}", .retry_in.as_secs() + 1)]
    BreakerOpen {
        /// How many.
        failures: u32,
        /// How long still.
        retry_in: Duration,
        /// What happened last.
        last: String,
    },
    /// The connection was closed by us.
    #[error("the connection to the server is closed")]
    Closed,
    /// Asking could not be recorded, so nothing was asked.
    #[error(transparent)]
    Denied(#[from] ProbeDenied),
}

impl UpstreamError {
    /// The stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Timeout { .. } => ErrorCode::UpstreamTimeout,
            Self::Refused { .. }
            | Self::Protocol { .. }
            | Self::UnknownRevision
            | Self::ListShape
            | Self::CursorLoop
            | Self::ListTooLong { .. } => ErrorCode::UpstreamError,
            Self::Endpoint(EndpointError::Changed { .. }) | Self::Isolation { .. } => ErrorCode::PolicyDenied,
            _ => ErrorCode::UpstreamUnavailable,
        }
    }

    /// The governed failure mode (GOV-1601).
    pub fn fault(&self) -> Fault {
        match self {
            Self::Timeout { .. } => Fault::Timeout,
            Self::Endpoint(EndpointError::Changed { .. }) => Fault::Version,
            Self::Denied(_) => Fault::Audit,
            Self::Isolation { .. } => Fault::Isolation,
            _ => Fault::Unavailable,
        }
    }

    /// The finding of the gauntlet's specification where the list itself is at fault.
    pub fn violation(&self) -> Option<&'static str> {
        match self {
            Self::ListShape => Some("mcp-list-shape"),
            Self::CursorLoop => Some("mcp-list-cursor-loop"),
            Self::ListTooLong { .. } => Some("list_truncated"),
            _ => None,
        }
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self::Protocol { reason: reason.into() }
    }
}
