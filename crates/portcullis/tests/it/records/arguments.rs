//! Arguments that cannot be meant, and arguments that nobody can use.

use std::fs;

use serde_json::{Value, json};

use super::{Rs, add, guarded, token_file};
use crate::agent::Agent;
use crate::support::{Home, Operator, eventually};

#[test]
fn what_cannot_be_meant_reaches_nobody() {
    // REC-30, REC-32, T-REC-4, T-REC-6, T-SURF-22
    let guarded = guarded("", &["--profile", "rich"]).warmed();
    for (tool, arguments, code) in [
        ("query_records", json!({"stream": "messages", "limit": 101}), "schema"),
        ("query_records", json!({"stream": "messages", "limit": 0}), "schema"),
        ("query_records", json!({"stream": "messages", "limit": "5"}), "schema"),
        ("query_records", json!({"stream": "messages", "order": "up"}), "schema"),
        ("query_records", json!({"stream": ""}), "schema"),
        ("query_records", json!({"stream": "a/b"}), "invalid_stream"),
        ("query_records", json!({"stream": "a\\b"}), "invalid_stream"),
        ("query_records", json!({"stream": "a\u{7}"}), "invalid_stream"),
        ("query_records", json!({"stream": ".."}), "invalid_stream"),
        ("query_records", json!({"stream": "x".repeat(257)}), "invalid_stream"),
        ("query_records", json!({"stream": "messages", "connection_id": "a/b"}), "invalid_connection"),
        ("query_records", json!({"stream": "messages", "filter": {"f": {}}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"filter[a]": 1}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"a": [1]}}), "schema"),
        ("query_records", json!({"stream": "messages", "filter": {"a": null}}), "schema"),
        ("query_records", json!({"stream": "messages", "expand_limit": {}}), "invalid_expand"),
        ("fetch", json!({"id": "a/b/c:d"}), "invalid_id"),
        ("fetch", json!({"id": ":x"}), "invalid_id"),
        ("fetch", json!({"id": "s:"}), "invalid_id"),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "q": "a", "cursor": "1"}),
            "invalid_field_window_selector",
        ),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "before_chars": 1}),
            "invalid_field_window_selector",
        ),
        (
            "read_record_field",
            json!({"id": "s:r", "field_path": "x", "cursor": "ten"}),
            "invalid_field_window_selector",
        ),
        ("create_event_subscription", json!({}), "callback_required"),
        (
            "create_event_subscription",
            json!({"callback_url": "http://hooks.example.com/"}),
            "callback_not_allowed",
        ),
        ("query_records", json!({"stream": "messages", "filter": "a=b"}), "schema"),
        ("query_records", json!({"stream": "messages", "more": 1}), "schema"),
        ("query_records", json!({"stream": "../x"}), "invalid_stream"),
        ("query_records", json!({"stream": "messages", "filter": {}}), "invalid_filter"),
        ("query_records", json!({"stream": "messages", "filter": {"a": {"foo": 1}}}), "invalid_filter"),
        ("fetch", json!({"id": "nocolon"}), "invalid_id"),
        (
            "fetch",
            json!({"id": "cin_gmail_work/messages:m1", "connection_id": "cin_gmail_personal"}),
            "conflicting_connection_id",
        ),
        ("read_record_field", json!({"field_path": "x"}), "invalid_field_window_selector"),
        (
            "create_event_subscription",
            json!({"callback_url": "https://hooks.example.com.evil/"}),
            "callback_not_allowed",
        ),
    ] {
        let refused = guarded.refused(tool, arguments.clone());
        assert_eq!(refused["error"], "ARGS_INVALID", "{refused}");
        // SURF-80
        assert_eq!(refused["details"]["code"], code, "{arguments}: {refused}");
    }
    assert_eq!(guarded.rs.paths(), Vec::<String>::new());
    let ambiguous = guarded.refused("fetch", json!({"id": "messages:m1"}));
    assert_eq!(ambiguous["details"]["retry_with"], "connection_id");
    assert_eq!(ambiguous["details"]["choices"][1]["connection_id"], "cin_gmail_work");
    guarded.rs.asked();
    guarded.good("fetch", json!({"id": "messages:m1", "connection_id": "cin_gmail_work"}));
    guarded.good("fetch", json!({"id": "cin_gmail_work/messages:m1"}));
    // What was right once is not remembered: without it the server is asked, and says so again.
    assert_eq!(guarded.refused("fetch", json!({"id": "messages:m1"}))["details"]["http_status"], 409);
    let sent: Vec<Value> = guarded.rs.asked().iter().map(|entry| entry["query"].clone()).collect();
    let work = json!([["connection_id", "cin_gmail_work"]]);
    assert_eq!(sent, [work.clone(), work, json!([])]);
}

#[test]
fn arguments_nobody_can_use_are_not_listed_until_somebody_can() {
    // SURF-3, SURF-96, T-SURF-31, T-REC-13
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let rs = Rs::start(&home, &["--profile", "v01"]);
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &file));
    let config = r#"
[policy]
preset = "observe"
[[gate]]
id = "personal-expand"
tools = ["personal/query_records"]
args = ["/expand", "/expand_limit"]
subject = { stream = "/stream", connection_id = "/connection_id?" }
source = { kind = "tool", tool = "schema", args = { stream = "{stream}", connection_id = "{connection_id?}" } }
rows = ["/data/connectors/*/streams/*"]
key = ["name"]
equals = "{stream}"
require = "/expand_capabilities"
prune = true
prune_seconds = 1
error = { code = "invalid_expand", param = "expand", message = "'{stream}' has nothing to expand" }
"#;
    fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    // Policy lets the source run unattended once somebody granted it.
    agent.call("personal__schema", json!({}));
    let expands = || {
        let listed = agent.result("tools/list", json!({}));
        let query = listed["tools"]
            .as_array()
            .unwrap()
            .iter()
            .find(|tool| tool["name"] == "personal__query_records")
            .unwrap()
            .clone();
        query["inputSchema"]["properties"]["expand"].is_object()
    };
    eventually("what no stream supports to go", || (!expands()).then_some(()));
    let mut news = agent.send("GET", "/mcp", "", &[]);
    // Sent all the same, it meets the gate.
    let refused =
        agent.call("personal__query_records", json!({"stream": "messages", "expand": ["attachments"]}));
    assert_eq!(refused["result"]["structuredContent"]["details"]["gate"], "personal-expand", "{refused}");
    rs.turn("PUT", "/profile", &json!({"profile": "rich"}));
    let told = news.next().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    assert!(expands(), "now some can");
    let page = agent.call("personal__query_records", json!({"stream": "messages", "limit": 1, "connection_id": "cin_gmail_work", "expand": ["attachments"]}));
    assert!(page["result"]["structuredContent"]["data"]["data"].is_array(), "{page}");
}
