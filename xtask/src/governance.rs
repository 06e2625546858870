//! What governing a call costs, and whether that depends on how much is registered (GOV-1603).

use std::process::Command;

use crate::Outcome;
use crate::report::replace_section;
use crate::workspace::{Workspace, output};

/// What policy evaluation, permit, checks and redemption may cost together.
const TARGET_US: f64 = 60.0;

/// How much more the most tools may cost than the fewest.
const FLAT: f64 = 1.3;

/// Measures, writes the section, and fails if a target is missed.
pub(crate) fn run(workspace: &Workspace) -> Outcome {
    let mut bench = Command::new("cargo");
    bench.current_dir(&workspace.root);
    bench.args(["bench", "--quiet", "--package", "portcullis-governance", "--bench", "permits"]);
    let costs = costs(&output(&mut bench)?);
    let text = section(&costs);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, replace_section(&old, "governance", &text)).map_err(|error| error.to_string())?;
    judge(&costs)
}

/// What governing a call costs, with our policies and with an operator's own, and that it stays so.
fn judge(costs: &[Cost]) -> Outcome {
    for part in ["together", "together, with a bundle of one's own"] {
        let row: Vec<f64> = costs.iter().filter(|cost| cost.part == part).map(|cost| cost.us).collect();
        let (Some(fewest), Some(most)) = (row.first(), row.last()) else {
            return Err(format!("{part}: nothing was measured"));
        };
        let worst = row.iter().copied().fold(0.0, f64::max);
        if worst <= 0.0 || worst >= TARGET_US {
            return Err(format!("{part}: a call takes {worst:.1} µs of CPU; the target is {TARGET_US}"));
        }
        if most / fewest > FLAT {
            let ratio = most / fewest;
            return Err(format!("{part}: most tools cost {ratio:.2} times the fewest; the target is {FLAT}"));
        }
    }
    Ok(())
}

struct Cost {
    tools: u32,
    part: String,
    us: f64,
}

/// `tools TAB part TAB seconds` lines.
fn costs(text: &str) -> Vec<Cost> {
    let line = |line: &str| {
        let mut cells = line.split('\t');
        let (tools, part, seconds) = (cells.next()?, cells.next()?, cells.next()?);
        let seconds: f64 = seconds.trim().parse().ok()?;
        Some(Cost { tools: tools.parse().ok()?, part: part.to_owned(), us: seconds * 1e6 })
    };
    text.lines().filter_map(line).collect()
}

fn section(costs: &[Cost]) -> String {
    let mut text = format!(
        "## Governance: one call, however much is registered\n\n\
         CPU per call that needs no approval: policy evaluation (both questions), permit, eight checks and redemption, in the\n\
         thread that does it. With the intent durable is all of it with the canonical form before, and with the log's own thread,\n\
         which seals and syncs; one caller alone, so that each call has a sync of its own.\n\
         The target is under {TARGET_US:.0} µs together, and the same for 10 as for 10,000 tools.\n\n"
    );
    let mut counts: Vec<u32> = costs.iter().map(|cost| cost.tools).collect();
    counts.dedup();
    let mut parts: Vec<&str> = Vec::new();
    for cost in costs {
        if !parts.contains(&cost.part.as_str()) {
            parts.push(&cost.part);
        }
    }
    let heads: Vec<String> = counts.iter().map(|tools| format!("{tools} tools")).collect();
    text.push_str(&format!("| µs | {} | most ÷ fewest tools |\n", heads.join(" | ")));
    text.push_str(&format!("|---|{}--:|\n", "--:|".repeat(heads.len())));
    for part in parts {
        let row: Vec<f64> = costs.iter().filter(|cost| cost.part == part).map(|cost| cost.us).collect();
        let cells: Vec<String> = row.iter().map(|us| format!("{us:.1}")).collect();
        let ratio = row.last().zip(row.first()).map_or(0.0, |(last, first)| last / first);
        text.push_str(&format!("| {part} | {} | {ratio:.2} |\n", cells.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_become_one_row_per_part() {
        let costs = costs(
            "10\tpolicy\t0.00002\n10\ttogether\t0.00003\nnoise\n100\tpolicy\t0.00003\n100\ttogether\t0.00003\n",
        );
        let text = section(&costs);
        assert!(text.contains("| µs | 10 tools | 100 tools | most ÷ fewest tools |"), "{text}");
        assert!(text.contains("| policy | 20.0 | 30.0 | 1.50 |"), "{text}");
    }

    #[test]
    fn a_cost_that_grows_with_tools_or_is_too_high_is_no_success() {
        // GOV-1603
        let judged = |own: [f64; 2]| {
            let of = |tools, part: &str, us| Cost { tools, part: part.into(), us };
            let own_part = "together, with a bundle of one's own";
            judge(&[
                of(10, "together", 10.0),
                of(10, own_part, own[0]),
                of(100, "together", 11.0),
                of(100, own_part, own[1]),
            ])
        };
        assert!(judged([40.0, 45.0]).is_ok());
        assert!(judged([40.0, 61.0]).unwrap_err().contains("61.0"));
        assert!(judged([20.0, 30.0]).unwrap_err().contains("1.50"));
        assert!(judge(&[]).is_err());
    }
}
