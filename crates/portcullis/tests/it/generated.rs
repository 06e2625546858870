//! The HTTP surface of administration, held to its own description by a program that others wrote: Schemathesis makes requests of
//! the generated OpenAPI document, right ones and wrong ones, and none may be more than the gateway can take.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::admin::Program;
use crate::support::guarded_spy;
use crate::third_party::{client, installed};

/// How many requests of each kind are made of each operation.
const EXAMPLES: &str = "4";

#[test]
fn what_is_generated_from_the_description_never_fails_inside() {
    // ADM-2, ADM-21, ADM-31
    let (home, _spy) = guarded_spy("");
    let mut daemon = home.serve();
    let _said = daemon.listened_to();
    let program = Program::new(&home, &daemon);
    let document = program.get("/api/openapi.json");
    assert_eq!(document.status, 200);
    let mut described = document.json();
    // The token that the requests come with is not theirs to take back, nor their operator theirs to switch off.
    let paths = described["paths"].as_object_mut().unwrap();
    let operations = paths.len();
    for own in ["tokens_revoke", "users_put", "users_delete", "roles_put", "config_set"] {
        paths.remove(&format!("/api/admin/portcullis_{own}")).unwrap_or_else(|| panic!("{own} is described"));
    }
    let file = home.beside("openapi.json");
    fs::write(&file, described.to_string()).unwrap();
    let output = Command::new(installed("PORTCULLIS_PYTHON"))
        .arg(client("schemathesis_client.py"))
        .arg(Path::new(&file))
        .args([daemon.console.as_str(), program.token(), EXAMPLES])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|_| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(seen["failures"], json!([]), "{seen}");
    assert_eq!(seen["operations"], operations - 5, "{seen}");
    assert!(seen["requests"].as_u64().unwrap() > operations as u64, "{seen}");
    assert!(seen["statuses"]["200"].as_u64().is_some_and(|right| right > 0), "{seen}");
    assert!(seen["statuses"]["400"].as_u64().is_some_and(|wrong| wrong > 0), "{seen}");
    daemon.stop();
    home.verify();
}
