//! Surface: what clients read before they call anything, what it costs them, and what to do about it.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::LoggedIn;
use crate::desk::{text, texts};
use crate::page::{Frame, rendered};
use crate::visible::{self, Piece};

/// For whom, in the address of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    profile: String,
    mode: String,
}

/// Something measured against what a client takes.
struct Gauge {
    what: &'static str,
    found: u64,
    allowed: u64,
}

impl Gauge {
    fn share(&self) -> u64 {
        (self.found * 100).checked_div(self.allowed).unwrap_or(0)
    }

    /// The length of its bar, out of 100.
    fn filled(&self) -> u64 {
        self.share().min(100)
    }

    fn over(&self) -> bool {
        self.found > self.allowed
    }
}

struct Mode {
    name: String,
    tools: u64,
    tokens: u64,
    chosen: bool,
}

/// Bytes by what they are for.
#[derive(Default, Clone, Copy)]
struct Stack {
    description: u64,
    input: u64,
    output: u64,
    rest: u64,
}

impl Stack {
    fn of(parts: &Value) -> Self {
        let number = |name: &str| parts[name].as_u64().unwrap_or(0);
        Self {
            description: number("description"),
            input: number("inputSchema"),
            output: number("outputSchema"),
            rest: ["name", "title", "annotations", "rest"].map(number).iter().sum(),
        }
    }

    fn add(&mut self, other: Stack) {
        self.description += other.description;
        self.input += other.input;
        self.output += other.output;
        self.rest += other.rest;
    }

    /// Its bars: kind, where it begins and how long it is, in thousandths of `whole`.
    fn bars(&self, whole: u64) -> Vec<Bar> {
        let kinds = [
            ("description", self.description),
            ("input", self.input),
            ("output", self.output),
            ("rest", self.rest),
        ];
        let mut from = 0;
        let bar = |(kind, bytes): (&'static str, u64)| {
            let long = (bytes * 1_000).checked_div(whole).unwrap_or(0);
            from += long;
            Bar { kind, from: from - long, long }
        };
        kinds.into_iter().map(bar).collect()
    }
}

/// A part of a bar.
struct Bar {
    kind: &'static str,
    from: u64,
    long: u64,
}

struct OfServer {
    name: String,
    tools: Vec<OfTool>,
    bytes: u64,
    repeated: u64,
    lints: u64,
    bars: Vec<Bar>,
}

struct OfTool {
    name: Vec<Piece>,
    bytes: u64,
    tokens: String,
    stack: Stack,
    lints: Vec<String>,
}

/// What a step of making it fit would come to.
struct Step {
    what: &'static str,
    bytes: u64,
    saved: u64,
}

/// A text as accepted and as published.
struct Rewritten {
    tool: Vec<Piece>,
    place: String,
    accepted: Vec<Piece>,
    published: Vec<Piece>,
}

/// The list at one moment, and its place in the chart.
struct Moment {
    at: String,
    bytes: u64,
    tokens: u64,
    x: u64,
    height: u64,
}

struct Found {
    rule: String,
    tone: &'static str,
    about: Vec<Piece>,
    says: Vec<Piece>,
}

#[derive(Template)]
#[template(path = "surface.html")]
struct SurfacePage {
    frame: Frame,
    profile: String,
    profiles: Vec<String>,
    verdict: &'static str,
    tone: &'static str,
    gauges: Vec<Gauge>,
    modes: Vec<Mode>,
    servers: Vec<OfServer>,
    /// Where the budget ends in the bars of servers, in thousandths.
    budget_at: u64,
    steps: Vec<Step>,
    rewritten: Vec<Rewritten>,
    history: Vec<Moment>,
    deferred: Vec<String>,
    findings: Vec<Found>,
    head: Vec<Piece>,
    rest: Vec<Piece>,
}

/// What a client of a profile is shown.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(wanted): Query<Wanted>,
) -> Response {
    let frame = console.frame(&session, "/surface").await;
    let mut args = json!({});
    for (name, value) in [("profile", &wanted.profile), ("mode", &wanted.mode)] {
        if !value.trim().is_empty() {
            args[name] = json!(value.trim());
        }
    }
    match console.ask(&session, "analytics_footprint", args).await {
        Ok(answer) => rendered(&surface(frame, &answer.data)),
        Err(refused) => refused.page(frame),
    }
}

