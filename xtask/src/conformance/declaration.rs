//! The declaration of the reference server: everything it lists, made from its catalogue.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::Outcome;

/// A declaration is YAML, and every JSON document is one.
pub(crate) fn of(catalogue: &Path) -> Outcome<String> {
    let text = fs::read_to_string(catalogue).map_err(|error| format!("{}: {error}", catalogue.display()))?;
    let catalogue: Value = serde_json::from_str(&text).map_err(|error| format!("the catalogue: {error}"))?;
    let items = |key: &str, clause: fn(&Value) -> Value| -> Vec<Value> {
        catalogue[key].as_array().into_iter().flatten().map(clause).collect()
    };
    let resources: Vec<Value> = [items("resources", resource), items("templates", resource)].concat();
    let declaration = json!({
        "apiVersion": "portcullis/v1",
        "kind": "CapabilityDeclaration",
        "server": {
            "identity": "conformance",
            "version": env!("CARGO_PKG_VERSION"),
            "protocol_versions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
            "surface": "dynamic",
            "refresh": {"max_age": "1h"},
        },
        "scopes": {},
        "tools": items("tools", tool),
        "resources": resources,
        "prompts": items("prompts", prompt),
        "server_requests": ["sampling", "elicitation", "roots"],
        "tasks": true,
    });
    serde_json::to_string_pretty(&declaration).map_err(|error| error.to_string())
}

fn tool(tool: &Value) -> Value {
    json!({
        "name": tool["name"], "version": "1", "side_effects": [], "scopes": [], "credentials": [],
        "parameters": tool["inputSchema"], "output": {"type": "text"},
        "idempotency": "idempotent", "failure_modes": [],
    })
}

fn resource(resource: &Value) -> Value {
    let mut clause = json!({
        "name": resource["name"], "version": "1", "mime_types": [resource["mimeType"]],
        "side_effects": [], "scopes": [], "credentials": [], "failure_modes": [],
    });
    match &resource["uri"] {
        Value::Null => clause["uri_template"] = resource["uriTemplate"].clone(),
        uri => {
            clause["uri"] = uri.clone();
            clause["subscribe"] = json!(true);
        }
    }
    clause
}

fn prompt(prompt: &Value) -> Value {
    let arguments = prompt["arguments"].as_array().into_iter().flatten();
    let arguments: Vec<Value> = arguments
        .map(|argument| json!({"name": argument["name"], "required": argument["required"], "max_length": 4096}))
        .collect();
    json!({
        "name": prompt["name"], "version": "1", "arguments": arguments,
        "side_effects": [], "scopes": [], "credentials": [], "failure_modes": [],
    })
}
