//! Quotas: what is used of them, and what a call beyond one comes to.
//!
//! A quota counts in windows that follow one another: the minutes, hours, days and thirty-day months of the clock, or the
//! life of a session. What was used is a matter of memory; a start reads what the running windows hold from the log.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_audit::{EventName, Record, read};
use portcullis_core::{Principal, SessionId, Timestamp};

use crate::orders::{Beyond, Metric, Orders, Quota, Subject, Window};

/// Counters that are remembered; those whose window is over go first.
const MOST_COUNTERS: usize = 100_000;
/// Shares of a quota, in percent, that go on record when they are reached.
const MARKS: [u64; 2] = [80, 100];

/// Whose call of what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) session: SessionId,
    pub(crate) server: &'a str,
    /// `<server>/<tool>`.
    pub(crate) tool: &'a str,
}

/// What is used of a quota in the running window.
#[derive(Debug, Clone)]
pub struct Used {
    /// Of which.
    pub quota: Quota,
    /// How much.
    pub used: u64,
}

/// What quotas say about a call.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// Whether somebody must be asked about it.
    pub(crate) asks: bool,
    /// Quotas of which the call reached a share that goes on record.
    pub(crate) crossed: Vec<Used>,
    /// Held while the call is under way.
    pub(crate) turn: Option<Turn>,
}

/// A call that is counted among those at once.
#[derive(Debug)]
pub(crate) struct Turn {
    meter: Arc<Meter>,
    keys: Vec<Key>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counted = self.meter.counted();
        for key in &self.keys {
            if let Some(counter) = counted.counters.get_mut(key) {
                counter.amount = counter.amount.saturating_sub(1);
            }
        }
    }
}

/// Which counter: of which quota, and of which session where it counts by session.
type Key = (String, Option<SessionId>);

#[derive(Debug, Default, Clone, Copy)]
struct Counter {
    /// Which of the windows that follow one another.
    window: u64,
    amount: u64,
}

#[derive(Debug, Default)]
struct Counted {
    counters: HashMap<Key, Counter>,
}

/// Counts what is used.
#[derive(Debug, Default)]
pub struct Meter {
    counted: Mutex<Counted>,
    /// What a thousand tokens cost, in millionths.
    price: u64,
}

