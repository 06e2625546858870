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
        "secretive": {"command": spy.executable, "args": ["--stdio", "key=ghp_0123456789abcdef0123456789abcdef0123"]},
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
    assert!(reason("secretive").contains("argument") && !report.to_string().contains("ghp_0123"));

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
    // T-DEC-1: what is only submitted cannot be called.
    let daemon = home.serve();
    assert_eq!(daemon.call("notes__add", &json!({"a": 1, "b": 2})).unwrap()["error"]["code"], -32602);
    daemon.stop();
    assert!(home.events("permit.issued").is_empty());
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

/// What a client would start the spy with, and give it.
fn entry_with(spy: &Spy, env: &Value) -> Value {
    let mut words = words(spy);
    words.extend(["--control".to_owned(), spy.workspace.join("spy.json").to_str().unwrap().to_owned()]);
    json!({"command": spy.executable, "args": words, "env": env})
}

/// Whether any file below a folder holds these bytes.
fn is_kept(folder: &std::path::Path, needle: &str) -> bool {
    fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => is_kept(&path, needle),
            kind if kind.is_file() => {
                let bytes = fs::read(&path).unwrap();
                bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
            }
            _ => false,
        }
    })
}

#[test]
fn secrets_move_into_the_vault_and_go_where_the_configuration_says() {
    // GOV-1401, T-IMP-1: the value is in the broker and nowhere else.
    let home = Home::new("");
    let spy = Spy::new(&home);
    let token = "canary-77aa-0123456789abcdef";
    let file = home.beside("mcp.json");
    let config = json!({"mcpServers": {
        "told": entry_with(&spy, &json!({"SPY_TOKEN": token, "SPY_URL": "https://api.example.com/v1", "PLAIN": "x"})),
        "asked": entry_with(&spy, &json!({"SPY_PASSWORD": "${input:password}"})),
    }});
    fs::write(&file, config.to_string()).unwrap();
    let output = home.run(&["import", file.to_str().unwrap(), "--accept", "--toward", "asked=b.example.com"]);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("2 registered"), "{said}");
    assert!(
        said.contains("SPY_TOKEN is in plain text there")
            && said.contains("api.example.com and nowhere else"),
        "{said}"
    );
    assert!(said.contains("tokens to know its tools") && !said.contains(token), "{said}");

    let secrets = home.json(&["secret", "list"]);
    assert_eq!(secrets.as_array().unwrap().len(), 1, "what is asked for has no value: {secrets}");
    assert_eq!(
        (&secrets[0]["class"], &secrets[0]["bound_servers"]),
        (&json!("told.spy_token"), &json!(["told"]))
    );
    let told = home.json(&["mcp", "show", "told"]);
    assert_eq!(told["process"]["env"]["PLAIN"], "x");
    assert_eq!(told["process"]["profile"]["egress"][0]["host"], "api.example.com", "{told}");
    assert_eq!(told["process"]["profile"]["secrets"][0]["class"], "told.spy_token");
    let classes = told["tools"][0]["classes"].as_array().unwrap();
    assert!(classes.contains(&json!("secret_access")) && classes.contains(&json!("network")), "{classes:?}");
    let asked = home.json(&["mcp", "show", "asked"]);
    assert_eq!(asked["process"]["profile"]["egress"][0]["host"], "b.example.com");
    assert!(!is_kept(&home.path(), token), "not in the log, not in drafts, not in the vault's file");
    home.verify();
}

#[test]
fn what_a_server_was_denied_is_proposed_and_not_applied() {
    // GOV-1401, T-IMP-1
    let home = Home::new("[approvals]\nwait = \"300ms\"\n");
    let spy = Spy::new(&home);
    let file = home.beside("mcp.json");
    let config =
        json!({"mcpServers": {"lonely": entry_with(&spy, &json!({"SPY_TOKEN": "canary-91bb-0123456789"}))}});
    fs::write(&file, config.to_string()).unwrap();
    home.json(&["import", file.to_str().unwrap(), "--accept"]);
    let (exit, nothing) = home.fails(&["mcp", "draft", "lonely", "--from-denials"]);
    assert_eq!(exit, 8, "{nothing}");
    spy.control(&json!({"isolate": {"connect": ["wanted.example.com:443"]}}));
    let daemon = home.serve();
    let add = json!({"a": 1, "b": 2});
    let asked = daemon.call("lonely__add", &add).unwrap();
    let id = asked["error"]["data"]["details"]["approval_id"].as_str().unwrap_or_else(|| panic!("{asked}"));
    home.json(&["approve", "grant", id, "--reason", "let us see", "--yes"]);
    let answer = daemon.call("lonely__add", &add).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    crate::support::eventually("the denial", || {
        (!home.events("sandbox.dns_denied").is_empty()).then_some(())
    });
    let before = home.json(&["mcp", "show", "lonely"]);
    let proposed = home.json(&["mcp", "draft", "lonely", "--from-denials"]);
    assert_eq!(proposed["status"], "proposed");
    let added = proposed["added"].to_string();
    assert!(added.contains("wanted.example.com:443") && added.contains("lonely.spy_token"), "{added}");
    let now = home.json(&["mcp", "show", "lonely"]);
    assert_eq!(now["declaration_version"], before["declaration_version"], "nothing is applied");
    let refused = daemon.call("lonely__add", &add).unwrap();
    assert_eq!(refused["error"]["data"]["error"], "AUTH_REQUIRED", "every call asks: {refused}");

    // It is acceptable as it stands.
    let path = proposed["draft"].as_str().unwrap();
    home.json(&[
        "mcp",
        "accept",
        "lonely",
        "--capability-declaration",
        path,
        "--reason",
        "it needs that host",
    ]);
    let after = home.json(&["mcp", "show", "lonely"]);
    assert_eq!(after["process"]["profile"]["egress"][0]["host"], "wanted.example.com", "{after}");
    assert_eq!(after["process"]["profile"]["secrets"][0]["toward"], "wanted_example_com");
    daemon.stop();
    assert!(!is_kept(&home.path(), "canary-91bb"));
    home.verify();
}

