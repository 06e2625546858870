//! Who reads lists: what somebody is not shown, and who has read which kind of list lately.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portcullis_core::Principal;

use crate::exposure::Mode;

/// Names of tools that somebody is not shown.
pub(crate) type Hidden = BTreeSet<String>;

/// Who was here in this long counts.
const LATELY: Duration = Duration::from_secs(3_600);
/// No more readers than this are remembered.
const MOST: usize = 4_096;

/// One reader of one kind of list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) profile: String,
    pub(crate) mode: Mode,
    pub(crate) principal: Principal,
}

/// Who read what when; for measures (SURF-52).
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<HashMap<Read, Instant>>);

impl Readers {
    /// A list was read.
    pub(crate) fn note(&self, read: Read) {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() >= MOST && !readers.contains_key(&read) {
            readers.retain(|_, at| at.elapsed() <= LATELY);
        }
        if readers.len() < MOST || readers.contains_key(&read) {
            readers.insert(read, Instant::now());
        }
    }

    /// Who read lists in the last hour.
    pub(crate) fn lately(&self) -> Vec<Read> {
        let readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = readers.iter().filter(|(_, at)| at.elapsed() <= LATELY);
        recent.map(|(read, _)| read.clone()).collect()
    }
}
