//! Approvals and the operators behind them: bound to exact arguments, taken once, by who may (GOV §9, GOV-104).

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::support::{Daemon, Home, Spy, eventually, guarded_spy};

const QUICK: &str = "[approvals]\nwait = \"300ms\"\n";
const WITH_PASSPHRASES: &str = "[approvals]\nwait = \"300ms\"\n[operator]\nauth = [\"passphrase\"]\n";

fn details(response: &Value) -> &Value {
    &response["error"]["data"]["details"]
}

fn code(response: &Value) -> &str {
    response["error"]["data"]["error"].as_str().unwrap_or_default()
}

/// The approval that a call was told to come back with.
pub(crate) fn waiting(response: &Value) -> String {
    assert_eq!(code(response), "AUTH_REQUIRED", "{response}");
    details(response)["approval_id"].as_str().unwrap().to_owned()
}

/// Runs a command with a passphrase on descriptor 3 and a new one on 4.
pub(crate) fn with_passphrases(home: &Home, args: &[&str], own: &str, new: &str) -> Output {
    let (own_file, new_file) = (home.beside("own"), home.beside("new"));
    fs::write(&own_file, format!("{own}\n")).unwrap();
    fs::write(&new_file, format!("{new}\n")).unwrap();
    let script = r#"exec "$0" "$@" 3<"$OWN" 4<"$NEW""#;
    Command::new("/bin/sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_portcullis"), "--home"])
        .arg(home.path())
        .args(["--output", "json"])
        .args(args)
        .env("OWN", own_file)
        .env("NEW", new_file)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

pub(crate) fn answer(output: &Output) -> (i32, Value) {
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), document)
}

pub(crate) fn enrol(home: &Home, name: &str, passphrase: &str) {
    let output =
        with_passphrases(home, &["operator", "enrol", name, "--new-passphrase-fd", "4"], "", passphrase);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Runs a command as an operator with a passphrase.
pub(crate) fn decide(home: &Home, who: &str, passphrase: &str, args: &[&str]) -> (i32, Value) {
    let args = [&["--operator", who, "--passphrase-fd", "3"], args].concat();
    answer(&with_passphrases(home, &args, passphrase, ""))
}

#[test]
fn an_agent_without_the_passphrase_decides_nothing() {
    // T-APR-1, T-REG-5, GOV-104
    let home = Home::new(WITH_PASSPHRASES);
    enrol(&home, "ana", "ana likes quiet gates");
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let add: Vec<String> = spy.add_args(&file);
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    let (exit, error) = home.fails(&add);
    assert_eq!((exit, &error["code"]), (6, &json!("OPERATOR_AUTH")), "{error}");
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    let (exit, record) = decide(&home, "ana", "ana likes quiet gates", &add);
    assert_eq!((exit, &record["registered_by"]), (0, &json!("operator:ana")), "{record}");

    let daemon = home.serve();
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    let grant = ["approve", "grant", &id, "--reason", "mine", "--yes"];
    assert_eq!(home.fails(&grant).0, 6);
    assert_eq!(decide(&home, "ana", "ana likes loud gates!", &grant).0, 6);
    assert_eq!(decide(&home, "bob", "ana likes quiet gates", &grant).0, 6);
    let second = ["operator", "enrol", "eve", "--new-passphrase-fd", "4"];
    let enrolled = with_passphrases(&home, &second, "", "eve would like that");
    assert_eq!(enrolled.status.code(), Some(6), "only the first is enrolled without an operator");
    assert_eq!(home.events("operator.auth_failed").len(), 5);

    let (exit, granted) = decide(&home, "ana", "ana likes quiet gates", &grant);
    assert_eq!((exit, &granted["decisions"][0]["method"]), (0, &json!("passphrase")), "{granted}");
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    // Nothing on record or in what is kept is the passphrase.
    let text = serde_json::to_string(&home.log()).unwrap();
    assert!(!text.contains("quiet gates"));
    home.verify();
}

#[test]
fn a_user_that_was_once_an_agent_is_no_operator_for_being_that_user_ever_after() {
    // GOV-104 `uid`: also when no gateway runs, and after one that knows nothing of it was started.
    let home = Home::new("[gateway]\nmode = \"team\"\n[operator]\nauth = [\"uid\"]\n");
    let spy = Spy::new(&home);
    let mut add = spy.flagged(&home, &spy.declaration(), &[]);
    let mode = add.iter().position(|arg| arg == "local").unwrap();
    add[mode] = "team".into();
    home.json_of(&add);
    let halt = ["mcp", "halt", "spy", "--reason", "to see who may"];
    let daemon = home.serve();
    assert_eq!(home.json(&halt)["state"], "halted", "nobody but the operator was here yet");
    daemon.list_tools();
    let resume = ["mcp", "resume", "spy", "--reason", "to see who may"];
    let (exit, error) = home.fails(&resume);
    assert_eq!((exit, &error["code"]), (6, &json!("OPERATOR_AUTH")), "{error}");
    daemon.stop();
    assert_eq!(home.fails(&resume).0, 6, "without a gateway");
    let daemon = home.serve();
    assert_eq!(home.fails(&resume).0, 6, "with another one");
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "halted");
    daemon.stop();
    // What proves more than a user is still believed.
    fs::write(
        home.path().join("portcullis.toml"),
        "[gateway]\nmode = \"team\"\n[operator]\nauth = [\"passphrase\"]\n",
    )
    .unwrap();
    enrol(&home, "ana", "ana likes quiet gates");
    let (exit, resumed) = decide(&home, "ana", "ana likes quiet gates", &resume);
    assert_eq!((exit, &resumed["state"]), (0, &json!("active")), "{resumed}");
    home.verify();
}

