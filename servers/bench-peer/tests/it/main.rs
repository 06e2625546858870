//! The three roles, talking to each other as processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

const PEER: &str = env!("CARGO_BIN_EXE_bench-peer");

/// A listening role; killed when dropped.
struct Listening {
    child: Child,
    url: String,
}

impl Listening {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(PEER).args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        Self { child, url }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn load(arguments: &[&str]) -> Value {
    let output = Command::new(PEER).arg("load").args(arguments).output().expect("it runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn assert_clean(report: &Value, calls: u64) {
    assert_eq!((&report["calls"], &report["errors"]), (&json!(calls), &json!(0)), "{report}");
    assert!(report["p50_us"].as_u64() <= report["p99_us"].as_u64());
    assert!(report["calls_per_s"].as_f64() > Some(0.0));
}

#[test]
fn callers_load_an_http_upstream_directly_and_through_the_forwarder() {
    let echo = Listening::start(&["echo", "--http", "0"]);
    let forward = Listening::start(&["forward", "--listen", "0", "--upstream", &echo.url]);
    for url in [&echo.url, &forward.url] {
        for revision in ["legacy", "modern"] {
            let common =
                ["--url", url, "--revision", revision, "--callers", "4", "--calls", "40", "--warmup", "9"];
            assert_clean(&load(&common), 40);
            assert_clean(&load(&[&common[..], &["--tool", "blob", "--args", "{}"]].concat()), 40);
        }
    }
}

#[test]
fn callers_share_one_child_directly_and_through_the_forwarder() {
    for revision in ["legacy", "modern"] {
        let common = [
            "--revision",
            revision,
            "--callers",
            "8",
            "--calls",
            "80",
            "--stdio",
            "--",
            PEER,
            "echo",
            "--stdio",
        ];
        assert_clean(&load(&common), 80);
        let forward =
            Listening::start(&["forward", "--listen", "0", "--stdio", "--", PEER, "echo", "--stdio"]);
        assert_clean(
            &load(&["--url", &forward.url, "--revision", revision, "--callers", "8", "--calls", "80"]),
            80,
        );
    }
}

#[test]
fn failed_calls_are_counted_and_the_first_is_shown() {
    let echo = Listening::start(&["echo", "--http", "0"]);
    let report = load(&["--url", &echo.url, "--tool", "nope", "--calls", "5"]);
    assert_eq!((&report["calls"], &report["errors"]), (&json!(5), &json!(5)));
    assert!(report["first_error"].as_str().is_some_and(|error| error.contains("no such tool")));
}

#[test]
fn the_declaration_equals_what_the_echo_upstream_lists() {
    // GOV-403 rule 8
    let mut child = Command::new(PEER)
        .args(["echo", "--stdio"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("stdin is piped");
    writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list"}}"#).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends with its input");
    let live: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let declaration: Value = serde_saphyr::from_str(include_str!("../../bench.yaml")).expect("YAML");
    let (live, declared) = (&live["result"]["tools"], &declaration["tools"]);
    assert_eq!(live.as_array().map(Vec::len), Some(2));
    for index in 0..2 {
        assert_eq!(live[index]["name"], declared[index]["name"]);
        assert_eq!(live[index]["description"], declared[index]["description"]);
        assert_eq!(live[index]["inputSchema"], declared[index]["parameters"]);
    }
}
