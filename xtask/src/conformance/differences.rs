//! Comparing two runs, and the differences that are known.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::suite::{Checks, Results};
use crate::Outcome;

/// A difference that is known, and why it is one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Difference {
    /// `through`, `legacy` or `modern`: which server was behind the gateway.
    way: String,
    revision: String,
    scenario: String,
    reason: String,
}

/// All that are known.
#[derive(Debug)]
pub(crate) struct Known(Vec<Difference>);

/// What a comparison has come to.
#[derive(Debug)]
pub(crate) struct Report {
    known: Vec<(Difference, bool)>,
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
            Ok(Difference {
                way: text("way")?,
                revision: text("revision")?,
                scenario: text("scenario")?,
                reason: text("reason")?,
            })
        };
        entries.iter().map(read).collect::<Outcome<_>>().map(Self)
    }

    pub(crate) fn report(self) -> Report {
        let known = self.0.into_iter().map(|difference| (difference, false)).collect();
        Report { known, unknown: Vec::new(), lines: Vec::new() }
    }
}

impl Report {
    /// Compares what was found through the gateway with what was found directly.
    pub(crate) fn compare(&mut self, way: &str, revision: &str, direct: &Results, through: &Results) {
        let mut equal = 0;
        let mut expected = 0;
        for (scenario, checks) in &direct.scenarios {
            let empty = Checks::new();
            let found = through.scenarios.get(scenario).unwrap_or(&empty);
            if found == checks {
                equal += 1;
                continue;
            }
            let known = self.known.iter_mut().find(|(known, _)| {
                known.way == way && known.revision == revision && known.scenario == *scenario
            });
            match known {
                Some((_, seen)) => {
                    *seen = true;
                    expected += 1;
                }
                None => self.unknown.push(describe(way, revision, scenario, checks, found)),
            }
        }
        let all = direct.scenarios.len();
        let line = format!(
            "{way:<8} {revision}  {equal} of {all} scenarios as directly, {expected} known to differ"
        );
        println!("{line}");
        self.lines.push(line);
    }

    /// All in one: what differs and should not, what should and does not.
    pub(crate) fn finish(self) -> Outcome {
        println!("\n{}", self.lines.join("\n"));
        for (known, _) in self.known.iter().filter(|(_, seen)| *seen) {
            println!("known: {} {} {}: {}", known.way, known.revision, known.scenario, known.reason);
        }
        let gone = self.known.iter().filter(|(_, seen)| !seen).map(|(known, _)| {
            let Difference { way, revision, scenario, .. } = known;
            format!("{way} {revision} {scenario} is listed as different and is not; remove it from the list")
        });
        let problems: Vec<String> = self.unknown.iter().cloned().chain(gone).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
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

    fn results(verdict: &str) -> Results {
        let checks = Checks::from([(("a".into(), verdict.into()), 1)]);
        Results { scenarios: [("ping".to_owned(), checks)].into() }
    }

    const KNOWN: &str =
        "[[difference]]\nway = \"through\"\nrevision = \"2025-11-25\"\nscenario = \"ping\"\nreason = \"x\"\n";

    #[test]
    fn an_unlisted_difference_fails_and_so_does_a_listed_one_that_is_gone() {
        let compare = |known: &str, through: &str| {
            let mut report = Known::parse(known).unwrap().report();
            report.compare("through", "2025-11-25", &results("SUCCESS"), &results(through));
            report.finish()
        };
        assert!(compare("", "SUCCESS").is_ok());
        assert!(compare("", "FAILURE").unwrap_err().contains("a FAILURE x1"));
        assert!(compare(KNOWN, "FAILURE").is_ok());
        assert!(compare(KNOWN, "SUCCESS").unwrap_err().contains("is not"));
    }

    #[test]
    fn a_difference_without_a_reason_is_not_accepted() {
        assert!(Known::parse(&KNOWN.replace("\"x\"", "\" \"")).is_err());
    }
}
