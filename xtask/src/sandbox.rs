//! What a cage costs (SBX §12): a start, a call, a byte to a host, beside the same without one.

use std::process::Command;

use crate::Outcome;
use crate::report::replace_section;
use crate::workspace::{Workspace, output};

/// A measure, what it is called in the specification, and how far the caged side may be from the bare one.
struct Target {
    name: &'static str,
    says: &'static str,
    holds: fn(f64) -> bool,
    wanted: &'static str,
}

static TARGETS: [Target; 6] = [
    Target {
        name: "start",
        says: "S-1: until the program is executed, self-test included",
        holds: |ratio| ratio <= 8.0,
        wanted: "≤ 8",
    },
    Target {
        name: "start to end",
        says: "the same, until a program that does nothing has ended",
        holds: |_| true,
        wanted: "-",
    },
    Target {
        name: "call",
        says: "S-2: one line in, one line out, of a process that runs already",
        holds: |ratio| ratio <= 1.1,
        wanted: "≤ 1.1",
    },
    Target {
        name: "open",
        says: "S-4: opening and reading a file of 64 KiB, with `detect = \"full\"` beside `standard`",
        holds: |ratio| ratio <= 3.0,
        wanted: "≤ 3",
    },
    Target {
        name: "tunnel",
        says: "S-3: bytes through the gate, beside a plain relay in the same process",
        holds: |ratio| ratio >= 0.7,
        wanted: "≥ 0.7",
    },
    Target {
        name: "substitution",
        says: "S-3: the same, with the gate opening TLS on both sides to put a credential in",
        holds: |ratio| ratio >= 0.35,
        wanted: "≥ 0.35",
    },
];

/// Measures, writes the section, and fails if a target is missed.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let mut bench = Command::new("cargo");
    bench.current_dir(&workspace.root);
    bench.args(["bench", "--quiet", "--package", "portcullis-sandbox", "--bench", "cage"]);
    let measures = measures(&output(&mut bench)?);
    let text = section(&measures);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "sandbox", &text)).map_err(|error| error.to_string())?;
    let missed: Vec<String> =
        missed(&measures).map(|target| format!("{} ({})", target.name, target.wanted)).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("missed: {}", missed.join(", "))) }
}

struct Measure {
    name: String,
    unit: String,
    bare: f64,
    caged: f64,
}

impl Measure {
    fn ratio(&self) -> f64 {
        self.caged / self.bare
    }
}

/// `name TAB unit TAB bare TAB caged` lines.
fn measures(text: &str) -> Vec<Measure> {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [name, unit, bare, caged] = cells[..] else { return None };
        let (bare, caged) = (bare.parse().ok()?, caged.trim().parse().ok()?);
        Some(Measure { name: name.to_owned(), unit: unit.to_owned(), bare, caged })
    };
    text.lines().filter_map(line).collect()
}

fn missed(measures: &[Measure]) -> impl Iterator<Item = &'static Target> {
    TARGETS.iter().filter(|target| {
        let found = measures.iter().find(|measure| measure.name == target.name);
        !found.is_some_and(|measure| (target.holds)(measure.ratio()))
    })
}

fn section(measures: &[Measure]) -> String {
    let mut text = String::from(
        "## The cage: beside no cage\n\n\
         Medians of alternating rounds on one machine. A start in a cage makes seven namespaces, a file system of its own, landlock\n\
         and seccomp rules, and tests all of it, each time. Bubblewrap is compared where it is installed, which it was not.\n\n\
         | measure | unit | without | with | ratio | wanted |\n|---|---|--:|--:|--:|--:|\n",
    );
    for target in &TARGETS {
        let Some(measure) = measures.iter().find(|measure| measure.name == target.name) else { continue };
        let Measure { unit, bare, caged, .. } = measure;
        let ratio = measure.ratio();
        let mark = if (target.holds)(ratio) { "" } else { " (missed)" };
        let wanted = target.wanted;
        text.push_str(&format!(
            "| {} | {unit} | {bare:.2} | {caged:.2} | {ratio:.2} | {wanted}{mark} |\n",
            target.says
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_is_said_to_be_missed() {
        let measures = measures(
            "start\tms\t1\t9\nnoise\ncall\tµs\t2\t2.1\ntunnel\tMiB/s\t100\t80\nsubstitution\tMiB/s\t100\t50\nopen\tµs\t10\t20\nstart to end\tms\t2\t9\n",
        );
        let text = section(&measures);
        assert!(text.contains("| 1.00 | 9.00 | 9.00 | ≤ 8 (missed) |"), "{text}");
        assert_eq!(missed(&measures).map(|target| target.name).collect::<Vec<_>>(), ["start"]);
    }
}
