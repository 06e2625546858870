//! The one place where arguments become values (ADM-21): everything that is wrong is said at once, by place, and no
//! value of the caller's is repeated.

use portcullis_core::canon::{self, CanonReason, Limits};
use portcullis_core::scrub::{is_bare_token, is_secret_key};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::args::{Complaints, Members, ToolArgs, place};
use crate::error::AdminError;

/// How large and deep the arguments of a call may be (ADM-23).
const LIMITS: Limits = Limits { bytes: 16 << 20, depth: 32, nodes: 200_000 };
/// How large one free-form member may be.
const LARGEST_OBJECT: usize = 256 << 10;
/// The member whose content belongs to another's tool, where a token may be meant for it.
const FREE: &str = "arguments";
/// The member whose keys are names of variables, which may sound like credentials; what they hold is looked at.
const VARIABLES: &str = "env";

/// The arguments of a call as an object, or why they are none.
pub(crate) fn object(raw: &RawValue) -> Result<Map<String, Value>, AdminError> {
    match canon::parse(raw.get().as_bytes(), LIMITS) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => Err(AdminError::not_an_object(kind(&other))),
        Err(error) => {
            let at = dotted(&error.pointer);
            let text = match error.reason {
                CanonReason::NumberRange => "must be a number within ±(2^53-1)".to_owned(),
                reason => reason.to_string(),
            };
            Err(AdminError::argument(if at.is_empty() { "<arguments>" } else { &at }, text))
        }
    }
}

/// The struct of a tool's arguments.
pub fn parse<A: ToolArgs>(boundary: &'static str, object: &Map<String, Value>) -> Result<A, AdminError> {
    let mut complaints = Complaints::default();
    let read = A::read(&mut Members::new(object, "", &mut complaints));
    refuse_secrets(object, &mut complaints);
    match (read, complaints.found()) {
        (Some(args), None) => Ok(args),
        (_, found) => Err(AdminError::arguments(found.unwrap_or_default()).at(boundary)),
    }
}

/// ADM-24: secrets come in by the capture flow, where nothing records them.
fn refuse_secrets(object: &Map<String, Value>, complaints: &mut Complaints) {
    for (key, value) in object {
        if matches!(value, Value::Object(_) | Value::Array(_)) && value.to_string().len() > LARGEST_OBJECT {
            complaints.push(key, format!("must have at most {LARGEST_OBJECT} bytes"));
        } else if key != FREE {
            look_for_secrets(value, key, complaints);
        }
    }
}

fn look_for_secrets(value: &Value, at: &str, complaints: &mut Complaints) {
    match value {
        Value::String(text) if is_bare_token(text) => {
            complaints.push(at, "looks like a secret; secrets are captured, not passed as arguments");
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                look_for_secrets(item, &place(at, &index.to_string()), complaints);
            }
        }
        Value::Object(members) => {
            let are_variables = at.rsplit('.').next() == Some(VARIABLES);
            for (key, value) in members {
                let at = place(at, key);
                if value.is_string() && is_secret_key(key) && !are_variables {
                    complaints.push(
                        &at,
                        "is a credential by its name; credentials are captured, not passed as arguments",
                    );
                } else {
                    look_for_secrets(value, &at, complaints);
                }
            }
        }
        _ => {}
    }
}

