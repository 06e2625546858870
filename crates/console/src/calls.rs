//! Calls: what agents did of late, and one call's whole story (the ten steps, told by the log).

mod steps;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, Signed};
use crate::desk::{Answer, Refused, text};
use crate::page::{Frame, Pager, address, rendered};
use crate::session::Session;
use crate::visible::{self, Piece};
use steps::{Step, steps};

const ROWS: u64 = 50;

/// What a call can have come to, with what that means.
const KINDS: [(&str, &str); 11] = [
    ("answered", "the server answered"),
    ("asked", "an operator was asked"),
    ("denied", "by policy, or by an operator"),
    ("refused", "not acceptable, or no such tool"),
    ("failed", "the server says it went wrong"),
    ("withheld", "the answer was kept from the agent"),
    ("stopped", "the permit did not hold any more"),
    ("timed-out", "no answer in time"),
    ("cancelled", "the agent gave up"),
    ("unknown", "it may have been sent, and no answer was recorded"),
    ("running", "under way"),
];

/// What is asked for, in the address of the page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    kind: String,
    agent: String,
    tool: String,
    offset: u64,
}

struct Row {
    at: String,
    kind: &'static str,
    means: &'static str,
    agent: Vec<Piece>,
    tool: Vec<Piece>,
    id: String,
    took: String,
}

struct History {
    rows: Vec<Row>,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "calls.html")]
struct CallsPage {
    frame: Frame,
    history: History,
    wanted: Wanted,
    kinds: &'static [(&'static str, &'static str)],
    part: String,
}

#[derive(Template)]
#[template(path = "calls_part.html")]
struct CallsPart {
    history: History,
}

#[derive(Template)]
#[template(path = "call.html")]
struct CallPage {
    frame: Frame,
    id: String,
    name: Vec<Piece>,
    end: String,
    tone: &'static str,
    steps: Vec<Step>,
    records: String,
}

/// What agents did.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(wanted): Query<Wanted>,
) -> Response {
    let frame = console.frame(&session, "/calls").await;
    match console.history(&session, &wanted).await {
        Ok(history) => {
            let part = wanted.address("/calls/part", wanted.offset);
            rendered(&CallsPage { frame, history, wanted, kinds: &KINDS, part })
        }
        Err(refused) => refused.page(frame),
    }
}

/// The part of it that changes.
pub(crate) async fn part(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Query(wanted): Query<Wanted>,
) -> Response {
    match console.history(&session, &wanted).await {
        Ok(history) => rendered(&CallsPart { history }),
        Err(refused) => refused.page(Frame::of(&session, "/calls")),
    }
}

/// One call.
pub(crate) async fn one(
    State(console): State<Arc<Console>>,
    LoggedIn(session): LoggedIn,
    Path(id): Path<String>,
) -> Response {
    let frame = console.frame(&session, "/calls").await;
    let story = match console.ask(&session, "calls_get", json!({"call_id": id})).await {
        Ok(Answer { data, .. }) => data["call"].clone(),
        Err(refused) => return refused.page(frame),
    };
    let tool = text(&story["what"]["tool_id"]);
    let name = if tool.is_empty() { text(&story["what"]["asked_for"]) } else { tool };
    let name = visible::pieces(name.split_once('@').map_or(name.as_str(), |(short, _)| short));
    let end = text(&story["end"]["how"]);
    let tone = if end == "answered" { "good" } else { "bad" };
    let records: Vec<String> = story["records"].as_array().into_iter().flatten().map(text).collect();
    let records = records.join(", ");
    rendered(&CallPage {
        frame,
        id: text(&story["proposal"]),
        name,
        end,
        tone,
        steps: steps(&story),
        records,
    })
}

/// One half of what was opened.
struct Half {
    title: &'static str,
    text: Vec<Piece>,
    /// Why there is none.
    gone: String,
}

#[derive(Template)]
#[template(path = "evidence.html")]
struct EvidencePage {
    frame: Frame,
    id: String,
    request: Half,
    /// What came back, and what the model is shown of it.
    beside: [Half; 2],
}

