//! How servers come to be registered, and how not: only by an operator's command, all of it or nothing (GOV §2).

use std::fs;

use serde_json::{Value, json};

use crate::agent::{Agent, REVISIONS};
use crate::support::{Home, Spy, guarded_spy};

#[test]
fn nothing_but_an_operators_command_registers_a_server() {
    // T-REG-5, GOV-201, GOV-105
    let (home, spy) = guarded_spy("");
    let before = home.json(&["mcp", "list"]);
    let declaration = spy.declaration().replace("identity: spy,", "identity: dropped,");
    let config =
        json!({"mcpServers": {"dropped": {"command": spy.executable, "args": ["--stdio"]}}}).to_string();
    // In every folder there is, under every name somebody might look for.
    let mut folders = vec![home.path()];
    let mut next = 0;
    while let Some(folder) = folders.get(next).cloned() {
        folders.extend(
            fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).filter(|path| path.is_dir()),
        );
        next += 1;
    }
    for name in ["vendor", "servers", "declarations", "policies", "plugins"] {
        let folder = home.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folders.push(folder);
    }
    assert!(folders.len() > 8, "{folders:?}");
    for folder in &folders {
        // The log's own folder is checked elsewhere; a file that is none of its own may be refused there.
        if folder.starts_with(home.path().join("audit")) {
            continue;
        }
        fs::write(folder.join("dropped.yaml"), &declaration).unwrap();
        fs::write(folder.join("manifest.json"), &config).unwrap();
        fs::write(folder.join(".mcp.json"), &config).unwrap();
    }
    let daemon = home.serve();
    assert_eq!(home.json(&["mcp", "list"]), before, "nothing of it is a server");
    // What lies there later is not one either.
    fs::write(home.path().join("later.yaml"), &declaration).unwrap();
    assert!(!daemon.list_tools().to_string().contains("dropped"));

    // Agents neither see nor reach what registers.
    let args = json!({
        "server_id": "dropped", "name": "dropped", "transport": "stdio", "declaration": declaration, "confirm": true,
        "reason": "mine", "justification": "mine", "server_version": "1.0.0", "command": spy.executable,
    });
    for revision in REVISIONS {
        let agent = Agent::open(&daemon, revision);
        let tools = agent.result("tools/list", json!({})).to_string();
        assert!(!tools.contains("servers_register") && !tools.contains("approvals_approve"), "{tools}");
    }
    for tool in ["portcullis_servers_register", "servers_register", "portcullis_approvals_approve"] {
        let refused = daemon.call(tool, &args).unwrap();
        assert!(refused["error"].is_object(), "{refused}");
    }
    for path in ["/api/admin/portcullis_servers_register", "/admin", "/mcp/admin", "/login"] {
        let headers = [("Content-Type", "application/json")];
        let reply = daemon.http("POST", path, &headers, &args.to_string()).unwrap();
        assert!(matches!(reply.status, 404 | 405), "{path}: {}", reply.status);
    }
    assert_eq!(home.json(&["mcp", "list"]), before);
    daemon.stop();
    assert_eq!(home.events("server.registered").len(), 1);
    // A table of the configuration is an error that says what to do instead.
    let home = Home::new("[[server]]\nname = \"dropped\"\n");
    let refused = home.run(&["mcp", "list"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(7), "{said}");
    assert!(said.contains("portcullis mcp add"), "{said}");
}

/// What a command changes, as one look at it shows.
fn state(home: &Home, command: &str) -> Value {
    match command {
        "remove" => home.json(&["mcp", "list"]),
        "apply" => home.json(&["policy", "show"])["version"].clone(),
        _ => {
            let shown = home.json(&["mcp", "show", "spy"]);
            let tools = shown["tools"].as_array().map(Vec::len);
            json!([shown["server_version"], shown["declaration_version"], shown["registration_epoch"], tools])
        }
    }
}

