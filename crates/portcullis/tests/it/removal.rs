//! What dies with a server, a policy or a halt: permits on record, and calls under way (GOV-204, GOV-1004).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Home, Spy, eventually, open_home};

/// A gateway whose spy may be called without asking.
fn granted(tool: &str, arguments: &Value) -> (Home, Spy) {
    let home = open_home();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call(tool, arguments));
        home.grant_next("until-version-change");
        call.join().unwrap().unwrap();
    });
    daemon.stop();
    (home, spy)
}

fn of_permit(record: &Value) -> &Value {
    &record["data"]["permit_id"]
}

#[test]
fn removing_a_server_cuts_the_call_it_works_on_and_its_outcome_is_unknown() {
    // GOV-204
    let (home, spy) = granted("spy__slow", &json!({"ms": 1}));
    let daemon = home.serve();
    let before = spy.calls();
    let (response, waited) = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__slow", &json!({"ms": 20_000})).unwrap());
        eventually("the call to arrive", || (spy.calls() > before).then_some(()));
        let removed = home.json(&["mcp", "remove", "spy", "--reason", "no longer wanted"]);
        assert_eq!((&removed["state"], &removed["permits_invalidated"]), (&json!("removed"), &json!(0)));
        let asked = Instant::now();
        (call.join().unwrap(), asked.elapsed())
    });
    assert!(waited < Duration::from_secs(15), "it was cut, and did not end by itself");
    assert_eq!(response["error"]["data"]["details"]["code"], "MP-FH-001", "{response}");
    daemon.stop();
    let permit = of_permit(home.events("execution.intent").last().unwrap()).clone();
    let unknown = home.events("execution.indeterminate");
    assert_eq!(unknown.len(), 1);
    assert_eq!(of_permit(&unknown[0]), &permit);
    assert!(home.events("execution.result").iter().all(|result| of_permit(result) != &permit));
    assert!(spy.processes().is_empty());
    home.verify();
}

/// Has one permit issued and waiting while something is done; what the call came to.
fn while_a_permit_waits(home: &Home, act: impl Fn(&Home)) -> Value {
    let daemon = home.serve_with("permit.after_issue=sleep(3000)");
    let issued = home.events("permit.issued").len();
    let response = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "b"})).unwrap());
        let waiting = || (home.json(&["permit", "list"]).as_array().unwrap().len() == 1).then_some(());
        eventually("the permit to be issued", waiting);
        act(home);
        call.join().unwrap()
    });
    daemon.stop();
    assert_eq!(home.events("permit.issued").len(), issued + 1);
    response
}

#[test]
fn a_permit_that_was_not_used_yet_dies_on_record_with_what_it_was_issued_under() {
    // GOV-204, GOV-801, GOV-1004, T-PER-9
    let policy = |home: &Home| {
        let dir = home.beside("policies");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(
            dir.join("mine.cedar"),
            "forbid (principal, action, resource) when { resource.name == \"add\" };",
        )
        .unwrap();
        home.json(&["policy", "apply", dir.to_str().unwrap(), "--preset", "observe", "--reason", "x"]);
    };
    let count = |done: &Value| assert_eq!(done["permits_invalidated"], 1, "{done}");
    type Act<'a> = Box<dyn Fn(&Home) + 'a>;
    // A server that is gone is not even connected to.
    let cases: [(&str, &str, Act<'_>); 3] = [
        (
            "removed",
            "MP-FH-001",
            Box::new(|home| count(&home.json(&["mcp", "remove", "spy", "--reason", "x"]))),
        ),
        ("halt", "MP-FH-006", Box::new(|home| count(&home.json(&["mcp", "halt", "spy", "--reason", "x"])))),
        ("policy", "MP-FH-006", Box::new(policy)),
    ];
    for (reason, code, act) in cases {
        let (home, spy) = granted("spy__echo", &json!({"text": "a"}));
        let response = while_a_permit_waits(&home, act);
        assert_eq!(response["error"]["data"]["details"]["code"], code, "{reason}: {response}");
        assert_eq!(spy.calls(), 1, "{reason}: nothing was sent");
        let invalidated = home.events("permit.invalidated");
        assert_eq!(invalidated.len(), 1, "{reason}");
        assert_eq!(invalidated[0]["data"]["reason"], reason);
        assert_eq!(of_permit(&invalidated[0]), of_permit(home.events("permit.issued").last().unwrap()));
        home.verify();
    }
}
