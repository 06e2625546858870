//! The eight digits that pin the shape of an item (CAT-22, CAT-30).
//!
//! They are taken over names only: the upstream name, its parameters, and which of them must be given. Types and prose do
//! not enter, so a reworded description keeps its id. The text is written as others write it, so ids are interchangeable.

use std::fmt::Write as _;

use portcullis_core::Sha256Digest;
use serde_json::Value;

/// Of a tool, by its upstream name and input schema.
pub(crate) fn of_tool(upstream_name: &str, schema: &Value) -> String {
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut properties: Vec<&str> =
        properties.into_iter().flat_map(|map| map.keys().map(String::as_str)).collect();
    let required = schema.get("required").and_then(Value::as_array);
    let mut required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    properties.sort_unstable();
    required.sort_unstable();
    let mut text = format!("{upstream_name}\n{{\"properties\":");
    write_names(&mut text, &properties);
    text.push_str(",\"required\":");
    write_names(&mut text, &required);
    text.push('}');
    first_digits(&text)
}

/// Of a resource, or a template of some.
pub(crate) fn of_resource(uri: &str) -> String {
    first_digits(&format!("resource\n{uri}"))
}

/// Of a prompt, by the names of its arguments.
pub(crate) fn of_prompt(name: &str, arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.sort_unstable();
    let mut text = format!("prompt\n{name}\n");
    write_names(&mut text, &arguments);
    first_digits(&text)
}

fn first_digits(text: &str) -> String {
    let mut digits = Sha256Digest::of(text.as_bytes()).to_string();
    digits.truncate(8);
    digits
}

fn write_names(out: &mut String, names: &[&str]) {
    out.push('[');
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_escaped(out, name);
    }
    out.push(']');
}

/// A JSON string in ASCII: everything else as `\uXXXX`, in pairs of surrogates where one is not enough.
fn write_escaped(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            other => {
                let mut units = [0; 2];
                for unit in other.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn known_shapes_have_their_known_digits() {
        // CAT-22, CAT-30, T-CAT-2
        let schema = |names: &[&str], required: &[&str]| {
            let properties: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
            json!({"type": "object", "properties": properties, "required": required})
        };
        assert_eq!(of_tool("github.create_issue", &schema(&["title"], &["title"])), "34afee88");
        assert_eq!(of_tool("github.create_issue", &schema(&["title"], &[])), "64398c08");
        assert_eq!(of_tool("search_database", &schema(&["query", "limit"], &[])), "547048ac");
        assert_eq!(of_tool("read_file", &schema(&["path"], &["path"])), "85b56782");
        assert_eq!(of_tool("slack_send_message", &json!({})), "2fae1fd2");
        assert_eq!(of_tool("filesystem/read", &json!({"properties": [], "required": {}})), "2a7b574b");
        assert_eq!(of_resource("file:///docs/readme.md"), "a8c506b1");
        assert_eq!(of_prompt("summarize_pr", &["repo"]), "a85c17c1");
    }

    #[test]
    fn other_scripts_are_written_in_ascii() {
        let mut text = String::new();
        write_escaped(&mut text, "é\u{1f600}\u{7f}\"\n");
        assert_eq!(text, "\"\\u00e9\\ud83d\\ude00\\u007f\\\"\\n\"");
    }
}
