//! Admin tools whose moment is rare: each is done on a live gateway that has come to it (admin §12). What the table of all
//! tools (`every_tool`) cannot have beside everything else is made here: days that pass, a turn that is not let go, a key of a
//! subscription.

use serde_json::{Value, json};

use crate::admin::Program;
use crate::records::guarded;
use crate::support::{Home, Operator, Spy, eventually, open_home};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Does it, with a confirmation and a reason.
fn done(program: &Program<'_>, tool: &str, mut args: Value) -> Value {
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    let reply = program.call(tool, &args.to_string());
    assert_eq!(reply.status, 200, "{tool}: {}", reply.body);
    reply.json()["data"].clone()
}

#[test]
fn trust_that_was_earned_over_days_is_granted() {
    // GOV-1104, T-TRU-1, admin §12: trust_grant
    let home = Home::new("");
    let policies = home.beside("policies");
    std::fs::create_dir_all(&policies).unwrap();
    std::fs::write(policies.join("settings.toml"), "[tier]\nmax = 2\n").unwrap();
    let config = format!("[policy]\npreset = \"observe\"\ndir = \"{}\"\n", policies.display());
    std::fs::write(home.path().join("portcullis.toml"), config).unwrap();
    let spy = Spy::new(&home);
    spy.register_on_tier(&home, "2");
    // A week and a day, each with a few calls that end well.
    for day in 0..8 {
        let daemon = home.serve_with(&format!("clock.jump=jump({})", day * DAY_MS));
        let operator = Operator::on_duty(&home);
        for n in 0..8 {
            let answer = daemon.call("spy__echo", &json!({"text": n.to_string()})).unwrap();
            assert!(answer["result"].is_object(), "{answer}");
        }
        drop(operator);
        daemon.stop();
    }
    let daemon = home.serve_with(&format!("clock.jump=jump({})", 8 * DAY_MS));
    let program = Program::new(&home, &daemon);
    let listed = program.call("trust_list", r#"{"tool":"spy/echo"}"#).json();
    assert_eq!(listed["data"][0]["state"], "probationary", "{listed}");
    let granted = done(&program, "trust_grant", json!({"tool": "spy/echo", "state": "trusted"}));
    assert_eq!((&granted["tool"], &granted["state"]), (&json!("spy/echo"), &json!("trusted")), "{granted}");
    assert_eq!(home.events("trust.granted").len(), 1);
    assert_eq!(home.events("admin.op_executed").last().unwrap()["data"]["tool"], "portcullis_trust_grant");
    daemon.stop();
    assert_eq!(home.json(&["trust", "verify"])["differences"], json!([]));
    home.verify();
}

#[test]
fn a_turn_that_is_not_let_go_is_taken_away() {
    // PRO-21, admin §12: locks_list, locks_release
    let home = open_home();
    let spy = Spy::speaking(&home, "spy", "2025-11-25");
    spy.register_with(&home, "server_requests: [ elicitation ]");
    let daemon = home.serve();
    let _operator = Operator::on_duty(&home);
    let program = Program::new(&home, &daemon);
    let answered = daemon.call("spy__echo", &json!({"text": "before"})).unwrap();
    assert!(answered["result"].is_object(), "{answered}");
    std::thread::scope(|scope| {
        spy.control(&json!({"never_answer": true}));
        let calls = spy.calls();
        let stuck = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "stuck"})));
        eventually("the call", || (spy.calls() > calls).then_some(()));
        spy.control(&json!({}));
        let next = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "after"})));
        let held = program.call("locks_list", "{}").json()["data"][0].clone();
        assert_eq!(held["scope"], "server:spy", "{held}");
        let released = done(&program, "locks_release", json!({"lock_id": held["lock_id"]}));
        assert_eq!(released["lock_id"], held["lock_id"]);
        let answer = next.join().unwrap().unwrap();
        assert_eq!(answer["result"]["structuredContent"]["text"], "after", "{answer}");
        done(&program, "processes_restart", json!({"server_id": "spy"}));
        let ended = stuck.join().unwrap().unwrap();
        assert!(ended["result"].is_null(), "{ended}");
    });
    daemon.stop();
    home.verify();
}

#[test]
fn the_key_of_a_subscription_is_handed_over() {
    // REC-70, admin §12: credentials_export_signing_key
    let config = "[records.personal]\ncallback_allow = [\"http://127.0.0.1:9/hooks\"]\n";
    let guarded = guarded(config, &["--profile", "rich"]).warmed();
    let made = guarded.good(
        "create_event_subscription",
        json!({"callback_url": "http://127.0.0.1:9/hooks/a", "streams": ["labels"]}),
    );
    let id = made["structuredContent"]["data"]["subscription_id"].clone();
    let program = Program::new(&guarded.home, &guarded.daemon);
    let args = json!({"server_id": "personal", "subscription_id": id});
    let written = done(&program, "credentials_export_signing_key", args);
    assert!(!written.to_string().contains("whsec_"), "{written}");
    let key = std::fs::read_to_string(written["file"].as_str().unwrap()).unwrap();
    assert!(key.starts_with("whsec_"));
    assert_eq!(guarded.home.events("records.key_exported").len(), 1);
}
