//! How often and how much: limits on calls and on what models read, and how often a failed call is made again (CTX-91, 93).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use portcullis_context::Encoding;
use portcullis_core::error::ErrorDocument;
use portcullis_core::{ErrorCode, Principal, SessionId};
use portcullis_gauntlet::Glob;
use rand::RngExt as _;

use crate::remembered::CacheOptions;

/// The window of everything that is counted by the minute.
const MINUTE: Duration = Duration::from_secs(60);
/// Up to this many bytes tokens are counted exactly; above, three bytes are one.
const EXACT_BYTES: usize = 4 * 1024;
/// Sessions that are remembered; the one that was used longest ago is forgotten.
const MOST_SESSIONS: usize = 20_000;

/// The settings of `[calls]`. Zero means no limit.
#[derive(Debug, Clone)]
pub struct CallOptions {
    /// Calls of one principal in sixty seconds.
    pub calls_per_minute: u64,
    /// Calls of one session.
    pub calls_per_session: u64,
    /// Tokens shown to one principal in sixty seconds.
    pub tokens_per_minute: u64,
    /// Tokens shown in one session.
    pub tokens_per_session: u64,
    /// Calls of one principal to one of these tools in sixty seconds; the first that matches counts.
    pub tools: Vec<(Glob, u64)>,
    /// How often a call is attempted at most.
    pub max_attempts: u32,
    /// Which answers are given again.
    pub cache: CacheOptions,
    /// Whether arguments that are nearly right are repaired (CTX-90).
    pub tolerant_args: bool,
    /// What a thousand tokens of results cost, in millionths: what quotas of `cost_micros` count.
    pub token_price_micros: u64,
    /// How long a client may take to answer what a server asks it (PRO §4).
    pub answer_timeout: Duration,
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            calls_per_minute: 0,
            calls_per_session: 0,
            tokens_per_minute: 0,
            tokens_per_session: 0,
            tools: Vec::new(),
            max_attempts: 1,
            cache: CacheOptions::default(),
            tolerant_args: false,
            token_price_micros: 0,
            answer_timeout: Duration::from_secs(5 * 60),
        }
    }
}

/// Counts calls and tokens.
#[derive(Debug)]
pub(crate) struct Controls {
    options: Arc<ArcSwap<CallOptions>>,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    calls: HashMap<Principal, Window>,
    tools: HashMap<(Principal, String), Window>,
    tokens: HashMap<Principal, Window>,
    sessions: HashMap<SessionId, Totals>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    calls: u64,
    tokens: u64,
    used: Duration,
}

/// What happened in the last sixty seconds.
#[derive(Debug, Default)]
struct Window {
    events: VecDeque<(Duration, u64)>,
    sum: u64,
}

impl Window {
    fn forget(&mut self, now: Duration) {
        while let Some((at, amount)) = self.events.front().copied() {
            if now.saturating_sub(at) < MINUTE {
                break;
            }
            self.sum -= amount;
            self.events.pop_front();
        }
    }

    fn add(&mut self, now: Duration, amount: u64) {
        self.events.push_back((now, amount));
        self.sum += amount;
    }

    /// How long until there is room again, if there is none.
    fn full(&mut self, now: Duration, limit: u64) -> Option<Duration> {
        self.forget(now);
        if limit == 0 || self.sum < limit {
            return None;
        }
        // The oldest that must go for the sum to fall below the limit.
        let mut left = self.sum;
        for (at, amount) in &self.events {
            left -= amount;
            if left < limit {
                return Some(MINUTE.saturating_sub(now.saturating_sub(*at)));
            }
        }
        Some(MINUTE)
    }
}

impl Controls {
    pub(crate) fn new(options: CallOptions) -> Self {
        Self { options: Arc::new(ArcSwap::from_pointee(options)), counted: Mutex::default() }
    }

    /// Where the limits are, for who changes them.
    pub(crate) fn limits(&self) -> Arc<ArcSwap<CallOptions>> {
        self.options.clone()
    }

