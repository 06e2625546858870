//! `[gateway.http]`: what the listener for agents allows (PRO-31).

use std::ops::RangeInclusive;
use std::time::Duration;

use portcullis_gateway::edge::http::HttpLimits;
use portcullis_governance::declaration::Span;
use serde::Deserialize;

use crate::failure::Failure;

/// What one request, and one agent, may take.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpSection {
    /// Largest body of a request in bytes, 64 KiB to 64 MiB.
    body_bytes: Option<usize>,
    /// Largest head of a request in bytes, 8 KiB to 256 KiB.
    header_bytes: Option<usize>,
    /// How long a request may take to arrive, 1s to 10m.
    read_timeout: Option<Span>,
    /// How long a connection is kept without a request, 1s to 24h.
    idle_timeout: Option<Span>,
    /// How many streams one agent may have open, 1 to 4096.
    streams: Option<usize>,
}

impl HttpSection {
    /// The limits, or which of them cannot be.
    pub(crate) fn limits(&self) -> Result<HttpLimits, Failure> {
        let usual = HttpLimits::default();
        let bound = |name: &str, value: Option<usize>, usual: usize, range: RangeInclusive<usize>| {
            let value = value.unwrap_or(usual);
            if range.contains(&value) {
                return Ok(value);
            }
            let (least, most) = (range.start(), range.end());
            let field = format!("gateway.http.{name}");
            Err(Failure::field(&field, format!("{field} must be {least} to {most}")))
        };
        let span = |name: &str, value: Option<Span>, usual: Duration, (longest, said): (u64, &str)| {
            let value = value.map_or(usual, |span| span.0);
            if (Duration::from_secs(1)..=Duration::from_secs(longest)).contains(&value) {
                return Ok(value);
            }
            let field = format!("gateway.http.{name}");
            Err(Failure::field(&field, format!("{field} must be 1s to {said}")))
        };
        Ok(HttpLimits {
            body: bound("body_bytes", self.body_bytes, usual.body, 64 << 10..=64 << 20)?,
            headers: bound("header_bytes", self.header_bytes, usual.headers, 8 << 10..=256 << 10)?,
            streams: bound("streams", self.streams, usual.streams, 1..=4096)?,
            read_timeout: span("read_timeout", self.read_timeout, usual.read_timeout, (600, "10m"))?,
            idle_timeout: span("idle_timeout", self.idle_timeout, usual.idle_timeout, (86_400, "24h"))?,
            ..usual
        })
    }
}
