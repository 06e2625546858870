//! Settings, backups, credentials and single things put right, in a gateway that runs.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::support::{Home, Spy, guarded_spy, open_home};

fn act(program: &Program<'_>, tool: &str, mut args: Value) -> Value {
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    program.call(&format!("portcullis_{tool}"), &args.to_string()).json()
}

#[test]
fn a_setting_takes_effect_while_the_gateway_runs_or_says_that_it_cannot() {
    // admin §12: config
    let (home, spy) = guarded_spy("[approvals]\nwait = \"1s\"\n");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let listed = program.call("portcullis_config_list", r#"{"key":"approvals.wait"}"#).json();
    assert_eq!(
        (&listed["data"][0]["value"], &listed["data"][0]["source"]),
        (&json!("1s"), &json!("file")),
        "{listed}"
    );
    let set = act(&program, "config_set", json!({"key": "calls.limits.calls_per_minute", "value": 1}));
    assert_eq!((&set["data"]["source"], &set["data"]["version"]), (&json!("set"), &json!(1)), "{set}");
    let echo = || daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    echo();
    let limited = echo();
    assert!(limited.to_string().contains("calls_per_minute"), "{limited}");
    let before = spy.calls();
    let stale = act(
        &program,
        "config_set",
        json!({"key": "calls.limits.calls_per_minute", "value": 5, "expected_version": 7}),
    );
    assert_eq!(stale["domain_code"], "conflict", "{stale}");
    assert_eq!(
        act(&program, "config_reset", json!({"key": "calls.limits.calls_per_minute"}))["data"]["value"],
        0
    );
    assert!(!echo().to_string().contains("calls_per_minute"));
    assert_eq!(spy.calls(), before);
    let start = act(&program, "config_set", json!({"key": "gateway.mode", "value": "ci"}));
    assert_eq!(
        (&start["domain_code"], &start["error_type"]),
        (&json!("not_supported"), &json!("NotSupportedInMCP")),
        "{start}"
    );
    assert_eq!(
        act(&program, "config_set", json!({"key": "no.such", "value": 1}))["domain_code"],
        "not_found"
    );
    assert_eq!(
        act(&program, "config_set", json!({"key": "approvals.wait", "value": 5}))["domain_code"],
        "invalid_argument"
    );
    // ADM-54: what takes two operators can be changed too, and then takes two itself.
    assert_eq!(
        act(&program, "config_set", json!({"key": "admin.four_eyes", "value": ["config:admin"]}))["status"],
        "ok"
    );
    let waits = act(&program, "config_reset", json!({"key": "admin.four_eyes"}));
    assert!(waits["data"]["pending_approval"].is_string(), "{waits}");
    daemon.stop();
    let daemon = home.serve();
    let program = Program::new_named(&home, &daemon, "again");
    let still = act(&program, "config_reset", json!({"key": "admin.four_eyes"}));
    assert!(still["data"]["pending_approval"].is_string(), "after a restart: {still}");
    daemon.stop();
    home.verify();
}

#[test]
fn a_backup_is_whole_and_the_next_start_can_begin_with_it() {
    // admin §12: backups
    let home = open_home();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let backup = act(&program, "backups_create", json!({"label": "before"}));
    let id = backup["data"]["backup_id"].as_str().unwrap_or_else(|| panic!("{backup}")).to_owned();
    let verified = program.call("portcullis_backups_verify", &json!({"backup_id": id}).to_string()).json();
    assert_eq!(
        (&verified["data"]["digest"], &verified["data"]["checkpoint"]),
        (&json!(true), &json!(true)),
        "{verified}"
    );
    home.json(&["mcp", "remove", "spy", "--reason", "for a test"]);
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    let plan = act(&program, "backups_restore", json!({"backup_id": id}));
    assert_eq!(plan["data"]["backup_id"], json!(id), "{plan}");
    assert_eq!(home.json(&["mcp", "list"]), json!([]), "nothing changes before the next start");
    daemon.stop();
    let daemon = home.serve();
    assert_eq!(home.json(&["mcp", "list"])[0]["name"], "spy", "as it was");
    daemon.stop();
    home.verify();
    // One that was changed is not restored.
    let daemon = home.serve();
    let program = Program::new_named(&home, &daemon, "again");
    let other = act(&program, "backups_create", json!({}));
    let id = other["data"]["backup_id"].as_str().unwrap().to_owned();
    std::fs::write(home.path().join("backups").join(&id).join("extra"), "x").unwrap();
    assert_eq!(act(&program, "backups_restore", json!({"backup_id": id}))["domain_code"], "conflict");
    daemon.stop();
}

#[test]
fn a_credential_is_captured_past_the_tools() {
    // ADM-24, SO-31
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let canary = "canary-credential-7733";
    let refused = act(
        &program,
        "credentials_capture",
        json!({"name": "sk-ant-REDACTED-canary-canary", "kind": "token"}),
    );
    assert_eq!(refused["domain_code"], "invalid_argument", "{refused}");
    assert!(!refused.to_string().contains("sk-ant"), "refused without an echo");
    let waiting = act(&program, "credentials_capture", json!({"name": "tickets", "kind": "token"}));
    let id = waiting["data"]["capture_id"].as_str().unwrap_or_else(|| panic!("{waiting}")).to_owned();
    let mut child = home
        .command()
        .args(["admin", "capture", &id, "--fd", "0"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(canary.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    let listed = program.call("portcullis_credentials_list", "{}").json();
    assert_eq!(
        (&listed["data"][0]["name"], &listed["data"][0]["version"]),
        (&json!("tickets"), &json!(1)),
        "{listed}"
    );
    // The same name is another value of it.
    let again = act(&program, "credentials_capture", json!({"name": "tickets", "kind": "token"}));
    let url = again["data"]["url"].as_str().unwrap().trim_start_matches(&daemon.console).to_owned();
    assert_eq!(program.post(&url, "canary-credential-8844").status, 200);
    assert_eq!(program.post(&url, "x").status, 404, "once");
    let listed = program.call("portcullis_credentials_list", "{}").json();
    assert_eq!(listed["data"][0]["version"], 2);
    let unknown = act(
        &program,
        "credentials_bind",
        json!({"name": "tickets", "server_id": "spy", "credential_class": "none.such"}),
    );
    assert_eq!(unknown["domain_code"], "invalid_argument", "{unknown}");
    let kept = act(&program, "credentials_unbind", json!({"name": "tickets", "server_id": "spy"}));
    assert_eq!(kept["data"]["withheld_from"], json!(["spy"]), "{kept}");
    daemon.stop();
    let log = serde_json::to_string(&home.log()).unwrap();
    assert!(!log.contains("canary-credential"), "in no record");
    home.verify();
}

#[test]
fn an_approval_can_be_asked_for_ahead_and_taken_back() {
    // admin §12: approvals_create, approvals_withdraw
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let ask = |text: &str| {
        let args = json!({"tool": "spy/echo", "arguments": {"text": text}, "justification": "tonight's run"});
        program.call("portcullis_approvals_create", &args.to_string()).json()
    };
    let asked = ask("tonight");
    assert_eq!(
        (&asked["data"]["status"], &asked["data"]["requested_by"]),
        (&json!("pending"), &json!("agent:local")),
        "{asked}"
    );
    let id = asked["data"]["approval_id"].as_str().unwrap().to_owned();
    home.json(&["approve", "grant", &id, "--scope", "once", "--reason", "fine", "--yes"]);
    let called = daemon.call("spy__echo", &json!({"text": "tonight"})).unwrap();
    assert_eq!(called["result"]["structuredContent"]["text"], "tonight", "the same fingerprint: {called}");
    let other = ask("another")["data"]["approval_id"].clone();
    let gone =
        program.call("portcullis_approvals_withdraw", &json!({"approval_id": other}).to_string()).json();
    assert_eq!(gone["data"]["status"], "withdrawn", "{gone}");
    let bad = program
        .call("portcullis_approvals_create", r#"{"tool":"spy/none","arguments":{},"justification":"x"}"#)
        .json();
    assert_eq!(bad["domain_code"], "not_found", "{bad}");
    daemon.stop();
    home.verify();
}

#[test]
fn declarations_are_shown_compared_handed_in_and_rejected() {
    // admin §12: declarations
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    let program = Program::new(&home, &daemon);
    let read =
        |tool: &str, args: Value| program.call(&format!("portcullis_{tool}"), &args.to_string()).json();
    let first = read("declarations_get", json!({"server_id": "spy", "version": "1"}));
    assert_eq!(first["data"]["state"], "accepted", "{first}");
    let handed = read("declarations_submit", json!({"server_id": "spy", "declaration": spy.declaration()}));
    assert_eq!(
        (&handed["data"]["version"], &handed["data"]["problems"]),
        (&json!("s1"), &json!([])),
        "{handed}"
    );
    let bad = read("declarations_submit", json!({"server_id": "spy", "declaration": "no: yes"}));
    assert!(!bad["data"]["problems"].as_array().unwrap().is_empty(), "{bad}");
    let diff = read("declarations_diff", json!({"server_id": "spy", "from": "1", "to": "s1"}));
    assert_eq!((&diff["data"]["added"], &diff["data"]["changed"]), (&json!([]), &json!([])), "{diff}");
    let rejected = act(&program, "declarations_reject", json!({"server_id": "spy", "version": "s1"}));
    assert_eq!(rejected["data"]["state"], "rejected", "{rejected}");
    assert_eq!(
        act(&program, "declarations_reject", json!({"server_id": "spy", "version": "s1"}))["domain_code"],
        "conflict"
    );
    assert_eq!(
        read("declarations_get", json!({"server_id": "spy", "version": "9"}))["domain_code"],
        "not_found"
    );
    let drafted = read("declarations_draft", json!({"server_id": "spy"}));
    assert!(drafted["data"]["declaration"].as_str().unwrap_or_default().contains("echo"), "{drafted}");
    daemon.stop();
    home.verify();
}

#[test]
fn a_process_is_started_anew_and_keys_turns_and_permits_are_told() {
    // admin §12: processes_restart, keys_rotate, locks_list, permits_check
    let (home, spy) = guarded_spy("");
    let daemon = home.serve();
    daemon.approved_call(&home, "spy__echo", &json!({"text": "x"})).unwrap();
    let program = Program::new(&home, &daemon);
    let before = spy.processes();
    let restarted = act(&program, "processes_restart", json!({"server_id": "spy"}));
    assert!(!restarted["data"]["restarted"].as_array().unwrap().is_empty(), "{restarted}");
    daemon.approved_call(&home, "spy__echo", &json!({"text": "y"})).unwrap();
    assert_ne!(spy.processes(), before, "another process answers");
    let wrong = act(&program, "processes_restart", json!({"server_id": "spy", "process_id": 1}));
    assert_eq!(wrong["domain_code"], "not_found", "{wrong}");
    let rotated = act(&program, "keys_rotate", json!({"purpose": "log"}));
    assert!(rotated["data"]["kid"].is_string(), "{rotated}");
    assert_eq!(act(&program, "keys_rotate", json!({"purpose": "artifact"}))["domain_code"], "not_supported");
    assert_eq!(program.call("portcullis_locks_list", "{}").json()["data"], json!([]));
    assert_eq!(act(&program, "locks_release", json!({"lock_id": "lock_x"}))["domain_code"], "not_found");
    let permits = program.call("portcullis_permits_list", "{}").json();
    let permit = permits["data"][0]["permit_id"].clone();
    let args = json!({"permit_id": permit, "arguments": {"text": "x"}}).to_string();
    let checks = program.call("portcullis_permits_check", &args).json();
    let verdict = |name: &str| {
        checks["data"].as_array().unwrap().iter().find(|row| row["check"] == name).unwrap()["passes"].clone()
    };
    assert_eq!(checks["data"].as_array().unwrap().len(), 8, "{checks}");
    assert_eq!(
        (verdict("authenticity"), verdict("tool_identity")),
        (json!(false), json!(true)),
        "it was used: {checks}"
    );
    let found = program.call("portcullis_imports_scan", "{}").json();
    assert!(found["data"].is_array(), "{found}");
    daemon.stop();
    home.verify();
}

#[test]
fn servers_of_a_client_are_found_with_their_secrets_masked_and_drafted() {
    // admin §12: imports
    let home = Home::new("");
    let user = home.beside("user");
    std::fs::create_dir_all(&user).unwrap();
    let command = crate::support::program("spyd");
    let config = json!({"mcpServers": {
        "plain": {"command": command, "args": []},
        "secret": {"command": command, "args": [], "env": {"API_TOKEN": "canary-env-9911"}},
        "relative": {"command": "npx", "args": ["x"]},
    }});
    std::fs::write(user.join(".mcp.json"), config.to_string()).unwrap();
    let run = |tool: &str, args: &str| {
        let output =
            home.command().env("HOME", &user).args(["admin", "call", tool, "--json", args]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let found = run("imports_scan", r#"{"source":"mcp_json"}"#);
    assert!(!found.contains("canary-env-9911") && found.contains("API_TOKEN=***"), "{found}");
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["data"].as_array().unwrap().len(), 3, "{found}");
    let names = r#"{"source":"mcp_json","server_names":["secret","relative","absent"],"confirm":true,"reason":"for a test"}"#;
    let imported: Value = serde_json::from_str(&run("imports_run", names)).unwrap();
    assert_eq!(imported["data"]["drafted"], json!([]), "{imported}");
    assert_eq!(imported["data"]["problems"].as_array().unwrap().len(), 3, "{imported}");
    home.verify();
}
