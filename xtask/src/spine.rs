//! The spine benchmark: the same calls directly, through a bare forwarder and through Portcullis, side by side.
//!
//! The rounds of the three ways alternate, so that a machine that slows down slows all of them, and the median round
//! of each is reported. Absolute numbers belong to the machine; the ratios are what this is for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::Outcome;
use crate::operator::{Gateway, Registration, Upstream};
use crate::process::{Running, usage};
use crate::report::{self, Row};
use crate::workspace::{Workspace, output};

const CALLERS: [u32; 3] = [1, 8, 64];
const ARGUMENTS: &str = r#"{"text":"The quick brown fox jumps over the lazy dog."}"#;

/// How much to measure.
#[derive(Debug)]
pub(crate) struct Options {
    /// Calls in one run.
    pub(crate) calls: u32,
    /// Runs of each way, of which the median counts.
    pub(crate) rounds: u32,
    /// Without the gateway: what the peers alone do.
    pub(crate) peers_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { calls: 10_000, rounds: 3, peers_only: false }
    }
}

/// One way from the callers to the upstream.
struct Way {
    name: &'static str,
    target: Target,
    tool: &'static str,
    /// The process in the middle.
    middle: Option<u32>,
}

enum Target {
    Url(String),
    Child,
}

/// What one run showed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) calls_per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// CPU of the process in the middle; the upstream is not counted, whoever started it.
    pub(crate) middle_us: Option<f64>,
    pub(crate) rss_kib: Option<u64>,
}

/// Builds, measures, prints and writes `docs/benchmarks.md`.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Outcome {
    let mut build = vec!["build", "--release", "--package", "bench-peer"];
    if !options.peers_only {
        build.extend(["--package", "portcullis"]);
    }
    workspace.cargo(&build)?;
    let scratch = Scratch::new()?;
    let mut rows = Vec::new();
    for transport in ["http", "stdio"] {
        rows.extend(measure_transport(workspace, options, &scratch, transport)?);
    }
    let section = report::spine(&rows, options.calls);
    println!("\n{section}");
    if options.peers_only {
        return Ok(());
    }
    let file = workspace.root.join("docs/benchmarks.md");
    let old = fs::read_to_string(&file).unwrap_or_default();
    fs::create_dir_all(workspace.root.join("docs")).map_err(|error| error.to_string())?;
    fs::write(&file, report::replace_section(&old, "spine", &section)).map_err(|error| error.to_string())?;
    println!("written to {}", file.display());
    Ok(())
}

fn measure_transport(
    workspace: &Workspace,
    options: &Options,
    scratch: &Scratch,
    transport: &'static str,
) -> Outcome<Vec<Row>> {
    let release = workspace.target.join("release");
    let peer = release.join("bench-peer");
    // Everything below lives until the end of this function and ends with it.
    let upstream = match transport {
        "http" => Some(Running::listening(Command::new(&peer).args(["echo", "--http", "0"]))?),
        _ => None,
    };
    let upstream_url = upstream.as_ref().map(|(_, url)| url.as_str());
    let mut forward = Command::new(&peer);
    forward.args(["forward", "--listen", "0"]);
    match upstream_url {
        Some(url) => forward.args(["--upstream", url]),
        None => forward.args(["--stdio", "--"]).arg(&peer).args(["echo", "--stdio"]),
    };
    let (forwarder, forwarder_url) = Running::listening(&mut forward)?;
    let gateway = if options.peers_only {
        None
    } else {
        let declaration = workspace.root.join("servers/bench-peer/bench.yaml");
        let registration = Registration {
            name: "bench",
            version: "1.0.0",
            declaration: &declaration,
            upstream: upstream_url.map_or(Upstream::Stdio(&peer), Upstream::Http),
            dynamic: false,
            granted: false,
            config: "[policy]\npreset = \"observe\"\n",
            config_after: "",
        };
        let home = scratch.0.join(transport);
        Some(Gateway::start(&release.join("portcullis"), &home, &registration)?)
    };

    let direct = upstream_url.map_or(Target::Child, |url| Target::Url(url.to_owned()));
    let mut ways = vec![
        Way { name: "direct", target: direct, tool: "echo", middle: None },
        Way {
            name: "bare forwarder",
            target: Target::Url(forwarder_url),
            tool: "echo",
            middle: Some(forwarder.pid()),
        },
    ];
    ways.extend(gateway.as_ref().map(|gateway| Way {
        name: "Portcullis",
        target: Target::Url(gateway.url.clone()),
        tool: "bench__echo",
        middle: Some(gateway.running.pid()),
    }));

    let mut rows = Vec::new();
    for callers in CALLERS {
        let mut samples: Vec<Vec<Sample>> = ways.iter().map(|_| Vec::new()).collect();
        for round in 1..=options.rounds {
            for (way, samples) in ways.iter().zip(&mut samples) {
                let sample = measure(&peer, way, callers, options.calls)?;
                println!(
                    "{transport}, {callers} callers, round {round}: {} {:.0} calls/s",
                    way.name, sample.calls_per_s
                );
                samples.push(sample);
            }
        }
        for (way, samples) in ways.iter().zip(samples) {
            rows.push(Row { transport, callers, way: way.name, sample: median(samples) });
        }
    }
    Ok(rows)
}

