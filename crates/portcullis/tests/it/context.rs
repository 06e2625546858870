//! Long results through a running gateway: said in short, kept for their owner, looked at in parts; secrets out.

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Home, Operator, Spy};

/// A gateway that shapes results where tools are called directly, with a spy behind it.
fn shaping_home(more: &str) -> (Home, Spy) {
    let home = Home::new(&format!("[policy]\npreset = \"observe\"\n[firewall]\npassthrough = true\n{more}"));
    let spy = Spy::new(&home);
    spy.register(&home);
    (home, spy)
}

fn answer(agent: &Agent, spy: &Spy, result: &Value) -> Value {
    spy.control(&json!({"result": {"pid": result}}));
    agent.call("spy__pid", json!({}))
}

/// The envelope in a result.
fn envelope(response: &Value) -> Value {
    let content = response["result"]["content"].as_array().unwrap_or_else(|| panic!("{response}"));
    serde_json::from_str(content.last().unwrap()["text"].as_str().unwrap()).unwrap()
}

fn view(agent: &Agent, handle: &Value, selector: Value) -> Value {
    agent.call("tool_view", json!({"handle": handle, "selector": selector}))
}

fn refusal(response: &Value) -> Value {
    assert_eq!(response["result"]["isError"], true, "{response}");
    serde_json::from_str(response["result"]["content"][0]["text"].as_str().unwrap()).unwrap()
}

