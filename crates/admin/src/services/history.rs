//! What happened, read from the log: the log is the truth, so nothing is counted twice and nothing is kept beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_audit::{EventName, Record, read};
use portcullis_core::Timestamp;
use portcullis_gateway::Control;
use portcullis_gateway::control::SessionRow;
use portcullis_gateway::orders::Subject;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::CheckpointRecord;
use super::clients::{QuotaRecord, UsageRecord};
use crate::error::AdminError;

/// A moment, and the first after a stretch of time.
pub type Bounds = (Timestamp, Timestamp);

/// What somebody did or what happened to a call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ActivityRecord {
    /// When.
    pub at: String,
    /// `call`, `refusal`, `approval`, `server`, `policy`, `trust`, `operator` or `session`.
    pub kind: String,
    /// Which client, where one is concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Which tool, where one is concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The record of the log that says so.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its event.
    pub event: String,
}

/// A session of a client.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionRecord {
    /// Its id.
    pub session_id: String,
    /// Whose.
    pub client_id: String,
    /// `active`, `suspended`, `ended` or `expired`.
    pub state: String,
    /// What the client calls itself.
    pub client: String,
    /// Since when.
    pub started_at: String,
    /// Calls that left.
    pub calls: u64,
    /// Calls that were refused.
    pub refusals: u64,
    /// `live`, or `replay` where calls are answered from a cassette (AUD-70).
    pub mode: String,
    /// More of one that is still there.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub live: Option<StillThere>,
}

/// What is known of a session that is not over.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct StillThere {
    /// When it was last used.
    pub used_at: String,
    /// How many steps it took.
    pub steps: u64,
    /// Raised when a checkpoint opens, and when it resolves.
    pub checkpoint_epoch: u64,
    /// What stops it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointRecord>,
}

/// One call, from the log.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallRecord {
    /// When it left.
    pub at: String,
    /// What was called.
    pub tool: String,
    /// By whom.
    pub client_id: String,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Its permit.
    pub permit_id: String,
    /// `result`, `error` and so on; `open` while it is under way.
    pub outcome: String,
    /// How many bytes came back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long it took, from when it came in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_us: Option<u64>,
}

/// A permit.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PermitRecord {
    /// Its id.
    pub permit_id: String,
    /// What it is for.
    pub tool: String,
    /// Whose it is.
    pub client_id: String,
    /// `issued`, `consumed`, `settled`, `revoked`, `expired` or `invalidated`.
    pub state: String,
    /// Until when.
    pub expires_at: String,
    /// The approval it was issued under.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
}

/// What became of calls.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub struct CallCounts {
    /// How many left.
    pub calls: u64,
    /// How many came back with an error or not at all.
    pub errors: u64,
    /// How many were refused before they left.
    pub refusals: u64,
    /// Microseconds from coming in to the result, half of them less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    /// Nineteen of twenty less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_us: Option<u64>,
    /// Ninety-nine of a hundred less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    /// Bytes that came back.
    pub bytes: u64,
}

/// What became of the calls of one tool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ToolCounts {
    /// Which tool.
    pub tool: String,
    /// What became of its calls.
    #[serde(flatten)]
    pub counts: CallCounts,
}

/// How often calls were refused or failed, and for what.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ErrorCounts {
    /// The code.
    pub code: String,
    /// How often.
    pub count: u64,
    /// A few messages, cleaned.
    pub samples: Vec<String>,
}

/// The log as history.
#[derive(Debug, Clone)]
pub struct HistoryService {
    pub(super) control: Arc<Control>,
}

/// The modes of a session (AUD-70).
const LIVE: &str = "live";
const REPLAY: &str = "replay";

impl StillThere {
    fn of(row: &SessionRow) -> Self {
        Self {
            used_at: row.used_at.clone(),
            steps: row.steps,
            checkpoint_epoch: row.checkpoint_epoch,
            checkpoint: row
                .checkpoint
                .as_ref()
                .map(|found| CheckpointRecord::of(found, row.checkpoint_epoch)),
        }
    }
}

impl HistoryService {
    pub(crate) fn new(control: Arc<Control>) -> Self {
        Self { control }
    }

