//! Sessions that are stopped until somebody has looked, and sessions that are over (GOV §12).

use std::fs;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Spy, eventually, guarded_spy};

const OPEN: &str = "[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n";

fn details(response: &Value) -> &Value {
    &response["error"]["data"]["details"]
}

fn is_stopped(response: &Value, trigger: &str) {
    let found = details(response);
    assert_eq!((&found["code"], &found["check"]), (&json!("MP-FH-006"), &json!("checkpoint")), "{response}");
    assert_eq!(found["trigger"], trigger, "{response}");
}

fn approval(response: &Value) -> String {
    assert_eq!(response["error"]["data"]["error"], "AUTH_REQUIRED", "{response}");
    details(response)["approval_id"].as_str().unwrap().to_owned()
}

fn grant(home: &Home, id: &str, scope: &str) {
    home.json(&["approve", "grant", id, "--scope", scope, "--reason", "known", "--yes"]);
}

fn grant_widely(home: &Home, daemon: &Daemon, tool: &str, arguments: &Value) {
    grant(home, &approval(&daemon.call(tool, arguments).unwrap()), "until-version-change");
}

fn only_session(home: &Home) -> Value {
    let sessions = home.json(&["session", "list"]);
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    sessions[0].clone()
}

/// The observing preset with these triggers.
fn home_with(checkpoints: &str) -> (Home, Spy) {
    let home = Home::new("");
    let dir = home.beside("policies");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("settings.toml"), format!("[checkpoints]\n{checkpoints}\n")).unwrap();
    let config = format!("{OPEN}dir = {:?}\n", dir.to_str().unwrap());
    fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let spy = Spy::new(&home);
    spy.register(&home);
    (home, spy)
}

