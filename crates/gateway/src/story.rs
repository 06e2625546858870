//! What the log says about one call, gathered: for `portcullis why` and for the console.

use portcullis_audit::{EventName, Record};
use portcullis_core::ProposalId;
use serde::Serialize;
use serde_json::{Value, json};

/// Everything there is to say about a call. Members are `null` for what did not happen.
#[derive(Debug, Default, Serialize)]
#[allow(missing_docs)] // The words of the log.
pub struct Story {
    pub proposal: String,
    pub log: String,
    pub records: Vec<u64>,
    pub who: Value,
    pub what: Value,
    pub decision: Value,
    pub approval: Value,
    pub permit: Value,
    pub sent: Value,
    pub received: Value,
    pub changed: Value,
    /// How it ended, in a word and the records' own words.
    pub end: Value,
    /// What was noted when, in microseconds since the call came in.
    pub steps: Vec<(String, u64)>,
    #[serde(skip)]
    evidence: Vec<u64>,
}

impl Story {
    /// Gathers what `all` says about one call; the decision about its approval may be in an earlier call's records.
    pub fn of(all: &[Record], proposal: ProposalId) -> Self {
        let own: Vec<&Record> = all.iter().filter(|record| record.proposal == Some(proposal)).collect();
        let find = |name: EventName| own.iter().copied().find(|record| record.event == name);
        let last = |name: EventName| own.iter().rev().copied().find(|record| record.event == name);
        let mut story = Story {
            proposal: proposal.to_string(),
            log: own.first().map(|record| record.log.to_string()).unwrap_or_default(),
            records: own.iter().map(|record| record.seq).collect(),
            ..Story::default()
        };
        if let Some(received) = find(EventName::ProposalReceived) {
            story.who = json!({
                "actor": received.actor.to_string(), "client": received.data["client"], "session": received.session,
                "step": received.step, "time": received.time,
            });
            story.what = json!({
                "asked_for": received.data["name"], "arguments_bytes": received.data["arguments_bytes"],
                "tool_id": received.tool_id, "trust": received.trust,
            });
        }
        if let Some(canonical) = find(EventName::ProposalCanonicalized) {
            story.what["side_effects"] = canonical.data["side_effects"].clone();
            story.what["scopes"] = canonical.data["scopes"].clone();
            story.what["request_sha256"] = canonical.data["request_sha256"].clone();
        }
        if let Some(decided) = find(EventName::PolicyEvaluated) {
            story.decision = json!({
                "verdict": decided.data["decision"], "rules": decided.data["reasons"],
                "policy": decided.policy.map(|version| version.to_string()),
            });
        }
        story.approval = last(EventName::ApprovalDetermined)
            .map_or(Value::Null, |determined| approval(all, &own, determined));
        if let Some(issued) = find(EventName::PermitIssued) {
            story.permit = json!({
                "permit_id": issued.data["permit_id"], "expires": issued.data["exp"],
                "validated": find(EventName::PermitValidated).is_some(),
                "denied_by": find(EventName::ExecutionDenied).map(|denied| &denied.data["check"]),
            });
        }
        if let Some(intent) = find(EventName::ExecutionIntent) {
            story.sent = json!({"seq": intent.seq, "time": intent.time, "bytes": size_of(intent, "request")});
            story.evidence.push(intent.seq);
            story.steps = serde_json::from_value(intent.data["steps_us"].clone()).unwrap_or_default();
        }
        if let Some(result) = find(EventName::ExecutionResult) {
            story.received = json!({
                "seq": result.seq, "time": result.time, "outcome": result.data["outcome"], "bytes": result.data["bytes"],
            });
            story.evidence.push(result.seq);
            story
                .steps
                .extend(result.data["elapsed_us"].as_u64().map(|us| ("execution.result".to_owned(), us)));
        }
        story.changed = changed(&own);
        story.end = end(&own);
        story
    }