impl Meter {
    pub(crate) fn new(price: u64) -> Self {
        Self { price, ..Self::default() }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, or says which quota it would break. What is refused counts for nothing.
    pub(crate) fn admit(
        self: &Arc<Self>,
        orders: &Orders,
        who: Who<'_>,
        now: Timestamp,
    ) -> Result<Admitted, Quota> {
        let quotas: Vec<&Quota> =
            orders.quotas().iter().filter(|quota| is_about(quota, orders, who)).collect();
        if quotas.is_empty() {
            return Ok(Admitted { asks: false, crossed: Vec::new(), turn: None });
        }
        let mut counted = self.counted();
        counted.make_room();
        let mut asks = false;
        for quota in &quotas {
            let key = key_of(quota, who.session);
            let used = counted.amount(quota, &key, now);
            // What results come to is known afterwards: a quota of them is full when nothing is left of it.
            let full = match quota.metric {
                Metric::Calls | Metric::Concurrent => used + 1 > quota.limit,
                Metric::BytesOut | Metric::TokensOut | Metric::CostMicros => used >= quota.limit,
            };
            if full {
                match quota.action {
                    Beyond::Refuse => return Err((*quota).clone()),
                    Beyond::Approve => asks = true,
                    Beyond::Signal => {}
                }
            }
        }
        let (mut keys, mut crossed) = (Vec::new(), Vec::new());
        for quota in quotas {
            let key = key_of(quota, who.session);
            match quota.metric {
                Metric::Calls => crossed.extend(counted.add(quota, key, 1, now)),
                Metric::Concurrent => {
                    crossed.extend(counted.add(quota, key.clone(), 1, now));
                    keys.push(key);
                }
                Metric::BytesOut | Metric::TokensOut | Metric::CostMicros => {}
            }
        }
        drop(counted);
        let turn = (!keys.is_empty()).then(|| Turn { meter: self.clone(), keys });
        Ok(Admitted { asks, crossed, turn })
    }

    /// Counts what a result came to; gives the quotas of which it reached a share that goes on record.
    pub(crate) fn spent(
        &self,
        orders: &Orders,
        who: Who<'_>,
        (bytes, tokens): (u64, u64),
        now: Timestamp,
    ) -> Vec<Used> {
        let quotas = orders.quotas().iter().filter(|quota| is_about(quota, orders, who));
        let mut crossed = Vec::new();
        for quota in quotas {
            let amount = match quota.metric {
                Metric::BytesOut => bytes,
                Metric::TokensOut => tokens,
                Metric::CostMicros => tokens * self.price / 1000,
                Metric::Calls | Metric::Concurrent => continue,
            };
            crossed.extend(self.counted().add(quota, key_of(quota, who.session), amount, now));
        }
        crossed
    }

    /// What the quotas of a subject come to now; of a quota by session, the session that used most.
    pub fn usage(&self, orders: &Orders, subject: &Subject, now: Timestamp) -> Vec<Used> {
        let counted = self.counted();
        let of_subject = orders.quotas().iter().filter(|quota| quota.subject == *subject);
        let used = |quota: &Quota| {
            let id = Quota::key(&quota.subject, quota.metric);
            let window = window_of(quota, now);
            let running = counted.counters.iter().filter(|((of, _), counter)| {
                *of == id && (counter.window == window || quota.metric == Metric::Concurrent)
            });
            running.map(|(_, counter)| counter.amount).max().unwrap_or(0)
        };
        of_subject.map(|quota| Used { used: used(quota), quota: quota.clone() }).collect()
    }

    /// Forgets what was counted for a quota that is set anew.
    pub(crate) fn forget(&self, subject: &Subject, metric: Metric) {
        let id = Quota::key(subject, metric);
        let mut counted = self.counted();
        counted.counters.retain(|(of, _), _| *of != id || metric == Metric::Concurrent);
    }

    /// What a thousand tokens cost, in millionths.
    pub fn price(&self) -> u64 {
        self.price
    }

    /// Reads from the log what the running windows hold: after a start, and for a quota that is new.
    pub(crate) fn recall(
        &self,
        log: &Path,
        orders: &Orders,
        quotas: &[Quota],
        now: Timestamp,
    ) -> Result<(), portcullis_audit::AuditError> {
        let past = |quota: &&Quota| quota.metric != Metric::Concurrent && quota.window != Window::Session;
        let quotas: Vec<&Quota> = quotas.iter().filter(past).collect();
        if quotas.is_empty() {
            return Ok(());
        }
        for record in read(log)? {
            self.recall_record(orders, &quotas, &record?, now);
        }
        Ok(())
    }

    fn recall_record(&self, orders: &Orders, quotas: &[&Quota], record: &Record, now: Timestamp) {
        let is_call = record.event == EventName::ExecutionIntent;
        if !is_call && record.event != EventName::ExecutionResult {
            return;
        }
        let (Some(tool), Some(session)) = (&record.tool_id, record.session) else { return };
        let Ok(principal) = record.actor.to_string().parse::<Principal>() else { return };
        let (server, short) = (tool.server().as_str(), tool.short());
        let who = Who { principal: &principal, session, server, tool: short };
        let bytes = record.data["bytes"].as_u64().unwrap_or(0);
        let tokens = bytes / 3;
        for quota in quotas.iter().filter(|quota| is_about(quota, orders, who)) {
            if window_of(quota, record.time) != window_of(quota, now) {
                continue;
            }
            let amount = match (quota.metric, is_call) {
                (Metric::Calls, true) => 1,
                (Metric::BytesOut, false) => bytes,
                (Metric::TokensOut, false) => tokens,
                (Metric::CostMicros, false) => tokens * self.price / 1000,
                _ => continue,
            };
            self.counted().add(quota, key_of(quota, session), amount, now);
        }
    }
}

impl Counted {
    fn amount(&self, quota: &Quota, key: &Key, now: Timestamp) -> u64 {
        let window = window_of(quota, now);
        self.counters.get(key).filter(|counter| counter.window == window).map_or(0, |counter| counter.amount)
    }

