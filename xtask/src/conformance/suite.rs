//! Running the suite, and reading what it found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Least, Wanted, client};
use crate::Outcome;
use crate::third_party::ThirdParty;

/// The suite, installed.
pub(crate) struct Suite {
    node: PathBuf,
    program: PathBuf,
    scratch: PathBuf,
}

/// What one run found: per scenario, how often each check ended how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Results {
    pub(crate) scenarios: BTreeMap<String, Checks>,
}

/// Check id and verdict, and how often. A check can be made several times in a scenario.
pub(crate) type Checks = BTreeMap<(String, String), usize>;

/// The check of the client's own that it came to its end.
const DRIVER: &str = "driver";

impl Suite {
    pub(crate) fn new(third_party: &ThirdParty, scratch: &Path) -> Outcome<Self> {
        let program = third_party.node_modules.join("@modelcontextprotocol/conformance/dist/index.js");
        Ok(Self { node: third_party.newest_node()?, program, scratch: scratch.to_owned() })
    }

    /// Runs the server scenarios against `url`.
    pub(crate) fn run(&self, wanted: Wanted, url: &str, name: &str) -> Outcome<Results> {
        let folder = self.scratch.join(name);
        let mut command = Command::new(&self.node);
        command.arg(&self.program).args(["server", "--url", url, "--output-dir"]).arg(&folder);
        match wanted {
            Wanted::Required(revision) => command.args(["--requirements", revision]),
            Wanted::Version(revision) => command.args(["--suite", "all", "--spec-version", revision]),
        };
        self.results(&mut command, &folder, name)
    }

    /// Runs the client scenarios, with `client` as the client.
    pub(crate) fn run_client(&self, wanted: Wanted, client: &str, name: &str) -> Outcome<Results> {
        let folder = self.scratch.join(name);
        let mut command = Command::new(&self.node);
        command.arg(&self.program).args(["client", "--command", client, "--timeout", "300000"]);
        command.args(["--requirements", wanted.revision(), "--output-dir"]).arg(&folder);
        self.results(&mut command, &folder, name)
    }

