//! What calls came to: an index of the log, made when somebody looks.
//!
//! No call pays for it. Whoever asks first reads the log; later questions read what has come since. The newest calls are
//! kept, up to [`MOST`]; all of them are in the log.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_audit::{AuditError, EventName, Record, read_from};
use portcullis_core::{ErrorCode, ProposalId, SessionId, Timestamp};
use serde::Serialize;

use super::{Control, ControlError};
use crate::story::Story;

/// Calls kept.
const MOST: usize = if cfg!(test) { 500 } else { 50_000 };

/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is under way, or the gateway died meanwhile.
    Running,
    /// An operator was asked.
    Asked,
    /// The server answered.
    Answered,
    /// The server answered that it went wrong.
    Failed,
    /// It was not acceptable, or there is no such tool.
    Refused,
    /// By policy, or by an operator.
    Denied,
    /// The permit did not hold when it was to be used.
    Stopped,
    /// No answer in time.
    TimedOut,
    /// The agent gave up.
    Cancelled,
    /// Bytes may have left, and no answer was recorded.
    Unknown,
    /// The answer was kept from the agent.
    Withheld,
}

impl Outcome {
    /// All, as they are offered to choose from.
    pub const ALL: [Outcome; 11] = [
        Outcome::Answered,
        Outcome::Asked,
        Outcome::Denied,
        Outcome::Refused,
        Outcome::Failed,
        Outcome::Withheld,
        Outcome::Stopped,
        Outcome::TimedOut,
        Outcome::Cancelled,
        Outcome::Unknown,
        Outcome::Running,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Running => "running",
            Outcome::Asked => "asked",
            Outcome::Answered => "answered",
            Outcome::Failed => "failed",
            Outcome::Refused => "refused",
            Outcome::Denied => "denied",
            Outcome::Stopped => "stopped",
            Outcome::TimedOut => "timed-out",
            Outcome::Cancelled => "cancelled",
            Outcome::Unknown => "unknown",
            Outcome::Withheld => "withheld",
        }
    }
}

/// One call, in a line.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct CallRow {
    pub proposal: ProposalId,
    pub at: Timestamp,
    pub agent: String,
    pub session: Option<SessionId>,
    /// The canonical identity, or the name asked for where there is none such.
    pub tool: String,
    pub outcome: Outcome,
    pub approval: Option<String>,
    pub elapsed_us: Option<u64>,
    pub bytes: Option<u64>,
    /// Its first record and its last.
    pub records: (u64, u64),
}

/// Which calls.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct CallFilter {
    pub outcome: Option<Outcome>,
    pub agent: Option<String>,
    /// `<server>/<tool>`, a whole identity, or a server.
    pub tool: Option<String>,
    pub since: Option<Timestamp>,
}

impl CallFilter {
    fn admits(&self, row: &CallRow) -> bool {
        let tool = |wanted: &String| {
            let short = row.tool.split_once('@').map_or(row.tool.as_str(), |(short, _)| short);
            row.tool == *wanted || short == wanted || short.split('/').next() == Some(wanted)
        };
        self.outcome.is_none_or(|outcome| row.outcome == outcome)
            && self.agent.as_ref().is_none_or(|agent| row.agent == *agent)
            && self.tool.as_ref().is_none_or(tool)
            && self.since.is_none_or(|since| row.at >= since)
    }
}

/// The index.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The first record that has not been looked at.
    next: u64,
    calls: VecDeque<CallRow>,
    /// How many have been dropped in front of the first.
    dropped: usize,
    places: HashMap<ProposalId, usize>,
    /// Where approvals were decided.
    decisions: HashMap<String, u64>,
}

impl History {
    fn catch_up(&mut self, dir: &Path) -> Result<(), AuditError> {
        for record in read_from(dir, self.next)? {
            let record = record?;
            self.next = record.seq + 1;
            self.take(&record);
        }
        Ok(())
    }

    fn take(&mut self, record: &Record) {
        let Some(proposal) = record.proposal else { return };
        if record.event == EventName::ProposalReceived {
            self.begin(proposal, record);
            return;
        }
        if record.event == EventName::ApprovalRecorded
            && let Some(id) = record.data["approval_id"].as_str()
        {
            self.decisions.insert(id.to_owned(), record.seq);
        }
        let place = self.places.get(&proposal).and_then(|place| place.checked_sub(self.dropped));
        let Some(row) = place.and_then(|place| self.calls.get_mut(place)) else { return };
        row.records.1 = record.seq;
        row.take(record);
    }

