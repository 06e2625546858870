//! What clients carry for us while a call waits for their answers (PRO-11, T-PRO-2).

use serde_json::{Value, json};

use crate::reference::Reference;
use crate::support::{Daemon, Home, Operator, eventually};

const CONFIG: &str = "[policy]\npreset = \"observe\"\n[access]\nauthentication = \"required\"\n";
const TOOL: &str = "conformance__test_input_required_result_request_state";

fn key(home: &Home, agent: &str) -> String {
    format!("Bearer {}", home.json(&["key", "create", agent])["key"].as_str().unwrap())
}

fn call(daemon: &Daemon, key: &str, more: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    });
    let mut params = json!({"name": TOOL, "arguments": {}, "_meta": meta});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let headers = [
        ("Authorization", key),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", TOOL),
    ];
    daemon.post(&headers, &body).unwrap().json()
}

/// The call as it is repeated, with an answer to each question.
fn again(asked: &Value) -> Value {
    let questions = asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("{asked}"));
    let answers: serde_json::Map<String, Value> = (questions.keys())
        .map(|key| (key.clone(), json!({"action": "accept", "content": {"ok": true}})))
        .collect();
    json!({"inputResponses": answers, "requestState": asked["result"]["requestState"]})
}

#[test]
fn a_state_is_worth_nothing_in_other_hands_changed_or_for_another_registration() {
    // PRO-11, T-PRO-2: over a server of each era
    for eras in ["modern", "legacy"] {
        let home = Home::new(CONFIG);
        let server = Reference::start(eras);
        server.register(&home, &json!({"server_requests": ["elicitation"]}));
        let daemon = home.serve();
        let operator = Operator::on_duty(&home);
        let (ours, other) = (key(&home, "ours"), key(&home, "other"));
        let asked = call(&daemon, &ours, &json!({}));
        assert_eq!(asked["result"]["resultType"], "input_required", "{eras}: {asked}");
        let answered = again(&asked);
        let refused = |key: &str, more: &Value| {
            let answer = call(&daemon, key, more);
            assert_eq!(answer["error"]["code"], -32602, "{eras}: {answer}");
        };
        refused(&other, &answered);
        let mut changed = answered.clone();
        let state = changed["requestState"].as_str().unwrap().to_owned();
        let last = if state.ends_with('A') { "B" } else { "A" };
        changed["requestState"] = format!("{}{last}", &state[..state.len() - 1]).into();
        refused(&ours, &changed);
        // Whoever was refused has used nothing up.
        let done = call(&daemon, &ours, &answered);
        assert_eq!(done["result"]["content"][0]["text"], "state-ok", "{eras}: {done}");
        // The same server registered anew is another one.
        let asked = call(&daemon, &ours, &json!({}));
        home.json(&["mcp", "remove", "conformance", "--reason", "anew"]);
        server.register(&home, &json!({"server_requests": ["elicitation"]}));
        refused(&ours, &again(&asked));
        drop(operator);
        daemon.stop();
        home.verify();
    }
}

#[test]
fn a_state_that_is_too_old_is_refused_and_whoever_waited_for_it_is_told() {
    // PRO §4, T-PRO-2: expired, over a server of each era
    for eras in ["modern", "legacy"] {
        let home = Home::new(&format!("{CONFIG}[calls]\nanswer_timeout = \"1s\"\n"));
        let server = Reference::start(eras);
        server.register(&home, &json!({"server_requests": ["elicitation"]}));
        let daemon = home.serve();
        let operator = Operator::on_duty(&home);
        let ours = key(&home, "ours");
        // The first call may wait for its approval; what is asked then is answered at once.
        let asked = call(&daemon, &ours, &json!({}));
        assert_eq!(asked["result"]["resultType"], "input_required", "{eras}: {asked}");
        let answered = again(&asked);
        let is_too_old = |answer: &Value| {
            answer["error"]["message"].as_str().is_some_and(|message| message.contains("changed or expired"))
        };
        // Without an answer it is good for nothing but to be asked again, until it is too old.
        eventually("the state to be too old", || {
            is_too_old(&call(&daemon, &ours, &json!({"requestState": answered["requestState"]})))
                .then_some(())
        });
        let refused = call(&daemon, &ours, &answered);
        assert_eq!(refused["error"]["code"], -32602, "{eras}: {refused}");
        assert!(is_too_old(&refused), "{eras}: {refused}");
        // Nothing is left waiting: the same call can be made anew.
        let asked = call(&daemon, &ours, &json!({}));
        assert_eq!(asked["result"]["resultType"], "input_required", "{eras}: {asked}");
        drop(operator);
        daemon.stop();
        home.verify();
    }
    for value in ["\"0s\"", "\"2h\""] {
        let home = Home::new(&format!("[calls]\nanswer_timeout = {value}\n"));
        let (exit, error) = home.fails(&["serve", "--listen", "127.0.0.1:0"]);
        assert_eq!((exit, &error["field"]), (7, &json!("calls.answer_timeout")), "{error}");
    }
}
