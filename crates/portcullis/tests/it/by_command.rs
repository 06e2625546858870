//! Commands are operations like all others: roles hold for them, and so does a second operator (ADM-1, ADM-54, ADM-71).

use std::fs;

use serde_json::{Value, json};

use crate::approvals::{answer, enrol, with_passphrases};
use crate::support::{Daemon, Home, Spy};

const PASSPHRASES: &str = "[approvals]\nwait = \"300ms\"\n[operator]\nauth = [\"passphrase\"]\n";
pub(crate) const ANN: (&str, &str) = ("ann", "ann likes quiet gates");
pub(crate) const BOB: (&str, &str) = ("bob", "bob likes heavy gates");

pub(crate) fn by(home: &Home, (name, passphrase): (&str, &str), args: &[&str]) -> (i32, Value) {
    let args = [&["--operator", name, "--passphrase-fd", "3"], args].concat();
    answer(&with_passphrases(home, &args, passphrase, "something that is new"))
}

/// A tool, called by command.
pub(crate) fn call(home: &Home, who: (&str, &str), tool: &str, args: Value) {
    let mut args = args;
    args["confirm"] = json!(true);
    args["reason"] = json!("for a test");
    let (exit, said) = by(home, who, &["admin", "call", tool, "--json", &args.to_string()]);
    assert_eq!((exit, &said["status"]), (0, &json!("ok")), "{said}");
}

/// Two operators, and a spy.
pub(crate) fn two_operators() -> Home {
    let home = Home::new(PASSPHRASES);
    enrol(&home, ANN.0, ANN.1);
    let enrolling =
        ["--operator", "ann", "--passphrase-fd", "3", "operator", "enrol", "bob", "--new-passphrase-fd", "4"];
    let (exit, said) = answer(&with_passphrases(&home, &enrolling, ANN.1, BOB.1));
    assert_eq!(exit, 0, "{said}");
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let add = spy.add_args(&file);
    let (exit, said) = by(&home, ANN, &add.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(exit, 0, "{said}");
    home
}

/// Every command that changes something and can be tried in any state.
fn commands(home: &Home, daemon: &Daemon) -> Vec<String> {
    daemon.call("spy__echo", &json!({"text": "x"})).unwrap();
    let pending = home.next_pending()["approval_id"].as_str().unwrap().to_owned();
    let sessions = home.json(&["session", "list"]);
    let session = sessions[0]["session_id"].as_str().unwrap();
    let out = home.beside("export");
    let keys = home.json(&["audit", "retention", "list"]);
    let key = keys[0]["key"].as_str().unwrap();
    let texts = [
        "key create ci".to_owned(),
        "key revoke local --reason x".into(),
        "operator enrol eve --new-passphrase-fd 4".into(),
        "operator remove ann --reason x".into(),
        "operator token create t".into(),
        "operator token revoke t --reason x".into(),
        "secret set s --class s.c --fd 4".into(),
        "secret rotate s --fd 4".into(),
        "secret rm s --reason x".into(),
        "sandbox waive --server spy --facility landlock --reason x --expires 1d".into(),
        "mcp halt spy --reason x".into(),
        "mcp resume spy --reason x".into(),
        "mcp test spy".into(),
        "mcp remove spy --reason x".into(),
        format!("approve grant {pending} --reason x --yes"),
        format!("approve deny {pending} --reason x"),
        "trust grant spy/echo --reason x".into(),
        "trust revoke spy/echo --reason x".into(),
        "policy rollback --reason x".into(),
        format!("session end {session} --reason x"),
        format!("checkpoint open {session} --reason x"),
        format!("checkpoint resolve {session} --reason x"),
        format!("audit export --out {}", out.display()),
        format!("audit export --cassette {}", out.display()),
        format!("audit retention hold {key} --reason x"),
        "audit retention run".into(),
        "audit unblock --reason x".into(),
        "audit rotate-signer --reason x".into(),
        "audit rebuild-index".into(),
        format!("audit replay {session}"),
        "catalog refresh".into(),
    ];
    texts.to_vec()
}

#[test]
fn an_operator_who_only_reads_changes_nothing_by_any_command() {
    // ADM-1, ADM-71
    let home = two_operators();
    let daemon = home.serve();
    call(&home, ANN, "roles_put", json!({"role_id": "auditor", "patterns": ["*:read"]}));
    call(&home, ANN, "users_put", json!({"user_id": "bob", "roles": ["auditor"], "enabled": true}));
    let (exit, whoami) = by(&home, BOB, &["admin", "call", "meta_whoami", "--json", "{}"]);
    assert_eq!(exit, 0, "{whoami}");
    let commands = commands(&home, &daemon);
    let records = home.log().len();
    for command in &commands {
        let (exit, said) = by(&home, BOB, &command.split(' ').collect::<Vec<_>>());
        assert_eq!((exit, &said["error"]["code"]), (8, &json!("NOT_FOUND")), "{command}: {said}");
        assert!(said["error"]["message"].as_str().unwrap().ends_with("for you"), "{command}: {said}");
    }
    assert_eq!(home.log().len(), records, "nothing is on record, because nothing happened");
    assert!(!home.beside("export").exists());
    daemon.stop();
    home.verify();
}

#[test]
fn a_second_operator_is_asked_whatever_command_is_used() {
    // ADM-54, SO-14
    let home = two_operators();
    fs::write(
        home.path().join("portcullis.toml"),
        format!("{PASSPHRASES}[admin]\nfour_eyes = [\"*:admin\"]\nfounders = [\"ann\", \"bob\"]\n"),
    )
    .unwrap();
    let daemon = home.serve();
    let commands = commands(&home, &daemon);
    let mut waiting = Vec::new();
    for command in &commands {
        // These decide, or destroy nothing and give no authority.
        if ["approve ", "audit rebuild-index", "catalog refresh"]
            .iter()
            .any(|start| command.starts_with(start))
        {
            continue;
        }
        let (_, said) = by(&home, ANN, &command.split(' ').collect::<Vec<_>>());
        assert_eq!(said["error"]["code"], "AUTH_REQUIRED", "{command}: {said}");
        let message = said["error"]["message"].as_str().unwrap();
        waiting.push(message.split(' ').find(|word| word.len() > 20).unwrap_or_default().to_owned());
    }
    assert!(home.events("credential.stored").is_empty() && home.events("server.halted").is_empty());
    assert_eq!(home.events("operator.enrolled").len(), 2);
    assert_eq!(home.json(&["key", "list"]), json!([]));
    assert_eq!(home.events("admin.op_deferred").len(), waiting.len());

    // The first was a key: who asked cannot agree, another can, and who asked fetches it past the tools.
    let grant = ["approve", "grant", &waiting[0], "--reason", "fine", "--yes"];
    let (exit, own) = by(&home, ANN, &grant);
    assert_eq!((exit, &own["error"]["code"]), (2, &json!("POLICY_DENIED")), "{own}");
    let (exit, agreed) = by(&home, BOB, &grant);
    assert_eq!((exit, &agreed["state"]), (0, &json!("approved")), "{agreed}");
    let capture = agreed["result"]["capture_id"].as_str().unwrap();
    let (exit, fetched) = by(&home, ANN, &["admin", "capture", capture]);
    let key = fetched["key"].as_str().unwrap_or_default();
    assert!(exit == 0 && key.starts_with("pck_"), "{exit}");
    assert_eq!(home.json(&["key", "list"])[0]["agent"], "ci");
    daemon.stop();
    assert!(!serde_json::to_string(&home.log()).unwrap().contains(key), "the key is in no record");
    home.verify();
}
