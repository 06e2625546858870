//! What a crash left open, and how it is closed (GOV-1005, AUD-65).
//!
//! A permit that was issued but never intended is dead with its key. An intent without a result means that
//! bytes may have left: it becomes `execution.indeterminate`, is shown to the operator, and is never retried.

use std::collections::BTreeMap;
use std::path::Path;

use portcullis_audit::{AuditError, Event, EventName, Record, read_from};
use portcullis_core::{Actor, PermitId};
use serde_json::json;

/// What is still open at the end of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Permits issued, neither used nor refused.
    pub permits: Vec<PermitId>,
    /// Permits whose intent is durable and whose outcome is not known.
    pub intents: Vec<PermitId>,
}

impl Unfinished {
    /// Reads the log from `seq` on.
    pub fn find(log: &Path, seq: u64) -> Result<Self, AuditError> {
        let mut open: BTreeMap<PermitId, bool> = BTreeMap::new();
        for record in read_from(log, seq)? {
            follow(&mut open, &record?);
        }
        let (intents, permits): (Vec<_>, Vec<_>) = open.into_iter().partition(|(_, intended)| *intended);
        let ids = |found: Vec<(PermitId, bool)>| found.into_iter().map(|(id, _)| id).collect();
        Ok(Self { permits: ids(permits), intents: ids(intents) })
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
        invalidated.chain(indeterminate).collect()
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
