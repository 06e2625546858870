//! The one table of error codes.
//!
//! Programs read codes, people read messages. A message may be reworded at any time; a code, once here, stays.
//! [`ErrorCode`] is what a caller can act on; [`Fault`] names the governed failure modes MP-FH-001 to 010 that
//! stand behind some of them (GOV-1601); [`ErrorDocument`] is the one shape in which both reach a client.

use serde::Serialize;
use serde_json::{Map, Value};

/// What went wrong, as far as a caller can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The arguments do not fit the tool's schema, limits or declared scopes.
    ArgsInvalid,
    /// A schema cannot be used.
    SchemaInvalid,
    /// No such tool, resource or prompt.
    PathNotFound,
    /// A path of the catalogue is not one, or a cursor is stale.
    PathInvalid,
    /// A tool's id names nothing that can be called, or more than one thing.
    HydrateFailed,
    /// A resource's id names nothing.
    ResourceNotFound,
    /// A prompt's id names nothing.
    PromptNotFound,
    /// Policy, declaration or isolation says no.
    PolicyDenied,
    /// A permit check failed, or the upstream said 403.
    PermissionDenied,
    /// An operator must approve first.
    AuthRequired,
    /// The server is not there, or the evidence could not be made durable.
    UpstreamUnavailable,
    /// The server did not answer in time.
    UpstreamTimeout,
    /// The server answered with an error or broke the protocol.
    UpstreamError,
    /// The result is larger than declared.
    ResultTooLarge,
    /// There is nothing to look at under this handle, or not in this way.
    ViewFailed,
    /// More than is allowed in this time or in this session.
    RateLimited,
    /// The request was cancelled by its caller.
    Cancelled,
    /// A defect of the gateway.
    Internal,
    /// Operator side: a value, file or flag is not acceptable.
    Validation,
    /// Operator side: no such thing.
    NotFound,
    /// Operator side: somebody was faster, or the state does not allow it.
    Conflict,
    /// Operator side: not an operator.
    OperatorAuth,
    /// Operator side: the control plane cannot be reached or is held by another process.
    ControlUnavailable,
    /// Operator side: evidence does not verify.
    Integrity,
}

impl ErrorCode {
    /// Every code, for documentation and tests.
    pub const ALL: [ErrorCode; 24] = [
        ErrorCode::ArgsInvalid,
        ErrorCode::SchemaInvalid,
        ErrorCode::PathNotFound,
        ErrorCode::PathInvalid,
        ErrorCode::HydrateFailed,
        ErrorCode::ResourceNotFound,
        ErrorCode::PromptNotFound,
        ErrorCode::PolicyDenied,
        ErrorCode::PermissionDenied,
        ErrorCode::AuthRequired,
        ErrorCode::UpstreamUnavailable,
        ErrorCode::UpstreamTimeout,
        ErrorCode::UpstreamError,
        ErrorCode::ResultTooLarge,
        ErrorCode::ViewFailed,
        ErrorCode::RateLimited,
        ErrorCode::Cancelled,
        ErrorCode::Internal,
        ErrorCode::Validation,
        ErrorCode::NotFound,
        ErrorCode::Conflict,
        ErrorCode::OperatorAuth,
        ErrorCode::ControlUnavailable,
        ErrorCode::Integrity,
    ];

    /// The stable name.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The exit code of a command that ends with this error (GOV §15).
    pub const fn exit_code(self) -> u8 {
        self.row().1
    }

    /// The JSON-RPC code when no [`Fault`] gives a more precise one. Ours lie outside -32768..-32000, where
    /// the protocol reserves its own; the two protocol codes are used where the protocol defines the case.
    pub const fn rpc_code(self) -> i32 {
        self.row().2
    }

    /// The table: name, exit code, JSON-RPC code.
    const fn row(self) -> (&'static str, u8, i32) {
        match self {
            ErrorCode::ArgsInvalid => ("ARGS_INVALID", 7, -32602),
            ErrorCode::SchemaInvalid => ("SCHEMA_INVALID", 7, -31022),
            ErrorCode::PathNotFound => ("PATH_NOT_FOUND", 8, -32602),
            ErrorCode::PathInvalid => ("PATH_INVALID", 7, -32602),
            ErrorCode::HydrateFailed => ("HYDRATE_FAILED", 8, -32602),
            ErrorCode::ResourceNotFound => ("RESOURCE_NOT_FOUND", 8, -32602),
            ErrorCode::PromptNotFound => ("PROMPT_NOT_FOUND", 8, -32602),
            ErrorCode::PolicyDenied => ("POLICY_DENIED", 2, -31021),
            ErrorCode::PermissionDenied => ("PERMISSION_DENIED", 2, -31006),
            ErrorCode::AuthRequired => ("AUTH_REQUIRED", 2, -31020),
            ErrorCode::UpstreamUnavailable => ("UPSTREAM_UNAVAILABLE", 1, -31001),
            ErrorCode::UpstreamTimeout => ("UPSTREAM_TIMEOUT", 3, -31004),
            ErrorCode::UpstreamError => ("UPSTREAM_ERROR", 1, -31023),
            ErrorCode::ResultTooLarge => ("RESULT_TOO_LARGE", 1, -31024),
            ErrorCode::ViewFailed => ("VIEW_FAILED", 8, -31026),
            ErrorCode::RateLimited => ("RATE_LIMITED", 1, -31027),
            ErrorCode::Cancelled => ("CANCELLED", 3, -31025),
            ErrorCode::Internal => ("INTERNAL", 1, -32603),
            ErrorCode::Validation => ("VALIDATION", 7, -31030),
            ErrorCode::NotFound => ("NOT_FOUND", 8, -31031),
            ErrorCode::Conflict => ("CONFLICT", 1, -31032),
            ErrorCode::OperatorAuth => ("OPERATOR_AUTH", 6, -31033),
            ErrorCode::ControlUnavailable => ("CONTROL_UNAVAILABLE", 5, -31034),
            ErrorCode::Integrity => ("INTEGRITY", 1, -31035),
        }
    }
}

