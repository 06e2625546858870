//! What servers are told that a client can do: what it said, what is declared, and nothing else (PRO-63).

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Operator, Spy, open_home};

fn echo() -> Value {
    json!({"name": "spy__echo", "arguments": {"text": "x"}})
}

/// What servers were told at `initialize`, in order.
fn told(spy: &Spy) -> Vec<Value> {
    let frames = spy.frames("initialize");
    let said =
        |frame: &String| serde_json::from_str::<Value>(frame).unwrap()["params"]["capabilities"].clone();
    frames.iter().map(said).collect()
}

#[test]
fn clients_that_can_do_different_things_do_not_share_a_session_of_a_legacy_server() {
    // PRO-63
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    spy.register_with(&home, "server_requests: [elicitation, roots]");
    let looked_at = json!({"elicitation": {"form": {}, "url": {}}, "roots": {}});
    assert_eq!(
        told(&spy),
        std::slice::from_ref(&looked_at),
        "everything that is declared, to see everything"
    );
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let call = |revision, said: Value| {
        let answer = Agent::able(&daemon, revision, said).ask("tools/call", echo());
        assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    };
    for revision in ["2025-11-25", "2026-07-28"] {
        call(revision, json!({}));
        call(revision, json!({"sampling": {}, "experimental": {"x": {}}}));
        call(revision, json!({"elicitation": {}, "sampling": {"tools": {}}}));
        call(revision, json!({"elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true}}));
    }
    let mut heard = told(&spy).split_off(1);
    heard.sort_by_key(Value::to_string);
    let form = json!({"elicitation": {"form": {}}});
    assert_eq!(heard, [looked_at, form, json!({})], "one session for each, whoever calls");
    assert_eq!(spy.processes().len(), 3);
    drop(operator);
    daemon.stop();
    assert!(spy.processes().is_empty());
    home.verify();
}

#[test]
fn a_modern_server_hears_with_each_request_what_this_client_can_do() {
    // PRO-63
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2026-07-28");
    spy.register_with(&home, "server_requests: [elicitation, roots]");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for (said, told) in [
        (json!({}), json!({})),
        (json!({"sampling": {}, "roots": {"listChanged": true}}), json!({"roots": {}})),
        (json!({"elicitation": {"url": {}}}), json!({"elicitation": {"url": {}}})),
    ] {
        for revision in ["2025-11-25", "2026-07-28"] {
            let answer = Agent::able(&daemon, revision, said.clone()).ask("tools/call", echo());
            assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
            let frame: Value = serde_json::from_str(spy.frames("tools/call").last().unwrap()).unwrap();
            let heard = &frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(heard, &told, "{revision} {said}");
        }
    }
    assert_eq!(spy.processes().len(), 1, "one connection carries them all");
}

#[test]
fn a_tool_that_is_only_there_for_able_clients_is_refused_to_others_and_nobody_is_halted() {
    // PRO-63: what a server lists depends on what it may ask
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    spy.control(&json!({"needs": {"echo": "roots"}}));
    spy.register_with(&home, "server_requests: [roots]");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let able = Agent::able(&daemon, "2025-11-25", json!({"roots": {}}));
    assert_eq!(able.ask("tools/call", echo())["result"]["structuredContent"]["text"], "x");
    let calls = spy.calls();
    let unable = Agent::open(&daemon, "2026-07-28").begin("tools/call", echo());
    assert_eq!(unable.status, 400);
    let unable = unable.last().unwrap();
    assert_eq!(unable["error"]["code"], -32021, "{unable}");
    assert_eq!(unable["error"]["data"]["requiredCapabilities"], json!({"roots": {}}), "{unable}");
    let legacy = Agent::open(&daemon, "2025-06-18").ask("tools/call", echo());
    assert_eq!(legacy["error"]["data"]["details"]["code"], "MP-FH-002", "{legacy}");
    assert_eq!(spy.calls(), calls, "neither was sent");
    // What it lists to everybody can be called by everybody.
    let added = Agent::open(&daemon, "2026-07-28").call("spy__add", json!({"a": 1, "b": 2}));
    assert_eq!(added["result"]["content"][0]["text"], "3", "{added}");
    assert_eq!(home.json(&["mcp", "show", "spy"])["state"], "active");
    // A tool that nobody accepted is no more welcome there than anywhere.
    spy.control(&json!({"needs": {"echo": "roots"}, "extra_tool": "evil", "list_changed": true}));
    crate::support::eventually("the halt", || {
        (home.json(&["mcp", "show", "spy"])["state"] == "halted").then_some(())
    });
    drop(operator);
    daemon.stop();
    let denied = home.events("execution.denied");
    assert_eq!(
        denied.iter().filter(|event| event["data"]["check"] == "capabilities").count(),
        2,
        "{denied:?}"
    );
    home.verify();
}

#[test]
fn a_tool_that_goes_is_noticed_though_only_less_able_clients_are_there() {
    // PRO-63: a session that was told less may list less, so what is gone for everybody is looked for where all was told
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    spy.register_with(&home, "server_requests: [roots]");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let answer = Agent::able(&daemon, "2025-11-25", json!({})).ask("tools/call", echo());
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    let said = told(&spy).split_off(1);
    assert_eq!(said, [json!({})], "nobody was told everything");
    spy.control(&json!({"drop": ["add"], "list_changed": true}));
    crate::support::eventually("the halt", || {
        (home.json(&["mcp", "show", "spy"])["state"] == "halted").then_some(())
    });
    assert!(told(&spy).contains(&json!({"roots": {}})), "{:?}", told(&spy));
    drop(operator);
    daemon.stop();
    home.verify();
}
