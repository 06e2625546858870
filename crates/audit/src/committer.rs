//! The one thread that writes (AUD-20, AUD-21, AUD-26).
//!
//! A turn takes everything that waits, gives each record its number, time and predecessor, stores the evidence
//! first and the records second, syncs, and wakes everybody who waited. If anything of that fails, the log is
//! done for: a kernel may report a failed write-back once and then forget it, so after an error no later
//! success on the same file can be believed. Reopening reads what is really there.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use portcullis_core::{Actor, Clock, EventId, LogId, Sha256Digest, Timestamp, failpoint};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{AtPath as _, AuditBlocked, AuditError};
use crate::event::{Event, Trail};
use crate::event_name::EventName;
use crate::evidence::{Day, EvidenceRef, RetentionClass, Role};
use crate::files::{self, Spare};
use crate::filling::Filling;
use crate::frame::{self, COMMIT_LEN, Commit, HEADER_LEN, SegmentHeader};
use crate::layout::Layout;
use crate::log::{DurableRecord, Receipt};
use crate::pack::Packs;
use crate::publisher::Leaves;
use crate::queue::{Parcel, Queue, Taken, Waiter};
use crate::recovery::{self, Tail};
use crate::{read, reserve};

/// AUD-20.
const MAX_TURN_RECORDS: usize = 4096;
const MAX_TURN_BYTES: usize = 8 << 20;
/// AUD-10.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// The most bytes one trail's records may take, given the size of segments: a turn never spans two.
pub(crate) fn max_trail(segment_bytes: u64) -> usize {
    MAX_TURN_BYTES.min(usize::try_from(segment_bytes / 2).unwrap_or(MAX_TURN_BYTES))
}

/// What the committer shares with everybody.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) subscribers: Mutex<Vec<Subscriber>>,
    pub(crate) next_seq: AtomicU64,
    pub(crate) last_time: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) segment_syncs: AtomicU64,
    pub(crate) pack_syncs: AtomicU64,
    /// What the first record after recovery says, if the log failed (AUD-64).
    pub(crate) failure: Mutex<Option<Value>>,
}

/// Somebody who wants to see durable records.
pub(crate) struct Subscriber {
    pub(crate) wanted: Box<dyn Fn(EventName) -> bool + Send>,
    pub(crate) sender: mpsc::Sender<DurableRecord>,
}

impl std::fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscriber").finish_non_exhaustive()
    }
}

/// The writer's end of the log.
pub(crate) struct Committer {
    log: LogId,
    layout: Layout,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    segment_bytes: u64,
    pack_bytes: u64,
    group_delay: Duration,
    promised: Arc<dyn Fn() -> Vec<(PathBuf, u64)> + Send + Sync>,
    segment: Filling,
    spare: Spare,
    packs: Packs,
    next_seq: u64,
    head: Sha256Digest,
    last_time: Timestamp,
    /// Whether the log already says that the wall clock is behind.
    clock_behind: bool,
    /// A turn's bytes, kept for the next.
    out: Vec<u8>,
    /// Whether segments that are done are made append-only (AUD-15),
    append_only: bool,
    /// and the one that is done as soon as something is durable in the next.
    done: Option<PathBuf>,
}

/// Where one record of the turn lies in its bytes.
struct Placed {
    name: EventName,
    seq: u64,
    body: std::ops::Range<usize>,
    leaf: Sha256Digest,
}

/// How a committer is set up.
pub(crate) struct Setup {
    pub(crate) log: LogId,
    pub(crate) layout: Layout,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) segment_bytes: u64,
    pub(crate) pack_bytes: u64,
    pub(crate) first_segment_bytes: u64,
    pub(crate) group_delay: Duration,
    pub(crate) append_only: bool,
    /// What the log must not be shorter than, whenever its end is looked for.
    pub(crate) promised: Arc<dyn Fn() -> Vec<(PathBuf, u64)> + Send + Sync>,
}