    /// How long a client may take to answer what a server asks it.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.options.load().answer_timeout
    }

    /// Counts a call, or says which limit it would break. What is refused counts for nothing.
    pub(crate) fn admit(
        &self,
        principal: &Principal,
        session: SessionId,
        tool: &str,
        now: Duration,
    ) -> Result<(), ErrorDocument> {
        self.judge(principal, session, tool, now, true)
    }

    /// [`admit`](Controls::admit) without counting: what would happen (CTX-73).
    pub(crate) fn would_admit(
        &self,
        principal: &Principal,
        session: SessionId,
        tool: &str,
        now: Duration,
    ) -> Result<(), ErrorDocument> {
        self.judge(principal, session, tool, now, false)
    }

    fn judge(
        &self,
        principal: &Principal,
        session: SessionId,
        tool: &str,
        now: Duration,
        counts: bool,
    ) -> Result<(), ErrorDocument> {
        let limits = &*self.options.load_full();
        if !limits.any() {
            return Ok(());
        }
        let mut counted = self.counted();
        counted.make_room();
        let totals = counted.sessions.get(&session).copied().unwrap_or_default();
        if limits.calls_per_session > 0 && totals.calls >= limits.calls_per_session {
            return Err(refused(tool, "calls_per_session", limits.calls_per_session, None));
        }
        if limits.tokens_per_session > 0 && totals.tokens >= limits.tokens_per_session {
            return Err(refused(tool, "tokens_per_session", limits.tokens_per_session, None));
        }
        let full = counted.tokens.entry(principal.clone()).or_default().full(now, limits.tokens_per_minute);
        if let Some(wait) = full {
            return Err(refused(tool, "tokens_per_minute", limits.tokens_per_minute, Some(wait)));
        }
        let full = counted.calls.entry(principal.clone()).or_default().full(now, limits.calls_per_minute);
        if let Some(wait) = full {
            return Err(refused(tool, "calls_per_minute", limits.calls_per_minute, Some(wait)));
        }
        let of_tool =
            limits.tools.iter().find(|(tools, _)| tools.matches(tool)).map_or(0, |(_, limit)| *limit);
        if of_tool > 0 {
            let window = counted.tools.entry((principal.clone(), tool.to_owned())).or_default();
            if let Some(wait) = window.full(now, of_tool) {
                return Err(refused(tool, "tool", of_tool, Some(wait)));
            }
            if counts {
                window.add(now, 1);
            }
        }
        if !counts {
            return Ok(());
        }
        if limits.calls_per_minute > 0 {
            counted.calls.entry(principal.clone()).or_default().add(now, 1);
        }
        let totals = counted.sessions.entry(session).or_default();
        totals.calls += 1;
        totals.used = now;
        Ok(())
    }

    /// Counts what a model will read.
    pub(crate) fn shown(&self, principal: &Principal, session: SessionId, result: &[u8], now: Duration) {
        let limits = self.options.load();
        if limits.tokens_per_minute == 0 && limits.tokens_per_session == 0 {
            return;
        }
        let tokens = match std::str::from_utf8(result) {
            Ok(text) if text.len() <= EXACT_BYTES => Encoding::Cl100k.count(text),
            _ => result.len() / 3,
        };
        let mut counted = self.counted();
        counted.tokens.entry(principal.clone()).or_default().add(now, tokens as u64);
        counted.sessions.entry(session).or_default().tokens += tokens as u64;
    }

    /// How long to wait before the next attempt, if there is to be one: twice as long each time, up to five seconds, and
    /// any part of it, so that those who failed together do not come back together.
    pub(crate) fn again_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.options.load().max_attempts {
            return None;
        }
        let longest =
            Duration::from_millis(100).saturating_mul(1 << (attempt - 1).min(10)).min(Duration::from_secs(5));
        Some(longest.mul_f64(rand::rng().random::<f64>()))
    }

    /// Whether arguments that are nearly right are repaired.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.options.load().tolerant_args
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallOptions {
    fn any(&self) -> bool {
        self.calls_per_minute > 0
            || self.calls_per_session > 0
            || self.tokens_per_minute > 0
            || self.tokens_per_session > 0
            || !self.tools.is_empty()
    }
}

impl Counted {
    /// Memory is bounded too: half of the sessions that were used longest ago are forgotten.
    fn make_room(&mut self) {
        if self.sessions.len() < MOST_SESSIONS {
            return;
        }
        let mut used: Vec<Duration> = self.sessions.values().map(|totals| totals.used).collect();
        used.sort_unstable();
        let middle = used[used.len() / 2];
        self.sessions.retain(|_, totals| totals.used > middle);
    }
}

