//! When a server is looked at again: because it says that it changed, and because time has passed (GOV-501, CTX-94).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// How often servers that say that they changed are looked at (CTX-94).
#[derive(Debug, Clone, Copy)]
pub struct Refresh {
    /// What a server says within this time of the last look waits for the next.
    pub debounce: Duration,
    /// However much it says, it is looked at this often in a minute.
    pub most_per_minute: usize,
}

impl Default for Refresh {
    fn default() -> Self {
        Self { debounce: Duration::from_secs(2), most_per_minute: 6 }
    }
}

/// When one server was looked at, and when it will be.
#[derive(Debug)]
pub(super) struct Attention {
    refresh: Refresh,
    looked: VecDeque<Instant>,
    due: Option<Instant>,
    /// Time has passed since this.
    since: Instant,
    /// Somebody is looking.
    busy: bool,
}

impl Attention {
    pub(super) fn new(now: Instant, refresh: Refresh) -> Self {
        Self { refresh, looked: VecDeque::new(), due: None, since: now, busy: false }
    }

    /// The server says that it changed. The last time it says so is never forgotten.
    pub(super) fn called(&mut self, now: Instant) {
        while self.looked.front().is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            self.looked.pop_front();
        }
        let after_last = self.looked.back().map_or(now, |last| *last + self.refresh.debounce);
        let after_most =
            self.looked.len().checked_sub(self.refresh.most_per_minute).and_then(|at| self.looked.get(at));
        let after_most = after_most.map_or(now, |at| *at + WINDOW);
        self.due.get_or_insert(after_last.max(after_most).max(now));
    }

    /// Whether to look now; then somebody does. `max_age` is how old the last look may be.
    pub(super) fn begin(&mut self, now: Instant, max_age: Duration) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now) || now.duration_since(self.since) >= max_age;
        if self.busy || !is_due {
            return false;
        }
        (self.due, self.since, self.busy) = (None, now, true);
        self.looked.push_back(now);
        true
    }

    /// Somebody has looked.
    pub(super) fn done(&mut self) {
        self.busy = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(900);

    /// When a server is looked at that says every tenth of a second that it changed, for so many seconds.
    fn looks(seconds: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut attention = Attention::new(start, Refresh::default());
        let mut looks = Vec::new();
        for tenth in 0..(seconds + 120) * 10 {
            let now = start + Duration::from_millis(tenth * 100);
            if tenth < seconds * 10 {
                attention.called(now);
            }
            if attention.begin(now, LONG) {
                looks.push(tenth / 10);
                attention.done();
            }
        }
        looks
    }

    #[test]
    fn a_storm_is_looked_at_at_once_then_seldom_and_once_more_at_its_end() {
        // CTX-94, T-DYN-1
        assert_eq!(looks(1), [0, 2], "the last word counts");
        assert_eq!(looks(30), [0, 2, 4, 6, 8, 10, 60], "six in a minute");
        let hour = looks(3600);
        assert!(hour.windows(7).all(|seven| seven[6] - seven[0] >= 60), "{hour:?}");
        assert!(hour.len() > 300 && *hour.last().unwrap() >= 3600);
    }

    #[test]
    fn a_silent_server_is_looked_at_when_time_has_passed_and_by_one_at_a_time() {
        // GOV-501, GOV-502
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut attention = Attention::new(start, Refresh::default());
        let age = Duration::from_secs(5);
        assert!(!attention.begin(at(4), age) && attention.begin(at(5), age));
        attention.called(at(6));
        assert!(!attention.begin(at(60), age), "somebody is looking");
        attention.done();
        assert!(attention.begin(at(60), age));
    }
}
