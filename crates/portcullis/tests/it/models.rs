//! Which process serves which call: one for each set of scopes and each agent, one for each call, or one for all (SBX-12);
//! and credentials that a process is given itself, which serves that one call (SBX-52).

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::credentials::{CANARY, nowhere};
use crate::evil::{Declared, Evil, NOTHING, ask, outcome, secret};
use crate::support::{Daemon, Home, eventually};

/// A server one of whose tools may write where the other may only read.
fn scene(config: &str, flags: &[&str]) -> (Home, Evil, PathBuf) {
    let home = Home::new(config);
    let evil = Evil::new(&home);
    let folder = home.beside("work");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("there"), "as it was").unwrap();
    let scope = |name: &str, access: &str| {
        format!("\n  {name}: {{ kind: fs, path: \"{}\", access: {access} }}", folder.display())
    };
    let scopes = scope("ws", "rw") + &scope("ws_ro", "ro");
    let declared = Declared {
        scopes: &scopes,
        act: "side_effects: [read, write], unbound: true, scopes: [ws], credentials: []",
        other: "side_effects: [read], unbound: true, scopes: [ws_ro], credentials: []",
    };
    evil.register(&home, &declared, flags);
    (home, evil, folder)
}

fn worked(daemon: &Daemon, home: &Home, tool: &str, act: &[&str]) -> bool {
    outcome(&ask(daemon, home, tool, act))["worked"].as_bool().unwrap()
}

fn intents(home: &Home) -> Vec<(Value, Value)> {
    let said = |event: Value| {
        let data = &event["data"];
        (data["process_model"].clone(), data["sandbox_profile_sha256"].clone())
    };
    home.events("execution.intent").into_iter().map(said).collect()
}

#[test]
fn a_tool_that_reads_cannot_write_where_another_tool_may() {
    // SBX-12, S-FS-2
    let (home, evil, folder) = scene("", &[]);
    let daemon = home.serve();
    let there = folder.join("there");
    let (there, new) = (there.to_str().unwrap(), folder.join("new"));
    let new = new.to_str().unwrap();
    for act in [
        &["write", there][..],
        &["write", new],
        &["rename", there, new],
        &["chmod", there],
        &["truncate", there],
        &["link", there, new],
        &["mknod", new],
        &["symlink", there, new],
        &["remove", there],
    ] {
        assert!(!worked(&daemon, &home, "evil__other", act), "{act:?}");
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "as it was");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert!(worked(&daemon, &home, "evil__other", &["read", there]));
    assert!(worked(&daemon, &home, "evil__act", &["write", new]));
    assert_eq!(fs::read_to_string(new).unwrap(), "evil");
    assert_eq!(evil.processes().len(), 2, "one for each set of scopes");
    daemon.stop();
    assert!(evil.processes().is_empty());
    let intents = intents(&home);
    assert!(intents.iter().all(|(model, _)| model == "per_profile"), "{intents:?}");
    assert_ne!(intents[0].1, intents.last().unwrap().1, "another cage");
    // What was shown says it too.
    for event in ["evidence.prepared", "permit.issued"] {
        assert_eq!(home.events(event)[0]["data"]["sandbox_profile_sha256"], intents[0].1, "{event}");
    }
    home.verify();
}

#[test]
fn a_shared_process_has_the_scopes_of_all_tools_and_who_approves_sees_that() {
    // SBX-12: per-tool enforcement is lost, and said to be.
    let (home, evil, folder) = scene("", &["--process-model", "shared"]);
    let daemon = home.serve();
    let new = folder.join("new");
    let answer = std::thread::scope(|scope| {
        let act = json!({"do": ["write", new.to_str().unwrap()]});
        let daemon = &daemon;
        let call = scope.spawn(move || daemon.call("evil__other", &act).unwrap());
        let pending = home.next_pending();
        let shown = home.json(&["approve", "show", pending["approval_id"].as_str().unwrap()]);
        assert_eq!(shown["presented"]["server"]["process_model"], "shared", "{shown}");
        home.grant_next("once");
        call.join().unwrap()
    });
    assert_eq!(outcome(&answer)["worked"], true, "{answer}");
    assert!(worked(&daemon, &home, "evil__act", &["read", new.to_str().unwrap()]));
    assert_eq!(evil.processes().len(), 1);
    daemon.stop();
    let record = &home.events("server.registered")[0]["data"]["record"];
    assert_eq!(record["process"]["process_model"], "shared");
    let intents = intents(&home);
    assert!(
        intents
            .iter()
            .all(|(model, profile)| { model == "shared" && *profile == record["process"]["profile_sha256"] })
    );
    home.verify();
}

/// A call of an agent that has a key.
fn call_as(daemon: &Daemon, home: &Home, key: &str, tool: &str, act: &[&str]) -> Value {
    let headers = [
        ("Authorization", key),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", tool),
    ];
    let params = json!({"name": tool, "arguments": {"do": act}, "_meta": crate::support::modern_meta()});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.post(&headers, &body).unwrap().json());
        home.grant_next("once");
        call.join().unwrap()
    })
}