#[test]
fn an_operator_stops_a_session_and_lets_it_go_on() {
    // GOV-1203
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    grant_widely(&home, &daemon, "spy__echo", &echo);
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    let session = only_session(&home);
    assert_eq!((&session["state"], &session["client"]), (&json!("active"), &json!("test")), "{session}");
    let id = session["session_id"].as_str().unwrap();
    assert_eq!(home.fails(&["checkpoint", "resolve", id, "--reason", "nothing there"]).0, 1);
    assert_eq!(home.fails(&["checkpoint", "open", id, "--reason", " "]).0, 7);

    home.json(&["checkpoint", "open", id, "--reason", "it talks a lot"]);
    is_stopped(&daemon.call("spy__echo", &echo).unwrap(), "operator");
    assert_eq!(only_session(&home)["state"], "suspended");
    let listed = home.json(&["checkpoint", "list"]);
    assert_eq!((&listed[0]["session_id"], &listed[0]["reason"]), (&json!(id), &json!("it talks a lot")));
    assert_eq!(home.fails(&["checkpoint", "open", id, "--reason", "again"]).0, 1);
    let findings = home.json(&["doctor"])["findings"].to_string();
    assert!(findings.contains("one session is stopped at a checkpoint"), "{findings}");
    // The tools of administrators tell the same.
    let admin = home.json(&["admin", "call", "checkpoints_list", "--json", "{}"]);
    assert_eq!(admin["data"][0]["session_id"], id, "{admin}");
    assert!(admin["data"][0]["epoch"].as_u64() > session["checkpoint_epoch"].as_u64(), "{admin}");
    let stopped = home.json(&["admin", "call", "sessions_list", "--json", r#"{"state":"suspended"}"#]);
    assert_eq!((&stopped["pagination"]["total"], &stopped["data"][0]["session_id"]), (&json!(1), &json!(id)));
    assert_eq!(spy.calls(), 1);

    let epoch = &session["checkpoint_epoch"];
    let resolved = home.json(&["checkpoint", "resolve", id, "--reason", "looked at"]);
    assert_eq!(resolved["checkpoint_epoch"].as_u64(), epoch.as_u64().map(|epoch| epoch + 2), "{resolved}");
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    assert_eq!(home.json(&["checkpoint", "list"]), json!([]));
    assert_eq!((home.events("checkpoint.opened").len(), home.events("checkpoint.resolved").len()), (1, 1));

    // Another policy is a checkpoint that resolves itself.
    let dir = home.beside("other");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("settings.toml"), "[tier]\nmax = 0\n").unwrap();
    let dir = dir.to_str().unwrap();
    home.json(&["policy", "apply", dir, "--preset", "observe", "--reason", "less trust"]);
    let opened = home.events("checkpoint.opened");
    assert_eq!(opened[1]["data"]["checkpoint"]["trigger"], "policy_activation", "{opened:?}");
    assert_eq!(home.events("checkpoint.resolved")[1]["data"]["how"], "automatic");
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 3);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

#[test]
fn a_call_that_goes_further_stops_its_session_until_it_is_approved() {
    // GOV-1203, GOV-806
    let (home, spy) = home_with("triggers = [\"class_escalation\"]");
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    let write = json!({"path": spy.workspace.join("a").to_str().unwrap(), "text": "x"});
    grant_widely(&home, &daemon, "spy__echo", &echo);
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    let asked = approval(&daemon.call("spy__write_thing", &write).unwrap());
    is_stopped(&daemon.call("spy__echo", &echo).unwrap(), "class_escalation");
    let other = json!({"path": spy.workspace.join("b").to_str().unwrap(), "text": "x"});
    is_stopped(&daemon.call("spy__write_thing", &other).unwrap(), "class_escalation");
    assert_eq!(approval(&daemon.call("spy__write_thing", &write).unwrap()), asked, "the same call waits");
    assert_eq!(home.json(&["checkpoint", "list"])[0]["approval_id"], asked.as_str());

    grant(&home, &asked, "until-version-change");
    assert!(daemon.call("spy__write_thing", &write).unwrap()["result"].is_object());
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    assert!(daemon.call("spy__write_thing", &other).unwrap()["result"].is_object(), "no longer new");
    let resolved = home.events("checkpoint.resolved");
    assert_eq!((resolved.len(), &resolved[0]["data"]["how"]), (1, &json!("approval")));

    // In another session it is new again, and what was granted widely does not pass by itself.
    home.json(&["session", "end", only_session(&home)["session_id"].as_str().unwrap(), "--reason", "done"]);
    let asked = approval(&daemon.call("spy__write_thing", &write).unwrap());
    home.json(&["approve", "deny", &asked, "--reason", "not now"]);
    is_stopped(&daemon.call("spy__echo", &echo).unwrap(), "class_escalation");
    daemon.stop();
    assert_eq!(spy.calls(), 4);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

#[test]
fn a_session_has_a_budget_of_calls_if_policy_says_so() {
    // GOV-1203
    let (home, spy) = home_with("triggers = [\"call_budget\"]\ncall_budget = 2");
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    grant_widely(&home, &daemon, "spy__echo", &echo);
    for _ in 0..2 {
        assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    }
    let asked = daemon.call("spy__echo", &echo).unwrap();
    grant(&home, &approval(&asked), "once");
    for _ in 0..2 {
        assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    }
    approval(&daemon.call("spy__echo", &echo).unwrap());
    daemon.stop();
    assert_eq!(spy.calls(), 4);
}

#[test]
fn a_tool_that_breaks_its_word_stops_the_sessions_that_used_it() {
    // GOV-1203, GOV-1105
    let (home, spy) = guarded_spy(OPEN);
    let other = Spy::speaking(&home, "other", "2025-11-25");
    other.register(&home);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    grant_widely(&home, &daemon, "spy__echo", &echo);
    grant_widely(&home, &daemon, "other__echo", &echo);
    assert!(daemon.call("other__echo", &echo).unwrap()["result"].is_object());
    spy.control(&json!({"bad_output": true}));
    assert_eq!(details(&daemon.call("spy__echo", &echo).unwrap())["code"], "MP-FH-003");
    eventually("the checkpoint", || (home.json(&["checkpoint", "list"]) != json!([])).then_some(()));
    is_stopped(&daemon.call("other__echo", &echo).unwrap(), "demotion");
    assert_eq!(details(&daemon.call("spy__echo", &echo).unwrap())["code"], "MP-FH-002", "it is halted");
    // An operator who decides about the server has looked.
    spy.control(&json!({}));
    home.json(&["mcp", "resume", "spy", "--reason", "it was a joke"]);
    assert!(daemon.call("other__echo", &echo).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!((spy.calls(), other.calls()), (1, 2));
    assert_eq!(home.events("checkpoint.resolved")[0]["data"]["how"], "resume");
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

#[test]
fn what_was_approved_for_a_session_ends_with_it() {
    // GOV-906, GOV-1202
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    grant(&home, &approval(&daemon.call("spy__echo", &echo).unwrap()), "session");
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    let id = only_session(&home)["session_id"].as_str().unwrap().to_owned();
    let ended = home.json(&["session", "end", &id, "--reason", "enough"]);
    assert_eq!((&ended["state"], &ended["approvals_invalidated"]), (&json!("ended"), &json!(1)), "{ended}");
    assert_eq!(home.fails(&["session", "end", &id, "--reason", "again"]).0, 8);
    approval(&daemon.call("spy__echo", &echo).unwrap());
    assert_ne!(only_session(&home)["session_id"], id.as_str(), "the client has another one");

    // A legacy client is told that its session is gone, and opens another.
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}});
    let reply = daemon.post(&[], &hello).unwrap();
    let wire = reply.header("mcp-session-id").unwrap().to_owned();
    let sessions = home.json(&["session", "list"]);
    let old = sessions.as_array().unwrap().iter().find(|session| session["client"] == "old").unwrap().clone();
    home.json(&["session", "end", old["session_id"].as_str().unwrap(), "--reason", "enough"]);
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"});
    let headers = [("Mcp-Session-Id", wire.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
    assert_eq!(daemon.post(&headers, &list).unwrap().status, 404);
    daemon.stop();
    // What is left of a session after a restart is nothing: a grant for its life is recorded as ended.
    let daemon = home.serve();
    grant(&home, &approval(&daemon.call("spy__echo", &echo).unwrap()), "session");
    daemon.stop();
    let daemon = home.serve();
    eventually("the grant to end", || (home.json(&["grants", "list"]) == json!([])).then_some(()));
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

#[test]
fn a_call_under_way_is_cut_by_an_operator() {
    // GOV-1004: a permit that is taken back in flight.
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    grant_widely(&home, &daemon, "spy__echo", &json!({"text": "x"}));
    spy.control(&json!({"late_ms": 25_000}));
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "x"})).unwrap());
        let permit = eventually("the call to be under way", || {
            let permits = home.json(&["permit", "list", "--state", "consumed"]);
            permits[0]["permit_id"].as_str().map(ToOwned::to_owned)
        });
        let revoked = home.json(&["permit", "revoke", &permit, "--kill", "--reason", "enough"]);
        assert_eq!((&revoked["revoked"], &revoked["in_flight"]), (&json!(1), &json!(1)), "{revoked}");
        let (exit, _) = home.fails(&["permit", "revoke", "01JD4Z8Q4T3M5R7N9P1S2V6W8X", "--reason", "none"]);
        assert_eq!(exit, 8);
        call.join().unwrap()
    });
    assert_eq!(answer["error"]["data"]["error"], "CANCELLED", "{answer}");
    assert_eq!(home.events("permit.revoked").len(), 1);
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

