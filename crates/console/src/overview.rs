//! Overview: the last day at a glance. Charts are drawn here, as SVG, from numbers alone.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::LoggedIn;
use crate::calls::duration;
use crate::desk::text;
use crate::page::{Frame, rendered};

const WIDTH: u64 = 720;
const HEIGHT: u64 = 120;

/// One hour: three parts of a bar, from the ground up.
struct Bar {
    x: u64,
    width: u64,
    parts: Vec<(&'static str, u64, u64)>,
    says: String,
}

struct Numbers {
    calls: String,
    errors: String,
    refusals: String,
    p50: String,
    p95: String,
    most: u64,
    bars: Vec<Bar>,
    /// Steps of a call, their median time, and how long their bar is out of 100.
    steps: Vec<(String, String, u64)>,
}

/// How the gateway is.
struct Health {
    status: String,
    tone: &'static str,
    details: Vec<(String, String)>,
    /// The number and time of the newest record.
    head: Option<(String, String)>,
    /// Tokens of the whole list of tools, and of the way to search it.
    tokens: (u64, u64),
}

impl Health {
    /// What searching saves an agent, in percent of the whole list.
    fn saved(&self) -> u64 {
        let (whole, search) = self.tokens;
        (whole.saturating_sub(search) * 100).checked_div(whole).unwrap_or(0)
    }
}

struct Server {
    id: String,
    state: String,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    numbers: Numbers,
    servers: Vec<Server>,
    policy: String,
    health: Health,
}

/// The last day.
pub(crate) async fn page(State(console): State<Arc<Console>>, LoggedIn(session): LoggedIn) -> Response {
    let frame = console.frame(&session, "/overview").await;
    let mut told = Vec::new();
    for (tool, args) in [
        ("calls_overview", json!({"bucket": "hour"})),
        ("servers_list", json!({"limit": 500})),
        ("policies_get", json!({})),
        ("health_check", json!({})),
        ("audit_list", json!({"limit": 1})),
        ("analytics_footprint", json!({})),
    ] {
        match console.ask(&session, tool, args).await {
            Ok(answer) => told.push(answer),
            Err(refused) => return refused.page(frame),
        }
    }
    let [counted, servers, policy, health, head, footprint] = told.as_slice() else {
        unreachable!("each of the questions was answered")
    };
    let server = |row: &Value| Server { id: text(&row["server_id"]), state: text(&row["state"]) };
    let policy = format!("version {}, {}", text(&policy.data["version"]), text(&policy.data["preset"]));
    let servers = servers.rows().iter().map(server).collect();
    let health = self::health(&health.data, head.rows().first(), &footprint.data);
    rendered(&OverviewPage { frame, numbers: numbers(&counted.data), servers, policy, health })
}

fn health(told: &Value, head: Option<&Value>, footprint: &Value) -> Health {
    let status = text(&told["status"]);
    let component = |part: &Value| {
        let detail = text(&part["detail"]);
        let says = if detail.is_empty() { text(&part["status"]) } else { detail };
        (text(&part["name"]), says)
    };
    let tokens = |wanted: &str| {
        let modes = footprint["modes"].as_array().into_iter().flatten();
        modes.filter(|mode| mode["mode"] == wanted).find_map(|mode| mode["tokens"].as_u64()).unwrap_or(0)
    };
    Health {
        tone: match status.as_str() {
            "ok" => "good",
            "degraded" => "warn",
            _ => "bad",
        },
        status,
        details: told["components"].as_array().into_iter().flatten().map(component).collect(),
        head: head.map(|record| (text(&record["seq"]), text(&record["at"]))),
        tokens: (tokens("passthrough"), tokens("gateway")),
    }
}

fn numbers(counted: &Value) -> Numbers {
    let time = |value: &Value| value.as_u64().map_or_else(|| "–".to_owned(), duration);
    let buckets = counted["buckets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let most = buckets.iter().filter_map(|bucket| bucket["calls"].as_u64()).max().unwrap_or(0).max(1);
    let slot = WIDTH / (buckets.len() as u64).max(1);
    let bars = buckets.iter().zip(0..).map(|(bucket, index)| bar(bucket, index * slot, slot, most));
    Numbers {
        calls: text(&counted["calls"]),
        errors: text(&counted["errors"]),
        refusals: text(&counted["refusals"]),
        p50: time(&counted["p50_us"]),
        p95: time(&counted["p95_us"]),
        most,
        bars: bars.collect(),
        steps: steps(counted),
    }
}

fn steps(counted: &Value) -> Vec<(String, String, u64)> {
    let rows = counted["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let time = |row: &Value| row["p50_us"].as_u64().unwrap_or(0);
    let longest = rows.iter().map(time).max().unwrap_or(0).max(1);
    let row = |row: &Value| (text(&row["step"]), duration(time(row)), time(row) * 100 / longest);
    rows.iter().map(row).collect()
}

fn bar(bucket: &Value, x: u64, slot: u64, most: u64) -> Bar {
    let number = |name: &str| bucket[name].as_u64().unwrap_or(0);
    let (calls, answered, errors, refusals) =
        (number("calls"), number("answered"), number("errors"), number("refusals"));
    let mut y = HEIGHT;
    let mut parts = Vec::new();
    let rest = calls.saturating_sub(answered + errors + refusals);
    // What happened at all is seen, however much else did: what went well gives way.
    let tall = |count: u64| (count * HEIGHT / most).max(u64::from(count > 0) * 2);
    let (open, refused, failed) = (tall(rest), tall(refusals), tall(errors));
    let well = tall(answered).min(HEIGHT.saturating_sub(open + refused + failed));
    for (class, height) in [("answered", well), ("open", open), ("refused", refused), ("errors", failed)] {
        let height = height.min(y);
        y -= height;
        if height > 0 {
            parts.push((class, y, height));
        }
    }
    let hour = text(&bucket["at"]);
    let hour = hour.get(11..16).unwrap_or_default();
    let says = format!("{hour} UTC: {calls} calls, {answered} answered, {refusals} refused, {errors} failed");
    Bar { x, width: slot.saturating_sub(3).max(1), parts, says }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_on_the_ground_and_stay_inside() {
        let told = json!({"calls": 100, "buckets": [
            {"at": "2026-01-01T05:00:00.000Z", "calls": 0},
            {"at": "2026-01-01T06:00:00.000Z", "calls": 100, "answered": 97, "errors": 1, "refusals": 1},
        ]});
        let numbers = numbers(&told);
        assert_eq!((numbers.most, numbers.bars[0].parts.len(), numbers.p50.as_str()), (100, 0, "–"));
        let parts = &numbers.bars[1].parts;
        assert_eq!(parts.len(), 4);
        let mut ground = HEIGHT;
        for (_, y, height) in parts {
            assert_eq!(y + height, ground);
            ground = *y;
        }
        assert!(numbers.bars[1].says.starts_with("06:00 UTC: 100 calls"));
    }
}
