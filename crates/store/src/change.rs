//! What an event changes, decided without a database.

use portcullis_core::LogId;
use serde_json::Value;

use crate::error::StoreError;

/// A durable record of the log, with the evidence that is part of the state.
#[derive(Debug, Clone)]
pub struct Applied<'a> {
    /// The log it is in.
    pub log: LogId,
    /// Its number there.
    pub seq: u64,
    /// Its event.
    pub event: &'a str,
    /// The whole record (AUD-10).
    pub record: &'a Value,
    /// The exact bytes of its evidence of roles `declaration`, `probe`, `presented` and `policy`.
    pub documents: Vec<(String, Vec<u8>)>,
}

/// Whether the event changes state. The others need not be applied; if they are, only the position moves.
pub fn is_state_event(name: &str) -> bool {
    matches!(
        name,
        "server.registered"
            | "server.version_changed"
            | "server.halted"
            | "server.resumed"
            | "server.removed"
            | "server.surface_changed"
            | "declaration.accepted"
            | "declaration.superseded"
            | "declaration.withdrawn"
            | "approval.requested"
            | "approval.recorded"
            | "approval.expired"
            | "approval.withdrawn"
            | "approval.revoked"
            | "approval.invalidated"
            | "execution.intent"
            | "policy.activated"
            | "credential.stored"
            | "credential.removed"
            | "operator.enrolled"
            | "operator.removed"
            | "admin.state_changed"
            | "checkpoint.opened"
            | "checkpoint.resolved"
            | "session.ended"
            | "session.expired"
    )
}