/// A client that initializes, under this name; its session's id on the wire.
fn legacy(daemon: &Daemon, client: &str) -> String {
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": client, "version": "1"}}});
    daemon.post(&[], &hello).unwrap().header("mcp-session-id").unwrap().to_owned()
}

fn legacy_call(daemon: &Daemon, wire: &str, tool: &str, arguments: &Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    let headers = [("Mcp-Session-Id", wire), ("MCP-Protocol-Version", "2025-06-18")];
    daemon.post(&headers, &call).unwrap().json()
}

#[test]
fn a_stopped_session_is_stopped_after_a_restart_and_for_a_client_that_comes_back() {
    // GOV-1203, GOV-1202
    let (home, spy) = home_with("triggers = [\"class_escalation\"]");
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    let write = json!({"path": spy.workspace.join("a").to_str().unwrap(), "text": "x"});
    grant_widely(&home, &daemon, "spy__echo", &echo);
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    let asked = approval(&daemon.call("spy__write_thing", &write).unwrap());
    let before = home.json(&["checkpoint", "list"]);
    // Killed, not told to stop.
    drop(daemon);

    let daemon = home.serve();
    assert_eq!(home.json(&["checkpoint", "list"]), before, "as if nothing had happened");
    assert_eq!(before[0]["approval_id"], asked.as_str());
    is_stopped(&daemon.call("spy__echo", &echo).unwrap(), "class_escalation");
    // Another connection of the same client is no way around it, nor is leaving and coming back.
    let wire = legacy(&daemon, "test");
    is_stopped(&legacy_call(&daemon, &wire, "spy__echo", &echo), "class_escalation");
    let headers = [("Mcp-Session-Id", wire.as_str()), ("MCP-Protocol-Version", "2025-06-18")];
    assert_eq!(daemon.http("DELETE", "/mcp", &headers, "").unwrap().status, 204);
    assert_eq!(
        daemon.post(&headers, &json!({"jsonrpc": "2.0", "id": 3, "method": "ping"})).unwrap().status,
        404
    );
    let wire = legacy(&daemon, "test");
    is_stopped(&legacy_call(&daemon, &wire, "spy__echo", &echo), "class_escalation");
    assert!(legacy_call(&daemon, &legacy(&daemon, "other"), "spy__echo", &echo)["result"].is_object());
    assert_eq!(spy.calls(), 2);
    // The approval that was asked for before lets it go on.
    grant(&home, &asked, "once");
    assert!(daemon.call("spy__write_thing", &write).unwrap()["result"].is_object());
    assert!(legacy_call(&daemon, &wire, "spy__echo", &echo)["result"].is_object());
    daemon.stop();

    // What an operator stopped stays so too, whatever policy is put in force meanwhile.
    let daemon = home.serve();
    assert_eq!(home.json(&["checkpoint", "list"]), json!([]), "what is resolved stays resolved");
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    let id = only_session(&home)["session_id"].as_str().unwrap().to_owned();
    home.json(&["checkpoint", "open", &id, "--reason", "it talks a lot"]);
    let dir = home.beside("other");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("settings.toml"), "[tier]\nmax = 0\n").unwrap();
    let dir = dir.to_str().unwrap();
    home.json(&["policy", "apply", dir, "--preset", "observe", "--reason", "less trust"]);
    daemon.stop();
    // Lost state is made again from the log.
    for name in fs::read_dir(home.path().join("state")).unwrap().flatten() {
        fs::remove_file(name.path()).unwrap();
    }
    let daemon = home.serve();
    is_stopped(&daemon.call("spy__echo", &echo).unwrap(), "operator");
    home.json(&["checkpoint", "resolve", &id, "--reason", "looked at"]);
    assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 6);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}
