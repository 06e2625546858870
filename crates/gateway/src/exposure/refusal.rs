//! Refusals a model can read (CTX-80): every failure behind a meta-tool is a result.

use portcullis_catalog::{BrowseError, SelectableItem};
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_core::{ErrorCode, IncidentId};
use serde_json::{Value, json};

use crate::edge::Era;

/// The longest schema that is repeated in a refusal.
const SCHEMA_BYTES: usize = 8 * 1024;

/// A refusal as a result.
pub(crate) fn as_result(document: &ErrorDocument, era: Era) -> String {
    let text = serde_json::to_string(document).expect("an error document is plain JSON");
    let mut result = json!({"content": [{"type": "text", "text": text}], "isError": true});
    if era == Era::Modern {
        result["resultType"] = json!("complete");
    }
    result.to_string()
}

/// A call that ended in a defect of ours. The number is in the log beside the line that says where.
pub(crate) fn of_a_defect(incident: IncidentId) -> ErrorDocument {
    tracing::error!(%incident, "a call ended in the defect told above");
    let message =
        "a defect of the gateway ended this call; whether it was made is on record under its proposal";
    ErrorDocument::new(ErrorCode::Internal, "", message).with("incident", incident.to_string())
}

/// Why there is nothing to look at.
pub(crate) fn of_browsing(error: &BrowseError, asked: &str) -> ErrorDocument {
    let code = match error {
        BrowseError::Arguments(_) => ErrorCode::ArgsInvalid,
        BrowseError::PathInvalid(_) | BrowseError::StaleCursor => ErrorCode::PathInvalid,
        BrowseError::PathNotFound => ErrorCode::PathNotFound,
    };
    let document = ErrorDocument::new(code, one_line(asked), error.to_string());
    match error {
        BrowseError::StaleCursor => document.with("reason", "stale_cursor"),
        _ => document,
    }
}

/// A refusal of the lifecycle in the words of the catalogue: by the id that was given, and with the schema where arguments do
/// not fit it.
pub(crate) fn of_call(
    mut document: ErrorDocument,
    id: &str,
    item: Option<&SelectableItem>,
    schema: Option<Value>,
) -> ErrorDocument {
    document.path = one_line(id);
    let (Some(item), ErrorCode::ArgsInvalid) = (item, document.error) else { return document };
    if let Some(Value::Array(errors)) = document.details.remove("errors") {
        document = document.with("violations", errors.iter().map(violation).collect::<Value>());
    }
    match schema.filter(|schema| schema.to_string().len() <= SCHEMA_BYTES) {
        Some(schema) => document.with("schema", schema),
        None => {
            let signature = item.signature.text(usize::MAX);
            document.with("signature", one_line(&signature)).with("schema_truncated", true)
        }
    }
}

/// What is wrong with one argument, as meta-tools say it.
fn violation(error: &Value) -> Value {
    json!({"pointer": error["pointer"], "rule": error["keyword"], "expected": error["message"]})
}