fn surface(frame: Frame, told: &Value) -> SurfacePage {
    let print = &told["footprint"];
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let (verdict, tone) = match print["verdict"].as_str() {
        Some("within") => ("It fits.", "good"),
        Some("degraded") => ("It was made to fit: not everything is shown.", "warn"),
        Some("over") => ("It is more than such a client takes.", "bad"),
        _ => ("It cannot be made to fit; the last list that did stays.", "bad"),
    };
    let mode = text(&print["mode"]);
    let modes = rows(&told["modes"]).map(|row| Mode {
        chosen: text(&row["mode"]) == mode,
        name: text(&row["mode"]),
        tools: number(&row["tools"]),
        tokens: number(&row["tokens"]),
    });
    let whole = number(&print["tools"]["bytes"]);
    let budget = number(&print["budget"]["bytes"]);
    let findings = rows(&print["findings"]).map(|row| Found {
        rule: text(&row["rule"]),
        tone: match row["severity"].as_str() {
            Some("error") => "bad",
            Some("warn") => "warn",
            _ => "",
        },
        about: visible::pieces(&text(if row["tool"] == "" { &row["server"] } else { &row["tool"] })),
        says: visible::pieces(&text(&row["message"])),
    });
    let instructions = text(&told["instructions"]);
    // What some clients cut everything behind (SURF-2).
    let cut = instructions.char_indices().nth(512).map_or(instructions.len(), |(place, _)| place);
    SurfacePage {
        profile: text(&print["profile"]),
        profiles: texts(&told["profiles"]),
        verdict,
        tone,
        gauges: vec![
            Gauge {
                what: "bytes",
                found: number(&print["tools"]["bytes"]),
                allowed: number(&print["budget"]["bytes"]),
            },
            Gauge {
                what: "tokens",
                found: number(&print["tools"]["name_desc_input"]["o200k"]),
                allowed: number(&print["budget"]["tokens"]),
            },
        ],
        modes: modes.collect(),
        servers: servers(print, whole.max(budget)),
        budget_at: (budget * 1_000).checked_div(whole.max(budget)).unwrap_or(0),
        steps: steps(&told["ladder"], whole),
        rewritten: rewritten(&told["changes"]),
        history: history(&told["history"]),
        deferred: texts(&print["deferred"]),
        findings: findings.collect(),
        head: visible::pieces(&instructions[..cut]),
        rest: visible::pieces(&instructions[cut..]),
        frame,
    }
}

/// What each server costs, the most costly first, and each of its tools.
fn servers(print: &Value, widest: u64) -> Vec<OfServer> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let of = |row: &Value| {
        let name = text(&row["name"]);
        let mut whole = Stack::default();
        let own = rows(&print["per_tool"]).filter(|tool| text(&tool["server"]) == name);
        let mut tools: Vec<OfTool> = own
            .map(|tool| {
                let stack = Stack::of(&tool["parts"]);
                whole.add(stack);
                let about = rows(&print["findings"]).filter(|found| found["tool"] == tool["name"]);
                let mut lints: Vec<String> = about.map(|found| text(&found["rule"])).collect();
                lints.sort();
                lints.dedup();
                OfTool {
                    name: visible::pieces(&text(&tool["name"])),
                    bytes: number(&tool["bytes"]),
                    tokens: text(&tool["o200k"]),
                    stack,
                    lints,
                }
            })
            .collect();
        tools.sort_by_key(|tool| std::cmp::Reverse(tool.bytes));
        OfServer {
            bars: whole.bars(widest),
            tools,
            bytes: number(&row["bytes"]),
            repeated: number(&row["sentence_dup_bytes"]),
            lints: row["lints"].as_object().map_or(0, |lints| lints.values().map(number).sum()),
            name,
        }
    };
    let mut servers: Vec<OfServer> = rows(&print["servers"]).map(of).collect();
    servers.sort_by_key(|server| std::cmp::Reverse(server.bytes));
    servers
}

fn steps(ladder: &Value, whole: u64) -> Vec<Step> {
    let step = |row: &Value| {
        let bytes = row["bytes"].as_u64().unwrap_or(0);
        let what = match row["step"].as_u64() {
            Some(0) => "as it is",
            Some(1) => "without output schemas",
            Some(2) => "without titles, icons and the like",
            Some(3) => "without arguments that nobody can use",
            Some(4) => "with repeated sentences said once",
            _ => "with descriptions shortened",
        };
        Step { what, bytes, saved: whole.saturating_sub(bytes) }
    };
    rows(ladder).map(step).collect()
}

fn rewritten(changes: &Value) -> Vec<Rewritten> {
    let of = |row: &Value| Rewritten {
        tool: visible::pieces(&text(&row["tool"])),
        place: text(&row["pointer"]),
        accepted: visible::pieces(&text(&row["accepted"])),
        published: visible::pieces(row["published"].as_str().unwrap_or("(gone)")),
    };
    rows(changes).map(of).collect()
}

/// The points of a chart that is 1000 wide and 100 high.
fn history(points: &Value) -> Vec<Moment> {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let points: Vec<&Value> = rows(points).collect();
    let most = points.iter().map(|point| number(&point["bytes"])).max().unwrap_or(0);
    let width = 1_000_u64.checked_div(points.len() as u64).unwrap_or(0);
    let of = |(index, point): (usize, &&Value)| Moment {
        at: text(&point["at"]),
        bytes: number(&point["bytes"]),
        tokens: number(&point["tokens"]),
        x: index as u64 * width,
        height: (number(&point["bytes"]) * 100).checked_div(most).unwrap_or(0),
    };
    points.iter().enumerate().map(of).collect()
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
