//! What a crash left open, and how it is closed (GOV-1005, AUD-65).
//!
//! A permit that was issued but never intended is dead with its key. An intent without a result means that
//! bytes may have left: it becomes `execution.indeterminate`, is shown to the operator, and is never retried.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_audit::{AuditError, Event, EventName, Record, read_from};
use portcullis_core::{Actor, LogId, PermitId};
use serde_json::json;

/// What is still open at the end of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Permits issued, neither used nor refused.
    pub permits: Vec<PermitId>,
    /// Permits whose intent is durable and whose outcome is not known.
    pub intents: Vec<PermitId>,
    /// Admin operations that were announced and of which nobody said what became of them.
    pub operations: Vec<Operation>,
}

/// An admin operation that a crash cut off (ADM-53).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Where it was announced.
    intent: (LogId, u64),
    op_id: String,
    tool: String,
    /// Whether something that it did is durable.
    took_effect: bool,
}

/// What these do, no log of ours can tell.
const EXTERNAL: [&str; 3] =
    ["portcullis_processes_restart", "portcullis_servers_test", "portcullis_webhooks_test"];

impl Unfinished {
    /// Reads the log from `seq` on.
    pub fn find(log: &Path, seq: u64) -> Result<Self, AuditError> {
        let mut open: BTreeMap<PermitId, bool> = BTreeMap::new();
        let mut operations: BTreeMap<u64, Operation> = BTreeMap::new();
        for record in read_from(log, seq)? {
            let record = record?;
            follow(&mut open, &record);
            follow_operation(&mut operations, &record);
        }
        let (intents, permits): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, intended)| *intended);
        let ids = |found: Vec<(PermitId, bool)>| found.into_iter().map(|(id, _)| id).collect();
        Ok(Self {
            permits: ids(permits),
            intents: ids(intents),
            operations: operations.into_values().collect(),
        })
    }

    /// The events that close what is open.
    pub fn closing_events(&self) -> Vec<Event> {
        let invalidated = self.permits.iter().map(|id| {
            Event::new(EventName::PermitInvalidated, &Actor::system())
                .data(json!({"permit_id": id, "reason": "crash"}))
        });
        let indeterminate = self.intents.iter().map(|id| {
            Event::new(EventName::ExecutionIndeterminate, &Actor::system())
                .data(json!({"permit_id": id, "reason": "crash"}))
        });
        invalidated.chain(indeterminate).chain(self.operations.iter().map(Operation::settled)).collect()
    }
}

impl Operation {
    /// What became of it: done if its effect is durable, since that is one step; failed if not; not known where the
    /// effect is outside.
    fn settled(&self) -> Event {
        let external = EXTERNAL.contains(&self.tool.as_str());
        let mut data = json!({"op_id": self.op_id, "recovered": true, "tool": self.tool});
        let name =
            if self.took_effect && !external { EventName::AdminOpExecuted } else { EventName::AdminOpFailed };
        if external {
            data["indeterminate"] = json!(true);
        }
        Event::new(name, &Actor::system()).reference(self.intent.0, self.intent.1).data(data)
    }
}

/// Operations are known by the place of their intent, which everything they do refers to.
fn follow_operation(open: &mut BTreeMap<u64, Operation>, record: &Record) {
    let text = |key: &str| record.data[key].as_str().unwrap_or_default().to_owned();
    match record.event {
        EventName::AdminOpIntent => {
            let intent = (record.log, record.seq);
            let operation =
                Operation { intent, op_id: text("op_id"), tool: text("tool"), took_effect: false };
            open.insert(record.seq, operation);
        }
        EventName::AdminOpExecuted | EventName::AdminOpFailed => {
            open.retain(|_, operation| operation.op_id != text("op_id"));
        }
        _ => {
            for reference in record.refs.iter().filter(|reference| reference.log == record.log) {
                if let Some(operation) = open.get_mut(&reference.seq) {
                    operation.took_effect = true;
                }
            }
        }
    }
}

fn follow(open: &mut BTreeMap<PermitId, bool>, record: &Record) {
    let Some(id) = record.data.get("permit_id").and_then(|id| id.as_str()).and_then(|id| id.parse().ok())
    else {
        return;
    };
    match record.event {
        EventName::PermitIssued => {
            open.insert(id, false);
        }
        EventName::ExecutionIntent => {
            open.insert(id, true);
        }
        EventName::ExecutionResult
        | EventName::ExecutionIndeterminate
        | EventName::ExecutionCancelled
        | EventName::ExecutionDenied
        | EventName::ReplayHit
        | EventName::ReplayMiss
        | EventName::PermitInvalidated
        | EventName::PermitExpired
        | EventName::PermitRevoked => {
            open.remove(&id);
        }
        _ => {}
    }
}
