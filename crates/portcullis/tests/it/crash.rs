//! SIGKILL at each failpoint of A-12: never a second frame, never a released result that is not in the log.

use serde_json::{Value, json};

use crate::support::{Daemon, Home, eventually, guarded_spy};

/// Calls, approves, and waits for the gateway to die of the failpoint.
fn call_and_die(home: &Home, failpoint: &str) -> Option<Value> {
    let mut daemon = home.serve_with(&format!("{failpoint}=abort"));
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "once"})));
        let pending = home.next_pending();
        let id = pending["approval_id"].as_str().unwrap();
        // The gateway may die before the operator hears of a decision that is durable.
        home.run(&["approve", "grant", id, "--scope", "once", "--reason", "test", "--yes"]);
        call.join().unwrap()
    });
    daemon.wait_for_death();
    answer
}

fn approved(daemon: &Daemon, home: &Home) -> Option<Value> {
    daemon.approved_call(home, "spy__echo", &json!({"text": "once"}))
}

fn permits(home: &Home, event: &str) -> Vec<Value> {
    home.events(event).iter().map(|record| record["data"]["permit_id"].clone()).collect()
}

#[test]
fn killed_after_issuing_a_permit_no_frame_leaves_and_the_permit_is_dead() {
    let (home, spy) = guarded_spy("");
    assert!(call_and_die(&home, "permit.after_issue").is_none());
    home.serve().stop();
    assert_eq!(spy.calls(), 0);
    // If the permit's record made it to the disk, the restart has invalidated it.
    assert_eq!(permits(&home, "permit.issued"), permits(&home, "permit.invalidated"));
    assert!(home.events("execution.intent").is_empty());
    // ADM-53: the approval was an operation too, and is concluded exactly once whenever it was cut off.
    let approvals = |name: &str| {
        let tool = json!("portcullis_approvals_approve");
        home.events(name).iter().filter(|event| event["data"]["tool"] == tool).count()
    };
    assert_eq!((approvals("admin.op_intent"), approvals("admin.op_executed")), (1, 1));
    home.verify();
}

#[test]
fn killed_after_the_intent_is_durable_the_outcome_is_indeterminate() {
    let (home, spy) = guarded_spy("");
    assert!(call_and_die(&home, "audit.after_intent_sync").is_none());
    home.serve().stop();
    assert!(spy.calls() <= 1);
    assert_eq!(permits(&home, "execution.intent"), permits(&home, "execution.indeterminate"));
    assert_eq!(permits(&home, "execution.intent").len(), 1);
    assert!(home.events("execution.result").is_empty());
    home.verify();
}

#[test]
fn killed_after_transmitting_there_was_one_frame_and_there_is_never_a_second() {
    let (home, spy) = guarded_spy("");
    assert!(call_and_die(&home, "upstream.after_transmit").is_none());
    let daemon = home.serve();
    assert_eq!(spy.calls(), 1);
    assert_eq!(permits(&home, "execution.indeterminate").len(), 1);
    // The once-approval is spent: an equal call asks again instead of running.
    let again = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "once"})));
        let pending = home.next_pending();
        home.json(&["approve", "deny", pending["approval_id"].as_str().unwrap(), "--reason", "enough"]);
        call.join().unwrap().unwrap()
    });
    assert_eq!(again["error"]["data"]["details"]["code"], "approval_denied");
    drop(daemon);
    assert_eq!(spy.calls(), 1);
    home.verify();
}

#[test]
fn killed_after_the_result_is_durable_the_log_has_it_and_a_retry_is_a_new_proposal() {
    let (home, spy) = guarded_spy("");
    assert!(call_and_die(&home, "audit.after_result_sync").is_none());
    assert_eq!(permits(&home, "execution.result").len(), 1);
    let daemon = home.serve();
    let retry = approved(&daemon, &home).unwrap();
    assert_eq!(retry["result"]["structuredContent"]["text"], "once", "{retry}");
    drop(daemon);
    assert_eq!(spy.calls(), 2);
    let proposals: Vec<_> =
        home.events("execution.intent").iter().map(|record| record["proposal"].clone()).collect();
    assert_ne!(proposals[0], proposals[1]);
    assert!(home.events("execution.indeterminate").is_empty());
    home.verify();
}

