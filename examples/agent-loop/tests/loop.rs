//! The example does what its first page says, with a real server and one that is given nonsense.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The notes server, built beside the example.
fn demo_server() -> PathBuf {
    let folder = std::env::var_os("PORTCULLIS_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_BIN_EXE_example-agent-loop")).parent().unwrap().to_owned(),
        PathBuf::from,
    );
    let program = folder.join("demo-server");
    assert!(program.is_file(), "{} is missing: cargo build -p demo-server", program.display());
    program
}

fn turn(wish: &str, arguments: &str, notes: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_example-agent-loop"))
        .args([wish, arguments])
        .arg(demo_server())
        .arg("--dir")
        .arg(notes)
        .output()
        .unwrap()
}

#[test]
fn a_wish_becomes_a_call_and_its_result_a_prompt() {
    let notes = tempfile::tempdir().unwrap();
    let output = turn("search my notes for a word", r#"{"query": "gate"}"#, notes.path());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("# calling notes_search"), "{said}");
    assert!(said.contains("# the prompt") && said.contains("one-call-ten-steps"), "{said}");
}

#[test]
fn arguments_that_do_not_fit_are_not_sent() {
    let notes = tempfile::tempdir().unwrap();
    let output = turn("write a note", r#"{"name": "../escaped", "text": 1}"#, notes.path());
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Input"), "{said}");
}