fn dotted(pointer: &str) -> String {
    let segments = pointer.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~"));
    segments.collect::<Vec<_>>().join(".")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{NonBlank, Page, TimeWindow};
    use serde_json::json;

    crate::args! {
        #[allow(dead_code)]
        struct Probe { name: NonBlank, note: Option<NonBlank>, window: TimeWindow, page: Page }
    }

    fn read(text: &str) -> Result<Probe, String> {
        let raw: Box<RawValue> = RawValue::from_string(text.to_owned()).unwrap();
        object(&raw).and_then(|object| parse("mcp.tool", &object)).map_err(|error| error.message())
    }

    #[test]
    fn numbers_are_taken_only_where_one_is_written() {
        // ADM-22, SO-02
        assert_eq!(read(r#"{"name":"x","limit":500}"#).unwrap().page, Page { offset: 0, limit: 500 });
        assert_eq!(read(r#"{"name":"x"}"#).unwrap().page, Page { offset: 0, limit: 50 });
        let refused = [
            ("501", "must be <= 500"),
            ("0", "must be >= 1"),
            ("-1", "must be >= 1"),
            ("true", ""),
            ("\"10\"", ""),
            ("10.0", ""),
            ("10.5", ""),
            ("1e3", ""),
            ("null", ""),
            ("[1]", ""),
        ];
        for (value, text) in refused {
            let text = if text.is_empty() { "must be an integer" } else { text };
            assert_eq!(
                read(&format!(r#"{{"name":"x","limit":{value}}}"#)).unwrap_err(),
                format!("limit: {text}")
            );
        }
        assert_eq!(read(r#"{"name":"x","offset":-1}"#).unwrap_err(), "offset: must be >= 0");
        assert_eq!(
            read(r#"{"name":"x","limit":1e400}"#).unwrap_err(),
            "<arguments>: must be a number within ±(2^53-1)"
        );
    }

    #[test]
    fn everything_that_is_wrong_is_said_at_once_and_no_value_is_repeated() {
        // ADM-21, SO-03
        let said = read(r#"{"limit":501,"bogus":"hunter2","name":"\u200b"}"#).unwrap_err();
        assert_eq!(said, "name: must not be blank; limit: must be <= 500; bogus: unknown field");
        assert_eq!(read("[1]").unwrap_err(), "arguments must be a JSON object, got list");
        assert_eq!(read("{}").unwrap_err(), "name: required");
        assert_eq!(read(r#"{"name":"x","name":"y"}"#).unwrap_err(), "name: duplicate key");
    }

    #[test]
    fn texts_can_be_seen_are_not_trimmed_and_are_not_endless() {
        // ADM-23
        for blank in ["", "  ", "\\u200b", "\\u00ad\\u2060", "\\u0007"] {
            assert_eq!(
                read(&format!(r#"{{"name":"{blank}"}}"#)).unwrap_err(),
                "name: must not be blank",
                "{blank:?}"
            );
        }
        assert_eq!(read(r#"{"name":" x "}"#).unwrap().name.as_str(), " x ");
        assert!(read(&format!(r#"{{"name":"{}"}}"#, "x".repeat(4096))).is_ok());
        let long = read(&format!(r#"{{"name":"{}"}}"#, "x".repeat(4097))).unwrap_err();
        assert!(long.starts_with("name: "), "{long}");
        assert!(read(&format!(r#"{{"name":{}1{}}}"#, "[".repeat(40), "]".repeat(40))).is_err(), "too deep");
        assert!(read(r#"{"name":{"a":1,"a":2}}"#).unwrap_err().contains("duplicate key"));
    }

    #[test]
    fn times_have_an_offset_and_an_order() {
        // ADM-23, SO-32
        assert!(
            read(r#"{"name":"x","since":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00+01:00"}"#)
                .is_ok()
        );
        let naive = read(r#"{"name":"x","since":"2026-01-01T00:00:00"}"#).unwrap_err();
        assert!(naive.starts_with("since: must be a time with an offset"), "{naive}");
        let same = r#"{"name":"x","since":"2026-01-01T00:00:00Z","until":"2026-01-01T00:00:00Z"}"#;
        assert_eq!(read(same).unwrap_err(), "since: must be before until");
    }

    #[test]
    fn a_secret_is_refused_without_an_echo() {
        // ADM-24, SO-31
        let said = read(r#"{"name":"ghp_abcdefABCDEF012345"}"#).unwrap_err();
        assert_eq!(said, "name: looks like a secret; secrets are captured, not passed as arguments");
        let nested = json!({"steps": [{"x": "sk-ant-api03-abcdefgh"}]});
        let mut complaints = Complaints::default();
        refuse_secrets(nested.as_object().unwrap(), &mut complaints);
        assert_eq!(complaints.found().unwrap()[0].0, "steps.0.x");
        for (named, refused) in [
            (json!({"value": {"db": {"password": "hunter2"}}}), Some("value.db.password")),
            (json!({"parameters": {"API_KEY": "abc"}}), Some("parameters.API_KEY")),
            (json!({"value": {"total_tokens": "5", "token": 5}}), None),
            (json!({"process": {"env": {"API_KEY": "github"}}}), None),
        ] {
            let mut complaints = Complaints::default();
            refuse_secrets(named.as_object().unwrap(), &mut complaints);
            assert_eq!(complaints.found().map(|found| found[0].0.as_str()), refused, "{named}");
        }
        let meant = json!({"arguments": {"x": "sk-ant-api03-abcdefgh", "password": "x"}});
        let mut complaints = Complaints::default();
        refuse_secrets(meant.as_object().unwrap(), &mut complaints);
        assert!(complaints.found().is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_document_gets_past_without_a_value_or_a_complaint(text in "\\PC{0,80}") {
            if let Ok(raw) = RawValue::from_string(text) {
                let _ = object(&raw).and_then(|object| parse::<Probe>("mcp.tool", &object));
            }
        }
    }
}