    fn begin(&mut self, proposal: ProposalId, record: &Record) {
        if self.calls.len() == MOST
            && let Some(gone) = self.calls.pop_front()
        {
            self.places.remove(&gone.proposal);
            self.dropped += 1;
        }
        self.places.insert(proposal, self.dropped + self.calls.len());
        let named = || record.data["name"].as_str().unwrap_or_default().to_owned();
        self.calls.push_back(CallRow {
            proposal,
            at: record.time,
            agent: record.actor.to_string(),
            session: record.session,
            tool: record.tool_id.as_ref().map_or_else(named, ToString::to_string),
            outcome: Outcome::Running,
            approval: None,
            elapsed_us: None,
            bytes: None,
            records: (record.seq, record.seq),
        });
    }
}

impl CallRow {
    fn take(&mut self, record: &Record) {
        use EventName as E;
        let data = &record.data;
        self.outcome = match record.event {
            E::ProposalRefused | E::McpUngovernedToolSurface => Outcome::Refused,
            E::PolicyEvaluated if data["decision"] == "deny" => Outcome::Denied,
            E::ApprovalDetermined => {
                self.approval = data["approval_id"].as_str().map(ToOwned::to_owned).or(self.approval.take());
                match data["outcome"].as_str() {
                    Some("required") => Outcome::Asked,
                    Some("suppressed") => Outcome::Denied,
                    _ => Outcome::Running,
                }
            }
            E::ApprovalRecorded if data["decision"] == "denied" => Outcome::Denied,
            E::ExecutionIntent => Outcome::Running,
            E::ExecutionDenied | E::PermitInvalidated => Outcome::Stopped,
            E::ExecutionResult => {
                self.elapsed_us = data["elapsed_us"].as_u64();
                self.bytes = data["bytes"].as_u64();
                match data["outcome"].as_str() {
                    Some("result" | "passed_on") => Outcome::Answered,
                    _ => Outcome::Failed,
                }
            }
            E::ResultCacheHit => Outcome::Answered,
            E::McpToolTimeout => Outcome::TimedOut,
            E::ExecutionCancelled => Outcome::Cancelled,
            E::ExecutionIndeterminate => Outcome::Unknown,
            E::ExecutionWithheld | E::McpDeclarationMismatch => Outcome::Withheld,
            _ => return,
        };
    }
}

impl Control {
    /// Calls, the newest first: some of those that the filter admits, and how many those are.
    pub async fn calls(
        &self,
        filter: CallFilter,
        offset: usize,
        limit: usize,
    ) -> Result<(Vec<CallRow>, u64), ControlError> {
        self.looking(move |history, _| {
            let admitted = || history.calls.iter().rev().filter(|row| filter.admits(row));
            let total = admitted().count() as u64;
            Ok((admitted().skip(offset).take(limit).cloned().collect(), total))
        })
        .await
    }

    /// The whole story of one call: of a proposal, or of the call that a record belongs to.
    pub async fn story(&self, wanted: &str) -> Result<Story, ControlError> {
        let wanted = wanted.to_owned();
        self.looking(move |history, dir| {
            let missing = || ControlError::new(ErrorCode::NotFound, "there is no such call among the newest");
            let proposal = match (wanted.parse::<u64>(), wanted.parse::<ProposalId>()) {
                (Ok(seq), _) if seq < history.next => {
                    let record = read_from(dir, seq).map_err(unreadable)?.next();
                    record.transpose().map_err(unreadable)?.and_then(|record| record.proposal)
                }
                (_, Ok(proposal)) => Some(proposal),
                _ => None,
            };
            let place = proposal.and_then(|id| history.places.get(&id)).map(|place| place - history.dropped);
            let row = place.and_then(|place| history.calls.get(place)).ok_or_else(missing)?;
            let (first, last) = row.records;
            let mut records = Vec::new();
            for record in read_from(dir, first).map_err(unreadable)? {
                let record = record.map_err(unreadable)?;
                let seq = record.seq;
                if record.proposal == Some(row.proposal) {
                    records.push(record);
                }
                if seq >= last {
                    break;
                }
            }
            // The decision may have been about an earlier, equal call.
            let decided = row.approval.as_ref().and_then(|id| history.decisions.get(id)).copied();
            if let Some(seq) = decided.filter(|seq| records.iter().all(|record| record.seq != *seq)) {
                let record = read_from(dir, seq).map_err(unreadable)?.next();
                records.extend(record.transpose().map_err(unreadable)?);
            }
            Ok(Story::of(&records, row.proposal))
        })
        .await
    }