impl Committer {
    /// Goes on where the log ends, or begins it.
    pub(crate) fn new(setup: Setup, tail: Option<Tail>) -> Result<Self, AuditError> {
        let mut spare = Spare::at(setup.layout.spare_segment());
        let (tail, segment) = match tail {
            Some(tail) => {
                let segment = Filling::open(&tail.segment, tail.len, tail.offset)?;
                (tail, segment)
            }
            None => {
                let path = setup.layout.segment(0);
                let header = SegmentHeader { log: setup.log, first_seq: 0, prev: Sha256Digest::ZERO };
                let segment = spare.take(&path, 0, setup.first_segment_bytes, &header.encode())?;
                let tail = Tail {
                    next_seq: 0,
                    head: Sha256Digest::ZERO,
                    last_time: Timestamp::default(),
                    segment: path,
                    offset: segment.end(),
                    len: segment.len(),
                };
                (tail, segment)
            }
        };
        setup.shared.next_seq.store(tail.next_seq, Ordering::Release);
        setup.shared.last_time.store(tail.last_time.as_millis(), Ordering::Release);
        let mut packs = Packs::new(setup.layout.clone(), setup.pack_bytes);
        packs.warm_up(Day::of(setup.clock.now()));
        Ok(Self {
            log: setup.log,
            layout: setup.layout,
            clock: setup.clock,
            shared: setup.shared,
            segment_bytes: setup.segment_bytes,
            pack_bytes: setup.pack_bytes,
            group_delay: setup.group_delay,
            promised: setup.promised,
            segment,
            spare,
            packs,
            next_seq: tail.next_seq,
            head: tail.head,
            last_time: tail.last_time,
            clock_behind: false,
            out: Vec::new(),
            append_only: setup.append_only,
            done: None,
        })
    }

    /// Commits until the queue is closed and empty, or until something fails.
    pub(crate) fn run(mut self) {
        let _refuse_if_this_panics = Fuse(self.shared.clone());
        let mut parcels = Vec::new();
        loop {
            // No delay (AUD-20), but good manners: whoever was woken by the last turn and is ready to run goes first,
            // so that on a busy machine what it commits shares this turn's sync. On an idle one this returns at once.
            std::thread::yield_now();
            match self.shared.queue.take(&mut parcels) {
                Taken::Parcels => {}
                Taken::Failed(error) => return self.give_up(&error, std::iter::empty()),
                Taken::End => break,
            }
            if !self.group_delay.is_zero() {
                std::thread::sleep(self.group_delay);
            }
            while !parcels.is_empty() {
                let rest = parcels.split_off(turn_len(&parcels));
                if let Err(error) = self.turn(&mut parcels) {
                    return self.give_up(&error, parcels.drain(..).chain(rest));
                }
                parcels = rest;
            }
        }
    }

    fn turn(&mut self, parcels: &mut Vec<Parcel>) -> Result<(), AuditError> {
        let wall = self.clock.now();
        self.note_clock(wall, parcels);
        let time = wall.max(self.last_time);
        self.write_evidence(parcels)?;
        let (placed, head) = self.fill(parcels, time);
        if self.segment.room() < self.out.len() as u64 {
            self.rotate()?;
        }
        let holds = |name| placed.iter().any(|record| record.name == name);
        let (intent, result) = (holds(EventName::ExecutionIntent), holds(EventName::ExecutionResult));
        if intent {
            failpoint::pass_io("audit.before_intent").at(self.segment.path())?;
        }
        if result {
            failpoint::pass_io("audit.before_result").at(self.segment.path())?;
        }
        self.write()?;
        if intent {
            failpoint::pass("audit.after_intent_sync");
        }
        if result {
            failpoint::pass("audit.after_result_sync");
        }
        let first_seq = self.next_seq;
        self.next_seq += placed.len() as u64;
        (self.head, self.last_time) = (head, time);
        self.shared.next_seq.store(self.next_seq, Ordering::Release);
        self.shared.last_time.store(time.as_millis(), Ordering::Release);
        self.shared.turns.fetch_add(1, Ordering::Relaxed);
        self.shared.leaves.add(placed.iter().map(|record| record.leaf));
        self.publish(&placed);
        self.wake(parcels, first_seq, time);
        Ok(())
    }

