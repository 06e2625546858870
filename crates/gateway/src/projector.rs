//! State in the store, following the log (AUD-67).
//!
//! The log is the truth and is written first. This thread takes records that are durable, a batch at a time, and
//! applies those that change state to the store, with the log's position in the same transaction. Falling
//! behind loses nothing: at the next start [`catch_up`] applies what is missing.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;

use portcullis_audit::{AuditError, AuditLog, DurableRecord, EventName, Record, Role, read_from};
use portcullis_core::LogId;
use portcullis_store::{Applied, Store, StoreError, is_state_event};
use tokio::runtime::Handle;

/// Records are gathered this long before they are applied together, at most so many: the store is not on the path
/// of any call.
const GATHER: Duration = Duration::from_millis(50);
const BATCH: usize = 4096;

/// Why state cannot be brought up to date.
#[derive(Debug, thiserror::Error)]
pub enum ProjectionError {
    /// The log cannot be read.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The store cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record cannot be understood.
    #[error("record {seq} of the log cannot be read back: {reason}")]
    Record {
        /// Which.
        seq: u64,
        /// Why.
        reason: String,
    },
}

/// A record with what the store needs besides.
struct Ready {
    log: LogId,
    seq: u64,
    event: EventName,
    value: serde_json::Value,
    documents: Vec<(String, Vec<u8>)>,
}

impl Ready {
    fn new(log: &AuditLog, record: &Record) -> Result<Self, ProjectionError> {
        let fail = |reason: String| ProjectionError::Record { seq: record.seq, reason };
        let mut documents = Vec::new();
        for reference in &record.evidence {
            if matches!(reference.role, Role::Declaration | Role::Probe | Role::Presented | Role::Policy) {
                let bytes = log.evidence(reference, record.proposal)?;
                documents.push((reference.role.as_str().to_owned(), bytes));
            }
        }
        let value = serde_json::to_value(record).map_err(|error| fail(error.to_string()))?;
        Ok(Self { log: log.id(), seq: record.seq, event: record.event, value, documents })
    }

    /// The one state event that comes with every call: all that the store wants of it is the approval it spends.
    fn intent(log: LogId, durable: &DurableRecord) -> Result<Self, serde_json::Error> {
        #[derive(serde::Deserialize)]
        struct Intent<'a> {
            #[serde(borrow)]
            data: Data<'a>,
        }
        #[derive(serde::Deserialize)]
        struct Data<'a> {
            approval_id: Option<&'a str>,
        }
        let intent: Intent<'_> = serde_json::from_slice(&durable.bytes)?;
        let value = serde_json::json!({"data": {"approval_id": intent.data.approval_id}});
        Ok(Self { log, seq: durable.seq, event: durable.name, value, documents: Vec::new() })
    }

    fn applied(&self) -> Applied<'_> {
        Applied {
            log: self.log,
            seq: self.seq,
            event: self.event.as_str(),
            record: &self.value,
            documents: self.documents.clone(),
        }
    }
}

/// Applies what the store does not have yet. A store of another log, or one that is ahead of this log, is
/// emptied and rebuilt.
pub async fn catch_up(log: &AuditLog, store: &Store, dir: &Path) -> Result<(), ProjectionError> {
    let mut from = 0;
    match store.position().await? {
        Some((id, seq)) if id == log.id() && seq < log.next_seq() => from = seq + 1,
        Some(_) => store.reset().await?,
        None => {}
    }
    let mut batch = Vec::new();
    for record in read_from(dir, from)? {
        let record = record?;
        if is_state_event(record.event.as_str()) {
            batch.push(Ready::new(log, &record)?);
        }
        if batch.len() >= BATCH {
            apply(store, &mut batch).await?;
        }
    }
    apply(store, &mut batch).await
}

async fn apply(store: &Store, batch: &mut Vec<Ready>) -> Result<(), ProjectionError> {
    let applied: Vec<_> = batch.iter().map(Ready::applied).collect();
    store.apply(&applied).await?;
    batch.clear();
    Ok(())
}

/// The records that change state, from now on.
pub fn subscribe(log: &AuditLog) -> Receiver<DurableRecord> {
    log.subscribe(|name| is_state_event(name.as_str()))
}

/// The thread that follows the log. Ends when the log is closed.
#[derive(Debug)]
pub struct Projector(Option<JoinHandle<()>>);

impl Projector {
    /// Starts following `records`, which were subscribed to before the store caught up: what is in both is applied
    /// once. The log must be closed before [`join`](Projector::join).
    pub fn follow(
        log: &AuditLog,
        records: Receiver<DurableRecord>,
        store: Arc<Store>,
        runtime: Handle,
    ) -> Self {
        let log = log.clone();
        let thread = std::thread::Builder::new()
            .name("projector".into())
            .spawn(move || run(&log, &store, &runtime, &records));
        Self(thread.ok())
    }

    /// Waits until everything is applied; the log must be closed already.
    pub fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}

fn run(log: &AuditLog, store: &Store, runtime: &Handle, records: &Receiver<DurableRecord>) {
    while let Ok(first) = records.recv() {
        // Asleep, not waiting on the channel: a thread that is woken for every record costs every call a switch.
        std::thread::sleep(GATHER);
        let gathered: Vec<_> = std::iter::once(first).chain(records.try_iter()).take(BATCH).collect();
        if let Err(error) = project(log, store, runtime, &gathered) {
            // The store stays behind and is brought up to date at the next start; the log has everything.
            tracing::error!(%error, "state cannot follow the log");
            return;
        }
    }
}

fn project(
    log: &AuditLog,
    store: &Store,
    runtime: &Handle,
    records: &[DurableRecord],
) -> Result<(), ProjectionError> {
    let mut batch = Vec::with_capacity(records.len());
    for durable in records {
        let unreadable = |error: serde_json::Error| ProjectionError::Record {
            seq: durable.seq,
            reason: error.to_string(),
        };
        if durable.name == EventName::ExecutionIntent {
            batch.push(Ready::intent(log.id(), durable).map_err(unreadable)?);
        } else {
            batch.push(Ready::new(log, &durable.parse().map_err(unreadable)?)?);
        }
    }
    runtime.block_on(apply(store, &mut batch))
}
