//! Settings that operators change while the gateway runs, and all others, which only a start reads. What is set here goes
//! before the configuration file, until it is reset.

use std::time::Duration;

use portcullis_core::ErrorCode;
use portcullis_governance::operator::OperatorProof;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kept::{Document, KeptDocuments};
use super::{Control, ControlError, GatewayOptions};
use crate::controls::CallOptions;

/// A setting that an operator changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Which.
    pub key: String,
    /// What it is now.
    pub value: Value,
}

impl Document for Setting {
    const KIND: &'static str = "setting";

    fn id(&self) -> String {
        self.key.clone()
    }
}

/// A setting as it is in force.
#[derive(Debug, Clone, Serialize)]
pub struct SettingRow {
    /// Which.
    pub key: &'static str,
    /// What it is.
    pub value: Value,
    /// `default`, `file` or `set`.
    pub source: &'static str,
    /// Whether only a start reads it.
    pub startup_only: bool,
    /// How often an operator set it.
    pub version: u64,
}

/// Settings that can be changed while the gateway runs.
const LIVE: [&str; 7] = [
    "admin.four_eyes",
    "admin.four_eyes_ttl",
    "approvals.wait",
    "calls.limits.calls_per_minute",
    "calls.limits.calls_per_session",
    "calls.limits.tokens_per_minute",
    "calls.limits.tokens_per_session",
];

/// Every setting that is told, as some options have it. Addresses with credentials are not among them.
fn told(options: &GatewayOptions) -> Vec<(&'static str, Value)> {
    let calls = &options.calls;
    vec![
        ("access.authentication", json!(if options.access.required { "required" } else { "none" })),
        ("admin.four_eyes", json!(options.admin.four_eyes)),
        ("admin.four_eyes_ttl", span(options.admin.four_eyes_ttl)),
        ("admin.webhook_hosts", json!(options.admin.webhook_hosts)),
        ("approvals.wait", span(options.approval_wait)),
        ("audit.publish", json!(options.audit.publish)),
        ("audit.segment_bytes", json!(options.segment_bytes)),
        ("calls.answer_timeout", span(calls.answer_timeout)),
        ("calls.limits.calls_per_minute", json!(calls.calls_per_minute)),
        ("calls.limits.calls_per_session", json!(calls.calls_per_session)),
        ("calls.limits.tokens_per_minute", json!(calls.tokens_per_minute)),
        ("calls.limits.tokens_per_session", json!(calls.tokens_per_session)),
        ("calls.retry.max_attempts", json!(calls.max_attempts)),
        ("calls.token_price_micros", json!(calls.token_price_micros)),
        ("calls.tolerant_args", json!(calls.tolerant_args)),
        ("gateway.mode", json!(options.mode)),
        ("operator.auth", json!(options.operator_methods)),
        ("permits.ttl", span(options.permit_ttl)),
        ("policy.preset", json!(options.policy.preset)),
        ("state.postgres", json!(options.postgres.is_some())),
    ]
}

impl Control {
    /// Every setting that is told, by name.
    pub fn settings(&self) -> Vec<SettingRow> {
        let usual = told(&GatewayOptions::new(&self.options.home));
        let row = |(key, configured): (&'static str, Value)| {
            let set = self.document::<Setting>(key);
            let is_usual = usual.iter().any(|(known, value)| *known == key && *value == configured);
            let source = match (&set, is_usual) {
                (Some(_), _) => "set",
                (None, true) => "default",
                (None, false) => "file",
            };
            SettingRow {
                key,
                source,
                startup_only: !LIVE.contains(&key),
                version: set.as_ref().map_or(0, |set| set.version),
                value: set.map_or(configured, |set| set.document.value),
            }
        };
        told(&self.options).into_iter().map(row).collect()
    }

    /// Changes a setting, from now on.
    pub async fn change_setting(
        &self,
        operator: &OperatorProof,
        key: &str,
        value: Value,
        expected: Option<u64>,
    ) -> Result<u64, ControlError> {
        check(key, &value)?;
        let setting = Setting { key: key.to_owned(), value };
        self.set(operator, &setting, expected, Vec::new(), |_| Ok(())).await
    }

    /// Whether there is a setting of this name, and whether it can be changed while the gateway runs.
    pub fn is_live_setting(&self, key: &str) -> Option<bool> {
        told(&self.options).iter().any(|(known, _)| *known == key).then(|| LIVE.contains(&key))
    }