#[test]
fn an_update_that_is_killed_at_any_point_was_made_or_not() {
    // T-REG-4, AUD-22
    is_never_half("update", &["declaration.before_accept", "registry.before_commit"]);
}

#[test]
fn an_acceptance_that_is_killed_at_any_point_was_made_or_not() {
    // T-REG-4, AUD-22
    is_never_half("accept", &["declaration.before_accept", "registry.before_commit"]);
}

#[test]
fn a_policy_whose_application_is_killed_at_any_point_is_in_force_or_not() {
    // T-REG-4, AUD-22
    is_never_half("apply", &["policy.before_activate"]);
}

#[test]
fn a_removal_that_is_killed_at_any_point_was_made_or_not() {
    // T-REG-4, AUD-22
    is_never_half("remove", &[]);
}

/// Kills a command at writes of the log and at places with a name, and looks what became of it.
fn is_never_half(command: &str, named: &[&str]) {
    let mut places = vec!["admin.before_intent=abort".to_owned()];
    places.extend((2..=3).map(|n| format!("audit.before_write=abort@{n}")));
    places.extend(named.iter().map(|name| format!("{name}=abort")));
    places.push("admin.before_outcome=abort".to_owned());
    let (home, spy) = guarded_spy("[policy]\npreset = \"observe\"\n");
    let (args, settled) = prepare(&home, &spy, command);
    let before = state(&home, command);
    let mut unchanged = 0;
    for place in &places {
        let mut run = home.command();
        let run = run.args(["--output", "json"]).args(&args).env("PORTCULLIS_FAILPOINTS", place);
        let killed = run.output().unwrap().status.code().is_none();
        let now = state(&home, command);
        assert!(now == before || settled(&now), "{command} at {place}: neither {before} nor done: {now}");
        if now != before {
            break;
        }
        unchanged += usize::from(killed);
    }
    assert!(unchanged > 0, "{command} was never cut off before it was done");
    // And in the end it is done, or can be.
    if state(&home, command) == before {
        home.json(&args.iter().map(String::as_str).collect::<Vec<_>>());
    }
    assert!(settled(&state(&home, command)), "{command}: {}", state(&home, command));
    assert_eq!(home.json(&["audit", "verify", "--invariants"])["ok"], true, "{command}");
}

type Settled = Box<dyn Fn(&Value) -> bool>;

/// Sets the scene for a command; with its words comes what it should lead to.
fn prepare(home: &Home, spy: &Spy, command: &str) -> (Vec<String>, Settled) {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match command {
        "remove" => (words(&["mcp", "remove", "spy", "--reason", "done"]), Box::new(|now| *now == json!([]))),
        "accept" => {
            spy.control(&json!({"description": {"echo": "Say it again."}}));
            (
                words(&["mcp", "accept", "spy", "--reason", "it reads like that"]),
                Box::new(|now| now[1].as_str().is_some_and(|version| version.starts_with("2:"))),
            )
        }
        "update" => {
            spy.control(&json!({"version": "2.0.0"}));
            let file = home.beside("spy.yaml");
            fs::write(&file, spy.declaration().replace("version: \"1.0.0\"", "version: \"2.0.0\"")).unwrap();
            let mut args = spy.add_args(&file);
            args[1] = "update".into();
            let at = args.iter().position(|arg| arg == "1.0.0").unwrap();
            args[at] = "2.0.0".into();
            (
                args,
                Box::new(|now| {
                    now[0] == "2.0.0" && now[1].as_str().is_some_and(|version| version.starts_with("2:"))
                }),
            )
        }
        _ => {
            let dir = home.beside("other");
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("settings.toml"), "[tier]\nmax = 0\n").unwrap();
            let dir = dir.to_str().unwrap().to_owned();
            (
                words(&["policy", "apply", &dir, "--preset", "observe", "--reason", "less trust"]),
                Box::new(|now| now.as_str().is_some_and(|version| version.starts_with("2:"))),
            )
        }
    }
}
