//! Agents' own configuration files, written and put back.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::Home;

#[test]
fn every_client_is_connected_and_put_back_byte_for_byte() {
    // issue 6, onboarding
    let home = Home::new("");
    let json_text = "{\n    \"theme\": \"dark\",\n\t\"mcpServers\": {\"files\": {\"command\": \"npx\"}} }";
    let vscode = "{\"servers\": {}, \"inputs\": []}\n";
    let codex = "# mine\nmodel = \"x\"\n\n[mcp_servers.files]\ncommand = \"npx\"";
    for (client, name, before, member) in [
        ("claude-desktop", "claude_desktop_config.json", json_text, "mcpServers"),
        ("claude-code", ".mcp.json", json_text, "mcpServers"),
        ("cursor", "mcp.json", json_text, "mcpServers"),
        ("vscode", "code.json", vscode, "servers"),
        ("codex", "config.toml", codex, "mcp_servers"),
    ] {
        let file = home.beside(name);
        fs::write(&file, before).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let path = file.to_str().unwrap();
        let dry = home.json(&["connect", client, "--file", path, "--dry-run"]);
        assert_eq!(
            (&dry["state"], fs::read_to_string(&file).unwrap()),
            (&json!("not written"), before.to_owned())
        );
        let connected = home.json(&["connect", client, "--file", path, "--yes"]);
        assert_eq!(connected["state"], "connected", "{connected}");
        let text = fs::read_to_string(&file).unwrap();
        let document: Value = match client {
            "codex" => json!(text.parse::<toml::Table>().unwrap()),
            _ => serde_json::from_str(&text).unwrap(),
        };
        let entry = &document[member]["portcullis"];
        assert!(entry["url"] == "http://127.0.0.1:7411/mcp" || entry["args"][3] == "--stdio", "{document}");
        let backup = connected["backup"].as_str().unwrap();
        assert_eq!(fs::read_to_string(backup).unwrap(), before);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        let undone = home.json(&["connect", client, "--file", path, "--undo"]);
        assert_eq!(undone["state"], "as it was");
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        assert!(!std::path::Path::new(backup).exists());
        let (code, _) = home.fails(&["connect", client, "--file", path, "--undo"]);
        assert_eq!(code, 8);
    }
}

#[test]
fn what_somebody_wrote_into_the_file_stays_as_it_is_and_their_secrets_are_not_shown() {
    // issue 6, onboarding: comments, blanks, commas behind the last member.
    let home = Home::new("");
    let file = home.beside("mcp.json");
    let before = [
        "{ // mine",
        "    \"mcpServers\": {",
        "        \"files\": { \"command\": \"npx\" }, /* keep */",
        "        \"web\": { \"url\": \"https://a.example\", \"headers\": { \"Authorization\": \"Bearer hunter2hunter2hunter2\" } },",
        "    },",
        "}\n",
    ]
    .join("\n");
    let before = before.as_str();
    fs::write(&file, before).unwrap();
    let path = file.to_str().unwrap();
    let output = home.run(&["connect", "cursor", "--file", path, "--yes"]);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("portcullis") && !said.contains("hunter2"), "{said}");
    let entry = "\n        \"portcullis\": {\n          \"url\": \"http://127.0.0.1:7411/mcp\"\n        },";
    let after = fs::read_to_string(&file).unwrap();
    assert_eq!(after.replacen(entry, "", 1), before, "{after}");
    home.json(&["connect", "cursor", "--file", path, "--undo"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[test]
fn a_file_that_was_not_there_goes_again_and_one_that_changed_stays() {
    let home = Home::new("");
    let file = home.beside("deep/in/mcp.json");
    let path = file.to_str().unwrap().to_owned();
    assert_eq!(home.json(&["connect", "cursor", "--file", &path, "--yes"])["backup"], Value::Null);
    let again = home.json(&["connect", "cursor", "--file", &path, "--yes"]);
    assert_eq!(again["state"], "connected already");
    home.json(&["connect", "cursor", "--file", &path, "--undo"]);
    assert!(!file.exists());
    home.json(&["connect", "cursor", "--file", &path, "--yes"]);
    fs::write(&file, "{\"mine\": 1}").unwrap();
    let (_, error) = home.fails(&["connect", "cursor", "--file", &path, "--undo"]);
    assert!(error.to_string().contains("was changed since"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"mine\": 1}");
}

#[test]
fn nothing_is_written_where_nobody_said_yes_or_the_file_is_not_understood() {
    let home = Home::new("");
    let file = home.beside("settings.json");
    let before = "/* a comment that never ends\n{\"servers\": {}}";
    fs::write(&file, before).unwrap();
    let path = file.to_str().unwrap();
    let (code, error) = home.fails(&["connect", "vscode", "--file", path, "--yes"]);
    assert_eq!(code, 7);
    assert!(error.to_string().contains("by hand"), "{error}");
    fs::write(&file, "{}").unwrap();
    let (_, error) = home.fails(&["connect", "vscode", "--file", path]);
    assert!(error.to_string().contains("--yes"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
}
