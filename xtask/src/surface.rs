//! Surfaces and the records adapter: what they cost beside what they stand for (SURF-110, SURF-111, REC-110).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::Outcome;
use crate::operator::{Gateway, Registration, Upstream};
use crate::process::{Running, usage};
use crate::report::replace_section;
use crate::spine::Scratch;
use crate::workspace::{Workspace, output};

/// How much to measure.
#[derive(Debug)]
pub(crate) struct Options {
    /// Calls in one run.
    pub(crate) calls: u32,
    /// Runs of each way, in turn, of which the median counts.
    pub(crate) rounds: u32,
    /// Where the programs are, if they are built already: then only what needs them is measured, and nothing written down.
    pub(crate) programs: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { calls: 3_000, rounds: 5, programs: None }
    }
}

/// Measures, writes the section.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    if let Some(programs) = &options.programs {
        let text = section(&records(programs, options)?);
        // What was not measured is no line.
        text.lines().filter(|line| !line.contains("NaN")).for_each(|line| println!("{line}"));
        return Ok(());
    }
    let mut bench = Command::new("cargo");
    bench.current_dir(&workspace.root).env("CARGO_TARGET_DIR", &workspace.target);
    bench.args(["bench", "--quiet", "--package", "portcullis-gateway", "--bench", "surface"]);
    let mut measured = numbers(&output(&mut bench)?);
    measured.extend(records(&built(workspace)?, options)?);
    let text = section(&measured);
    print!("{text}");
    let path = workspace.root.join("docs/benchmarks.md");
    let old = fs::read_to_string(&path).unwrap_or_default();
    fs::write(&path, replace_section(&old, "surface", &text)).map_err(|error| error.to_string())
}

/// `name TAB number` lines, in their order.
fn numbers(text: &str) -> Vec<(String, f64)> {
    let line = |line: &str| {
        line.split_once('\t').and_then(|(name, number)| Some((name.to_owned(), number.trim().parse().ok()?)))
    };
    text.lines().filter_map(line).collect()
}

/// One way to get the same page.
struct Way<'a> {
    name: &'static str,
    load: Vec<String>,
    /// Whose CPU counts: the gateway's, or the client's own.
    middle: Option<&'a Gateway>,
}

/// Builds what is measured; says where it is.
fn built(workspace: &Workspace) -> Outcome<PathBuf> {
    let packages = ["bench-peer", "portcullis", "records-server"];
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    workspace.cargo(&["build", "--release"].into_iter().chain(packages).collect::<Vec<_>>())?;
    Ok(workspace.target.join("release"))
}

/// The same records by a bare client and through the gateway, with and without gates.
fn records(programs: &Path, options: &Options) -> Outcome<Vec<(String, f64)>> {
    let scratch = Scratch::new()?;
    let ready = scratch.0.join("records.json");
    let mut command = Command::new(programs.join("records-server"));
    command.args(["--seed", "demo", "--profile", "rich", "--deterministic", "--ready-file"]).arg(&ready);
    let _server = Running::start(command.stdout(std::process::Stdio::null()))?;
    let told = crate::operator::wait_for(&ready)?;
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (rs, token) = (word(&told["rs"]), word(&told["tokens"]["client"]));
    let file = scratch.0.join("grant.token");
    fs::write(&file, &token).map_err(|error| error.to_string())?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).map_err(|error| error.to_string())?;
    let gateway = |name: &str, gates: &str| {
        let registration = Registration {
            name: "personal",
            version: "",
            declaration: Path::new("builtin:records"),
            upstream: Upstream::Records { url: &rs, credential_file: &file },
            dynamic: false,
            granted: false,
            config: "[policy]\npreset = \"observe\"\n",
            config_after: gates,
        };
        Gateway::start(&programs.join("portcullis"), &scratch.0.join(name), &registration)
    };
    let plain = gateway("plain", "")?;
    let gated = gateway("gated", GATED)?;

    let arguments = |limit: usize, more: Value| {
        let mut arguments = json!({"stream": "messages", "limit": limit, "connection_id": "cin_gmail_work"});
        arguments.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        arguments.to_string()
    };
    let through = |gateway: &Gateway, arguments: String| -> Vec<String> {
        ["load", "--url", &gateway.url, "--tool", "personal__query_records", "--args", &arguments]
            .map(str::to_owned)
            .into()
    };
    let page = format!("{rs}/v1/streams/messages/records?limit=100&connection_id=cin_gmail_work");
    let ways = [
        Way {
            name: "bare client",
            load: ["get", "--url", &page, "--bearer-file", &file.to_string_lossy()].map(str::to_owned).into(),
            middle: None,
        },
        Way {
            name: "through the gateway",
            load: through(&plain, arguments(100, json!({}))),
            middle: Some(&plain),
        },
        Way {
            name: "through a gateway with a gate that is not triggered",
            load: through(&gated, arguments(100, json!({}))),
            middle: Some(&gated),
        },
        // The three newest messages have no attachments: the answers are the same but for three empty lists.
        Way {
            name: "three rows, no gate triggered",
            load: through(&plain, arguments(3, json!({}))),
            middle: Some(&plain),
        },
        Way {
            name: "three rows, the built-in gate triggered",
            load: through(&plain, arguments(3, json!({"expand": ["attachments"]}))),
            middle: Some(&plain),
        },
    ];
    let mut measured = Vec::new();
    let mut samples: Vec<Vec<(f64, f64)>> = ways.iter().map(|_| Vec::new()).collect();
    for round in 0..=options.rounds {
        for (way, samples) in ways.iter().zip(&mut samples) {
            let sample = measure(&programs.join("bench-peer"), way, options.calls)?;
            println!("round {round}: {}: p50 {:.0} µs, CPU {:.0} µs", way.name, sample.0, sample.1);
            // The first round warms everything up.
            if round > 0 {
                samples.push(sample);
            }
        }
    }
    for (way, mut samples) in ways.iter().zip(samples) {
        samples.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (p50, cpu) = samples[samples.len() / 2];
        measured.push((format!("{}, p50 µs", way.name), p50));
        measured.push((format!("{}, CPU µs", way.name), cpu));
    }
    Ok(measured)
}

