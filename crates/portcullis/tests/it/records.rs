//! The records adapter, between an agent and a real records server whose log tells what reached it.

mod answers;
mod arguments;
mod credentials;
mod events;
mod expanding;
mod stub;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::agent::Agent;
use crate::support::{Daemon, Home, Operator, eventually, exchange, program};

/// A records server.
pub(crate) struct Rs {
    child: Child,
    pub(crate) rs: String,
    admin: String,
    pub(crate) tokens: Value,
}

impl Rs {
    pub(crate) fn start(home: &Home, args: &[&str]) -> Self {
        let ready = home.beside("records.json");
        let mut command = Command::new(program("records-server"));
        command.args(["--deterministic", "--ready-file"]).arg(&ready).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let text = eventually("the records server", || {
            assert!(child.try_wait().unwrap().is_none(), "the records server ended");
            fs::read_to_string(&ready).ok()
        });
        let ready: Value = serde_json::from_str(&text).unwrap();
        let url = |key: &str| ready[key].as_str().unwrap().to_owned();
        Self { child, rs: url("rs"), admin: url("admin"), tokens: ready["tokens"].clone() }
    }

    fn turn(&self, method: &str, path: &str, body: &Value) -> Value {
        let address = self.admin.strip_prefix("http://").unwrap();
        let reply =
            exchange(address, method, path, &[("Content-Type", "application/json")], &body.to_string())
                .unwrap();
        reply.json()
    }

    pub(crate) fn fault(&self, fault: Value) {
        assert_eq!(self.turn("POST", "/fault", &fault)["ok"], true);
    }

    /// A subscription as the server itself has it.
    fn subscription(&self, token: &str, id: &str) -> Value {
        let address = self.rs.strip_prefix("http://").unwrap();
        let bearer = format!("Bearer {}", self.tokens[token].as_str().unwrap());
        let path = format!("/v1/event-subscriptions/{id}");
        exchange(address, "GET", &path, &[("Authorization", &bearer)], "").unwrap().json()
    }

    /// What reached it since the last look: method, path and query.
    pub(crate) fn asked(&self) -> Vec<Value> {
        let log = self.turn("GET", "/log", &json!({}));
        self.turn("DELETE", "/log", &json!({}));
        log.as_array().unwrap().clone()
    }

    /// An entry of its log as it was asked for.
    pub(crate) fn target(entry: &Value) -> String {
        let pair = |pair: &Value| format!("{}={}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
        let query: Vec<String> = entry["query"].as_array().unwrap().iter().map(pair).collect();
        let path = entry["path"].as_str().unwrap();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
    }

    fn paths(&self) -> Vec<String> {
        self.asked().iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Rs {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A gateway with a records server behind it.
pub(crate) struct Guarded {
    pub(crate) home: Home,
    pub(crate) rs: Rs,
    pub(crate) daemon: Daemon,
    pub(crate) agent: Agent,
    _operator: Operator,
}

pub(crate) fn token_file(home: &Home, name: &str, token: &Value) -> String {
    let file = home.beside(name);
    fs::write(&file, token.as_str().unwrap()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(crate) fn add<'a>(url: &'a str, file: &'a str) -> Vec<&'a str> {
    vec![
        "mcp",
        "add",
        "personal",
        "--transport",
        "records",
        "--url",
        url,
        "--credential-file",
        file,
        "--justification",
        "mail",
        "--deployment-mode",
        "local",
    ]
}

pub(crate) fn guarded(config: &str, args: &[&str]) -> Guarded {
    let home = Home::new(&format!("[policy]\npreset = \"observe\"\n{config}"));
    let rs = Rs::start(&home, args);
    let file = token_file(&home, "grant.token", &rs.tokens["client"]);
    let record = home.json(&add(&rs.rs, &file));
    // REC-1, GOV-103
    assert_eq!((&record["boundary_kind"], &record["transport"]), (&json!("builtin"), &json!("records")));
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let agent = Agent::open(&daemon, "2025-11-25");
    rs.asked();
    Guarded { home, rs, daemon, agent, _operator: operator }
}

impl Guarded {
    fn call(&self, tool: &str, arguments: Value) -> Value {
        let answer = self.agent.call(&format!("personal__{tool}"), arguments);
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"].clone()
    }

    /// A call that must succeed.
    pub(crate) fn good(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_ne!(result["isError"], true, "{result}");
        result
    }

    /// The document of a refusal.
    pub(crate) fn refused(&self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        let document: Value =
            serde_json::from_str(&unescaped(result["content"][0]["text"].as_str().unwrap())).unwrap();
        // SURF-80: the same as structure, for clients that show only that.
        let structured = &result["structuredContent"];
        let codes = |document: &Value| (document["error"].clone(), document["details"]["code"].clone());
        assert_eq!(codes(structured), codes(&document));
        document
    }

    /// The first call of a tool also looks at the credential; after this, only what is asked for reaches the server.
    pub(crate) fn warmed(self) -> Self {
        self.good("schema", json!({}));
        self.rs.asked();
        self
    }
}

pub(crate) fn unescaped(text: &str) -> String {
    text.replace("&#39;", "'")
        .replace("&#x27;", "'")
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

fn text(result: &Value) -> String {
    unescaped(result["content"][0]["text"].as_str().unwrap())
}
