//! How many streams an agent has open at once (PRO-31). Each holds a connection and memory here, and one agent must not take
//! all there are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::Principal;

use super::HttpLimits;

/// The places there are, and who has them.
#[derive(Debug)]
pub(crate) struct Places {
    /// For each agent.
    most: AtomicUsize,
    taken: Mutex<HashMap<Principal, usize>>,
}

/// A place, free again when it is dropped: with the body of the response that streams.
#[derive(Debug)]
pub(super) struct Place {
    of: Arc<Places>,
    principal: Principal,
}

impl Default for Places {
    fn default() -> Self {
        Self { most: HttpLimits::default().streams.into(), taken: Mutex::default() }
    }
}

impl Places {
    pub(super) fn set_most(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    /// `None` if the agent has as many as it may have.
    pub(super) fn take(self: &Arc<Self>, principal: &Principal) -> Option<Place> {
        let most = self.most.load(Ordering::Relaxed);
        let mut taken = self.lock();
        let count = taken.entry(principal.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place { of: self.clone(), principal: principal.clone() })
    }

    /// Whether the agent could have one more, for what had better be known before.
    pub(super) fn has_room(&self, principal: &Principal) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        self.lock().get(principal).is_none_or(|taken| *taken < most)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Principal, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Entry::Occupied(mut taken) = self.of.lock().entry(self.principal.clone()) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_an_agent_s_own_and_come_back() {
        // PRO-31
        let (places, ann, bob) =
            (Arc::new(Places::default()), "agent:ann".parse().unwrap(), "agent:bob".parse().unwrap());
        places.set_most(2);
        let first = places.take(&ann).unwrap();
        let _second = places.take(&ann).unwrap();
        assert!(places.take(&ann).is_none());
        assert!(places.take(&bob).is_some());
        drop(first);
        assert!(places.take(&ann).is_some());
        assert_eq!(places.lock().len(), 1, "nobody without a stream is remembered");
    }
}
