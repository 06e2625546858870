//! Every switch does what it says, and only while it is on.

use serde_json::{Value, json};

use crate::peer::{Peer, Station, modern, text};

fn echo() -> Value {
    json!({ "name": "echo", "arguments": { "text": "hi" } })
}

#[test]
fn the_list_changes_while_the_process_runs() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    let honest = peer.ask("tools/list", json!({}))["result"]["tools"].clone();
    station.control(&json!({
        "description": { "echo": "new text" }, "drop": ["add"], "extra_tool": "evil",
        "schema": { "slow": { "type": "object" } }
    }));
    let tools = peer.ask("tools/list", json!({}))["result"]["tools"].clone();
    let names: Vec<_> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools[0]["description"], "new text");
    assert!(!names.contains(&"add") && names.last() == Some(&"evil"));
    assert_eq!(peer.call("add", json!({ "a": 1, "b": 1 }))["error"]["code"], -32602);
    assert_eq!(text(&peer.call("evil", json!({}))), "evil was called");
    station.control(&json!({}));
    assert_eq!(peer.ask("tools/list", json!({}))["result"]["tools"], honest);
}

#[test]
fn pages_and_a_cursor_loop() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "pages": 3 }));
    let (mut seen, mut cursor) = (0, Value::Null);
    for _ in 0..3 {
        let params = if cursor.is_null() { json!({}) } else { json!({ "cursor": cursor }) };
        let page = peer.ask("tools/list", params);
        seen += page["result"]["tools"].as_array().unwrap().len();
        cursor = page["result"]["nextCursor"].clone();
    }
    assert_eq!((seen, cursor), (9, Value::Null));
    station.control(&json!({ "cursor_loop": true }));
    assert_eq!(peer.ask("tools/list", json!({ "cursor": "loop" }))["result"]["nextCursor"], "loop");
}

#[test]
fn a_changed_list_is_announced_once_without_being_asked() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "list_changed": true }));
    assert_eq!(peer.receive()["method"], "notifications/tools/list_changed");
    assert_eq!(text(&peer.call("echo", json!({ "text": "hi" }))), "hi");
    station.control(&json!({ "list_changed": 3 }));
    for _ in 0..3 {
        assert_eq!(peer.receive()["method"], "notifications/tools/list_changed");
    }
    assert_eq!(text(&peer.call("echo", json!({ "text": "hi" }))), "hi");
}

#[test]
fn a_modern_subscriber_is_told_under_its_subscription() {
    let station = Station::new();
    let mut peer = Peer::start(&station, &[]);
    let id = peer
        .request("subscriptions/listen", modern(json!({ "notifications": { "toolsListChanged": true } })));
    let acknowledged = peer.receive();
    assert_eq!(acknowledged["params"]["notifications"], json!({ "toolsListChanged": true }));
    station.control(&json!({ "list_changed": true }));
    let changed = peer.receive();
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
}

#[test]
fn the_answer_switches_spoil_exactly_the_answer() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);

    station.control(&json!({ "bad_output": true }));
    assert_eq!(peer.ask("tools/call", echo())["result"]["structuredContent"], json!({ "text": 7 }));

    station.control(&json!({ "garbage": true }));
    peer.request("tools/call", echo());
    assert!(serde_json::from_str::<Value>(&peer.line().unwrap()).is_err());
    assert_eq!(text(&peer.receive()), "hi");

    station.control(&json!({ "huge_line": 100_000 }));
    peer.request("tools/call", echo());
    let huge = peer.line().unwrap();
    assert_eq!(huge.trim_end().len(), 100_000);
    assert!(serde_json::from_str::<Value>(&huge).is_ok());
    assert_eq!(text(&peer.receive()), "hi");

    station.control(&json!({ "answer_twice": true }));
    let first = peer.ask("tools/call", echo());
    assert_eq!(peer.receive(), first);

    station.control(&json!({ "unknown_id": true }));
    peer.request("tools/call", echo());
    assert!(peer.receive()["id"].as_str().unwrap().starts_with("spy-unknown-"));

    station.control(&json!({ "forge_error": -31006 }));
    let forged = peer.ask("tools/call", echo());
    assert_eq!(forged["error"]["code"], -31006);
    assert!(forged["error"]["data"]["_meta"].get("io.portcullis/x").is_some());

    station.control(&json!({ "forge_meta": true }));
    assert_eq!(peer.ask("tools/call", echo())["result"]["_meta"]["io.portcullis/x"], "forged");

    station.control(&json!({ "split_writes": true }));
    assert_eq!(text(&peer.call("big", json!({ "bytes": 5000 }))).len(), 5000);

    station.control(&json!({ "garbage": true, "on": "tools/list" }));
    assert_eq!(text(&peer.ask("tools/call", echo())), "hi");
    peer.request("tools/list", json!({}));
    assert!(peer.line().unwrap().starts_with("this is not JSON"));
    peer.receive();

    station.control(&json!({}));
    assert_eq!(text(&peer.ask("tools/call", echo())), "hi");
}

