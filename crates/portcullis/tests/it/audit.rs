//! The evidence as its readers see it: `audit verify`, `audit show`.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Home, guarded_spy};

/// The folder of the one log.
fn log_dir(home: &Home) -> PathBuf {
    fs::read_dir(home.path().join("audit")).unwrap().flatten().find(|e| e.path().is_dir()).unwrap().path()
}

#[test]
fn a_record_can_be_shown_with_its_proof_and_the_checkpoint_holds_the_log_to_it() {
    // AUD-30, AUD-32, AUD-50, A-2
    let (home, _spy) = guarded_spy("");
    let shown = home.json(&["audit", "show", "0", "--proof"]);
    assert_eq!(shown["record"]["event"], "system.initialized");
    assert_eq!(shown["proof"]["index"], 0);
    let id = shown["record"]["id"].as_str().unwrap();
    assert_eq!(home.json(&["audit", "show", id])["record"], shown["record"]);
    assert_eq!(home.fails(&["audit", "show", "100000"]).0, 8);

    let kept = home.beside("kept");
    fs::copy(log_dir(&home).join("tlog/checkpoint"), &kept).unwrap();
    let kept = kept.to_str().unwrap();
    let vkey = shown["record"]["data"]["vkey"].as_str().unwrap();
    let output = home.run(&["audit", "verify", "--checkpoint", kept, "--vkey", vkey]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.lines().count() == 1 && text.contains("is whole"), "{text}");

    // Another log, written by somebody else, is not the one the checkpoint was made over.
    let (other, _spy) = guarded_spy("");
    let output = other.run(&["--output", "json", "audit", "verify", "--checkpoint", kept]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["problems"][0]["kind"], json!("inconsistent_checkpoint"), "{report}");
    assert_eq!(home.fails(&["audit", "verify", "--vkey", "nonsense"]).0, 7);
}
