//! What there is besides tools: two resources, a template, a prompt, and completions for both of the latter.

use serde_json::{Value, json};

use crate::control::Control;
use crate::frame::{Failure, Request};

/// What the spy says it has.
pub(crate) fn capabilities() -> Value {
    json!({
        "tools": { "listChanged": true },
        "resources": { "listChanged": true, "subscribe": true },
        "prompts": { "listChanged": true },
        "completions": {}
    })
}

/// The answer to a request about one of these; `None` if it is about something else.
pub(crate) fn answer(request: &Request, control: &Control) -> Option<Result<Value, Failure>> {
    let text = |name: &str| request.params.get(name).and_then(Value::as_str).unwrap_or_default();
    Some(match request.method.as_str() {
        "resources/list" => Ok(json!({ "resources": [
            { "uri": "spy://readme", "name": "readme", "mimeType": "text/plain", "x-own": [1, 2] },
            { "uri": "spy://item/1", "name": "item 1" },
            { "uri": "spy://hidden", "name": "hidden" }
        ] })),
        "resources/templates/list" => Ok(json!({ "resourceTemplates": [
            { "uriTemplate": "spy://item/{id}", "name": "item", "description": "One item." }
        ] })),
        "resources/read" => match control.texts.get(text("uri")) {
            Some(said) => Ok(contents(text("uri"), said)),
            None => read(text("uri")),
        },
        "prompts/list" => Ok(json!({ "prompts": [
            { "name": "greet", "description": "Greet somebody.", "arguments": [
                { "name": "whom", "required": true }, { "name": "how" }
            ] }
        ] })),
        "prompts/get" if text("name") == "greet" => {
            let whom = request.params.get("arguments").and_then(|args| args.get("whom"));
            let whom = whom.and_then(Value::as_str).unwrap_or("nobody");
            Ok(json!({ "messages": [
                { "role": "user", "content": { "type": "text", "text": format!("Greet {whom}.") } },
                { "role": "user", "content": { "type": "resource_link", "uri": "spy://readme", "name": "readme" } }
            ] }))
        }
        "prompts/get" => Err(Failure::new(-32602, "no such prompt")),
        "completion/complete" => {
            let argument = request.params.get("argument").cloned().unwrap_or_default();
            let start = argument["value"].as_str().unwrap_or_default();
            let values: Vec<&str> =
                ["alice", "bob", "alfred"].into_iter().filter(|name| name.starts_with(start)).collect();
            Ok(json!({ "completion": { "values": values, "total": values.len(), "hasMore": false } }))
        }
        _ => return None,
    })
}

/// Whether there is such a resource.
pub(crate) fn exists(uri: &str) -> bool {
    read(uri).is_ok()
}

fn read(uri: &str) -> Result<Value, Failure> {
    let text = match uri.strip_prefix("spy://item/") {
        Some("missing") => None,
        Some(id) => Some(format!("item {id}")),
        None => (uri == "spy://readme" || uri == "spy://hidden").then(|| "Read me.".to_owned()),
    };
    match text {
        Some(text) => Ok(contents(uri, &text)),
        // Revisions disagree about the code; this is the old one, and the gateway translates.
        None => Err(Failure::new(-32002, "no such resource")),
    }
}

fn contents(uri: &str, text: &str) -> Value {
    json!({ "contents": [{ "uri": uri, "mimeType": "text/plain", "text": text }] })
}
