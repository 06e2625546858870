//! The log as everybody else sees it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portcullis_core::{Clock, EventId, LogId, ProposalId, Timestamp};
use tokio::sync::oneshot;

use crate::committer::{Shared, Subscriber};
use crate::error::{AuditBlocked, AuditError, EvidenceProblem};
use crate::event::Event;
use crate::event_name::EventName;
use crate::evidence::EvidenceRef;
use crate::keys::KeyRing;
use crate::layout::Layout;
use crate::note::{NoteKey, SignedCheckpoint};
use crate::pack;
use crate::queue::{Refused, Waiter};
use crate::record::Record;
use crate::retention::Retention;
use crate::seal::{self, Binding};
use crate::signer::{Signer, SignerSource};
use crate::sinks::Outbox;
use crate::witness::Standing;

/// Proof that a trail is durable. Only a commit makes one (AUD-22):
///
/// ```compile_fail,E0639
/// use portcullis_audit::Receipt;
/// fn forge(receipt: Receipt) -> Receipt {
///     Receipt { seq: receipt.seq + 1, ..receipt }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The log it is in.
    pub log: LogId,
    /// The number of the trail's first record.
    pub first_seq: u64,
    /// The number of its last.
    pub seq: u64,
    /// The id of its last record.
    pub id: EventId,
    /// When it was committed.
    pub time: Timestamp,
}

/// A record that is durable, as subscribers get it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DurableRecord {
    /// Its canonical bytes.
    pub bytes: Arc<[u8]>,
    /// Its number.
    pub seq: u64,
    /// What happened.
    pub name: EventName,
}

impl DurableRecord {
    /// Reads the record.
    pub fn parse(&self) -> Result<Record, serde_json::Error> {
        Record::parse(&self.bytes)
    }
}

/// The audit log, open for writing. A clone is another handle to the same log.
///
/// ```
/// use portcullis_audit::{AuditLog, Event, EventName, Options};
/// use portcullis_core::Actor;
/// # let home = tempfile::tempdir().unwrap();
/// let log = AuditLog::open(Options::new(home.path().join("audit"), home.path().join("kek"))).unwrap();
/// log.append(vec![Event::new(EventName::SystemStarted, &Actor::system())]).unwrap();
/// let receipt = log.commit_blocking(vec![Event::new(EventName::SessionOpened, &Actor::system())]).unwrap();
/// assert_eq!(receipt.seq, 2); // after system.initialized and system.started
/// log.close();
/// let names: Vec<_> = portcullis_audit::read(log.dir()).unwrap().map(|record| record.unwrap().event).collect();
/// assert_eq!(names[2], EventName::SessionOpened);
/// ```
#[derive(Clone)]
pub struct AuditLog(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) log: LogId,
    pub(crate) key: Mutex<NoteKey>,
    pub(crate) signer: SignerSource,
    pub(crate) standing: Option<Arc<Standing>>,
    pub(crate) layout: Layout,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) keys: KeyRing,
    pub(crate) retention: Retention,
    pub(crate) key_per_session: bool,
    pub(crate) commit_timeout: Duration,
    pub(crate) max_trail: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) pack_bytes: u64,
    pub(crate) group_delay: Duration,
    pub(crate) append_only: bool,
    pub(crate) reserve_bytes: u64,
    pub(crate) min_free: u64,
    /// What copies of checkpoints promise.
    pub(crate) promised: Promised,
    pub(crate) volatile: Option<String>,
    /// Until the log is closed.
    pub(crate) running: Mutex<Option<Running>>,
}

/// The sizes that copies of checkpoints promise, with their places.
pub(crate) type Promised = Arc<dyn Fn() -> Vec<(PathBuf, u64)> + Send + Sync>;

/// What ends with the log.
pub(crate) struct Running {
    pub(crate) committer: Option<JoinHandle<()>>,
    pub(crate) reserve: Option<JoinHandle<()>>,
    /// Whoever waits for the reserve says so.
    pub(crate) hurry: Arc<AtomicBool>,
    pub(crate) publisher: JoinHandle<()>,
    pub(crate) outboxes: [Arc<Outbox>; 2],
    pub(crate) sinks: [Option<JoinHandle<()>>; 2],
    pub(crate) lock: std::fs::File,
}

impl AuditLog {
    /// The key of the credential vault (SBX-55): made when it is first asked for, sealed like the keys of evidence.
    pub fn vault_key(&self) -> Result<portcullis_core::Secret<[u8; 32]>, AuditError> {
        self.0.keys.vault_key()
    }

    pub(crate) fn ring(&self) -> &KeyRing {
        &self.0.keys
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.0.layout
    }

