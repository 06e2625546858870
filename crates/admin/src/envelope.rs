//! What every admin call answers, byte for byte (admin §5).

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::AdminError;

/// What a program can act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainCode {
    /// The arguments are not acceptable.
    InvalidArgument,
    /// An identified actor, a confirmation or a reason is missing, or one person would approve its own request.
    GuardrailViolated,
    /// Absent, or not for this actor to see.
    NotFound,
    /// Wrong state, stale version, lost race.
    Conflict,
    /// Not wired, or the backend cannot.
    NotSupported,
    /// The log or the store cannot take the operation; nothing changed.
    Unavailable,
    /// Anything else.
    HandlerFailure,
}

impl DomainCode {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            DomainCode::InvalidArgument => "invalid_argument",
            DomainCode::GuardrailViolated => "guardrail_violated",
            DomainCode::NotFound => "not_found",
            DomainCode::Conflict => "conflict",
            DomainCode::NotSupported => "not_supported",
            DomainCode::Unavailable => "unavailable",
            DomainCode::HandlerFailure => "handler_failure",
        }
    }

    /// The HTTP status (admin §5).
    pub fn http_status(self) -> u16 {
        match self {
            DomainCode::InvalidArgument => 400,
            DomainCode::GuardrailViolated => 403,
            DomainCode::NotFound => 404,
            DomainCode::Conflict => 409,
            DomainCode::NotSupported => 501,
            DomainCode::Unavailable => 503,
            DomainCode::HandlerFailure => 500,
        }
    }

    /// The exit code of a command that ends with it.
    pub fn exit_code(self) -> u8 {
        match self {
            DomainCode::InvalidArgument => 7,
            DomainCode::GuardrailViolated => 2,
            DomainCode::NotFound => 8,
            _ => 1,
        }
    }
}

/// Where in a list an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Pagination {
    /// How many rows there are under this filter.
    pub total: u64,
    /// How many were skipped.
    pub offset: u64,
    /// How many were asked for, or returned if the answer had to be cut.
    pub limit: u64,
}

/// The answer to one admin call.
#[derive(Debug)]
pub struct Envelope {
    body: Body,
    tool: String,
    request_id: String,
}

#[derive(Debug)]
enum Body {
    Ok { data: Box<RawValue>, pagination: Option<Pagination>, pending: bool },
    Error(AdminError),
    Unknown,
}

impl Envelope {
    pub(crate) fn ok(
        tool: &str,
        request_id: &str,
        data: Box<RawValue>,
        pagination: Option<Pagination>,
    ) -> Self {
        Self::with(Body::Ok { data, pagination, pending: false }, tool, request_id)
    }

    /// It waits for another operator (ADM-54).
    pub(crate) fn pending(tool: &str, request_id: &str, approval_id: &str) -> Self {
        let data = serde_json::json!({"pending_approval": approval_id}).to_string();
        let data = RawValue::from_string(data).expect("an object is JSON");
        Self::with(Body::Ok { data, pagination: None, pending: true }, tool, request_id)
    }

    pub(crate) fn error(tool: &str, request_id: &str, error: AdminError) -> Self {
        Self::with(Body::Error(error), tool, request_id)
    }

    /// No such tool, or none that this actor can see: the same bytes for both, and nothing of what was asked.
    pub(crate) fn unknown_tool(request_id: &str) -> Self {
        Self::with(Body::Unknown, "", request_id)
    }

    fn with(body: Body, tool: &str, request_id: &str) -> Self {
        Self { body, tool: tool.to_owned(), request_id: request_id.to_owned() }
    }

    /// Whether MCP says `isError` (ADM-32).
    pub fn is_error(&self) -> bool {
        !matches!(self.body, Body::Ok { .. })
    }

    /// Whether there is no such tool for who asks. MCP answers with a protocol error, code -32602.
    pub fn is_unknown_tool(&self) -> bool {
        matches!(self.body, Body::Unknown)
    }

    /// The status over HTTP.
    pub fn http_status(&self) -> u16 {
        match &self.body {
            Body::Ok { pending: true, .. } => 202,
            Body::Ok { .. } => 200,
            Body::Error(error) => error.code().http_status(),
            Body::Unknown => 404,
        }
    }

    /// The exit code of a command.
    pub fn exit_code(&self) -> u8 {
        match &self.body {
            Body::Ok { .. } => 0,
            Body::Error(error) => error.code().exit_code(),
            Body::Unknown => DomainCode::NotFound.exit_code(),
        }
    }