    /// Goes back to what the configuration says.
    pub async fn reset_setting(&self, operator: &OperatorProof, key: &str) -> Result<(), ControlError> {
        self.unset::<Setting>(operator, key, |_| Ok(())).await
    }

    /// Tags of tools that take two operators.
    pub fn four_eyes(&self) -> Vec<String> {
        let set = self.document::<Setting>("admin.four_eyes");
        set.and_then(|set| serde_json::from_value(set.document.value).ok())
            .unwrap_or_else(|| self.options.admin.four_eyes.clone())
    }

    /// How long one waits for the second.
    pub fn four_eyes_ttl(&self) -> Duration {
        let set = self.document::<Setting>("admin.four_eyes_ttl");
        set.and_then(|set| duration(&set.document.value)).unwrap_or(self.options.admin.four_eyes_ttl)
    }
}

/// How long a call waits for an approval, where an operator said so.
pub(super) fn approval_wait(kept: &KeptDocuments) -> Option<Duration> {
    value(kept, "approvals.wait").as_ref().and_then(duration)
}

/// Limits on calls with what operators set.
pub(super) fn limited(kept: &KeptDocuments, configured: &CallOptions) -> CallOptions {
    let number = |key: &str, usual: u64| value(kept, key).and_then(|value| value.as_u64()).unwrap_or(usual);
    CallOptions {
        calls_per_minute: number("calls.limits.calls_per_minute", configured.calls_per_minute),
        calls_per_session: number("calls.limits.calls_per_session", configured.calls_per_session),
        tokens_per_minute: number("calls.limits.tokens_per_minute", configured.tokens_per_minute),
        tokens_per_session: number("calls.limits.tokens_per_session", configured.tokens_per_session),
        ..configured.clone()
    }
}

fn value(kept: &KeptDocuments, key: &str) -> Option<Value> {
    let all: Vec<super::Versioned<Setting>> = kept.documents();
    all.into_iter().find(|set| set.document.key == key).map(|set| set.document.value)
}

fn check(key: &str, value: &Value) -> Result<(), ControlError> {
    let refuse = |text: &str| Err(ControlError::field("value", text));
    match key {
        "approvals.wait" => match duration(value) {
            Some(wait) if wait <= Duration::from_secs(3600) => Ok(()),
            _ => refuse("must be a time up to 1h, as in \"20s\""),
        },
        "admin.four_eyes_ttl" => match duration(value) {
            Some(_) => Ok(()),
            None => refuse("must be a time, as in \"24h\""),
        },
        "admin.four_eyes" => match serde_json::from_value::<Vec<String>>(value.clone()) {
            Ok(tags) if tags.iter().all(|tag| tag == "*" || tag.contains(':')) => Ok(()),
            _ => refuse("must be a list of DOMAIN:CLASS, as in [\"policies:admin\"]"),
        },
        limit if limit.starts_with("calls.limits.") => match value.as_u64() {
            Some(_) => Ok(()),
            None => refuse("must be a whole number; 0 for no limit"),
        },
        _ => Err(ControlError::new(ErrorCode::Conflict, "only a start reads this setting")),
    }
}

/// `20s`, `5m`, `24h` or `7d`.
fn duration(value: &Value) -> Option<Duration> {
    let text = value.as_str()?;
    let (at, unit) = text.char_indices().next_back()?;
    let number = &text[..at];
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 24 * 3600,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(seconds).map(Duration::from_secs)
}

fn span(duration: Duration) -> Value {
    json!(format!("{}s", duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_held_to_their_setting() {
        assert!(check("approvals.wait", &json!("5m")).is_ok());
        for bad in [json!(5), json!("5"), json!("2h"), json!("m"), json!("é")] {
            assert!(check("approvals.wait", &bad).is_err(), "{bad}");
        }
        assert!(
            check("admin.four_eyes", &json!(["keys:*"])).is_ok()
                && check("admin.four_eyes", &json!(["keys"])).is_err()
        );
        assert!(check("calls.limits.calls_per_minute", &json!(3)).is_ok());
        assert!(check("calls.limits.calls_per_minute", &json!(-3)).is_err());
        assert!(check("gateway.mode", &json!("ci")).is_err());
    }
}