#[test]
fn killed_at_the_boundary_no_frame_leaves() {
    // A-12, AUD-80: before the intent is durable the permit is dead, after it nobody knows.
    for (failpoint, intents) in [("boundary.after_validate", 0), ("boundary.before_transmit", 1)] {
        let (home, spy) = guarded_spy("");
        assert!(call_and_die(&home, failpoint).is_none());
        home.serve().stop();
        assert_eq!(spy.calls(), 0, "{failpoint}");
        let intended = permits(&home, "execution.intent");
        assert_eq!(intended.len(), intents, "{failpoint}");
        assert_eq!(permits(&home, "execution.indeterminate"), intended, "{failpoint}");
        assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true, "{failpoint}");
    }
}

#[test]
fn killed_before_a_decision_is_on_record_nobody_decided() {
    // AUD-22, AUD-80: what is not durable is not visible.
    let (home, spy) = guarded_spy("");
    assert!(call_and_die(&home, "approval.before_record").is_none());
    assert!(home.events("approval.recorded").is_empty());
    let daemon = home.serve();
    let granted = home.json(&["approve", "list"]);
    let states: Vec<&Value> = granted.as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert!(states.iter().all(|state| **state != "approved"), "{granted}");
    // The call that was approved in vain asks again.
    assert!(approved(&daemon, &home).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!((spy.calls(), home.events("approval.recorded").len()), (1, 1));
    home.verify();
}

#[test]
fn killed_around_a_commit_of_the_store_it_is_behind_and_never_wrong() {
    // AUD-67, AUD-80: the log is the truth, and what the store lacks is applied at the next start.
    let registered = |home: &Home| {
        let listed = home.json(&["mcp", "list"]).as_array().unwrap().len();
        assert_eq!(listed, home.events("server.registered").len());
        listed
    };
    for failpoint in ["store.before_commit", "store.after_commit"] {
        let home = Home::new("");
        let spy = crate::support::Spy::new(&home);
        let file = home.beside("spy.yaml");
        std::fs::write(&file, spy.declaration()).unwrap();
        let mut killed = 0;
        for hit in 1..20 {
            let mut add = home.command();
            add.args(spy.add_args(&file)).env("PORTCULLIS_FAILPOINTS", format!("{failpoint}=abort@{hit}"));
            killed += usize::from(add.output().unwrap().status.code().is_none());
            if registered(&home) == 1 {
                break;
            }
        }
        assert!(killed > 0 && registered(&home) == 1, "{failpoint}: {killed}");
        home.verify();
    }
}

#[test]
fn without_its_view_or_its_last_step_a_program_is_not_started() {
    // AUD-80, SBX-40, S-ST-1 (the mounts): the self-test notices, MP-FH-007.
    for (failpoint, code) in
        [("sandbox.sabotage_mounts=err(EIO)", "MP-FH-007"), ("sandbox.before_exec=err(EIO)", "MP-FH-001")]
    {
        let (home, spy) = guarded_spy("");
        let before = spy.log_events("start").len();
        let daemon = home.serve_with(failpoint);
        let reply = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
        assert_eq!(reply["error"]["data"]["details"]["code"], code, "{failpoint}: {reply}");
        daemon.stop();
        assert_eq!((spy.calls(), spy.log_events("start").len()), (0, before), "{failpoint}");
        assert!(home.events("execution.intent").is_empty());
        home.verify();
    }
}

#[test]
fn a_clock_that_is_set_back_or_ahead_is_told_and_no_record_is_older_than_the_one_before() {
    // A-24, AUD-10, AUD-80
    let (home, _spy) = guarded_spy("");
    const HOUR: i64 = 3_600_000;
    // An hour back from the start, a day ahead, and back again by that day; then an hour back while it runs.
    let anomalies = |home: &Home| home.events("system.clock_anomaly");
    home.serve_with(&format!("clock.jump=jump({})", -HOUR)).stop();
    assert_eq!(anomalies(&home).len(), 1);
    assert!(anomalies(&home)[0]["data"]["behind_ms"].as_i64().unwrap() > HOUR / 2);
    home.serve_with(&format!("clock.jump=jump({})", 24 * HOUR)).stop();
    let ahead = home.log().last().unwrap()["time"].as_str().unwrap().to_owned();
    home.serve().stop();
    let told = anomalies(&home);
    assert!(told.len() >= 2 && told.last().unwrap()["data"]["behind_ms"].as_i64().unwrap() > 23 * HOUR);
    assert!(home.log().last().unwrap()["time"].as_str().unwrap() >= ahead.as_str());
    home.verify();

    let (home, _spy) = guarded_spy("");
    let daemon = home.serve_with(&format!("clock.jump=jump({})@300", -HOUR));
    eventually("the clock to jump", || {
        daemon.call("spy__nothing", &json!({})).unwrap();
        (!anomalies(&home).is_empty()).then_some(())
    });
    daemon.stop();
    home.verify();
}

#[test]
fn every_place_of_the_specification_can_fail() {
    // AUD-80
    const NAMES: [&str; 27] = [
        "audit.before_write",
        "audit.write",
        "audit.sync",
        "audit.pack_sync",
        "audit.after_intent_sync",
        "audit.before_result",
        "audit.after_result_sync",
        "audit.checkpoint_rename",
        "audit.rotate",
        "audit.key_rewrite",
        "store.before_commit",
        "store.after_commit",
        "approval.before_record",
        "declaration.before_accept",
        "registry.before_commit",
        "policy.before_activate",
        "permit.after_issue",
        "boundary.after_validate",
        "boundary.before_transmit",
        "upstream.after_transmit",
        "sandbox.sabotage_mounts",
        "sandbox.sabotage_network",
        "sandbox.sabotage_limits",
        "sandbox.sabotage_landlock",
        "sandbox.sabotage_seccomp",
        "sandbox.before_exec",
        "clock.jump",
    ];
    let mut sources = String::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && name != "tests" && name != "benches" {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    for name in NAMES {
        let placed = ["pass", "pass_io", "short_write", "jumped"]
            .iter()
            .any(|kind| sources.contains(&format!("failpoint::{kind}(\"{name}\")")));
        assert!(placed, "{name} is nowhere");
    }
}

#[test]
fn a_killed_gateway_leaves_no_server_process_behind() {
    let (home, spy) = guarded_spy("");
    let mut daemon = home.serve();
    approved(&daemon, &home).unwrap();
    assert_eq!(spy.processes().len(), 1);
    daemon.child.kill().unwrap();
    daemon.wait_for_death();
    eventually("the spy to be gone", || spy.processes().is_empty().then_some(()));
}

#[test]
fn killed_while_registering_the_server_is_there_or_not_never_between() {
    // T-REG-4
    let home = Home::new("");
    let spy = crate::support::Spy::new(&home);
    let file = home.beside("spy.yaml");
    std::fs::write(&file, spy.declaration()).unwrap();
    for (failpoint, registered) in [("declaration.before_accept", 0), ("registry.before_commit", 1)] {
        let status = home
            .command()
            .args(spy.add_args(&file))
            .env("PORTCULLIS_FAILPOINTS", format!("{failpoint}=abort"))
            .output()
            .unwrap()
            .status;
        assert!(!status.success());
        assert_eq!(home.json(&["mcp", "list"]).as_array().unwrap().len(), registered, "{failpoint}");
        home.verify();
    }
}