fn refused(tool: &str, scope: &str, limit: u64, wait: Option<Duration>) -> ErrorDocument {
    let message = match wait {
        Some(_) => format!("the limit {scope} = {limit} is reached; try again later"),
        None => format!("the limit {scope} = {limit} is reached for this session"),
    };
    let document =
        ErrorDocument::new(ErrorCode::RateLimited, tool, message).with("scope", scope).with("limit", limit);
    match wait {
        Some(wait) => document.with("retry_after_ms", wait.as_millis() as u64).retryable(true),
        None => document,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;

    fn second(n: u64) -> Duration {
        Duration::from_secs(1_000 + n)
    }

    #[test]
    fn a_minute_slides_and_a_session_does_not() {
        // CTX-93
        let options = CallOptions { calls_per_minute: 3, calls_per_session: 5, ..CallOptions::default() };
        let controls = Controls::new(options);
        let ann: Principal = "agent:ann".parse().unwrap();
        let bob: Principal = "agent:bob".parse().unwrap();
        let session = SessionId::new(Timestamp::from_millis(1));
        let admit = |who: &Principal, at: u64| controls.admit(who, session, "spy/pid", second(at));
        for at in [0, 10, 20] {
            admit(&ann, at).unwrap();
        }
        let refused = admit(&ann, 30).unwrap_err();
        assert_eq!((refused.error, refused.retryable), (ErrorCode::RateLimited, true));
        assert_eq!(refused.details["retry_after_ms"], 30_000);
        assert!(
            controls.admit(&bob, SessionId::new(Timestamp::from_millis(2)), "spy/pid", second(30)).is_ok()
        );
        // The first falls out of the window after a minute; what was refused counted for nothing.
        admit(&ann, 60).unwrap();
        assert!(admit(&ann, 61).is_err());
        admit(&ann, 70).unwrap();
        let over = admit(&ann, 200).unwrap_err();
        assert_eq!((over.details["scope"].as_str(), over.retryable), (Some("calls_per_session"), false));
    }

    #[test]
    fn tokens_are_counted_when_they_are_shown() {
        // CTX-93
        let options =
            CallOptions { tokens_per_minute: 100, tokens_per_session: 3_000, ..CallOptions::default() };
        let controls = Controls::new(options);
        let ann: Principal = "agent:ann".parse().unwrap();
        let session = SessionId::new(Timestamp::from_millis(1));
        controls.shown(&ann, session, "word ".repeat(50).as_bytes(), second(0));
        controls.admit(&ann, session, "t", second(1)).unwrap();
        controls.shown(&ann, session, "word ".repeat(60).as_bytes(), second(2));
        assert_eq!(
            controls.admit(&ann, session, "t", second(3)).unwrap_err().details["scope"],
            "tokens_per_minute"
        );
        controls.admit(&ann, session, "t", second(61)).unwrap();
        controls.shown(&ann, session, &[b'x'; 9_000], second(62));
        assert_eq!(
            controls.admit(&ann, session, "t", second(200)).unwrap_err().details["scope"],
            "tokens_per_session"
        );
    }

    #[test]
    fn what_would_happen_counts_for_nothing() {
        // CTX-73
        let options = CallOptions {
            calls_per_minute: 1,
            tools: vec![(Glob::parse("spy/*").unwrap(), 1)],
            ..CallOptions::default()
        };
        let controls = Controls::new(options);
        let ann: Principal = "agent:ann".parse().unwrap();
        let session = SessionId::new(Timestamp::from_millis(1));
        for at in 0..3 {
            controls.would_admit(&ann, session, "spy/pid", second(at)).unwrap();
        }
        controls.admit(&ann, session, "spy/pid", second(3)).unwrap();
        assert!(controls.would_admit(&ann, session, "spy/pid", second(4)).is_err());
    }

    #[test]
    fn tools_have_limits_of_their_own() {
        let options =
            CallOptions { tools: vec![(Glob::parse("spy/*").unwrap(), 1)], ..CallOptions::default() };
        let controls = Controls::new(options);
        let ann: Principal = "agent:ann".parse().unwrap();
        let session = SessionId::new(Timestamp::from_millis(1));
        controls.admit(&ann, session, "spy/pid", second(0)).unwrap();
        assert_eq!(controls.admit(&ann, session, "spy/pid", second(1)).unwrap_err().details["scope"], "tool");
        controls.admit(&ann, session, "spy/echo", second(1)).unwrap();
        controls.admit(&ann, session, "notes/read", second(1)).unwrap();
    }

    #[test]
    fn attempts_are_counted_and_wait_longer_each_time() {
        // CTX-91
        let controls = Controls::new(CallOptions { max_attempts: 3, ..CallOptions::default() });
        assert!(controls.again_after(1).unwrap() <= Duration::from_millis(100));
        assert!(controls.again_after(2).unwrap() <= Duration::from_millis(200));
        assert_eq!(controls.again_after(3), None);
        assert_eq!(Controls::new(CallOptions::default()).again_after(1), None);
    }
}
