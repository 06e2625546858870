//! The server that the README registers, done as the README says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::support::Home;

const README: &str = include_str!("../../../../README.md");

/// The first block of a language, without its indentation.
fn block(language: &str) -> String {
    let fence = format!("```{language}\n");
    let at = README.find(&fence).unwrap();
    let indentation = README[..at].rsplit('\n').next().unwrap();
    let text = &README[at + fence.len()..];
    let lines = text.lines().take_while(|line| line.trim() != "```");
    lines.map(|line| line.strip_prefix(indentation).unwrap_or(line).to_owned() + "\n").collect()
}

#[test]
fn the_server_of_the_readme_is_registered_fenced_in_and_called() {
    let home = Home::new("");
    let texts = home.beside("texts");
    fs::create_dir(&texts).unwrap();
    fs::write(texts.join("a.txt"), "one two three four\n").unwrap();
    let program = home.beside("server.py");
    fs::write(&program, block("python")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let declaration = home.beside("wordcount.yaml");
    fs::write(&declaration, block("yaml").replace("/home/ana/texts", texts.to_str().unwrap())).unwrap();
    let record = home.json(&[
        "mcp",
        "add",
        "wordcount",
        "--transport",
        "stdio",
        "--server-version",
        "1.0.0",
        "--capability-declaration",
        declaration.to_str().unwrap(),
        "--deployment-mode",
        "local",
        "--justification",
        "count words in my texts",
        "--",
        program.to_str().unwrap(),
    ]);
    assert_eq!(record["isolation_class"], "enforced");
    let daemon = home.serve();
    let outside = json!({"path": texts.join("../.ssh/id")});
    let refused = daemon.call("wordcount__count", &outside).unwrap();
    assert!(refused.to_string().contains("lies outside the declared folder"), "{refused}");
    let answer =
        daemon.approved_call(&home, "wordcount__count", &json!({"path": texts.join("a.txt")})).unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "4 words", "{answer}");
    daemon.stop();
    home.verify();
}
