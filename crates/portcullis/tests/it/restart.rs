//! What survives a restart, and what can be rebuilt.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Home, eventually, guarded_spy};

#[test]
fn servers_and_unspent_approvals_survive_a_restart() {
    // GOV-1005
    let (home, spy) = guarded_spy("[approvals]\nwait = \"300ms\"\n");
    let daemon = home.serve();
    let refused = daemon.call("spy__echo", &json!({"text": "later"})).unwrap();
    let id = refused["error"]["data"]["details"]["approval_id"].as_str().unwrap().to_owned();
    home.json(&["approve", "grant", &id, "--reason", "fine"]);
    daemon.stop();
    let daemon = home.serve();
    let response = daemon.call("spy__echo", &json!({"text": "later"})).unwrap();
    assert_eq!(response["result"]["structuredContent"]["text"], "later", "{response}");
    daemon.stop();
    // Spent: gone for good.
    let daemon = home.serve();
    assert!(daemon.call("spy__echo", &json!({"text": "later"})).unwrap().get("error").is_some());
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    assert!(spy.processes().is_empty(), "a stopped gateway leaves no process behind");
    home.verify();
}

#[test]
fn state_that_is_lost_or_behind_is_rebuilt_from_the_log() {
    // AUD-6, AUD-65, AUD-67, A-19
    let (home, _spy) = guarded_spy("[approvals]\nwait = \"300ms\"\n");
    let daemon = home.serve();
    daemon.call("spy__echo", &json!({"text": "a"})).unwrap();
    daemon.stop();
    let state = |home: &Home| -> Vec<Value> {
        let show = home.json(&["mcp", "show", "spy"]);
        vec![
            home.json(&["mcp", "list"]),
            show,
            home.json(&["approve", "list"]),
            home.json(&["trust", "list"]),
        ]
    };
    let before = state(&home);
    for name in fs::read_dir(home.path().join("state")).unwrap().flatten() {
        fs::remove_file(name.path()).unwrap();
    }
    assert_eq!(state(&home), before);
    home.verify();
}

#[test]
fn a_halted_server_stays_halted_until_an_operator_resumes_it() {
    // GOV-203
    let (home, spy) = guarded_spy("");
    home.json(&["mcp", "halt", "spy", "--reason", "looks odd"]);
    let daemon = home.serve();
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(refused["error"]["code"], -31002, "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("looks odd"));
    assert_eq!(home.fails(&["mcp", "resume", "spy", "--reason", " "]).0, 7);
    home.json(&["mcp", "resume", "spy", "--reason", "looked at it"]);
    assert_eq!(home.fails(&["mcp", "resume", "spy", "--reason", "again"]).0, 1);
    let response = daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    assert!(response.get("result").is_some(), "{response}");
    drop(daemon);
    assert_eq!(spy.calls(), 1);
}

#[test]
fn a_second_gateway_is_refused_and_the_first_goes_on() {
    // AUD-60, A-6
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let second = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.status.code(), Some(5), "{}", String::from_utf8_lossy(&second.stderr));
    let message = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(message.contains(&daemon.child.id().to_string()), "{message}");
    assert_eq!(daemon.http("GET", "/health", &[], "").unwrap().status, 200);
    daemon.stop();
    home.serve().stop();
}

#[test]
fn a_removed_name_comes_back_as_a_new_life_and_old_approvals_do_not() {
    // GOV-202, GOV-602, T-APR-4
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n[approvals]\nwait = \"300ms\"\n");
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "x"})));
        home.grant_next("until-version-change");
        call.join().unwrap()
    });
    assert!(daemon.call("spy__echo", &json!({"text": "other"})).unwrap().get("result").is_some());
    home.json(&["mcp", "remove", "spy", "--reason", "replaced"]);
    assert_eq!(home.fails(&["mcp", "remove", "spy", "--reason", "again"]).0, 8);
    fs::remove_file(spy.workspace.join("spy.log")).unwrap();
    let record = spy.register(&home);
    assert!(record["declaration_version"].as_str().unwrap().starts_with("2:"), "{record}");
    let refused = daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    assert_eq!(refused["error"]["data"]["error"], "AUTH_REQUIRED", "{refused}");
    eventually("no call of the new life", || (spy.calls() == 0).then_some(()));
    home.verify();
}
