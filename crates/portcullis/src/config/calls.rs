//! `[calls]`: how often and how much (CTX §9).

use std::collections::BTreeMap;
use std::time::Duration;

use portcullis_gateway::controls::CallOptions;
use portcullis_gateway::remembered::CacheOptions;
use portcullis_gauntlet::Glob;
use portcullis_governance::declaration::Span;
use serde::Deserialize;

use crate::failure::Failure;

/// More attempts than this help nobody.
const MOST_ATTEMPTS: u32 = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CallsSection {
    retry: RetrySection,
    limits: LimitsSection,
    cache: CacheSection,
    /// Whether arguments that are nearly right are repaired [default: false].
    tolerant_args: bool,
    /// What a thousand tokens of results cost, in millionths: what quotas of cost_micros count [default: 0].
    token_price_micros: u64,
    /// How long a client may take to answer what a server asks it, 1s to 1h [default: 5m].
    answer_timeout: Option<Span>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct CacheSection {
    /// Tools whose answers are given again, `"<server>/<tool>"`; only those that read and are idempotent by declaration.
    allow: Vec<String>,
    /// For how long [default: 60].
    ttl_seconds: u64,
    /// How many answers [default: 256].
    max_entries: usize,
}

impl Default for CacheSection {
    fn default() -> Self {
        let CacheOptions { ttl, max_entries, .. } = CacheOptions::default();
        Self { allow: Vec::new(), ttl_seconds: ttl.as_secs(), max_entries }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RetrySection {
    /// How often a call is attempted at most [default: 1].
    max_attempts: u32,
}

impl Default for RetrySection {
    fn default() -> Self {
        Self { max_attempts: 1 }
    }
}

/// Zero means no limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsSection {
    /// Calls of one agent in sixty seconds.
    calls_per_minute: u64,
    /// Calls of one session.
    calls_per_session: u64,
    /// Tokens shown to one agent in sixty seconds.
    tokens_per_minute: u64,
    /// Tokens shown in one session.
    tokens_per_session: u64,
    /// Calls of one agent to one of these tools in sixty seconds: `"<server>/<tool>" = 10`.
    tools: BTreeMap<String, u64>,
}

fn glob(field: &'static str, tools: &str) -> Result<Glob, Failure> {
    Glob::parse(tools).map_err(|problem| Failure::field(field, format!("{tools:?} {problem}")))
}

impl CallsSection {
    pub(super) fn options(&self) -> Result<CallOptions, Failure> {
        if !(1..=MOST_ATTEMPTS).contains(&self.retry.max_attempts) {
            return Err(Failure::field(
                "calls.retry.max_attempts",
                "calls.retry.max_attempts must be 1 to 10",
            ));
        }
        let answer_timeout = self.answer_timeout.map_or(CallOptions::default().answer_timeout, |span| span.0);
        if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&answer_timeout) {
            return Err(Failure::field("calls.answer_timeout", "calls.answer_timeout must be 1s to 1h"));
        }
        let limits = &self.limits;
        let tools =
            limits.tools.iter().map(|(tools, limit)| Ok((glob("calls.limits.tools", tools)?, *limit)));
        let cache = CacheOptions {
            allow: self
                .cache
                .allow
                .iter()
                .map(|tools| glob("calls.cache.allow", tools))
                .collect::<Result<_, _>>()?,
            ttl: Duration::from_secs(self.cache.ttl_seconds),
            max_entries: self.cache.max_entries,
        };
        Ok(CallOptions {
            calls_per_minute: limits.calls_per_minute,
            calls_per_session: limits.calls_per_session,
            tokens_per_minute: limits.tokens_per_minute,
            tokens_per_session: limits.tokens_per_session,
            tools: tools.collect::<Result<_, Failure>>()?,
            max_attempts: self.retry.max_attempts,
            cache,
            tolerant_args: self.tolerant_args,
            token_price_micros: self.token_price_micros,
            answer_timeout,
        })
    }
}
