//! Moments and windows of time: always with an offset, never upside down (ADM-23).

use std::time::Duration;

use portcullis_core::Timestamp;
use serde_json::{Value, json};

use super::{ArgValue, Complaints, Describe, Field, Members};

/// A moment, RFC 3339 with an offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Timestamp);

impl ArgValue for Moment {
    fn read(value: &Value, at: &str, complaints: &mut Complaints) -> Option<Self> {
        let read = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
        let millis = read.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
        if millis.is_none() {
            complaints.push(at, "must be a time with an offset, as in 2026-01-31T12:00:00Z");
        }
        millis.map(|millis| Self(Timestamp::from_millis(millis)))
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "date-time"})
    }
}

/// `since?` and `until?`; without them the last 24 hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeWindow {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl TimeWindow {
    /// The first moment in it, and the first after it.
    pub fn bounds(self, now: Timestamp) -> (Timestamp, Timestamp) {
        let until = self.until.unwrap_or_else(|| now.after(Duration::from_millis(1)));
        let day = 24 * 3600 * 1000;
        let before = Timestamp::from_millis(until.as_millis().saturating_sub(day));
        (self.since.unwrap_or(before), until)
    }
}

impl Field for TimeWindow {
    fn take(_: &'static str, members: &mut Members<'_>) -> Option<Self> {
        let since = <Option<Moment> as Field>::take("since", members);
        let until = <Option<Moment> as Field>::take("until", members);
        let (since, until) = (since?, until?);
        if let (Some(since), Some(until)) = (since, until)
            && since >= until
        {
            members.complain("since", "must be before until");
            return None;
        }
        Some(Self { since: since.map(|moment| moment.0), until: until.map(|moment| moment.0) })
    }

    fn describe(_: &'static str, schema: &mut Describe) {
        schema.property("since", Moment::schema(), false);
        schema.property("until", Moment::schema(), false);
    }
}
