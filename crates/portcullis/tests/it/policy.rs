//! Policy as operators meet it: checked, applied without a restart, rolled back, explained (GOV §8, §15).

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::support::{Home, Operator, Spy, eventually, guarded_spy, open_home};

const QUICK: &str = "[approvals]\nwait = \"300ms\"\n";
const NO_ADDING: &str = r#"@id("mine/no-adding")
forbid (principal, action == Portcullis::Action::"invoke", resource) when { resource.name == "add" };"#;

fn bundle(home: &Home, name: &str, policy: &str, settings: &str) -> String {
    let dir: PathBuf = home.beside(name);
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("mine.cedar"), policy).unwrap();
    if !settings.is_empty() {
        fs::write(dir.join("settings.toml"), settings).unwrap();
    }
    dir.to_str().unwrap().to_owned()
}

fn code(response: &Value) -> &str {
    response["error"]["data"]["error"].as_str().unwrap_or_default()
}

#[test]
fn a_policy_is_in_force_at_once_survives_a_restart_and_can_be_rolled_back() {
    // GOV-801
    let (home, spy) = guarded_spy(QUICK);
    let daemon = home.serve();
    let add = json!({"a": 1, "b": 2});
    assert_eq!(code(&daemon.call("spy__add", &add).unwrap()), "AUTH_REQUIRED");
    let dir = bundle(&home, "policies", NO_ADDING, "");
    let applied = home.json(&["policy", "apply", &dir, "--reason", "no sums"]);
    assert!(applied["version"].as_str().unwrap().starts_with("2:"), "{applied}");
    let denied = daemon.call("spy__add", &add).unwrap();
    assert_eq!(code(&denied), "POLICY_DENIED");
    assert_eq!(denied["error"]["data"]["details"]["reasons"], json!(["mine/no-adding"]));
    let again = home.fails(&["policy", "apply", &dir, "--reason", "twice"]);
    assert_eq!((again.0, &again.1["code"]), (1, &json!("CONFLICT")));
    daemon.stop();

    let daemon = home.serve();
    assert_eq!(
        code(&daemon.call("spy__add", &add).unwrap()),
        "POLICY_DENIED",
        "it is in force after a restart"
    );
    let shown = home.json(&["policy", "show"]);
    assert_eq!((&shown["version"], &shown["in_force"]), (&applied["version"], &json!(true)));
    assert_eq!(shown["by"], applied["by"], "who applied it is known after a restart");
    assert!(shown["policies"].as_array().unwrap().contains(&json!("mine/no-adding")), "{shown}");
    let first = home.json(&["policy", "show", "1"]);
    assert_eq!((&first["in_force"], &first["by"]), (&json!(false), &json!("system:portcullis")));

    let back = home.json(&["policy", "rollback", "--reason", "sums are needed"]);
    assert!(back["version"].as_str().unwrap().starts_with("3:"), "history is not rewritten: {back}");
    assert_eq!(back["version"].as_str().unwrap()[2..], first["version"].as_str().unwrap()[2..]);
    assert_eq!(code(&daemon.call("spy__add", &add).unwrap()), "AUTH_REQUIRED");
    assert_eq!(home.fails(&["policy", "rollback", "9", "--reason", "x"]).0, 8);
    assert_eq!(home.fails(&["policy", "rollback", "3", "--reason", "x"]).0, 1);
    assert_eq!(home.fails(&["policy", "rollback", "2", "--reason", " "]).0, 7);
    daemon.stop();

    // The configuration is the operator's latest word if it changes.
    fs::write(home.path().join("portcullis.toml"), format!("{QUICK}[policy]\npreset = \"balanced\"\n"))
        .unwrap();
    let shown = home.json(&["policy", "show"]);
    assert_eq!(shown["bundle"]["preset"], "balanced");
    assert_eq!(home.events("policy.activated").len(), 4);
    assert_eq!(spy.calls(), 0);
    home.verify();
}

#[test]
fn a_bundle_with_a_mistake_changes_nothing() {
    // GOV-801
    let (home, _spy) = guarded_spy(QUICK);
    let before = home.json(&["policy", "show"])["version"].clone();
    let unknown = "permit (principal, action, resource) when { resource.colour == \"red\" };";
    let bad = bundle(&home, "bad", unknown, "");
    let (exit, error) = home.fails(&["policy", "validate", &bad]);
    assert_eq!((exit, &error["field"]), (7, &json!("policy")));
    assert!(error["message"].as_str().unwrap().contains("mine.cedar#0"), "{error}");
    assert_eq!(home.fails(&["policy", "apply", &bad, "--reason", "x"]).0, 7);
    let odd = bundle(&home, "odd", NO_ADDING, "[tier]\nmax = 7\n");
    assert!(
        home.fails(&["policy", "validate", &odd]).1["message"].as_str().unwrap().contains("settings.toml")
    );
    assert_eq!(home.fails(&["policy", "validate", &odd, "--preset", "lax"]).1["field"], "preset");
    let good = bundle(&home, "good", NO_ADDING, "[tier]\nmax = 3\n");
    assert_eq!(home.json(&["policy", "validate", &good])["valid"], true);
    assert_eq!(home.json(&["policy", "show"])["version"], before);
    assert_eq!(home.events("policy.activated").len(), 1);
}

