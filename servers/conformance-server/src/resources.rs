//! What resources hold.

use rmcp::ErrorData;
use rmcp::model::{ReadResourceResponse, ReadResourceResult};
use serde_json::{Value, json};

use crate::tools::PIXEL;

pub(crate) fn read(uri: &str) -> Result<ReadResourceResponse, ErrorData> {
    let contents = contents(uri)
        .ok_or_else(|| ErrorData::resource_not_found("Resource not found", Some(json!({"uri": uri}))))?;
    let result: ReadResourceResult =
        serde_json::from_value(json!({"contents": [contents], "resultType": "complete"}))
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
    Ok(result.into())
}

fn contents(uri: &str) -> Option<Value> {
    let text = |text: &str| json!({"uri": uri, "mimeType": "text/plain", "text": text});
    match uri {
        "test://static-text" => Some(text("This is the content of the static text resource.")),
        "test://watched-resource" => Some(text("This is the content of the watched resource.")),
        "test://static-binary" => Some(json!({"uri": uri, "mimeType": "image/png", "blob": PIXEL})),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            Some(json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()}))
        }
    }
}
