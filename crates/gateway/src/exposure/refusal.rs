//! Refusals a model can read (CTX-80): every failure behind a meta-tool is a result.

use portcullis_catalog::{BrowseError, SelectableItem};
use portcullis_core::ErrorCode;
use portcullis_core::error::{ErrorDocument, one_line};
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
    match schema.filter(|schema| schema.to_string().len() <= SCHEMA_BYTES) {
        Some(schema) => document.with("schema", schema),
        None => {
            let signature = item.signature.text(usize::MAX);
            document.with("signature", one_line(&signature)).with("schema_truncated", true)
        }
    }
}