#[test]
fn a_permit_of_the_policy_before_dies() {
    // GOV-801, T-PER-9
    let home = open_home();
    let spy = crate::support::Spy::new(&home);
    spy.register(&home);
    let warm = home.serve();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| warm.call("spy__echo", &json!({"text": "a"})));
        home.grant_next("until-version-change");
        assert!(call.join().unwrap().unwrap()["result"].is_object());
    });
    warm.stop();
    let dir = bundle(&home, "policies", NO_ADDING, "");
    let daemon = home.serve_with("permit.after_issue=sleep(3000)");
    let left = || home.json(&["approve", "list", "--status", "approved"])[0]["uses_left"].as_u64().unwrap();
    let before = left();
    let response = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("spy__echo", &json!({"text": "b"})).unwrap());
        eventually("the permit to be issued", || (left() < before).then_some(()));
        home.json(&["policy", "apply", &dir, "--preset", "observe", "--reason", "while a permit is out"]);
        call.join().unwrap()
    });
    assert_eq!(response["error"]["data"]["details"]["check"], "expiry", "{response}");
    daemon.stop();
    assert_eq!(spy.calls(), 1);
    assert_eq!(home.events("execution.denied").len(), 1);
    home.verify();
}

#[test]
fn a_call_is_explained_without_being_made() {
    // GOV §15
    let (home, spy) = guarded_spy(QUICK);
    let args = r#"{"a": 1, "b": 2}"#;
    let explained = home.json(&["policy", "explain", "--tool", "spy__add", "--args", args]);
    assert_eq!(explained["decision"], "approval");
    assert_eq!(explained["reasons"], json!(["base/untrusted-asks"]));
    assert_eq!((&explained["scopes"], &explained["quorum"]), (&json!(["once"]), &json!(1)));
    let dir = bundle(&home, "policies", NO_ADDING, "");
    home.json(&["policy", "apply", &dir, "--reason", "no sums"]);
    let denied = home.run(&["--output", "json", "policy", "explain", "--tool", "spy/add", "--args", args]);
    assert_eq!(denied.status.code(), Some(4));
    let document: Value = serde_json::from_slice(&denied.stdout).unwrap();
    assert_eq!((&document["decision"], &document["quorum"]), (&json!("deny"), &Value::Null));
    assert_eq!(home.fails(&["policy", "explain", "--tool", "spy/add", "--args", "{}"]).0, 7);
    assert_eq!(home.fails(&["policy", "explain", "--tool", "spy/sub"]).0, 8);
    assert_eq!(spy.calls(), 0);
    assert!(home.events("proposal.received").is_empty());
}

#[test]
fn settings_decide_about_tiers_and_surfaces() {
    // GOV-806, GOV-502
    let home = Home::new(QUICK);
    let spy = crate::support::Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let mut args = spy.add_args(&file);
    let at = args.iter().position(|arg| arg == "--").unwrap();
    args.splice(at..at, ["--trust-tier".into(), "3".into()]);
    home.json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let tier = || home.json(&["mcp", "list"])[0]["tier"].clone();
    assert_eq!(tier(), json!({"requested": 3, "assigned": 1}));
    let dir = bundle(&home, "wide", NO_ADDING, "[tier.servers]\nspy = 2\n[modes]\ndynamic = []\n");
    home.json(&["policy", "apply", &dir, "--reason", "known for years"]);
    assert_eq!(tier(), json!({"requested": 3, "assigned": 2}), "at once, and after a restart");

    let dynamic = spy.declaration().replace("surface: static", "surface: dynamic, refresh: { max_age: 60s }");
    fs::write(&file, dynamic.replace("identity: spy,", "identity: other,")).unwrap();
    let mut args = spy.add_args(&file);
    args[2] = "other".into();
    let at = args.iter().position(|arg| arg == "--").unwrap();
    args.splice(at..at, ["--surface".into(), "dynamic".into()]);
    let (exit, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((exit, &error["field"]), (7, &json!("surface")), "{error}");
}

#[test]
fn a_policy_is_tried_on_past_calls_and_what_they_sent_is_opened_only_if_it_reads_that() {
    // AUD-44, SO-41, admin §12: policies_validate
    let home = open_home();
    let spy = Spy::new(&home);
    spy.register(&home);
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    for text in ["one", "two"] {
        let answer = daemon.call("spy__echo", &json!({"text": text})).unwrap();
        assert!(answer["result"].is_object(), "{answer}");
    }
    drop(operator);
    let program = Program::new(&home, &daemon);
    let records = home.log().len();
    let tried = |bundle: Value| {
        let reply = program.call("policies_validate", &json!({"bundle": bundle}).to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()["data"].clone()
    };
    let same = tried(json!({"preset": "observe"}));
    assert_eq!((&same["compared"], &same["changed"]), (&json!(2), &json!([])), "{same}");
    let forbids = |condition: &str| {
        let text = format!(
            "@id(\"no-echo\")\nforbid (principal, action == Portcullis::Action::\"invoke\", resource) when {{ {condition} }};\n"
        );
        json!({"preset": "observe", "files": [{"name": "own.cedar", "text": text}]})
    };
    let named = tried(forbids("resource.name == \"echo\""));
    assert_eq!(named["changed"].as_array().unwrap().len(), 2, "{named}");
    assert_eq!(named["changed"][0]["then"], "deny", "{named}");
    assert_eq!(home.log().len(), records, "looking left nothing");
    let by_text = "context.call.hasTag(\"/text\") && context.call.getTag(\"/text\") == \"two\"";
    let read = tried(forbids(by_text));
    assert_eq!(read["changed"].as_array().unwrap().len(), 1, "{read}");
    let opened = home.events("audit.evidence_read");
    assert_eq!((opened.len(), &opened[0]["data"]["reason"]), (1, &json!("compare policies")));
    assert_ne!(opened[0]["actor"], "system", "{}", opened[0]);
    daemon.stop();
    home.verify();
}
