//! Comparing two runs, and the differences that are known.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::suite::{Checks, Results};
use crate::Outcome;

/// A difference that is known, and why it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    /// `through`, `legacy` or `modern`: which server was behind the gateway. `client`: the suite's own server was.
    way: String,
    revision: String,
    scenario: String,
    /// The checks that differ, all of them and no others.
    checks: BTreeSet<String>,
    reason: String,
}

/// All that are known.
#[derive(Debug)]
pub(crate) struct Known(Vec<Difference>);

/// What a comparison has come to.
#[derive(Debug)]
pub(crate) struct Report {
    known: Vec<(Difference, BTreeSet<String>)>,
    /// What was run; what is known of anything else is neither there nor gone.
    ways: BTreeSet<String>,
    unknown: Vec<String>,
    lines: Vec<String>,
}

impl Known {
    pub(crate) fn read(path: &Path) -> Outcome<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Outcome<Self> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let entries = table.get("difference").and_then(Value::as_array).cloned().unwrap_or_default();
        let read = |entry: &Value| {
            let text = |key: &str| {
                let text = entry.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
                text.map(str::to_owned).ok_or_else(|| format!("a difference needs its {key}: {entry}"))
            };
            let checks = entry.get("checks").and_then(Value::as_array).into_iter().flatten();
            let checks: BTreeSet<String> =
                checks.filter_map(|check| check.as_str().map(str::to_owned)).collect();
            if checks.is_empty() {
                return Err(format!("a difference needs its checks: {entry}"));
            }
            Ok(Difference {
                way: text("way")?,
                revision: text("revision")?,
                scenario: text("scenario")?,
                checks,
                reason: text("reason")?,
            })
        };
        entries.iter().map(read).collect::<Outcome<_>>().map(Self)
    }

    pub(crate) fn report(self) -> Report {
        let known = self.0.into_iter().map(|difference| (difference, BTreeSet::new())).collect();
        Report { known, ways: BTreeSet::new(), unknown: Vec::new(), lines: Vec::new() }
    }
}

impl Report {
    /// Compares what was found through the gateway with what was found directly.
    pub(crate) fn compare(&mut self, way: &str, revision: &str, direct: &Results, through: &Results) {
        let (mut equal, mut expected) = (0, 0);
        let empty = Checks::new();
        // Also what is found through the gateway and not directly.
        let scenarios: BTreeSet<&String> = direct.scenarios.keys().chain(through.scenarios.keys()).collect();
        for scenario in &scenarios {
            let directly = direct.scenarios.get(*scenario).unwrap_or(&empty);
            let found = through.scenarios.get(*scenario).unwrap_or(&empty);
            let differing = differing(directly, found);
            if differing.is_empty() {
                equal += 1;
            } else if self.is_known(way, revision, scenario, &differing) {
                expected += 1;
            } else {
                self.unknown.push(describe(way, revision, scenario, directly, found));
            }
        }
        let all = scenarios.len();
        self.say(
            way,
            revision,
            format!("{equal} of {all} scenarios as directly, {expected} known to differ"),
        );
    }

    /// Holds a run that is compared with nothing to its own verdicts: every scenario passes, or is known not to.
    pub(crate) fn judge(&mut self, way: &str, revision: &str, results: &Results) {
        let (mut passed, mut expected) = (0, 0);
        for (scenario, checks) in &results.scenarios {
            let failed = checks.keys().filter(|(_, verdict)| verdict != "SUCCESS" && verdict != "SKIPPED");
            let failed: BTreeSet<String> = failed.map(|(id, _)| id.clone()).collect();
            if failed.is_empty() {
                passed += 1;
            } else if self.is_known(way, revision, scenario, &failed) {
                expected += 1;
            } else {
                let failed = failed.into_iter().collect::<Vec<_>>().join(", ");
                self.unknown.push(format!("{way} {revision} {scenario} fails: {failed}"));
            }
        }
        let all = results.scenarios.len();
        self.say(way, revision, format!("{passed} of {all} scenarios pass, {expected} known not to"));
    }

    /// Whether all of these are listed. Marks those that are.
    fn is_known(&mut self, way: &str, revision: &str, scenario: &str, checks: &BTreeSet<String>) -> bool {
        let mut left = checks.clone();
        for (known, seen) in &mut self.known {
            if known.way == way && known.revision == revision && known.scenario == scenario {
                seen.extend(checks.intersection(&known.checks).cloned());
                left.retain(|check| !known.checks.contains(check));
            }
        }
        left.is_empty()
    }

    fn say(&mut self, way: &str, revision: &str, what: String) {
        self.ways.insert(way.to_owned());
        let line = format!("{way:<8} {revision}  {what}");
        println!("{line}");
        self.lines.push(line);
    }

