//! Answers before questions, streams for who prefers them, and what a legacy server says beside its calls.

use serde_json::json;

use crate::agent::Agent;
use crate::reference::Reference;
use crate::support::{Operator, open_home};

#[test]
fn an_answer_that_comes_before_its_question_counts_if_it_fits() {
    // GOV-408, PRO §4: judged against what the server really asks, and sent in a call of its own
    let home = open_home();
    let server = Reference::start("modern");
    server.register(&home, &json!({"server_requests": ["elicitation"]}));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {}}));
    let call = |answers: serde_json::Value| {
        let name = "conformance__test_input_required_result_elicitation";
        agent.result("tools/call", json!({"name": name, "arguments": {}, "inputResponses": answers}))
    };
    let fits = json!({"action": "accept", "content": {"name": "Ada"}});
    let done = call(json!({"user_name": fits, "unknown": {"action": "accept", "content": {"x": 1}}}));
    assert_eq!(done["content"][0]["text"], "Hello, Ada!", "{done}");
    for other in [
        json!({"user_name": 7}),
        json!({"user_name": {"action": "accept", "content": {"name": 7}}}),
        json!({}),
        json!(null),
    ] {
        let asked = call(other.clone());
        assert_eq!(asked["resultType"], "input_required", "{other}: {asked}");
    }
    drop(operator);
    daemon.stop();
    // Two calls of their own, the second naming the first; each question has a permit of its own besides.
    let split = |name: &str| {
        let is_question =
            |record: &serde_json::Value| record["tool_id"].as_str().unwrap().contains("/request:");
        home.events(name).into_iter().partition::<Vec<_>, _>(|record| !is_question(record))
    };
    let (received, asked) = split("proposal.received");
    let (issued, allowed) = split("permit.issued");
    assert_eq!((received.len(), issued.len()), (6, 6));
    assert_eq!((asked.len(), allowed.len()), (5, 5));
    assert_eq!(issued[1]["data"]["lineage"]["parent"], issued[0]["proposal"], "{}", issued[1]);
    home.verify();
}

#[test]
fn a_client_that_prefers_streams_gets_one_for_every_answer() {
    // PRO-31
    let home = open_home();
    let daemon = home.serve();
    let meta = crate::support::modern_meta();
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string();
    let ask = |accept: &str| {
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", accept),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/list"),
        ];
        let reply = daemon.http("POST", "/mcp", &headers, &body).unwrap();
        assert!(reply.json()["result"]["tools"].is_array(), "{}", reply.body);
        reply.header("content-type").unwrap().to_owned()
    };
    assert_eq!(ask("text/event-stream, application/json"), "text/event-stream");
    assert_eq!(ask("application/json, text/event-stream"), "application/json");
    assert_eq!(ask("application/json"), "application/json");
    // An error with a status of its own keeps it.
    let wrong = [
        ("Content-Type", "application/json"),
        ("Accept", "text/event-stream, application/json"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "nothing/like"),
    ];
    let body = body.replace("tools/list", "nothing/like");
    assert_eq!(daemon.http("POST", "/mcp", &wrong, &body).unwrap().status, 404);
}

#[test]
fn what_a_legacy_server_says_beside_its_one_call_is_heard_by_that_client() {
    // PRO-20: the messages come on a stream that is no call's
    let home = open_home();
    let server = Reference::start("legacy");
    server.register(&home, &json!({}));
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    agent.result("logging/setLevel", json!({"level": "debug"}));
    // The first one waits for somebody to approve it.
    let name = "conformance__test_tool_with_logging";
    agent.result("tools/call", json!({"name": name, "arguments": {}}));
    let heard: Vec<_> = agent.begin("tools/call", json!({"name": name, "arguments": {}})).collect();
    let messages = heard.iter().filter(|message| message["method"] == "notifications/message");
    let logged: Vec<&str> = messages.filter_map(|message| message["params"]["logger"].as_str()).collect();
    assert!(!logged.is_empty() && logged.iter().all(|logger| *logger == "conformance"), "{heard:?}");
    assert!(heard.last().unwrap().get("result").is_some(), "{heard:?}");
}
