//! What is published, byte for byte (REC-21), and the declaration of it (REC-2).

use portcullis_governance::endpoint::HttpEndpoint;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::EventsMode;

/// The adapter's version, which is the one to register.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// What `--capability-declaration` says for it.
pub const DECLARATION: &str = "builtin:records";

const TOOLS: &str = include_str!("tools.json");
/// The first so many are there without events.
const WITHOUT_EVENTS: usize = 7;

fn all(events: EventsMode) -> Vec<Box<RawValue>> {
    let mut tools: Vec<Box<RawValue>> = serde_json::from_str(TOOLS).expect("an embedded list");
    if events == EventsMode::Off {
        tools.truncate(WITHOUT_EVENTS);
    }
    tools
}

/// The result of `tools/list`.
pub(crate) fn listed(events: EventsMode) -> String {
    let tools: Vec<String> = all(events).iter().map(|tool| tool.get().to_owned()).collect();
    format!("{{\"tools\":[{}],\"resultType\":\"complete\"}}", tools.join(","))
}

/// The capability declaration of a records server that is registered under a name.
pub fn declaration(name: &str, version: &str, url: &HttpEndpoint, events: EventsMode) -> String {
    let tools: Vec<Value> = (all(events).iter())
        .filter_map(|tool| serde_json::from_str::<Value>(tool.get()).ok())
        .map(|tool| clause(&tool))
        .collect();
    let host = url.url().host_str().unwrap_or_default();
    json!({
        "apiVersion": "portcullis/v1",
        "kind": "CapabilityDeclaration",
        "server": {
            "identity": name, "version": version, "protocol_versions": [crate::era::MODERN_REVISION], "surface": "static",
        },
        "scopes": {"grant": {"kind": "remote", "system": host, "prefix": "/v1/"}},
        "tools": tools,
    })
    .to_string()
}

fn clause(tool: &Value) -> Value {
    let name = tool["name"].as_str().unwrap_or_default();
    let (effects, idempotency): (&[&str], &str) = match name {
        "create_event_subscription" | "send_test_event" => (&["network", "write"], "non-idempotent"),
        "update_event_subscription" => (&["write"], "non-idempotent"),
        "delete_event_subscription" => (&["write"], "idempotent"),
        _ => (&["read"], "idempotent"),
    };
    json!({
        "name": name, "version": VERSION, "description": tool["description"], "side_effects": effects,
        // What is written is named by the grant, not by an argument.
        "scopes": ["grant"], "unbound": effects != ["read"], "credentials": [], "parameters": tool["inputSchema"],
        "output": {"schema": tool["outputSchema"]}, "idempotency": idempotency, "failure_modes": [],
        "limits": {"timeout": "40s", "max_response_bytes": 12 << 20},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_thirteen_tools_and_seven_without_events() {
        // REC-20, REC-21, T-REC-3
        assert_eq!(TOOLS.trim_end().len(), 13_737);
        assert_eq!((all(EventsMode::External).len(), all(EventsMode::Off).len()), (13, 7));
        assert!(listed(EventsMode::External).contains(TOOLS.trim_end()));
        assert!(!TOOLS.contains('<') && !TOOLS.contains('&'));
    }
}
