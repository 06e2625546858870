//! The log beside the bare system calls, in one run: P-1 to P-7 as ratios, with their targets.

use crate::report::replace_section;
use crate::workspace::{Workspace, output};
use crate::{Outcome, spine};

/// A measure and what it should be.
struct Row {
    id: String,
    what: String,
    value: f64,
}

/// Measures, prints, writes the section.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let bench = |package: &str, name: &str| {
        let arguments = ["bench", "--quiet", "--package", package, "--bench", name];
        output(&mut workspace.cargo_command(&arguments))
    };
    let mut rows = rows(&bench("portcullis-audit", "commit")?);
    let forward = spine::forwarder_cpu(workspace)?;
    for row in rows.iter_mut().filter(|row| row.id == "P-4") {
        row.what = format!(
            "added CPU of a call's 10 records and two 4 KiB objects ({:.0} µs) to that of a plain forward ({forward:.0} µs)",
            row.value
        );
        row.value /= forward;
    }
    rows.extend(self::rows(&bench("portcullis-gateway", "index")?));
    let text = section(&rows);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "audit", &text)).map_err(|error| error.to_string())
}

/// `id TAB what TAB value` lines.
fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut parts = line.split('\t');
        let (id, what, value) = (parts.next()?.to_owned(), parts.next()?.to_owned(), parts.next()?.trim());
        Some(Row { id, what, value: value.parse().ok()? })
    };
    text.lines().filter_map(row).collect()
}

/// What the specification wants, and whether more is better.
fn target(row: &Row) -> Option<(f64, bool)> {
    Some(match row.id.as_str() {
        "P-1" => (20.0, true),
        "P-2" => (1.0 / 8.0, false),
        "P-3" if row.what.contains("evidence") => (2.3, false),
        "P-3" => (1.3, false),
        "P-4" => (0.5, false),
        "P-5" => (0.4, true),
        "P-6" => (1.5, false),
        "P-7" => (0.25, true),
        _ => return None,
    })
}

fn section(rows: &[Row]) -> String {
    let mut text = "## The audit log: beside the bare system calls\n\n\
        Ratios within one run on one machine, real syncs on a real disk. P-3 counts one write and one sync of the same bytes\n\
        also where there is evidence, which takes two.\n\n\
        | | measure | ratio | target | met |\n|---|---|--:|--:|---|\n"
        .to_owned();
    for row in rows {
        let Some((target, more)) = target(row) else { continue };
        let met = if more { row.value >= target } else { row.value <= target };
        let (sign, met) = (if more { "≥" } else { "≤" }, if met { "yes" } else { "**no**" });
        text.push_str(&format!(
            "| {} | {} | {:.3} | {sign} {target} | {met} |\n",
            row.id, row.what, row.value
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_is_held_to_its_target_and_a_missed_one_is_said() {
        let text = section(&rows("noise\nP-1\tmany\t21.5\nP-3\twith evidence\t2.4\nP-9\tother\t1\n"));
        assert!(text.contains("| P-1 | many | 21.500 | ≥ 20 | yes |"), "{text}");
        assert!(text.contains("| P-3 | with evidence | 2.400 | ≤ 2.3 | **no** |"), "{text}");
        assert!(!text.contains("P-9"));
    }
}