    /// Reads the whole log where nothing else waits for the thread.
    pub(crate) async fn scan<T: Send + 'static>(
        &self,
        mut state: T,
        mut take: impl FnMut(&mut T, Record) + Send + 'static,
    ) -> Result<T, AdminError> {
        let dir = self.control.log().dir().to_owned();
        let scanned = tokio::task::spawn_blocking(move || -> Result<T, AdminError> {
            for record in read(&dir)? {
                take(&mut state, record?);
            }
            Ok(state)
        });
        scanned.await.map_err(|error| AdminError::failure(error.to_string()))?
    }

    /// What happened, newest first.
    pub async fn activities(&self, since: Timestamp) -> Result<Vec<ActivityRecord>, AdminError> {
        let mut rows = self
            .scan(Vec::new(), move |rows: &mut Vec<ActivityRecord>, record| {
                if record.time >= since
                    && let Some(kind) = kind_of(record.event)
                {
                    rows.push(ActivityRecord {
                        at: record.time.to_string(),
                        kind: kind.to_owned(),
                        client_id: client_of(&record),
                        tool: record.tool_id.as_ref().map(ToString::to_string),
                        reference: record.id.to_string(),
                        event: record.event.to_string(),
                    });
                }
            })
            .await?;
        rows.reverse();
        Ok(rows)
    }

    /// Every session there was, by id.
    pub async fn sessions(&self) -> Result<Vec<SessionRecord>, AdminError> {
        let mut found = self
            .scan(BTreeMap::new(), |found: &mut BTreeMap<String, SessionRecord>, record| {
                let Some(session) = record.session else {
                    // A stop ends what was open; so does whatever came before a start.
                    if matches!(record.event, EventName::SystemStopped | EventName::SystemStarted) {
                        found
                            .values_mut()
                            .filter(|row| row.state == "active")
                            .for_each(|row| row.state = "ended".into());
                    }
                    return;
                };
                let id = session.to_string();
                if record.event == EventName::SessionOpened {
                    let row = SessionRecord {
                        session_id: id.clone(),
                        client_id: client_of(&record).unwrap_or_default(),
                        state: "active".into(),
                        client: text(&record.data["client"]),
                        started_at: record.time.to_string(),
                        calls: 0,
                        refusals: 0,
                        mode: LIVE.into(),
                        live: None,
                    };
                    found.insert(id, row);
                    return;
                }
                let Some(row) = found.get_mut(&id) else { return };
                match record.event {
                    EventName::SessionEnded => row.state = "ended".into(),
                    EventName::SessionExpired => row.state = "expired".into(),
                    EventName::ExecutionIntent => row.calls += 1,
                    EventName::ProposalRefused | EventName::ExecutionDenied => row.refusals += 1,
                    EventName::ReplayHit | EventName::ReplayMiss => row.mode = REPLAY.into(),
                    _ => {}
                }
            })
            .await?;
        // Those that are there are known better than the log can tell: a stopped one waits, even over a restart.
        let mode = if self.control.replays() { REPLAY } else { LIVE };
        for live in self.control.sessions() {
            let id = live.session_id.to_string();
            let row = found.entry(id.clone()).or_insert_with(|| SessionRecord {
                session_id: id,
                client_id: live.principal.clone(),
                state: String::new(),
                client: live.client.clone(),
                started_at: live.opened_at.clone(),
                calls: 0,
                refusals: 0,
                mode: String::new(),
                live: None,
            });
            row.state = live.state.as_str().to_owned();
            row.mode = mode.to_owned();
            row.live = Some(StillThere::of(&live));
        }
        Ok(found.into_values().collect())
    }

    /// When a client was last heard of.
    pub async fn last_seen(&self, client: String) -> Result<Option<String>, AdminError> {
        self.scan(None, move |seen: &mut Option<String>, record| {
            if client_of(&record).as_ref() == Some(&client) {
                *seen = Some(record.time.to_string());
            }
        })
        .await
    }

    /// Every quota that was ever set, in the order in which that happened.
    pub async fn quotas(&self) -> Result<Vec<QuotaRecord>, AdminError> {
        self.scan(Vec::new(), |rows: &mut Vec<QuotaRecord>, record| {
            let data = &record.data;
            if record.event == EventName::AdminStateChanged && data["kind"] == "quota" {
                let document = &data["document"];
                if document.is_object() {
                    rows.push(QuotaRecord {
                        subject: text(&document["subject"]),
                        metric: text(&document["metric"]),
                        limit: document["limit"].as_u64().unwrap_or_default(),
                        window: text(&document["window"]),
                        action: text(&document["action"]),
                        version: data["version"].as_u64().unwrap_or_default(),
                    });
                }
            }
        })
        .await
    }

    /// What was used of the quotas of a subject in a stretch of time.
    pub async fn used(
        &self,
        subject: &Subject,
        bounds: Bounds,
        mut rows: Vec<UsageRecord>,
    ) -> Result<Vec<UsageRecord>, AdminError> {
        let orders = self.control.orders();
        let (mut calls, mut bytes) = (0, 0);
        for call in self.calls(bounds).await? {
            let (client, tool) = (call.client_id.trim_start_matches("agent:"), short(&call.tool));
            let server = tool.split_once('/').map_or("", |(server, _)| server);
            let team = portcullis_core::Principal::agent(client).ok();
            let team = team.as_ref().and_then(|principal| orders.team(principal));
            let concerned = match subject {
                Subject::Global => true,
                Subject::Client(id) => id == client,
                Subject::Team(id) => team == Some(id.as_str()),
                Subject::Server(id) => id == server,
                Subject::Tool(id) => *id == tool,
            };
            if concerned {
                calls += 1;
                bytes += call.bytes.unwrap_or(0);
            }
        }
        for row in &mut rows {
            row.used = match row.metric.as_str() {
                "calls" => calls,
                "bytes_out" => bytes,
                "tokens_out" => bytes / 3,
                "cost_micros" => bytes / 3 * self.control.token_price() / 1000,
                _ => row.used,
            };
        }
        Ok(rows)
    }

    /// The calls that left, newest first.
    pub async fn calls(&self, bounds: Bounds) -> Result<Vec<CallRecord>, AdminError> {
        let (since, until) = bounds;
        let (calls, _) = self
            .scan(
                (Vec::new(), BTreeMap::new()),
                move |(calls, open): &mut (Vec<CallRecord>, BTreeMap<String, usize>), record| {
                    let permit = text(&record.data["permit_id"]);
                    match record.event {
                        EventName::ExecutionIntent if record.time >= since && record.time < until => {
                            open.insert(permit.clone(), calls.len());
                            calls.push(CallRecord {
                                at: record.time.to_string(),
                                tool: record.tool_id.as_ref().map(ToString::to_string).unwrap_or_default(),
                                client_id: client_of(&record).unwrap_or_default(),
                                session_id: record.session.map(|session| session.to_string()),
                                permit_id: permit,
                                outcome: "open".into(),
                                bytes: None,
                                elapsed_us: None,
                            });
                        }
                        EventName::ExecutionResult
                        | EventName::ExecutionIndeterminate
                        | EventName::ExecutionCancelled => {
                            let Some(call) = open.remove(&permit).and_then(|at| calls.get_mut(at)) else {
                                return;
                            };
                            call.outcome = match record.event {
                                EventName::ExecutionIndeterminate => "indeterminate".into(),
                                EventName::ExecutionCancelled => "cancelled".into(),
                                _ => text(&record.data["outcome"]),
                            };
                            call.bytes = record.data["bytes"].as_u64();
                            call.elapsed_us = record.data["elapsed_us"].as_u64();
                        }
                        _ => {}
                    }
                },
            )
            .await?;
        Ok(calls.into_iter().rev().collect())
    }

    /// Every permit there was, by id.
    pub async fn permits(&self) -> Result<Vec<PermitRecord>, AdminError> {
        let found = self
            .scan(BTreeMap::new(), |found: &mut BTreeMap<String, PermitRecord>, record| {
                let id = text(&record.data["permit_id"]);
                if record.event == EventName::PermitIssued {
                    let row = PermitRecord {
                        permit_id: id.clone(),
                        tool: record.tool_id.as_ref().map(ToString::to_string).unwrap_or_default(),
                        client_id: text(&record.data["lineage"]["principal"]),
                        state: "issued".into(),
                        expires_at: text(&record.data["exp"]),
                        approval_id: record.data["approval_id"].as_str().map(str::to_owned),
                    };
                    found.insert(id, row);
                    return;
                }
                let state = match record.event {
                    EventName::ExecutionIntent => "consumed",
                    EventName::ExecutionResult
                    | EventName::ExecutionIndeterminate
                    | EventName::ExecutionCancelled => "settled",
                    EventName::PermitExpired => "expired",
                    EventName::PermitRevoked => "revoked",
                    EventName::PermitInvalidated | EventName::ExecutionDenied => "invalidated",
                    _ => return,
                };
                if let Some(row) = found.get_mut(&id) {
                    row.state = state.into();
                }
            })
            .await?;
        let now = self.control.log().last_time().to_string();
        let mut rows: Vec<PermitRecord> = found.into_values().collect();
        // Both are written the same way, so that they compare as they are.
        rows.iter_mut().filter(|row| row.state == "issued" && row.expires_at < now).for_each(|row| {
            row.state = "expired".into();
        });
        Ok(rows)
    }

    /// What became of calls in a stretch of time: of each tool, by name.
    pub async fn by_tool(&self, bounds: Bounds) -> Result<Vec<ToolCounts>, AdminError> {
        let mut tools: BTreeMap<String, (CallCounts, Vec<u64>)> = BTreeMap::new();
        for call in self.calls(bounds).await? {
            let (counts, took) = tools.entry(short(&call.tool)).or_default();
            count(counts, took, &call);
        }
        for (tool, refusals) in self.refusals(bounds).await? {
            tools.entry(tool).or_default().0.refusals += refusals;
        }
        let row = |(tool, (counts, took)): (String, (CallCounts, Vec<u64>))| ToolCounts {
            tool,
            counts: percentiles(counts, took),
        };
        Ok(tools.into_iter().map(row).collect())
    }

    /// What became of calls in a stretch of time, together.
    pub async fn overall(&self, bounds: Bounds) -> Result<CallCounts, AdminError> {
        let (mut counts, mut took) = (CallCounts::default(), Vec::new());
        for call in self.calls(bounds).await? {
            count(&mut counts, &mut took, &call);
        }
        counts.refusals = self.refusals(bounds).await?.values().sum();
        Ok(percentiles(counts, took))
    }

    /// For what calls were refused or failed.
    pub async fn errors(&self, (since, until): Bounds) -> Result<Vec<ErrorCounts>, AdminError> {
        const SAMPLES: usize = 3;
        let found = self
            .scan(BTreeMap::new(), move |found: &mut BTreeMap<String, ErrorCounts>, record| {
                if record.time < since || record.time >= until {
                    return;
                }
                let code = match record.event {
                    EventName::ProposalRefused => text(&record.data["error"]),
                    EventName::ExecutionDenied => format!("denied:{}", text(&record.data["check"])),
                    EventName::ExecutionResult if record.data["outcome"] != "result" => {
                        format!("outcome:{}", text(&record.data["outcome"]))
                    }
                    EventName::ExecutionIndeterminate => "indeterminate".to_owned(),
                    _ => return,
                };
                let entry = found.entry(code.clone()).or_insert_with(|| ErrorCounts {
                    code,
                    count: 0,
                    samples: Vec::new(),
                });
                entry.count += 1;
                if let Some(message) = record.data["message"].as_str()
                    && entry.samples.len() < SAMPLES
                {
                    let clean = portcullis_core::error::one_line(&portcullis_core::scrub::scrub(message));
                    entry.samples.push(clean);
                }
            })
            .await?;
        Ok(found.into_values().collect())
    }

    async fn refusals(&self, (since, until): Bounds) -> Result<BTreeMap<String, u64>, AdminError> {
        self.scan(BTreeMap::new(), move |found: &mut BTreeMap<String, u64>, record| {
            let refused = matches!(record.event, EventName::ProposalRefused | EventName::ExecutionDenied);
            if refused && record.time >= since && record.time < until {
                let tool = record.tool_id.as_ref().map(|tool| tool.short().to_owned()).unwrap_or_default();
                *found.entry(tool).or_default() += 1;
            }
        })
        .await
    }
}

