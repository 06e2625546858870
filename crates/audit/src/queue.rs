//! What waits for the committer (AUD-20, AUD-24).
//!
//! Callers put finished trails in, one short lock each; the committer takes everything there is. While it
//! syncs, the next turn collects here by itself, which is all the batching there is.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};

use crate::error::{AuditBlocked, AuditError};
use crate::event::{Event, Trail};
use crate::log::Receipt;
use crate::pack::Sealed;

/// AUD-24.
const MAX_RECORDS: usize = 65_536;
/// Evidence is not bounded by the number of records; memory is.
const MAX_BYTES: usize = 256 << 20;

/// What a waiting caller is told.
pub(crate) type Outcome = Result<Receipt, AuditBlocked>;

/// Who waits for a trail to be durable.
#[derive(Debug)]
pub(crate) enum Waiter {
    Nobody,
    Task(oneshot::Sender<Outcome>),
    Thread(mpsc::SyncSender<Outcome>),
}

impl Waiter {
    pub(crate) fn tell(self, outcome: Outcome) {
        // A caller that gave up waiting is not an error.
        match self {
            Waiter::Nobody => {}
            Waiter::Task(sender) => drop(sender.send(outcome)),
            Waiter::Thread(sender) => drop(sender.send(outcome)),
        }
    }
}

/// One trail with its evidence, to be committed as a whole.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) trail: Trail,
    pub(crate) objects: Vec<Sealed>,
    pub(crate) waiter: Waiter,
}

impl Parcel {
    pub(crate) fn records(&self) -> usize {
        self.trail.drafts().len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.trail.framed_len() + self.objects.iter().map(|object| object.bytes.len()).sum::<usize>()
    }
}

/// Why a parcel was not taken.
#[derive(Debug)]
pub(crate) enum Refused {
    /// There is no room; the parcel comes back.
    Full(Parcel),
    Blocked(AuditBlocked),
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Open,
    /// Nothing more is taken; what is there is still committed.
    Closing,
    /// Something went wrong beside the committer, which has not given up yet: callers are refused already.
    Failing(AuditBlocked),
    /// The disk is full: only how calls under way ended is still written (AUD-63).
    Ending(AuditBlocked),
    /// Nothing will be committed any more.
    Blocked(AuditBlocked),
}

impl State {
    fn blocked(&self) -> Option<&AuditBlocked> {
        match self {
            State::Open | State::Closing => None,
            State::Failing(blocked) | State::Ending(blocked) | State::Blocked(blocked) => Some(blocked),
        }
    }
}

#[derive(Debug, Default)]
struct Waiting {
    parcels: Vec<Parcel>,
    records: usize,
    bytes: usize,
    state: State,
    /// Whether the log is being closed: then nobody waits for what might still be owed.
    closed: bool,
    /// Whether the committer sleeps: only then does somebody have to wake it.
    idle: bool,
    /// Whether somebody was sent away for want of room.
    wanted: bool,
    /// What went wrong before anything reached the committer.
    failure: Option<AuditError>,
    /// How calls ended that the log could not be told of in time.
    owed: Vec<Event>,
}

/// What the committer finds when it looks.
#[derive(Debug)]
pub(crate) enum Taken {
    Parcels,
    /// A caller could not even prepare a trail: the keys could not be stored.
    Failed(AuditError),
    /// Nothing, and nothing will come.
    End,
}

/// The queue.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    work: Condvar,
    room_for_threads: Condvar,
    room_for_tasks: Notify,
}

impl Queue {
    /// Adds a parcel behind all others, or says at once that it cannot.
    pub(crate) fn push(&self, parcel: Parcel) -> Result<(), Refused> {
        self.push_locked(self.lock(), parcel)
    }

