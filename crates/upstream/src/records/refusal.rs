//! Errors in the words of every other tool's (SURF-80): one document, as text and as structure.

use serde_json::{Map, Value, json};

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) error: &'static str,
    /// What a program reads.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    details: Map<String, Value>,
}

/// An error of the server's is shown no longer than this where it is not one of the contract.
const SHOWN: usize = 200;
/// How many alternatives are passed on.
const CHOICES: usize = 12;

impl Refusal {
    fn new(error: &'static str, code: &'static str, message: impl Into<String>) -> Self {
        Self { error, code, message: message.into(), retryable: false, details: Map::new() }
    }

    /// An argument that cannot be used.
    pub(crate) fn argument(code: &'static str, param: &str, message: impl Into<String>) -> Self {
        Self::new("ARGS_INVALID", code, message).with("param", param)
    }

    pub(crate) fn auth(code: &'static str, message: impl Into<String>) -> Self {
        Self::new("AUTH_FAILED", code, message)
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::new("UPSTREAM_UNAVAILABLE", code, message) }
    }

    pub(crate) fn timeout() -> Self {
        Self {
            retryable: true,
            ..Self::new("UPSTREAM_TIMEOUT", "timeout", "the records server did not answer in time")
        }
    }

    pub(crate) fn malformed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new("UPSTREAM_ERROR", code, message)
    }

    pub(crate) fn too_large(most: usize) -> Self {
        Self::new(
            "RESULT_TOO_LARGE",
            "body_too_large",
            format!("the records server's answer has more than {most} bytes"),
        )
    }

    pub(crate) fn internal(message: &str) -> Self {
        Self::new("UPSTREAM_ERROR", "internal", message)
    }

    /// The server's own error (REC-75).
    pub(crate) fn upstream(status: u16, body: &Value) -> Self {
        let error = match status {
            401 => "AUTH_FAILED",
            403 => "PERMISSION_DENIED",
            429 => "RATE_LIMITED",
            503 => "UPSTREAM_UNAVAILABLE",
            _ => "UPSTREAM_ERROR",
        };
        let own = body.get("error").filter(|error| error.is_object());
        let message = match own.and_then(|error| error["message"].as_str()) {
            Some(message) => message.chars().take(400).collect(),
            None => {
                let text = body.as_str().map_or_else(|| body.to_string(), ToOwned::to_owned);
                let shown: String = text.chars().take(SHOWN).collect();
                format!("the records server answered with status {status}: {shown}")
            }
        };
        let mut refusal =
            Self { retryable: matches!(status, 429 | 503), ..Self::new(error, "upstream", message) };
        let code = own
            .and_then(|error| error["code"].as_str())
            .map_or_else(|| format!("http_{status}"), ToOwned::to_owned);
        refusal = refusal.with("code", code).with("http_status", status);
        if let Some(own) = own {
            refusal = refusal.with("upstream", own.clone());
            if let Some(with) = own["retry_with"].as_str() {
                refusal = refusal.with("retry_with", with);
                refusal.retryable = true;
            }
            if let Some(choices) = own["available_connections"].as_array() {
                let omitted = choices.len().saturating_sub(CHOICES);
                refusal = refusal.with("choices", choices.iter().take(CHOICES).cloned().collect::<Vec<_>>());
                if omitted > 0 {
                    refusal = refusal.with("choices_omitted", omitted);
                }
            }
        }
        refusal
    }

    /// What the server calls it, if it says that the grant behind the credential is gone (REC-75).
    pub(crate) fn ends_the_grant(&self) -> Option<&str> {
        let code = self.details.get("code").and_then(Value::as_str)?;
        matches!(code, "grant_revoked" | "grant_expired" | "grant_invalid").then_some(code)
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }

    /// As a tool's result.
    pub(crate) fn result(&self, path: &str) -> Value {
        let mut details = self.details.clone();
        details.entry("code").or_insert_with(|| json!(self.code));
        let document = json!({
            "error": self.error, "message": self.message, "path": path, "retryable": self.retryable, "details": details,
        });
        json!({
            "content": [{"type": "text", "text": document.to_string()}], "structuredContent": document, "isError": true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dozen_choices_are_offered_and_the_rest_counted() {
        // SURF-80, SURF-81, REC-32, REC-75
        let choice = |n: usize| json!({"connection_id": format!("cin_{n}"), "display_name": "Mail"});
        let choices: Vec<Value> = (0..15).map(choice).collect();
        let body = json!({"error": {
            "type": "conflict", "code": "ambiguous_connection", "message": "Which one?", "retry_with": "connection_id",
            "available_connections": choices, "next_step": "ask",
        }});
        let refused = Refusal::upstream(409, &body).result("personal/fetch");
        let document = &refused["structuredContent"];
        let details = &document["details"];
        assert_eq!((&document["error"], &document["retryable"]), (&json!("UPSTREAM_ERROR"), &json!(true)));
        assert_eq!(
            (&details["code"], &details["http_status"]),
            (&json!("ambiguous_connection"), &json!(409))
        );
        assert_eq!(details["choices"].as_array().map(Vec::len), Some(12));
        assert_eq!(
            (&details["choices_omitted"], &details["retry_with"]),
            (&json!(3), &json!("connection_id"))
        );
        // The server's own words stay together, and only there.
        assert_eq!(details["upstream"]["next_step"], "ask");
        assert!(details.get("next_step").is_none());
        assert_eq!(refused["content"][0]["text"], json!(document.to_string()));
        let few = Refusal::upstream(409, &json!({"error": {"available_connections": [choice(1)]}}));
        assert!(few.result("p")["structuredContent"]["details"].get("choices_omitted").is_none());
        // What is no error document of theirs is told by its status and its beginning.
        let html = Refusal::upstream(502, &json!("<p>".repeat(500))).result("p")["structuredContent"].clone();
        assert_eq!(html["details"]["code"], "http_502");
        assert!(html["message"].as_str().is_some_and(|text| text.len() < 300), "{html}");
    }
}
