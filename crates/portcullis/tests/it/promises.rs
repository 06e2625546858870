//! The six invariants as scenarios (GOV §16): somebody tries to break each with a real server, what must not happen does not,
//! and both readers of the log agree that it did not.

use std::fs;

use serde_json::{Value, json};

use crate::approvals::enrol;
use crate::failures::is_sound;
use crate::support::{Daemon, Home, Spy, eventually, guarded_spy};

const OPEN: &str = "[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n";

/// Has a tool called once under an approval that would last.
fn granted_widely(home: &Home, daemon: &Daemon, arguments: &Value) {
    let asked = daemon.call("spy__echo", arguments).unwrap();
    let id = asked["error"]["data"]["details"]["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}"));
    home.json(&["approve", "grant", id, "--scope", "until-version-change", "--reason", "known", "--yes"]);
    assert!(daemon.call("spy__echo", arguments).unwrap()["result"].is_object());
}

fn code(response: &Value) -> &Value {
    &response["error"]["data"]["error"]
}

#[test]
fn inv_mp_001_nothing_is_called_that_no_declaration_in_force_has() {
    // INV-MP-001
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    granted_widely(&home, &daemon, &echo);
    for undeclared in ["spy__nothing", "spy__ECHO", "spy__echo_", "echo"] {
        let refused = daemon.call(undeclared, &echo).unwrap();
        assert_eq!(refused["error"]["code"], -32602, "{undeclared}: {refused}");
    }
    home.json(&["mcp", "remove", "spy", "--reason", "no longer"]);
    let refused = daemon.call("spy__echo", &echo).unwrap();
    assert_eq!(refused["error"]["code"], -32602, "its declaration is withdrawn: {refused}");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    assert_eq!(home.events("declaration.withdrawn").len(), 1);
    is_sound(&home);
}

