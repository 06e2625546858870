//! The gauntlet beside the original's steps, in one run (GNT-PF1 to PF6).

use std::collections::HashMap;
use std::process::Command;

use crate::Outcome;
use crate::report::replace_section;
use crate::workspace::{Workspace, output};

/// Measures both, writes the section.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let inputs = std::env::temp_dir().join(format!("gauntlet-bench-{}.json", std::process::id()));
    let mut ours = Command::new("cargo");
    ours.current_dir(&workspace.root).env("PORTCULLIS_BENCH_INPUTS", &inputs);
    ours.args(["bench", "--quiet", "--package", "portcullis-gauntlet", "--bench", "kernels"]);
    let ours = times(&output(&mut ours)?);
    let mut original = Command::new("python3");
    original.arg(workspace.root.join("crates/gauntlet/benches/original.py")).arg(&inputs);
    let original = output(&mut original);
    let _ = std::fs::remove_file(&inputs);
    let text = section(&ours, &times(&original?));
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "gauntlet", &text)).map_err(|error| error.to_string())
}

/// `name TAB seconds` lines, in their order.
fn times(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        line.split_once('\t').and_then(|(name, s)| Some((name.to_owned(), s.trim().parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
}

fn section(ours: &[(String, f64)], original: &[(String, f64)]) -> String {
    let known: HashMap<&str, f64> = original.iter().map(|(name, s)| (name.as_str(), *s)).collect();
    let memcpy = ours.iter().find(|(name, _)| name == "memcpy").map_or(0.0, |(_, s)| *s);
    let mut text = "## The gauntlet: beside the original's steps\n\n\
        Mean CPU time per call, both sides in one run; the original is its steps with jsonschema, html.escape and re in Python, on the same\n\
        inputs. Texts have 1 MiB (n: half of it). What counts are the ratios.\n\
        Clean text is only read, which memcpy also writes, so its share is not like for like.\n\n\
        | what | here µs | original µs | original ÷ here | share of memcpy's speed |\n|---|--:|--:|--:|--:|\n"
        .to_owned();
    for (name, seconds) in ours {
        let is_text = !["validation", "compiling", "gauntlet"].iter().any(|kind| name.starts_with(kind))
            && !name.ends_with(", n");
        let cell =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        let theirs = known.get(name.as_str()).copied();
        let cells = [
            name.clone(),
            format!("{:.2}", seconds * 1e6),
            cell(theirs.map(|s| s * 1e6), 1),
            cell(theirs.map(|s| s / seconds), 1),
            cell(is_text.then_some(memcpy / seconds), 2),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    for kind in ["nested markers", "references"] {
        let of =
            |size: &str| ours.iter().find(|(name, _)| *name == format!("{kind}, {size}")).map(|(_, s)| *s);
        if let (Some(n), Some(twice)) = (of("n"), of("2n")) {
            text.push_str(&format!("\nTime of 2n to time of n, {kind}: {:.2}.\n", twice / n));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_by_name() {
        let ours =
            times("memcpy\t0.000100\nclean ASCII\t0.000200\nnoise\nreferences, n\t1\nreferences, 2n\t2.1\n");
        let text = section(&ours, &times("clean ASCII\t0.02\n"));
        assert!(text.contains("| clean ASCII | 200.00 | 20000.0 | 100.0 | 0.50 |"), "{text}");
        assert!(text.contains("references: 2.10."), "{text}");
    }
}