/// The median latency and the CPU per call, in microseconds.
fn measure(peer: &Path, way: &Way<'_>, calls: u32) -> Outcome<(f64, f64)> {
    let mut load = Command::new(peer);
    load.args(&way.load).args(["--calls", &calls.to_string()]);
    let used = || way.middle.map(|gateway| usage(gateway.running.pid(), |_| false).cpu);
    let before = used();
    let text = output(&mut load).map_err(|error| format!("{}: {error}", way.name))?;
    let after = used();
    let report: Value = serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))?;
    if report["errors"] != 0 {
        return Err(format!("{}: {}", way.name, report["first_error"]));
    }
    let own = report["cpu_us_per_call"].as_f64().unwrap_or(f64::NAN);
    let cpu = before
        .zip(after)
        .map_or(own, |(before, after)| after.saturating_sub(before).as_secs_f64() * 1e6 / f64::from(calls));
    Ok((report["p50_us"].as_f64().unwrap_or(f64::NAN), cpu))
}

/// A gate before the same tool, by another argument than is sent.
const GATED: &str = r#"[[gate]]
id = "views"
tools = ["personal/query_records"]
args = ["/view"]
subject = { stream = "/stream" }
source = { kind = "tool", tool = "schema", args = { stream = "{stream}" } }
rows = ["/data/connectors/*/streams/*"]
key = ["name"]
equals = "{stream}"
require = "/views"
error = { code = "invalid_view", param = "view", message = "no views" }
"#;

fn section(measured: &[(String, f64)]) -> String {
    let of =
        |name: &str| measured.iter().find(|(other, _)| other == name).map_or(f64::NAN, |(_, number)| *number);
    let ratio = |one: &str, other: &str| of(one) / of(other);
    let mut text = "## Surfaces and records\n\n\
        One run, ratios of CPU time unless the line says otherwise; the two sides of each alternate. `query_records` is a page of\n\
        30 messages of a records server on loopback; the bare client sends the same GET on one connection. Gated and ungated calls\n\
        compared are pages of three messages that have nothing to expand.\n\n\
        | ratio | | target |\n|---|--:|--:|\n"
        .to_owned();
    let (bare, plain) = ("bare client", "through the gateway");
    let idle = "through a gateway with a gate that is not triggered";
    let (open, gated) = ("three rows, no gate triggered", "three rows, the built-in gate triggered");
    let cpu = |name: &str| of(&format!("{name}, CPU µs"));
    let p50 = |name: &str| of(&format!("{name}, p50 µs"));
    let percent = |number: f64| format!("{:.1} %", number * 100.0);
    let rows = [
        (
            "compile 1,000 tools ÷ serialise the list",
            format!("{:.1}", ratio("compile 1,000 tools", "serialise 1,000 tools")),
            "≤ 40",
        ),
        (
            "serve a cached list ÷ write the same bytes",
            format!("{:.2}", ratio("serve a cached list", "write the same bytes")),
            "≤ 1.1",
        ),
        ("summarise 220 KB ÷ parse it", format!("{:.2}", ratio("summarise 220 KB", "parse 220 KB")), "≤ 2"),
        (
            "a gate that is not triggered, of a call's CPU",
            percent(of("a gate that is not triggered") * 1e6 / cpu(plain)),
            "< 2 %",
        ),
        ("the same, whole gateways compared", percent(cpu(idle) / cpu(plain) - 1.0), "< 2 %"),
        ("a triggered gate, added to a call's CPU", percent(cpu(gated) / cpu(open) - 1.0), "≤ 5 %"),
        (
            "`query_records` through Portcullis, added CPU ÷ bare client's",
            format!("{:.2}", cpu(plain) / cpu(bare)),
            "≤ 1.5",
        ),
        ("gated ÷ ungated call, p50", format!("{:.2}", p50(gated) / p50(open)), "≤ 2.2"),
        (
            "summarising a page of 70 rows, of a call's p50",
            percent(of("summarise a page of 70 rows") * 1e6 / p50(plain)),
            "≤ 10 %",
        ),
    ];
    for (what, number, target) in rows {
        text.push_str(&format!("| {what} | {number} | {target} |\n"));
    }
    text.push_str("\n| what is published | bytes | cl100k | o200k |\n|---|--:|--:|--:|\n");
    for (name, _) in measured.iter().filter(|(name, _)| name.ends_with(", bytes")) {
        let name = name.trim_end_matches(", bytes");
        let number = |unit: &str| of(&format!("{name}, {unit}"));
        text.push_str(&format!(
            "| {name} | {} | {} | {} |\n",
            number("bytes"),
            number("cl100k"),
            number("o200k")
        ));
    }
    text.push_str("\nStep 0 is the golden list as captured: the original publishes it for 6 tools.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_has_ratios_and_counts() {
        let text = section(&numbers(
            "compile 1,000 tools\t0.2\nserialise 1,000 tools\t0.01\nrecords list, bytes\t13737\nrecords list, cl100k\t1\nrecords list, o200k\t2\nnoise\n",
        ));
        assert!(text.contains("| compile 1,000 tools ÷ serialise the list | 20.0 | ≤ 40 |"), "{text}");
        assert!(text.contains("| records list | 13737 | 1 | 2 |"), "{text}");
    }
}
