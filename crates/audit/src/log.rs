//! The log as everybody else sees it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portcullis_core::{Actor, Clock, EventId, LogId, ProposalId, SystemClock, Timestamp};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::committer::{Committer, Setup, Shared, Subscriber, max_trail, repaired, tell_of_unacknowledged};
use crate::description::Description;
use crate::error::{AtPath as _, AuditBlocked, AuditError, EvidenceProblem};
use crate::event::{Event, Sealer, Trail};
use crate::event_name::EventName;
use crate::evidence::{Day, EvidenceRef, RetentionClass, Role};
use crate::keys::{KekSource, KeyRing, NoKey};
use crate::layout::Layout;
use crate::note::{NoteKey, SignedCheckpoint};
use crate::pack::Sealed;
use crate::publisher::{self, Publisher};
use crate::queue::{Parcel, Refused, Waiter};
use crate::record::Record;
use crate::retention::Retention;
use crate::seal::{self, Binding};
use crate::signer::{Signer, SignerSource};
use crate::sinks::{Outbox, Sink, deliver};
use crate::witness::{self, Asking, Standing, Witnessing};
use crate::{files, pack, recovery, reserve, rotation};

const MIB: u64 = 1 << 20;
/// A new log begins with a small segment: writing its zeros is what a first start waits for.
const FIRST_SEGMENT: u64 = 8 * MIB;

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The audit folder; the log is a folder in it, named by its id.
    pub dir: PathBuf,
    /// How large a segment is, 8 MiB to 1 GiB.
    pub segment_bytes: u64,
    /// How long a caller waits for durability before it is told that there is none (AUD-24).
    pub commit_timeout: Duration,
    /// How long a turn waits for company, at most 5 ms. Zero is right unless syncs are very dear.
    pub group_delay: Duration,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Who keeps the log; with the log's id it becomes the origin of its checkpoints (AUD-32).
    pub origin: String,
    /// Where the key that wraps the data keys comes from (AUD-42).
    pub kek: KekSource,
    /// How long evidence is kept (AUD-43).
    pub retention: Retention,
    /// Who signs checkpoints (AUD-33).
    pub signer: SignerSource,
    /// Where checkpoints go besides the log's own folder (AUD-34),
    pub sinks: Vec<Sink>,
    /// and how often at most.
    pub sink_interval: Duration,
    /// Who cosigns checkpoints (AUD-34).
    pub witnessing: Option<Witnessing>,
    /// Whether the records are also written as entry bundles, for others to fetch (AUD-30).
    pub publish: bool,
    /// Room kept back for how calls ended when the disk is full (AUD-63),
    pub reserve_bytes: u64,
    /// and how little free room is too little to be at ease.
    pub min_free: u64,
    /// How large a pack of evidence is at most, if not as large as a segment.
    #[doc(hidden)]
    pub pack_bytes: Option<u64>,
    /// Lifts the range of `segment_bytes`.
    #[doc(hidden)]
    pub any_segment_size: bool,
}

impl Options {
    /// The defaults for a log in `dir` whose keys are wrapped by the key in `kek_file`, and whose checkpoints are
    /// signed by the key in `log.key` beside that.
    pub fn new(dir: impl Into<PathBuf>, kek_file: impl Into<PathBuf>) -> Self {
        let kek_file: PathBuf = kek_file.into();
        let host = rustix::system::uname().nodename().to_string_lossy().replace([' ', '+'], "-");
        Self {
            dir: dir.into(),
            segment_bytes: 64 * MIB,
            commit_timeout: Duration::from_secs(10),
            group_delay: Duration::ZERO,
            clock: Arc::new(SystemClock),
            origin: format!("portcullis/{host}"),
            signer: SignerSource::File(kek_file.with_file_name("log.key")),
            kek: KekSource::File(kek_file),
            retention: Retention::default(),
            sinks: Vec::new(),
            sink_interval: Duration::from_secs(10),
            witnessing: None,
            publish: false,
            reserve_bytes: 8 * MIB,
            min_free: 256 * MIB,
            pack_bytes: None,
            any_segment_size: false,
        }
    }