    fn push_locked(&self, mut waiting: MutexGuard<'_, Waiting>, parcel: Parcel) -> Result<(), Refused> {
        match &waiting.state {
            State::Open => {}
            State::Closing => return Err(Refused::Blocked(AuditBlocked::new("the audit log is closed"))),
            State::Failing(blocked) | State::Ending(blocked) | State::Blocked(blocked) => {
                return Err(Refused::Blocked(blocked.clone()));
            }
        }
        let (records, bytes) = (parcel.records(), parcel.bytes());
        let fits = waiting.records + records <= MAX_RECORDS && waiting.bytes + bytes <= MAX_BYTES;
        // A parcel larger than the bound itself goes through alone.
        if !fits && !waiting.parcels.is_empty() {
            waiting.wanted = true;
            return Err(Refused::Full(parcel));
        }
        waiting.records += records;
        waiting.bytes += bytes;
        waiting.parcels.push(parcel);
        let wake = std::mem::take(&mut waiting.idle);
        drop(waiting);
        if wake {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Adds a parcel, waiting for room until `deadline`.
    pub(crate) async fn push_async(&self, mut parcel: Parcel, deadline: Instant) -> Result<(), AuditBlocked> {
        loop {
            // Registered before the attempt, so that room made in between is not missed.
            let room = self.room_for_tasks.notified();
            match self.push(parcel) {
                Ok(()) => return Ok(()),
                Err(Refused::Blocked(blocked)) => return Err(blocked),
                Err(Refused::Full(back)) => parcel = back,
            }
            if tokio::time::timeout_at(deadline.into(), room).await.is_err() {
                return Err(full());
            }
        }
    }

    /// Adds a parcel, blocking the thread for room until `deadline`.
    pub(crate) fn push_blocking(&self, mut parcel: Parcel, deadline: Instant) -> Result<(), AuditBlocked> {
        let mut waiting = self.lock();
        loop {
            match self.push_locked(waiting, parcel) {
                Ok(()) => return Ok(()),
                Err(Refused::Blocked(blocked)) => return Err(blocked),
                Err(Refused::Full(back)) => parcel = back,
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(full());
            }
            // Between the attempt and here the lock was free; a wake-up missed then costs one short wait.
            let pause = left.min(Duration::from_millis(20));
            waiting = self
                .room_for_threads
                .wait_timeout(self.lock(), pause)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits for work and takes all of it into `parcels`.
    pub(crate) fn take(&self, parcels: &mut Vec<Parcel>) -> Taken {
        let mut waiting = self.lock();
        loop {
            if let Some(failure) = waiting.failure.take() {
                return Taken::Failed(failure);
            }
            if !waiting.parcels.is_empty() {
                break;
            }
            if !matches!(waiting.state, State::Open) {
                return Taken::End;
            }
            waiting.idle = true;
            waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle = false;
        let wanted = std::mem::take(&mut waiting.wanted);
        std::mem::swap(parcels, &mut waiting.parcels);
        (waiting.records, waiting.bytes) = (0, 0);
        drop(waiting);
        if wanted {
            self.room_for_threads.notify_all();
            self.room_for_tasks.notify_waiters();
        }
        Taken::Parcels
    }

    /// Lets the committer know of a failure that it could not see itself. From now on everybody is refused: whoever
    /// was told that nothing can be recorded must not see the next caller served.
    pub(crate) fn fail(&self, error: AuditError) {
        let mut waiting = self.lock();
        if matches!(waiting.state, State::Open) {
            waiting.state = State::Failing(AuditBlocked::by(&error));
        }
        waiting.failure.get_or_insert(error);
        drop(waiting);
        self.wake_everybody();
    }

    /// Why nothing is taken, if so, once the committer has said its last word about it: only then may another one
    /// take its place.
    pub(crate) fn given_up(&self) -> Option<AuditBlocked> {
        let mut waiting = self.lock();
        while matches!(waiting.state, State::Failing(_)) {
            waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.state.blocked().cloned()
    }

    /// Keeps events for when they can be written, if that is not now.
    pub(crate) fn owe(&self, events: &mut Vec<Event>) -> bool {
        let mut waiting = self.lock();
        let later = waiting.state.blocked().is_some();
        if later {
            waiting.owed.append(events);
            drop(waiting);
            self.work.notify_all();
        }
        later
    }

    /// Waits for something that is owed while the log is ending; `None` when it no longer is.
    pub(crate) fn take_owed(&self) -> Option<Vec<Event>> {
        let mut waiting = self.lock();
        loop {
            if !matches!(waiting.state, State::Ending(_)) {
                return None;
            }
            if !waiting.owed.is_empty() {
                return Some(std::mem::take(&mut waiting.owed));
            }
            waiting = self.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Everything that is owed.
    pub(crate) fn owed(&self) -> Vec<Event> {
        std::mem::take(&mut self.lock().owed)
    }

    /// Takes parcels again, `first` before all others (AUD-64).
    pub(crate) fn reopen(&self, first: Parcel) {
        let mut waiting = self.lock();
        (waiting.records, waiting.bytes) = (first.records(), first.bytes());
        waiting.parcels = vec![first];
        waiting.failure = None;
        waiting.state = State::Open;
    }

    /// Takes nothing more, lets the committer finish.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        match &waiting.state {
            State::Open => waiting.state = State::Closing,
            State::Ending(blocked) => waiting.state = State::Blocked(blocked.clone()),
            // One that fails ends by that.
            State::Closing | State::Failing(_) | State::Blocked(_) => {}
        }
        drop(waiting);
        self.wake_everybody();
    }

    /// Takes nothing more and refuses everything that waits (AUD-26).
    pub(crate) fn block(&self, blocked: &AuditBlocked) {
        self.refuse(State::Blocked(blocked.clone()), blocked);
    }

    /// [`block`](Queue::block), but how calls under way ended is still written (AUD-63).
    pub(crate) fn end(&self, blocked: &AuditBlocked) {
        self.refuse(State::Ending(blocked.clone()), blocked);
    }

    fn refuse(&self, state: State, blocked: &AuditBlocked) {
        let mut waiting = self.lock();
        waiting.state = if waiting.closed { State::Blocked(blocked.clone()) } else { state };
        let refused = std::mem::take(&mut waiting.parcels);
        (waiting.records, waiting.bytes) = (0, 0);
        drop(waiting);
        for parcel in refused {
            parcel.waiter.tell(Err(blocked.clone()));
        }
        self.wake_everybody();
    }

    /// Why nothing is taken, if so.
    pub(crate) fn blocked(&self) -> Option<AuditBlocked> {
        self.lock().state.blocked().cloned()
    }

    fn wake_everybody(&self) {
        self.work.notify_all();
        self.room_for_threads.notify_all();
        self.room_for_tasks.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn full() -> AuditBlocked {
    AuditBlocked::new("the audit queue is full and the disk does not keep up")
}