    fn add(&mut self, quota: &Quota, key: Key, amount: u64, now: Timestamp) -> Option<Used> {
        let window = window_of(quota, now);
        let counter = self.counters.entry(key).or_default();
        if counter.window != window {
            *counter = Counter { window, amount: 0 };
        }
        let before = counter.amount;
        counter.amount += amount;
        let used = counter.amount;
        let reaches = |mark: &u64| {
            let at = quota.limit.saturating_mul(*mark);
            before * 100 < at && used * 100 >= at
        };
        MARKS.iter().any(reaches).then(|| Used { quota: quota.clone(), used })
    }

    /// Memory is bounded too: counters of sessions go, the emptiest first.
    fn make_room(&mut self) {
        if self.counters.len() < MOST_COUNTERS {
            return;
        }
        let mut amounts: Vec<u64> = self.counters.values().map(|counter| counter.amount).collect();
        amounts.sort_unstable();
        let middle = amounts[amounts.len() / 2];
        self.counters.retain(|(_, session), counter| session.is_none() || counter.amount > middle);
    }
}

fn key_of(quota: &Quota, session: SessionId) -> Key {
    let by_session = quota.window == Window::Session && quota.metric != Metric::Concurrent;
    (Quota::key(&quota.subject, quota.metric), by_session.then_some(session))
}

/// Which of the windows that follow one another this is. What is under way at once has none.
fn window_of(quota: &Quota, now: Timestamp) -> u64 {
    match quota.window.millis() {
        Some(millis) if quota.metric != Metric::Concurrent => now.as_millis() / millis,
        _ => 0,
    }
}

fn is_about(quota: &Quota, orders: &Orders, who: Who<'_>) -> bool {
    match &quota.subject {
        Subject::Global => true,
        Subject::Client(id) => who.principal.name() == id,
        Subject::Team(id) => orders.team(who.principal) == Some(id.as_str()),
        Subject::Server(id) => who.server == id,
        Subject::Tool(id) => who.tool == id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn quota(subject: &str, metric: Metric, limit: u64, window: Window, action: Beyond) -> Quota {
        Quota { subject: subject.parse().unwrap(), metric, limit, window, action }
    }

    fn orders(quotas: Vec<Quota>) -> Orders {
        Orders::new([], [], [], quotas)
    }

    #[test]
    fn calls_are_counted_by_the_window_and_what_is_refused_counts_for_nothing() {
        let orders = orders(vec![quota("client:ann", Metric::Calls, 2, Window::Minute, Beyond::Refuse)]);
        let (ann, bob): (Principal, Principal) = ("agent:ann".parse().unwrap(), "agent:bob".parse().unwrap());
        let meter = Arc::new(Meter::default());
        let session = SessionId::new(at(1));
        let call = |who: &Principal, now: u64| {
            meter.admit(&orders, Who { principal: who, session, server: "fs", tool: "fs/read" }, at(now))
        };
        assert!(call(&ann, 0).unwrap().crossed.is_empty());
        assert_eq!(call(&ann, 1).unwrap().crossed[0].used, 2, "wholly used up");
        assert_eq!(call(&ann, 2).unwrap_err().metric, Metric::Calls);
        assert!(call(&bob, 2).is_ok(), "another's calls are not counted");
        assert_eq!(meter.usage(&orders, &"client:ann".parse().unwrap(), at(3))[0].used, 2);
        assert!(call(&ann, 60_000).is_ok(), "the next minute");
    }

    #[test]
    fn calls_at_once_are_given_back_and_bytes_are_counted_afterwards() {
        let orders = orders(vec![
            quota("global", Metric::Concurrent, 1, Window::Minute, Beyond::Refuse),
            quota("server:fs", Metric::BytesOut, 10, Window::Day, Beyond::Approve),
        ]);
        let ann: Principal = "agent:ann".parse().unwrap();
        let meter = Arc::new(Meter::default());
        let who = Who { principal: &ann, session: SessionId::new(at(1)), server: "fs", tool: "fs/read" };
        let first = meter.admit(&orders, who, at(0)).unwrap();
        assert_eq!(meter.admit(&orders, who, at(120_000)).unwrap_err().metric, Metric::Concurrent);
        assert!(!first.asks);
        drop(first);
        assert_eq!(meter.spent(&orders, who, (10, 3), at(1)).len(), 1);
        assert!(meter.admit(&orders, who, at(2)).unwrap().asks, "nothing is left of the bytes");
        let other = Who { server: "net", tool: "net/get", ..who };
        assert!(!meter.admit(&orders, other, at(3)).unwrap().asks);
    }
}