#[test]
fn guessing_is_slow() {
    // GOV-104: five failures within a minute lock the method.
    let home = Home::new(WITH_PASSPHRASES);
    enrol(&home, "ana", "ana likes quiet gates");
    let daemon = home.serve();
    let key = ["key", "create", "ci"];
    for guess in 0..5 {
        assert_eq!(decide(&home, "ana", &format!("a guess, number {guess}"), &key).0, 6);
    }
    let (exit, refused) = decide(&home, "ana", "ana likes quiet gates", &key);
    assert_eq!(exit, 6, "also who knows it waits: {refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("too many failures"), "{refused}");
    assert_eq!(home.json(&["key", "list"]), json!([]), "looking is still possible");
    daemon.stop();
}

#[test]
fn an_approval_is_for_these_arguments_once() {
    // T-APR-2, GOV-904
    let (home, spy) = guarded_spy(QUICK);
    let daemon = home.serve();
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    assert_eq!(waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap()), id, "equal requests join");
    home.json(&["approve", "grant", &id, "--reason", "fine", "--yes"]);
    let other = waiting(&daemon.call("spy__echo", &json!({"text": "b"})).unwrap());
    assert_ne!(other, id, "a changed byte is another call");
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());
    assert_ne!(waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap()), id, "it was for one time");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    home.verify();
}

fn two_operators(home: &Home) -> (Daemon, Spy) {
    let spy = Spy::new(home);
    spy.register(home);
    enrol(home, "ana", "ana likes quiet gates");
    enrol(home, "bob", "bob likes open doors");
    (home.serve(), spy)
}

#[test]
fn a_quorum_is_people_and_not_names() {
    // GOV-905, ADM-54: one user enrolled both, and could be both.
    let home = Home::new(&format!(
        "{QUICK}[operator]\nauth = [\"uid\", \"passphrase\"]\n[policy]\ndir = \"policies\"\n"
    ));
    fs::create_dir(home.path().join("policies")).unwrap();
    let two = r#"@id("mine/two") forbid (principal, action == Portcullis::Action::"invoke", resource)
        when { context.approval.scope != "none" && context.approval.approvers < 2 };"#;
    fs::write(home.path().join("policies/two.cedar"), two).unwrap();
    let (daemon, spy) = two_operators(&home);
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    let grant = ["approve", "grant", &id, "--reason", "fine", "--yes"];
    let (_, first) = decide(&home, "ana", "ana likes quiet gates", &grant);
    assert_eq!(first["state"], "pending", "{first}");
    let (exit, second) = decide(&home, "bob", "bob likes open doors", &grant);
    assert_eq!((exit, &second["error"]["code"]), (1, &json!("CONFLICT")), "{second}");
    assert!(second["error"]["message"].as_str().unwrap().contains("you count as ana"), "{second}");
    // Nor does who enrolled them count besides.
    let by_user = home.fails(&grant);
    assert_eq!(by_user.1["code"], "CONFLICT", "{by_user:?}");
    assert_eq!(waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap()), id);
    daemon.stop();
    assert_eq!(spy.calls(), 0);
    home.verify();
}

