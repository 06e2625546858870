//! How good tools are, by what the log says of them, and reports that are made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use portcullis_audit::EventName;
use portcullis_core::{Clock as _, Sha256Digest, SystemClock, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::history::{Bounds, HistoryService, short, text};
use crate::error::AdminError;
use crate::grant::Op;

/// Fewer calls than this say nothing.
const FEWEST: u64 = 10;
/// What a call may take, in microseconds.
const LATENCY_TARGET: u64 = 2_000_000;
/// How long a report can be fetched.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a score is made of.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ScoreTerms {
    /// Of 40: calls that came back with a result.
    pub success: u64,
    /// Of 25: results that were what was declared.
    pub schema_valid: u64,
    /// Of 15: results within two seconds.
    pub latency: u64,
    /// Of 10: its server is what was accepted.
    pub stable_surface: u64,
    /// Of 10: what operators say of it; all of them while nobody says anything.
    pub reviews: u64,
}

/// How good a tool is.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ScoreRecord {
    /// Which.
    pub tool: String,
    /// 0 to 100; nothing under ten calls.
    pub score: Option<u64>,
    /// What it is made of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<ScoreTerms>,
    /// How many calls it rests on.
    pub calls: u64,
}

/// How good tools are together.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct QualitySummary {
    /// Tools with a score.
    pub scored: usize,
    /// Tools with too few calls.
    pub unscored: usize,
    /// How many have 0 to 49, 50 to 79, 80 to 100.
    pub distribution: [usize; 3],
    /// The five that are least good.
    pub worst: Vec<ScoreRecord>,
}

/// A report, to be fetched over the operators' channel.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReportRecord {
    /// Its id: `GET /api/exports/<id>`.
    pub export_id: String,
    /// What it is about.
    pub kind: String,
    /// How long it is.
    pub bytes: u64,
    /// Its digest.
    pub sha256: String,
    /// Until when it can be fetched.
    pub expires_at: String,
}

#[derive(Debug, Default)]
struct Tally {
    calls: u64,
    succeeded: u64,
    withheld: u64,
    in_time: u64,
}

impl HistoryService {
    /// Scores of the tools that were called in a stretch of time, by name.
    pub async fn scores(&self, bounds: Bounds) -> Result<Vec<ScoreRecord>, AdminError> {
        let (since, until) = bounds;
        let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
        for call in self.calls(bounds).await? {
            let tally = tallies.entry(short(&call.tool)).or_default();
            tally.calls += 1;
            if call.outcome == "result" {
                tally.succeeded += 1;
                tally.in_time += u64::from(call.elapsed_us.is_some_and(|took| took <= LATENCY_TARGET));
            }
        }
        let (withheld, shaken) = self
            .scan(
                (BTreeMap::<String, u64>::new(), BTreeSet::<String>::new()),
                move |(withheld, shaken), record| {
                    if record.time < since || record.time >= until {
                        return;
                    }
                    match record.event {
                        EventName::ExecutionWithheld => {
                            let tool = record.tool_id.as_ref().map(|id| id.short().to_owned());
                            *withheld.entry(tool.unwrap_or_default()).or_default() += 1;
                        }
                        EventName::McpDeclarationMismatch
                        | EventName::McpUngovernedSurfaceDetected
                        | EventName::McpVersionMismatch
                        | EventName::ServerSurfaceChanged => {
                            let server = record.tool_id.as_ref().map(|id| id.server().to_string());
                            shaken.insert(server.unwrap_or_else(|| text(&record.data["server"])));
                        }
                        _ => {}
                    }
                },
            )
            .await?;
        for (tool, count) in withheld {
            tallies.entry(tool).or_default().withheld = count;
        }
        let row = |(tool, tally): (String, Tally)| {
            let server = tool.split_once('/').map_or("", |(server, _)| server);
            let stable = !shaken.contains(server);
            score(&tool, &tally, stable)
        };
        Ok(tallies.into_iter().map(row).collect())
    }

    /// How good tools are together.
    pub async fn quality(&self, bounds: Bounds) -> Result<QualitySummary, AdminError> {
        let rows = self.scores(bounds).await?;
        let mut scored: Vec<ScoreRecord> = rows.iter().filter(|row| row.score.is_some()).cloned().collect();
        scored.sort_by_key(|row| row.score);
        let within = |from: u64, to: u64| {
            scored.iter().filter(|row| row.score.is_some_and(|score| (from..=to).contains(&score))).count()
        };
        Ok(QualitySummary {
            scored: scored.len(),
            unscored: rows.len() - scored.len(),
            distribution: [within(0, 49), within(50, 79), within(80, 100)],
            worst: scored.into_iter().take(5).collect(),
        })
    }

