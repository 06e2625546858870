//! Trust as it is earned and lost behind a running gateway (GOV §11).

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Spy, eventually};

/// A spy on tier 1, every approval wide.
fn guarded(config: &str) -> (Home, Spy) {
    let home = Home::new(&format!("[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n{config}"));
    let spy = Spy::new(&home);
    spy.register_on_tier(&home, "1");
    (home, spy)
}

fn grant_widely(home: &Home, daemon: &Daemon, tool: &str, arguments: &Value) {
    let refused = daemon.call(tool, arguments).unwrap();
    let id =
        refused["error"]["data"]["details"]["approval_id"].as_str().unwrap_or_else(|| panic!("{refused}"));
    home.json(&["approve", "grant", id, "--scope", "until-version-change", "--reason", "known", "--yes"]);
}

fn earn(home: &Home, daemon: &Daemon) {
    grant_widely(home, daemon, "spy__echo", &json!({"text": "0"}));
    for n in 0..15 {
        let answer = daemon.call("spy__echo", &json!({"text": n.to_string()})).unwrap();
        assert!(answer["result"].is_object(), "{answer}");
    }
    eventually("the tool to be promoted", || {
        (home.json(&["trust", "show", "spy/echo"])["state"] == "probationary").then_some(())
    });
}

fn state(home: &Home, id: &str) -> Value {
    home.json(&["trust", "show", id])["state"].clone()
}

#[test]
fn trust_is_earned_saves_prompts_and_is_recomputed_from_the_log() {
    // GOV-1101, GOV-1103, GOV-1104, T-TRU-1, SBX-1
    let (home, spy) = guarded("");
    let daemon = home.serve();
    assert_eq!(state(&home, "spy"), "untrusted");
    earn(&home, &daemon);
    assert_eq!((state(&home, "spy"), state(&home, "spy/add")), (json!("probationary"), json!("untrusted")));
    let explained = home.json(&["policy", "explain", "--tool", "spy/echo", "--args", r#"{"text": "x"}"#]);
    assert_eq!(explained["decision"], "unattended", "{explained}");
    let before = home.events("envelope.used").len();
    assert!(daemon.call("spy__echo", &json!({"text": "x"})).unwrap()["result"].is_object());
    assert_eq!(home.events("envelope.used").len(), before, "nobody was asked, no grant was used");
    let verified = home.json(&["trust", "verify"]);
    assert_eq!(verified["differences"], json!([]), "{verified}");
    assert!(verified["checked"].as_u64().unwrap() >= 10);
    let list = home.json(&["trust", "list", "--state", "probationary"]);
    let names: Vec<_> = list.as_array().unwrap().iter().map(|row| row["boundary_id"].clone()).collect();
    assert_eq!(names, [json!("spy"), json!("spy/echo")]);
    // More than the tier allows cannot be granted.
    let (exit, error) = home.fails(&["trust", "grant", "spy/echo", "--reason", "good"]);
    assert_eq!((exit, &error["code"]), (1, &json!("CONFLICT")), "{error}");
    daemon.stop();

    // With and without what is kept between starts.
    let row = || home.json(&["trust", "show", "spy/echo"]);
    let kept = row();
    std::fs::remove_file(home.path().join("state/trust.json")).unwrap();
    assert_eq!(row(), kept);

    let daemon = home.serve();
    let revoked = home.json(&["trust", "revoke", "spy/echo", "--reason", "second thoughts"]);
    assert_eq!(
        (&revoked["state"], &revoked["score"], &revoked["reset_epoch"]),
        (&json!("untrusted"), &json!(0), &json!(1))
    );
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(refused["error"]["data"]["error"], "AUTH_REQUIRED", "wide approvals end too: {refused}");
    daemon.stop();
    // Trust saved prompts and nothing else: the cage is the same before and after it was earned.
    let cages = |event: &str, at: &str| {
        let mut cages: Vec<String> =
            home.events(event).iter().map(|record| record["data"][at].to_string()).collect();
        cages.sort();
        cages.dedup();
        cages
    };
    assert_eq!(cages("execution.intent", "sandbox_profile_sha256").len(), 1);
    assert_eq!(cages("sandbox.established", "layers").len(), 1);
    assert_eq!(spy.calls(), 16);
    home.verify();
}

#[test]
fn a_violation_resets_trust_in_the_step_that_halts() {
    // T-TRU-2, GOV-1105
    let (home, spy) = guarded("");
    let daemon = home.serve();
    earn(&home, &daemon);
    grant_widely(&home, &daemon, "spy__add", &json!({"a": 0, "b": 0}));
    for n in 0..15 {
        assert!(daemon.call("spy__add", &json!({"a": n, "b": 1})).unwrap()["result"].is_object());
    }
    eventually("add to be promoted", || (state(&home, "spy/add") == "probationary").then_some(()));
    spy.control(&json!({"bad_output": true}));
    let answer = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-003", "{answer}");
    eventually("the server to be halted", || {
        (home.json(&["mcp", "show", "spy"])["state"] == "halted").then_some(())
    });
    assert_eq!(
        (state(&home, "spy/echo"), state(&home, "spy/add")),
        (json!("untrusted"), json!("probationary"))
    );
    assert_eq!(home.json(&["trust", "show", "spy/echo"])["violations"], 1);
    // One commit: no record of another comes between the violation and the halt.
    let log = home.log();
    let at = log.iter().position(|record| record["event"] == "trust.violation").unwrap();
    assert_eq!(log[at + 1]["event"], "server.halted");
    assert_eq!(log[at]["time"], log[at + 1]["time"]);
    assert_eq!(log[at]["data"]["tools"], json!(["echo"]));
    daemon.stop();
    assert_eq!(home.json(&["trust", "verify"])["differences"], json!([]));
    home.verify();
}
