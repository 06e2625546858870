//! Running the suite, and reading what it found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::Wanted;
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
        // It exits with a failure when a check fails, which is not the question here.
        let output = command.output().map_err(|error| format!("{}: {error}", self.node.display()))?;
        let results = Results::read(&folder)?;
        if results.scenarios.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("the suite found nothing to run for {name}: {}", said.trim()));
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
            let Some(scenario) = scenario_of(&entry.file_name().to_string_lossy()) else { continue };
            let Ok(text) = fs::read_to_string(entry.path().join("checks.json")) else { continue };
            let checks: Value =
                serde_json::from_str(&text).map_err(|error| format!("{scenario}: {error}"))?;
            results.scenarios.insert(scenario, count(&checks));
        }
        Ok(results)
    }

    /// The first scenario with a failed check, and the check.
    pub(crate) fn first_failure(&self) -> Option<String> {
        self.scenarios.iter().find_map(|(scenario, checks)| {
            let failed = checks.keys().find(|(_, verdict)| verdict == "FAILURE")?;
            Some(format!("{scenario}: {}", failed.0))
        })
    }
}

/// `server-<scenario>-<timestamp>`, the timestamp being ISO 8601 with dashes.
fn scenario_of(folder: &str) -> Option<String> {
    let rest = folder.strip_prefix("server-")?;
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
    fn remarks_are_no_verdicts() {
        let checks = serde_json::json!([
            {"id": "a", "status": "SUCCESS"}, {"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "INFO"},
        ]);
        assert_eq!(count(&checks), Checks::from([(("a".into(), "SUCCESS".into()), 2)]));
    }
}