#[test]
fn two_agents_never_share_a_process() {
    // SBX-12
    let (home, evil, _) = scene("[access]\nauthentication = \"required\"\n", &[]);
    let daemon = home.serve();
    let key =
        |agent: &str| format!("Bearer {}", home.json(&["key", "create", agent])["key"].as_str().unwrap());
    let (one, two) = (key("one"), key("two"));
    let there = |key: &str| {
        outcome(&call_as(&daemon, &home, key, "evil__act", &["read", "/tmp/kept"]))["worked"].clone()
    };
    call_as(&daemon, &home, &one, "evil__act", &["write", "/tmp/kept"]);
    assert_eq!(there(&one), true, "the same process served it");
    assert_eq!(there(&two), false, "another one did");
    assert_eq!(evil.processes().len(), 2);
    daemon.stop();
    home.verify();
}

#[test]
fn a_process_that_nobody_calls_is_ended_and_started_again_when_called() {
    // SBX-12
    let (home, evil, folder) = scene("[sandbox]\nidle_stop = \"1s\"\n", &[]);
    let daemon = home.serve();
    let there = folder.join("there");
    assert!(worked(&daemon, &home, "evil__act", &["read", there.to_str().unwrap()]));
    eventually("its end", || evil.processes().is_empty().then_some(()));
    assert!(worked(&daemon, &home, "evil__act", &["read", there.to_str().unwrap()]));
    daemon.stop();
    assert!(home.events("mcp.server_unavailable").is_empty(), "nothing was wrong with it");
    assert!(!home.events("sandbox.process_exited").is_empty());
    home.verify();
}

#[test]
fn a_process_for_each_call_knows_nothing_of_the_one_before() {
    // SBX-12
    let (home, evil, folder) = scene("", &["--process-model", "per_call"]);
    let daemon = home.serve();
    assert!(worked(&daemon, &home, "evil__act", &["write", "/tmp/kept"]));
    assert!(!worked(&daemon, &home, "evil__act", &["read", "/tmp/kept"]));
    // What it may write stays.
    let new = folder.join("new");
    assert!(worked(&daemon, &home, "evil__act", &["write", new.to_str().unwrap()]));
    assert!(worked(&daemon, &home, "evil__act", &["read", new.to_str().unwrap()]));
    eventually("all but the spare to end", || (evil.processes().len() <= 1).then_some(()));
    daemon.stop();
    assert!(evil.processes().is_empty());
    assert!(intents(&home).iter().all(|(model, _)| model == "per_call"));
    assert!(home.events("mcp.server_unavailable").is_empty());
    home.verify();
}

/// A server one of whose tools is given a credential.
fn with_credential(home: &Home, via: &str) -> Evil {
    let evil = Evil::new(home);
    evil.register(home, &credential(&scope(via)), &[]);
    evil
}

fn scope(via: &str) -> String {
    format!("\n  key: {{ kind: secret, credential_class: signing.key, via: {via}, name: SIGNING_KEY }}")
}

fn credential(scopes: &str) -> Declared<'_> {
    Declared {
        scopes,
        act: "side_effects: [secret_access], unbound: true, scopes: [key], credentials: [signing.key]",
        other: NOTHING,
    }
}

fn backwards() -> String {
    CANARY.chars().rev().collect()
}

/// Evil knows it during its call, and no process of it does afterwards.
fn is_known_to_that_call_alone(home: &Home, evil: &Evil, act: &[&str]) {
    secret(home, "set signer --class signing.key", CANARY);
    let daemon = home.serve();
    for _ in 0..2 {
        let answer = outcome(&ask(&daemon, home, "evil__act", act));
        assert_eq!(answer["seen"], backwards(), "{answer}");
    }
    // Processes that know it are gone when the answer is there; what is left was never lent anything.
    for pid in evil.processes() {
        assert!(!crate::credentials::memory_has(pid, CANARY.as_bytes()), "in the memory of {pid}");
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&environ).contains(CANARY));
    }
    // The tool that declares no credential has neither.
    let answer = outcome(&ask(&daemon, home, "evil__other", act));
    assert_eq!(answer["worked"], false, "{answer}");
    // SBX-54: one that says what it was lent is not believed any more.
    let act: Vec<&str> = match act {
        ["reversed", "file", path] => vec!["read", path],
        ["reversed", "variable", name] => vec!["variable", name],
        _ => unreachable!(),
    };
    let answer = ask(&daemon, home, "evil__act", &act);
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    daemon.stop();
    assert!(evil.processes().is_empty());
    assert_eq!(home.events("credential.leased").len(), 3);
    assert_eq!(home.events("credential.released").len(), 3);
    let models: Vec<Value> = intents(home).into_iter().map(|(model, _)| model).collect();
    assert_eq!(models, ["per_call", "per_call", "per_profile", "per_call"]);
    nowhere(home);
    home.verify();
}

#[test]
fn a_credential_in_a_file_is_there_for_one_call() {
    // SBX-52 `fd`, S-CRD-4
    let home = Home::new("");
    let evil = with_credential(&home, "fd");
    is_known_to_that_call_alone(&home, &evil, &["reversed", "file", "/run/secrets/SIGNING_KEY"]);
}

