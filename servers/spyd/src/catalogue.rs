//! What is listed: the honest catalogue, and what the switches make of it.

use serde_json::{Value, json};

use crate::control::Control;

/// The honest tools, in the order in which they are listed. `spyd.yaml` declares the same.
pub(crate) fn honest() -> Vec<Value> {
    let tools = json!([
        {
            "name": "echo",
            "description": "Answer with the same text.",
            "inputSchema": closed(json!({ "text": { "type": "string", "maxLength": 65536 } })),
            "outputSchema": closed(json!({ "text": { "type": "string" } }))
        },
        {
            "name": "add",
            "description": "Add two integers.",
            "inputSchema": closed(json!({ "a": { "type": "integer" }, "b": { "type": "integer" } }))
        },
        {
            "name": "write_thing",
            "description": "Pretend to write a text to a path.",
            "inputSchema": closed(json!({
                "path": { "type": "string", "maxLength": 4096 },
                "text": { "type": "string", "maxLength": 65536 }
            }))
        },
        {
            "name": "slow",
            "description": "Answer after so many milliseconds.",
            "inputSchema": closed(json!({ "ms": { "type": "integer", "minimum": 0, "maximum": 600_000 } }))
        },
        {
            "name": "big",
            "description": "Answer with a text of so many bytes.",
            "inputSchema": closed(json!({ "bytes": { "type": "integer", "minimum": 0, "maximum": 33_554_432 } }))
        },
        {
            "name": "fail",
            "description": "Answer with a tool error that carries this message.",
            "inputSchema": closed(json!({ "message": { "type": "string", "maxLength": 1000 } }))
        },
        {
            "name": "rpc_error",
            "description": "Answer with a JSON-RPC error of this code and message.",
            "inputSchema": closed(json!({
                "code": { "type": "integer" },
                "message": { "type": "string", "maxLength": 1000 }
            }))
        },
        {
            "name": "env",
            "description": "Answer with the names of the environment variables of this process.",
            "inputSchema": closed(json!({}))
        },
        {
            "name": "pid",
            "description": "Answer with the process id.",
            "inputSchema": closed(json!({}))
        }
    ]);
    match tools {
        Value::Array(tools) => tools,
        _ => Vec::new(),
    }
}

/// A closed object schema in which every property is required.
fn closed(properties: Value) -> Value {
    let mut schema = json!({ "type": "object", "additionalProperties": false });
    let names: Vec<String> =
        properties.as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
    if !names.is_empty() {
        schema["required"] = json!(names);
    }
    schema["properties"] = properties;
    schema
}

/// The tools as listed under these switches.
pub(crate) fn tools(control: &Control) -> Vec<Value> {
    let mut tools = control.catalogue.clone().unwrap_or_else(honest);
    tools.retain(|tool| !control.drop.iter().any(|dropped| tool["name"] == dropped.as_str()));
    for tool in &mut tools {
        let name = tool["name"].as_str().unwrap_or_default().to_owned();
        if let Some(annotations) = control.annotations.get(&name) {
            tool["annotations"] = annotations.clone();
        }
        if let Some(description) = control.description.get(&name) {
            tool["description"] = description.as_str().into();
        }
        if let Some(schema) = control.schema.get(&name) {
            tool["inputSchema"] = schema.clone();
        }
        if let Some(schema) = control.output_schema.get(&name) {
            tool["outputSchema"] = schema.clone();
        }
        if let Some(title) = control.title.get(&name) {
            tool["title"] = title.as_str().into();
        }
    }
    if let Some(extra) = &control.extra_tool {
        tools.push(json!({
            "name": extra,
            "description": "A tool that was not there before.",
            "inputSchema": closed(json!({}))
        }));
    }
    tools
}

/// One page of `tools/list`: its tools and the next cursor. `None` if the cursor is not one of ours.
pub(crate) fn page(control: &Control, cursor: Option<&str>) -> Option<(Vec<Value>, Option<String>)> {
    let tools = tools(control);
    let pages = control.pages.unwrap_or(1).clamp(1, tools.len().max(1));
    let name =
        |page: usize| if page == 1 && control.empty_cursor { String::new() } else { format!("page-{page}") };
    let page = match cursor {
        None => 0,
        Some("loop") if control.cursor_loop => 0,
        Some(cursor) => (1..pages).find(|page| name(*page) == cursor)?,
    };
    let size = tools.len().div_ceil(pages);
    let part = tools.into_iter().skip(page * size).take(size).collect();
    let next = match (control.cursor_loop, page + 1 < pages) {
        (true, _) => Some("loop".to_owned()),
        (false, true) => Some(name(page + 1)),
        (false, false) => None,
    };
    Some((part, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_pages(control: &Control) -> Vec<String> {
        let (mut names, mut cursor): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let (tools, next) = page(control, cursor.as_deref()).unwrap();
            names.extend(tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            cursor = next;
            if cursor.is_none() {
                return names;
            }
        }
    }

    #[test]
    fn the_pages_together_are_the_whole_list_in_the_same_order() {
        let whole = all_pages(&Control::default());
        for pages in [1, 2, 3, 9, 100] {
            for empty_cursor in [false, true] {
                let control = Control { pages: Some(pages), empty_cursor, ..Control::default() };
                assert_eq!(all_pages(&control), whole, "{pages}");
            }
        }
    }

    #[test]
    fn a_cursor_loop_never_ends_and_a_foreign_cursor_is_refused() {
        let control = Control { cursor_loop: true, ..Control::default() };
        assert_eq!(page(&control, Some("loop")).unwrap().1.as_deref(), Some("loop"));
        assert!(page(&Control::default(), Some("page-7")).is_none());
    }

    #[test]
    fn the_switches_change_drop_and_add() {
        let control: Control = serde_json::from_value(json!({
            "description": { "echo": "new" }, "schema": { "add": { "type": "object" } },
            "drop": ["pid"], "extra_tool": "evil"
        }))
        .unwrap();
        let tools = tools(&control);
        assert_eq!(tools[0]["description"], "new");
        assert_eq!(tools[1]["inputSchema"], json!({ "type": "object" }));
        assert!(!tools.iter().any(|tool| tool["name"] == "pid"));
        assert_eq!(tools.last().unwrap()["name"], "evil");
    }
}
