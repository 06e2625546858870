//! A body or an error, in the words of the contract.

use serde_json::{Map, Value, json};

/// What goes back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// Why there is no body of another kind.
#[derive(Debug)]
pub struct Refusal {
    pub status: u16,
    pub kind: &'static str,
    pub code: &'static str,
    pub message: String,
    pub more: Map<String, Value>,
}

pub type Outcome = Result<Answer, Refusal>;

impl Answer {
    pub fn ok(body: Value) -> Self {
        Self { status: 200, body }
    }
}

impl Refusal {
    pub fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        let kind = match (status, code) {
            (400, _) => "invalid_request_error",
            (401, _) => "authentication_error",
            (403, _) => "permission_error",
            (404, _) => "not_found_error",
            _ => "api_error",
        };
        Self { status, kind, code, message: message.into(), more: Map::new() }
    }

    pub fn bad(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", message)
    }

    #[must_use]
    pub fn param(self, name: &str) -> Self {
        self.with("param", json!(name))
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.more.insert(key.into(), value);
        self
    }

    pub fn body(&self, request_id: &str) -> Value {
        let mut error = json!({"code": self.code, "message": self.message, "type": self.kind});
        for (key, value) in &self.more {
            error[key] = value.clone();
        }
        error["request_id"] = json!(request_id);
        json!({"error": error})
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Refusal::new(500, "internal", format!("the store failed: {error}"))
    }
}
