//! The honest spy on stdin and stdout, and its log.

use serde_json::json;

use crate::peer::{Peer, Station, modern, text};

#[test]
fn every_frame_is_in_the_log_exactly_as_it_came_between_a_start_and_a_stop() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    assert_eq!(text(&peer.call("echo", json!({ "text": "zwölf \"Boxkämpfer\"" }))), "zwölf \"Boxkämpfer\"");
    peer.send(&json!({ "unknown": "members", "jsonrpc": "2.0", "method": "notifications/odd" }));
    assert!(peer.finish().success());

    let log = station.log();
    assert_eq!((&log[0]["event"], &log[log.len() - 1]["event"]), (&json!("start"), &json!("stop")));
    let numbers: Vec<_> = log.iter().map(|line| line["n"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
    assert!(log.iter().all(|line| line["pid"].is_u64() && line["time_ns"].is_u64()));
    let methods: Vec<_> = log.iter().filter_map(|line| line["method"].as_str()).collect();
    assert_eq!(methods, ["initialize", "notifications/initialized", "tools/call", "notifications/odd"]);
    let odd = json!({ "unknown": "members", "jsonrpc": "2.0", "method": "notifications/odd" }).to_string();
    assert_eq!(station.frames("notifications/odd")[0]["raw"], odd);
    assert_eq!(station.frames("tools/call")[0]["transport"], "stdio");
}

#[test]
fn the_tools_answer_in_both_eras() {
    let station = Station::new();
    let mut legacy = Peer::legacy(&station);
    assert_eq!(text(&legacy.call("add", json!({ "a": 40, "b": 2 }))), "42");
    assert_eq!(text(&legacy.call("big", json!({ "bytes": 100_000 }))).len(), 100_000);
    assert_eq!(legacy.call("fail", json!({ "message": "no" }))["result"]["isError"], true);
    let error = &legacy.call("rpc_error", json!({ "code": -5, "message": "no" }))["error"];
    assert_eq!(*error, json!({ "code": -5, "message": "no" }));
    assert!(text(&legacy.call("env", json!({}))).contains("\"PATH\""));
    assert!(text(&legacy.call("pid", json!({}))).parse::<u32>().is_ok());
    assert!(
        text(&legacy.call("write_thing", json!({ "path": "/x", "text": "abc" }))).contains("3 bytes to /x")
    );
    assert_eq!(legacy.call("nope", json!({}))["error"]["code"], -32602);

    let mut peer = Peer::start(&station, &[]);
    let discovered = peer.ask("server/discover", modern(json!({})));
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
    let list = peer.ask("tools/list", modern(json!({})));
    assert_eq!(list["result"]["resultType"], "complete");
    assert!(list["result"]["ttlMs"].is_u64());
    let call = peer.ask("tools/call", modern(json!({ "name": "echo", "arguments": { "text": "hi" } })));
    assert_eq!(call["result"]["structuredContent"], json!({ "text": "hi" }));
    assert_eq!(call["result"]["resultType"], "complete");
    assert_eq!(peer.ask("initialize", json!({}))["error"]["code"], -32601);
}

#[test]
fn one_revision_can_be_forced() {
    // PRO-53
    let station = Station::new();
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut peer = Peer::start(&station, &["--revision", revision]);
        assert_eq!(peer.ask("server/discover", modern(json!({})))["error"]["code"], -32601);
        assert_eq!(peer.initialize("2025-11-25")["result"]["protocolVersion"], revision);
    }
    let mut peer = Peer::start(&station, &["--revision", "modern"]);
    assert_eq!(peer.ask("initialize", json!({}))["error"]["code"], -32601);
    assert!(peer.ask("tools/list", modern(json!({})))["result"]["tools"].is_array());
}

#[test]
fn a_slow_call_holds_up_nobody_and_a_cancelled_one_is_never_answered() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    let slow = peer.request("tools/call", json!({ "name": "slow", "arguments": { "ms": 600_000 } }));
    assert_eq!(text(&peer.call("add", json!({ "a": 1, "b": 1 }))), "2");
    peer.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": slow, "reason": "enough" }
    }));
    assert_eq!(station.await_event("cancelled")["request"], slow);
    assert_eq!(text(&peer.call("add", json!({ "a": 2, "b": 2 }))), "4");
    assert!(peer.finish().success());
}

#[test]
fn progress_is_told_to_those_who_ask_for_it() {
    let station = Station::new();
    let mut peer = Peer::legacy(&station);
    let call = json!({ "name": "slow", "arguments": { "ms": 2 }, "_meta": { "progressToken": "p" } });
    let id = peer.request("tools/call", call);
    let progress = peer.receive();
    assert_eq!(
        (&progress["method"], &progress["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    assert_eq!(peer.receive()["id"], id);
}
