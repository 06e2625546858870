//! Servers whose calls take turns (PRO-21): who has the turn, since when, and taking it away from one that does not let go.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::{EventId, Principal, ServerIdentity, Timestamp};
use tokio::sync::OwnedMutexGuard;

/// Who has which turn.
#[derive(Debug, Default)]
pub struct Turns(Mutex<BTreeMap<String, Held>>);

#[derive(Debug)]
struct Held {
    row: TurnRow,
    /// Whoever waits goes on when this goes.
    _turn: OwnedMutexGuard<()>,
}

/// A turn that somebody has.
#[derive(Debug, Clone)]
pub struct TurnRow {
    /// Its id.
    pub lock_id: String,
    /// Who has it.
    pub holder: Principal,
    /// Of which server.
    pub server: ServerIdentity,
    /// Since when.
    pub since: Timestamp,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    id: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.lock().remove(&self.id);
    }
}

impl Turns {
    pub(crate) fn enter(
        self: &Arc<Self>,
        turn: OwnedMutexGuard<()>,
        holder: &Principal,
        server: &ServerIdentity,
        now: Timestamp,
    ) -> Turn {
        let id = format!("lock_{}", EventId::new(now));
        let row = TurnRow { lock_id: id.clone(), holder: holder.clone(), server: server.clone(), since: now };
        self.lock().insert(id.clone(), Held { row, _turn: turn });
        Turn { turns: self.clone(), id }
    }

    /// Those that somebody has, oldest first.
    pub fn list(&self) -> Vec<TurnRow> {
        self.lock().values().map(|held| held.row.clone()).collect()
    }

    /// Takes one away: who waits goes on. What its holder has sent is sent.
    pub(crate) fn release(&self, id: &str) -> Option<TurnRow> {
        self.lock().remove(id).map(|held| held.row)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_that_is_taken_away_goes_to_who_waits() {
        let (turns, serial) = (Arc::new(Turns::default()), Arc::new(tokio::sync::Mutex::new(())));
        let (ann, server): (Principal, ServerIdentity) =
            ("agent:ann".parse().unwrap(), "notes".parse().unwrap());
        let held = turns.enter(serial.clone().lock_owned().await, &ann, &server, Timestamp::from_millis(1));
        assert!(serial.clone().try_lock_owned().is_err());
        let row = turns.list().remove(0);
        assert_eq!(turns.release(&row.lock_id).unwrap().holder, ann);
        assert!(serial.clone().try_lock_owned().is_ok(), "who waits goes on");
        assert!(turns.release(&row.lock_id).is_none());
        drop(held);
        let held = turns.enter(serial.clone().lock_owned().await, &ann, &server, Timestamp::from_millis(2));
        drop(held);
        assert!(turns.list().is_empty() && serial.try_lock_owned().is_ok());
    }
}
