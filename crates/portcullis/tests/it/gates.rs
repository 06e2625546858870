//! Gates before tools: a document of the server's own decides, live, before anything is sent.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Home, Operator, Spy, eventually};

const GATE: &str = r#"
[[gate]]
id = "texts"
tools = ["spy/echo"]
args = ["/text"]
subject = { text = "/text" }
source = { kind = "tool", tool = "env" }
rows = ["/streams/*"]
key = ["name"]
equals = "{text}"
require = "/caps"
error = { code = "invalid_text", param = "text", message = "'{text}' is not offered" }
[[gate.self_test]]
args = { text = "s" }
response = '{"streams":[{"name":"s","caps":[]}]}'
expect = "deny"
[[gate.self_test]]
args = { text = "s" }
response = '{"streams":[{"name":"s","caps":["x"]}]}'
expect = "allow"
"#;

fn refused(answer: &Value) -> Value {
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    serde_json::from_str(answer["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[test]
fn a_live_document_of_the_server_decides_before_anything_is_sent() {
    // SURF-90, SURF-91, SURF-92, SURF-93, REC-83, T-SURF-23, T-SURF-27, T-REC-27
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let config = format!("[policy]\npreset = \"observe\"\n{GATE}");
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let tried = home.json(&["gate", "test"]);
    assert_eq!(tried[0]["complete"], true);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let offer = |caps: Value| {
        let document = json!({"streams": [{"name": "s", "caps": caps}]}).to_string();
        spy.control(&json!({"result": {"env": {"content": [{"type": "text", "text": document}]}}}));
    };
    // What was granted for the source counts; for a gate nobody is asked.
    offer(json!([]));
    agent.call("spy__env", json!({}));
    let echoes = || spy.frames("tools/call").iter().filter(|frame| frame.contains("\"echo\"")).count();
    offer(json!([]));
    let no = refused(&agent.call("spy__echo", json!({"text": "s"})));
    assert_eq!(
        (&no["error"], &no["details"]["code"], &no["details"]["verdict"]),
        (&json!("ARGS_INVALID"), &json!("invalid_text"), &json!("deny")),
        "{no}"
    );
    assert_eq!((&no["message"], &no["details"]["source"]), (&json!("'s' is not offered"), &json!("spy/env")));
    assert_eq!(echoes(), 0);
    offer(json!(["x"]));
    let yes = agent.call("spy__echo", json!({"text": "s"}));
    assert_eq!(yes["result"]["structuredContent"]["text"], "s", "{yes}");
    offer(json!([]));
    refused(&agent.call("spy__echo", json!({"text": "s"})));
    // Nothing is said about it, or nothing can be read: it goes on, and is counted.
    let unknown = agent.call("spy__echo", json!({"text": "other"}));
    assert_eq!(unknown["result"]["structuredContent"]["text"], "other", "{unknown}");
    spy.control(&json!({"result": {"env": {"content": [{"type": "text", "text": "not json"}]}}}));
    agent.call("spy__echo", json!({"text": "s"}));
    let fetched = spy.frames("tools/call").len();
    agent.call("spy__add", json!({"a": 1, "b": 2}));
    assert_eq!(spy.frames("tools/call").len(), fetched + 1);
    let verdicts: Vec<Value> =
        home.events("gate.evaluated").iter().map(|event| event["data"]["verdict"].clone()).collect();
    assert_eq!(verdicts, ["deny", "allow", "deny", "unknown_subject", "source_error"]);
    // The source is a call of its own, below the one it decides about.
    let sources =
        home.events("execution.intent").iter().filter(|event| event.to_string().contains("spy/env")).count();
    assert_eq!(sources, 6);
    home.verify();
}

#[test]
fn a_source_that_needs_an_approval_is_not_asked_and_a_gate_that_never_decides_is_told_of() {
    // SURF-90, SURF-95, T-SURF-28, T-SURF-30
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    std::fs::write(home.path().join("portcullis.toml"), format!("[policy]\npreset = \"strict\"\n{GATE}"))
        .unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    for _ in 0..20 {
        agent.call("spy__echo", json!({"text": "s"}));
    }
    let told = eventually("the alarm", || home.events("gate.never_decides").pop());
    assert_eq!(told["data"]["reason"], "not_authorised", "{told}");
    assert!(spy.frames("tools/call").iter().all(|frame| !frame.contains("\"env\"")));
}

#[test]
fn a_gate_that_means_nothing_keeps_the_gateway_from_starting() {
    // SURF-97, SURF-98
    for (from, to, word) in [
        ("spy/echo", "spy/nothing", "there is no tool spy/nothing"),
        ("tool = \"env\"", "tool = \"write_thing\"", "is declared to do more than read"),
        ("/streams/*", "/elsewhere/*", "comes out as unknown_subject"),
        ("equals = \"{text}\"", "equals = \"{other}\"", "is no part of the subject"),
        ("args = [\"/text\"]", "arguments = [\"/text\"]", "arguments"),
    ] {
        let home = Home::new("");
        Spy::new(&home).register(&home);
        std::fs::write(home.path().join("portcullis.toml"), GATE.replace(from, to)).unwrap();
        let (exit, error) = home.fails(&["mcp", "list"]);
        assert!(exit != 0 && error["message"].as_str().unwrap().contains(word), "{word}: {error}");
    }
}