    /// AUD-10: `time` does not go back with the wall clock, and the log says why it stands still.
    fn note_clock(&mut self, wall: Timestamp, parcels: &mut Vec<Parcel>) {
        let behind = self.last_time.since(wall) > CLOCK_TOLERANCE;
        if behind && !self.clock_behind {
            let data = json!({"behind_ms": self.last_time.since(wall).as_millis() as u64, "wall": wall});
            let event = Event::new(EventName::SystemClockAnomaly, &Actor::system()).data(data);
            let mut trail = Trail::default();
            if trail.push(&event, self.log, wall, &mut NoEvidence).is_ok() {
                parcels.insert(0, Parcel { trail, objects: Vec::new(), waiter: Waiter::Nobody });
            }
        }
        self.clock_behind = behind;
    }

    /// AUD-21: a durable record never points to an object that is not.
    fn write_evidence(&mut self, parcels: &[Parcel]) -> Result<(), AuditError> {
        let mut any = false;
        for object in parcels.iter().flat_map(|parcel| &parcel.objects) {
            self.packs.add(object)?;
            any = true;
        }
        if any {
            self.shared.pack_syncs.fetch_add(self.packs.write()?, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Puts the turn's frames together: where its records lie, and the leaf hash of the last.
    fn fill(&mut self, parcels: &[Parcel], time: Timestamp) -> (Vec<Placed>, Sha256Digest) {
        let time = time.to_string();
        let (mut seq, mut head) = (self.next_seq, self.head);
        let mut placed = Vec::with_capacity(parcels.iter().map(Parcel::records).sum());
        self.out.clear();
        for parcel in parcels {
            for draft in parcel.trail.drafts() {
                let start = frame::begin(&mut self.out);
                let body = self.out.len();
                parcel.trail.fill(draft, &head, seq, &time, &mut self.out);
                frame::finish_record(&mut self.out, start);
                head = frame::leaf(&self.out[body..]);
                placed.push(Placed { name: draft.name, seq, body: body..self.out.len(), leaf: head });
                seq += 1;
            }
        }
        let commit = Commit { last_seq: seq.wrapping_sub(1), count: placed.len() as u32, leaf: head };
        commit.write(&mut self.out);
        (placed, head)
    }

    /// Goes over to the next segment (AUD-17). Everything in the current one is committed.
    fn rotate(&mut self) -> Result<(), AuditError> {
        let path = self.layout.segment(self.next_seq);
        failpoint::pass_io("audit.rotate").at(&path)?;
        let header = SegmentHeader { log: self.log, first_seq: self.next_seq, prev: self.head };
        let needed = (HEADER_LEN + self.out.len()) as u64;
        let next = self.spare.take(&path, needed, self.segment_bytes, &header.encode())?;
        let done = std::mem::replace(&mut self.segment, next);
        self.done = self.append_only.then(|| done.path().to_owned());
        Ok(())
    }

    /// One write, one sync.
    fn write(&mut self) -> Result<(), AuditError> {
        let path = self.segment.path().to_owned();
        failpoint::pass_io("audit.before_write").at(&path)?;
        self.segment.add(&self.out);
        match failpoint::short_write("audit.write") {
            Some(bytes) => self.segment.write_short(bytes).at(&path)?,
            None => self.segment.write().at(&path)?,
        }
        failpoint::pass_io("audit.sync").and_then(|()| self.segment.sync()).at(&path)?;
        files::check_dir(self.layout.dir())?;
        self.segment.check_place()?;
        self.shared.segment_syncs.fetch_add(1, Ordering::Relaxed);
        if let Some(done) = self.done.take() {
            files::make_append_only(&done);
        }
        if self.segment.end() > self.segment.len() / 2 {
            self.spare.prepare(self.segment_bytes);
        }
        Ok(())
    }

    fn publish(&self, placed: &[Placed]) {
        let mut subscribers = self.shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        if subscribers.is_empty() {
            return;
        }
        for record in placed {
            let mut durable = None;
            subscribers.retain(|subscriber| {
                if !(subscriber.wanted)(record.name) {
                    return true;
                }
                let durable = durable.get_or_insert_with(|| DurableRecord {
                    bytes: self.out[record.body.clone()].into(),
                    seq: record.seq,
                    name: record.name,
                });
                subscriber.sender.send(durable.clone()).is_ok()
            });
        }
    }

    fn wake(&self, parcels: &mut Vec<Parcel>, mut seq: u64, time: Timestamp) {
        for parcel in parcels.drain(..) {
            let first_seq = seq;
            seq += parcel.records() as u64;
            if let Some(last) = parcel.trail.drafts().last() {
                let id: EventId = last.id;
                parcel.waiter.tell(Ok(Receipt { log: self.log, first_seq, seq: seq - 1, id, time }));
            }
        }
    }

    /// AUD-3, AUD-26, AUD-64: nobody who waits, and nobody who comes later, is told that anything is durable. If the
    /// disk is merely full, how calls under way ended is still written, into what was kept back for that (AUD-63).
    fn give_up(mut self, error: &AuditError, waiting: impl Iterator<Item = Parcel>) {
        let blocked = AuditBlocked::by(error);
        tracing::error!(code = "MP-FH-010", "{blocked}");
        let waiting: Vec<Parcel> = waiting.collect();
        let withheld = waiting.iter().filter(|parcel| !matches!(parcel.waiter, Waiter::Nobody)).count();
        let note =
            json!({"first_error": error.to_string(), "since": self.clock.now(), "withheld_calls": withheld});
        let first =
            self.shared.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(note).clone();
        let ending = error.is_disk_full() && self.use_reserve(&blocked.reason);
        // For the first record after recovery. The disk may refuse this as well; the error above was said.
        let _ = files::replace(&self.layout.failure(), first.to_string().as_bytes());
        if ending {
            self.shared.queue.end(&blocked);
        } else {
            self.shared.queue.block(&blocked);
        }
        for parcel in waiting {
            parcel.waiter.tell(Err(blocked.clone()));
        }
        while let Some(owed) = self.shared.queue.take_owed() {
            if let Err(error) = self.say(&owed) {
                tracing::error!(code = "MP-FH-010", "not even how calls ended can be recorded: {error}");
                // Still owed: it is said when the log is unblocked, or closed as unknown at the next start.
                let mut owed = owed;
                self.shared.queue.owe(&mut owed);
                self.shared.queue.block(&blocked);
            }
        }
    }

    /// Gives the reserve back to the disk, looks where the log really ends, and says there that it is blocked.
    fn use_reserve(&mut self, reason: &str) -> bool {
        if !reserve::release(&self.layout.reserve()) {
            return false;
        }
        let said = self.reopen().and_then(|()| {
            let mut events = repaired(&self.layout)?;
            let data = json!({"reason": portcullis_core::error::one_line(reason)});
            events.1.push(Event::new(EventName::AuditBlocked, &Actor::system()).data(data));
            self.say(&events.1)?;
            events.0.iter().try_for_each(|pending| recovery::settle(pending))
        });
        if let Err(error) = &said {
            tracing::error!(code = "MP-FH-010", "the reserve did not help: {error}");
        }
        said.is_ok()
    }

    /// AUD-26: descriptors that failed are not used again. What is really there is read anew.
    fn reopen(&mut self) -> Result<(), AuditError> {
        let gone = || AuditError::Layout { path: self.layout.segments(), problem: "has no segment".into() };
        let tail = recovery::recover(&self.layout, self.log, &(self.promised)())?.ok_or_else(gone)?;
        self.segment = Filling::open(&tail.segment, tail.len, tail.offset)?;
        self.packs = Packs::new(self.layout.clone(), self.pack_bytes);
        tell_of_unacknowledged(&self.shared, &self.layout, &tail)?;
        (self.next_seq, self.head, self.last_time) = (tail.next_seq, tail.head, tail.last_time);
        Ok(())
    }

    /// Commits events of the log's own.
    fn say(&mut self, events: &[Event]) -> Result<(), AuditError> {
        let mut trail = Trail::default();
        for event in events {
            trail
                .push(event, self.log, self.clock.now(), &mut NoEvidence)
                .map_err(|reason| AuditError::Blocked(AuditBlocked::new(reason)))?;
        }
        self.turn(&mut vec![Parcel { trail, objects: Vec::new(), waiter: Waiter::Nobody }])
    }
}

/// The tails that were cut and are not on record: their files, and the events that tell of them.
pub(crate) fn repaired(layout: &Layout) -> Result<(Vec<PathBuf>, Vec<Event>), AuditError> {
    let tell = |(pending, repair)| {
        (pending, Event::new(EventName::AuditTailRepaired, &Actor::system()).data(repair))
    };
    Ok(recovery::pending_repairs(layout)?.into_iter().map(tell).unzip())
}

/// A turn that failed may be on the disk all the same: nobody was told that it is durable, but it is in the log. Those
/// who follow the log, and its tree, must have it too.
pub(crate) fn tell_of_unacknowledged(
    shared: &Shared,
    layout: &Layout,
    tail: &Tail,
) -> Result<(), AuditError> {
    let known = shared.next_seq.load(Ordering::Acquire);
    if tail.next_seq > known {
        let records = read::raw_from(layout.dir(), known)?.collect::<Result<Vec<_>, _>>()?;
        let records = &records[..records.len().min((tail.next_seq - known) as usize)];
        shared.leaves.add(records.iter().map(read::RawRecord::leaf));
        let mut subscribers = shared.subscribers.lock().unwrap_or_else(PoisonError::into_inner);
        for record in records {
            let name = record.parse()?.event;
            let durable = DurableRecord { bytes: record.bytes.as_slice().into(), seq: record.seq, name };
            subscribers.retain(|one| !(one.wanted)(name) || one.sender.send(durable.clone()).is_ok());
        }
    }
    shared.next_seq.store(tail.next_seq, Ordering::Release);
    shared.last_time.store(tail.last_time.as_millis(), Ordering::Release);
    Ok(())
}

/// A defect in the committer must not leave callers queueing for nobody.
struct Fuse(Arc<Shared>);

impl Drop for Fuse {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.block(&AuditBlocked::new("the audit committer failed; restart the gateway"));
        }
    }
}

/// How many of the parcels go into the next turn: at least one.
fn turn_len(parcels: &[Parcel]) -> usize {
    let (mut records, mut bytes) = (0, 0);
    let more = parcels.iter().take_while(|parcel| {
        records += parcel.records();
        bytes += parcel.bytes();
        records <= MAX_TURN_RECORDS && bytes + COMMIT_LEN <= MAX_TURN_BYTES
    });
    more.count().max(1)
}

/// For events of the log's own, which have none.
pub(crate) struct NoEvidence;

impl crate::event::Sealer for NoEvidence {
    fn seal(&mut self, _: Role, _: RetentionClass, _: &Context, _: &[u8]) -> Result<EvidenceRef, String> {
        Err("the committer has no evidence of its own".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_committer_that_panics_leaves_the_log_blocked_and_not_waiting() {
        // AUD-3
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let panicked = std::thread::spawn(move || {
            let _fuse = Fuse(theirs);
            panic!("a defect");
        });
        assert!(panicked.join().is_err());
        assert!(shared.queue.blocked().is_some());
        let parcel = Parcel { trail: Trail::default(), objects: Vec::new(), waiter: Waiter::Nobody };
        assert!(shared.queue.push(parcel).is_err());
        drop(Fuse(Arc::new(Shared::default())));
    }
}
