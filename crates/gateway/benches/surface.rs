//! What making, serving and shortening surfaces costs (SURF-110), and what the golden list comes to (SURF-111): `name TAB
//! number` lines, seconds of CPU where nothing else is said. `cargo xtask bench surface` runs it and writes down what
//! follows.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Duration;

use portcullis_context::bound::{Ways, summary};
use portcullis_gateway::exposure::Mode;
use portcullis_gateway::gates::{ArgumentGate, GateOptions};
use portcullis_gateway::surface::footprint::Size;
use portcullis_gateway::surface::offered::{Effect, Offered};
use portcullis_gateway::surface::profile::Profile;
use portcullis_gateway::surface::{Budgeting, Dedup, Input, SurfaceOptions, compile, served};
use serde_json::{Value, json};

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
}

/// The mean CPU time of one call of each over some rounds of both in turn, so that a slow moment is slow for both.
type Work<'a> = (&'a str, &'a mut dyn FnMut());

fn side_by_side<'a>(one: Work<'a>, other: Work<'a>) {
    let mut both = [(one.0, one.1, Vec::new()), (other.0, other.1, Vec::new())];
    for _ in 0..7 {
        for (_, work, spent) in &mut both {
            work();
            let (mut calls, start) = (0_u32, cpu());
            while cpu() - start < Duration::from_millis(200) {
                work();
                calls += 1;
            }
            spent.push((cpu() - start).as_secs_f64() / f64::from(calls));
        }
    }
    for (name, _, spent) in &mut both {
        spent.sort_by(f64::total_cmp);
        println!("{name}\t{:.12}", spent[spent.len() / 2]);
    }
}

fn golden() -> Vec<Value> {
    let text = include_str!("../corpus/pdpp/mcp-tools-list.json");
    let capture: Value = serde_json::from_str(text).expect("a capture");
    capture["body"]["result"]["tools"].as_array().expect("tools").clone()
}

/// A thousand tools of twenty servers: the golden ones, each with a sentence of its own.
fn thousand() -> Vec<Offered> {
    let golden = golden();
    let tool = |n: usize| {
        let mut definition = golden[n % golden.len()].clone();
        let server = format!("server{:02}", n / 50);
        definition["name"] = json!(format!("{server}__tool_{n:04}"));
        let said = definition["description"].as_str().unwrap_or_default();
        definition["description"] = json!(format!("Does thing number {n} of a thousand. {said}"));
        Offered::new(&server, Some(Effect::ReadOnly), &definition.to_string()).expect("a definition")
    };
    (0..1_000).map(tool).collect()
}

fn input<'a>(tools: Vec<Offered>, profile: &'a Profile, options: &'a SurfaceOptions) -> Input<'a> {
    Input {
        tools,
        mode: Mode::Passthrough,
        profile,
        options,
        prune: BTreeSet::new(),
        servers: Vec::new(),
        records: false,
        stand_ins: Vec::new(),
    }
}

fn main() {
    making();
    serving();
    shortening();
    gating();
    golden_list();
}

fn making() {
    let options = SurfaceOptions { dedup: Dedup::Always, ..SurfaceOptions::default() };
    let tools = thousand();
    let texts: Vec<Value> =
        tools.iter().map(|tool| serde_json::from_str(tool.original()).expect("JSON")).collect();
    let made = input(tools, options.profile("strict"), &options);
    side_by_side(
        ("compile 1,000 tools", &mut || drop(black_box(compile(&made)))),
        ("serialise 1,000 tools", &mut || drop(black_box(serde_json::to_vec(&texts)))),
    );
}

