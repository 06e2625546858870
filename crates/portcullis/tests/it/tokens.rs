//! The bearer of a records server is used and nowhere to be found.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;

use crate::admin::Program;
use crate::records::guarded;

/// Every byte of every file in a folder.
fn bytes_in(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => bytes_in(&entry.path(), found),
            Ok(kind) if kind.is_file() => {
                found.push((
                    entry.path().display().to_string(),
                    std::fs::read(entry.path()).unwrap_or_default(),
                ));
            }
            _ => {}
        }
    }
}

#[test]
fn no_token_is_in_any_answer_file_metric_or_core() {
    // REC-12, REC-94, T-REC-25
    let dumps = Rlimit { current: None, maximum: None };
    setrlimit(Resource::Core, dumps).unwrap();
    let mut guarded = guarded("", &["--profile", "rich"]).warmed();
    let mut said = String::new();
    for (tool, arguments) in [
        ("query_records", json!({"stream": "messages", "limit": 3})),
        ("query_records", json!({"stream": "nothing"})),
        ("fetch", json!({"id": "messages:m1"})),
        ("query_records", json!({"stream": "labels", "expand": ["x"]})),
    ] {
        said += &guarded.agent.call(&format!("personal__{tool}"), arguments).to_string();
    }
    // A failure whose words are the server's, and one where nothing is said.
    for kind in ["html", "reset"] {
        guarded.rs.fault(json!({"kind": kind, "path_prefix": "/v1/streams"}));
        said += &guarded.agent.call("personal__query_records", json!({"stream": "messages"})).to_string();
    }
    said += &Program::new(&guarded.home, &guarded.daemon).metrics();
    for command in [&["audit", "log", "--limit", "100000"][..], &["mcp", "show", "personal"], &["doctor"]] {
        let output = guarded.home.command().args(command).output().unwrap();
        said += &String::from_utf8_lossy(&[output.stdout, output.stderr].concat());
    }
    // It dies as a program does that is dumped.
    Command::new("kill").args(["-ABRT", &guarded.daemon.child.id().to_string()]).status().unwrap();
    let died = guarded.daemon.child.wait().unwrap();
    assert_eq!(died.signal(), Some(6), "{died}");
    // A program that may be dumped shows whether this machine would have kept a core at all.
    let mut other = Command::new("sleep");
    // Its core, if there is one, goes with the folder of this test.
    let other = other.arg("600").process_group(0).current_dir(guarded.home.path());
    let mut other = other.env_clear().stdin(Stdio::null()).spawn().unwrap();
    Command::new("kill").args(["-ABRT", &other.id().to_string()]).status().unwrap();
    let dumpable = other.wait().unwrap().core_dumped();
    assert!(!died.core_dumped(), "the gateway left a core; another program: {dumpable}");
    said += &guarded.daemon.stderr();

    let _ = std::fs::remove_file(guarded.home.path().join("core"));
    let mut files = vec![("what was said".to_owned(), said.into_bytes())];
    bytes_in(&guarded.home.path(), &mut files);
    assert!(files.len() > 5, "{}", files.len());
    for label in ["client", "narrow", "owner"] {
        let token = guarded.rs.tokens[label].as_str().unwrap().as_bytes();
        for (place, bytes) in &files {
            assert!(!bytes.windows(token.len()).any(|part| part == token), "{label} is in {place}");
        }
    }
}
