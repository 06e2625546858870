//! A gateway under load, and the operator it needs: someone who says yes to whatever is asked, as fast as a person at
//! a console never could, so that what is measured is the gateway and not the waiting.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Outcome;
use crate::process::Running;
use crate::workspace::output;

const START: Duration = Duration::from_secs(30);
const ROUND: Duration = Duration::from_millis(50);

/// Which upstream the gateway is to have.
pub(crate) enum Upstream<'a> {
    Http(&'a str),
    Stdio(&'a Path),
    /// A records server, and the file that holds its bearer.
    Records {
        url: &'a str,
        credential_file: &'a Path,
    },
}

/// The one server of a gateway, and how the gateway is set up.
pub(crate) struct Registration<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: &'a str,
    pub(crate) declaration: &'a Path,
    pub(crate) upstream: Upstream<'a>,
    /// Whether what it lists may change.
    pub(crate) dynamic: bool,
    /// Whether all of it is approved ahead, so that no call waits for somebody.
    pub(crate) granted: bool,
    /// The text of `portcullis.toml`.
    pub(crate) config: &'a str,
    /// What is added to it once the server is registered, because it speaks of the server's tools.
    pub(crate) config_after: &'a str,
}

/// A running gateway with one registered server.
pub(crate) struct Gateway {
    pub(crate) running: Running,
    pub(crate) url: String,
    stop: Arc<AtomicBool>,
    operator: Option<JoinHandle<()>>,
}

impl Gateway {
    /// Registers the upstream in a new home, serves, and appoints the operator.
    pub(crate) fn start(program: &Path, home: &Path, registration: &Registration<'_>) -> Outcome<Self> {
        let problem = |error: std::io::Error| format!("{}: {error}", home.display());
        fs::create_dir_all(home).map_err(problem)?;
        fs::write(home.join("portcullis.toml"), registration.config).map_err(problem)?;
        output(&mut registration.command(program, home))?;
        let whole = format!("{}{}", registration.config, registration.config_after);
        fs::write(home.join("portcullis.toml"), whole).map_err(problem)?;
        let ready = home.join("ready.json");
        let mut serve = cli(program, home);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--ready-file"]).arg(&ready);
        let mut running = Running::start(&mut serve)?;
        let url = wait_ready(&mut running, &ready)?;
        let stop = Arc::new(AtomicBool::new(false));
        let operator = std::thread::spawn({
            let (stop, program, home) = (stop.clone(), program.to_owned(), home.to_owned());
            move || approve(&stop, &program, &home)
        });
        Ok(Self { running, url, stop, operator: Some(operator) })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(operator) = self.operator.take() {
            let _ = operator.join();
        }
    }
}

fn cli(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--home").arg(home);
    command
}

impl Registration<'_> {
    fn command(&self, program: &Path, home: &Path) -> Command {
        let mut command = cli(program, home);
        command.args(["mcp", "add", self.name, "--deployment-mode", "local", "--yes"]);
        // What is built in knows its own.
        if !self.version.is_empty() {
            command.args(["--server-version", self.version]);
        }
        command.args(["--justification", "a peer of ours", "--capability-declaration"]).arg(self.declaration);
        if self.dynamic {
            command.args(["--surface", "dynamic"]);
        }
        if self.granted {
            command.args(["--grant", "all"]);
        }
        match self.upstream {
            Upstream::Http(url) => {
                command.args(["--transport", "http", "--url", url]);
                command.args(["--waive-isolation", "a peer of ours on loopback"]);
            }
            Upstream::Records { url, credential_file } => {
                command
                    .args(["--transport", "records", "--url", url, "--credential-file"])
                    .arg(credential_file);
            }
            Upstream::Stdio(peer) => {
                command.args(["--transport", "stdio", "--"]).arg(peer).args(["echo", "--stdio"]);
            }
        }
        command
    }
}

/// What a server says in a file when it is ready.
pub(crate) fn wait_for(ready: &Path) -> Outcome<Value> {
    let begun = Instant::now();
    while begun.elapsed() < START {
        if let Ok(told) = serde_json::from_str(&fs::read_to_string(ready).unwrap_or_default()) {
            return Ok(told);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("{} was not there within {} s", ready.display(), START.as_secs()))
}

fn wait_ready(running: &mut Running, ready: &Path) -> Outcome<String> {
    let begun = Instant::now();
    while begun.elapsed() < START {
        let text = fs::read_to_string(ready).unwrap_or_default();
        if let Ok(ready) = serde_json::from_str::<Value>(&text)
            && let Some(url) = ready["mcp"].as_str()
        {
            return Ok(url.to_owned());
        }
        if running.has_ended() {
            return Err("portcullis serve ended before it was ready".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(format!("portcullis serve was not ready within {} s", START.as_secs()))
}

/// Grants whatever is pending, again and again: a wide approval lasts for a number of uses.
fn approve(stop: &AtomicBool, program: &Path, home: &Path) {
    while !stop.load(Ordering::Relaxed) {
        let mut list = cli(program, home);
        list.args(["--output", "json", "approve", "list", "--status", "pending"]);
        match output(&mut list) {
            Ok(text) => {
                for id in pending(&text) {
                    let mut grant = cli(program, home);
                    grant.args([
                        "approve",
                        "grant",
                        &id,
                        "--scope",
                        "until-version-change",
                        "--reason",
                        "benchmark",
                    ]);
                    // Another round may have granted it already; the next list tells.
                    let _ = output(&mut grant);
                }
            }
            Err(error) => eprintln!("operator: {error}"),
        }
        std::thread::sleep(ROUND);
    }
}

fn pending(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    let ids = list.as_array().into_iter().flatten().filter_map(|entry| entry["approval_id"].as_str());
    ids.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_pending_approvals_are_found_and_nonsense_has_none() {
        assert_eq!(pending(r#"[{"approval_id":"a","tool_id":"t"},{"approval_id":"b"},{}]"#), ["a", "b"]);
        assert!(pending("").is_empty() && pending("{}").is_empty());
    }

    #[test]
    fn a_registration_names_the_upstream_by_its_transport() {
        let text = |upstream| {
            let declaration = Path::new("d.yaml");
            let registration = Registration {
                name: "bench",
                version: "1",
                declaration,
                upstream,
                dynamic: false,
                granted: false,
                config: "",
                config_after: "",
            };
            let command = registration.command(Path::new("p"), Path::new("/h"));
            command.get_args().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let http = text(Upstream::Http("http://127.0.0.1:1/mcp"));
        assert!(
            http.starts_with("--home /h mcp add bench") && http.contains("--url http://127.0.0.1:1/mcp"),
            "{http}"
        );
        assert!(text(Upstream::Stdio(Path::new("/b"))).ends_with("--transport stdio -- /b echo --stdio"));
    }
}