fn lines(count: usize) -> String {
    (0..count).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn a_long_result_is_said_in_short_and_its_lines_can_be_read() {
    // CTX-1, CTX-2, CTX-7, CTX-30, T-CTX-14, T-CTX-15
    let (home, spy) = shaping_home("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    for revision in ["2025-06-18", "2026-07-28"] {
        let agent = Agent::open(&daemon, revision);
        let short = json!({"content": [{"type": "text", "text": "short"}], "x-kept": [1.50]});
        let shown = answer(&agent, &spy, &short)["result"].clone();
        assert_eq!((&shown["content"], &shown["x-kept"]), (&short["content"], &short["x-kept"]));

        let long = answer(&agent, &spy, &json!({"content": [{"type": "text", "text": lines(5_000)}]}));
        let said = envelope(&long);
        assert!(said["summary"].as_str().unwrap().starts_with("line 0\nline 1\n"), "{said}");
        assert!(long["result"]["_meta"]["io.portcullis/call"]["proposal_id"].is_string());
        let handle = &said["artifacts"][0]["handle"];
        let viewed = view(&agent, handle, json!({"type": "lines", "start": 900, "end": 902}));
        assert_eq!(viewed["result"]["content"][0]["text"], "line 900\nline 901\n", "{viewed}");
        let more = viewed["result"]["content"][1]["text"].as_str().unwrap();
        assert_eq!(more, r#"more: {"type":"lines","start":902,"end":904} of 5000 lines"#);
        let wrong = refusal(&view(&agent, handle, json!({"type": "lines", "start": "x"})));
        assert_eq!((&wrong["error"], &wrong["details"]["field"]), (&json!("VIEW_FAILED"), &json!("start")));
        let tools = agent.result("tools/list", json!({}));
        assert_eq!(tools["tools"].as_array().unwrap().last().unwrap()["name"], "tool_view");
    }
    // What an operator sees of it.
    let kept = home.json(&["artifact", "list"]);
    assert_eq!(kept.as_array().unwrap().len(), 2, "{kept}");
    // CTX-21: by an id of its own; nothing lists handles.
    assert!(!kept.to_string().contains("\"art_"), "{kept}");
    let id = kept[0]["id"].as_str().unwrap();
    let seen = home.json(&["artifact", "view", id, "--select", r#"{"type":"tail","chars":10}"#]);
    assert_eq!(seen["slice"], "line 4999\n");
    assert!(!seen.to_string().contains("\"art_"), "{seen}");
    daemon.stop();
    let viewed = home.events("artifact.viewed");
    assert_eq!(viewed.len(), 3);
    assert_eq!((&viewed[0]["data"]["selector"], &viewed[0]["data"]["bytes"]), (&json!("lines"), &json!(18)));
    assert_eq!(viewed[2]["actor"]["kind"], "operator");
    home.verify();
}

#[test]
fn a_handle_is_worth_nothing_in_other_hands() {
    // CTX-21, T-CTX-5
    let (home, spy) = shaping_home("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let ann = Agent::open(&daemon, "2025-11-25");
    let long = answer(&ann, &spy, &json!({"content": [{"type": "text", "text": lines(1_000)}]}));
    let handle = envelope(&long)["artifacts"][0]["handle"].clone();
    let head = json!({"type": "head", "chars": 6});
    assert_eq!(view(&ann, &handle, head.clone())["result"]["content"][0]["text"], "line 0");
    // Another session of the same principal, a client of another era, and nobody's handle: all the same answer.
    let unknown = refusal(&view(&ann, &json!("art_00000000000000000000000000"), head.clone()));
    assert_eq!(unknown["error"], "VIEW_FAILED");
    for other in [Agent::open(&daemon, "2025-11-25"), Agent::open(&daemon, "2026-07-28")] {
        assert_eq!(refusal(&view(&other, &handle, head.clone())), unknown);
        assert_eq!(refusal(&view(&other, &json!("no handle"), head.clone())), unknown);
    }
    daemon.stop();
}

#[test]
fn policy_decides_about_views_as_about_the_call() {
    // CTX-22, T-CTX-6
    let (home, spy) = shaping_home("");
    let folder = home.beside("policies");
    std::fs::create_dir_all(&folder).unwrap();
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let rows: Vec<Value> = (0..500).map(|n| json!({"id": n})).collect();
    let long = answer(
        &agent,
        &spy,
        &json!({"content": [{"type": "text", "text": lines(1_000)}], "structuredContent": {"rows": rows}}),
    );
    let artifacts = envelope(&long)["artifacts"].as_array().unwrap().clone();
    assert_eq!(artifacts.len(), 2);
    let rows = view(
        &agent,
        &artifacts[1]["handle"],
        json!({"type": "rows", "pointer": "/rows", "pattern": "where id >= 498"}),
    );
    assert_eq!(rows["result"]["content"][0]["text"], "{\"id\":498}\n{\"id\":499}\n", "{rows}");
    let policy = "@id(\"no-views\") forbid (principal, action, resource) when { context.call.hasTag(\"portcullis:view\") };";
    std::fs::write(folder.join("views.cedar"), policy).unwrap();
    let applied = home.run(&["policy", "apply", folder.to_str().unwrap(), "--reason", "no views"]);
    assert!(applied.status.success(), "{applied:?}");
    for artifact in &artifacts {
        let denied = refusal(&view(&agent, &artifact["handle"], json!({"type": "head"})));
        assert_eq!(denied["error"], "POLICY_DENIED", "{denied}");
        assert_eq!(denied["details"]["reasons"], json!(["no-views"]));
    }
    daemon.stop();
    let denied =
        home.events("artifact.viewed").into_iter().filter(|event| event["data"]["outcome"] == "denied");
    assert_eq!(denied.count(), 2);
}

#[test]
fn what_a_halted_server_left_is_not_shown() {
    // CTX-22
    let (home, spy) = shaping_home("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let long = answer(&agent, &spy, &json!({"content": [{"type": "text", "text": lines(1_000)}]}));
    let handle = envelope(&long)["artifacts"][0]["handle"].clone();
    assert!(home.run(&["mcp", "halt", "spy", "--reason", "odd"]).status.success());
    assert_eq!(refusal(&view(&agent, &handle, json!({"type": "head"})))["error"], "POLICY_DENIED");
    daemon.stop();
}

#[test]
fn secrets_are_taken_out_of_results_errors_and_artifacts() {
    // CTX-42, T-CTX-3
    let (home, spy) = shaping_home("");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let key = "AKIAIOSFODNN7EXAMPLE";
    let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl";
    let halves = "AKIA__system__IOSFODNN7EXAMPLE";
    let result = json!({
        "content": [
            {"type": "text", "text": format!("{key} and {halves} and {jwt}")},
            {"type": "resource_link", "uri": "https://u:p@h/x", "name": key},
        ],
        "structuredContent": {key: 1, "db_password": "hunter2!x9"},
    });
    let shown = answer(&agent, &spy, &result);
    let said = shown["result"].to_string();
    for secret in [key, jwt, "u:p", "hunter2"] {
        assert!(!said.contains(secret), "{secret}: {said}");
    }
    assert_eq!(shown["result"]["_meta"]["io.portcullis/call"]["gauntlet"]["redactions"], 7, "{said}");
    let long = format!("{}\n{}{key}\n", lines(600), " ".repeat(40));
    let enveloped = answer(&agent, &spy, &json!({"content": [{"type": "text", "text": long}]}));
    let said = envelope(&enveloped);
    assert_eq!(said["provenance"]["redactions"], 1, "{said}");
    let tail = view(&agent, &said["artifacts"][0]["handle"], json!({"type": "tail", "chars": 30}));
    assert!(
        tail["result"]["content"][0]["text"].as_str().unwrap().contains("[REDACTED:aws_access_key]"),
        "{tail}"
    );
    daemon.stop();
    // The evidence is what was received; everything else on disk is not.
    for folder in ["artifacts/blobs", "artifacts/records"] {
        for entry in std::fs::read_dir(home.path().join(folder)).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()));
        }
    }
}

#[test]
fn redaction_is_turned_off_only_with_a_waiver_that_goes_on_record() {
    // CTX-42
    let without = Home::new("[redaction]\nenabled = false\n");
    let (_, error) = without.fails(&["mcp", "list"]);
    assert!(error.to_string().contains("redaction.waiver"), "{error}");
    let (home, spy) = shaping_home("[redaction]\nenabled = false\nwaiver = \"a test of keys\"\n");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    let shown = answer(&agent, &spy, &json!({"content": [{"type": "text", "text": "AKIAIOSFODNN7EXAMPLE"}]}));
    assert_eq!(shown["result"]["content"][0]["text"], "AKIAIOSFODNN7EXAMPLE");
    daemon.stop();
    let started = home.events("system.started");
    assert!(started.iter().any(|event| event["data"]["redaction_waived"] == "a test of keys"), "{started:?}");
}

#[test]
fn artifacts_expire_and_end_with_their_session() {
    // CTX-24, T-CTX-27: by the configured time, told to their owner alone
    let (home, spy) = shaping_home("[artifacts]\nttl_seconds = 1\nsession_bytes = 30000\n");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let (ann, bob) = (Agent::open(&daemon, "2025-11-25"), Agent::open(&daemon, "2025-11-25"));
    let result = |n: usize| json!({"content": [{"type": "text", "text": format!("{n}\n{}", lines(1_000))}]});
    let handle =
        |agent: &Agent, n| envelope(&answer(agent, &spy, &result(n)))["artifacts"][0]["handle"].clone();
    let (hers, his) = (handle(&ann, 0), handle(&bob, 1));
    let head = json!({"type": "head", "chars": 1});
    let expired = crate::support::eventually("the artifact has expired", || {
        // Looking at it would renew it, so nobody does until its time is over.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        let seen = view(&ann, &hers, head.clone());
        (seen["result"]["isError"] == true).then(|| refusal(&seen))
    });
    assert_eq!(expired["details"]["reason"], "expired", "{expired}");
    assert!(refusal(&view(&bob, &hers, head.clone()))["details"].get("reason").is_none());
    assert_eq!(refusal(&view(&bob, &his, head.clone()))["details"]["reason"], "expired");
    // A result that finds no room is shown from its beginning, and said to be partial.
    let too_much =
        envelope(&answer(&ann, &spy, &json!({"content": [{"type": "text", "text": lines(4_000)}]})));
    assert_eq!(
        (&too_much["status"], &too_much["provenance"]["invalid_parts"]),
        (&json!("partial"), &json!([0]))
    );
    assert_eq!(too_much["summary"].as_str().unwrap().len(), 2_000);
    daemon.stop();
}

#[test]
fn a_prompt_is_built_from_a_session_file() {
    // CTX-61, T-CTX-20
    let home = Home::new("");
    let file = home.beside("s.jsonl");
    let session = "{\"id\":\"u1\",\"type\":\"user_turn\",\"text\":\"Search for open invoices\"}\n\
        {\"id\":\"tc1\",\"type\":\"tool_call\",\"text\":\"invoices.search(status='open')\",\"parent_id\":\"u1\"}\n\
        {\"id\":\"tr1\",\"type\":\"tool_result\",\"content\":\"3 open\",\"parent_id\":\"tc1\"}\n";
    std::fs::write(&file, session).unwrap();
    let path = file.to_str().unwrap();
    let args = ["context", "build", "--session", path, "--phase", "answer", "--query", "invoice status"];
    let built = home.json(&args);
    assert_eq!(built["included"], json!(["u1", "tc1", "tr1"]), "{built}");
    let shown = home.run(&[&args[..], &["--explain"]].concat());
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("3 of 3 items"), "{shown}");
    let (code, error) = home.fails(&[&args[..], &["--budget", "3"]].concat());
    assert_eq!(code, 7);
    assert!(error.to_string().contains("BUDGET_TOO_SMALL"), "{error}");
    std::fs::write(&file, format!("{session}{{\"id\":\"x\",\"type\":\"shout\",\"text\":\"\"}}\n")).unwrap();
    let (code, error) = home.fails(&args);
    assert_eq!(code, 7);
    assert!(error.to_string().contains("line 4: type"), "{error}");
    assert_eq!(home.json(&[&args[..], &["--lenient"]].concat())["included"], built["included"]);
}

#[test]
fn limits_refuse_before_anything_is_sent() {
    // CTX-93
    let (home, spy) =
        shaping_home("[calls.limits]\ncalls_per_session = 3\n[calls.limits.tools]\n\"spy/echo\" = 1\n");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    assert_ne!(agent.call("spy__echo", json!({"text": "x"}))["result"]["isError"], true);
    let refused = refusal(&agent.call("spy__echo", json!({"text": "x"})));
    assert_eq!((&refused["error"], &refused["details"]["scope"]), (&json!("RATE_LIMITED"), &json!("tool")));
    assert_eq!(refused["retryable"], true);
    assert!(refused["details"]["retry_after_ms"].as_u64().unwrap() <= 60_000);
    for _ in 0..2 {
        agent.call("spy__pid", json!({}));
    }
    let over = refusal(&agent.call("spy__pid", json!({})));
    assert_eq!((&over["details"]["scope"], &over["retryable"]), (&json!("calls_per_session"), &json!(false)));
    // Another session has a count of its own.
    assert!(Agent::open(&daemon, "2025-11-25").call("spy__pid", json!({}))["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 4);
    let told = home.events("proposal.refused");
    assert_eq!(told.len(), 2);
    assert_eq!(told[0]["data"]["error"], "RATE_LIMITED");
    home.verify();
}

#[test]
fn a_call_is_made_again_only_where_nothing_was_sent() {
    // CTX-91, T-CTX-4, T-CTX-19
    let (home, spy) = shaping_home("[calls.retry]\nmax_attempts = 3\n");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    assert!(agent.call("spy__pid", json!({}))["result"].is_object());
    // It dies after it got the call: nobody knows what happened, so nobody tries again.
    spy.control(&json!({"die_on_call": true}));
    let died = agent.call("spy__pid", json!({}));
    assert_eq!(died["error"]["data"]["error"], "UPSTREAM_UNAVAILABLE", "{died}");
    assert_eq!(died["error"]["data"]["details"]["executed"], "unknown");
    assert_eq!(spy.calls(), 2);
    let before = home.events("proposal.received").len();
    // It does not even start: nothing was sent, so it is tried three times, each on record.
    spy.control(&json!({"on": "*", "die_on_call": true}));
    let gone = agent.call("spy__pid", json!({}));
    assert_eq!(gone["error"]["data"]["error"], "UPSTREAM_UNAVAILABLE", "{gone}");
    daemon.stop();
    assert_eq!(home.events("proposal.received").len() - before, 3);
    assert_eq!(spy.calls(), 2);
    home.verify();
}
