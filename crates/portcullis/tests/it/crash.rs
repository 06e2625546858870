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
