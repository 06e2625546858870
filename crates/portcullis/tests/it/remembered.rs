//! Answers that are given again, and arguments that were nearly right (CTX-90, CTX-92).

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Daemon, Home, Operator, Spy, eventually, guarded_spy};

const CACHING: &str = "[policy]\npreset = \"observe\"\n[calls.cache]\nallow = [\"spy/*\"]\n";

/// A spy on a tier where trust can be earned.
fn earning_spy(config: &str) -> (Home, Spy) {
    let home = Home::new(config);
    let spy = Spy::new(&home);
    spy.register_on_tier(&home, "1");
    (home, spy)
}

/// Has a tool called until it needs nobody's approval.
fn earn(home: &Home, call: impl Fn(&str) -> Value) {
    let _operator = Operator::on_duty(home);
    for n in 0..16 {
        assert!(!is_hit(&call(&format!("earning {n}"))));
    }
    eventually("the tool to be promoted", || {
        (home.json(&["trust", "show", "spy/echo"])["state"] == "probationary").then_some(())
    });
}

fn is_hit(response: &Value) -> bool {
    assert!(response["result"].is_object(), "{response}");
    response["result"]["_meta"]["io.portcullis/call"]["cache_hit"] == true
}

#[test]
fn an_answer_is_given_again_to_whoever_got_it_and_nobody_else_and_that_is_on_record() {
    // CTX-92, AUD-13
    let (home, spy) = earning_spy(CACHING);
    let daemon = home.serve();
    let agent = Agent::open(&daemon, "2025-11-25");
    let echo = |text: &str| agent.call("spy__echo", json!({"text": text}));
    earn(&home, echo);
    let before = spy.calls();
    let first = echo("once");
    assert!(!is_hit(&first));
    let again = echo("once");
    assert!(is_hit(&again), "{again}");
    assert_eq!(again["result"]["content"], first["result"]["content"]);
    assert_eq!(spy.calls(), before + 1, "nothing was sent for the second");
    let [hit] = &home.events("result.cache_hit")[..] else { panic!("one hit") };
    let mark = |response: &Value| response["result"]["_meta"]["io.portcullis/call"].clone();
    assert_eq!(hit["data"]["event"], mark(&first)["event"], "it says where its evidence is");
    assert_eq!(hit["proposal"], mark(&again)["proposal_id"]);
    assert_ne!(mark(&first)["proposal_id"], mark(&again)["proposal_id"]);
    let told = home.json(&["why", mark(&again)["proposal_id"].as_str().unwrap()]);
    assert!(told["end"]["how"].as_str().unwrap().contains("nothing was sent"), "{told}");
    // Other arguments are another question; a failure is no answer.
    assert!(!is_hit(&echo("twice")));
    spy.control(&json!({"result": {"echo": {"content": [{"type": "text", "text": "no"}], "isError": true}}}));
    for _ in 0..2 {
        assert_eq!(echo("failing")["result"]["isError"], true);
    }
    assert_eq!(spy.calls(), before + 4);
    daemon.stop();
    home.verify();
}