    /// Segments of any size, for tests that want to see many.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tiny_segments(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self.reserve_bytes = bytes;
        self.pack_bytes = self.pack_bytes.or(Some(u64::MAX));
        self.any_segment_size = true;
        self
    }

    fn check(&self) -> Result<(), AuditError> {
        let refuse = |what: &str| Err(AuditError::Options { what: what.into() });
        if !self.any_segment_size && !(8 * MIB..=1024 * MIB).contains(&self.segment_bytes) {
            return refuse("audit.segment_bytes must be between 8 MiB and 1 GiB");
        }
        if self.group_delay > Duration::from_millis(5) {
            return refuse("audit.group_delay must be at most 5 ms");
        }
        if self.origin.is_empty()
            || self.origin.contains(|c: char| c == '+' || c.is_whitespace() || c.is_control())
        {
            return refuse("audit.origin must be a name without spaces and +");
        }
        Ok(())
    }
}

/// Proof that a trail is durable. Only a commit makes one (AUD-22).
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

/// Whether the log takes records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// It does, but somebody should look after it.
    Degraded {
        /// Why, in a word.
        cause: &'static str,
        /// Why, for people.
        reason: String,
    },
    /// It does not, and nothing may happen until it is reopened (AUD-3).
    Blocked {
        /// Why, in a word.
        cause: &'static str,
        /// Why, for people.
        reason: String,
    },
}

/// What the committer did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Turns committed.
    pub turns: u64,
    /// Syncs of segments.
    pub segment_syncs: u64,
    /// Syncs of evidence packs.
    pub pack_syncs: u64,
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
pub struct AuditLog(Arc<Inner>);

struct Inner {
    log: LogId,
    key: Mutex<NoteKey>,
    signer: SignerSource,
    standing: Option<Arc<Standing>>,
    layout: Layout,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    keys: KeyRing,
    retention: Retention,
    commit_timeout: Duration,
    max_trail: usize,
    segment_bytes: u64,
    pack_bytes: u64,
    group_delay: Duration,
    reserve_bytes: u64,
    min_free: u64,
    /// What copies of checkpoints promise.
    promised: Promised,
    volatile: Option<&'static str>,
    /// Until the log is closed.
    running: Mutex<Option<Running>>,
}

/// The sizes that copies of checkpoints promise, with their places.
type Promised = Arc<dyn Fn() -> Vec<(PathBuf, u64)> + Send + Sync>;

/// What ends with the log.
struct Running {
    committer: Option<JoinHandle<()>>,
    reserve: Option<JoinHandle<()>>,
    /// Whoever waits for the reserve says so.
    hurry: Arc<AtomicBool>,
    publisher: JoinHandle<()>,
    outboxes: [Arc<Outbox>; 2],
    sinks: [Option<JoinHandle<()>>; 2],
    lock: std::fs::File,
}

