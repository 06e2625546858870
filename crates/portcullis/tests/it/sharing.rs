//! Servers that remember who calls, and whose work a call is part of (PRO-39).

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Operator, Spy, eventually, guarded_spy, modern_meta, open_home};

fn session(daemon: &Daemon) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "one", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    daemon.post(&[], &hello).unwrap().header("mcp-session-id").unwrap().to_owned()
}

fn echo(daemon: &Daemon, session: &str) -> Value {
    let params = json!({"name": "spy__echo", "arguments": {"text": "x"}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    daemon.post(&[("Mcp-Session-Id", session)], &call).unwrap().json()
}

fn registered(home: &Home, session: &str) -> Spy {
    let spy = Spy::new(home);
    let declaration = spy.declaration();
    let changed = declaration.replacen("surface: static", &format!("surface: static, session: {session}"), 1);
    assert_ne!(changed, declaration, "the declaration of the spy is written otherwise");
    spy.register_as(home, &changed);
    spy
}

#[test]
fn each_client_of_a_server_that_remembers_has_a_session_of_its_own() {
    // PRO-39
    let home = open_home();
    let spy = registered(&home, "per_client");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let (first, second) = (session(&daemon), session(&daemon));
    for session in [&first, &first, &second] {
        let called = echo(&daemon, session);
        assert_eq!(called["result"]["structuredContent"]["text"], "x", "{called}");
    }
    assert_eq!(spy.processes().len(), 2, "one for each client, whatever it calls");
    // Its process ends with the session, and only that one.
    assert_eq!(daemon.http("DELETE", "/mcp", &[("Mcp-Session-Id", first.as_str())], "").unwrap().status, 204);
    eventually("the process of the session that ended to end", || (spy.processes().len() == 1).then_some(()));
    assert_eq!(echo(&daemon, &second)["result"]["structuredContent"]["text"], "x");
    assert_eq!(spy.processes().len(), 1);
    drop(operator);
    daemon.stop();
    assert!(spy.processes().is_empty());
    home.verify();
}

#[test]
fn clients_share_a_server_that_remembers_nothing() {
    // PRO-39
    let home = open_home();
    let spy = registered(&home, "shared");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let sessions = [session(&daemon), session(&daemon)];
    for session in &sessions {
        assert_eq!(echo(&daemon, session)["result"]["structuredContent"]["text"], "x");
    }
    assert_eq!(spy.processes().len(), 1);
    drop(operator);
    daemon.stop();
}

#[test]
fn a_server_hears_whose_work_a_call_is_part_of_and_the_record_says_so() {
    // PRO-10: trace context in `_meta`
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let call = |trace: &Value| {
        let mut meta = modern_meta();
        let members = trace.as_object().unwrap().clone();
        meta.as_object_mut().unwrap().extend(members);
        let params = json!({"name": "spy__echo", "arguments": {"text": "x"}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let headers =
            [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/call"), ("Mcp-Name", "spy__echo")];
        let called = daemon.post(&headers, &body).unwrap().json();
        assert_eq!(called["result"]["structuredContent"]["text"], "x", "{called}");
        let sent = spy.frames("tools/call").pop().unwrap();
        serde_json::from_str::<Value>(&sent).unwrap()["params"]["_meta"].clone()
    };
    let whole = json!({"traceparent": parent, "tracestate": "a=b", "baggage": "k=v"});
    let heard = call(&whole);
    for name in ["traceparent", "tracestate", "baggage"] {
        assert_eq!(heard[name], whole[name], "{heard}");
    }
    // What is not well-formed goes no further, and no call fails of it.
    for bad in [json!({"traceparent": "00-x"}), json!({"traceparent": 7, "tracestate": "a=b"}), json!({})] {
        let heard = call(&bad);
        assert!(heard.get("traceparent").is_none() && heard.get("tracestate").is_none(), "{heard}");
    }
    drop(operator);
    daemon.stop();
    let received = home.events("proposal.received");
    let traced: Vec<&Value> = received.iter().map(|event| &event["data"]["traceparent"]).collect();
    assert_eq!(traced, [&json!(parent), &Value::Null, &Value::Null, &Value::Null]);
}