    /// Writes a report where operators can fetch it.
    pub async fn report(
        &self,
        op: &Op,
        (kind, format): (&str, &str),
        bounds: Bounds,
    ) -> Result<ReportRecord, AdminError> {
        let rows: Vec<Value> = match kind {
            "usage" => self.by_tool(bounds).await?.iter().map(|row| json!(row)).collect(),
            "governance" => self.errors(bounds).await?.iter().map(|row| json!(row)).collect(),
            "quality" => self.scores(bounds).await?.iter().map(|row| json!(row)).collect(),
            _ => self
                .control
                .clients()
                .into_iter()
                .map(|(client, key)| {
                    json!({
                        "client_id": client.document.client_id, "kind": client.document.kind,
                        "autonomy": client.document.autonomy, "revoked": client.document.revoked,
                        "grants": key.map(|key| key.grants),
                    })
                })
                .collect(),
        };
        let content = written(kind, format, bounds, &rows);
        let now = SystemClock.now();
        let export_id = format!("exp_{}", op.id().trim_start_matches("op_"));
        self.control.keep_report(op.operator(), &export_id, (kind, format), content.as_bytes()).await?;
        Ok(ReportRecord {
            export_id,
            kind: kind.to_owned(),
            bytes: content.len() as u64,
            sha256: Sha256Digest::of(content.as_bytes()).to_string(),
            expires_at: now.after(KEPT).to_string(),
        })
    }
}

fn score(tool: &str, tally: &Tally, stable: bool) -> ScoreRecord {
    let calls = tally.calls;
    if calls < FEWEST {
        return ScoreRecord { tool: tool.to_owned(), score: None, terms: None, calls };
    }
    let part = |count: u64, weight: u64| count.min(calls) * weight / calls;
    let terms = ScoreTerms {
        success: part(tally.succeeded, 40),
        schema_valid: part(calls.saturating_sub(tally.withheld), 25),
        latency: part(tally.in_time, 15),
        stable_surface: if stable { 10 } else { 0 },
        reviews: 10,
    };
    let sum = terms.success + terms.schema_valid + terms.latency + terms.stable_surface + terms.reviews;
    ScoreRecord { tool: tool.to_owned(), score: Some(sum), terms: Some(terms), calls }
}

/// Rows as a document of a format; the columns are the members of the first row.
fn written(kind: &str, format: &str, (since, until): (Timestamp, Timestamp), rows: &[Value]) -> String {
    let columns: Vec<String> =
        rows.first().and_then(Value::as_object).map(|row| row.keys().cloned().collect()).unwrap_or_default();
    let cell = |row: &Value, column: &str| match &row[column] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    match format {
        "csv" => {
            // What begins like a formula is none when a spreadsheet reads it.
            let quoted = |text: String| {
                let plain = if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
                    format!("'{text}")
                } else {
                    text
                };
                format!("\"{}\"", plain.replace('"', "\"\""))
            };
            let mut out = columns.iter().cloned().map(quoted).collect::<Vec<_>>().join(",") + "\r\n";
            for row in rows {
                let cells: Vec<String> = columns.iter().map(|column| quoted(cell(row, column))).collect();
                out += &(cells.join(",") + "\r\n");
            }
            out
        }
        "md" => {
            let mut out = format!("# {kind}, {since} to {until}\n\n");
            let escaped = |text: String| text.replace('|', "\\|").replace('\n', " ");
            let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
            out += &line(columns.clone());
            let _ = writeln!(out, "|{}", "---|".repeat(columns.len().max(1)));
            for row in rows {
                out += &line(columns.iter().map(|column| escaped(cell(row, column))).collect());
            }
            out
        }
        _ => json!({"report": kind, "since": since, "until": until, "rows": rows}).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_has_integer_terms_and_none_under_ten_calls() {
        // admin §12: quality
        let tally = |calls, succeeded, withheld, in_time| Tally { calls, succeeded, withheld, in_time };
        assert_eq!(score("a/b", &tally(9, 9, 0, 9), true).score, None);
        assert_eq!(score("a/b", &tally(10, 10, 0, 10), true).score, Some(100));
        let bad = score("a/b", &tally(20, 10, 2, 5), false);
        let terms = bad.terms.unwrap();
        assert_eq!((terms.success, terms.schema_valid, terms.latency, terms.stable_surface), (20, 22, 3, 0));
        assert_eq!(bad.score, Some(55));
    }

    #[test]
    fn a_table_holds_what_it_is_given_and_no_formula() {
        let rows = [json!({"tool": "=cmd()", "calls": 3}), json!({"tool": "a|b", "calls": 1})];
        let bounds = (Timestamp::from_millis(0), Timestamp::from_millis(1));
        let csv = written("usage", "csv", bounds, &rows);
        assert!(csv.contains("\"'=cmd()\"") && csv.starts_with("\"tool\",\"calls\"\r\n"), "{csv}");
        let md = written("usage", "md", bounds, &rows);
        assert!(md.contains("| a\\|b | 1 |"), "{md}");
    }
}