#[test]
fn two_operators_decide_where_policy_wants_two_and_nobody_decides_twice() {
    // T-APR-3, GOV-905
    let home = Home::new(&format!(
        "{QUICK}[operator]\nauth = [\"uid\", \"passphrase\"]\n[admin]\nfounders = [\"ana\", \"bob\"]\n[policy]\ndir = \"policies\"\n"
    ));
    fs::create_dir(home.path().join("policies")).unwrap();
    let two = r#"@id("mine/two") forbid (principal, action == Portcullis::Action::"invoke", resource)
        when { context.approval.scope != "none" && context.approval.approvers < 2 };"#;
    fs::write(home.path().join("policies/two.cedar"), two).unwrap();
    let (daemon, spy) = two_operators(&home);
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    let grant = ["approve", "grant", &id, "--reason", "fine", "--yes"];
    let (exit, first) = decide(&home, "ana", "ana likes quiet gates", &grant);
    assert_eq!((exit, &first["state"]), (0, &json!("pending")), "{first}");
    let (exit, again) = decide(&home, "ana", "ana likes quiet gates", &grant);
    assert_eq!((exit, &again["error"]["code"]), (1, &json!("CONFLICT")), "{again}");
    assert_eq!(waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap()), id);
    let (_, second) = decide(&home, "bob", "bob likes open doors", &grant);
    assert_eq!(second["state"], "approved", "{second}");
    let late = home.fails(&["approve", "deny", &id, "--reason", "too late"]);
    assert_eq!((late.0, &late.1["code"]), (1, &json!("CONFLICT")));
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    home.verify();
}

#[test]
fn nobody_approves_what_it_asks_for_itself() {
    // T-APR-3, GOV-905: an agent that has an operator's name is that person.
    let home = Home::new(&format!("{QUICK}[operator]\nauth = [\"uid\", \"passphrase\"]\n"));
    let (daemon, spy) = two_operators(&home);
    let key = home.json(&["key", "create", "ana"])["key"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {key}");
    let headers = [
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "spy__echo"),
    ];
    let params =
        json!({"name": "spy__echo", "arguments": {"text": "a"}, "_meta": crate::support::modern_meta()});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let id = waiting(&daemon.post(&headers, &call).unwrap().json());
    let grant = ["approve", "grant", &id, "--reason", "mine", "--yes"];
    let (exit, own) = decide(&home, "ana", "ana likes quiet gates", &grant);
    assert_eq!((exit, &own["error"]["code"]), (1, &json!("CONFLICT")), "{own}");
    assert_eq!(decide(&home, "bob", "bob likes open doors", &grant).0, 0);
    assert!(daemon.post(&headers, &call).unwrap().json()["result"].is_object());
    daemon.stop();
    assert_eq!(spy.calls(), 1);
}

