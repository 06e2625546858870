//! The malicious server behind a gateway: how it is registered, and told what to try.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, program};

/// A malicious server with a program file of its own.
pub(crate) struct Evil {
    pub(crate) executable: PathBuf,
}

/// What its two tools are declared to do: scopes, and what a tool has besides its name.
pub(crate) struct Declared<'a> {
    pub(crate) scopes: &'a str,
    pub(crate) act: &'a str,
    pub(crate) other: &'a str,
}

/// A tool that has nothing.
pub(crate) const NOTHING: &str = "side_effects: [], scopes: [], credentials: []";

impl Evil {
    pub(crate) fn new(home: &Home) -> Self {
        let executable = home.beside("evil");
        fs::copy(program("evil"), &executable).unwrap();
        Self { executable }
    }

    pub(crate) fn declaration(declared: &Declared<'_>) -> String {
        let tool = |name: &str, powers: &str| {
            format!(
                "  - {{ name: {name}, version: \"1\", {powers}, parameters: {{ type: object, additionalProperties: false, \
                 required: [do], properties: {{ do: {{ type: array, items: {{ type: string }} }} }} }}, output: {{ type: text }}, \
                 idempotency: unknown, failure_modes: [], limits: {{ timeout: 60s, max_response_bytes: 4194304 }} }}\n"
            )
        };
        format!(
            "apiVersion: portcullis/v1\nkind: CapabilityDeclaration\nserver: {{ identity: evil, version: \"1.0.0\", \
             protocol_versions: [\"2025-06-18\"], surface: static }}\nscopes:{}\ntools:\n{}{}",
            if declared.scopes.is_empty() { " {}" } else { declared.scopes },
            tool("act", declared.act),
            tool("other", declared.other)
        )
    }

    /// Registers it, with further flags.
    pub(crate) fn register(&self, home: &Home, declared: &Declared<'_>, flags: &[&str]) -> Value {
        let file = home.beside("evil.yaml");
        fs::write(&file, Self::declaration(declared)).unwrap();
        let mut args = vec![
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
        ];
        args.push(file.to_str().unwrap());
        args.extend(flags);
        args.extend(["--", self.executable.to_str().unwrap(), "serve"]);
        home.json(&args)
    }

    /// The processes of it that are alive.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let runs_us =
            |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.executable);
        pids.filter(runs_us).collect()
    }
}

/// Has it try something, with an operator's leave; the whole answer.
pub(crate) fn ask(daemon: &Daemon, home: &Home, tool: &str, act: &[&str]) -> Value {
    daemon.approved_call(home, tool, &json!({"do": act})).unwrap()
}

/// What came of an act that was answered.
pub(crate) fn outcome(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str();
    serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}"))).unwrap()
}

/// Runs `portcullis secret …` with a value on descriptor 3.
pub(crate) fn secret(home: &Home, args: &str, value: &str) {
    let file = home.beside("value");
    fs::write(&file, value).unwrap();
    let line = format!(
        "exec '{}' --home '{}' secret {args} --fd 3 3< '{}'",
        env!("CARGO_BIN_EXE_portcullis"),
        home.path().display(),
        file.display()
    );
    let output = Command::new("/bin/sh").args(["-c", &line]).output().unwrap();
    fs::remove_file(&file).unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains(value), "{said}");
}