    fn results(&self, command: &mut Command, folder: &Path, name: &str) -> Outcome<Results> {
        let output = command.output().map_err(|error| format!("{}: {error}", self.node.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let results = Results::read(folder)?;
        if results.scenarios.is_empty() {
            return Err(format!("the suite found nothing to run for {name}: {}", said.trim()));
        }
        // It ends with a failure when a check fails; then the checks say more. With none failed, something else is wrong.
        if !output.status.success() && results.first_failure().is_none() {
            return Err(format!("the suite failed for {name} and no check of it: {}", said.trim()));
        }
        Ok(results)
    }
}

impl Results {
    fn read(folder: &Path) -> Outcome<Self> {
        let problem = |error: std::io::Error| format!("{}: {error}", folder.display());
        let mut results = Self::default();
        for entry in fs::read_dir(folder).map_err(problem)? {
            let entry = entry.map_err(problem)?;
            let named = entry.file_name().to_string_lossy().into_owned();
            let Some(scenario) = scenario_of(&named) else {
                // Scenarios of clients lie in folders by their theme.
                if entry.path().is_dir() {
                    let inside = Self::read(&entry.path())?.scenarios.into_iter();
                    results
                        .scenarios
                        .extend(inside.map(|(scenario, checks)| (format!("{named}/{scenario}"), checks)));
                }
                continue;
            };
            let said = |error: String| format!("the suite left no checks of {scenario}: {error}");
            let text = fs::read_to_string(entry.path().join("checks.json"));
            let text = text.map_err(|error| said(error.to_string()))?;
            let checks: Value = serde_json::from_str(&text).map_err(|error| said(error.to_string()))?;
            let mut checks = count(&checks);
            // A client that did not come to its end has not done what the scenario is about, whatever was checked of it.
            if let Ok(words) = fs::read_to_string(entry.path().join("stderr.txt")) {
                let verdict = if words.contains(client::DONE) { "SUCCESS" } else { "FAILURE" };
                checks.insert((DRIVER.to_owned(), verdict.to_owned()), 1);
            }
            results.scenarios.insert(scenario, checks);
        }
        Ok(results)
    }

    /// How many checks came to a verdict.
    fn verdicts(&self) -> usize {
        self.scenarios.values().flatten().filter(|((id, _), _)| id != DRIVER).map(|(_, count)| count).sum()
    }

    /// A run that found less than there is to find proves nothing (PRO-51).
    pub(crate) fn at_least(&self, least: Least, name: &str) -> Outcome {
        let (scenarios, checks) = (self.scenarios.len(), self.verdicts());
        println!("{name}: {scenarios} scenarios, {checks} checks");
        if scenarios < least.scenarios || checks < least.checks {
            return Err(format!(
                "{name}: {scenarios} scenarios with {checks} checks were run; there are at least {} with {}",
                least.scenarios, least.checks
            ));
        }
        Ok(())
    }

    /// The first scenario with a failed check, and the check.
    pub(crate) fn first_failure(&self) -> Option<String> {
        self.scenarios.iter().find_map(|(scenario, checks)| {
            let failed = checks.keys().find(|(_, verdict)| verdict == "FAILURE")?;
            Some(format!("{scenario}: {}", failed.0))
        })
    }
}

/// `server-<scenario>-<timestamp>`, or the same without its first word; the timestamp being ISO 8601 with dashes.
fn scenario_of(folder: &str) -> Option<String> {
    let rest = folder.strip_prefix("server-").unwrap_or(folder);
    let at = rest.match_indices("-20").map(|(at, _)| at).find(|at| {
        let stamp = &rest[at + 1..];
        stamp.len() > 10 && stamp.as_bytes()[4] == b'-' && stamp.as_bytes()[10] == b'T'
    })?;
    Some(rest[..at].to_owned())
}

/// `INFO` is a remark of the suite about what it saw, not a verdict.
fn count(checks: &Value) -> Checks {
    let mut counted = Checks::new();
    for check in checks.as_array().into_iter().flatten() {
        let text = |key: &str| check[key].as_str().unwrap_or_default().to_owned();
        if text("status") != "INFO" {
            *counted.entry((text("id"), text("status"))).or_default() += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_folder_names_its_scenario() {
        let name = |folder| scenario_of(folder);
        assert_eq!(name("server-tools-list-2026-11-16T12-00-00-000Z").as_deref(), Some("tools-list"));
        assert_eq!(
            name("server-json-schema-2020-12-2026-11-16T12-00-00-000Z").as_deref(),
            Some("json-schema-2020-12")
        );
        assert_eq!(name("client-x"), None);
    }

    #[test]
    fn a_scenario_without_checks_is_no_result() {
        // PRO-51
        let folder = std::env::temp_dir().join(format!("portcullis-suite-{}", std::process::id()));
        let scenario = folder.join("server-ping-2026-11-16T12-00-00-000Z");
        fs::create_dir_all(&scenario).unwrap();
        let without = Results::read(&folder);
        fs::write(scenario.join("checks.json"), r#"[{"id": "a", "status": "SUCCESS"}]"#).unwrap();
        let with = Results::read(&folder);
        fs::write(scenario.join("stderr.txt"), "xtask: it went wrong").unwrap();
        let unfinished = Results::read(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert!(without.unwrap_err().contains("no checks of ping"));
        assert_eq!(with.unwrap().first_failure(), None);
        assert_eq!(unfinished.unwrap().first_failure().as_deref(), Some("ping: driver"));
    }

    #[test]
    fn a_run_that_found_too_little_is_no_result() {
        // PRO-51
        let checks =
            Checks::from([(("a".into(), "SUCCESS".into()), 2), (("driver".into(), "SUCCESS".into()), 1)]);
        let results = Results { scenarios: [("ping".to_owned(), checks)].into() };
        let least = |scenarios, checks| results.at_least(Least { scenarios, checks }, "x");
        assert!(least(1, 2).is_ok());
        assert!(least(1, 3).is_err() && least(2, 2).is_err());
    }

    #[test]
    fn remarks_are_no_verdicts() {
        let checks = serde_json::json!([
            {"id": "a", "status": "SUCCESS"}, {"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "INFO"},
        ]);
        assert_eq!(count(&checks), Checks::from([(("a".into(), "SUCCESS".into()), 2)]));
    }
}