#[test]
fn inv_mp_002_calls_that_are_equal_have_a_permit_each() {
    // INV-MP-002
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    granted_widely(&home, &daemon, &echo);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert!(daemon.call("spy__echo", &echo).unwrap()["result"].is_object()));
        }
    });
    daemon.stop();
    assert_eq!(spy.calls(), 7);
    let permits = |event: &str| {
        let mut ids: Vec<String> = (home.events(event).iter())
            .map(|record| record["data"]["permit_id"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let (mut issued, intended) = (permits("permit.issued"), permits("execution.intent"));
    assert_eq!(issued, intended);
    issued.dedup();
    assert_eq!(issued.len(), 7);
    is_sound(&home);
}

#[test]
fn inv_mp_003_a_permit_that_the_boundary_denies_sends_nothing() {
    // INV-MP-003
    let (home, spy) = guarded_spy(&format!("{OPEN}[permits]\nttl = \"1s\"\n"));
    let warm = home.serve();
    granted_widely(&home, &warm, &json!({"text": "x"}));
    warm.stop();
    let daemon = home.serve_with("permit.after_issue=sleep(1500)");
    let refused = daemon.call("spy__echo", &json!({"text": "y"})).unwrap();
    assert_eq!(refused["error"]["data"]["details"]["check"], "expiry", "{refused}");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    let denied = home.events("execution.denied");
    assert_eq!(denied.len(), 1);
    let of = |record: &Value| record["data"]["permit_id"].clone();
    assert!(home.events("execution.intent").iter().all(|intent| of(intent) != of(&denied[0])));
    is_sound(&home);
}

#[test]
fn inv_mp_004_a_server_is_there_only_if_an_operator_put_it_there() {
    // INV-MP-004, T-REG-5
    let home = Home::new("[operator]\nauth = [\"passphrase\"]\n");
    enrol(&home, "ana", "correct horse battery");
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let args = spy.add_args(&file);
    let (exit, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(exit, 6, "who proves nothing registers nothing: {error}");
    // Nor does a file, whatever it is called.
    for dropped in ["spy.yaml", "servers/spy.yaml", "declarations/spy.yaml"] {
        let place = home.path().join(dropped);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, spy.declaration()).unwrap();
    }
    let daemon = home.serve();
    let asked = daemon.call("servers_register", &json!({"name": "spy"})).unwrap();
    assert_eq!(asked["error"]["code"], -32602, "agents have no such tool: {asked}");
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    daemon.stop();
    assert!(home.events("server.registered").is_empty());
    assert!(spy.frames("initialize").is_empty());
    is_sound(&home);
}

#[test]
fn inv_mp_005_an_approval_does_not_outlive_the_life_of_its_server() {
    // INV-MP-005, T-APR-4
    let (home, spy) = guarded_spy(OPEN);
    let daemon = home.serve();
    let echo = json!({"text": "x"});
    granted_widely(&home, &daemon, &echo);
    home.json(&["mcp", "remove", "spy", "--reason", "to be registered again"]);
    spy.register(&home);
    let asked = daemon.call("spy__echo", &echo).unwrap();
    assert_eq!(code(&asked), "AUTH_REQUIRED", "the same program, the same version, another life: {asked}");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    is_sound(&home);
}

#[test]
fn inv_mp_006_what_leaves_its_scopes_is_halted_and_intents_say_what_was_accepted() {
    // INV-MP-006
    let home = Home::new(&format!("{OPEN}[sandbox.hosts]\n\"api.example\" = [\"127.0.0.1\"]\n"));
    let spy = Spy::new(&home);
    let scope =
        "scopes:\n  api: { kind: egress, host: api.example, port: 9, tls: none, addrs: [127.0.0.1] }\n";
    let declaration = spy.declaration().replacen("scopes:\n", scope, 1).replacen(
        "side_effects: []\n    scopes: []",
        "side_effects: [network]\n    unbound: true\n    scopes: [api]",
        1,
    );
    spy.register_as(&home, &declaration);
    let words = "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    spy.control(&json!({"isolate": {"say": {"127.0.0.1:3128": words}}}));
    let daemon = home.serve();
    let asked = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let id = asked["error"]["data"]["details"]["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}"));
    home.json(&["approve", "grant", id, "--reason", "known", "--yes"]);
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert!(refused.get("result").is_none(), "{refused}");
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    daemon.stop();
    let accepted = home.events("declaration.accepted").remove(0)["data"]["tools"]["echo"].clone();
    let intent = home.events("execution.intent").remove(0)["data"].clone();
    assert_eq!(accepted["profile_sha256"], intent["sandbox_profile_sha256"]);
    assert!(intent["sandbox_profile_sha256"].is_string(), "{intent}");
    assert_eq!(
        (&accepted["scopes"], &accepted["side_effects"]),
        (&intent["scopes"], &intent["side_effects"])
    );
    is_sound(&home);
}

#[test]
fn the_eight_principles_are_to_be_seen_in_one_call() {
    // GOV-102, MP-001 to MP-008
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    // MP-002: nobody is trusted for being there.
    assert_eq!(home.json(&["trust", "show", "spy"])["state"], "untrusted");
    // MP-003: what is not declared does not exist, though the server would answer.
    assert_eq!(daemon.call("spy__undeclared", &json!({})).unwrap()["error"]["code"], -32602);
    let answer = daemon.approved_call(&home, "spy__echo", &json!({"text": "the principles"})).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    daemon.stop();
    // MP-001: the whole lifecycle, in its order, and the intent before the result.
    let intent = home.events("execution.intent").pop().unwrap();
    let steps: Vec<String> = (home.log().iter())
        .filter(|record| record["proposal_id"] == intent["proposal_id"])
        .map(|record| record["event"].as_str().unwrap().to_owned())
        .collect();
    let lifecycle = [
        "proposal.received",
        "proposal.canonicalized",
        "policy.evaluated",
        "evidence.prepared",
        "approval.determined",
        "approval.requested",
        "permit.issued",
        "permit.validated",
        "execution.intent",
        "execution.result",
    ];
    let mut at = steps.iter();
    assert!(lifecycle.iter().all(|step| at.any(|found| found == step)), "{steps:?}");
    // MP-004: the identity is pinned to the version and the declaration; MP-006: the boundary has checked the permit.
    let issued = home.events("permit.issued").pop().unwrap();
    let tool = issued["data"]["tool_id"].as_str().unwrap();
    let shown = home.json(&["mcp", "show", "spy"]);
    let pinned = format!("spy/echo@1.0.0#{}", shown["declaration_version"].as_str().unwrap());
    assert_eq!(tool, pinned);
    assert_eq!(home.events("permit.validated")[0]["data"]["permit_id"], intent["data"]["permit_id"]);
    // MP-007: scopes are those of the declaration, whatever the arguments say.
    assert_eq!(intent["data"]["scopes"], json!([]));
    // MP-008: the bytes that left and the bytes that came are evidence.
    let seq = |record: &Value| record["seq"].to_string();
    let result = home.events("execution.result").pop().unwrap();
    for (record, words) in
        [(&intent, spy.frames("tools/call").pop().unwrap()), (&result, "the principles".into())]
    {
        let shown = home.run(&[
            "--output",
            "json",
            "audit",
            "show",
            &seq(record),
            "--evidence",
            "--reason",
            "a test",
        ]);
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(words.contains("the principles") && shown.contains("the principles"), "{shown}");
    }
    // MP-005: a surface that changes is not for every mode.
    let elsewhere = Home::new("");
    let other = Spy::new(&elsewhere);
    let mut args = other.flagged(&home, &other.declaration(), &["--surface", "dynamic"]);
    args[2] = "changing".into();
    let mode = args.iter().position(|arg| arg == "local").unwrap();
    args[mode] = "team".into();
    let (exit, error) = home.fails_of(&args);
    assert_eq!((exit, &error["field"]), (7, &json!("surface")), "{error}");
    is_sound(&home);
}