impl AuditLog {
    /// Opens the one log in the options' folder for writing, or begins it.
    ///
    /// Takes the lock, refuses files that others could use, cuts off a torn tail, and records what it found.
    pub fn open(options: Options) -> Result<AuditLog, AuditError> {
        options.check()?;
        let now = options.clock.now();
        let (log, layout) = Layout::find_or_create(&options.dir, now)?;
        let lock = layout.acquire(now)?;
        files::check_tree(layout.dir())?;
        let volatile = files::volatile_mount(layout.dir());
        if let Some(kind) = volatile {
            tracing::warn!(dir = %layout.dir().display(), "the audit log is on {kind}: a crash of the machine may lose it");
        }
        let described = Description::read(&layout.description())?;
        // A log keeps the origin it began with: its checkpoints are held against that name.
        let origin =
            described.as_ref().map_or_else(|| format!("{}/{log}", options.origin), |d| d.origin.clone());
        let before = described.and_then(|described| described.key);
        rotation::finish_renaming(&options.signer, &origin, before.as_ref())?;
        let signer = Signer::open(&options.signer, &origin)?;
        if before.as_ref().is_some_and(|key| key != signer.key()) {
            let problem = "names another key than the one that is to sign; put that key back".into();
            return Err(AuditError::Layout { path: layout.description(), problem });
        }
        let key = signer.key().clone();
        let newest = publisher::newest(&layout.checkpoint(), before.as_slice())?;
        let promised = promises(&layout, &options.sinks);
        let tail = recovery::recover(&layout, log, &promised())?;
        let keys = KeyRing::open(log, layout.keys(), &options.kek)?;
        if before.is_none() {
            Description { origin: origin.clone(), key: Some(key.clone()) }.write(&layout.description())?;
        }
        let size = tail.as_ref().map_or(0, |tail| tail.next_seq);
        let publisher =
            Publisher::open(layout.clone(), origin.clone(), signer, newest, size, options.publish)?;
        let shared = Arc::new(Shared::default());
        let pack_bytes = options.pack_bytes.unwrap_or(options.segment_bytes);
        let setup = Setup {
            log,
            layout: layout.clone(),
            clock: options.clock.clone(),
            shared: shared.clone(),
            segment_bytes: options.segment_bytes,
            pack_bytes,
            first_segment_bytes: options.segment_bytes.min(FIRST_SEGMENT),
            group_delay: options.group_delay,
            promised: promised.clone(),
        };
        let thread = start(Committer::new(setup, tail)?, &layout)?;
        let (reserve, hurry) = make_reserve(&layout, options.reserve_bytes);
        let outboxes: [Arc<Outbox>; 2] = Default::default();
        let mut sinks = [None, None];
        let mut publisher = publisher;
        if !options.sinks.is_empty() {
            sinks[0] = Some(deliver(options.sinks, options.sink_interval, outboxes[0].clone())?);
            publisher = publisher.with_outbox(outboxes[0].clone());
        }
        let standing = options.witnessing.as_ref().map(|witnessing| Arc::new(Standing::of(witnessing)));
        if let (Some(witnessing), Some(standing)) = (options.witnessing, &standing) {
            let asking = Asking {
                witnessing,
                standing: standing.clone(),
                newest: publisher.newest(),
                layout: layout.clone(),
                interval: options.sink_interval,
                log,
                clock: options.clock.clone(),
                shared: shared.clone(),
            };
            sinks[1] = Some(witness::ask(asking, outboxes[1].clone())?);
            publisher = publisher.with_outbox(outboxes[1].clone());
        }
        let publisher = publisher.start(shared.leaves.clone())?;
        let opened = AuditLog(Arc::new(Inner {
            log,
            key: Mutex::new(key),
            signer: options.signer,
            standing,
            layout,
            clock: options.clock,
            shared,
            keys,
            retention: options.retention,
            commit_timeout: options.commit_timeout,
            max_trail: max_trail(options.segment_bytes),
            segment_bytes: options.segment_bytes,
            pack_bytes,
            group_delay: options.group_delay,
            reserve_bytes: options.reserve_bytes,
            min_free: options.min_free,
            promised,
            volatile,
            running: Mutex::new(Some(Running {
                committer: Some(thread),
                reserve,
                hurry,
                publisher,
                outboxes,
                sinks,
                lock,
            })),
        }));
        opened.record_opening(&origin, before.is_none())?;
        opened.finish_destruction()?;
        opened.finish_rotation()?;
        Ok(opened)
    }