    /// All in one: what differs and should not, what should and does not.
    pub(crate) fn finish(self) -> Outcome {
        println!("\n{}", self.lines.join("\n"));
        for (known, _) in self.known.iter().filter(|(_, seen)| !seen.is_empty()) {
            println!("known: {} {} {}: {}", known.way, known.revision, known.scenario, known.reason);
        }
        let run = self.known.iter().filter(|(known, _)| self.ways.contains(&known.way));
        let gone = run.filter(|(known, seen)| known.checks != *seen).map(|(known, seen)| {
            let Difference { way, revision, scenario, checks, .. } = known;
            let gone = checks.difference(seen).cloned().collect::<Vec<_>>().join(", ");
            format!("{way} {revision} {scenario} is listed as different in {gone} and is not; remove it from the list")
        });
        let problems: Vec<String> = self.unknown.iter().cloned().chain(gone).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

/// The checks that did not end the same way the same number of times.
fn differing(direct: &Checks, through: &Checks) -> BTreeSet<String> {
    let only = |these: &Checks, those: &Checks| -> Vec<String> {
        let lines = these.iter().filter(|(check, count)| those.get(*check) != Some(count));
        lines.map(|((id, _), _)| id.clone()).collect()
    };
    only(direct, through).into_iter().chain(only(through, direct)).collect()
}

fn describe(way: &str, revision: &str, scenario: &str, direct: &Checks, through: &Checks) -> String {
    let mut text = format!("{way} {revision} {scenario} differs from the direct run:");
    let only = |these: &Checks, those: &Checks| {
        let lines = these.iter().filter(|(check, count)| those.get(*check) != Some(count));
        lines.map(|((id, verdict), count)| format!("{id} {verdict} x{count}")).collect::<Vec<_>>().join(", ")
    };
    let _ = write!(text, "\n  directly: {}\n  through:  {}", only(direct, through), only(through, direct));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(checks: &[(&str, &str)]) -> Results {
        let checks = checks.iter().map(|(id, verdict)| (((*id).to_owned(), (*verdict).to_owned()), 1));
        Results { scenarios: [("ping".to_owned(), checks.collect())].into() }
    }

    const KNOWN: &str = "[[difference]]\nway = \"through\"\nrevision = \"2025-11-25\"\nscenario = \"ping\"\nchecks = [\"a\"]\nreason = \"x\"\n";

    fn compare(known: &str, direct: &Results, through: &Results) -> Outcome {
        let mut report = Known::parse(known).unwrap().report();
        report.compare("through", "2025-11-25", direct, through);
        report.finish()
    }

    #[test]
    fn an_unlisted_difference_fails_and_so_does_a_listed_one_that_is_gone() {
        // PRO-51
        let (good, bad) = (results(&[("a", "SUCCESS")]), results(&[("a", "FAILURE")]));
        assert!(compare("", &good, &good).is_ok());
        assert!(compare("", &good, &bad).unwrap_err().contains("a FAILURE x1"));
        assert!(compare(KNOWN, &good, &bad).is_ok());
        assert!(compare(KNOWN, &good, &good).unwrap_err().contains("is not"));
    }

    #[test]
    fn a_listed_check_does_not_excuse_another_of_its_scenario() {
        // PRO-51
        let direct = results(&[("a", "SUCCESS"), ("b", "SUCCESS")]);
        let through = results(&[("a", "FAILURE"), ("b", "FAILURE")]);
        assert!(compare(KNOWN, &direct, &through).unwrap_err().contains("b FAILURE x1"));
    }

    #[test]
    fn what_is_found_only_through_the_gateway_is_a_difference() {
        // PRO-51
        let none = Results::default();
        assert!(compare("", &none, &results(&[("a", "SUCCESS")])).unwrap_err().contains("a SUCCESS x1"));
        assert!(compare("", &results(&[("a", "SUCCESS")]), &none).is_err());
    }

    #[test]
    fn what_is_known_of_a_way_that_was_not_run_is_not_gone() {
        let mut report = Known::parse(KNOWN).unwrap().report();
        report.judge("client", "2025-11-25", &results(&[("a", "SUCCESS")]));
        assert!(report.finish().is_ok());
    }

    #[test]
    fn a_warning_of_the_suite_is_no_pass() {
        let mut report = Known::parse("").unwrap().report();
        report.judge("client", "2025-11-25", &results(&[("a", "WARNING")]));
        assert!(report.finish().is_err());
    }

    #[test]
    fn a_difference_without_a_reason_or_checks_is_not_accepted() {
        assert!(Known::parse(&KNOWN.replace("\"x\"", "\" \"")).is_err());
        assert!(Known::parse(&KNOWN.replace("[\"a\"]", "[]")).is_err());
    }
}
