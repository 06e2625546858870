//! What gates come to, for who watches them (SURF-52): verdicts with their reasons, and how long documents took.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::gate::Verdict;

/// Where the buckets end, in milliseconds.
const BUCKETS: [u64; 7] = [5, 10, 50, 100, 500, 1_000, 2_000];

/// One gate's counts since the start.
#[derive(Debug, Default)]
pub struct Meter(Mutex<Reading>);

/// What a meter shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// How often it came to which verdict for which reason; no reason is the empty one.
    pub verdicts: BTreeMap<(&'static str, String), u64>,
    /// How long documents took, all of them together.
    pub spent: Duration,
    counts: [u64; BUCKETS.len() + 1],
}

impl Meter {
    /// One evaluation, and how long its document took.
    pub fn count(&self, verdict: Verdict, reason: &str, spent: Duration) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reading.verdicts.entry((verdict.as_str(), reason.to_owned())).or_default() += 1;
        reading.spent += spent;
        let at = BUCKETS.iter().position(|limit| spent <= Duration::from_millis(*limit));
        reading.counts[at.unwrap_or(BUCKETS.len())] += 1;
    }

    /// What there is so far.
    pub fn read(&self) -> Reading {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Reading {
    /// How many evaluations there were.
    pub fn evaluations(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many documents took no longer than each limit; without a limit, all.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let limits = BUCKETS.iter().map(|limit| Some(Duration::from_millis(*limit))).chain([None]);
        let mut total = 0;
        limits.zip(self.counts).map(move |(limit, count)| {
            total += count;
            (limit, total)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_by_reason_and_documents_by_how_long_they_took() {
        // SURF-52
        let meter = Meter::default();
        meter.count(Verdict::Deny, "", Duration::from_millis(7));
        meter.count(Verdict::SourceError, "timeout", Duration::from_secs(3));
        meter.count(Verdict::SourceError, "timeout", Duration::from_millis(50));
        let reading = meter.read();
        assert_eq!(reading.verdicts[&("source_error", "timeout".to_owned())], 2);
        assert_eq!(reading.verdicts[&("deny", String::new())], 1);
        assert_eq!((reading.evaluations(), reading.spent), (3, Duration::from_millis(3_057)));
        let within: Vec<u64> = reading.buckets().map(|(_, count)| count).collect();
        assert_eq!(within, [0, 1, 2, 2, 2, 2, 2, 3]);
    }
}