/// CPU per call of the bare forwarder alone, with 64 callers, in microseconds.
pub(crate) fn forwarder_cpu(workspace: &Workspace) -> Outcome<f64> {
    workspace.cargo(&["build", "--release", "--package", "bench-peer"])?;
    let peer = workspace.target.join("release/bench-peer");
    let (_echo, upstream) = Running::listening(Command::new(&peer).args(["echo", "--http", "0"]))?;
    let mut forward = Command::new(&peer);
    forward.args(["forward", "--listen", "0", "--upstream", &upstream]);
    let (forwarder, url) = Running::listening(&mut forward)?;
    let way =
        Way { name: "bare forwarder", target: Target::Url(url), tool: "echo", middle: Some(forwarder.pid()) };
    let Options { calls, rounds, .. } = Options::default();
    let samples = (0..rounds).map(|_| measure(&peer, &way, 64, calls)).collect::<Outcome<Vec<_>>>()?;
    median(samples).middle_us.ok_or_else(|| "the forwarder's CPU cannot be read".to_owned())
}

fn measure(peer: &Path, way: &Way, callers: u32, calls: u32) -> Outcome<Sample> {
    let warmup = calls / 10 + callers;
    let mut load = Command::new(peer);
    load.args(["load", "--tool", way.tool, "--args", ARGUMENTS]);
    load.args([
        "--callers",
        &callers.to_string(),
        "--calls",
        &calls.to_string(),
        "--warmup",
        &warmup.to_string(),
    ]);
    match &way.target {
        Target::Url(url) => load.args(["--url", url]),
        Target::Child => load.args(["--stdio", "--"]).arg(peer).args(["echo", "--stdio"]),
    };
    let middle = || way.middle.map(|pid| usage(pid, |line| line.contains("echo --stdio")));
    let before = middle();
    let text = output(&mut load).map_err(|error| format!("{}: {error}", way.name))?;
    let after = middle();
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("the load generator said {text}: {error}"))?;
    if report["errors"] != 0 {
        return Err(format!(
            "{}: {} of {calls} calls failed, first: {}",
            way.name, report["errors"], report["first_error"]
        ));
    }
    let number = |key: &str| report[key].as_f64().ok_or_else(|| format!("the report lacks {key}"));
    Ok(Sample {
        calls_per_s: number("calls_per_s")?,
        p50_us: number("p50_us")?,
        p99_us: number("p99_us")?,
        middle_us: before.zip(after).map(|(before, after)| {
            let cpu = after.cpu.saturating_sub(before.cpu);
            cpu.as_secs_f64() * 1e6 / f64::from(calls + warmup)
        }),
        rss_kib: after.map(|usage| usage.rss_kib),
    })
}

/// The round in the middle by throughput, whole: its other numbers belong to it.
fn median(mut samples: Vec<Sample>) -> Sample {
    samples.sort_by(|a, b| a.calls_per_s.total_cmp(&b.calls_per_s));
    samples[samples.len() / 2]
}

/// A folder for the gateway's homes, gone at the end.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new() -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("portcullis-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
