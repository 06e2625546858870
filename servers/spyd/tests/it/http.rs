//! The spy over HTTP: sessions of the legacy era, headers of the modern one, and the HTTP switches.

use serde_json::{Value, json};

use crate::http_peer::HttpPeer;
use crate::peer::{Station, modern};

fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn echo() -> Value {
    json!({ "name": "echo", "arguments": { "text": "hi" } })
}

fn open(peer: &HttpPeer) -> String {
    let hello = request(1, "initialize", &json!({ "protocolVersion": "2025-11-25", "capabilities": {} }));
    let reply = peer.post(&[], &hello);
    let session = reply.header("mcp-session-id").expect("a session").to_owned();
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-11-25");
    session
}

#[test]
fn a_legacy_session_is_opened_used_and_ended() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let session = open(&peer);
    let session = [("mcp-session-id", session.as_str())];
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(peer.post(&session, &initialized).status, 202);
    let call = peer.post(&session, &request(2, "tools/call", &echo())).json();
    assert_eq!(call["result"]["structuredContent"], json!({ "text": "hi" }));
    assert_eq!(peer.post(&[], &request(3, "tools/list", &json!({}))).status, 400);
    assert_eq!(peer.post(&[("mcp-session-id", "other")], &request(3, "tools/list", &json!({}))).status, 404);
    assert_eq!(peer.send("DELETE", "/mcp", &session, "").status, 204);
    assert_eq!(peer.post(&session, &request(4, "tools/list", &json!({}))).status, 404);
    let frame = &station.frames("tools/call")[0];
    assert_eq!((&frame["transport"], &frame["http_method"]), (&json!("http"), &json!("POST")));
    assert_eq!(frame["headers"]["mcp-session-id"], session[0].1);
    assert_eq!(frame["raw"], request(2, "tools/call", &echo()).to_string());
}

#[test]
fn a_modern_request_needs_no_session_but_its_headers() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let list = request(1, "tools/list", &modern(json!({})));
    let answer = peer.post_modern(&list).json();
    assert_eq!(answer["result"]["resultType"], "complete");
    let call = request(2, "tools/call", &modern(echo()));
    assert_eq!(peer.post_modern(&call).json()["result"]["isError"], false);
    // The modern era's own errors come with their status.
    let wrong_name =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "add")];
    let reply = peer.post(&wrong_name, &call);
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json()["error"]["code"], -32020);
    let reply = peer.post(&[("mcp-protocol-version", "2026-07-28")], &list);
    assert_eq!(reply.json()["error"]["code"], -32020);
    let reply = peer.post_modern(&request(3, "no/such", &modern(json!({}))));
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json()["error"]["code"], -32601);
    let reply = peer.post(&[("mcp-protocol-version", "2026-07-28")], &request(4, "initialize", &json!({})));
    assert_eq!(reply.status, 404); // PRO-61
}

#[test]
fn what_a_client_must_accept_and_send_is_checked() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let only_json = [("content-type", "application/json"), ("accept", "application/json")];
    assert_eq!(peer.send("POST", "/mcp", &only_json, "{}").status, 406);
    let text = [("content-type", "text/plain"), ("accept", "application/json, text/event-stream")];
    assert_eq!(peer.send("POST", "/mcp", &text, "{}").status, 415);
    assert_eq!(peer.send("PUT", "/mcp", &[], "").status, 405);
    assert_eq!(peer.send("GET", "/.well-known/oauth-protected-resource", &[], "").status, 404);
}

#[test]
fn a_call_is_answered_as_a_stream_when_told_or_when_progress_is_wanted() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    station.control(&json!({ "sse": true, "answer_twice": true }));
    let mut reply = peer.post_modern(&request(1, "tools/call", &modern(echo())));
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    assert_eq!((reply.message()["id"].clone(), reply.message()["id"].clone()), (json!(1), json!(1)));
    assert_eq!(reply.event(), None);
    station.control(&json!({}));
    let slow = json!({ "name": "slow", "arguments": { "ms": 2 }, "_meta": { "progressToken": 7 } });
    let mut reply = peer.post_modern(&request(2, "tools/call", &modern(slow)));
    assert_eq!(reply.message()["params"]["progressToken"], 7);
    assert_eq!(reply.message()["id"], 2);
}