#[test]
fn a_wide_grant_has_an_envelope_is_used_and_can_be_taken_back() {
    // GOV-1201, GOV-906
    let (home, spy) = guarded_spy("[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    home.json(&["approve", "grant", &id, "--scope", "until-version-change", "--reason", "known", "--yes"]);
    for text in ["a", "b", "c"] {
        assert!(daemon.call("spy__echo", &json!({"text": text})).unwrap()["result"].is_object());
    }
    let grants = home.json(&["grants", "list"]);
    let envelope = &grants[0]["envelope"];
    assert_eq!((&envelope["uses_left"], &envelope["session"]), (&json!(997), &Value::Null), "{grants}");
    let used = home.events("envelope.used");
    assert_eq!(used.len(), 3);
    assert_eq!(used[0]["data"]["envelope_id"], envelope["envelope_id"]);
    assert_eq!(home.events("permit.issued")[0]["data"]["envelope_id"], envelope["envelope_id"]);

    assert_eq!(home.fails(&["grants", "revoke", &id, "--reason", " "]).0, 7);
    let revoked = home.json(&["grants", "revoke", &id, "--reason", "no longer"]);
    assert_eq!(revoked["state"], "revoked");
    assert_eq!(home.fails(&["grants", "revoke", &id, "--reason", "again"]).0, 1);
    waiting(&daemon.call("spy__echo", &json!({"text": "d"})).unwrap());
    assert_eq!(home.json(&["grants", "list"]), json!([]));
    daemon.stop();
    assert_eq!(spy.calls(), 3);
    assert_eq!(home.events("envelope.invalidated").len(), 1);
    // And not after a restart either.
    let daemon = home.serve();
    waiting(&daemon.call("spy__echo", &json!({"text": "e"})).unwrap());
    daemon.stop();
    home.verify();
}

#[test]
fn a_removed_and_registered_again_server_is_asked_about_again() {
    // T-APR-4 (the half without `mcp update`)
    let (home, spy) = guarded_spy("[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    home.json(&["approve", "grant", &id, "--scope", "until-version-change", "--reason", "known", "--yes"]);
    assert!(daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object());
    home.json(&["mcp", "remove", "spy", "--reason", "tidying"]);
    spy.register(&home);
    waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    home.verify();
}

#[test]
fn watching_tells_what_waits_and_what_became_of_it() {
    // GOV-903
    let (home, _spy) = guarded_spy(QUICK);
    assert_eq!(home.fails(&["approve", "watch"]).0, 5);
    let daemon = home.serve();
    let id = waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    let out = home.beside("watched.ndjson");
    let file = fs::File::create(&out).unwrap();
    let mut watch = home
        .command()
        .args(["--output", "ndjson", "approve", "watch", "--until-empty"])
        .stdout(file)
        .spawn()
        .unwrap();
    let lines = || fs::read_to_string(&out).unwrap().lines().count();
    eventually("the request to be told", || (lines() == 1).then_some(()));
    home.json(&["approve", "deny", &id, "--reason", "not today"]);
    let status = eventually("the watching to end", || watch.try_wait().unwrap());
    assert!(status.success());
    let text = fs::read_to_string(&out).unwrap();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<_> = told.iter().map(|approval| (&approval["approval_id"], &approval["state"])).collect();
    assert_eq!(states, [(&json!(id), &json!("pending")), (&json!(id), &json!("denied"))]);
    daemon.stop();
}

#[test]
fn accepting_may_grant_what_only_reads_in_the_same_step() {
    // GOV-1404
    let (home, spy) = guarded_spy("[approvals]\nwait = \"300ms\"\n[policy]\npreset = \"observe\"\n");
    let daemon = home.serve();
    let accepted = home.json(&["mcp", "accept", "spy", "--grant", "reads", "--reason", "an old friend"]);
    let granted = accepted["approvals_granted"].as_u64().unwrap();
    assert!(granted > 5, "{accepted}");
    let grants = home.json(&["grants", "list"]);
    assert_eq!(grants.as_array().unwrap().len() as u64, granted);
    assert!(grants.as_array().unwrap().iter().all(|grant| grant["scope"] == "until-version-change"
        && grant["decisions"][0]["reason"] == "an old friend"
        && !grant["tool_id"].as_str().unwrap().contains("write_thing")));
    // One step: what is accepted and what is granted are one commit.
    let log = home.log();
    let at = log.iter().rposition(|record| record["event"] == "declaration.accepted").unwrap();
    let last = log.iter().rposition(|record| record["event"] == "approval.recorded").unwrap();
    assert_eq!(log[at]["time"], log[last]["time"]);
    assert!(
        daemon.call("spy__echo", &json!({"text": "a"})).unwrap()["result"].is_object(),
        "nobody is asked"
    );
    let write = json!({"path": spy.workspace.join("a").to_str().unwrap(), "text": "x"});
    waiting(&daemon.call("spy__write_thing", &write).unwrap());
    daemon.stop();
    // It survives a restart, and ends with the declaration.
    let daemon = home.serve();
    assert!(daemon.call("spy__echo", &json!({"text": "b"})).unwrap()["result"].is_object());
    let all = home.json(&[
        "mcp",
        "accept",
        "spy",
        "--grant",
        "all",
        "--grant-to",
        "ci",
        "--reason",
        "for the pipeline",
    ]);
    assert_eq!(all["approvals_granted"].as_u64().unwrap(), granted + 1, "{all}");
    waiting(&daemon.call("spy__echo", &json!({"text": "a"})).unwrap());
    daemon.stop();
    assert_eq!(spy.calls(), 2);
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true);
}

#[test]
fn what_policy_wants_asked_about_is_not_granted_ahead() {
    // GOV-1404, GOV-805
    let (home, spy) = guarded_spy(QUICK);
    let before = home.json(&["mcp", "show", "spy"])["declaration_version"].clone();
    let (exit, error) = home.fails(&["mcp", "accept", "spy", "--grant", "reads", "--reason", "please"]);
    assert_eq!((exit, &error["code"]), (2, &json!("POLICY_DENIED")), "{error}");
    assert_eq!(home.json(&["mcp", "show", "spy"])["declaration_version"], before, "nothing was accepted");
    assert_eq!(home.json(&["grants", "list"]), json!([]));
    assert_eq!(spy.calls(), 0);
}

#[test]
fn a_client_that_listens_hears_every_five_seconds_that_its_call_waits_for_an_operator() {
    // GOV-904
    let (home, _spy) = guarded_spy("");
    let daemon = home.serve();
    let agent = crate::agent::Agent::open(&daemon, "2025-11-25");
    let params = json!({"name": "spy__echo", "arguments": {"text": "x"}, "_meta": {"progressToken": "mine"}});
    let mut stream = agent.begin("tools/call", params);
    let first = stream.next().unwrap();
    assert_eq!(first["method"], "notifications/progress", "{first}");
    assert_eq!(first["params"]["progressToken"], "mine");
    assert!(first["params"]["message"].as_str().unwrap().contains("operator"), "{first}");
    let second = stream.next().unwrap();
    assert!(second["params"]["progress"].as_f64() > first["params"]["progress"].as_f64(), "{second}");
    home.grant_next("once");
    assert_eq!(stream.last().unwrap()["result"]["structuredContent"]["text"], "x");
    daemon.stop();
    home.verify();
}