/// The governed failure modes (GOV-1601).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// MP-FH-001: spawn, connect, handshake or stream failed.
    Unavailable,
    /// MP-FH-002: the tool, or the declaration that would make it usable, is not accepted.
    NotAccepted,
    /// MP-FH-003: the server is not what was declared.
    Mismatch,
    /// MP-FH-004: no answer in time.
    Timeout,
    /// MP-FH-005: the server did something nobody declared.
    UngovernedSurface,
    /// MP-FH-006: a permit check failed.
    Permit,
    /// MP-FH-007: the server cannot be isolated as required.
    Isolation,
    /// MP-FH-008: the server left its scopes.
    ScopeViolation,
    /// MP-FH-009: the server's version or bytes are not the registered ones.
    Version,
    /// MP-FH-010: evidence could not be made durable.
    Audit,
}

impl Fault {
    /// `MP-FH-00n`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Fault::Unavailable => "MP-FH-001",
            Fault::NotAccepted => "MP-FH-002",
            Fault::Mismatch => "MP-FH-003",
            Fault::Timeout => "MP-FH-004",
            Fault::UngovernedSurface => "MP-FH-005",
            Fault::Permit => "MP-FH-006",
            Fault::Isolation => "MP-FH-007",
            Fault::ScopeViolation => "MP-FH-008",
            Fault::Version => "MP-FH-009",
            Fault::Audit => "MP-FH-010",
        }
    }

    /// The code a caller sees.
    pub const fn error_code(self) -> ErrorCode {
        match self {
            Fault::Unavailable | Fault::Audit => ErrorCode::UpstreamUnavailable,
            Fault::Timeout => ErrorCode::UpstreamTimeout,
            Fault::Permit => ErrorCode::PermissionDenied,
            _ => ErrorCode::PolicyDenied,
        }
    }

    /// -31001 to -31010.
    pub const fn rpc_code(self) -> i32 {
        -31001 - self as i32
    }
}

/// The error document of GOV-1601: what a refused or failed call says to its caller.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorDocument {
    /// What a program reads.
    #[serde(serialize_with = "code_name")]
    pub error: ErrorCode,
    /// One line for people; no control characters, no secret, at most 256 characters.
    pub message: String,
    /// `<server>/<tool>`, or what the caller asked for.
    pub path: String,
    /// Whether the same request may succeed later without anybody doing anything.
    pub retryable: bool,
    /// What a program may want besides.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
    #[serde(skip)]
    fault: Option<Fault>,
}

fn code_name<S: serde::Serializer>(code: &ErrorCode, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(code.as_str())
}

impl ErrorDocument {
    /// A plain refusal.
    pub fn new(error: ErrorCode, path: impl Into<String>, message: impl AsRef<str>) -> Self {
        let retryable = matches!(error, ErrorCode::UpstreamUnavailable);
        let message = one_line(message.as_ref());
        Self { error, message, path: path.into(), retryable, details: Map::new(), fault: None }
    }

    /// A governed failure mode.
    pub fn fault(fault: Fault, path: impl Into<String>, message: impl AsRef<str>) -> Self {
        let mut document = Self::new(fault.error_code(), path, message).with("code", fault.as_str());
        document.fault = Some(fault);
        document
    }

    /// Adds a detail.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }

    /// Says whether the same request may succeed later.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// The failure mode behind this document, if any.
    pub fn governed_fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The JSON-RPC code of this document.
    pub fn rpc_code(&self) -> i32 {
        self.fault.map_or(self.error.rpc_code(), Fault::rpc_code)
    }
}

/// One line of at most 256 characters without control characters: what may stand in a message.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_name_and_lies_outside_the_reserved_ranges() {
        // GOV-1601: our codes lie outside -32768..-32000, except where the protocol itself defines the case.
        let mut names: Vec<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            let rpc = code.rpc_code();
            assert!([-32602, -32603].contains(&rpc) || (-31099..=-31000).contains(&rpc), "{code:?}");
            assert!((1..=8).contains(&code.exit_code()));
        }
    }

    #[test]
    fn faults_have_the_codes_of_the_specification() {
        assert_eq!((Fault::Unavailable.as_str(), Fault::Unavailable.rpc_code()), ("MP-FH-001", -31001));
        assert_eq!((Fault::Permit.as_str(), Fault::Permit.rpc_code()), ("MP-FH-006", -31006));
        assert_eq!((Fault::Audit.as_str(), Fault::Audit.rpc_code()), ("MP-FH-010", -31010));
        assert_eq!(Fault::Audit.error_code(), ErrorCode::UpstreamUnavailable);
        assert_eq!(Fault::Version.error_code(), ErrorCode::PolicyDenied);
    }

    #[test]
    fn the_document_has_the_specified_shape() {
        let document = ErrorDocument::fault(
            Fault::Permit,
            "filesystem/read_file",
            "permit check failed: argument_scope",
        )
        .with("check", "argument_scope");
        assert_eq!(
            serde_json::to_value(&document).unwrap(),
            serde_json::json!({
                "error": "PERMISSION_DENIED", "message": "permit check failed: argument_scope",
                "path": "filesystem/read_file", "retryable": false,
                "details": {"code": "MP-FH-006", "check": "argument_scope"},
            })
        );
        let hostile = ErrorDocument::new(ErrorCode::UpstreamError, "x", "a\u{1b}[31m\n".repeat(100));
        assert!(hostile.message.chars().count() == 256 && !hostile.message.contains(char::is_control));
    }
}
