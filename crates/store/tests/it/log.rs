//! A log in memory: what the projector would hand over.

use portcullis_core::{LogId, Timestamp};
use portcullis_store::{Applied, ApprovalRow, DeclarationRow, PolicyRow, ServerRow, Store};
use serde_json::{Value, json};

/// One event with its data and documents.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) event: String,
    pub(crate) record: Value,
    pub(crate) documents: Vec<(String, Vec<u8>)>,
}

pub(crate) fn entry(event: &str, data: Value, documents: &[(&str, &[u8])]) -> Entry {
    let mut record = json!({"event": event, "time": "2026-11-16T09:00:00.000Z"});
    record["data"] = data;
    let documents = documents.iter().map(|(role, bytes)| ((*role).to_owned(), bytes.to_vec())).collect();
    Entry { event: event.into(), record, documents }
}

pub(crate) fn registered(name: &str, epoch: &str) -> Entry {
    let record =
        json!({"server_identity": name, "registration_epoch": epoch, "state": "active", "halt": null});
    entry("server.registered", json!({ "record": record }), &[])
}

pub(crate) fn accepted(name: &str, counter: u64) -> Entry {
    let data = json!({"server": name, "epoch": "e", "version": format!("{counter}:aa")});
    entry("declaration.accepted", data, &[("declaration", name.as_bytes()), ("probe", b"{}")])
}

pub(crate) fn requested(id: &str) -> Entry {
    let approval = json!({"approval_id": id, "decisions": [], "uses_left": 0, "scope": null, "expires_at": "soon", "state": "pending"});
    entry("approval.requested", json!({ "approval": approval }), &[("presented", b"the view")])
}

pub(crate) fn decided(id: &str, decision: &str, uses: u64) -> Entry {
    let data = json!({
        "approval_id": id, "decision": decision, "scope": "session", "by": "ana", "method": "terminal",
        "reason": "fine", "separation": "same_user", "expires_at": "later", "uses": uses,
    });
    entry("approval.recorded", data, &[])
}

pub(crate) fn about_approval(event: &str, id: &str) -> Entry {
    entry(event, json!({ "approval_id": id }), &[])
}

pub(crate) fn log_id() -> LogId {
    LogId::from_bytes([7; 16])
}

pub(crate) fn other_log() -> LogId {
    LogId::new(Timestamp::from_millis(1))
}

/// The entries as records of `log`, the first being number `from`.
pub(crate) fn records(entries: &[Entry], log: LogId, from: u64) -> Vec<Applied<'_>> {
    entries
        .iter()
        .zip(from..)
        .map(|(entry, seq)| Applied {
            log,
            seq,
            event: &entry.event,
            record: &entry.record,
            documents: entry.documents.clone(),
        })
        .collect()
}

/// Everything in a store.
pub(crate) type Everything =
    (Option<(LogId, u64)>, Vec<ServerRow>, Vec<DeclarationRow>, Vec<ApprovalRow>, Vec<PolicyRow>);

pub(crate) async fn everything(store: &Store) -> Everything {
    (
        store.position().await.unwrap(),
        store.servers().await.unwrap(),
        store.declarations().await.unwrap(),
        store.approvals(None).await.unwrap(),
        store.policies().await.unwrap(),
    )
}
