//! Servers and clients that are not ours: the reference servers from npm, the official Python and TypeScript SDKs, and
//! the Inspector.
//!
//! `cargo xtask test` installs them and says where; without it these tests fail and say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::records::{Rs, add, token_file};
use crate::support::{Daemon, Home, eventually};
use crate::surface::{cut, discover};

pub(crate) fn installed(variable: &str) -> PathBuf {
    let place = std::env::var_os(variable);
    PathBuf::from(place.unwrap_or_else(|| {
        panic!("{variable} is not set; run `cargo xtask test`, or `cargo xtask third-party`")
    }))
}

fn node() -> String {
    let found = Command::new("sh").args(["-c", "command -v node"]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().trim().to_owned()
}

/// Asks a server for its tools, as its author's own client would, and declares each of them: worst class, unbound.
fn draft_declaration(
    identity: &str,
    version: &str,
    folder: Option<&Path>,
    command: &[String],
    more: &Value,
) -> String {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut ask = |id: u64, method: &str, params: Value| {
        use std::io::Write as _;
        if id == 2 {
            writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).unwrap();
        }
        writeln!(stdin, "{}", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    // PRO-63: what is listed depends on what a client can be asked.
    let able = match more.get("server_requests") {
        Some(_) => json!({"elicitation": {"form": {}, "url": {}}}),
        None => json!({}),
    };
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": able, "clientInfo": {"name": "draft", "version": "1"}});
    ask(1, "initialize", hello);
    // Some servers announce tools only after this, a moment later.
    ask(2, "ping", json!({}));
    std::thread::sleep(std::time::Duration::from_millis(500));
    let listed = ask(3, "tools/list", json!({}));
    child.kill().unwrap();
    child.wait().unwrap();
    let tools = listed["tools"].as_array().unwrap().iter().map(|tool| {
        let mut parameters = tool["inputSchema"].clone();
        let root = parameters.as_object_mut().unwrap();
        root.entry("additionalProperties").or_insert(json!(false));
        let output = match tool.get("outputSchema") {
            Some(schema) => json!({"schema": schema}),
            None => json!({"type": "text"}),
        };
        let (side_effects, used) = match folder {
            Some(_) => (json!(["other", "read", "write"]), json!(["folder"])),
            None => (json!(["other"]), json!([])),
        };
        json!({
            "name": tool["name"], "version": "1", "side_effects": side_effects, "scopes": used, "unbound": true, "credentials": [],
            "parameters": parameters, "output": output, "idempotency": "unknown", "failure_modes": [],
        })
    });
    let server = json!({"identity": identity, "version": version, "protocol_versions": ["2025-11-25", "2026-07-28"], "surface": "static"});
    let mut scopes = json!({});
    if let Some(folder) = folder {
        scopes["folder"] = json!({"kind": "fs", "path": folder, "access": "rw"});
    }
    // JSON is YAML.
    let mut declaration = json!({"apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration", "server": server, "scopes": scopes, "tools": tools.collect::<Vec<_>>()});
    declaration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    declaration.to_string()
}

fn register(home: &Home, identity: &str, version: &str, folder: Option<&Path>, command: &[String]) {
    register_in(home, identity, version, folder, command, &[]);
}

fn register_in(
    home: &Home,
    identity: &str,
    version: &str,
    folder: Option<&Path>,
    command: &[String],
    environment: &[&str],
) {
    register_declaring(home, identity, version, (folder, environment), command, &json!({}));
}

/// The same with more in the declaration.
fn register_declaring(
    home: &Home,
    identity: &str,
    version: &str,
    (folder, environment): (Option<&Path>, &[&str]),
    command: &[String],
    more: &Value,
) {
    let file = home.beside(&format!("{identity}.yaml"));
    fs::write(&file, draft_declaration(identity, version, folder, command, more)).unwrap();
    let fixed = [
        "mcp",
        "add",
        identity,
        "--transport",
        "stdio",
        "--server-version",
        version,
        "--justification",
        "reference server",
        // Everything is declared as worse than it may be.
        "--waive",
        "L005",
    ];
    let mut args: Vec<&str> = fixed.to_vec();
    args.extend(["--deployment-mode", "local", "--capability-declaration", file.to_str().unwrap()]);
    args.extend(environment.iter().flat_map(|variable| ["--env", *variable]));
    // Its modules are all over the folder of packages.
    let modules = installed("PORTCULLIS_NODE_MODULES");
    args.extend(["--artifact", modules.to_str().unwrap()]);
    // And a program of a test's own is beside them.
    let own = command.iter().filter(|word| word.ends_with(".mjs"));
    args.extend(own.flat_map(|program| ["--artifact", program]));
    args.push("--");
    args.extend(command.iter().map(String::as_str));
    home.json(&args);
}

fn package(name: &str, entry: &str) -> String {
    installed("PORTCULLIS_NODE_MODULES")
        .join("@modelcontextprotocol")
        .join(name)
        .join(entry)
        .display()
        .to_string()
}

/// Runs a client to its end while an operator grants whatever it asks for; the last line it prints.
fn run_client(home: &Home, command: Command) -> Value {
    let text = run_to_its_end(home, command);
    let last = text.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{text}"))
}

fn run_to_its_end(home: &Home, mut command: Command) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Some(child);
    let output = eventually("the client to end", || {
        for approval in home.json(&["approve", "list", "--status", "pending"]).as_array().unwrap() {
            let id = approval["approval_id"].as_str().unwrap();
            home.json(&["approve", "grant", id, "--reason", "third-party test", "--yes"]);
        }
        let ended = child.as_mut().unwrap().try_wait().unwrap().is_some();
        ended.then(|| child.take().unwrap().wait_with_output().unwrap())
    });
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn client(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients").join(name)
}

fn python(home: &Home, target: &[&str]) -> Value {
    let mut command = Command::new(installed("PORTCULLIS_PYTHON"));
    command.arg(client("sdk_client.py")).args(target);
    run_client(home, command)
}

#[test]
fn the_everything_server_is_called_by_the_python_sdk_over_http_and_stdio() {
    let home = Home::new("");
    register(
        &home,
        "everything",
        "2.0.0",
        None,
        &[node(), package("server-everything", "dist/index.js"), "stdio".into()],
    );
    let daemon = home.serve();
    let url = format!("http://{}/mcp", daemon.address);
    let call = json!({"tool": "everything__echo", "arguments": {"message": "through the gate"}}).to_string();
    for mode in ["auto", "legacy"] {
        let seen = python(&home, &[mode, "http", &url, &call]);
        assert!(seen["tools"].as_array().unwrap().contains(&json!("everything__get-sum")), "{seen}");
        assert_eq!(seen["text"], "Echo: through the gate", "{mode}: {seen}");
        assert_eq!(seen["is_error"], false);
        let bad = json!({"tool": "everything__echo", "arguments": {"message": 7}}).to_string();
        let refused = python(&home, &[mode, "http", &url, &bad]);
        assert_eq!(refused["is_error"], true, "{mode}: {refused}");
        assert!(refused["text"].as_str().unwrap().contains("ARGS_INVALID"));
        let home_path = home.path();
        let seen = python(
            &home,
            &[mode, "stdio", env!("CARGO_BIN_EXE_portcullis"), home_path.to_str().unwrap(), &call],
        );
        assert_eq!(seen["text"], "Echo: through the gate", "{mode} over stdio: {seen}");
    }
    daemon.stop();
    assert_eq!(home.events("execution.result").len(), 4);
    home.verify();
}

/// The everything server, whose one task tool requires tasks.
pub(crate) fn register_everything(home: &Home, more: &Value) {
    let command = [node(), package("server-everything", "dist/index.js"), "stdio".into()];
    register_declaring(home, "everything", "2.0.0", (None, &[]), &command, more);
}

/// What a client of the TypeScript SDK prints in the end.
pub(crate) fn typescript(home: &Home, script: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(node());
    command
        .arg(client(script))
        .args(arguments)
        .env("PORTCULLIS_NODE_MODULES", installed("PORTCULLIS_NODE_MODULES"));
    run_client(home, command)
}

#[test]
fn the_typescript_sdk_hears_progress_and_ends_a_call_that_it_gives_up() {
    // PRO §3: progress and cancellation reach the call they belong to, through clients and servers that are not ours.
    let home = Home::new("");
    let command = [node(), package("server-everything", "dist/index.js"), "stdio".into()];
    register(&home, "everything", "2.0.0", None, &command);
    let daemon = home.serve();
    let mut client_command = Command::new(node());
    client_command
        .arg(client("sdk_progress.mjs"))
        .args([&format!("http://{}/mcp", daemon.address), "everything__trigger-long-running-operation"])
        .env("PORTCULLIS_NODE_MODULES", installed("PORTCULLIS_NODE_MODULES"));
    let seen = run_client(&home, client_command);
    assert_eq!(seen["progress"], json!([[1, 4], [2, 4], [3, 4], [4, 4]]), "{seen}");
    assert!(seen["text"].as_str().unwrap().contains("Steps: 4"), "{seen}");
    assert!(seen["given_up"].as_str().unwrap().contains("enough"), "{seen}");
    let cancelled = eventually("the cancelled call to be settled", || {
        home.events("execution.cancelled").first().cloned()
    });
    assert_eq!(cancelled["data"]["transmitted"], true, "{cancelled}");
    daemon.stop();
    assert_eq!(home.events("execution.result").len(), 1);
    home.verify();
}

#[test]
fn the_filesystem_server_is_called_by_the_typescript_sdk() {
    let home = Home::new("");
    let folder = home.beside("files");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.txt"), "what the file says").unwrap();
    let command = [node(), package("server-filesystem", "dist/index.js"), folder.display().to_string()];
    register(&home, "files", "0.2.0", Some(&folder), &command);
    let daemon = home.serve();
    let mut client_command = Command::new(node());
    let call =
        json!({"tool": "files__read_text_file", "arguments": {"path": folder.join("a.txt")}}).to_string();
    client_command
        .arg(client("sdk_client.mjs"))
        .args([&format!("http://{}/mcp", daemon.address), &call])
        .env("PORTCULLIS_NODE_MODULES", installed("PORTCULLIS_NODE_MODULES"));
    let seen = run_client(&home, client_command);
    assert_eq!(seen["text"], "what the file says", "{seen}");
    assert!(seen["tools"].as_array().unwrap().contains(&json!("files__write_file")));
    daemon.stop();
    home.verify();
}

#[test]
fn the_memory_server_remembers_across_clients() {
    // PRO-52
    let home = Home::new("");
    let folder = home.beside("memory");
    fs::create_dir(&folder).unwrap();
    let file = format!("MEMORY_FILE_PATH={}", folder.join("memory.jsonl").display());
    let command = [node(), package("server-memory", "dist/index.js")];
    register_in(&home, "memory", "0.6.3", Some(&folder), &command, &[&file]);
    let daemon = home.serve();
    let url = format!("http://{}/mcp", daemon.address);
    let entity = json!({"name": "Ada", "entityType": "person", "observations": ["wrote the first program"]});
    let call = json!({"tool": "memory__create_entities", "arguments": {"entities": [entity]}}).to_string();
    let seen = python(&home, &["auto", "http", &url, &call]);
    assert_eq!(seen["is_error"], false, "{seen}");
    let call = json!({"tool": "memory__search_nodes", "arguments": {"query": "program"}}).to_string();
    let found = python(&home, &["legacy", "http", &url, &call]);
    assert!(found["text"].as_str().unwrap().contains("Ada"), "{found}");
    daemon.stop();
    home.verify();
}

#[test]
fn the_thinking_server_counts_thoughts() {
    // PRO-52
    let home = Home::new("");
    let command = [node(), package("server-sequential-thinking", "dist/index.js")];
    register(&home, "thinking", "2026.8.31", None, &command);
    let daemon = home.serve();
    let url = format!("http://{}/mcp", daemon.address);
    let thought =
        json!({"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1});
    let call = json!({"tool": "thinking__sequentialthinking", "arguments": thought}).to_string();
    let seen = python(&home, &["auto", "http", &url, &call]);
    assert!(seen["text"].as_str().unwrap().contains("thoughtHistoryLength"), "{seen}");
    daemon.stop();
    home.verify();
}

#[test]
fn a_session_with_the_everything_server_is_played_again_without_it_byte_for_byte() {
    // AUD-75, AUD-74, A-22
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    // What is started is a file of this test, so that the server can go without its package going.
    let entry = home.beside("everything.mjs");
    let import = json!(format!("file://{}", package("server-everything", "dist/index.js")));
    fs::write(&entry, format!("await import({import});\n")).unwrap();
    let command = [node(), entry.display().to_string(), "stdio".into()];
    register(&home, "everything", "2.0.0", None, &command);
    let calls = [
        json!({"tool": "everything__echo", "arguments": {"message": "recorded \u{e9} <b>"}}),
        json!({"tool": "everything__get-sum", "arguments": {"a": 19, "b": 23}}),
        json!({"tool": "everything__get-tiny-image", "arguments": {}}),
        json!({"tool": "everything__echo", "arguments": {"message": "recorded \u{e9} <b>"}}),
    ];
    let called = |daemon: &crate::support::Daemon| -> Vec<Value> {
        let call = |call: &Value| {
            let tool = call["tool"].as_str().unwrap();
            let reply = daemon.approved_call(&home, tool, &call["arguments"]).unwrap();
            assert!(reply["result"].is_object(), "{reply}");
            reply
        };
        calls.iter().map(call).collect()
    };
    let daemon = home.serve();
    let recorded = called(&daemon);
    daemon.stop();
    assert!(recorded[1]["result"].to_string().contains("42"), "{}", recorded[1]);
    let cassette = home.beside("cassette.ndjson");
    home.json(&["audit", "export", "--cassette", cassette.to_str().unwrap()]);
    let started = home.events("sandbox.established").len();

    // The server is gone, and with its own name nothing else could be started either.
    fs::remove_file(&entry).unwrap();
    let daemon = home.serve_as("", &["--replay", cassette.to_str().unwrap()]);
    let replayed = called(&daemon);
    daemon.stop();
    for (live, again) in recorded.iter().zip(&replayed) {
        assert_eq!(again["result"]["_meta"]["io.portcullis/call"]["replayed"], true, "{again}");
        assert_eq!(crate::replay::unmarked(again).to_string(), crate::replay::unmarked(live).to_string());
    }
    assert_eq!(home.events("replay.hit").len(), calls.len());
    assert_eq!(home.events("execution.intent").len(), calls.len(), "nothing was called again");
    assert_eq!(home.events("sandbox.established").len(), started, "nothing was started");

    // The session once more, offline: the same by the rules of today, and what stricter ones would have said.
    for intent in home.events("execution.intent") {
        let session = intent["session"].as_str().unwrap();
        let same = home.json(&["audit", "replay", session]);
        assert_eq!(
            (&same["misses"], &same["policy_diffs"], &same["output_diffs"]),
            (&json!(0), &json!([]), &json!([]))
        );
    }
    let summed = &home.events("execution.intent")[1];
    let policies = home.beside("stricter");
    fs::create_dir(&policies).unwrap();
    let forbid =
        "@id(\"no-sums\") forbid (principal, action, resource) when { resource.name == \"get-sum\" };";
    fs::write(policies.join("stricter.cedar"), forbid).unwrap();
    let session = summed["session"].as_str().unwrap();
    let output =
        home.run(&["--output", "json", "audit", "replay", session, "--policy", policies.to_str().unwrap()]);
    let stricter: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stricter}");
    let differences = stricter["policy_diffs"].as_array().unwrap();
    assert_eq!((differences.len(), &differences[0]["now"]), (1, &json!("deny")), "{stricter}");
    home.verify();
}

#[test]
fn the_inspector_lists_and_calls() {
    // PRO-52
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let command = [node(), package("server-everything", "dist/index.js"), "stdio".into()];
    register(&home, "everything", "2.0.0", None, &command);
    let daemon = home.serve();
    let inspect = |method: &str, more: &[&str]| {
        let mut inspector = Command::new(node());
        inspector.arg(package("inspector-cli", "build/cli.js"));
        inspector.args(["--cli", &format!("http://{}/mcp", daemon.address), "--transport", "http"]);
        inspector.args(["--method", method]).args(more);
        run_to_its_end(&home, inspector)
    };
    let listed = inspect("tools/list", &[]);
    assert!(listed.contains("everything__echo"), "{listed}");
    let called =
        inspect("tools/call", &["--tool-name", "everything__echo", "--tool-arg", "message=through the gate"]);
    assert!(called.contains("Echo: through the gate"), "{called}");
    daemon.stop();
    home.verify();
}

/// What a client of the revision before is told in a mode.
fn told_at_first(daemon: &Daemon, mode: &str) -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    daemon.http("POST", &format!("/mcp?mode={mode}"), &headers, &body.to_string()).unwrap().json()["result"]
        .clone()
}

#[test]
fn five_real_servers_are_introduced_behind_one_head_in_every_mode() {
    // SURF-10, SURF-11, SURF-12, SURF-16, T-SURF-1, T-SURF-2
    let home = Home::new("");
    let rs = Rs::start(&home, &["--profile", "rich"]);
    let grant = token_file(&home, "grant.token", &rs.tokens["client"]);
    home.json(&add(&rs.rs, &grant));
    let lengths = [("passthrough", 454), ("transparent", 494), ("gateway", 508)];
    let introduced = |names: &[&str]| {
        let daemon = home.serve();
        for (mode, length) in lengths {
            for told in [told_at_first(&daemon, mode), discover(&daemon, mode)] {
                let head = cut(&told["instructions"]);
                assert_eq!(head.len(), length, "{mode}: {head}");
                for topic in
                    ["grant-scoped", "call schema, then", "connection_id", "typed", "limit and cursor"]
                {
                    assert!(head.contains(topic), "{mode}: {head}");
                }
                let text = told["instructions"].as_str().unwrap();
                for name in names {
                    assert!(text[512..].contains(&format!("\n- {name}")), "{mode}, {name}: {text}");
                }
                assert!(!text.to_lowercase().contains("owner"), "{text}");
            }
        }
        daemon.stop();
    };
    introduced(&["personal"]);
    let folder = home.beside("files");
    fs::create_dir(&folder).unwrap();
    let place = folder.display().to_string();
    register(
        &home,
        "files",
        "0.2.0",
        Some(&folder),
        &[node(), package("server-filesystem", "dist/index.js"), place],
    );
    let everything = [node(), package("server-everything", "dist/index.js"), "stdio".into()];
    register(&home, "everything", "2.0.0", None, &everything);
    let memory = home.beside("memory");
    fs::create_dir(&memory).unwrap();
    let file = format!("MEMORY_FILE_PATH={}", memory.join("memory.jsonl").display());
    let command = [node(), package("server-memory", "dist/index.js")];
    register_in(&home, "memory", "0.6.3", Some(&memory), &command, &[&file]);
    let thinking = [node(), package("server-sequential-thinking", "dist/index.js")];
    register(&home, "thinking", "2026.8.31", None, &thinking);
    introduced(&["everything", "files", "memory", "personal", "thinking"]);
}
