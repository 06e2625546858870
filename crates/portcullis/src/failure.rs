//! Why a command failed: a code for programs, words for people.

use portcullis_admin::{AdminError, DomainCode, Violation};
use portcullis_core::ErrorCode;
use portcullis_gateway::ControlError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A failure on its way to the terminal, or over the operator socket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) details: Option<Value>,
    pub(crate) exit: u8,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.as_str().into(),
            message: message.into(),
            field: None,
            details: None,
            exit: code.exit_code(),
        }
    }

    pub(crate) fn field(field: &str, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorCode::Validation, message) }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ControlUnavailable, message)
    }
}

impl From<&AdminError> for Failure {
    fn from(error: &AdminError) -> Self {
        if let Some(cause) = error.cause() {
            return Self::from(cause);
        }
        let code = match error.code() {
            DomainCode::InvalidArgument => ErrorCode::Validation,
            DomainCode::GuardrailViolated if error.violation() == Some(Violation::MissingReason) => {
                return Self::field("reason", "say why, in a few words");
            }
            DomainCode::GuardrailViolated => ErrorCode::PolicyDenied,
            DomainCode::NotFound => ErrorCode::NotFound,
            DomainCode::Conflict => ErrorCode::Conflict,
            _ => ErrorCode::Internal,
        };
        Self::new(code, error.plain_message())
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::from(&error)
    }
}

impl From<&ControlError> for Failure {
    fn from(error: &ControlError) -> Self {
        let details = (!error.rejections.is_empty()).then(|| {
            let list = error.rejections.iter().map(|rejection| {
                let (line, column) = rejection.place.unzip();
                serde_json::json!({
                    "column": column, "file": rejection.file, "line": line, "message": rejection.message,
                    "pointer": rejection.pointer, "rule": rejection.rule,
                })
            });
            serde_json::json!({"rejections": list.collect::<Vec<_>>()})
        });
        Self { field: error.field.clone(), details, ..Self::new(error.code, error.message.clone()) }
    }
}