fn serving() {
    let tools = thousand();
    let page = tools.iter().map(Offered::text).collect::<Vec<_>>().join(",").into_bytes();
    let whole = served("tools", &page, None, r#"{"io.portcullis/servers":{}}"#, Some(300_000));
    side_by_side(
        ("serve a cached list", &mut || {
            drop(black_box(served("tools", &page, None, r#"{"io.portcullis/servers":{}}"#, Some(300_000))));
        }),
        ("write the same bytes", &mut || {
            let mut out = Vec::with_capacity(whole.len());
            out.extend_from_slice(black_box(&whole));
            drop(black_box(out));
        }),
    );
}

fn shortening() {
    let text = include_str!("../corpus/pdpp/mcp-size-bodies100.json");
    let capture: Value = serde_json::from_str(text).expect("a capture");
    let structured = capture["body"]["result"]["structuredContent"].to_string();
    println!("bytes of the large result\t{}", structured.len());
    let value: Value = serde_json::from_str(&structured).expect("JSON");
    let ways = Ways::among(["stream", "limit", "cursor", "fields"].into_iter());
    side_by_side(
        ("summarise 220 KB", &mut || drop(black_box(summary(&value, None, &ways, 8_192)))),
        ("parse 220 KB", &mut || drop(black_box(serde_json::from_str::<Value>(&structured)))),
    );
    let text = include_str!("../corpus/pdpp/mcp-size-query100.json");
    let capture: Value = serde_json::from_str(text).expect("a capture");
    let page = &capture["body"]["result"]["structuredContent"];
    side_by_side(
        ("summarise a page of 70 rows", &mut || drop(black_box(summary(page, None, &ways, 1_792)))),
        ("serialise a page of 70 rows", &mut || drop(black_box(page.to_string()))),
    );
}

fn gating() {
    let options: GateOptions = serde_json::from_value(json!({
        "id": "expand", "tools": ["pdpp/query_records"], "args": ["/expand", "/expand_limit"],
        "subject": {"stream": "/stream"}, "source": {"kind": "tool", "tool": "schema", "args": {"stream": "{stream}"}},
        "rows": ["/streams/*", "/connectors/*/streams/*", "/data/streams/*", "/data/connectors/*/streams/*"],
        "key": ["name", "stream"], "equals": "{stream}", "require": "/expand_capabilities",
        "error": {"code": "invalid_expand", "param": "expand", "message": "no"},
    }))
    .expect("options");
    let gate = ArgumentGate::new(options).expect("a gate");
    let arguments =
        json!({"stream": "messages", "limit": 100, "connection_id": "cin_gmail_work"}).to_string();
    side_by_side(
        ("a gate that is not triggered", &mut || {
            let arguments: Value = serde_json::from_str(&arguments).expect("JSON");
            assert!(!black_box(gate.is_triggered(&arguments)));
        }),
        ("its arguments parsed", &mut || drop(black_box(serde_json::from_str::<Value>(&arguments)))),
    );
}

/// Counts, not times: bytes and tokens before and after each step (SURF-111).
fn golden_list() {
    let tell = |name: &str, text: &str| {
        let size = Size::of(text);
        println!(
            "{name}, bytes\t{}\n{name}, cl100k\t{}\n{name}, o200k\t{}",
            size.bytes, size.cl100k, size.o200k
        );
    };
    let tools = || -> Vec<Offered> {
        let tool = |tool: &Value| Offered::new("pdpp", Some(Effect::ReadOnly), &tool.to_string());
        golden().iter().filter_map(tool).collect()
    };
    let options = SurfaceOptions {
        mode: Budgeting::Enforce,
        routability: portcullis_gateway::surface::Routability::Off,
        dedup_min_tools: 2,
        ..SurfaceOptions::default()
    };
    let (mut before, mut last) = (usize::MAX, None);
    let roomy = Profile { tools_total_tokens: usize::MAX, ..options.profile("strict").clone() };
    // Each budget is a byte less than what the step before came to, so that the next one is taken.
    loop {
        let profile = Profile { tools_total_bytes: before.saturating_sub(1), ..roomy.clone() };
        let surface = compile(&input(tools(), &profile, &options));
        if surface.ladder_step >= 6 || last == Some(surface.ladder_step) {
            break;
        }
        tell(&format!("golden list, step {}", surface.ladder_step), &surface.tools_json);
        (before, last) = (surface.footprint.tools.size.bytes, Some(surface.ladder_step));
    }
    tell("records list, 13 tools", include_str!("../corpus/records/tools.json").trim_end());
}