fn count(counts: &mut CallCounts, took: &mut Vec<u64>, call: &CallRecord) {
    counts.calls += 1;
    counts.errors += u64::from(!matches!(call.outcome.as_str(), "result" | "open"));
    counts.bytes += call.bytes.unwrap_or(0);
    took.extend(call.elapsed_us);
}

fn percentiles(mut counts: CallCounts, mut took: Vec<u64>) -> CallCounts {
    took.sort_unstable();
    let at =
        |percent: usize| took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied();
    (counts.p50_us, counts.p95_us, counts.p99_us) = (at(50), at(95), at(99));
    counts
}

/// `<server>/<tool>` of a canonical identity.
pub(crate) fn short(identity: &str) -> String {
    identity.split('@').next().unwrap_or_default().to_owned()
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn client_of(record: &Record) -> Option<String> {
    let agent = record.actor.kind() == portcullis_core::principal::ActorKind::Agent;
    agent.then(|| format!("agent:{}", record.actor.id()))
}

fn kind_of(event: EventName) -> Option<&'static str> {
    let (domain, _) = event.as_str().split_once('.')?;
    Some(match (domain, event) {
        (_, EventName::ExecutionIntent) => "call",
        (_, EventName::ProposalRefused | EventName::ExecutionDenied) => "refusal",
        (_, EventName::ApprovalRequested | EventName::ApprovalRecorded | EventName::ApprovalRevoked) => {
            "approval"
        }
        (_, EventName::ServerRegistered | EventName::ServerHalted | EventName::ServerResumed) => "server",
        (_, EventName::ServerRemoved | EventName::ServerVersionChanged) => "server",
        (_, EventName::PolicyActivated) => "policy",
        ("trust", _) => "trust",
        ("operator", _) | (_, EventName::AdminOpExecuted) => "operator",
        ("session", _) => "session",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_there_is() {
        assert_eq!(percentiles(CallCounts::default(), Vec::new()).p50_us, None);
        let counts = percentiles(CallCounts::default(), (1..=100).rev().collect());
        assert_eq!((counts.p50_us, counts.p95_us, counts.p99_us), (Some(51), Some(96), Some(100)));
        assert_eq!(percentiles(CallCounts::default(), vec![7]).p99_us, Some(7));
    }
}
