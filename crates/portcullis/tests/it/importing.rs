//! Taking over servers that clients reach today (GOV §14).

use std::fs;

use serde_json::{Value, json};

use crate::support::{Home, Spy};

/// The spy keeps its log where it may write even while it is only looked at, and is told of a folder.
fn words(spy: &Spy) -> Vec<String> {
    let words = ["--log", "/tmp/spy.log", "--stdio", "--folder", spy.workspace.to_str().unwrap()];
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// What drafts it.
fn draft(home: &Home, spy: &Spy) -> Value {
    let mut command = vec!["mcp", "draft", "notes", "--", spy.executable.to_str().unwrap()];
    let words = words(spy);
    command.extend(words.iter().map(String::as_str));
    home.json(&command)
}

/// What a client would start the spy with.
fn entry(spy: &Spy) -> Value {
    json!({"command": spy.executable, "args": words(spy)})
}

fn statuses(report: &Value) -> Vec<(String, String)> {
    let row = |row: &Value| {
        let text = |member: &str| row[member].as_str().unwrap_or_default().to_owned();
        (text("name"), text("status"))
    };
    report.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn a_client_s_servers_are_drafted_registered_and_called() {
    // GOV-1401, GOV-1403, GOV-1404, GOV-1405, T-IMP-1
    let home = Home::new("");
    let spy = Spy::new(&home);
    let file = home.beside("mcp.json");
    let config = json!({"mcpServers": {
        "A Spy": entry(&spy),
        "fetched": {"command": "npx", "args": ["-y", "some-package"]},
        "secretive": {"command": spy.executable, "args": [], "env": {"SPY_API_KEY": "canary-5f2d"}},
        "elsewhere": {"url": "https://mcp.example/mcp"},
        "portcullis": {"command": "/opt/portcullis", "args": ["serve", "--stdio"]},
    }});
    fs::write(&file, config.to_string()).unwrap();
    let report = home.json(&["import", file.to_str().unwrap(), "--accept"]);
    let mut found = statuses(&report);
    found.sort();
    let status = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    assert_eq!(
        found,
        [
            status("a-spy", "registered"),
            status("elsewhere", "skipped"),
            status("fetched", "skipped"),
            status("portcullis", "skipped"),
            status("secretive", "skipped"),
        ]
    );
    let reason = |name: &str| {
        let rows = report.as_array().unwrap();
        rows.iter().find(|row| row["name"] == name).unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason("fetched").contains("--vendor"));
    assert!(reason("elsewhere").contains("--attest"));
    assert!(reason("secretive").contains("SPY_API_KEY") && !report.to_string().contains("canary-5f2d"));

    // What was suggested is what an operator would say, and the cage is made of it.
    let shown = home.json(&["mcp", "show", "a-spy"]);
    let tools = shown["tools"].as_array().unwrap();
    let of = |name: &str| {
        tools
            .iter()
            .find(|tool| tool["name"] == format!("a-spy__{name}"))
            .unwrap_or_else(|| panic!("{shown}"))
    };
    assert_eq!(of("write_thing")["classes"], json!(["read", "write"]), "{shown}");
    // The kernel holds it to its folders, all of which it has (GOV-1405).
    assert_eq!(of("write_thing")["bound"], true, "{shown}");
    assert_eq!(shown["process"]["profile"]["fs"][0]["path"], spy.workspace.to_str().unwrap());

    // It asks, as everything untrusted does.
    let daemon = home.serve();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.call("a-spy__add", &json!({"a": 1, "b": 2})));
        home.grant_next("once");
        call.join().unwrap().unwrap()
    });
    assert_eq!(answer["result"]["content"][0]["text"], "3", "{answer}");
    let again = home.json(&["import", file.to_str().unwrap(), "--accept"]);
    assert!(statuses(&again).contains(&status("a-spy", "known")));
    daemon.stop();
    home.verify();
}

#[test]
fn a_draft_has_no_force_until_it_is_accepted_and_may_be_edited_before() {
    // GOV-1401, GOV-1403
    let home = Home::new("");
    let spy = Spy::new(&home);
    let drafted = draft(&home, &spy);
    assert_eq!(drafted["status"], "drafted");
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
    assert!(home.events("server.registered").is_empty());
    let file = drafted["draft"].as_str().unwrap();
    let draft = fs::read_to_string(file).unwrap();
    assert!(draft.contains("# suggested: its name says write"), "{draft}");
    // Somebody knows better.
    fs::write(file, draft.replacen("[other, read, write]", "[execute, other, read, write]", 1)).unwrap();
    home.json(&["mcp", "accept", "notes", "--reason", "read it"]);
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active");
    let (_, refused) = home.fails(&["mcp", "accept", "nobody", "--reason", "x"]);
    assert!(refused["message"].as_str().unwrap().contains("nobody"), "{refused}");
}

#[test]
fn beyond_one_person_s_machine_a_draft_is_the_worst_case() {
    // GOV-1401: every class, so that every call asks.
    let home = Home::new("[gateway]\nmode = \"team\"\n[operator]\nauth = [\"uid\"]\n");
    let spy = Spy::new(&home);
    let drafted = draft(&home, &spy);
    let draft = fs::read_to_string(drafted["draft"].as_str().unwrap()).unwrap();
    let classes = "side_effects: [execute, network, other, read, secret_access, write]";
    assert!(draft.contains(classes) && !draft.contains("suggested"), "{draft}");
}

#[test]
fn a_client_is_pointed_at_the_gateway_in_place_of_what_it_governs() {
    // GOV-1401, --rewrite
    let home = Home::new("");
    let spy = Spy::new(&home);
    let file = home.beside("mcp.json");
    let config = json!({"mcpServers": {"spy": entry(&spy), "other": {"command": "npx", "args": ["x"]}}});
    fs::write(&file, config.to_string()).unwrap();
    let before = fs::read(&file).unwrap();
    let path = file.to_str().unwrap();
    let output = home.run(&["import", path, "--client", "cursor", "--accept", "--rewrite"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 registered"), "{said}");
    let after: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut names: Vec<&String> = after["mcpServers"].as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(names, ["other", "portcullis"]);
    home.json(&["connect", "cursor", "--file", path, "--undo"]);
    assert_eq!(fs::read(&file).unwrap(), before);
}
