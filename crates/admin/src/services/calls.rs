//! What calls came to, by call and by hour.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::Timestamp;
use portcullis_gateway::Control;
use portcullis_gateway::control::{CallFilter, CallRow, Outcome, Piece};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::history::HistoryService;
use crate::args::{Page, Paged};
use crate::error::AdminError;
use crate::grant::Op;

/// A call, in a line.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallSummary {
    /// When.
    pub at: String,
    /// What came of it.
    pub kind: String,
    /// Which agent.
    pub client_id: String,
    /// Which tool.
    pub tool: String,
    /// Its id.
    pub call_id: String,
    /// The approval it asked for or used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    /// How long it took altogether, where it was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_us: Option<u64>,
    /// How large the answer was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// One call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallDetail {
    /// What was asked for.
    pub call_id: String,
    /// Its whole story, as the log tells it.
    pub call: Value,
}

/// The exact bytes of a call, opened.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallEvidence {
    /// Which call.
    pub call_id: String,
    /// What was sent: `present`, `destroyed` or `missing`, and its text.
    pub request: Value,
    /// What came back, as it came.
    pub response: Value,
    /// What a model is shown of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// Why nothing is shown, if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// A stretch of time.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct CallsBucket {
    /// When it begins.
    pub at: String,
    /// Calls that came in.
    pub calls: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Those that went wrong.
    pub errors: u64,
    /// Those that were refused, denied or stopped.
    pub refusals: u64,
}

/// Calls over time.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallsOverview {
    /// All.
    pub calls: u64,
    /// Those that went wrong.
    pub errors: u64,
    /// Those that were refused, denied or stopped.
    pub refusals: u64,
    /// Half of the answered calls that asked nobody took no longer, in microseconds.
    pub p50_us: Option<u64>,
    /// 95 of 100 did.
    pub p95_us: Option<u64>,
    /// Where the time of calls goes, up to when they are sent: half of them took no longer.
    pub steps: Vec<StepTime>,
    /// By time.
    pub buckets: Vec<CallsBucket>,
}

/// How long a step of calls took.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StepTime {
    /// The event that ends it.
    pub step: String,
    /// Half of them took no longer, in microseconds.
    pub p50_us: u64,
}

/// Past calls.
#[derive(Debug, Clone)]
pub struct CallService {
    control: Arc<Control>,
}

impl CallService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Calls, the newest first.
    pub async fn list(&self, filter: CallFilter, page: Page) -> Result<Paged<CallSummary>, AdminError> {
        let (rows, total) = self.control.calls(filter, page.offset, page.limit).await?;
        Ok(Paged { items: rows.iter().map(record).collect(), total })
    }

    /// One of them, by its id or by one of its records.
    pub async fn get(&self, id: &str) -> Result<CallDetail, AdminError> {
        let story = self.control.story(id).await?;
        let call = serde_json::to_value(&story).map_err(|error| AdminError::failure(error.to_string()))?;
        Ok(CallDetail { call_id: id.to_owned(), call })
    }

    /// Opens what a call sent and got; that it was read is on record first.
    pub async fn open(&self, op: &Op, id: &str) -> Result<CallEvidence, AdminError> {
        let opened = self.control.open_call(op.operator(), id, op.reason()).await?;
        let piece = |piece: &Option<Piece>| serde_json::to_value(piece).unwrap_or_default();
        Ok(CallEvidence {
            call_id: id.to_owned(),
            request: piece(&opened.request),
            response: piece(&opened.response),
            shown: opened.shown,
            withheld: opened.withheld,
        })
    }

    /// Calls between two moments, counted by stretches of `step` milliseconds.
    pub async fn overview(
        &self,
        since: Timestamp,
        until: Timestamp,
        step: u64,
    ) -> Result<CallsOverview, AdminError> {
        let filter = CallFilter { since: Some(since), ..CallFilter::default() };
        let (rows, _) = self.control.calls(filter, 0, usize::MAX).await?;
        let steps = HistoryService::new(self.control.clone()).step_times((since, until)).await?;
        Ok(CallsOverview { steps, ..count(&rows, since, until, step) })
    }
}

fn record(row: &CallRow) -> CallSummary {
    CallSummary {
        at: row.at.to_string(),
        kind: row.outcome.as_str().to_owned(),
        client_id: row.agent.clone(),
        tool: row.tool.clone(),
        call_id: row.proposal.to_string(),
        approval_id: row.approval.clone(),
        elapsed_us: row.elapsed_us,
        bytes: row.bytes,
    }
}

fn count(rows: &[CallRow], since: Timestamp, until: Timestamp, step: u64) -> CallsOverview {
    let begins = |at: Timestamp| at.as_millis() / step * step;
    let mut buckets: BTreeMap<u64, CallsBucket> = BTreeMap::new();
    let mut begin = begins(since);
    while begin < until.as_millis() {
        let at = Timestamp::from_millis(begin).to_string();
        buckets.insert(begin, CallsBucket { at, ..CallsBucket::default() });
        begin += step;
    }
    let mut times: Vec<u64> = Vec::new();
    for row in rows.iter().filter(|row| row.at < until) {
        let Some(bucket) = buckets.get_mut(&begins(row.at)) else { continue };
        bucket.calls += 1;
        match row.outcome {
            Outcome::Answered => {
                bucket.answered += 1;
                // Waiting for a person says nothing about the gateway.
                times.extend(row.elapsed_us.filter(|_| row.approval.is_none()));
            }
            Outcome::Failed | Outcome::TimedOut | Outcome::Unknown | Outcome::Withheld => bucket.errors += 1,
            Outcome::Refused | Outcome::Denied | Outcome::Stopped => bucket.refusals += 1,
            Outcome::Running | Outcome::Asked | Outcome::Cancelled => {}
        }
    }
    times.sort_unstable();
    let share =
        |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1))).copied();
    let sum = |of: fn(&CallsBucket) -> u64| buckets.values().map(of).sum();
    CallsOverview {
        calls: sum(|bucket| bucket.calls),
        errors: sum(|bucket| bucket.errors),
        refusals: sum(|bucket| bucket.refusals),
        p50_us: share(50),
        p95_us: share(95),
        steps: Vec::new(),
        buckets: buckets.into_values().collect(),
    }
}
