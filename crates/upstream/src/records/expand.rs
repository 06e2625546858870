//! The expand gate (REC-60 to REC-66): built in, always live, and never the reason why a call fails that could have
//! worked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portcullis_core::Sha256Digest;
use portcullis_gauntlet::gate::{Gate, Indecision, Matching, Verdict};
use portcullis_gauntlet::gate_meter::Meter;
use serde_json::{Value, json};

use super::credential::Token;
use super::http::{Http, Request};
use super::refusal::Refusal;

/// Its name in evidence, errors and metrics.
pub const ID: &str = "records-expand";
const TIMEOUT: Duration = Duration::from_secs(2);
const MOST_BYTES: usize = 1 << 20;

/// What is asked about.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) stream: String,
    pub(super) connection_id: Option<String>,
}

/// What came of a look at the schema.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    /// For the evidence.
    pub(super) note: Value,
    /// Why the call is not made, if it is not.
    pub(super) refusal: Option<Refusal>,
}

#[derive(Debug)]
pub(super) struct ExpandGate {
    gate: Gate,
    indecision: Indecision,
    meter: Arc<Meter>,
}

impl ExpandGate {
    pub(super) fn new(strict: bool, meter: Arc<Meter>) -> Self {
        let matching = strict
            .then(|| Matching { name: "name".into(), having: vec![("usable".into(), Value::Bool(true))] });
        let rows =
            ["/connectors/*/streams/*", "/streams/*", "/data/connectors/*/streams/*", "/data/streams/*"];
        let gate = Gate {
            id: ID.into(),
            args: vec!["/expand".into(), "/expand_limit".into()],
            rows: rows.map(Into::into).into(),
            key: ["name", "stream", "stream_name"].map(Into::into).into(),
            require: "/expand_capabilities".into(),
            matching,
            all: false,
            absent_passes: false,
        };
        Self { gate, indecision: Indecision::default(), meter }
    }

    /// One live look at the schema, and what it says. Only a plain "no" refuses.
    pub(super) async fn judge(
        &self,
        http: &Http,
        token: &Token,
        subject: &Subject,
        arguments: &Value,
    ) -> Judged {
        let values = self.gate.triggered(arguments).unwrap_or_default();
        let mut request = Request::get(&["v1", "schema"]);
        request.query.push(("view".into(), "compact".into()));
        request.query.push(("stream".into(), subject.stream.clone()));
        if let Some(connection) = &subject.connection_id {
            request.query.push(("connection_id".into(), connection.clone()));
        }
        let begun = Instant::now();
        let (verdict, reason, sha256) = match http.within(&request, token, TIMEOUT, MOST_BYTES).await {
            Ok(answer) if (200..300).contains(&answer.status) => {
                let sha256 = Sha256Digest::of(answer.body.to_string().as_bytes());
                (self.gate.judge(&answer.body, &subject.stream, &values), String::new(), Some(sha256))
            }
            Ok(answer) => (Verdict::SourceError, format!("http_{}", answer.status), None),
            Err(refusal) => (Verdict::SourceError, refusal.code.to_owned(), None),
        };
        let elapsed = begun.elapsed();
        self.meter.count(verdict, &reason, elapsed);
        let spent = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let note = json!({"gate": {
            "id": ID, "verdict": verdict.as_str(), "reason": reason, "source": format!("GET {}", request.target()),
            "source_ms": spent, "source_sha256": sha256,
        }});
        let refusal = (verdict == Verdict::Deny).then(|| {
            let stream: String = subject.stream.chars().take(64).collect();
            let message = format!(
                "Stream '{stream}' advertises no expand_capabilities (requested: {}). See GET /v1/schema (expand_capabilities); call schema with this stream.",
                values.join(", ").chars().take(64).collect::<String>()
            );
            Refusal::argument("invalid_expand", "expand", message)
                .with("gate", ID)
                .with("verdict", "deny")
                .with("source", format!("GET {}", request.target()))
        });
        Judged { verdict, note, refusal }
    }

    /// How often it could not decide.
    pub(super) fn indecision(&self) -> &Indecision {
        &self.indecision
    }
}