    /// The records whose exact bytes tell more.
    pub fn records_with_evidence(&self) -> Vec<u64> {
        self.evidence.clone()
    }

    /// Adds the exact bytes, as the control plane opened them.
    pub fn add_evidence(&mut self, pieces: &Value) {
        let piece = |role: &str| pieces.as_array().into_iter().flatten().find(|piece| piece["role"] == role);
        let content = |role: &str| piece(role).cloned().unwrap_or(Value::Null);
        if !self.sent.is_null() {
            self.sent["content"] = content("request");
            let asked = piece("canonical")
                .and_then(|piece| serde_json::from_str::<Value>(piece["text"].as_str()?).ok());
            self.what["arguments"] = asked.map_or(Value::Null, |document| document["args"].clone());
        }
        if !self.received.is_null() {
            self.received["content"] = content("response");
        }
    }
}

fn size_of(record: &Record, role: &str) -> Option<u64> {
    record.evidence.iter().find(|reference| reference.role.as_str() == role).map(|reference| reference.bytes)
}

/// Which approval, who decided it, and how long that took. It may have been asked for by an earlier, equal call.
fn approval(all: &[Record], own: &[&Record], determined: &Record) -> Value {
    let id = &determined.data["approval_id"];
    let mut told =
        json!({"outcome": determined.data["outcome"], "approval_id": id, "scope": determined.data["scope"]});
    if !id.is_string() {
        return told;
    }
    let asked = own.iter().find(|record| record.event == EventName::ApprovalRequested);
    let decided = (all.iter())
        .find(|record| record.event == EventName::ApprovalRecorded && record.data["approval_id"] == *id);
    if let Some(decided) = decided {
        told["decision"] = decided.data["decision"].clone();
        told["by"] = json!(decided.actor.to_string());
        told["reason"] = decided.data["reason"].clone();
        told["decided_at"] = json!(decided.time);
        let waited = asked.map(|asked: &&Record| decided.time.since(asked.time));
        told["waited_ms"] = json!(waited.map(|waited| waited.as_millis() as u64));
    }
    told
}

/// What was changed of the result before the agent saw it; `null` if nothing was.
fn changed(own: &[&Record]) -> Value {
    let noted = own.iter().rev().find(|record| record.event == EventName::ExecutionSanitised);
    noted.map_or(Value::Null, |record| record.data.clone())
}

fn end(own: &[&Record]) -> Value {
    use EventName as E;
    let told = |word: &str, record: &Record| json!({"how": word, "seq": record.seq, "time": record.time, "data": record.data});
    let of = |name: E| own.iter().rev().find(|record| record.event == name);
    let order: [(E, &str); 10] = [
        (E::McpDeclarationMismatch, "withheld: it broke the server's declaration"),
        (E::McpToolTimeout, "no answer in time"),
        (E::ExecutionIndeterminate, "unknown: bytes may have left and no answer was recorded"),
        (E::ExecutionCancelled, "cancelled"),
        (E::ExecutionDenied, "stopped at the boundary"),
        (E::PermitInvalidated, "not sent: the permit was invalidated"),
        (E::ProposalRefused, "refused before policy was asked"),
        (E::McpUngovernedToolSurface, "refused: there is no such tool"),
        (E::ExecutionResult, "answered"),
        (E::ResultCacheHit, "answered with what was answered before; nothing was sent"),
    ];
    for (name, word) in order {
        if let Some(record) = of(name) {
            return told(word, record);
        }
    }
    let Some(newest) = own.last() else { return Value::Null };
    match of(E::PolicyEvaluated) {
        Some(decided) if decided.data["decision"] == "deny" => told("denied by policy", decided),
        _ if of(E::ApprovalRequested).is_some() || of(E::ApprovalDetermined).is_some() => {
            told("not sent: no operator approved it in time, or one denied it", newest)
        }
        _ => told("not finished", newest),
    }
}
