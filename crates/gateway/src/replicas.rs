//! One replica among several (AUD-68): what it changes is agreed with the others before it counts, what they change it
//! learns, and an approval is used as often as it may be, wherever it is used.
//!
//! Every replica has its own log, which stays the truth of what it did. Servers, their declarations and approvals are
//! shared, through [`Shared`]; a replica that cannot reach that state does not know whether a server was halted or an
//! approval taken back, and refuses calls.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use portcullis_audit::{
    AuditBlocked, AuditError, AuditLog, Event, EventName, Receipt, Record, Role, read_from,
};
use portcullis_core::{ApprovalId, ErrorCode, LogId, ProposalId};
use portcullis_store::{Cause, Shared, SharedChange, SharedError};
use serde_json::Value;

use crate::control::ControlError;

/// How long until what could not be published is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// So many records are published in one transaction at a start.
const BATCH: usize = 64;

/// This replica, and what it knows of what all share.
#[derive(Debug)]
pub struct Replicas {
    shared: Shared,
    log: AuditLog,
    /// The record that made each object what this replica knows.
    known: Mutex<HashMap<String, Cause>>,
    /// Why the shared state cannot be relied on, if so. Every call asks.
    down: RwLock<Option<String>>,
}

/// Whether an event changes what replicas share. An intent does if it uses an approval.
fn is_shared(name: EventName) -> bool {
    use EventName as E;
    matches!(
        name,
        E::ServerRegistered
            | E::ServerVersionChanged
            | E::ServerHalted
            | E::ServerResumed
            | E::ServerRemoved
            | E::DeclarationAccepted
            | E::DeclarationSuperseded
            | E::DeclarationWithdrawn
            | E::ApprovalRequested
            | E::ApprovalRecorded
            | E::ApprovalExpired
            | E::ApprovalWithdrawn
            | E::ApprovalRevoked
            | E::ApprovalInvalidated
            | E::ExecutionIntent
    )
}

/// What an event is about: `server:NAME` or `approval:ID`.
fn object_of(name: EventName, data: &Value) -> Option<String> {
    if !is_shared(name) {
        return None;
    }
    let server = data["record"]["server_identity"].as_str().or_else(|| data["server"].as_str());
    let approval = data["approval"]["approval_id"].as_str().or_else(|| data["approval_id"].as_str());
    match (approval, server) {
        (Some(approval), _) => Some(format!("approval:{approval}")),
        (None, Some(server)) => Some(format!("server:{server}")),
        (None, None) => None,
    }
}