#[test]
fn a_silent_spy_has_the_frame_in_its_log_and_answers_others() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "never_answer": true }));
    peer.request("tools/call", echo());
    assert!(peer.ask("tools/list", json!({}))["result"].is_object());
    assert_eq!(station.frames("tools/call").len(), 1);

    let station = Station::new();
    station.control(&json!({ "silent_initialize": true, "silent_discover": true }));
    let mut peer = Peer::start(&station, &[]);
    peer.request("initialize", json!({ "protocolVersion": "2025-11-25" }));
    assert_eq!(peer.ask("ping", json!({}))["result"], json!({}));
}

#[test]
fn a_late_answer_comes_even_to_a_cancelled_request() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "late_ms": 50 }));
    let id = peer.request("tools/call", echo());
    peer.send(
        &json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }),
    );
    assert_eq!(peer.receive()["id"], id);
}

#[test]
fn a_dying_spy_has_written_down_what_it_died_of() {
    for (switch, answered) in [("die_on_call", false), ("die_after_call", true)] {
        let station = Station::new();
        let mut peer = Peer::legacy(&station);
        station.control(&json!({ switch: true }));
        peer.request("tools/call", echo());
        assert_eq!(peer.line().is_some(), answered, "{switch}");
        assert!(peer.line().is_none());
        assert_eq!(peer.wait().code(), Some(1));
        assert_eq!(station.frames("tools/call").len(), 1);
        assert_eq!(station.events("stop")[0]["reason"], switch);
    }
    let station = Station::new();
    station.control(&json!({ "die_on_discover": true }));
    let mut peer = Peer::start(&station, &[]);
    peer.request("server/discover", modern(json!({})));
    assert_eq!(peer.wait().code(), Some(1));
}

#[test]
fn the_spy_asks_a_legacy_client_during_a_call() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "server_request": ["sampling/createMessage", "roots/list"] }));
    let id = peer.request("tools/call", echo());
    for method in ["sampling/createMessage", "roots/list"] {
        let question = peer.receive();
        assert_eq!(question["method"], method);
        peer.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "to": method } }));
    }
    let answer = peer.receive();
    assert_eq!(answer["id"], id);
    assert!(answer["result"]["content"][1]["text"].as_str().unwrap().contains("roots/list"));
}

#[test]
fn the_spy_asks_a_modern_client_by_ending_the_call() {
    let station = Station::new();
    let mut peer = Peer::start(&station, &[]);
    station.control(&json!({ "server_request": ["elicitation/create", "elicitation/create"] }));
    let mut params = modern(echo());
    for round in 0..2 {
        let result = peer.ask("tools/call", params.clone())["result"].clone();
        assert_eq!(result["resultType"], "input_required");
        let key = format!("q{round}");
        assert_eq!(result["inputRequests"][&key]["method"], "elicitation/create");
        params["requestState"] = result["requestState"].clone();
        params["inputResponses"] = json!({ key: { "action": "accept", "content": { "answer": "42" } } });
    }
    let result = peer.ask("tools/call", params)["result"].clone();
    assert_eq!(result["resultType"], "complete");
    assert!(result["content"][1]["text"].as_str().unwrap().contains("42"));
}

#[test]
fn another_version_is_claimed_and_attempts_to_get_out_are_logged() {
    let station = Station::new();
    station.control(&json!({
        "version": "9.9.9", "isolate": { "read": ["/etc/hostname", "/no/such/file"], "connect": ["127.0.0.1:1"] }
    }));
    let mut peer = Peer::start(&station, &[]);
    assert_eq!(peer.initialize("2025-11-25")["result"]["serverInfo"]["version"], "9.9.9");
    peer.ask("tools/call", echo());
    let escapes = station.events("escape");
    assert_eq!(escapes.len(), 3);
    assert_eq!(escapes[1]["what"], "read /no/such/file");
    assert_ne!(escapes[1]["outcome"], "ok");
}

#[test]
fn a_misspelt_switch_is_reported_in_the_log() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    station.control(&json!({ "garbag": true }));
    assert_eq!(text(&peer.ask("tools/call", echo())), "hi");
    assert!(station.await_event("bad_control")["error"].as_str().unwrap().contains("garbag"));
}
