//! How patient to be.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Time limits and the name we give ourselves. The defaults are those of the specification.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `clientInfo.name`.
    pub client_name: String,
    /// `clientInfo.version`.
    pub client_version: String,
    /// What we say we can be asked: the requests that the server's declaration lists (GOV-408).
    pub capabilities: serde_json::Value,
    /// How long `server/discover` may take in a process whose era is unknown. Long enough for a slow start: a
    /// silent server costs this once, since its era is remembered (PRO-62).
    pub probe_patience: Duration,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// How long one page of a list may take.
    pub list_timeout: Duration,
    /// Certificate authorities besides the machine's own, in PEM form.
    pub authorities: Option<std::path::PathBuf>,
    /// Where baits lie, where the user ids of servers begin, and what else holds for every start.
    pub conditions: portcullis_sandbox::Conditions,
    /// Keeps what was pinned, so that nothing else runs; where there is none, the originals are read before each start.
    pub copies: Option<std::sync::Arc<portcullis_governance::pinned::Copies>>,
    /// What operators waived for servers.
    pub waivers: std::sync::Arc<crate::waivers::Waivers>,
    /// Who lends credentials to calls that were permitted; nobody where there is none.
    pub broker: Option<std::sync::Arc<portcullis_governance::broker::Broker>>,
    /// Addresses of hosts that are not asked of the machine's resolver, for processes that may talk to them.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// How long opening a TCP connection may take.
    pub connect_timeout: Duration,
    /// PRO-64: a list counts as complete after this much quiet since the last change...
    pub settle_quiet: Duration,
    /// ...or after this long in any case.
    pub settle_limit: Duration,
    /// How long a process that serves one set of scopes is kept without a call (SBX-12).
    pub idle_stop: Duration,
    /// How long calls under way may go on when the connection is closed.
    pub drain: Duration,
    /// How long a child may take to end by itself, and again after SIGTERM.
    pub grace: Duration,
    /// The first pause after a failure.
    pub backoff_first: Duration,
    /// The longest pause.
    pub backoff_limit: Duration,
    /// What operators set for records servers, by name.
    pub records: std::collections::BTreeMap<String, crate::records::RecordsOptions>,
    /// Subscriptions of theirs that deliver to us, and signing keys of the others.
    pub records_hooks: std::sync::Arc<crate::records::hooks::Hooks>,
    /// What their expand gate comes to.
    pub records_gate: std::sync::Arc<portcullis_gauntlet::gate_meter::Meter>,
    /// After so many failures in a row callers are refused at once until the pause is over.
    pub breaker_failures: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            client_name: "portcullis".into(),
            client_version: env!("CARGO_PKG_VERSION").into(),
            capabilities: serde_json::json!({}),
            probe_patience: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(30),
            list_timeout: Duration::from_secs(30),
            authorities: None,
            broker: None,
            copies: None,
            waivers: std::sync::Arc::default(),
            conditions: portcullis_sandbox::Conditions::default(),
            hosts: BTreeMap::new(),
            connect_timeout: Duration::from_secs(5),
            settle_quiet: Duration::from_millis(200),
            settle_limit: Duration::from_secs(2),
            idle_stop: Duration::from_secs(600),
            drain: Duration::from_secs(10),
            grace: Duration::from_secs(2),
            backoff_first: Duration::from_millis(200),
            backoff_limit: Duration::from_secs(30),
            records: std::collections::BTreeMap::new(),
            records_hooks: std::sync::Arc::default(),
            records_gate: std::sync::Arc::default(),
            breaker_failures: 5,
        }
    }
}

impl Settings {
    /// What holds for a start of a server now.
    pub(crate) fn conditions_of(
        &self,
        server: &portcullis_core::ServerIdentity,
    ) -> portcullis_sandbox::Conditions {
        let user = self.conditions.user.map(|base| portcullis_sandbox::uid_of(base, server.as_str()));
        portcullis_sandbox::Conditions { waived: self.waivers.of(server), user, ..self.conditions.clone() }
    }

    /// The pause after `failures` in a row: doubling, capped, and spread so that many servers that failed
    /// together do not come back together (PRO-39).
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        let doubled = self.backoff_first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(self.backoff_limit).mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit_and_are_spread() {
        // PRO-39
        let settings = Settings::default();
        for (failures, longest) in [(1, 200), (2, 400), (5, 3_200), (8, 25_600), (9, 30_000), (1_000, 30_000)]
        {
            for _ in 0..50 {
                let pause = settings.pause(failures).as_millis();
                assert!((longest / 2..=longest).contains(&pause), "{failures}: {pause}");
            }
        }
    }
}
