//! The commands as people and scripts use them.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Home, Spy, guarded_spy};

#[test]
fn up_shows_a_first_governed_call_with_its_receipt_and_can_be_repeated() {
    let home = Home::new("");
    for _ in 0..2 {
        let shown = home.json(&["up", "--once", "--yes", "--listen", "127.0.0.1:0"]);
        let receipt = &shown["receipt"];
        assert!(receipt["tool_id"].as_str().unwrap().starts_with("demo-notes/notes_search@"), "{shown}");
        assert_eq!(receipt["decision"], "approval");
        assert_eq!(receipt["rules"], json!(["base/untrusted-asks"]));
        assert_eq!(receipt["approval"]["outcome"], "met");
        assert!(receipt["permit"].is_string() && receipt["tokens"].as_u64().unwrap() > 0);
        assert!(receipt["intent_seq"].as_u64() < receipt["result_seq"].as_u64());
        assert!(
            shown["result"]["structuredContent"]["matches"].as_array().is_some_and(|found| !found.is_empty())
        );
    }
    home.verify();
    let text = home.run(&["up", "--once", "--yes", "--listen", "127.0.0.1:0"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for part in
        ["✓ gateway at http://127.0.0.1:", "Receipt", "rule", "base/untrusted-asks", "permit", "evidence"]
    {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_registered_server_is_listed_shown_and_tested() {
    let (home, _spy) = guarded_spy("");
    let list = home.json(&["mcp", "list"]);
    assert_eq!(list[0]["name"], "spy");
    assert_eq!(
        (&list[0]["state"], &list[0]["tools"], &list[0]["worst_trust"]),
        (&json!("active"), &json!(9), &json!("untrusted"))
    );
    let shown = home.json(&["mcp", "show", "spy"]);
    assert!(shown["registered_by"].as_str().unwrap().starts_with("operator:"));
    assert_eq!(shown["artifact_pins"][0]["role"], "binary");
    let test = home.json(&["mcp", "test", "spy"]);
    assert_eq!(
        (&test["reachable"], &test["declaration"]["match"], &test["version_ok"]),
        (&json!(true), &json!(true), &json!(true))
    );
    assert_eq!(home.fails(&["mcp", "show", "nobody"]).0, 8);
    assert_eq!(home.fails(&["mcp", "test", "nobody"]).0, 8);
    assert_eq!(home.fails(&["mcp", "show", "No Body"]).0, 7);
    let registered = home.events("server.registered");
    assert_eq!(registered[0]["actor"]["kind"], "operator");
    assert!(!home.events("server.probed").is_empty(), "looking at a server is recorded before it happens");
}

#[test]
fn a_server_that_differs_from_its_declaration_is_reported_by_test() {
    let (home, spy) = guarded_spy("");
    spy.control(&json!({"drop": ["add"], "extra_tool": "evil"}));
    let output = home.run(&["--output", "json", "mcp", "test", "spy"]);
    assert_eq!(output.status.code(), Some(7));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["declaration"]["added"], json!(["evil"]));
    assert_eq!(report["declaration"]["removed"], json!(["add"]));
}

#[test]
fn bad_registrations_change_nothing_and_say_what_is_wrong() {
    // GOV-202, GOV-302, T-REG-1, T-REG-3
    let home = Home::new("");
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    fs::write(&file, spy.declaration()).unwrap();
    let add = |change: &dyn Fn(&mut Vec<String>)| {
        let mut args = spy.add_args(&file);
        change(&mut args);
        home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let replace = |flag: &'static str, value: &'static str| {
        move |args: &mut Vec<String>| {
            let at = args.iter().position(|arg| arg == flag).unwrap() + 1;
            args[at] = value.to_owned();
        }
    };
    let command_at = |args: &Vec<String>| args.iter().position(|arg| arg == "--").unwrap() + 1;
    let cases: Vec<(&str, (i32, Value))> = vec![
        ("name", add(&|args| args[2] = "Spy".into())),
        ("server-version", add(&replace("--server-version", "1 0"))),
        ("justification", add(&replace("--justification", "\u{200b}"))),
        ("deployment-mode", add(&replace("--deployment-mode", "nowhere"))),
        ("capability-declaration", add(&replace("--capability-declaration", "/nonexistent.yaml"))),
        ("server-version", add(&replace("--server-version", "9.9.9"))),
        (
            "command",
            add(&|args| {
                let at = command_at(args);
                args[at] = "/usr/bin/npx".into();
            }),
        ),
        (
            "command",
            add(&|args| {
                let at = command_at(args);
                args[at] = "spyd".into();
            }),
        ),
        (
            "command",
            add(&|args| {
                let at = command_at(args);
                args[at] = "/nonexistent/spyd".into();
            }),
        ),
    ];
    for (field, (exit, error)) in cases {
        assert_eq!(exit, 7, "{error}");
        assert!(error["field"] == field || error["field"] == "capability-declaration", "{field}: {error}");
    }
    // The source's own example lacks three things; all are named at once.
    let (exit, error) = home.fails(&["mcp", "add", "spy", "--transport", "stdio", "--", "/bin/true"]);
    assert_eq!(exit, 7);
    for flag in ["--server-version", "--justification", "--deployment-mode"] {
        assert!(error["message"].as_str().unwrap().contains(flag), "{error}");
    }
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    assert_eq!(spy.calls(), 0);
}

#[test]
fn a_bad_declaration_is_refused_with_file_line_column_and_rule() {
    let home = Home::new("");
    let spy = Spy::new(&home);
    let file = home.beside("spy.yaml");
    let name = file.display().to_string();
    for (from, to, rule) in [
        ("kind: CapabilityDeclaration", "kind: CapabilityDeclaration\nkind: CapabilityDeclaration", 1),
        ("side_effects: []", "side_effects: [reed]", 1),
        ("identity: spy", "identity: spyglass", 2),
        ("    credentials: []\n", "", 3),
        ("side_effects: []", "side_effects: [network]", 4),
        ("additionalProperties: false", "additionalProperties: true", 6),
        ("description: Answer with the same text.", "description: Something else.", 8),
    ] {
        fs::write(&file, spy.declaration().replacen(from, to, 1)).unwrap();
        let args = spy.add_args(&file);
        let (exit, error) = home.fails(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let first = &error["details"]["rejections"][0];
        assert_eq!((exit, &first["rule"]), (7, &json!(rule)), "{to}: {error}");
        assert!(first["line"].as_u64().is_some() && first["column"].as_u64().is_some(), "{to}: {error}");
        assert!(
            error["message"].as_str().unwrap().contains(&format!("{name}:{}:", first["line"])),
            "{error}"
        );
    }
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    assert_eq!(home.events("declaration.rejected").len(), 7);
    home.verify();
}

#[test]
fn bad_configuration_is_refused_with_its_place() {
    let home = Home::new("[gateway]\nmode = \"local\"\ncolour = \"red\"\n");
    let (exit, error) = home.fails(&["mcp", "list"]);
    assert_eq!((exit, &error["field"]), (7, &json!("config")));
    assert!(error["message"].as_str().unwrap().contains("portcullis.toml:3:1"), "{error}");
    let text = home.run(&["mcp", "list"]);
    let text = String::from_utf8_lossy(&text.stderr).into_owned();
    assert!(text.contains("colour") && text.contains("portcullis.toml"), "{text}");
    let home = Home::new("[policy]\ndir = \"policies\"\n");
    fs::create_dir(home.path().join("policies")).unwrap();
    fs::write(
        home.path().join("policies/x.cedar"),
        "permit (principal, action, resource) when { resource.colour == 1 };",
    )
    .unwrap();
    let (exit, error) = home.fails(&["mcp", "list"]);
    assert_eq!((exit, &error["field"]), (7, &json!("policy")), "{error}");
    assert!(error["message"].as_str().unwrap().contains("x.cedar"), "{error}");
}

#[test]
fn a_declaration_is_found_in_the_configured_folder() {
    let home = Home::new("[gateway]\ndeclarations = \"declarations\"\n");
    let spy = Spy::new(&home);
    fs::create_dir(home.path().join("declarations")).unwrap();
    fs::write(home.path().join("declarations/spy.yaml"), spy.declaration()).unwrap();
    let mut args = spy.add_args(std::path::Path::new("unused"));
    let at = args.iter().position(|arg| arg == "--capability-declaration").unwrap();
    args.drain(at..at + 2);
    home.json(&args.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn call_runs_a_tool_lists_tools_and_exits_by_the_kind_of_refusal() {
    let (home, spy) = guarded_spy("[approvals]\nwait = \"100ms\"\n");
    let tools = home.json(&["call"]);
    assert!(tools.as_array().unwrap().iter().any(|tool| tool["name"] == "spy__echo"));
    assert_eq!(home.fails(&["call", "spy__nothing"]).0, 8);
    assert_eq!(home.fails(&["call", "spy__echo", "{\"text\": 1, \"text\": 2}"]).0, 7);
    assert_eq!(home.fails(&["call", "spy__echo", "[]"]).0, 7);
    assert_eq!(home.run(&["call", "spy__echo", "{\"text\": 1}"]).status.code(), Some(7));
    let (exit, error) = home.fails(&["call", "spy__echo", "{\"text\": \"hi\"}"]);
    assert_eq!((exit, &error["code"]), (2, &json!("AUTH_REQUIRED")));
    let id = error["details"]["details"]["approval_id"].as_str().unwrap().to_owned();
    let shown = home.json(&["approve", "show", &id]);
    assert_eq!(shown["presented"]["arguments"], json!({"text": "hi"}));
    home.json(&["approve", "grant", &id, "--reason", "fine"]);
    let output = home.run(&["call", "spy__echo", "{\"text\": \"hi\"}", "--receipt"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "hi");
    assert!(String::from_utf8_lossy(&output.stderr).contains("base/untrusted-asks"));
    assert_eq!(spy.calls(), 1);
}

#[test]
fn tampered_evidence_is_found_and_named() {
    // A-1 in small, through the command; audit's own tests have every kind.
    let (home, _spy) = guarded_spy("");
    home.verify();
    let log = fs::read_dir(home.path().join("audit"))
        .unwrap()
        .flatten()
        .find(|entry| entry.path().is_dir())
        .unwrap()
        .path();
    let segment = fs::read_dir(log.join("segments")).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let at = bytes.windows(15).position(|window| window == b"to be watched\",").unwrap_or(300);
    bytes[at] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let output = home.run(&["--output", "json", "audit", "verify"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert!(!report["problems"].as_array().unwrap().is_empty());
    assert_ne!(home.run(&["mcp", "list"]).status.code(), Some(0), "a damaged log does not open");
}

#[test]
fn completions_and_help_are_there() {
    let home = Home::new("");
    for shell in ["bash", "zsh", "fish"] {
        let output = home.run(&["completions", shell]);
        assert!(
            output.status.success() && String::from_utf8_lossy(&output.stdout).contains("portcullis"),
            "{shell}"
        );
    }
    let help = home.run(&["mcp", "add", "--help"]);
    assert!(String::from_utf8_lossy(&help.stdout).contains("--capability-declaration"));
}