/// Why a change was not made, or a use not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotShared {
    /// The own log takes nothing.
    #[error(transparent)]
    Audit(#[from] AuditBlocked),
    /// The others do not agree, or cannot be asked.
    #[error(transparent)]
    Shared(#[from] SharedError),
}

impl From<NotShared> for ControlError {
    fn from(error: NotShared) -> Self {
        match error {
            NotShared::Audit(blocked) => blocked.into(),
            NotShared::Shared(error) => {
                let code = match error {
                    SharedError::Busy { .. } | SharedError::Stale { .. } | SharedError::Spent(_) => {
                        ErrorCode::Conflict
                    }
                    _ => ErrorCode::ControlUnavailable,
                };
                ControlError::new(code, error.to_string())
            }
        }
    }
}

impl Replicas {
    pub(crate) fn new(shared: Shared, log: AuditLog) -> Arc<Self> {
        let replicas = Arc::new(Self { shared, log, known: Mutex::default(), down: RwLock::default() });
        replicas.clone().settle_uses_from_now_on();
        replicas
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn is_own(&self, log: LogId) -> bool {
        log == self.log.id()
    }

    /// Why nothing may be decided now, if so.
    pub(crate) fn down(&self) -> Option<String> {
        self.down.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_down(&self, reason: Option<String>) {
        let mut down = self.down.write().unwrap_or_else(PoisonError::into_inner);
        if *down != reason {
            match &reason {
                Some(reason) => tracing::error!(reason, "calls are refused: this replica is alone"),
                None => tracing::warn!("the shared state can be reached again"),
            }
            *down = reason;
        }
    }

    /// This replica has taken in what a record made of an object. Of its own it knows the latest already.
    pub(crate) fn knows(&self, object: &str, cause: Cause) {
        let mut known = self.known();
        let newer = known.get(object).is_some_and(|(log, seq)| *log == cause.0 && *seq > cause.1);
        if !newer {
            known.insert(object.to_owned(), cause);
        }
    }

    /// The record of another replica that made an approval what it is, if it was another's.
    pub(crate) fn decided_elsewhere(&self, approval: ApprovalId) -> Option<Cause> {
        let cause = self.known().get(&format!("approval:{approval}")).copied();
        cause.filter(|(log, _)| !self.is_own(*log))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Cause>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes events durable, and known to all. Refused if another replica is changing what they change, or did so
    /// unnoticed. `in_any_case` is for what must not wait for others: a halt.
    pub(crate) async fn commit(
        self: &Arc<Self>,
        events: Vec<Event>,
        in_any_case: bool,
    ) -> Result<Receipt, NotShared> {
        let about = |event: &Event| object_of(event.name(), &event.data_value()?);
        let objects: BTreeSet<String> = events.iter().filter_map(about).collect();
        if objects.is_empty() {
            return Ok(self.log.commit(events).await?);
        }
        let wanted: Vec<(String, Option<Cause>)> = {
            let known = self.known();
            objects.into_iter().map(|object| (object.clone(), known.get(&object).copied())).collect()
        };
        match self.shared.reserve(&wanted).await {
            Ok(()) => {}
            Err(error) if in_any_case => tracing::warn!(%error, "recorded without asking the other replicas"),
            Err(error) => return Err(error.into()),
        }
        // Acting on what another replica decided names its record.
        let foreign = |object: &str| {
            let cause = wanted.iter().find(|(wanted, _)| wanted == object).and_then(|(_, cause)| *cause);
            cause.filter(|(log, _)| !self.is_own(*log))
        };
        let events =
            events.into_iter().map(|event| match about(&event).and_then(|object| foreign(&object)) {
                Some((log, seq)) => event.reference(log, seq),
                None => event,
            });
        match self.log.commit(events.collect()).await {
            Ok(receipt) => {
                self.publish(receipt).await;
                Ok(receipt)
            }
            Err(blocked) => {
                // Whether it is on the disk is known at the next start, which takes the marks off.
                Err(blocked.into())
            }
        }
    }

    /// Tells the others what is durable. If that fails it is tried again until it succeeds; until then nobody else can
    /// change what it is about.
    pub(crate) async fn publish(self: &Arc<Self>, receipt: Receipt) {
        let log = self.log.clone();
        let read =
            tokio::task::spawn_blocking(move || changes_of(&log, receipt.first_seq, receipt.seq + 1)).await;
        let changes = match read {
            Ok(Ok(changes)) => changes,
            Ok(Err(error)) => return tracing::error!(%error, "what was changed cannot be read back"),
            Err(error) => return tracing::error!(%error, "what was changed cannot be read back"),
        };
        for change in &changes {
            self.knows(&change.object, (change.log, change.seq));
        }
        if let Err(error) = self.shared.publish(&changes).await {
            tracing::error!(%error, "the other replicas could not be told; trying again");
            let replicas = self.clone();
            tokio::spawn(async move {
                while replicas.shared.publish(&changes).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }

    /// Takes a use of an approval for a proposal; only then may its intent be written.
    pub(crate) async fn take_use(
        &self,
        approval: ApprovalId,
        proposal: ProposalId,
    ) -> Result<(), SharedError> {
        self.shared.take_use(&approval.to_string(), &proposal.to_string()).await
    }

    /// Nothing was sent under that use.
    pub(crate) fn give_back(self: &Arc<Self>, proposal: ProposalId) {
        let replicas = self.clone();
        tokio::spawn(async move {
            while replicas.shared.give_back(&proposal.to_string()).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    /// Writes to each use that was taken which record spent it, and tells the others.
    fn settle_uses_from_now_on(self: Arc<Self>) {
        let intents = self.log.subscribe(|name| name == EventName::ExecutionIntent);
        let runtime = tokio::runtime::Handle::current();
        let follow = move || {
            while let Ok(durable) = intents.recv() {
                let Ok(record) = durable.parse() else { continue };
                let Some(change) = change_of(&self.log, &record).ok().flatten() else { continue };
                let Some(proposal) = record.proposal else { continue };
                runtime.block_on(async {
                    let settle = async || {
                        self.shared.publish(std::slice::from_ref(&change)).await?;
                        self.shared.spend(&proposal.to_string(), record.seq).await
                    };
                    // The use is taken in any case; what is missing is where it went.
                    if let Err(error) = settle().await {
                        tracing::error!(%error, "a use of an approval is settled at the next start");
                    }
                });
            }
        };
        let _ = std::thread::Builder::new().name("replica-uses".into()).spawn(follow);
    }

    /// What this replica's log has and the others were not told, because it died in between, or was alone before.
    pub(crate) async fn catch_up_with_own_log(&self) -> Result<(), ControlError> {
        let unreachable = |error: SharedError| ControlError::from(NotShared::from(error));
        let (from, next) = (self.shared.settled().await.map_err(unreachable)?, self.log.next_seq());
        let unsettled = self.shared.unsettled_uses().await.map_err(unreachable)?;
        let log = self.log.clone();
        let read = move || -> Result<_, AuditError> {
            let mut spent = HashMap::new();
            if !unsettled.is_empty() {
                for record in read_from(log.dir(), 0)? {
                    let record = record?;
                    if record.event == EventName::ExecutionIntent
                        && let Some(proposal) = record.proposal
                    {
                        spent.insert(proposal.to_string(), record.seq);
                    }
                }
            }
            let uses = unsettled.into_iter().map(|proposal| {
                let seq = spent.get(&proposal).copied();
                (proposal, seq)
            });
            Ok((changes_of(&log, from, next)?, uses.collect::<Vec<_>>()))
        };
        let (changes, uses) = tokio::task::spawn_blocking(read)
            .await
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))?
            .map_err(|error| ControlError::new(error.code(), error.to_string()))?;
        for batch in changes.chunks(BATCH) {
            self.shared.publish(batch).await.map_err(unreachable)?;
        }
        for (proposal, seq) in uses {
            match seq {
                Some(seq) => self.shared.spend(&proposal, seq).await,
                None => self.shared.give_back(&proposal).await,
            }
            .map_err(unreachable)?;
        }
        self.shared.settle(next).await.map_err(unreachable)
    }
}

/// The records of the log from `from` and before `before` that change what is shared.
fn changes_of(log: &AuditLog, from: u64, before: u64) -> Result<Vec<SharedChange>, AuditError> {
    let mut changes = Vec::new();
    for record in read_from(log.dir(), from)? {
        let record = record?;
        if record.seq >= before {
            break;
        }
        changes.extend(change_of(log, &record)?);
    }
    Ok(changes)
}

fn change_of(log: &AuditLog, record: &Record) -> Result<Option<SharedChange>, AuditError> {
    let Some(object) = object_of(record.event, &record.data) else { return Ok(None) };
    let mut documents = Vec::new();
    for reference in &record.evidence {
        if matches!(reference.role, Role::Declaration | Role::Probe | Role::Presented) {
            documents.push((reference.role.as_str().to_owned(), log.evidence(reference, record.proposal)?));
        }
    }
    // A decision that is complete says how often; an end says never again.
    let uses = match record.event {
        EventName::ApprovalRecorded if record.data["decision"] == "approved" => record.data["uses"].as_u64(),
        EventName::ApprovalRecorded
        | EventName::ApprovalExpired
        | EventName::ApprovalWithdrawn
        | EventName::ApprovalRevoked
        | EventName::ApprovalInvalidated => Some(0),
        _ => None,
    };
    let text = serde_json::to_value(record)
        .map_err(|error| AuditError::Io { path: log.dir().into(), source: std::io::Error::other(error) })?;
    let event = record.event.as_str().to_owned();
    Ok(Some(SharedChange {
        position: 0,
        log: log.id(),
        seq: record.seq,
        object,
        event,
        record: text,
        documents,
        uses,
    }))
}
