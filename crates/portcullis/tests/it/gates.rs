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
    let mut verdicts: Vec<Value> =
        home.events("gate.evaluated").iter().map(|event| event["data"]["verdict"].clone()).collect();
    // SURF-91: asked once more where the operator took long to grant the call.
    verdicts.dedup();
    assert_eq!(verdicts, ["deny", "allow", "deny", "unknown_subject", "source_error"]);
    // The source is a call of its own, below the one it decides about.
    let sources =
        home.events("execution.intent").iter().filter(|event| event.to_string().contains("spy/env")).count();
    assert!(sources >= 6, "{sources}");
    home.verify();
}

#[test]
fn a_resource_decides_and_so_does_what_was_accepted() {
    // SURF-90
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let by_resource = GATE
        .replace(r#"{ kind = "tool", tool = "env" }"#, r#"{ kind = "resource", uri = "spy://item/{text}" }"#);
    let configure = |gate: &str| {
        let config = format!("[policy]\npreset = \"observe\"\n{gate}");
        std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
        assert_eq!(home.json(&["gate", "test"])[0]["complete"], true);
    };
    configure(&by_resource);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let offer = |caps: Value| {
        let document = json!({"streams": [{"name": "s", "caps": caps}]}).to_string();
        spy.control(&json!({"texts": {"spy://item/s": document}}));
    };
    let echo = || agent.call("spy__echo", json!({"text": "s"}));
    // What was granted for the source counts; for a gate nobody is asked.
    agent.result("resources/read", json!({"uri": "portcullis://spy/spy%3A%2F%2Fitem%2Fs"}));
    offer(json!([]));
    let no = refused(&echo());
    assert_eq!(no["details"]["code"], "invalid_text", "{no}");
    assert_eq!(spy.frames("resources/read").len(), 2);
    assert_eq!(spy.calls(), 0);
    offer(json!(["x"]));
    assert_eq!(echo()["result"]["structuredContent"]["text"], "s");
    // The read is a call of its own, below the one it decides about.
    let reads = home.events("execution.intent");
    assert!(reads.iter().any(|event| event.to_string().contains("spy/resource:item")), "{reads:?}");
    drop(operator);
    daemon.stop();
    // The accepted definition is a document too, and nobody is asked for it.
    let by_definition = GATE
        .replace(r#"{ kind = "tool", tool = "env" }"#, r#"{ kind = "catalog" }"#)
        .replace(r#"rows = ["/streams/*"]"#, r#"rows = ["", "/streams/*"]"#);
    configure(&by_definition);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let before = spy.frames("resources/read").len() + spy.calls();
    let no = refused(&agent.call("spy__echo", json!({"text": "echo"})));
    assert_eq!(no["details"]["verdict"], "deny", "{no}");
    assert_eq!(spy.frames("resources/read").len() + spy.calls(), before);
    assert_eq!(agent.call("spy__echo", json!({"text": "s"}))["result"]["structuredContent"]["text"], "s");
    drop(operator);
    daemon.stop();
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

#[test]
fn a_source_that_fails_stops_nothing_unless_the_operator_says_so() {
    // SURF-92, SURF-93, T-SURF-26
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let slow = GATE.replace("id = \"texts\"", "id = \"slow\"").replace("spy/echo", "spy/fail");
    let slow =
        slow.replace("/text", "/message").replace("{ text = ", "{ message = ").replace("{text}", "{message}");
    let slow = slow.replace("args = { text = \"s\" }", "args = { message = \"s\" }");
    let slow = slow
        .replace("tool = \"env\"", "tool = \"slow\", args = { ms = 20000 }")
        .replace("rows =", "timeout_ms = 300\nrows =");
    let strict = GATE.replace("id = \"texts\"", "id = \"strict\"").replace("spy/echo", "spy/big");
    let strict =
        strict.replace("/text", "/bytes").replace("{ text = ", "{ bytes = ").replace("{text}", "{bytes}");
    let strict = strict.replace("rows =", "on_source_error = \"deny\"\nrows =");
    let strict = strict.split("[[gate.self_test]]").next().unwrap().to_owned();
    let config = format!(
        "[policy]\npreset = \"observe\"\n{}\n{slow}\n{strict}",
        GATE.replace("rows =", "max_body_bytes = 4096\nrows =")
    );
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    // What the gates ask was granted once, and what they let through: after a long wait for that they would ask again.
    agent.call("spy__echo", json!({"text": ""}));
    agent.call("spy__fail", json!({"message": ""}));
    agent.call("spy__env", json!({}));
    agent.call("spy__slow", json!({"ms": 0}));
    let answers = |result: Value| spy.control(&json!({"result": {"env": result}}));
    let said = |text: String| json!({"content": [{"type": "text", "text": text}]});
    let mut reasons = Vec::new();
    for (answer, reason) in [
        (said("<html>".into()), "bad_json"),
        (said("{\"streams\":".into()), "bad_json"),
        (said(format!("{{\"x\":\"{}\"}}", "y".repeat(8_192))), "too_large"),
        (json!({"content": [], "isError": true}), "refused"),
    ] {
        answers(answer);
        let through = agent.call("spy__echo", json!({"text": "s"}));
        assert_eq!(through["result"]["structuredContent"]["text"], "s", "{reason}: {through}");
        reasons.push(reason);
        // The strict gate takes larger documents.
        if reason != "too_large" {
            let no = refused(&agent.call("spy__big", json!({"bytes": 7})));
            assert_eq!(no["details"]["verdict"], "source_error", "{no}");
            reasons.push(reason);
        }
    }
    let through = agent.call("spy__fail", json!({"message": "s"}));
    assert_eq!(through["result"]["isError"], true, "{through}");
    reasons.push("timeout");
    let told: Vec<Value> = home.events("gate.evaluated").iter().map(|event| event["data"].clone()).collect();
    let found: Vec<&str> = told.iter().map(|data| data["reason"].as_str().unwrap()).collect();
    assert_eq!(found, reasons);
    assert!(told.iter().all(|data| data["verdict"] == "source_error"), "{told:?}");
    home.verify();
}

#[test]
fn a_gate_that_never_decides_is_a_problem_to_the_doctor_until_it_does() {
    // SURF-95, T-SURF-28
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    std::fs::write(home.path().join("portcullis.toml"), format!("[policy]\npreset = \"observe\"\n{GATE}"))
        .unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let offer = |name: &str| {
        let document = json!({"streams": [{"name": name, "caps": ["x"]}]}).to_string();
        spy.control(&json!({"result": {"env": {"content": [{"type": "text", "text": document}]}}}));
    };
    offer("somebody else");
    agent.call("spy__env", json!({}));
    for _ in 0..20 {
        agent.call("spy__echo", json!({"text": "s"}));
    }
    let told = eventually("the alarm", || home.events("gate.never_decides").pop());
    assert_eq!(
        (&told["data"]["unknown_subject"], &told["data"]["source_error"]),
        (&json!(20), &json!(0)),
        "{told}"
    );
    let looked = || {
        let output = home.command().args(["--output", "json", "doctor"]).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let alarm = |report: &Value| {
        report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["about"] == "texts" && one["status"] == "problem")
    };
    let report = looked();
    assert!(alarm(&report), "{report}");
    // What its source answers can be looked at as every agent.
    let tried =
        home.command().args(["--output", "json", "gate", "test", "texts", "--live"]).output().unwrap();
    let tried: Value = serde_json::from_slice(&tried.stdout).unwrap();
    assert_eq!((&tried[0]["rows"], &tried[0]["supporting"]), (&json!(1), &json!(1)), "{tried}");
    offer("s");
    agent.call("spy__echo", json!({"text": "s"}));
    let report = looked();
    assert!(!alarm(&report), "{report}");
}

#[test]
fn a_dry_run_asks_no_gate() {
    // SURF-91
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    std::fs::write(home.path().join("portcullis.toml"), format!("[policy]\npreset = \"observe\"\n{GATE}"))
        .unwrap();
    let daemon = home.serve();
    let headers = |name: &'static str| {
        [
            ("Content-Type", "application/json"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", name),
        ]
    };
    let call = |name: &'static str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments, "_meta": crate::support::modern_meta()});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let answer =
            daemon.http("POST", "/mcp?mode=gateway", &headers(name), &body.to_string()).unwrap().json();
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    let found = call("tool_browse", json!({"query": "answer with the same text"}));
    let id = found.split('(').next().unwrap();
    let text = call("tool_execute", json!({"tool_id": id, "args": {"text": "s"}, "dry_run": true}));
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
    let checks = report["checks"].as_array().unwrap_or_else(|| panic!("{report}"));
    assert!(checks.contains(&json!({"name": "gate", "status": "not_run"})), "{report}");
    assert_eq!(spy.calls(), 0);
}

#[test]
fn every_agent_asks_the_source_for_itself_and_subjects_stay_one_value() {
    // SURF-90, SURF-91, SURF-94, T-SURF-29, T-SURF-30
    let home = Home::new("");
    let spy = Spy::new(&home);
    spy.register(&home);
    let second = r#"
[[gate]]
id = "messages"
tools = ["spy/fail"]
args = ["/message"]
subject = { said = "/message" }
source = { kind = "tool", tool = "echo", args = { text = "{said}" } }
rows = ["/rows/*"]
key = ["name"]
equals = "{said}"
require = "/caps"
error = { code = "invalid", param = "message", message = "no" }
"#;
    let config = format!("[policy]\npreset = \"observe\"\n{GATE}\n{second}");
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let key = |name: &str, more: &[&str]| {
        let made = home.json(&[&["key", "create", name], more].concat());
        format!("Bearer {}", made["key"].as_str().unwrap())
    };
    let (one, two) = (key("one", &[]), key("two", &[]));
    let blind = key("blind", &["--grant", "mcp.call:spy/echo"]);
    let barred = key("barred", &["--grant", "mcp.call:spy/env"]);
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let call = |bearer: &str, tool: &str, arguments: Value| {
        let params = json!({"name": tool, "arguments": arguments, "_meta": crate::support::modern_meta()});
        let headers = [
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
            ("Authorization", bearer),
        ];
        daemon
            .post(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
            .unwrap()
            .json()
    };
    let document = json!({"streams": [{"name": "s", "caps": ["x"]}]}).to_string();
    spy.control(&json!({"result": {"env": {"content": [{"type": "text", "text": document}]}}}));
    for bearer in [&one, &two] {
        // What asks nothing is granted first: after a long wait for that, the gate would be asked once more.
        call(bearer, "spy__echo", json!({"text": ""}));
        call(bearer, "spy__env", json!({}));
        let yes = call(bearer, "spy__echo", json!({"text": "s"}));
        assert_eq!(yes["result"]["structuredContent"]["text"], "s", "{yes}");
    }
    let intents = home.events("execution.intent");
    let asked = |agent: &str| {
        let own = |event: &&Value| event["actor"]["id"] == agent && event.to_string().contains("spy/env");
        intents.iter().filter(own).count()
    };
    assert_eq!((asked("one"), asked("two")), (2, 2));
    // Who may not ask is let through, on record; who may not call at all has nothing fetched.
    let through = call(&blind, "spy__echo", json!({"text": "s"}));
    assert_eq!(through["result"]["structuredContent"]["text"], "s", "{through}");
    let told = home.events("gate.evaluated").pop().unwrap();
    assert_eq!(
        (&told["data"]["verdict"], &told["data"]["reason"]),
        (&json!("source_error"), &json!("not_authorised"))
    );
    let before = (spy.calls(), home.events("gate.evaluated").len());
    let no = call(&barred, "spy__echo", json!({"text": "s"}));
    assert!(no["error"].is_object(), "{no}");
    assert_eq!((spy.calls(), home.events("gate.evaluated").len()), before);
    // Whatever a subject looks like, it reaches the source as one value.
    for subject in ["a&connection_id=b", "x']..[?(@", "../schema", "{said}", "{\"text\":1}"] {
        call(&one, "spy__fail", json!({"message": subject}));
        let frames = spy.frames("tools/call");
        let source = frames.iter().rev().find(|frame| frame.contains("\"echo\"")).unwrap();
        let frame: Value = serde_json::from_str(source).unwrap();
        assert_eq!(frame["params"]["arguments"], json!({"text": subject}));
    }
    home.verify();
}
