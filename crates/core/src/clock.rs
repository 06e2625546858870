//! Time, injected: deciding code takes a [`Clock`], never the system's time.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::failpoint;

/// A moment in UTC, to the millisecond; RFC 3339 in text, always with three digits and `Z`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(u64);

/// The text is not a timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a time: expected RFC 3339 UTC with milliseconds, like 2026-11-16T09:00:00.000Z")]
pub struct TimestampError;

impl Timestamp {
    /// The moment `millis` milliseconds after 1970.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since 1970.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment `duration` later.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_millis() as u64))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// `YYYYMMDD`, for names of daily things.
    pub fn yyyymmdd(self) -> String {
        let text = self.to_string();
        [&text[0..4], &text[5..7], &text[8..10]].concat()
    }

    /// Hour of the day, 0 to 23, UTC.
    pub fn hour(self) -> u64 {
        self.0 / 3_600_000 % 24
    }

    /// The text form into a stack buffer: this runs once per audit record.
    fn render(self, buf: &mut [u8; 24]) -> &str {
        let (days, ms) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        let mut put = |at: usize, width: usize, mut value: u64| {
            for i in (at..at + width).rev() {
                buf[i] = b'0' + (value % 10) as u8;
                value /= 10;
            }
        };
        put(0, 4, year);
        put(5, 2, month);
        put(8, 2, day);
        put(11, 2, ms / 3_600_000);
        put(14, 2, ms / 60_000 % 60);
        put(17, 2, ms / 1000 % 60);
        put(20, 3, ms % 1000);
        for (at, byte) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'.'), (23, b'Z')] {
            buf[at] = byte;
        }
        std::str::from_utf8(buf).expect("digits are ASCII")
    }
}

/// Days since 1970 to year, month, day, by eras of 400 years counted from a March.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, doy - (153 * mp + 2) / 5 + 1)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.render(&mut [0; 24]))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| TimestampError)?;
        let millis = u64::try_from(parsed.as_millisecond()).map_err(|_| TimestampError)?;
        let timestamp = Self(millis);
        if timestamp.to_string() == text { Ok(timestamp) } else { Err(TimestampError) }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.render(&mut [0; 24]))
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Where the time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. It may be set, also backwards; who must not go back takes [`Governed`].
    fn now(&self) -> Timestamp;

    /// Time since the machine started, suspended time included (CLOCK_BOOTTIME): cannot be set.
    fn uptime(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let wall = elapsed.unwrap_or_default().as_millis() as u64;
        Timestamp(wall.saturating_add_signed(failpoint::jumped("clock.jump")))
    }

    fn uptime(&self) -> Duration {
        #[cfg(target_os = "linux")]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }
}

/// What this thread has taken of the processor: what something costs, however busy the machine is with others.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The governance clock: the latest of the wall clock and everything it said before (GOV-1003 check 2), so
/// that setting the wall clock back cannot revive what has expired.
#[derive(Debug)]
pub struct Governed<C> {
    inner: C,
    latest: AtomicU64,
}

impl<C: Clock> Governed<C> {
    /// Watches `inner`; never says anything before `not_before` (the time of the last logged record).
    pub fn new(inner: C, not_before: Timestamp) -> Self {
        Self { inner, latest: AtomicU64::new(not_before.as_millis()) }
    }
}

impl<C: Clock> Clock for Governed<C> {
    fn now(&self) -> Timestamp {
        let wall = self.inner.now().as_millis();
        Timestamp(self.latest.fetch_max(wall, Ordering::Relaxed).max(wall))
    }

    fn uptime(&self) -> Duration {
        self.inner.uptime()
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn uptime(&self) -> Duration {
        (**self).uptime()
    }
}

/// A clock that moves only when told to; for tests and for re-driving recorded sessions.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicU64,
    uptime: AtomicU64,
}

impl ManualClock {
    /// A clock standing at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { wall: AtomicU64::new(now.as_millis()), uptime: AtomicU64::new(1_000_000) }
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.wall.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
        self.uptime.fetch_add(by.as_millis() as u64, Ordering::Relaxed);
    }

    /// Sets the wall clock, as an administrator or a time server would; uptime is not fooled.
    pub fn set_wall(&self, now: Timestamp) {
        self.wall.store(now.as_millis(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall.load(Ordering::Relaxed))
    }

    fn uptime(&self) -> Duration {
        Duration::from_millis(self.uptime.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_print_as_in_the_specification() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        let time: Timestamp = "2026-11-16T09:00:00.123Z".parse().unwrap();
        assert_eq!(time.yyyymmdd(), "20261116");
        assert_eq!(time.hour(), 9);
        for other_spelling in ["2026-11-16T09:00:00Z", "2026-11-16T10:00:00.123+01:00", "2026-11-16", ""] {
            assert!(other_spelling.parse::<Timestamp>().is_err(), "{other_spelling}");
        }
    }

    #[test]
    fn the_governed_clock_never_goes_back() {
        let wall = std::sync::Arc::new(ManualClock::at(Timestamp(5_000)));
        let clock = Governed::new(wall.clone(), Timestamp(2_000));
        assert_eq!(clock.now(), Timestamp(5_000));
        wall.set_wall(Timestamp(1_000));
        assert_eq!(clock.now(), Timestamp(5_000));
        wall.set_wall(Timestamp(6_000));
        assert_eq!(clock.now(), Timestamp(6_000));
        assert_eq!(Governed::new(wall, Timestamp(9_000)).now(), Timestamp(9_000));
    }

    proptest! {
        #[test]
        fn rendering_agrees_with_the_calendar_library(millis in 0u64..253_402_300_800_000) {
            let ours = Timestamp(millis);
            let theirs = jiff::Timestamp::from_millisecond(millis as i64).unwrap();
            prop_assert_eq!(ours.to_string(), format!("{theirs:.3}"));
            prop_assert_eq!(ours.to_string().parse::<Timestamp>().unwrap(), ours);
        }
    }
}