    /// Looks at the index, brought up to date. Reading takes as long as it takes, so not on an async thread.
    async fn looking<T: Send + 'static>(
        &self,
        look: impl FnOnce(&History, &Path) -> Result<T, ControlError> + Send + 'static,
    ) -> Result<T, ControlError> {
        let (history, dir) = (self.history.clone(), self.log.dir().to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
            history.catch_up(&dir).map_err(unreadable)?;
            look(&history, &dir)
        });
        looked.await.map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?
    }
}

pub(crate) type Shared = Arc<Mutex<History>>;

fn unreadable(error: AuditError) -> ControlError {
    ControlError::new(ErrorCode::Internal, format!("the log cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn record(seq: u64, event: &str, proposal: ProposalId, data: &Value) -> Record {
        let digest = "0".repeat(64);
        let record = json!({
            "actor": {"id": "local", "kind": "agent"}, "canon": null, "data": data, "epoch": null, "event": event,
            "evidence": [], "id": ProposalId::new(Timestamp::from_millis(seq)).to_string(),
            "log": ProposalId::new(Timestamp::from_millis(1)).to_string(), "policy": null, "prev": digest,
            "proposal": proposal, "refs": [], "seq": seq, "session": null, "step": null,
            "time": Timestamp::from_millis(1_800_000_000_000 + seq), "tool_id": null, "trust": null, "v": 1,
        });
        serde_json::from_value(record).unwrap()
    }

    fn id(number: u64) -> ProposalId {
        ProposalId::new(Timestamp::from_millis(1_800_000_000_000 + number))
    }

    #[test]
    fn a_call_comes_to_what_its_last_word_says() {
        let came_to = |events: &[(&str, Value)]| {
            let mut history = History::default();
            let call = id(1);
            history.take(&record(0, "proposal.received", call, &json!({"name": "x"})));
            for (seq, (event, data)) in (1..).zip(events) {
                history.take(&record(seq, event, call, data));
            }
            history.calls[0].outcome
        };
        let (asked, met) = (json!({"outcome": "required", "approval_id": "a"}), json!({"outcome": "met"}));
        assert_eq!(came_to(&[]), Outcome::Running);
        assert_eq!(came_to(&[("proposal.refused", json!({}))]), Outcome::Refused);
        assert_eq!(came_to(&[("policy.evaluated", json!({"decision": "deny"}))]), Outcome::Denied);
        let mut events =
            vec![("policy.evaluated", json!({"decision": "approval"})), ("approval.determined", asked)];
        assert_eq!(came_to(&events), Outcome::Asked);
        let denied = ("approval.recorded", json!({"approval_id": "a", "decision": "denied"}));
        assert_eq!(came_to(&[&events[..], &[denied]].concat()), Outcome::Denied);
        events.extend([("approval.determined", met), ("execution.intent", json!({}))]);
        assert_eq!(came_to(&events), Outcome::Running);
        assert_eq!(came_to(&[&events[..], &[("execution.denied", json!({}))]].concat()), Outcome::Stopped);
        events.push(("execution.result", json!({"outcome": "result", "elapsed_us": 5})));
        assert_eq!(came_to(&events), Outcome::Answered);
        assert_eq!(came_to(&[&events[..], &[("execution.withheld", json!({}))]].concat()), Outcome::Withheld);
        events.push(("execution.sanitised", json!({})));
        assert_eq!(came_to(&events), Outcome::Answered, "what is said besides changes nothing");
    }

    #[test]
    fn the_newest_calls_are_kept_and_found() {
        let mut history = History::default();
        let all = (MOST + 10) as u64;
        // An id is random besides its time.
        let ids: Vec<ProposalId> = (0..all).map(id).collect();
        for (number, id) in (0..).zip(&ids) {
            history.take(&record(2 * number, "proposal.received", *id, &json!({"name": "x"})));
            history.take(&record(2 * number + 1, "execution.result", *id, &json!({"outcome": "result"})));
        }
        assert_eq!((history.calls.len(), history.places.len(), history.dropped), (MOST, MOST, 10));
        assert!(history.calls.iter().all(|row| row.outcome == Outcome::Answered));
        // Late news of a call that is no longer kept changes nobody else's.
        history.take(&record(3 * all, "execution.withheld", ids[3], &json!({})));
        history.take(&record(3 * all + 1, "execution.withheld", ids[10], &json!({})));
        assert_eq!(history.calls[0].outcome, Outcome::Withheld);
        assert_eq!(history.calls.iter().filter(|row| row.outcome == Outcome::Withheld).count(), 1);
    }
}
