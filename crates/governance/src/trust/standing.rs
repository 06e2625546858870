//! One record of trust: what was counted, and what it is worth.

use std::collections::BTreeSet;

use portcullis_core::{SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::registry::Trust;
use crate::request::Fingerprint;

/// Sessions that count on one day.
const SESSIONS_A_DAY: usize = 3;
/// Distinct requests that count on one day: beyond that nothing more could be earned, and memory is bounded.
const PRINTS_A_DAY: usize = 1000;
const DAY_MS: u64 = 24 * 3600 * 1000;

/// The standing of one tool, or of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// What was recorded; the tier may hold it lower.
    pub state: Trust,
    /// Distinct requests per day that came to a clean end, since the last reset.
    pub clean: u64,
    /// Days with one.
    pub days: u64,
    /// Sessions with one, three a day at most.
    pub sessions: u64,
    /// How often it was demoted for a violation.
    pub violations: u64,
    /// Rises with each demotion.
    pub reset_epoch: u64,
    /// Since when it is in its state.
    pub since: Timestamp,
    /// The record that last changed anything.
    pub last_event: u64,
    /// What a violation left of the score before it.
    carried: u64,
    day: u64,
    prints: BTreeSet<Fingerprint>,
    in_sessions: BTreeSet<SessionId>,
}

impl Standing {
    /// Where everything starts (GOV-1101).
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: Trust::Untrusted,
            clean: 0,
            days: 0,
            sessions: 0,
            violations: 0,
            reset_epoch: 0,
            since: now,
            last_event: 0,
            carried: 0,
            day: 0,
            prints: BTreeSet::new(),
            in_sessions: BTreeSet::new(),
        }
    }

    /// `min(100, 2*clean + 5*days + 5*sessions)` (GOV-1103).
    pub fn score(&self) -> u64 {
        self.earned().min(100)
    }

    /// The score without its cap: what thresholds that doubled are compared with, which could not be reached otherwise.
    fn earned(&self) -> u64 {
        self.carried + 2 * self.clean + 5 * self.days + 5 * self.sessions
    }

    /// The state it has earned; `Trusted` takes an operator besides (GOV-1104).
    pub fn eligible(&self) -> Trust {
        let times = 1 << self.violations.min(3);
        let has = |score: u64, clean: u64, days: u64| {
            self.earned() >= score * times && self.clean >= clean * times && self.days >= days * times
        };
        if has(90, 50, 7) {
            Trust::Trusted
        } else if has(40, 10, 0) {
            Trust::Probationary
        } else {
            Trust::Untrusted
        }
    }

    /// What is missing for `state`, in words.
    pub fn missing_for(&self, state: Trust) -> String {
        let times = 1 << self.violations.min(3);
        let (score, clean, days) = match state {
            Trust::Trusted => (90, 50, 7),
            _ => (40, 10, 0),
        };
        format!(
            "it has score {}, {} clean executions on {} days; {} takes score {}, {} and {}",
            self.earned(),
            self.clean,
            self.days,
            state.as_str(),
            score * times,
            clean * times,
            days * times
        )
    }

    /// A clean execution; whether it counts.
    pub(super) fn clean(
        &mut self,
        fingerprint: Fingerprint,
        session: SessionId,
        now: Timestamp,
        seq: u64,
    ) -> bool {
        self.turn_to(now);
        if self.prints.len() >= PRINTS_A_DAY || !self.prints.insert(fingerprint) {
            self.in_session(session);
            return false;
        }
        self.add(session, seq);
        true
    }

    /// A clean execution of one of a server's tools.
    pub(super) fn clean_of_tool(&mut self, counted: bool, session: SessionId, now: Timestamp, seq: u64) {
        self.turn_to(now);
        if counted {
            self.add(session, seq);
        } else {
            self.in_session(session);
        }
    }

    fn add(&mut self, session: SessionId, seq: u64) {
        if self.in_sessions.is_empty() {
            self.days += 1;
        }
        self.clean += 1;
        self.last_event = seq;
        self.in_session(session);
    }

    fn in_session(&mut self, session: SessionId) {
        if self.clean > 0 && self.in_sessions.len() < SESSIONS_A_DAY && self.in_sessions.insert(session) {
            self.sessions += 1;
        }
    }

    fn turn_to(&mut self, now: Timestamp) {
        let day = now.as_millis() / DAY_MS;
        if day != self.day {
            self.day = day;
            self.prints.clear();
            self.in_sessions.clear();
        }
    }

    /// What was counted last turned out not to be clean.
    pub(super) fn take_back(&mut self) {
        self.clean = self.clean.saturating_sub(1);
    }

    pub(super) fn reach(&mut self, state: Trust, now: Timestamp, seq: u64) {
        self.state = state;
        self.since = now;
        self.last_event = seq;
    }

    /// Back to the start; half of the score stays if policy says so.
    pub(super) fn reset(&mut self, halve: bool, now: Timestamp, seq: u64) {
        let carried = if halve { self.score() / 2 } else { 0 };
        *self = Self {
            carried,
            violations: self.violations,
            reset_epoch: self.reset_epoch + 1,
            last_event: seq,
            ..Self::new(now)
        };
    }

    /// GOV-1105.
    pub(super) fn violated(&mut self, halve: bool, now: Timestamp, seq: u64) {
        self.reset(halve, now, seq);
        self.violations += 1;
    }
}
