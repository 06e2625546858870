//! The reference server of the conformance suite, on the official SDK, behind a gateway.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Home, program};

/// A running reference server; killed when dropped.
pub(crate) struct Reference {
    child: Option<Child>,
    pub(crate) url: String,
}

impl Reference {
    /// A server that speaks `both` eras, `legacy` or `modern`.
    pub(crate) fn start(eras: &str) -> Self {
        let mut command = Command::new(program("conformance-server"));
        let mut child = command.args(["--eras", eras]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child: Some(child), url }
    }

    /// The same server as it is reached at another address.
    pub(crate) fn at(url: &str) -> Self {
        Self { child: None, url: url.to_owned() }
    }

    /// Registers it with everything it lists, and more in its declaration.
    pub(crate) fn register(&self, home: &Home, more: &Value) {
        let file = home.beside("conformance.yaml");
        std::fs::write(&file, declaration(more)).unwrap();
        let (file, url) = (file.to_str().unwrap(), self.url.as_str());
        home.json(&[
            "mcp",
            "add",
            "conformance",
            "--transport",
            "http",
            "--url",
            url,
            "--server-version",
            env!("CARGO_PKG_VERSION"),
            "--deployment-mode",
            "local",
            "--justification",
            "a peer of ours",
            "--waive-isolation",
            "a peer of ours on loopback",
            "--capability-declaration",
            file,
            "--yes",
        ]);
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn declaration(more: &Value) -> String {
    let catalogue: Value =
        serde_json::from_str(include_str!("../../../../servers/conformance-server/src/catalogue.json"))
            .unwrap();
    let items = |key: &str, clause: fn(&Value) -> Value| -> Vec<Value> {
        catalogue[key].as_array().into_iter().flatten().map(clause).collect()
    };
    let plain = json!({"side_effects": [], "scopes": [], "credentials": [], "failure_modes": []});
    let with = |mut clause: Value| {
        clause.as_object_mut().unwrap().extend(plain.as_object().unwrap().clone());
        clause
    };
    let tools = items("tools", |tool| {
        json!({
            "name": tool["name"], "version": "1", "parameters": tool["inputSchema"], "output": {"type": "text"},
            "idempotency": "idempotent",
        })
    });
    let resource = |one: &Value| {
        let mut clause =
            json!({"name": one["name"], "version": "1", "mime_types": [one["mimeType"]], "uri": one["uri"]});
        if one["uri"].is_null() {
            clause["uri_template"] = one["uriTemplate"].clone();
            clause.as_object_mut().unwrap().shift_remove("uri");
        }
        clause
    };
    let resources = [items("resources", resource), items("templates", resource)].concat();
    let prompts = items("prompts", |prompt| {
        let arguments = prompt["arguments"].as_array().into_iter().flatten();
        let argument =
            |one: &Value| json!({"name": one["name"], "required": one["required"], "max_length": 4096});
        json!({"name": prompt["name"], "version": "1", "arguments": arguments.map(argument).collect::<Vec<_>>()})
    });
    let all = |clauses: Vec<Value>| clauses.into_iter().map(with).collect::<Vec<_>>();
    let mut declaration = json!({
        "apiVersion": "portcullis/v1", "kind": "CapabilityDeclaration",
        "server": {
            "identity": "conformance", "version": env!("CARGO_PKG_VERSION"), "surface": "static",
            "protocol_versions": ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"],
        },
        "scopes": {}, "tools": all(tools), "resources": all(resources), "prompts": all(prompts),
    });
    declaration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    declaration.to_string()
}