    pub(crate) fn retention(&self) -> Retention {
        self.0.retention
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// The log's id.
    pub fn id(&self) -> LogId {
        self.0.log
    }

    /// The log's own folder.
    pub fn dir(&self) -> &Path {
        self.0.layout.dir()
    }

    /// Where the index of the log belongs.
    pub fn index_path(&self) -> PathBuf {
        self.0.layout.index()
    }

    /// The time of the last durable record.
    pub fn last_time(&self) -> Timestamp {
        Timestamp::from_millis(self.0.shared.last_time.load(Ordering::Acquire))
    }

    /// How many records are durable, which is the number of the next one.
    pub fn next_seq(&self) -> u64 {
        self.0.shared.next_seq.load(Ordering::Acquire)
    }

    /// The kind of file system the log is on, if it is one that forgets (AUD-25).
    pub fn volatile_mount(&self) -> Option<&str> {
        self.0.volatile.as_deref()
    }

    /// Queues `trail` behind everything queued before, and does not wait. It is durable when any later commit is.
    #[allow(clippy::needless_pass_by_value)] // Whoever records a trail is done with it.
    pub fn append(&self, trail: Vec<Event>) -> Result<(), AuditBlocked> {
        if trail.is_empty() {
            return Ok(());
        }
        match self.0.shared.queue.push(self.0.pack(&trail, Waiter::Nobody)?) {
            Ok(()) => Ok(()),
            Err(Refused::Blocked(blocked)) => Err(blocked),
            Err(Refused::Full(_)) => Err(AuditBlocked::new("the audit queue is full")),
        }
    }

    /// Commits `trail`, all of it in order in one turn; resolves when it and everything queued before are durable.
    ///
    /// A dropped future or a timeout does not take the trail back: it may still become durable.
    pub async fn commit(&self, trail: Vec<Event>) -> Result<Receipt, AuditBlocked> {
        let deadline = Instant::now() + self.0.commit_timeout;
        let (sender, receiver) = oneshot::channel();
        let parcel = self.0.pack(non_empty(&trail)?, Waiter::Task(sender))?;
        self.0.shared.queue.push_async(parcel, deadline).await?;
        match tokio::time::timeout_at(deadline.into(), receiver).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(abandoned()),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// [`commit`](AuditLog::commit) for a thread that may block.
    #[allow(clippy::needless_pass_by_value)] // Whoever records a trail is done with it.
    pub fn commit_blocking(&self, trail: Vec<Event>) -> Result<Receipt, AuditBlocked> {
        let deadline = Instant::now() + self.0.commit_timeout;
        let (sender, receiver) = mpsc::sync_channel(1);
        let parcel = self.0.pack(non_empty(&trail)?, Waiter::Thread(sender))?;
        self.0.shared.queue.push_blocking(parcel, deadline)?;
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(outcome) => outcome,
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(abandoned()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(self.timed_out()),
        }
    }

    /// Every durable record from now on whose event is `wanted`, in order. To see all from some number on,
    /// subscribe first, then [`read_from`](crate::read_from) it, and skip what comes twice. Ends when the log closes.
    ///
    /// `wanted` is asked on the one thread that everybody waits for: it should know the answer.
    pub fn subscribe(
        &self,
        wanted: impl Fn(EventName) -> bool + Send + 'static,
    ) -> mpsc::Receiver<DurableRecord> {
        let (sender, receiver) = mpsc::channel();
        let mut subscribers = self.0.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.push(Subscriber { wanted: Box::new(wanted), sender });
        receiver
    }

    /// The exact bytes behind a reference in a durable record of `proposal`: found by address, opened with its
    /// key, unpacked.
    pub fn evidence(
        &self,
        reference: &EvidenceRef,
        proposal: Option<ProposalId>,
    ) -> Result<Vec<u8>, AuditError> {
        let fail = |problem| AuditError::Evidence { object: reference.object, problem };
        let key = self.0.keys.named(reference.key).ok_or(fail(EvidenceProblem::KeyDestroyed))?;
        let object = pack::find(&self.0.layout, reference)?.ok_or(fail(EvidenceProblem::Missing))?;
        let binding = Binding { log: self.0.log, role: reference.role, proposal };
        seal::open(&key.cipher, binding, reference.bytes, &object).ok_or(fail(EvidenceProblem::Digest))
    }

    /// Makes a checkpoint over everything durable now, and waits for it. Checkpoints come by themselves within a
    /// second (AUD-32); this is for who needs one before going on.
    pub fn checkpoint(&self) -> Result<SignedCheckpoint, AuditBlocked> {
        self.0.shared.leaves.checkpoint().map_err(AuditBlocked::new)
    }

    /// What the log's checkpoints are checked with.
    pub fn vkey(&self) -> NoteKey {
        self.0.key.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn signer_source(&self) -> &SignerSource {
        &self.0.signer
    }

    /// The next checkpoint is signed by `signer` too, those after it by `signer` alone.
    pub(crate) fn succeed(&self, signer: Signer) {
        *self.0.key.lock().unwrap_or_else(PoisonError::into_inner) = signer.key().clone();
        self.0.shared.leaves.succeed(signer);
    }

    /// Makes everything queued durable, then lets go of the log. Also happens when the last handle is dropped.
    pub fn close(&self) {
        self.0.close();
    }

    pub(crate) fn timed_out(&self) -> AuditBlocked {
        AuditBlocked::new(format!("not durable within {:?}; it may become so later", self.0.commit_timeout))
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("id", &self.0.log).finish_non_exhaustive()
    }
}

impl Inner {
    fn close(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { committer, reserve, hurry, publisher, outboxes, sinks, lock }) = running {
            self.shared.queue.close();
            let joined = committer.is_none_or(|committer| committer.join().is_ok());
            hurry.store(true, Ordering::Relaxed);
            let _ = reserve.map(JoinHandle::join);
            self.shared.leaves.close();
            let _ = publisher.join();
            outboxes.iter().for_each(|outbox| outbox.close());
            for delivering in sinks.into_iter().flatten() {
                let _ = delivering.join();
            }
            // Nothing more will come: a subscriber's receiver ends here.
            self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let finished = joined && self.shared.queue.blocked().is_none();
            if finished && let Err(error) = self.keys.mark_announced() {
                // Costs another key on the next start, nothing else.
                tracing::warn!("audit keys: {error}");
            }
            drop(lock);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

fn non_empty(trail: &[Event]) -> Result<&[Event], AuditBlocked> {
    if trail.is_empty() {
        Err(AuditBlocked::new("a commit without an event proves nothing"))
    } else {
        Ok(trail)
    }
}

fn abandoned() -> AuditBlocked {
    AuditBlocked::new("the audit committer is gone")
}