/// A change of state.
#[derive(Debug, PartialEq)]
pub(crate) enum Change<'a> {
    /// A server is there, as this record says.
    Server { identity: &'a str, epoch: &'a str, state: &'a str, halt: Option<&'a str>, record: &'a Value },
    /// A server goes over to another state; halted for what it has become, it listed this.
    ServerState {
        identity: &'a str,
        state: &'static str,
        halt: Option<&'a str>,
        fault: Option<&'a str>,
        probe: Option<&'a [u8]>,
    },
    /// A server lists this instead of what was accepted; `None`: it is what was accepted.
    Surface { server: &'a str, probe: Option<&'a [u8]> },
    /// A declaration is accepted; the one accepted before is superseded.
    Accepted { server: &'a str, version: &'a str, epoch: &'a str, document: &'a [u8], probe: &'a [u8] },
    /// A declaration is no longer accepted.
    DeclarationState { server: &'a str, version: &'a str, state: &'static str },
    /// An approval is asked for.
    Requested { id: &'a str, approval: &'a Value, presented: &'a [u8] },
    /// An operator decided about it.
    Decided { id: &'a str, decision: Decision<'a> },
    /// It ended otherwise.
    ApprovalState { id: &'a str, state: &'static str },
    /// A call was made with it.
    Used { id: &'a str },
    /// A policy is in force; the record says who put it there, and why.
    Policy { version: &'a str, document: &'a [u8], record: &'a Value },
    /// An agent has this key, and no other.
    Key { agent: &'a str, key: &'a Value },
    /// An agent has no key.
    NoKey { agent: &'a str },
    /// An operator is enrolled, as this says.
    Operator { name: &'a str, operator: &'a Value },
    /// An operator is none any more.
    NoOperator { name: &'a str },
    /// Something operators set is this document now; `None`: it is gone.
    Kept { kind: &'a str, id: &'a str, version: u64, document: Option<&'a Value> },
    /// This stops a session.
    Stopped { session: &'a str, checkpoint: &'a Value },
    /// Nothing stops a session any more, or it is over.
    GoesOn { session: &'a str },
}

/// An operator's decision, and what the approval is after it.
#[derive(Debug, PartialEq)]
pub(crate) struct Decision<'a> {
    /// The state it leads to: still `pending` while a quorum is not complete.
    pub(crate) state: &'a str,
    /// When: the record's time.
    pub(crate) at: &'a Value,
    /// The event's data: who, how, why, which scope, until when, how often.
    pub(crate) data: &'a Value,
}

impl<'a> Change<'a> {
    /// What `applied` changes; `None` if nothing.
    pub(crate) fn of(applied: &'a Applied<'a>) -> Result<Option<Self>, StoreError> {
        let event = EventData { applied, data: &applied.record["data"] };
        let change = match applied.event {
            "server.registered" | "server.version_changed" => {
                let record = event.object("record")?;
                Change::Server {
                    identity: event.text_of(record, "server_identity")?,
                    epoch: event.text_of(record, "registration_epoch")?,
                    state: record["state"].as_str().unwrap_or("active"),
                    halt: record["halt"].as_str(),
                    record,
                }
            }
            "server.halted" => Change::ServerState {
                identity: event.text("server")?,
                state: "halted",
                halt: Some(event.data["reason"].as_str().unwrap_or_default()),
                fault: event.data["fault"].as_str(),
                probe: event.optional_document("probe"),
            },
            "server.resumed" | "server.removed" => Change::ServerState {
                identity: event.text("server")?,
                state: if applied.event == "server.resumed" { "active" } else { "removed" },
                halt: None,
                fault: None,
                probe: None,
            },
            "server.surface_changed" => {
                Change::Surface { server: event.text("server")?, probe: event.optional_document("probe") }
            }
            "declaration.accepted" => Change::Accepted {
                server: event.text("server")?,
                version: event.text("version")?,
                epoch: event.text("epoch")?,
                document: event.document("declaration")?,
                probe: event.document("probe")?,
            },
            "declaration.superseded" | "declaration.withdrawn" => Change::DeclarationState {
                server: event.text("server")?,
                version: event.text("version")?,
                state: if applied.event == "declaration.superseded" { "superseded" } else { "withdrawn" },
            },
            "approval.requested" => {
                let approval = event.object("approval")?;
                Change::Requested {
                    id: event.text_of(approval, "approval_id")?,
                    approval,
                    presented: event.document("presented")?,
                }
            }
            "approval.recorded" => Change::Decided {
                id: event.text("approval_id")?,
                decision: Decision {
                    state: event.text("decision")?,
                    at: &applied.record["time"],
                    data: event.data,
                },
            },
            "approval.expired" => event.approval_becomes("expired")?,
            "approval.withdrawn" => event.approval_becomes("withdrawn")?,
            "approval.revoked" => event.approval_becomes("revoked")?,
            "approval.invalidated" => event.approval_becomes("invalidated")?,
            "execution.intent" => match event.data["approval_id"].as_str() {
                Some(id) => Change::Used { id },
                None => return Ok(None),
            },
            "policy.activated" => {
                let (version, document) = (event.text("version")?, event.document("policy")?);
                Change::Policy { version, document, record: applied.record }
            }
            "credential.stored" | "credential.removed" if event.data["kind"] != "agent_key" => {
                return Ok(None);
            }
            "credential.stored" => {
                let key = event.object("key")?;
                Change::Key { agent: event.text_of(key, "agent")?, key }
            }
            "credential.removed" => Change::NoKey { agent: event.text("agent")? },
            "operator.enrolled" => {
                let operator = event.object("operator")?;
                Change::Operator { name: event.text_of(operator, "name")?, operator }
            }
            "operator.removed" => Change::NoOperator { name: event.text("operator")? },
            "admin.state_changed" => Change::Kept {
                kind: event.text("kind")?,
                id: event.text("id")?,
                version: event.data["version"].as_u64().unwrap_or(1),
                document: Some(&event.data["document"]).filter(|document| !document.is_null()),
            },
            // Another policy stops sessions for no time at all, and leaves alone what else stops them.
            "checkpoint.opened" if event.data["checkpoint"]["trigger"] == "policy_activation" => {
                return Ok(None);
            }
            "checkpoint.resolved" if event.data["how"] == "automatic" => return Ok(None),
            "checkpoint.opened" => {
                let checkpoint = event.object("checkpoint")?;
                Change::Stopped { session: event.text_of(checkpoint, "session_id")?, checkpoint }
            }
            "checkpoint.resolved" | "session.ended" | "session.expired" => {
                Change::GoesOn { session: event.text_of(applied.record, "session")? }
            }
            _ => return Ok(None),
        };
        Ok(Some(change))
    }
}

struct EventData<'a> {
    applied: &'a Applied<'a>,
    data: &'a Value,
}

impl<'a> EventData<'a> {
    fn text(&self, member: &str) -> Result<&'a str, StoreError> {
        self.text_of(self.data, member)
    }

    fn text_of(&self, object: &'a Value, member: &str) -> Result<&'a str, StoreError> {
        object[member].as_str().ok_or_else(|| self.problem(format!("{member} is not a text")))
    }

    fn object(&self, member: &str) -> Result<&'a Value, StoreError> {
        let value = &self.data[member];
        if value.is_object() { Ok(value) } else { Err(self.problem(format!("{member} is not an object"))) }
    }

    fn optional_document(&self, role: &str) -> Option<&'a [u8]> {
        let found = self.applied.documents.iter().find(|(found, _)| found == role);
        found.map(|(_, bytes)| bytes.as_slice())
    }

    fn document(&self, role: &str) -> Result<&'a [u8], StoreError> {
        self.optional_document(role)
            .ok_or_else(|| self.problem(format!("it comes without its {role} document")))
    }

    fn approval_becomes(&self, state: &'static str) -> Result<Change<'a>, StoreError> {
        Ok(Change::ApprovalState { id: self.text("approval_id")?, state })
    }

    fn problem(&self, problem: String) -> StoreError {
        StoreError::Record { seq: self.applied.seq, event: self.applied.event.into(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;
    use serde_json::json;

    fn change_of(
        event: &str,
        record: &Value,
        documents: Vec<(String, Vec<u8>)>,
    ) -> Result<Option<String>, StoreError> {
        let log = LogId::new(Timestamp::from_millis(1));
        let applied = Applied { log, seq: 4, event, record, documents };
        Ok(Change::of(&applied)?.map(|change| format!("{change:?}")))
    }

    #[test]
    fn every_state_event_needs_its_members_and_says_which_is_missing() {
        let names = [
            "server.registered",
            "server.version_changed",
            "server.halted",
            "server.resumed",
            "server.removed",
            "declaration.accepted",
            "declaration.superseded",
            "declaration.withdrawn",
            "approval.requested",
            "approval.recorded",
            "approval.expired",
            "approval.withdrawn",
            "approval.revoked",
            "approval.invalidated",
            "policy.activated",
            "operator.enrolled",
            "operator.removed",
            "admin.state_changed",
            "server.surface_changed",
            "checkpoint.opened",
            "checkpoint.resolved",
            "session.ended",
            "session.expired",
        ];
        for name in names {
            assert!(is_state_event(name), "{name}");
            match change_of(name, &json!({"data": {}}), Vec::new()) {
                Err(error @ StoreError::Record { seq: 4, .. }) => assert!(error.to_string().contains(name)),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn events_that_are_no_state_change_nothing() {
        for name in ["session.opened", "proposal.received", "who.knows"] {
            assert!(!is_state_event(name));
            assert_eq!(change_of(name, &json!({"data": {}}), Vec::new()).unwrap(), None);
        }
        // Other credentials are not the store's.
        for name in ["credential.stored", "credential.removed"] {
            assert!(is_state_event(name));
            assert_eq!(change_of(name, &json!({"data": {"kind": "header"}}), Vec::new()).unwrap(), None);
            assert!(change_of(name, &json!({"data": {"kind": "agent_key"}}), Vec::new()).is_err());
        }
        // Another policy stops nobody for longer than it takes to say so.
        let passing = json!({"data": {"checkpoint": {"trigger": "policy_activation"}, "how": "automatic"}});
        for name in ["checkpoint.opened", "checkpoint.resolved"] {
            assert_eq!(change_of(name, &passing, Vec::new()).unwrap(), None);
        }
        // An intent without an approval uses none.
        assert_eq!(
            change_of("execution.intent", &json!({"data": {"approval_id": null}}), Vec::new()).unwrap(),
            None
        );
    }
}