#[test]
fn an_answer_that_rests_on_questions_is_given_to_nobody_else() {
    // PRO-69, CTX-92: a server of each era, and one that wants a page visited first
    for revision in ["2025-11-25", "2026-07-28"] {
        let home = Home::new(CACHING);
        let spy = Spy::speaking(&home, "spy", revision);
        let declaration = format!("{}\nserver_requests: [elicitation]\n", spy.declaration());
        home.json_of(&spy.flagged(&home, &declaration, &["--trust-tier", "1"]));
        let daemon = home.serve();
        let able = |how: Value| Agent::able(&daemon, "2026-07-28", json!({"elicitation": how}));
        // One that opens links would be shown where approvals are decided, as long as there are any to decide.
        let (fills_in, opens) = (able(json!({})), able(json!({"url": {}})));
        let echo = |text: &str| fills_in.call("spy__echo", json!({"text": text}));
        earn(&home, echo);
        assert!(!is_hit(&echo("kept")) && is_hit(&echo("kept")), "what rests on nothing is given again");
        let answered = |agent: &Agent, answer: Value| {
            let asked = agent.call("spy__echo", json!({"text": "asked"}));
            assert_eq!(asked["result"]["resultType"], "input_required", "{revision}: {asked}");
            spy.control(&json!({}));
            let key = asked["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
            let params = json!({
                "name": "spy__echo", "arguments": {"text": "asked"},
                "requestState": asked["result"]["requestState"], "inputResponses": {key: answer},
            });
            let done = agent.ask("tools/call", params);
            assert_eq!(done["result"]["structuredContent"]["text"], "asked", "{revision}: {done}");
        };
        let operator = Operator::on_duty(&home);
        spy.control(&json!({"server_request": "elicitation/create"}));
        answered(&fills_in, json!({"action": "accept", "content": {"answer": "a"}}));
        let page = json!({"mode": "url", "elicitationId": "e", "url": "https://a.example/", "message": "m"});
        let error = json!({"code": -32042, "message": "m", "data": {"elicitations": [page]}});
        spy.control(&json!({"error": {"echo": error}}));
        answered(&opens, json!({"action": "accept"}));
        let calls = spy.calls();
        assert!(!is_hit(&echo("asked")), "{revision}: it is asked anew");
        assert_eq!(spy.calls(), calls + 1);
        drop(operator);
        daemon.stop();
    }
}

#[test]
fn what_writes_or_needs_an_approval_is_always_called() {
    // CTX-92, T-CTX-21: the declaration says what it does; no hint, and no list of the operator's, makes it read.
    let (home, spy) = guarded_spy(CACHING);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    for _ in 0..2 {
        let path = spy.workspace.join("a");
        assert!(!is_hit(&agent.call("spy__write_thing", json!({"path": path, "text": "b"}))));
        // Nobody was asked the second time, because the approval lasts: it still is one.
        assert!(!is_hit(&agent.call("spy__echo", json!({"text": "x"}))));
    }
    assert_eq!(spy.calls(), 4);
    assert!(home.events("result.cache_hit").is_empty());
    daemon.stop();
}

fn call_as(daemon: &Daemon, key: &str, text: &str) -> Value {
    let meta = crate::support::modern_meta();
    let params = json!({"name": "spy__echo", "arguments": {"text": text}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = [
        ("Authorization", key),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "spy__echo"),
    ];
    daemon.post(&headers, &body).unwrap().json()
}

#[test]
fn one_agent_never_gets_what_another_was_answered() {
    // CTX-92, T-CTX-22
    let (home, spy) = earning_spy(&format!("{CACHING}[access]\nauthentication = \"required\"\n"));
    let daemon = home.serve();
    let key = |agent| format!("Bearer {}", home.json(&["key", "create", agent])["key"].as_str().unwrap());
    let (ann, ben) = (key("ann"), key("ben"));
    earn(&home, |text| call_as(&daemon, &ann, text));
    let before = spy.calls();
    let hits = [&ann, &ben, &ann, &ben].map(|key| is_hit(&call_as(&daemon, key, "mine")));
    assert_eq!((hits, spy.calls() - before), ([false, false, true, true], 2));
    daemon.stop();
}

#[test]
fn arguments_that_are_nearly_right_are_repaired_before_anybody_sees_them() {
    // CTX-90: what is approved, sent and recorded is what was meant.
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n[calls]\ntolerant_args = true\n");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for revision in ["2025-11-25", "2026-07-28"] {
        let agent = Agent::open(&daemon, revision);
        let answer = agent.call("spy__add", json!({"a": "1", "b": 2}));
        let call = &answer["result"]["_meta"]["io.portcullis/call"];
        assert_eq!(call["arg_repairs"], json!([{"pointer": "/a", "rule": "integer"}]), "{answer}");
    }
    let sent: Vec<Value> =
        spy.frames("tools/call").iter().map(|frame| serde_json::from_str(frame).unwrap()).collect();
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|frame| frame["params"]["arguments"] == json!({"a": 1, "b": 2})), "{sent:?}");
    let agent = Agent::open(&daemon, "2025-11-25");
    let refused = agent.call("spy__add", json!({"a": "one", "b": 2}));
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_eq!(spy.calls(), 2, "nothing is guessed");
    daemon.stop();
}

#[test]
fn without_being_told_to_nothing_is_repaired() {
    // CTX-90: off by default.
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let refused = Agent::open(&daemon, "2025-11-25").call("spy__add", json!({"a": "1", "b": 2}));
    assert_eq!((&refused["result"]["isError"], spy.calls()), (&json!(true), 0), "{refused}");
    daemon.stop();
}
