//! What the contract around admin calls costs (ADM-83).

use std::process::Command;

use crate::Outcome;
use crate::report::replace_section;
use crate::workspace::{Workspace, output};

/// What a ratio must be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Told, and held to nothing.
    None,
}

impl Target {
    fn of(what: &str) -> Self {
        match what {
            "a list of 50 rows" => Target::AtMost(1.5),
            "an admin write" => Target::AtMost(1.2),
            "scrubbing clean prose" => Target::AtLeast(0.2),
            _ => Target::None,
        }
    }

    fn is_met(self, ratio: f64) -> bool {
        match self {
            Target::AtMost(most) => ratio <= most,
            Target::AtLeast(least) => ratio >= least,
            Target::None => true,
        }
    }

    fn text(self) -> String {
        match self {
            Target::AtMost(most) => format!("≤ {most}"),
            Target::AtLeast(least) => format!("≥ {least}"),
            Target::None => "-".to_owned(),
        }
    }
}

/// What each is measured beside.
fn beside(what: &str) -> &'static str {
    match what {
        "a list of 50 rows" => "its service and serialisation alone",
        "an admin write" => "its two durable appends and what it commits",
        _ => "memcpy (throughput)",
    }
}

/// Measures, writes the section, and fails if a target is missed.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let mut ratios = Vec::new();
    for (package, name) in [("portcullis-admin", "admin"), ("portcullis-core", "scrub")] {
        let mut bench = Command::new("cargo");
        bench.current_dir(&workspace.root);
        bench.args(["bench", "--quiet", "--package", package, "--bench", name]);
        ratios.extend(read(&output(&mut bench)?));
    }
    let text = section(&ratios);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "admin", &text)).map_err(|error| error.to_string())?;
    judge(&ratios)
}

/// `what TAB ratio` lines.
fn read(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        let (what, ratio) = line.split_once('\t')?;
        Some((what.to_owned(), ratio.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn judge(ratios: &[(String, f64)]) -> Outcome {
    if ratios.len() < 3 {
        return Err("not everything was measured".to_owned());
    }
    let missed: Vec<String> = (ratios.iter())
        .filter(|(what, ratio)| !Target::of(what).is_met(*ratio))
        .map(|(what, ratio)| format!("{what}: {ratio:.2}, {} wanted", Target::of(what).text()))
        .collect();
    if missed.is_empty() { Ok(()) } else { Err(missed.join("; ")) }
}

fn section(ratios: &[(String, f64)]) -> String {
    let mut text = String::from(
        "## Administration: the contract around a call\n\n\
         CPU, as ratios within one run: what roles, arguments, guardrails, evidence and envelopes add to an operation, and how\n\
         fast text is seen to hold no secret. In a text with names and colons each name is looked at.\n\n\
         | | beside | ratio | target | met |\n|---|---|--:|--:|---|\n",
    );
    for (what, ratio) in ratios {
        let target = Target::of(what);
        let met = match target {
            Target::None => "-",
            _ if target.is_met(*ratio) => "yes",
            _ => "**no**",
        };
        text.push_str(&format!("| {what} | {} | {ratio:.2} | {} | {met} |\n", beside(what), target.text()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_on_the_wrong_side_of_its_target_is_no_success() {
        // ADM-83
        let of = |list: f64, write: f64, scrub: f64| {
            read(&format!(
                "a list of 50 rows\t{list}\nan admin write\t{write}\nnoise\nscrubbing clean prose\t{scrub}\n"
            ))
        };
        assert!(judge(&of(1.4, 1.1, 0.3)).is_ok());
        for (missed, what) in
            [(of(1.6, 1.1, 0.3), "list"), (of(1.4, 1.3, 0.3), "write"), (of(1.4, 1.1, 0.1), "prose")]
        {
            assert!(judge(&missed).unwrap_err().contains(what), "{missed:?}");
        }
        assert!(judge(&[]).is_err());
        let text = section(&of(1.6, 1.1, 0.3));
        assert!(
            text.contains(
                "| a list of 50 rows | its service and serialisation alone | 1.60 | ≤ 1.5 | **no** |"
            ),
            "{text}"
        );
    }
}
