//! What the README has its readers do, done as the README says.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Home, Operator, program};

const README: &str = include_str!("../../../../README.md");

/// The first block of a language, without its indentation.
fn block(language: &str) -> String {
    block_after("", language)
}

/// The first block of a language behind a heading.
fn block_after(heading: &str, language: &str) -> String {
    let (_, part) = README.split_once(heading).unwrap();
    let fence = format!("```{language}\n");
    let at = part.find(&fence).unwrap();
    let indentation = part[..at].rsplit('\n').next().unwrap();
    let text = &part[at + fence.len()..];
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

/// What its words mean where everything is built already, and where it must leave its process's number.
const WORDS: &str = r#"
cargo() { while [ "$1" != "--" ]; do shift; done; shift; exec "$RECORDS_SERVER" "$@" >/dev/null 2>&1; }
portcullis() { "$PORTCULLIS" --home "$GATE_HOME" "$@"; }
jq() { sed -n "s/.*\"${2##*.}\":\"\([^\"]*\)\".*/\1/p" "$3"; }
"#;

#[test]
fn the_records_of_the_readme_are_read_with_its_three_queries() {
    let home = Home::new("");
    let folder = home.beside("newcomer");
    fs::create_dir(&folder).unwrap();
    let heading = "\n## Read personal records\n";
    let script = format!("set -e\n{WORDS}\n{}\necho $! > pid\n", block_after(heading, "sh"));
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(&folder)
        .env("RECORDS_SERVER", program("records-server"))
        .env("PORTCULLIS", env!("CARGO_BIN_EXE_portcullis"))
        .env("GATE_HOME", home.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let started = Started(fs::read_to_string(folder.join("pid")).unwrap_or_default());
    assert!(output.status.success(), "{output:?}");
    let daemon = home.serve();
    let operator = Operator::on_duty(&home);
    let console = block_after(heading, "console");
    let queries: Vec<&str> = console.split("$ portcullis call ").skip(1).collect();
    assert_eq!(queries.len(), 3);
    for query in queries {
        let (asked, wanted) = query.split_once('\n').unwrap();
        let (tool, arguments) = asked.split_once(' ').unwrap();
        let output = home.run(&["--output", "text", "call", tool, arguments.trim_matches('\'')]);
        let shown = String::from_utf8(output.stdout).unwrap();
        // Each part that is written out is there, one after the other.
        let mut rest = shown.as_str();
        for part in wanted.split('…').map(str::trim).filter(|part| !part.is_empty()) {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is not in {shown:?}"));
            rest = &rest[at + part.len()..];
        }
    }
    drop(operator);
    daemon.stop();
    drop(started);
    home.verify();
}

/// A process that somebody else started, by its number.
struct Started(String);

impl Drop for Started {
    fn drop(&mut self) {
        let number = self.0.trim();
        if !number.is_empty() {
            let _ = Command::new("kill").arg(number).status();
        }
    }
}
