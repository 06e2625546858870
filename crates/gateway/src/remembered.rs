//! Answers that are given again (CTX-92): to the same agent, of tools that the operator named and whose declaration says
//! that they only read and may be repeated. What a server hints at never qualifies.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_core::RegistrationEpoch;
use portcullis_gauntlet::{Glob, SafeResult};
use portcullis_governance::declaration::{Idempotency, SideEffect};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::request::Fingerprint;
use portcullis_upstream::Era;

/// An answer longer than this is not kept: with the usual number of entries, all of them fit into 64 MiB.
const LONGEST: usize = 256 * 1024;

/// The settings of `[calls.cache]`.
#[derive(Debug, Clone)]
pub struct CacheOptions {
    /// Which tools' answers are kept: none by default.
    pub allow: Vec<Glob>,
    /// For how long.
    pub ttl: Duration,
    /// How many; the one that was asked for longest ago goes first.
    pub max_entries: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { allow: Vec::new(), ttl: Duration::from_secs(60), max_entries: 256 }
    }
}

/// An answer as it was given.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) result: SafeResult,
    pub(crate) era: Era,
    /// Where it is on record.
    pub(crate) event: String,
}

/// The answers there are.
#[derive(Debug)]
pub(crate) struct Remembered {
    options: CacheOptions,
    answers: Mutex<HashMap<Fingerprint, Answer>>,
}

#[derive(Debug)]
struct Answer {
    kept: Kept,
    /// The life of the server that it was given in.
    epoch: RegistrationEpoch,
    since: Duration,
    asked: Duration,
}

impl Remembered {
    pub(crate) fn new(options: CacheOptions) -> Self {
        Self { options, answers: Mutex::default() }
    }

    /// Whether answers of this tool may be given again.
    pub(crate) fn concerns(&self, entry: &ToolEntry) -> bool {
        // Most gateways keep nothing, and find that out here.
        !self.options.allow.is_empty()
            && entry.tool.side_effects().iter().all(|effect| *effect == SideEffect::Read)
            && entry.tool.idempotency() == Idempotency::Idempotent
            && self.options.allow.iter().any(|tools| tools.matches(entry.tool.id().short()))
    }

    /// The answer to a request, if there is one. The fingerprint is that of one agent, one accepted definition and one
    /// set of arguments.
    pub(crate) fn answer_to(
        &self,
        request: Fingerprint,
        epoch: RegistrationEpoch,
        now: Duration,
    ) -> Option<Kept> {
        let mut answers = self.answers();
        let answer = answers.get_mut(&request)?;
        if answer.epoch != epoch || now.saturating_sub(answer.since) >= self.options.ttl {
            answers.remove(&request);
            return None;
        }
        answer.asked = now;
        Some(answer.kept.clone())
    }

    /// Keeps an answer. Failures are not answers.
    pub(crate) fn keep(&self, request: Fingerprint, epoch: RegistrationEpoch, kept: Kept, now: Duration) {
        if kept.result.is_error() || kept.result.json().len() > LONGEST || self.options.max_entries == 0 {
            return;
        }
        let mut answers = self.answers();
        answers.retain(|_, answer| now.saturating_sub(answer.since) < self.options.ttl);
        if answers.len() >= self.options.max_entries && !answers.contains_key(&request) {
            let oldest = answers.iter().min_by_key(|(_, answer)| answer.asked).map(|(request, _)| *request);
            oldest.map(|oldest| answers.remove(&oldest));
        }
        answers.insert(request, Answer { kept, epoch, since: now, asked: now });
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<Fingerprint, Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_settings_keep_nothing() {
        // CTX-92
        let options = CacheOptions::default();
        assert_eq!((options.allow.len(), options.ttl.as_secs(), options.max_entries), (0, 60, 256));
    }
}