#[test]
fn the_http_switches_replace_the_response() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let call = request(1, "tools/call", &modern(echo()));
    station.control(&json!({ "status": 500 }));
    assert_eq!(peer.post_modern(&call).status, 500);
    station.control(&json!({ "redirect": "http://127.0.0.1:9/evil" }));
    let reply = peer.post_modern(&call);
    assert_eq!((reply.status, reply.header("location")), (307, Some("http://127.0.0.1:9/evil")));
    station.control(&json!({ "content_type": "text/html" }));
    assert_eq!(peer.post_modern(&call).header("content-type"), Some("text/html"));
    station.control(&json!({ "garbage": true }));
    assert!(serde_json::from_str::<Value>(&peer.post_modern(&call).text()).is_err());
    station.control(&json!({ "status": 503, "http_on": "tools/list" }));
    assert_eq!(peer.post_modern(&call).status, 200);
}

#[test]
fn a_session_expires_once() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let session = open(&peer);
    station.control(&json!({ "expire_session": true }));
    let list = request(2, "tools/list", &json!({}));
    assert_eq!(peer.post(&[("mcp-session-id", &session)], &list).status, 404);
    let session = open(&peer);
    assert_eq!(peer.post(&[("mcp-session-id", &session)], &list).status, 200);
}

#[test]
fn changes_reach_the_stream_of_either_era() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let session = open(&peer);
    let mut legacy = peer.send("GET", "/mcp", &[("mcp-session-id", &session)], "");
    assert_eq!(legacy.status, 200);
    let listen = modern(json!({ "notifications": { "toolsListChanged": true } }));
    let mut subscription = peer.post_modern(&request(9, "subscriptions/listen", &listen));
    assert_eq!(subscription.message()["method"], "notifications/subscriptions/acknowledged");
    station.control(&json!({ "list_changed": true }));
    assert_eq!(legacy.message()["method"], "notifications/tools/list_changed");
    let changed = subscription.message();
    assert_eq!(changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 9);
}

#[test]
fn a_question_to_a_legacy_client_comes_on_the_stream_of_its_call() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    let session = open(&peer);
    let session = [("mcp-session-id", session.as_str())];
    station.control(&json!({ "server_request": "elicitation/create" }));
    let mut reply = peer.post(&session, &request(2, "tools/call", &echo()));
    let question = reply.message();
    assert_eq!(question["method"], "elicitation/create");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    assert_eq!(peer.post(&session, &answer).status, 202);
    assert!(reply.message()["result"]["content"][1]["text"].as_str().unwrap().contains("decline"));
}

#[test]
fn a_modern_client_that_goes_away_has_cancelled_its_call() {
    // PRO-67
    let station = Station::new();
    let peer = HttpPeer::start(&station, &[]);
    station.control(&json!({ "sse": true }));
    let slow = json!({ "name": "slow", "arguments": { "ms": 600_000 } });
    drop(peer.post_modern(&request(5, "tools/call", &modern(slow))));
    let cancelled = station.await_event("cancelled");
    assert_eq!((&cancelled["request"], &cancelled["how"]), (&json!(5), &json!("disconnected")));
}

#[test]
fn a_client_of_2024_11_05_gets_its_two_endpoints() {
    let station = Station::new();
    let peer = HttpPeer::start(&station, &["--revision", "2024-11-05"]);
    let mut stream = peer.send("GET", "/sse", &[], "");
    let endpoint = stream.event().expect("the endpoint");
    let headers = [("content-type", "application/json")];
    let hello = request(1, "initialize", &json!({ "protocolVersion": "2024-11-05", "capabilities": {} }));
    assert_eq!(peer.send("POST", &endpoint, &headers, &hello.to_string()).status, 202);
    assert_eq!(stream.message()["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(peer.send("POST", "/messages?session=other", &headers, &hello.to_string()).status, 404);
}
