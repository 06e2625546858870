//! What `portcullis doctor` finds, and what it says to do.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Home, guarded_spy};

fn examine(home: &Home) -> (bool, Vec<Value>) {
    let output = home.run(&["--output", "json", "doctor"]);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["healthy"] == true, output.status.success(), "{report}");
    (output.status.success(), report["findings"].as_array().unwrap().clone())
}

/// The one finding about the spy that is not fine.
fn wrong(home: &Home) -> Value {
    let (healthy, findings) = examine(home);
    assert!(!healthy, "{findings:?}");
    let mut problems =
        findings.into_iter().filter(|finding| finding["about"] == "spy" && finding["status"] == "problem");
    let problem = problems.next().expect("a problem");
    assert!(problems.next().is_none(), "one at a time");
    assert!(problem["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{problem}");
    problem
}

fn says(finding: &Value, words: &str) {
    assert!(finding["what"].as_str().unwrap().contains(words), "{finding}");
}

#[test]
fn a_healthy_gateway_is_said_to_be_one() {
    let (home, _spy) = guarded_spy("");
    let (healthy, findings) = examine(&home);
    assert!(healthy, "{findings:?}");
    assert!(findings.iter().any(|finding| finding["about"] == "spy" && finding["status"] == "ok"));
    let text = home.command().arg("doctor").output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).contains("as it was accepted"));
    let empty = Home::new("");
    let (healthy, findings) = examine(&empty);
    assert!(healthy && findings.iter().any(|finding| finding["what"] == "no server is registered"));
}

#[test]
fn what_is_wrong_with_a_server_is_named_with_its_cure() {
    let (home, spy) = guarded_spy("");
    spy.control(&json!({"extra_tool": "evil"}));
    says(&wrong(&home), "differs from its declaration");
    spy.control(&json!({"version": "7"}));
    says(&wrong(&home), "another version");
    spy.control(&json!({}));
    home.json(&["mcp", "halt", "spy", "--reason", "to look at it"]);
    says(&wrong(&home), "halted: to look at it");
    home.json(&["mcp", "resume", "spy", "--reason", "fine"]);
    let mut bytes = fs::read(&spy.executable).unwrap();
    bytes.push(0);
    fs::write(&spy.executable, bytes).unwrap();
    let stale = wrong(&home);
    says(&stale, "has changed since");
    assert!(stale["fix"].as_str().unwrap().contains("mcp update"), "{stale}");
}

#[test]
fn a_process_without_a_gateway_is_found() {
    let (home, spy) = guarded_spy("");
    let mut stray = Command::new(&spy.executable)
        .args(["--log", "/dev/null", "--control", "/nonexistent", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let found = wrong(&home);
    stray.kill().unwrap();
    stray.wait().unwrap();
    says(&found, "without a gateway");
    assert_eq!(found["fix"], format!("kill {}", stray.id()), "{found}");
    assert!(examine(&home).0);
}

#[test]
fn calls_that_wait_are_told() {
    let (home, _spy) = guarded_spy("[approvals]\nwait = \"100ms\"\n");
    let daemon = home.serve();
    daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let (healthy, findings) = examine(&home);
    assert!(healthy, "{findings:?}");
    assert!(findings.iter().any(|finding| finding["what"] == "one call is waiting for an operator"));
    daemon.stop();
}
