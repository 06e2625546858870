//! Servers and clients that are not ours: the reference servers from npm, the official Python and TypeScript SDKs.
//!
//! `cargo xtask test` installs them and says where; without it these tests fail and say so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Home, eventually};

fn installed(variable: &str) -> PathBuf {
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
fn draft_declaration(identity: &str, version: &str, folder: Option<&Path>, command: &[String]) -> String {
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
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "draft", "version": "1"}});
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
    json!({"apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration", "server": server, "scopes": scopes, "tools": tools.collect::<Vec<_>>()}).to_string()
}

fn register(home: &Home, identity: &str, version: &str, folder: Option<&Path>, command: &[String]) {
    let file = home.beside(&format!("{identity}.yaml"));
    fs::write(&file, draft_declaration(identity, version, folder, command)).unwrap();
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
    ];
    let mut args: Vec<&str> = fixed.to_vec();
    args.extend(["--deployment-mode", "local", "--capability-declaration", file.to_str().unwrap()]);
    // Its modules are all over the folder of packages.
    let modules = installed("PORTCULLIS_NODE_MODULES");
    args.extend(["--artifact", modules.to_str().unwrap(), "--"]);
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

/// Runs a client to its end while an operator grants whatever it asks for.
fn run_client(home: &Home, mut command: Command) -> Value {
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
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    serde_json::from_str(last)
        .unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn client(name: &str) -> PathBuf {
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