#[test]
fn from_a_client_s_file_with_three_servers_to_a_governed_call_in_two_commands() {
    // GOV-1406: the decision about each server is taken where it is imported.
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let spy = Spy::new(&home);
    let file = home.beside("mcp.json");
    let config = json!({"mcpServers": {"files": entry(&spy), "notes": entry(&spy), "web": entry(&spy)}});
    fs::write(&file, config.to_string()).unwrap();
    let report = home.json(&["import", file.to_str().unwrap(), "--accept", "--grant", "all"]);
    assert!(statuses(&report).iter().all(|(_, status)| status == "registered"), "{report}");
    let called = home.run(&["call", "notes__add", "{\"a\": 1, \"b\": 2}"]);
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
    assert_eq!(String::from_utf8_lossy(&called.stdout).trim(), "3");
    assert_eq!(home.events("server.registered").len(), 3);
    assert_eq!(home.events("execution.result").len(), 1);
    home.verify();
}

#[test]
fn files_of_five_clients_are_read_as_their_owners_wrote_them() {
    // GOV-1401, T-IMP-1: in the shape each client documents, comments and all
    let home = Home::new("");
    let spy = Spy::new(&home);
    let (program, words) = (spy.executable.display().to_string(), words(&spy));
    let args = json!(words).to_string();
    let claude_desktop = format!(
        r#"{{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {{
    "desktop-spy": {{ "command": "{program}", "args": {args} }},
    "filesystem": {{ "command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/ann"] }},
    "odd": {{ "disabled": true }}
  }}
}}"#
    );
    let claude_code = format!(
        r#"{{
  "mcpServers": {{
    "code-spy": {{ "type": "stdio", "command": "{program}", "args": {args}, "env": {{}} }},
    "fetched": {{ "type": "stdio", "command": "uvx", "args": ["mcp-server-git"] }},
    "odd": {{ "type": "stdio" }}
  }}
}}"#
    );
    let cursor = format!(
        r#"{{
  "mcpServers": {{
    "cursor-spy": {{ "command": "{program}", "args": {args} }},
    "fetched": {{ "command": "bunx", "args": ["some-server"] }},
    "odd": {{ "command": "a", "url": "https://b.example" }}
  }}
}}"#
    );
    let vscode = format!(
        r#"{{
  // What is asked for when a server starts.
  "inputs": [ {{ "type": "promptString", "id": "key", "description": "A key", "password": true }}, ],
  "servers": {{
    /* the one that is ours */
    "vscode-spy": {{ "type": "stdio", "command": "{program}", "args": {args} }},
    "fetched": {{ "command": "npx", "args": ["-y", "some-server"] }}, // not pinned
    "odd": {{ "command": "a", "args": [1] }},
  }},
}}"#
    );
    let codex = format!(
        "# the model\nmodel = \"o\"\n\n[mcp_servers.codex-spy]\ncommand = \"{program}\"\nargs = {args}\n\n\
         [mcp_servers.fetched]\ncommand = \"npx\"\nargs = [\"-y\", \"some-server\"]\n\n[mcp_servers.odd]\nenabled = false\n"
    );
    let files = [
        ("claude_desktop_config.json", "desktop-spy", claude_desktop),
        (".mcp.json", "code-spy", claude_code),
        ("mcp.json", "cursor-spy", cursor),
        ("vscode.json", "vscode-spy", vscode),
        ("config.toml", "codex-spy", codex),
    ];
    for (file, name, text) in files {
        let file = home.beside(file);
        fs::write(&file, text).unwrap();
        let report = home.json(&["import", file.to_str().unwrap(), "--accept"]);
        let rows = report.as_array().unwrap();
        assert_eq!(rows.len(), 3, "{name}: {report}");
        let of = |wanted: &str| rows.iter().find(|row| row["name"] == wanted).cloned().unwrap_or_default();
        assert_eq!(of(name)["status"], "registered", "{name}: {report}");
        let odd = of("odd");
        assert_eq!(odd["status"], "skipped", "{name}: {report}");
        assert!(!odd["reason"].as_str().unwrap().is_empty(), "{name}: {report}");
        let fetched = rows.iter().find(|row| row["reason"].as_str().unwrap().contains("--vendor"));
        assert!(fetched.is_some(), "{name}: {report}");
    }
    assert_eq!(home.json(&["mcp", "list"]).as_array().unwrap().len(), 5);
    // What is no JSON at all is said with its place, and nothing of it is taken.
    let broken = home.beside("broken.json");
    fs::write(&broken, "// fine\n{\"mcpServers\": {\"x\": }}").unwrap();
    let (exit, error) = home.fails(&["import", broken.to_str().unwrap(), "--accept"]);
    assert_eq!(exit, 7);
    assert!(error["message"].as_str().unwrap().contains("line 2"), "{error}");
    home.verify();
}
