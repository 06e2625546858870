//! What cannot be recorded does not happen: with evidence that cannot be made durable every operation that changes something is
//! refused, and nothing has changed.

use serde_json::{Value, json};

use crate::admin::Program;
use crate::every_tool::{Sample, complete, house, wired};

#[test]
fn nothing_changes_while_the_log_takes_nothing() {
    // SO-13, ADM-53
    let (home, spy) = house();
    let daemon = home.serve();
    let sample = Sample::new(&home, &spy, &daemon, &Program::new(&home, &daemon));
    daemon.stop();
    let mut daemon = home.serve_with("audit.before_intent=err(EIO)");
    let _said = daemon.listened_to();
    let program = Program::new_named(&home, &daemon, "again");
    let tools = wired(&program);
    let waiting = sample.waiting_for_b();
    home.json(&["approve", "grant", waiting, "--scope", "once", "--reason", "to block the log", "--yes"]);
    let refused = daemon.call("spy__echo", &json!({"text": "b"})).unwrap();
    let health = program.call("health_check", "{}").json();
    assert_eq!(health["data"]["status"], "blocked", "{refused} {health}");
    let read = |tool: &str| program.call(tool, "{}").json()["data"].clone();
    let state = || {
        [
            "approvals_list",
            "roles_list",
            "users_list",
            "tokens_list",
            "profiles_list",
            "quotas_list",
            "clients_list",
            "webhooks_list",
            "config_list",
            "backups_list",
            "credentials_list",
            "servers_list",
            "policies_list",
            "trust_list",
            "artifacts_list",
            "checkpoints_list",
            "drafts_list",
        ]
        .map(read)
    };
    let before = state();
    let files = || ["backups", "exports"].map(|folder| entries(&home.path().join(folder)));
    let kept = files();
    let mut passed = Vec::new();
    let mut tried = 0;
    for row in sample.rows() {
        let tool = &tools[row.tool];
        // Taking records again is what ends this, and says by itself that it cannot.
        if tool["class"] == "read" || row.tool == "audit_unblock" {
            continue;
        }
        tried += 1;
        let reply = program.call(row.tool, &complete(tool, &row.args).to_string());
        if (reply.status, &reply.json()["domain_code"]) != (503, &json!("unavailable")) {
            passed.push(format!("{}: {}", row.tool, reply.body));
        }
    }
    assert!(passed.is_empty(), "{}", passed.join("\n"));
    let mutating = tools.values().filter(|tool| tool["class"] != "read").count();
    assert_eq!(tried, mutating - 1, "every tool but one was tried");
    assert_eq!(state(), before, "nothing has changed");
    assert_eq!(files(), kept, "and nothing was written");
}

fn entries(folder: &std::path::Path) -> Vec<Value> {
    let found = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names.into_iter().map(Value::from).collect()
}
