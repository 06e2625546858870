//! What servers ask of clients is decided about, permitted and recorded like a call (GOV-101, GOV-408).

use std::fs;

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Home, Operator, Spy, open_home};

const ASKS: &str = "server_requests: [sampling, elicitation, roots]";

fn asking(revision: &str) -> (Home, Spy) {
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", revision);
    spy.register_with(&home, ASKS);
    spy.control(&json!({"server_request": "elicitation/create"}));
    (home, spy)
}

fn apply(home: &Home, policy: &str) {
    let dir = home.beside("policies");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("mine.cedar"), policy).unwrap();
    home.json(&["policy", "apply", dir.to_str().unwrap(), "--preset", "observe", "--reason", "a test"]);
}

/// The records about questions.
fn about_questions(home: &Home, event: &str) -> Vec<Value> {
    let is = |record: &Value| record["tool_id"].as_str().is_some_and(|id| id.contains("/request:"));
    home.events(event).into_iter().filter(is).collect()
}

fn echo() -> Value {
    json!({"name": "spy__echo", "arguments": {"text": "x"}})
}

fn told(answer: &Value) -> String {
    answer["result"]["content"][1]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_question_is_on_record_with_a_permit_of_its_own_before_the_client_hears_it() {
    // GOV-408, GOV-101, T-DEC-4
    let (home, _spy) = asking("2025-11-25");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::able(&daemon, "2025-11-25", json!({"elicitation": {}}));
    let mut stream = agent.begin("tools/call", echo());
    let question = stream.next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    // The client has it, so its intent is on disk, and its result is not.
    let intents = about_questions(&home, "execution.intent");
    assert_eq!(intents.len(), 1);
    assert!(about_questions(&home, "execution.result").is_empty());
    let answer = json!({"action": "accept", "content": {"answer": "forty-two"}});
    agent.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}), &[]);
    let answer = stream.last().unwrap();
    assert!(told(&answer).contains("forty-two"), "{answer}");
    drop(operator);
    daemon.stop();

    let one = |event: &str| {
        let found = about_questions(&home, event);
        assert_eq!(found.len(), 1, "{event}: {found:?}");
        found.into_iter().next().unwrap()
    };
    let issued = one("permit.issued");
    assert_eq!(issued["actor"], json!({"id": "spy", "kind": "server"}), "the server asks");
    assert_eq!(issued["data"]["permit_id"], one("permit.validated")["data"]["permit_id"]);
    assert_eq!(issued["data"]["permit_id"], intents[0]["data"]["permit_id"]);
    assert_eq!(issued["data"]["permit_id"], one("execution.result")["data"]["permit_id"]);
    assert_eq!(one("execution.result")["data"]["outcome"], "result");
    // It belongs to the call, and the call's approval covers it.
    let is_call = |record: &Value| record["tool_id"].as_str().is_some_and(|id| id.contains("/echo@"));
    let call = home.events("execution.intent").into_iter().find(is_call).unwrap();
    assert_eq!(issued["data"]["lineage"]["parent"], call["proposal"]);
    assert_eq!(one("policy.evaluated")["data"]["decision"], "covered");
    let determined = one("approval.determined");
    assert_eq!(determined["data"]["approval_id"], call["data"]["approval_id"]);
    assert!(issued["data"]["approval_id"].is_null(), "no use of it is spent");
    home.verify();
    let report = home.json(&["audit", "verify", "--invariants"]);
    let violated = |verdict: &Value| !verdict["violations"].as_array().unwrap().is_empty();
    assert!(!report["invariants"].as_object().unwrap().values().any(violated), "{report}");
}

#[test]
fn policy_can_forbid_what_servers_ask_and_the_client_hears_nothing_of_it() {
    // GOV-408, GOV-802, T-DEC-4: in both eras
    let forbid =
        "@id(\"mine/no-questions\") forbid (principal, action, resource is Portcullis::ServerRequest);";
    let (home, spy) = asking("2025-11-25");
    apply(&home, forbid);
    let modern = Spy::speaking(&home, "modern", "2026-07-28");
    modern.register_with(&home, ASKS);
    modern.control(&json!({"server_request": "elicitation/create"}));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::able(&daemon, "2025-11-25", json!({"elicitation": {}}));
    let messages: Vec<Value> = agent.begin("tools/call", echo()).collect();
    assert_eq!(messages.len(), 1, "an answer and no question: {messages:?}");
    assert!(told(&messages[0]).contains("does not let this question pass"), "{messages:?}");
    assert!(!told(&messages[0]).contains("mine/"), "which rule it was is not for the server");
    assert_eq!(spy.calls(), 1, "the call itself is allowed");

    for revision in ["2025-11-25", "2026-07-28"] {
        let agent = Agent::able(&daemon, revision, json!({"elicitation": {}}));
        let call = json!({"name": "modern__echo", "arguments": {"text": "x"}});
        let messages: Vec<Value> = agent.begin("tools/call", call).collect();
        assert_eq!(messages.len(), 1, "{revision}: {messages:?}");
        assert_ne!(messages[0]["result"]["resultType"], "input_required", "{revision}: {messages:?}");
        let refused = messages[0].get("error").is_some() || messages[0]["result"]["isError"] == true;
        assert!(refused, "{revision}: {messages:?}");
    }
    drop(operator);
    daemon.stop();
    let decided = about_questions(&home, "policy.evaluated");
    assert_eq!(decided.len(), 3);
    for record in &decided {
        assert_eq!(record["data"]["decision"], "deny", "{record}");
        assert_eq!(record["data"]["reasons"], json!(["mine/no-questions"]), "{record}");
    }
    for event in ["permit.issued", "execution.intent", "execution.result"] {
        assert!(about_questions(&home, event).is_empty(), "{event}");
    }
    home.verify();
}

