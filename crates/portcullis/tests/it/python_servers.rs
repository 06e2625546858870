//! Python servers that others wrote, as `uvx` would run them: fetched once from an index, pinned, confined to what is
//! declared (S-REAL-1, GOV-1402).

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::Home;
use crate::third_party::installed;
use crate::vendoring::Site;

const CONFIG: &str =
    "[sandbox.hosts]\n\"packages.example\" = [\"127.0.0.1\"]\n\"site.example\" = [\"127.0.0.1\"]\n";

/// An index of the wheels that were fetched beforehand: packages by name, each with its files.
fn index() -> Site {
    let wheels = installed("PORTCULLIS_WHEELS");
    let files: Vec<String> = fs::read_dir(&wheels)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!files.is_empty(), "{} is empty", wheels.display());
    Site::with(move |_, path| {
        if let Some(file) = path.strip_prefix("/wheels/") {
            return fs::read(wheels.join(file)).ok();
        }
        let package = path.strip_prefix("/simple/")?.trim_end_matches('/');
        let is_of = |file: &&String| {
            file.split('-').next().is_some_and(|name| name.replace('_', "-").eq_ignore_ascii_case(package))
        };
        let links: String = files
            .iter()
            .filter(is_of)
            .map(|file| format!("<a href=\"/wheels/{file}\">{file}</a>\n"))
            .collect();
        (!links.is_empty()).then(|| format!("<!DOCTYPE html>\n{links}").into_bytes())
    })
}

/// Imports servers of a client's configuration, fetched from the index.
fn import(home: &Home, servers: &Value, more: &[&str]) -> Value {
    let index = index();
    let file = home.beside("mcp.json");
    fs::write(&file, json!({"mcpServers": servers}).to_string()).unwrap();
    let mut command = home.command();
    command.args(["--output", "json", "import", file.to_str().unwrap(), "--vendor"]).args(more);
    command.env("PIP_INDEX_URL", format!("http://packages.example:{}/simple", index.port));
    command.env("PIP_TRUSTED_HOST", "packages.example");
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert!(!index.asked().is_empty(), "{report}");
    report
}

/// A repository with one commit.
fn repository(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::write(path.join("a.txt"), "a\n").unwrap();
    for words in
        ["init -q -b main", "add a.txt", "-c user.name=t -c user.email=t@example.org commit -qm seen-by-git"]
    {
        let done = Command::new("git").arg("-C").arg(path).args(words.split(' ')).status().unwrap();
        assert!(done.success(), "git {words}");
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn the_time_server_runs_from_its_wheels_and_without_a_network() {
    let home = Home::new(CONFIG);
    let servers = json!({"time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone", "UTC"]}});
    let report = import(&home, &servers, &["--accept"]);
    assert_eq!(report[0]["status"], "registered", "{report}");
    let daemon = home.serve();
    let arguments = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let answer = daemon.approved_call(&home, "time__convert_time", &arguments).unwrap();
    assert!(text(&answer).contains("T21:00:00+09:00"), "{answer}");
    daemon.stop();
    // What was fetched is what runs: one byte more, and it is not started (MP-FH-009).
    let module = home.path().join("vendor/time/mcp_server_time/server.py");
    let mut source = fs::read(&module).unwrap();
    source.push(b'\n');
    fs::write(&module, source).unwrap();
    let daemon = home.serve();
    let refused = daemon.approved_call(&home, "time__convert_time", &arguments).unwrap();
    assert_eq!(refused["error"]["data"]["details"]["code"], "MP-FH-009", "{refused}");
    daemon.stop();
    home.verify();
}

#[test]
fn the_git_server_starts_git_in_its_repository_and_only_if_somebody_said_so() {
    let home = Home::new(CONFIG);
    let repo = home.beside("repo");
    repository(&repo);
    let servers = json!({"git": {"command": "uvx", "args": ["mcp-server-git", "--repository", repo]}});
    let refused = import(&home, &servers, &["--accept"]);
    assert_eq!(refused[0]["status"], "skipped", "{refused}");
    assert!(refused[0]["reason"].as_str().unwrap().ends_with("--exec git=PATH"), "{refused}");
    let report = import(&home, &servers, &["--accept", "--exec", "git=/usr/bin/git"]);
    assert_eq!(report[0]["status"], "registered", "{report}");
    let daemon = home.serve();
    let answer = daemon.approved_call(&home, "git__git_log", &json!({"repo_path": repo})).unwrap();
    assert!(text(&answer).contains("seen-by-git"), "{answer}");
    let branch = json!({"repo_path": repo, "branch_name": "drawn"});
    let answer = daemon.approved_call(&home, "git__git_create_branch", &branch).unwrap();
    assert!(repo.join(".git/refs/heads/drawn").is_file(), "{answer}");
    // Another repository does not exist for it.
    let elsewhere = home.beside("elsewhere");
    repository(&elsewhere);
    let answer = daemon.approved_call(&home, "git__git_log", &json!({"repo_path": elsewhere})).unwrap();
    assert!(!answer.to_string().contains("seen-by-git"), "{answer}");
    daemon.stop();
    home.verify();
}

#[test]
fn the_fetch_server_reaches_the_declared_host_and_no_other() {
    let home = Home::new(CONFIG);
    let site = Site::with(|_, path| (path == "/page").then(|| b"words of the site".to_vec()));
    // Inside, every declared host is a door at a loopback address, which this server would refuse by itself; the gate
    // looks at the real one.
    let args = ["mcp-server-fetch", "--allow-private-ips"];
    let servers = json!({"fetch": {"command": "uvx", "args": args}});
    let report = import(&home, &servers, &[]);
    assert_eq!(report[0]["status"], "drafted", "{report}");
    // The operator says whom it may talk to.
    let draft = Path::new(report[0]["draft"].as_str().unwrap());
    let host = format!(
        "site: {{ kind: egress, host: site.example, port: {}, tls: none, addrs: [127.0.0.1] }}",
        site.port
    );
    let edited = fs::read_to_string(draft).unwrap().replace("scopes: {}", &format!("scopes:\n  {host}"));
    let edited = edited.replace("    scopes: []\n", "    scopes: [site]\n");
    fs::write(draft, edited).unwrap();
    home.json(&["mcp", "accept", "fetch", "--reason", "one site", "--yes"]);
    let daemon = home.serve();
    let page = json!({"url": format!("http://site.example:{}/page", site.port)});
    let answer = daemon.approved_call(&home, "fetch__fetch", &page).unwrap();
    assert!(text(&answer).contains("words of the site"), "{answer}");
    assert!(site.asked().contains(&"/page".to_owned()));
    assert!(!home.events("sandbox.egress_allowed").is_empty());
    let asked = site.asked().len();
    let other = json!({"url": format!("http://packages.example:{}/page", site.port)});
    let answer = daemon.approved_call(&home, "fetch__fetch", &other).unwrap();
    assert!(!answer.to_string().contains("words of the site"), "{answer}");
    assert_eq!(site.asked().len(), asked, "nothing more was asked of the site");
    daemon.stop();
    home.verify();
}