#[test]
fn a_credential_that_is_written_to_stderr_is_found_and_is_in_no_evidence() {
    // SBX-54, S-CRD-4
    let home = Home::new("");
    let evil = with_credential(&home, "fd");
    secret(&home, "set signer --class signing.key", CANARY);
    let daemon = home.serve();
    ask(&daemon, &home, "evil__act", &["stderr", "file", "/run/secrets/SIGNING_KEY"]);
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    daemon.stop();
    assert!(evil.processes().is_empty());
    let violations = home.events("mcp.scope_violation");
    assert!(!violations.is_empty());
    let exited = home.events("sandbox.process_exited");
    let last = exited.iter().map(|record| {
        let seq = record["seq"].to_string();
        home.json(&["audit", "show", &seq, "--evidence", "--reason", "test"]).to_string()
    });
    assert!(last.into_iter().any(|shown| shown.contains("[credential:signing.key]")), "{exited:?}");
    nowhere(&home);
    home.verify();
}

#[test]
fn a_credential_in_the_environment_takes_a_policy_and_is_there_for_one_call() {
    // SBX-52 `env`
    let home = Home::new("");
    let evil = Evil::new(&home);
    let scopes = scope("env");
    let file = home.beside("evil.yaml");
    fs::write(&file, Evil::declaration(&credential(&scopes))).unwrap();
    let refused = home.fails(&[
        "mcp",
        "add",
        "evil",
        "--transport",
        "stdio",
        "--server-version",
        "1.0.0",
        "--justification",
        "to see it fail",
        "--deployment-mode",
        "local",
        "--capability-declaration",
        file.to_str().unwrap(),
        "--",
        evil.executable.to_str().unwrap(),
        "serve",
    ]);
    assert_eq!(refused.0, 7, "{refused:?}");
    assert!(refused.1["message"].as_str().unwrap().contains("allow_env_credentials"), "{refused:?}");
    allow(&home, "yes", true);
    evil.register(&home, &credential(&scopes), &[]);
    // Taken back, no call has one.
    allow(&home, "no", false);
    let daemon = home.serve();
    let answer = daemon.call("evil__act", &json!({"do": ["variable", "SIGNING_KEY"]})).unwrap();
    assert_eq!(answer["error"]["data"]["details"]["code"], "env_credentials", "{answer}");
    assert!(home.events("execution.intent").is_empty());
    allow(&home, "again", true);
    daemon.stop();
    is_known_to_that_call_alone(&home, &evil, &["reversed", "variable", "SIGNING_KEY"]);
}

fn allow(home: &Home, name: &str, allowed: bool) {
    let folder = home.beside(name);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("settings.toml"), format!("[isolation]\nallow_env_credentials = {allowed}\n"))
        .unwrap();
    home.json(&["policy", "apply", folder.to_str().unwrap(), "--reason", "a test"]);
}

#[test]
fn a_shared_process_is_given_no_credential_itself() {
    // SBX-12, SBX-52
    for via in ["fd", "env"] {
        let home = Home::new("");
        allow(&home, "yes", true);
        let evil = Evil::new(&home);
        let file = home.beside("evil.yaml");
        fs::write(&file, Evil::declaration(&credential(&scope(via)))).unwrap();
        let (exit, error) = home.fails(&[
            "mcp",
            "add",
            "evil",
            "--transport",
            "stdio",
            "--server-version",
            "1.0.0",
            "--justification",
            "to see it fail",
            "--deployment-mode",
            "local",
            "--process-model",
            "shared",
            "--capability-declaration",
            file.to_str().unwrap(),
            "--",
            evil.executable.to_str().unwrap(),
            "serve",
        ]);
        assert_eq!(exit, 7, "{error}");
        assert!(error["message"].as_str().unwrap().contains("serves all calls"), "{error}");
    }
}

#[test]
fn how_much_a_server_may_use_is_configured_within_caps_and_recorded_with_it() {
    // SBX-12
    let home = Home::new("[sandbox.limits]\ntmp = 2097152\nnofile = 64\n");
    let evil = Evil::new(&home);
    let record = evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    assert_eq!(record["process"]["profile"]["limits"]["tmp"], 2_097_152);
    assert_eq!(record["process"]["profile"]["limits"]["pids"], 64, "what is not said stays as it was");
    let daemon = home.serve();
    let filled = outcome(&ask(&daemon, &home, "evil__act", &["fill", "/tmp/full"]));
    assert!(filled["seen"].as_str().unwrap().parse::<u64>().unwrap() <= 2, "{filled}");
    daemon.stop();
    for (limits, named) in [
        ("memory = 8589934593", "sandbox.limits.memory"),
        ("pids = 1025", "sandbox.limits.pids"),
        ("tmp = 4294967297", "sandbox.limits.tmp"),
        ("nofile = 0", "sandbox.limits.nofile"),
    ] {
        fs::write(home.path().join("portcullis.toml"), format!("[sandbox.limits]\n{limits}\n")).unwrap();
        let (exit, error) = home.fails(&["mcp", "list"]);
        assert_eq!((exit, error["field"].as_str()), (7, Some(named)), "{error}");
    }
}