    /// The first records of this run: that the log begins, that its tail was cut, that it had failed.
    fn record_opening(&self, origin: &str, first_key: bool) -> Result<(), AuditError> {
        let actor = Actor::system();
        let mut trail = Vec::new();
        let key = self.vkey().to_string();
        if self.next_seq() == 0 {
            let data = json!({"format": "portcullis-audit-v1", "origin": origin, "vkey": key});
            trail.push(Event::new(EventName::SystemInitialized, &actor).data(data));
        } else if first_key {
            let data = json!({"new": key, "old": null});
            trail.push(Event::new(EventName::AuditSignerRotated, &actor).data(data));
        }
        let (pending, repairs) = repaired(&self.0.layout)?;
        trail.extend(repairs);
        let failure = self.0.layout.failure();
        if let Ok(note) = std::fs::read(&failure) {
            let note = serde_json::from_slice::<Value>(&note).unwrap_or_else(|_| json!({}));
            trail.push(Event::new(EventName::AuditPersistenceFailure, &actor).data(note));
        }
        if trail.is_empty() {
            return Ok(());
        }
        self.commit_blocking(trail)?;
        pending.iter().try_for_each(|pending| recovery::settle(pending))?;
        let _ = std::fs::remove_file(&failure);
        Ok(())
    }

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
    pub fn volatile_mount(&self) -> Option<&'static str> {
        self.0.volatile
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
    pub fn subscribe(&self, wanted: fn(EventName) -> bool) -> mpsc::Receiver<DurableRecord> {
        let (sender, receiver) = mpsc::channel();
        let mut subscribers = self.0.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        subscribers.push(Subscriber { wanted, sender });
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

    /// Checks the whole log, from its first record (AUD-65), and takes no more records if something is wrong with it.
    /// Reads everything there is; meant for a thread of its own.
    pub fn verify_or_block(&self) -> Result<(), AuditBlocked> {
        let reason = match crate::verify::verify(self.dir()) {
            Ok(report) if report.ok => return Ok(()),
            Ok(report) => match report.problems.first() {
                Some(first) => format!("record {}: {}: {}", first.seq, first.kind.as_str(), first.detail),
                None => "the log does not verify".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let blocked =
            AuditBlocked::new(format!("the audit log does not verify: {reason}; restore it from a copy"));
        tracing::error!(code = "MP-FH-010", "{blocked}");
        self.0.shared.queue.block(&blocked);
        Err(blocked)
    }

    /// Records how a call that is under way ended, even if the log takes nothing else: into the reserve of a full disk
    /// (AUD-63), or as soon as the log is unblocked.
    pub fn conclude(&self, mut trail: Vec<Event>) {
        while !trail.is_empty() && !self.0.shared.queue.owe(&mut trail) {
            let appended = self.0.pack(&trail, Waiter::Nobody).map(|parcel| self.0.shared.queue.push(parcel));
            // A log that was blocked in between takes it the other way; one that is closed or full takes no more.
            if !matches!(appended, Ok(Err(Refused::Blocked(_)))) || self.0.shared.queue.blocked().is_none() {
                return;
            }
        }
    }

    /// Takes records again after a failure (AUD-3, AUD-26, AUD-64): everything there is is verified, the end of the log
    /// is read anew, the reserve is made again, and what the log could not be told is told first.
    ///
    /// Reads everything; meant for a thread that may block. On failure the log stays blocked.
    pub fn unblock(&self, actor: &Actor, reason: &str) -> Result<Receipt, AuditError> {
        let inner = &*self.0;
        let mut running = inner.running.lock().unwrap_or_else(PoisonError::into_inner);
        let refuse = |what: &str| AuditError::Options { what: what.into() };
        let running = running.as_mut().ok_or_else(|| refuse("the audit log is closed"))?;
        let Some(blocked) = inner.shared.queue.blocked() else {
            return Err(refuse("the audit log is not blocked"));
        };
        // One that still writes last words ends by this.
        inner.shared.queue.block(&blocked);
        if let Some(committer) = running.committer.take() {
            let _ = committer.join();
        }
        let layout = &inner.layout;
        files::check_tree(layout.dir())?;
        let report = crate::verify::verify(self.dir())?;
        if let Some(first) = report.problems.first() {
            let reason = format!("record {}: {}: {}", first.seq, first.kind.as_str(), first.detail);
            return Err(AuditBlocked::new(format!("the audit log does not verify: {reason}")).into());
        }
        let gone = || AuditError::Layout { path: layout.segments(), problem: "has no segment".into() };
        let tail = recovery::recover(layout, inner.log, &(inner.promised)())?.ok_or_else(gone)?;
        running.hurry.store(true, Ordering::Relaxed);
        if let Some(making) = running.reserve.take() {
            let _ = making.join();
        }
        reserve::ensure(&layout.reserve(), inner.reserve_bytes, &AtomicBool::new(true))?;
        tell_of_unacknowledged(&inner.shared, layout, &tail)?;
        let setup = Setup {
            log: inner.log,
            layout: layout.clone(),
            clock: inner.clock.clone(),
            shared: inner.shared.clone(),
            segment_bytes: inner.segment_bytes,
            pack_bytes: inner.pack_bytes,
            first_segment_bytes: inner.segment_bytes.min(FIRST_SEGMENT),
            group_delay: inner.group_delay,
            promised: inner.promised.clone(),
        };
        let committer = Committer::new(setup, Some(tail))?;

        let failure = inner.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let note = failure.unwrap_or_else(|| json!({"first_error": blocked.reason}));
        let system = Actor::system();
        let mut trail = vec![Event::new(EventName::AuditPersistenceFailure, &system).data(note)];
        let (pending, repairs) = repaired(layout)?;
        trail.extend(repairs);
        let owed = inner.shared.queue.owed();
        trail.extend(owed.iter().cloned());
        let data = json!({"reason": portcullis_core::error::one_line(reason)});
        trail.push(Event::new(EventName::AuditUnblocked, actor).data(data));
        let (sender, receiver) = mpsc::sync_channel(1);
        inner.shared.queue.reopen(inner.pack(&trail, Waiter::Thread(sender))?);
        running.committer = Some(start(committer, layout)?);
        let receipt = match receiver.recv_timeout(inner.commit_timeout) {
            Ok(Ok(receipt)) => receipt,
            failed => {
                inner.shared.queue.owe(&mut owed.clone());
                return Err(match failed {
                    Ok(Err(blocked)) => blocked.into(),
                    _ => self.timed_out().into(),
                });
            }
        };
        inner.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        pending.iter().try_for_each(|pending| recovery::settle(pending))?;
        let _ = std::fs::remove_file(layout.failure());
        tracing::warn!("the audit log takes records again");
        Ok(receipt)
    }

    /// Why nothing may happen, if so. Cheap: every call asks.
    pub fn blocked(&self) -> Option<AuditBlocked> {
        let overdue = || self.0.standing.as_ref()?.overdue().map(AuditBlocked::new);
        self.0.shared.queue.blocked().or_else(overdue)
    }

    /// Whether the log takes records, and how it is otherwise.
    pub fn health(&self) -> Health {
        if let Some(blocked) = self.0.shared.queue.blocked() {
            return Health::Blocked { cause: "audit_persistence", reason: blocked.reason };
        }
        if let Some(standing) = &self.0.standing {
            if let Some(reason) = standing.overdue() {
                return Health::Blocked { cause: "audit_witness", reason };
            }
            if let Some(reason) = standing.alarm() {
                return Health::Degraded { cause: "audit_witness", reason };
            }
        }
        match reserve::free_bytes(self.dir()) {
            Some(free) if free < self.0.min_free => Health::Degraded {
                cause: "audit_free_space",
                reason: format!(
                    "{} has {} MiB of free space left; below {} MiB the audit log may soon have to stop everything",
                    self.dir().display(),
                    free / MIB,
                    self.0.min_free / MIB
                ),
            },
            _ => Health::Ok,
        }
    }

    /// What the committer did so far.
    pub fn stats(&self) -> Stats {
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let shared = &self.0.shared;
        Stats {
            turns: read(&shared.turns),
            segment_syncs: read(&shared.segment_syncs),
            pack_syncs: read(&shared.pack_syncs),
        }
    }

    /// Makes everything queued durable, then lets go of the log. Also happens when the last handle is dropped.
    pub fn close(&self) {
        self.0.close();
    }

    fn timed_out(&self) -> AuditBlocked {
        AuditBlocked::new(format!("not durable within {:?}; it may become so later", self.0.commit_timeout))
    }
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("id", &self.0.log).finish_non_exhaustive()
    }
}

impl Inner {
    /// Does all the work that does not need the committer.
    fn pack(&self, trail: &[Event], waiter: Waiter) -> Result<Parcel, AuditBlocked> {
        let now = self.clock.now();
        let mut packer = Packer { inner: self, now, today: None, objects: Vec::new() };
        let mut drafts = Trail::with_room_for(trail.len());
        for event in trail {
            drafts.push(event, self.log, now, &mut packer).map_err(AuditBlocked::new)?;
        }
        if drafts.framed_len() > self.max_trail {
            return Err(AuditBlocked::new(format!("a trail is longer than {} bytes", self.max_trail)));
        }
        Ok(Parcel { trail: drafts, objects: packer.objects, waiter })
    }

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

/// Seals the evidence of one trail, on its caller's thread.
struct Packer<'a> {
    inner: &'a Inner,
    now: Timestamp,
    today: Option<Day>,
    objects: Vec<Sealed>,
}

impl Sealer for Packer<'_> {
    fn seal(
        &mut self,
        role: Role,
        class: RetentionClass,
        proposal: Option<ProposalId>,
        plaintext: &[u8],
    ) -> Result<EvidenceRef, String> {
        let inner = self.inner;
        let today = *self.today.get_or_insert_with(|| Day::of(self.now));
        let key = inner.keys.current(class, today, |key| {
            let data = json!({"check": key.check, "class": class, "key": key.name});
            let event = Event::new(EventName::AuditKeyCreated, &Actor::system()).data(data);
            let parcel = inner.pack(&[event], Waiter::Nobody).map_err(|blocked| blocked.reason)?;
            inner.shared.queue.push(parcel).map_err(|refused| match refused {
                Refused::Blocked(blocked) => blocked.reason,
                Refused::Full(_) => "the audit queue is full".into(),
            })
        });
        let key = match key {
            Ok(key) => key,
            Err(NoKey::Unannounced(reason)) => return Err(reason),
            Err(NoKey::Unstored(error)) => {
                // AUD-3: what cannot be sealed cannot be recorded, today by nobody.
                let reason = error.to_string();
                inner.shared.queue.fail(error);
                return Err(reason);
            }
        };
        let binding = Binding { log: inner.log, role, proposal };
        let (object, bytes) =
            seal::seal(&key.cipher, binding, plaintext).ok_or("an evidence object is longer than 4 GiB")?;
        self.objects.push(Sealed { class, day: key.name.day, bytes });
        Ok(EvidenceRef { bytes: plaintext.len() as u64, key: key.name, object, role })
    }
}

/// What copies of checkpoints promise: the log's own, and those in sinks that can be read.
fn promises(layout: &Layout, sinks: &[Sink]) -> Promised {
    let (own, sinks) = (layout.checkpoint(), sinks.to_vec());
    Arc::new(move || {
        let newest = publisher::newest(&own, &[]).ok().flatten();
        let own = newest.map(|newest| (own.clone(), newest.checkpoint.size));
        own.into_iter().chain(sinks.iter().filter_map(Sink::promised)).collect()
    })
}

fn start(committer: Committer, layout: &Layout) -> Result<JoinHandle<()>, AuditError> {
    let run = move || committer.run();
    std::thread::Builder::new().name("audit-committer".into()).spawn(run).at(layout.dir())
}

/// Makes the reserve where nobody waits for it.
fn make_reserve(layout: &Layout, bytes: u64) -> (Option<JoinHandle<()>>, Arc<AtomicBool>) {
    let hurry = Arc::new(AtomicBool::new(false));
    let (path, theirs) = (layout.reserve(), hurry.clone());
    let make = move || {
        if let Err(error) = reserve::ensure(&path, bytes, &theirs) {
            tracing::warn!("no room can be kept back for a full disk: {error}");
        }
    };
    (std::thread::Builder::new().name("audit-reserve".into()).spawn(make).ok(), hurry)
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
