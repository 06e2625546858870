//! Results and prompts: what they cost, and how that grows (B-CTX-4 to 8).

use std::process::Command;

use crate::Outcome;
use crate::report::replace_section;
use crate::workspace::{Workspace, output};

/// Measures, writes the section.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let mut bench = Command::new("cargo");
    bench.current_dir(&workspace.root);
    bench.args(["bench", "--quiet", "--package", "portcullis-context", "--bench", "kernels"]);
    let measured = numbers(&output(&mut bench)?);
    let text = section(&measured);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "context", &text)).map_err(|error| error.to_string())
}

/// `name TAB number` lines, in their order.
fn numbers(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        line.split_once('\t').and_then(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
}

fn section(measured: &[(String, f64)]) -> String {
    let of =
        |name: &str| measured.iter().find(|(other, _)| other == name).map_or(f64::NAN, |(_, number)| *number);
    let mut text = "## Results and prompts\n\n\
        Mean CPU time per call in one run, in process. What counts is how it grows, and that a view costs less than what it\n\
        looks at.\n\n| what | ms |\n|---|--:|\n"
        .to_owned();
    let is_time = |name: &str| !name.starts_with("tokens") && !name.starts_with("resident");
    for (name, number) in measured.iter().filter(|(name, _)| is_time(name)) {
        text.push_str(&format!("| {name} | {:.3} |\n", number * 1e3));
    }
    text.push_str("\n| ratio or count | | target |\n|---|--:|--:|\n");
    let build = |events: &str| of(&format!("context build of {events} events"));
    for (what, number, target) in [
        ("context build, 2,000 ÷ 500 events", build("2000") / build("500"), "≤ 6"),
        ("context build, 100,000 ÷ 10,000 events", build("100000") / build("10000"), "near 10"),
        (
            "grep through ÷ view of 10 lines",
            of("grep through 1.15 MB") / of("view of 10 lines of 1.15 MB"),
            "-",
        ),
        ("tokens of an envelope of 10 kB", of("tokens of an envelope of 10 kB"), "≤ 400"),
        ("tokens of an envelope of 1.15 MB", of("tokens of an envelope of 1.15 MB"), "≤ 400"),
        ("resident growth over 100 envelopes, kB", of("resident growth over 100 envelopes, kB"), "≤ 16,384"),
    ] {
        text.push_str(&format!("| {what} | {number:.1} | {target} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_has_ratios() {
        let measured =
            numbers("context build of 500 events\t0.002\ncontext build of 2000 events\t0.010\nnoise\n");
        let text = section(&measured);
        assert!(text.contains("| context build, 2,000 ÷ 500 events | 5.0 | ≤ 6 |"), "{text}");
    }
}