#[test]
fn a_question_that_the_approval_of_its_call_does_not_cover_waits_for_an_operator() {
    // GOV-408, GOV-803: policy wants somebody to look at each kind of question
    let narrow = "forbid (principal, action == Portcullis::Action::\"invoke\", resource is Portcullis::ServerRequest) \
                  when { context.approval.scope == \"once\" };";
    let (home, _spy) = asking("2025-11-25");
    apply(&home, narrow);
    let daemon = home.serve();
    let agent = Agent::able(&daemon, "2025-11-25", json!({"elicitation": {}}));
    let mut stream = std::thread::scope(|scope| {
        let begun = scope.spawn(|| agent.begin("tools/call", echo()));
        home.grant_next("once");
        // The call is under way now; what it asks is asked about.
        let pending = crate::support::eventually("the question to be asked about", || {
            let list = home.json(&["approve", "list", "--status", "pending"]);
            let is =
                |one: &&Value| one["tool_id"].as_str().is_some_and(|id| id.contains("/request:elicitation@"));
            list.as_array().unwrap().iter().find(is).cloned()
        });
        assert!(
            about_questions(&home, "execution.intent").is_empty(),
            "nothing is put before somebody decided"
        );
        let id = pending["approval_id"].as_str().unwrap();
        home.json(&["approve", "grant", id, "--scope", "session", "--reason", "test", "--yes"]);
        begun.join().unwrap()
    });
    let question = stream.next().unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let answer = json!({"action": "decline"});
    agent.post(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}), &[]);
    assert!(told(&stream.last().unwrap()).contains("decline"));
    daemon.stop();
    let intent = about_questions(&home, "execution.intent").remove(0);
    assert!(intent["data"]["approval_id"].is_string(), "{intent}");
    home.verify();
}

#[test]
fn a_question_taken_along_by_a_modern_client_is_permitted_before_it_leaves() {
    // GOV-408: inside `input_required`
    let (home, _spy) = asking("2026-07-28");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::able(&daemon, "2026-07-28", json!({"elicitation": {}}));
    let asked = agent.ask("tools/call", echo());
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    drop(operator);
    daemon.stop();
    let results = about_questions(&home, "execution.result");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["data"]["outcome"], "passed_on");
    assert_eq!(about_questions(&home, "permit.validated").len(), 1);
    home.verify();
}

#[test]
fn policy_knows_resources_by_their_kind_and_agents_by_their_groups() {
    // GOV-802
    let home = open_home();
    let spy = Spy::new(&home);
    spy.register(&home);
    let key = |agent: &str, group: &str| {
        let created = home.json(&["key", "create", agent, "--group", group]);
        format!("Bearer {}", created["key"].as_str().unwrap())
    };
    let (insider, outsider) = (key("insider", "ops"), key("outsider", "guests"));
    let (exit, error) = home.fails(&["key", "create", "odd", "--group", "a b"]);
    assert_eq!((exit, &error["field"]), (7, &json!("group")));
    apply(
        &home,
        "@id(\"mine/ops-only\") forbid (principal, action, resource) unless { principal in Portcullis::Group::\"ops\" };
         @id(\"mine/no-resources\") forbid (principal, action, resource is Portcullis::Resource);",
    );
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let anybody = Agent::open(&daemon, "2026-07-28");
    let call = |key: &str| anybody.with_key(key).call("spy__echo", json!({"text": "x"}));
    let allowed = call(&insider);
    assert_eq!(allowed["result"]["structuredContent"]["text"], "x", "{allowed}");
    let refused = call(&outsider);
    assert_eq!(refused["error"]["data"]["details"]["reasons"], json!(["mine/ops-only"]), "{refused}");
    let uri = json!({"uri": "portcullis://spy/spy%3A%2F%2Freadme"});
    let refused = anybody.with_key(&insider).ask("resources/read", uri);
    assert!(refused.to_string().contains("mine/no-resources"), "{refused}");
    drop(operator);
    daemon.stop();
    assert_eq!((spy.calls(), spy.frames("resources/read").len()), (1, 0));
    let listed = home.json(&["key", "list"]);
    assert_eq!(listed[0]["groups"], json!(["ops"]), "{listed}");
    home.verify();
}
