//! What security keys are asked to sign (GOV-104): something never asked before, for a short time, once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use portcullis_core::digest::to_hex;
use rand::RngExt as _;

/// How long somebody has to find the key and touch it.
const LIFE: Duration = Duration::from_secs(120);
/// Challenges kept at most; the oldest goes first.
const MOST: usize = 1_000;

/// Challenges that were given out and not answered yet, with whom each was given to.
#[derive(Debug, Default)]
pub(crate) struct Challenges(Mutex<HashMap<String, (String, Instant)>>);

impl Challenges {
    /// A new one.
    pub(crate) fn give(&self, to: &str, now: Instant) -> String {
        let random = to_hex(&rand::rng().random::<[u8; 32]>());
        let mut given = self.lock();
        given.retain(|_, (_, at)| now.duration_since(*at) < LIFE);
        if given.len() >= MOST {
            let oldest = given.iter().min_by_key(|(_, (_, at))| *at).map(|(random, _)| random.clone());
            oldest.map(|random| given.remove(&random));
        }
        given.insert(random.clone(), (to.to_owned(), now));
        random
    }

    /// Whether one was given to them, lately, and not answered yet. It is answered now.
    pub(crate) fn take(&self, random: &str, from: &str, now: Instant) -> bool {
        let mut given = self.lock();
        if given.get(random).is_none_or(|(to, _)| to != from) {
            return false;
        }
        given.remove(random).is_some_and(|(_, at)| now.duration_since(at) < LIFE)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_once_soon_and_by_whom_it_was_given_to() {
        // GOV-104
        let (challenges, now) = (Challenges::default(), Instant::now());
        let one = challenges.give("alice", now);
        assert!(!challenges.take(&one, "bob", now) && !challenges.take("", "alice", now));
        assert!(challenges.take(&one, "alice", now) && !challenges.take(&one, "alice", now));
        let late = challenges.give("alice", now);
        assert!(!challenges.take(&late, "alice", now + LIFE));
        let first = challenges.give("alice", now);
        for _ in 0..MOST {
            challenges.give("bob", now + Duration::from_secs(1));
        }
        assert!(!challenges.take(&first, "alice", now), "the oldest made room");
        assert_eq!(challenges.lock().len(), MOST);
    }
}
