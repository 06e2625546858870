//! Packages that are fetched once, in a cage, from a registry (GOV-1402): a registry of our own, whose package is not honest.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::Home;

/// A server of MCP in a few lines, and beside it a script that npm would run if it were let.
const SERVER: &str = r#"
const tools = [{name: 'greet', description: 'Say hello.', inputSchema: {type: 'object', properties: {}, additionalProperties: false}}];
let rest = '';
process.stdin.on('data', (chunk) => {
  rest += chunk;
  for (let at; (at = rest.indexOf('\n')) >= 0; rest = rest.slice(at + 1)) {
    const message = JSON.parse(rest.slice(0, at));
    if (message.id === undefined) continue;
    const answer = (result) => process.stdout.write(JSON.stringify({jsonrpc: '2.0', id: message.id, result}) + '\n');
    if (message.method === 'initialize') {
      answer({protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'fetched', version: '1.2.3'}});
    } else if (message.method === 'tools/list') answer({tools});
    else if (message.method === 'tools/call') answer({content: [{type: 'text', text: 'hello'}]});
    else process.stdout.write(JSON.stringify({jsonrpc: '2.0', id: message.id, error: {code: -32601, message: 'no'}}) + '\n');
  }
});
"#;

/// Listens, writes down what is asked for, and answers with what it has.
pub(crate) struct Site {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Site {
    pub(crate) fn with(files: impl Fn(u16, &str) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let Some(Ok(first)) = lines.next() else { continue };
                for line in lines.by_ref() {
                    if line.is_ok_and(|line| line.is_empty()) {
                        break;
                    }
                }
                let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
                let body = files(port, &path);
                heard.lock().unwrap().push(path);
                let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
                let body = body.unwrap_or_else(|| b"{}".to_vec());
                let kind = if body.starts_with(b"<") { "text/html" } else { "application/json" };
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// A package that does something when it is installed.
fn package(home: &Home, ran: &str) -> Vec<u8> {
    let folder = home.beside("made/package");
    fs::create_dir_all(&folder).unwrap();
    let manifest = json!({
        "name": "fetched", "version": "1.2.3", "bin": {"fetched": "server.js"},
        "scripts": {"preinstall": format!("touch {ran}"), "postinstall": format!("touch {ran}")},
    });
    fs::write(folder.join("package.json"), manifest.to_string()).unwrap();
    fs::write(folder.join("server.js"), SERVER).unwrap();
    let archive = home.beside("fetched.tgz");
    let packed = Command::new("tar")
        .arg("czf")
        .arg(&archive)
        .arg("-C")
        .arg(home.beside("made"))
        .arg("package")
        .status();
    assert!(packed.unwrap().success());
    fs::read(archive).unwrap()
}

fn listing(tarball: &str) -> Vec<u8> {
    let version = json!({"name": "fetched", "version": "1.2.3", "bin": {"fetched": "server.js"}, "dist": {"tarball": tarball}});
    json!({"name": "fetched", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": version}})
        .to_string()
        .into_bytes()
}

/// Imports a configuration that names the package; with this registry.
fn import(home: &Home, registry: &Site) -> Value {
    let file = home.beside("mcp.json");
    let config = json!({"mcpServers": {"fetched": {"command": "npx", "args": ["-y", "fetched@1.2.3"]}}});
    fs::write(&file, config.to_string()).unwrap();
    let mut command = home.command();
    command.args(["--output", "json", "import", file.to_str().unwrap(), "--vendor", "--accept"]);
    command.env("npm_config_registry", format!("http://packages.example:{}/", registry.port));
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

const HOSTS: &str =
    "[sandbox.hosts]\n\"packages.example\" = [\"127.0.0.1\"]\n\"elsewhere.example\" = [\"127.0.0.1\"]\n";

#[test]
fn a_package_is_fetched_in_a_cage_pinned_and_run_from_there() {
    // GOV-1402, GOV-302
    let home = Home::new(HOSTS);
    let ran = home.beside("ran");
    let archive = package(&home, ran.to_str().unwrap());
    let registry = Site::with(move |port, path| match path {
        "/fetched" => Some(listing(&format!("http://packages.example:{port}/fetched.tgz"))),
        "/fetched.tgz" => Some(archive.clone()),
        _ => None,
    });
    let report = import(&home, &registry);
    assert_eq!(report[0]["status"], "registered", "{report}");
    assert!(!ran.exists(), "nothing of the package was run");
    assert_eq!(registry.asked(), ["/fetched", "/fetched.tgz"]);
    let shown = home.json(&["mcp", "show", "fetched"]);
    assert!(shown["process"]["command"].as_str().unwrap().ends_with("node"), "{shown}");
    let entry = shown["process"]["args"][0].as_str().unwrap().to_owned();
    assert!(entry.contains("/vendor/fetched/node_modules/fetched/server.js"), "{entry}");
    assert!(
        shown["tree_pins"].to_string().contains("node_modules")
            || shown["artifact_pins"].to_string().contains("node_modules"),
        "{shown}"
    );
    // And it is a server like any other.
    let daemon = home.serve();
    let answer = daemon.approved_call(&home, "fetched__greet", &json!({})).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "hello", "{answer}");
    daemon.stop();
    // One byte of what was fetched is another, and it is not started.
    fs::write(&entry, SERVER.replace("hello", "HELLO")).unwrap();
    let daemon = home.serve();
    let refused = daemon.approved_call(&home, "fetched__greet", &json!({})).unwrap();
    assert_eq!(refused["error"]["data"]["details"]["code"], "MP-FH-009", "{refused}");
    daemon.stop();
    home.verify();
}

#[test]
fn a_registry_cannot_send_the_fetching_anywhere_else() {
    // GOV-1402: registry egress only.
    let home = Home::new(HOSTS);
    let archive = package(&home, "/nowhere");
    let elsewhere = Site::with(move |_, _| Some(archive.clone()));
    let port = elsewhere.port;
    let registry = Site::with(move |_, path| {
        (path == "/fetched").then(|| listing(&format!("http://elsewhere.example:{port}/fetched.tgz")))
    });
    let report = import(&home, &registry);
    assert_eq!(report[0]["status"], "skipped", "{report}");
    assert!(report[0]["reason"].as_str().unwrap().contains("failed"), "{report}");
    assert!(elsewhere.asked().is_empty(), "{:?}", elsewhere.asked());
    assert_eq!(home.json(&["mcp", "list"]), json!([]));
}