/// Why evidence is opened.
#[derive(Debug, Deserialize)]
pub(crate) struct Opening {
    reason: String,
}

/// What a call sent and got, beside what the model was shown. That it was opened is on record (AUD-44).
pub(crate) async fn open(
    State(console): State<Arc<Console>>,
    Path(id): Path<String>,
    Signed { session, form }: Signed<Opening>,
) -> Response {
    let frame = console.frame(&session, "/calls").await;
    let args = json!({"call_id": id, "confirm": true, "reason": form.reason});
    let opened = match console.ask(&session, "calls_open", args).await {
        Ok(answer) => answer.data,
        Err(refused) => return refused.page(frame),
    };
    let shown = match opened["shown"].as_str() {
        Some(text) => Half { title: "What the model is shown", text: pretty(text), gone: String::new() },
        None => {
            let gone = text(&opened["withheld"]);
            let gone = if gone.is_empty() { "nothing".to_owned() } else { format!("nothing: {gone}") };
            Half { title: "What the model is shown", text: Vec::new(), gone }
        }
    };
    let request = half("Sent", &opened["request"]);
    let response = half("Came back", &opened["response"]);
    rendered(&EvidencePage { frame, id, request, beside: [response, shown] })
}

fn half(title: &'static str, piece: &Value) -> Half {
    let written = piece["text"].as_str().or_else(|| piece["base64"].as_str());
    let gone = match (written, piece["evidence"].as_str()) {
        (Some(_), _) => "",
        (None, Some("destroyed")) => "The key of this evidence was destroyed; nobody can read it any more.",
        (None, Some(_)) => "The evidence is missing.",
        (None, None) => "There was none.",
    };
    Half { title, text: written.map(pretty).unwrap_or_default(), gone: gone.to_owned() }
}

/// JSON over several lines; anything else as it is.
fn pretty(written: &str) -> Vec<Piece> {
    match serde_json::from_str::<Value>(written) {
        Ok(value) => visible::json(&value),
        Err(_) => visible::pieces(written),
    }
}

impl Console {
    async fn history(&self, session: &Session, wanted: &Wanted) -> Result<History, Refused> {
        let mut args = json!({"limit": ROWS, "offset": wanted.offset.min(1_000_000)});
        for (name, value) in [("kind", &wanted.kind), ("client_id", &wanted.agent), ("tool", &wanted.tool)] {
            if !value.trim().is_empty() {
                args[name] = json!(value.trim());
            }
        }
        let answer = self.ask(session, "calls_list", args).await?;
        let rows: Vec<Row> = answer.rows().iter().map(row).collect();
        let pager = Pager::new(wanted.offset, rows.len() as u64, answer.total(), ROWS, |offset| {
            wanted.address("/calls", offset)
        });
        Ok(History { rows, pager })
    }
}

impl Wanted {
    /// The same question about other rows.
    fn address(&self, path: &str, offset: u64) -> String {
        let asked = [("kind", &*self.kind), ("agent", &self.agent), ("tool", &self.tool)];
        address(path, &asked, offset)
    }
}

fn row(row: &Value) -> Row {
    let kind = text(&row["kind"]);
    let (kind, means) = KINDS.into_iter().find(|(word, _)| *word == kind).unwrap_or(("unknown", ""));
    let tool = text(&row["tool"]);
    Row {
        at: text(&row["at"]),
        kind,
        means,
        agent: visible::pieces(&text(&row["client_id"])),
        tool: visible::pieces(tool.split_once('@').map_or(tool.as_str(), |(short, _)| short)),
        id: text(&row["call_id"]),
        took: row["elapsed_us"].as_u64().map(duration).unwrap_or_default(),
    }
}

impl Row {
    /// The colour of what it came to.
    fn tone(&self) -> &'static str {
        match self.kind {
            "answered" => "good",
            "asked" | "running" | "cancelled" => "warn",
            _ => "bad",
        }
    }
}

/// A time that a person can compare.
pub(crate) fn duration(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.1} s", us as f64 / 1e6),
    }
}