    /// What went wrong, where something did.
    pub fn failure(&self) -> Option<&AdminError> {
        match &self.body {
            Body::Error(error) => Some(error),
            Body::Ok { .. } | Body::Unknown => None,
        }
    }

    /// The data of a success, as JSON text.
    pub fn data(&self) -> Option<&RawValue> {
        match &self.body {
            Body::Ok { data, .. } => Some(data),
            Body::Error(_) | Body::Unknown => None,
        }
    }

    /// Where in a list the data are.
    pub fn pagination(&self) -> Option<Pagination> {
        match &self.body {
            Body::Ok { pagination, .. } => *pagination,
            Body::Error(_) | Body::Unknown => None,
        }
    }

    /// The request's id, for the log.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// The bytes that every surface answers with.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an envelope is plain JSON")
    }

    /// The label of the metric (admin §9).
    pub(crate) fn outcome(&self) -> &'static str {
        match &self.body {
            Body::Ok { pending: true, .. } => "pending",
            Body::Ok { .. } => "success",
            Body::Unknown => "not_found",
            Body::Error(error) => match error.code() {
                DomainCode::InvalidArgument => "validation_error",
                DomainCode::GuardrailViolated => "guardrail_violated",
                DomainCode::NotFound => "not_found",
                DomainCode::Conflict => "conflict",
                DomainCode::NotSupported => "capability_unsupported",
                DomainCode::Unavailable | DomainCode::HandlerFailure => "error",
            },
        }
    }
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        match &self.body {
            Body::Ok { data, pagination, .. } => {
                map.serialize_entry("status", "ok")?;
                map.serialize_entry("data", data)?;
                if let Some(pagination) = pagination {
                    map.serialize_entry("pagination", pagination)?;
                }
            }
            Body::Error(error) => {
                map.serialize_entry("status", "error")?;
                map.serialize_entry("error_type", error.error_type())?;
                map.serialize_entry("message", &error.message())?;
                map.serialize_entry("domain_code", error.code().as_str())?;
                if let Some(violation) = error.violation() {
                    map.serialize_entry("violation", violation.as_str())?;
                }
                map.serialize_entry("tool", &self.tool)?;
                map.serialize_entry("request_id", &self.request_id)?;
            }
            Body::Unknown => {
                map.serialize_entry("code", &-32602)?;
                map.serialize_entry("message", "Unknown tool")?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Violation;

    #[test]
    fn envelopes_are_the_specified_bytes() {
        // admin §5
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(Envelope::ok("t", "r", raw("null"), None).to_json(), r#"{"status":"ok","data":null}"#);
        let page = Some(Pagination { total: 25, offset: 10, limit: 5 });
        assert_eq!(
            Envelope::ok("t", "r", raw("[1]"), page).to_json(),
            r#"{"status":"ok","data":[1],"pagination":{"total":25,"offset":10,"limit":5}}"#
        );
        let not_found = AdminError::not_found("server 'x' does not exist");
        assert_eq!(
            Envelope::error("portcullis_servers_get", "req_1", not_found).to_json(),
            r#"{"status":"error","error_type":"NotFoundError","message":"NotFoundError: server 'x' does not exist","domain_code":"not_found","tool":"portcullis_servers_get","request_id":"req_1"}"#
        );
        let guard = AdminError::guardrail(Violation::MissingConfirm);
        assert_eq!(
            Envelope::error("t", "req_1", guard).to_json(),
            r#"{"status":"error","error_type":"GuardrailViolationError","message":"Admin operation requires 'confirm': true","domain_code":"guardrail_violated","violation":"missing_confirm","tool":"t","request_id":"req_1"}"#
        );
        assert_eq!(
            Envelope::unknown_tool("req_1").to_json(),
            Envelope::unknown_tool("req_2").to_json(),
            "nothing tells a hidden tool from one that is not there"
        );
    }

    #[test]
    fn every_code_has_its_status_and_exit() {
        // admin §5
        let table = [
            (DomainCode::InvalidArgument, 400, 7),
            (DomainCode::GuardrailViolated, 403, 2),
            (DomainCode::NotFound, 404, 8),
            (DomainCode::Conflict, 409, 1),
            (DomainCode::NotSupported, 501, 1),
            (DomainCode::Unavailable, 503, 1),
            (DomainCode::HandlerFailure, 500, 1),
        ];
        for (code, status, exit) in table {
            assert_eq!((code.http_status(), code.exit_code()), (status, exit), "{}", code.as_str());
        }
    }
}
