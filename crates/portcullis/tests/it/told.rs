//! What the gateway says of admin calls: each event once, and none of what did not happen (admin §9).

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::every_tool::complete;
use crate::support::guarded_spy;

/// The value of a field in a line.
fn field<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    rest.split('"').next()
}

#[test]
fn every_event_of_a_call_is_said_once_and_nothing_is_said_of_what_was_refused() {
    // SO-12, SO-20, ADM-15, ADM-30
    let (home, _spy) = guarded_spy("");
    let mut daemon = home.serve_saying("debug");
    let said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let mut later = Vec::new();
    loop {
        let args = json!({"limit": 500, "include_unwired": true, "offset": later.len()}).to_string();
        let page = program.call("meta_list_tools", &args).json();
        let rows = page["data"].as_array().unwrap();
        if rows.is_empty() {
            break;
        }
        later.extend(rows.clone());
    }
    later.retain(|tool| tool["wired"] == false);
    assert_eq!(later.len(), 24, "those that the specification leaves for later");
    let mut envelopes = Vec::new();
    for tool in &later {
        let name = tool["name"].as_str().unwrap();
        envelopes.push(program.call(name, &complete(tool, &json!({})).to_string()));
    }
    envelopes.push(program.call("replicas_list", "{}"));
    for envelope in &envelopes {
        assert_eq!(envelope.status, 501, "{}", envelope.body);
        let keys: Vec<String> = envelope.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys.len(), 6, "the same members, whatever is missing: {keys:?}");
    }
    let role = json!({"role_id": "r", "patterns": ["*:read"]});
    let mut confirmed = role.clone();
    (confirmed["confirm"], confirmed["reason"]) = (json!(true), json!("for a test"));
    assert_eq!(program.call("roles_put", &confirmed.to_string()).status, 200);
    assert_eq!(program.call("roles_delete", &role.to_string()).status, 403);
    assert_eq!(program.call("trust_list", r#"{"limit":true}"#).status, 400);
    assert_eq!(program.call("servers_get", r#"{"server_id":"nobody"}"#).status, 404);
    Command::new("kill").arg(daemon.child.id().to_string()).status().unwrap();
    let text = said.join().unwrap();

    let mut events: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        if let (Some(event), Some(tool)) = (field(line, "event"), field(line, "tool_name")) {
            events.entry(tool).or_default().push(event);
        }
    }
    let of = |tool: &str| events.get(tool).cloned().unwrap_or_default();
    let refused =
        |handler: &'static str| vec!["mcp.server.invoke.start", handler, "mcp.server.invoke.failed"];
    for tool in &later {
        let name = tool["name"].as_str().unwrap();
        assert_eq!(of(name), refused("mcp.handler.not_implemented"), "{name}");
    }
    assert_eq!(of("portcullis_replicas_list"), refused("mcp.handler.capability_gap"));
    assert_eq!(of("portcullis_roles_delete"), refused("mcp.handler.guardrail_violated"));
    assert_eq!(of("portcullis_trust_list"), refused("mcp.handler.argument_invalid"));
    assert_eq!(of("portcullis_servers_get"), refused("mcp.handler.invoke_failed"));
    let done = [
        "mcp.server.invoke.start",
        "mcp.handler.invoke_success",
        "mcp.admin_op.executed",
        "mcp.handler.outcome",
        "mcp.server.invoke.success",
    ];
    assert_eq!(of("portcullis_roles_put"), done);
    let count = |event: &str| text.lines().filter(|line| field(line, "event") == Some(event)).count();
    assert_eq!(count("api.boundary.validation_failed"), 1, "of one call that was wrong");
    assert!(!text.contains("service_fallback"), "there is none");
    let executed = home.events("admin.op_executed");
    let tools: Vec<&Value> = executed.iter().map(|event| &event["data"]["tool"]).collect();
    assert_eq!(tools.iter().filter(|tool| **tool == "portcullis_roles_put").count(), 1);
    assert!(tools.iter().all(|tool| *tool != "portcullis_roles_delete"));
    home.verify();
}
