//! Who waits for which answer.
//!
//! A call that is over because its caller gave up leaves a trace for a while, so that its answer, when it comes
//! after all, is known to be late and not taken for something nobody asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_governance::boundary::{OfCall, Outcome, TransmitFailure};
use tokio::sync::{Notify, oneshot};

use crate::beside::{Attendant, Beside};

/// How many abandoned calls are remembered.
const REMEMBERED: usize = 1_024;

/// The table of calls under way on one connection.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    table: Mutex<Table>,
    idle: Notify,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<u64, Waiting>,
    abandoned: VecDeque<(u64, Option<OfCall>)>,
    closed: Option<String>,
}

/// A call that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) reply: oneshot::Sender<Outcome>,
    pub(crate) max_response_bytes: usize,
    attendant: Attendant,
    call: Option<OfCall>,
}

/// Who could be meant by what does not say which call it belongs to.
#[derive(Debug)]
pub(crate) enum Attending {
    /// There is no call.
    Nobody,
    /// There is one.
    One(Arc<dyn Beside>),
    /// It could be any of several, so it is none.
    Several,
}

/// Whose answer this is.
#[derive(Debug)]
pub(crate) enum Addressee {
    Waiting(Waiting),
    /// Nobody's any more; it was this call's.
    GaveUp(Option<OfCall>),
    Nobody,
}

impl Pending {
    /// Waits for the answer to `id`; the error says why this connection takes no more calls.
    pub(crate) fn register(
        &self,
        id: u64,
        max_response_bytes: usize,
        attendant: Attendant,
        call: Option<OfCall>,
    ) -> Result<oneshot::Receiver<Outcome>, String> {
        let mut table = self.lock();
        if let Some(reason) = &table.closed {
            return Err(reason.clone());
        }
        if table.waiting.contains_key(&id) {
            return Err("the request id is in use".into());
        }
        let (reply, receiver) = oneshot::channel();
        table.waiting.insert(id, Waiting { reply, max_response_bytes, attendant, call });
        Ok(receiver)
    }

    /// Who attends to the call `id`.
    pub(crate) fn attendant(&self, id: u64) -> Attendant {
        self.lock().waiting.get(&id).and_then(|waiting| waiting.attendant.clone())
    }

    /// Who attends to the one call under way, if it is one.
    pub(crate) fn attending(&self) -> Attending {
        let table = self.lock();
        let mut attended = table.waiting.values().filter_map(|waiting| waiting.attendant.as_ref());
        match (attended.next(), attended.next()) {
            (None, _) => Attending::Nobody,
            (Some(attendant), None) => Attending::One(Arc::clone(attendant)),
            (Some(_), Some(_)) => Attending::Several,
        }
    }

    /// Whoever waits for `id` waits no longer.
    pub(crate) fn take(&self, id: u64) -> Addressee {
        let mut table = self.lock();
        if let Some(waiting) = table.waiting.remove(&id) {
            self.tell_if_idle(&table);
            return Addressee::Waiting(waiting);
        }
        match table.abandoned.iter().position(|(known, _)| *known == id) {
            Some(at) => Addressee::GaveUp(table.abandoned.remove(at).and_then(|(_, call)| call)),
            None => Addressee::Nobody,
        }
    }

    /// Gives up on `id`; whether it was still waited for.
    pub(crate) fn abandon(&self, id: u64) -> bool {
        let mut table = self.lock();
        let waiting = table.waiting.remove(&id);
        let waited = waiting.is_some();
        if let Some(waiting) = waiting {
            if table.abandoned.len() == REMEMBERED {
                table.abandoned.pop_front();
            }
            table.abandoned.push_back((id, waiting.call));
            self.tell_if_idle(&table);
        }
        waited
    }

    /// The connection is over: everybody who waits is told, and nobody may wait any more.
    pub(crate) fn close(&self, reason: &str) {
        let mut table = self.lock();
        table.closed.get_or_insert_with(|| reason.to_owned());
        for (_, waiting) in table.waiting.drain() {
            let failure = TransmitFailure::Unavailable { reason: reason.to_owned(), sent: true };
            let _ = waiting.reply.send(Outcome::Failed(failure));
        }
        self.idle.notify_waiters();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Resolves when nobody waits.
    pub(crate) async fn idle(&self) {
        loop {
            let notified = self.idle.notified();
            if self.len() == 0 {
                return;
            }
            notified.await;
        }
    }

    fn tell_if_idle(&self, table: &Table) {
        if table.waiting.is_empty() {
            self.idle.notify_waiters();
        }
    }

    // No step below can panic half-way, so a poisoned table is a whole one.
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_its_caller_once() {
        let pending = Pending::default();
        let _receiver = pending.register(7, 10, None, None).unwrap();
        assert!(pending.register(7, 10, None, None).is_err());
        assert!(matches!(pending.take(7), Addressee::Waiting(_)));
        assert!(matches!(pending.take(7), Addressee::Nobody));
    }

    #[test]
    fn a_late_answer_is_known_as_one_and_the_memory_of_it_is_bounded() {
        let pending = Pending::default();
        for id in 0..2_000 {
            let _receiver = pending.register(id, 10, None, None).unwrap();
            assert!(pending.abandon(id) && !pending.abandon(id));
        }
        assert!(matches!(pending.take(1_999), Addressee::GaveUp(None)));
        assert!(matches!(pending.take(1_999), Addressee::Nobody));
        assert!(matches!(pending.take(0), Addressee::Nobody));
    }

    #[test]
    fn the_end_of_a_connection_reaches_everybody() {
        let pending = Pending::default();
        let mut receiver = pending.register(1, 10, None, None).unwrap();
        pending.close("gone");
        assert!(matches!(
            receiver.try_recv().unwrap(),
            Outcome::Failed(TransmitFailure::Unavailable { sent: true, .. })
        ));
        assert_eq!(pending.register(2, 10, None, None).unwrap_err(), "gone");
    }
}
