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

struct OfServer {
    name: String,
    tools: String,
    bytes: String,
    repeated: u64,
}

struct OfTool {
    name: Vec<Piece>,
    server: String,
    bytes: u64,
    tokens: String,
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
    tools: Vec<OfTool>,
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
    let servers = rows(&print["servers"]).map(|row| OfServer {
        name: text(&row["name"]),
        tools: text(&row["tools"]),
        bytes: text(&row["bytes"]),
        repeated: number(&row["sentence_dup_bytes"]),
    });
    let mut tools: Vec<OfTool> = rows(&print["per_tool"])
        .map(|row| OfTool {
            name: visible::pieces(&text(&row["name"])),
            server: text(&row["server"]),
            bytes: number(&row["bytes"]),
            tokens: text(&row["o200k"]),
        })
        .collect();
    tools.sort_by_key(|tool| std::cmp::Reverse(tool.bytes));
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
        servers: servers.collect(),
        tools,
        deferred: texts(&print["deferred"]),
        findings: findings.collect(),
        head: visible::pieces(&instructions[..cut]),
        rest: visible::pieces(&instructions[cut..]),
        frame,
    }
}

fn rows(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
