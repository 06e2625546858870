//! The examples that are files, as they lie in the repository.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::approvals::{decide, enrol};
use crate::support::{Home, Spy, program};

const PASSPHRASE: &str = "ana likes quiet gates";

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn the_developer_s_file_becomes_a_governed_server() {
    let home = Home::new("[policy]\npreset = \"observe\"\n");
    let (server, notes) = (home.beside("demo-server"), home.beside("notes"));
    fs::copy(program("demo-server"), &server).unwrap();
    copy(&example("developer/notes"), &notes);
    // What the example's page has `sed` do.
    let text = fs::read_to_string(example("developer/mcp.json")).unwrap();
    let text = text
        .replace("\"demo-server\"", &json!(server).to_string())
        .replace("\"notes\"]", &format!("{}]", json!(notes)));
    let file = home.beside("mcp.json");
    fs::write(&file, text).unwrap();
    let report = home.json(&["import", file.to_str().unwrap(), "--accept", "--grant", "all"]);
    assert_eq!(home.json(&["mcp", "list"])[0]["state"], "active", "{report}");
    let called = home.run(&["call", "notes__notes_search", r#"{"query": "gate"}"#]);
    let said = String::from_utf8_lossy(&called.stdout);
    assert!(called.status.success(), "{said}{}", String::from_utf8_lossy(&called.stderr));
    assert!(said.contains("A gate that comes down by itself"), "{said}");
    home.verify();
}

#[test]
fn the_team_s_policies_hold_for_its_agents() {
    let config = fs::read_to_string(example("platform/portcullis.toml")).unwrap();
    let home = Home::new(&config);
    let policies = home.path().join("policies");
    copy(&example("platform/policies"), &policies);
    assert_eq!(home.json(&["policy", "validate", policies.to_str().unwrap()])["valid"], true);

    let spy = Spy::new(&home);
    let declaration = home.beside("spy.yaml");
    fs::write(&declaration, spy.declaration()).unwrap();
    let args = spy.add_args(&declaration);
    let for_the_team = args.iter().map(|arg| if arg == "local" { "team" } else { arg.as_str() });
    let add: Vec<&str> = for_the_team.collect();
    enrol(&home, "ana", PASSPHRASE);
    let (code, registered) = decide(&home, "ana", PASSPHRASE, &add);
    assert_eq!(code, 0, "{registered}");
    let create = ["key", "create", "build-bot", "--expires", "30d", "--group", "contractors"];
    let (code, created) = decide(&home, "ana", PASSPHRASE, &create);
    assert_eq!(code, 0, "{created}");
    let bot = format!("Bearer {}", created["key"].as_str().unwrap());

    let daemon = home.serve();
    let params =
        json!({"name": "spy__write_thing", "arguments": {"path": spy.workspace.join("a"), "text": "x"}});
    let mut body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    assert_eq!(daemon.post(&[], &body).unwrap().status, 401);
    body["params"]["_meta"] = crate::support::modern_meta();
    let headers = [
        ("Authorization", bot.as_str()),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "spy__write_thing"),
    ];
    let refused = daemon.post(&headers, &body).unwrap().json();
    let document = &refused["error"]["data"];
    assert_eq!(document["error"], "POLICY_DENIED", "{refused}");
    assert_eq!(document["details"]["reasons"], json!(["team/contractors-read"]), "{refused}");
    assert_eq!(spy.calls(), 0);
}
