//! The malicious server behind a gateway: how it is registered, and told what to try.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Daemon, Home, eventually, program};

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

fn scene() -> (Home, Evil) {
    let home = Home::new("");
    let evil = Evil::new(&home);
    evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    (home, evil)
}

#[test]
fn what_no_honest_server_tries_ends_it_and_withholds_its_answer() {
    // SBX-34, SBX-60, SBX-61, SBX-63, MP-FH-008, S-BAIT-1, S-NET-1, S-PROC-3
    for (act, kind) in [
        (&["read", "/etc/shadow"][..], "bait"),
        (&["read", "/root/.ssh/id_ed25519"], "bait"),
        (&["read", "/tmp/home/.ssh/id_ed25519"], "bait"),
        (&["tcp", "192.0.2.1:80"], "egress"),
        (&["udp", "192.0.2.1:53"], "egress"),
        (&["socket", "17", "3"], "syscall"),
        (&["socket", "40", "1"], "syscall"),
        (&["socket", "2", "3"], "syscall"),
        (&["call", "mount"], "syscall"),
        (&["call", "bpf"], "syscall"),
        (&["call", "process_vm_readv"], "syscall"),
        (&["call", "open_by_handle_at"], "syscall"),
        (&["call", "attach"], "syscall"),
    ] {
        let (home, evil) = scene();
        let daemon = home.serve();
        let answer = ask(&daemon, &home, "evil__act", act);
        assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{act:?}: {answer}");
        eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
        eventually("its end", || evil.processes().is_empty().then_some(()));
        daemon.stop();
        let withheld = home.events("execution.withheld");
        assert_eq!(withheld[0]["data"]["kind"], kind, "{act:?}: {withheld:?}");
        assert_eq!(home.events("mcp.scope_violation").len(), 1, "{act:?}");
        assert_eq!(home.events("trust.violation").len(), 1, "{act:?}: trust is reset");
        let permit = &home.events("execution.intent")[0]["data"]["permit_id"];
        let told = match kind {
            "egress" => home.events("sandbox.egress_denied"),
            "syscall" => home.events("sandbox.syscall_denied"),
            _ => continue,
        };
        assert_eq!(&told[0]["data"]["permits"][0], permit, "{act:?}: {told:?}");
    }
}

#[test]
fn what_runtimes_try_innocently_is_refused_and_no_more() {
    // SBX-34, SBX-60: probes fail quietly, or are only told.
    let (home, evil) = scene();
    let daemon = home.serve();
    for (act, errno) in [
        (&["socket", "10", "1"][..], 97),
        (&["socket", "16", "3"], 97),
        (&["call", "unshare"], 1),
        (&["call", "setns"], 1),
        (&["call", "keyctl"], 1),
        (&["call", "userfaultfd"], 1),
        (&["call", "io_uring"], 38),
        (&["call", "clone3"], 38),
    ] {
        let seen = outcome(&ask(&daemon, &home, "evil__act", act));
        assert_eq!((&seen["worked"], &seen["errno"]), (&json!(false), &json!(errno)), "{act:?}: {seen}");
    }
    assert!(!evil.processes().is_empty());
    daemon.stop();
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active");
    let told = home.events("sandbox.syscall_denied");
    let calls: Vec<&str> = told.iter().filter_map(|event| event["data"]["call"].as_str()).collect();
    assert_eq!(calls, ["unshare", "setns"]);
}

#[test]
fn a_place_that_honest_servers_look_at_is_taken_off_the_list() {
    // SBX-61
    let home = Home::new("[sandbox]\nbaits = [\"/etc/shadow\"]\n");
    let evil = Evil::new(&home);
    evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
    let daemon = home.serve();
    let seen = outcome(&ask(&daemon, &home, "evil__act", &["read", "/root/.ssh/id_ed25519"]));
    assert_eq!(seen["worked"], false, "{seen}");
    let answer = ask(&daemon, &home, "evil__act", &["read", "/etc/shadow"]);
    assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
    daemon.stop();
}

#[test]
fn a_program_file_that_changes_while_it_runs_ends_the_server() {
    // SBX-60: artifact
    let home = Home::new("");
    let evil = Evil::new(&home);
    let part = home.beside("part.txt");
    fs::write(&part, "1").unwrap();
    let declared = Declared { scopes: "", act: NOTHING, other: NOTHING };
    evil.register(&home, &declared, &["--artifact", part.to_str().unwrap()]);
    let daemon = home.serve();
    ask(&daemon, &home, "evil__act", &["say", "hello"]);
    fs::write(&part, "2").unwrap();
    eventually("the halt", || (home.json(&["mcp", "list"])[0]["state"] == "halted").then_some(()));
    eventually("its end", || evil.processes().is_empty().then_some(()));
    daemon.stop();
    let told = home.events("mcp.scope_violation");
    assert!(told[0]["data"]["reason"].as_str().unwrap().starts_with("artifact"), "{told:?}");
}

#[test]
fn a_server_that_asks_for_what_is_not_there_is_noticed_where_that_is_wanted() {
    // SBX-62
    for (detect, noticed) in [("standard", false), ("full", true)] {
        let home = Home::new(&format!("[sandbox]\ndetect = \"{detect}\"\n"));
        let evil = Evil::new(&home);
        evil.register(&home, &Declared { scopes: "", act: NOTHING, other: NOTHING }, &[]);
        let daemon = home.serve();
        // What is its own, and what everybody looks at, is no news.
        for act in [
            &["write", "/tmp/x"][..],
            &["read", "/etc/passwd"],
            &["read", "/proc/self/status"],
            &["descriptors"],
        ] {
            assert_eq!(outcome(&ask(&daemon, &home, "evil__act", act))["worked"], true, "{detect}: {act:?}");
        }
        let answer = ask(&daemon, &home, "evil__act", &["read", "/home/somebody/.aws/credentials"]);
        daemon.stop();
        if noticed {
            assert_eq!(answer["error"]["data"]["details"]["code"], "MP-FH-008", "{answer}");
            assert_eq!(home.events("execution.withheld")[0]["data"]["kind"], "file");
            let told = home.events("mcp.scope_violation");
            assert!(told[0]["data"]["reason"].as_str().unwrap().contains("/home/somebody/.aws"), "{told:?}");
        } else {
            assert_eq!(outcome(&answer)["worked"], false, "{answer}");
            assert!(home.events("mcp.scope_violation").is_empty());
        }
        home.verify();
    }
}
