//! Signals: what somebody should look at, found in the log. A pure function of its records: the same log has the same
//! signals, after a restart and for whoever asks. What an operator says to one is a record too, and ends it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use portcullis_audit::{EventName, Record};
use portcullis_core::Timestamp;
use portcullis_core::principal::ActorKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::Document;

/// How many records a signal names at most.
const MOST_EVIDENCE: usize = 10;
/// Calls of a tool whose times are remembered.
const TIMES: usize = 60;

/// What a signal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SignalKind {
    ErrorSpike,
    LatencySpike,
    RefusalSpike,
    Drift,
    MarkerHits,
    ScopeViolation,
    QuotaNear,
    ApprovalBacklog,
    PermitFailures,
    AuditLag,
    SecretEcho,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Warning,
    Critical,
}

impl Severity {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// When a signal of a kind is raised: so often, within so long.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Which kind.
    pub kind: SignalKind,
    /// How often.
    pub threshold: usize,
    /// Within how many minutes; 0 where time does not matter.
    pub minutes: u64,
    /// How bad it is then.
    pub severity: Severity,
    /// What is counted.
    pub counts: &'static str,
}

impl SignalKind {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            SignalKind::ErrorSpike => "error_spike",
            SignalKind::LatencySpike => "latency_spike",
            SignalKind::RefusalSpike => "refusal_spike",
            SignalKind::Drift => "drift",
            SignalKind::MarkerHits => "marker_hits",
            SignalKind::ScopeViolation => "scope_violation",
            SignalKind::QuotaNear => "quota_near",
            SignalKind::ApprovalBacklog => "approval_backlog",
            SignalKind::PermitFailures => "permit_failures",
            SignalKind::AuditLag => "audit_lag",
            SignalKind::SecretEcho => "secret_echo",
        }
    }

    fn rule(self) -> &'static Rule {
        RULES.iter().find(|rule| rule.kind == self).expect("every kind has a rule")
    }
}

const fn rule(
    kind: SignalKind,
    threshold: usize,
    minutes: u64,
    severity: Severity,
    counts: &'static str,
) -> Rule {
    Rule { kind, threshold, minutes, severity, counts }
}

/// Every rule.
pub const RULES: [Rule; 11] = [
    rule(SignalKind::ErrorSpike, 5, 5, Severity::Warning, "calls of a server that failed"),
    rule(
        SignalKind::LatencySpike,
        5,
        5,
        Severity::Info,
        "calls of a tool that took four times the usual and a second",
    ),
    rule(SignalKind::RefusalSpike, 10, 5, Severity::Warning, "calls of an agent that were refused"),
    rule(SignalKind::Drift, 1, 0, Severity::Critical, "a server that is not what was accepted"),
    rule(SignalKind::MarkerHits, 1, 0, Severity::Warning, "results with markers that were taken out"),
    rule(
        SignalKind::ScopeViolation,
        1,
        0,
        Severity::Critical,
        "a server that left, or tried to leave, its scopes",
    ),
    rule(SignalKind::QuotaNear, 1, 0, Severity::Info, "quotas that are used up to 80 or 100 percent"),
    rule(SignalKind::ApprovalBacklog, 10, 0, Severity::Warning, "approvals that wait"),
    rule(SignalKind::PermitFailures, 5, 5, Severity::Warning, "permits that were denied at the boundary"),
    rule(SignalKind::AuditLag, 1, 0, Severity::Critical, "evidence that could not be written"),
    rule(SignalKind::SecretEcho, 1, 0, Severity::Critical, "results in which a secret was found"),
];

/// Where in its life a signal is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum SignalState {
    Open,
    Acknowledged,
    Resolved,
}

impl SignalState {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            SignalState::Open => "open",
            SignalState::Acknowledged => "acknowledged",
            SignalState::Resolved => "resolved",
        }
    }
}

/// Something that somebody should look at.
#[derive(Debug, Clone)]
pub struct Signal {
    /// Made of the record that raised it.
    pub signal_id: String,
    /// What it is about.
    pub kind: SignalKind,
    /// How bad it is.
    pub severity: Severity,
    /// Where in its life it is.
    pub state: SignalState,
    /// `global`, `client:<id>`, `server:<id>` or `tool:<identity>`.
    pub subject: String,
    /// Since when.
    pub opened_at: Timestamp,
    /// The records that raised it.
    pub evidence: Vec<String>,
    /// What an operator said to it.
    pub note: Option<String>,
}

/// What an operator said to a signal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// To which.
    pub signal_id: String,
    /// Who.
    pub by: String,
    /// What.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Document for Acknowledgement {
    const KIND: &'static str = "acknowledgement";

    fn id(&self) -> String {
        self.signal_id.clone()
    }
}

/// Finds signals in records, which it takes one after the other.
#[derive(Debug, Default)]
pub struct Detector {
    signals: Vec<Signal>,
    open: BTreeMap<(SignalKind, String), usize>,
    seen: HashMap<(SignalKind, String), VecDeque<(Timestamp, String)>>,
    times: HashMap<String, VecDeque<u64>>,
    waiting: std::collections::BTreeSet<String>,
}

impl Detector {
    /// Every signal so far, oldest first.
    pub fn signals(&self) -> &[Signal] {
        &self.signals
    }

    /// Takes a record; gives the signal that it raised.
    pub fn take(&mut self, record: &Record) -> Option<&Signal> {
        use EventName as E;
        let data = &record.data;
        let server = || {
            let named = data["server"].as_str().map(str::to_owned);
            let server = named.or_else(|| record.tool_id.as_ref().map(|id| id.server().to_string()));
            format!("server:{}", server.unwrap_or_default())
        };
        let tool = || {
            format!("tool:{}", record.tool_id.as_ref().map(|id| id.short().to_owned()).unwrap_or_default())
        };
        match record.event {
            E::ExecutionResult if data["outcome"] != "result" => {
                self.count(SignalKind::ErrorSpike, server(), record)
            }
            E::ExecutionIndeterminate | E::McpToolTimeout | E::McpServerUnavailable => {
                self.count(SignalKind::ErrorSpike, server(), record)
            }
            E::ExecutionResult => self.timed(tool(), data["elapsed_us"].as_u64(), record),
            E::ProposalRefused => {
                let client = record.actor.kind() == ActorKind::Agent;
                let subject =
                    if client { format!("client:{}", record.actor.id()) } else { "global".to_owned() };
                self.count(SignalKind::RefusalSpike, subject, record)
            }
            E::ServerSurfaceChanged if data["fault"].is_null() && data["accepted"] == true => None,
            E::McpDeclarationMismatch
            | E::McpUngovernedSurfaceDetected
            | E::McpVersionMismatch
            | E::ServerSurfaceChanged => self.count(SignalKind::Drift, server(), record),
            // Accepting what a server has become, or letting it go on, is the answer to that.
            E::DeclarationAccepted | E::ServerResumed | E::ServerRemoved => {
                self.resolve(SignalKind::Drift, &server());
                self.resolve(SignalKind::ScopeViolation, &server());
                None
            }
            E::ExecutionSanitised => {
                if data["redactions"].as_u64().is_some_and(|found| found > 0) {
                    return self.count(SignalKind::SecretEcho, tool(), record);
                }
                let marked = data["markers"].as_u64().is_some_and(|found| found > 0);
                if marked { self.count(SignalKind::MarkerHits, tool(), record) } else { None }
            }
            E::McpScopeViolation | E::SandboxEgressDenied | E::SandboxSyscallDenied => {
                self.count(SignalKind::ScopeViolation, server(), record)
            }
            E::QuotaCrossed => {
                let subject = data["subject"].as_str().unwrap_or("global").to_owned();
                self.count(SignalKind::QuotaNear, subject, record)
            }
            E::ExecutionDenied => self.count(SignalKind::PermitFailures, "global".into(), record),
            E::AuditPersistenceFailure | E::AuditBlocked => {
                self.count(SignalKind::AuditLag, "global".into(), record)
            }
            E::AuditUnblocked => {
                self.resolve(SignalKind::AuditLag, "global");
                None
            }
            E::ApprovalRequested => {
                self.waiting.insert(text(&data["approval"]["approval_id"]));
                let full = self.waiting.len() >= SignalKind::ApprovalBacklog.rule().threshold;
                if full {
                    self.raise(
                        SignalKind::ApprovalBacklog,
                        "global".into(),
                        vec![record.id.to_string()],
                        record.time,
                    )
                } else {
                    None
                }
            }
            E::ApprovalRecorded
            | E::ApprovalExpired
            | E::ApprovalWithdrawn
            | E::ApprovalRevoked
            | E::ApprovalInvalidated => {
                self.waiting.remove(&text(&data["approval_id"]));
                if self.waiting.len() < SignalKind::ApprovalBacklog.rule().threshold {
                    self.resolve(SignalKind::ApprovalBacklog, "global");
                }
                None
            }
            E::AdminStateChanged if data["kind"] == Acknowledgement::KIND => {
                self.acknowledge(&data["document"]);
                None
            }
            _ => None,
        }
    }

    fn count(&mut self, kind: SignalKind, subject: String, record: &Record) -> Option<&Signal> {
        let rule = kind.rule();
        let seen = self.seen.entry((kind, subject.clone())).or_default();
        seen.push_back((record.time, record.id.to_string()));
        let oldest = record.time.as_millis().saturating_sub(rule.minutes * 60_000);
        while rule.minutes > 0 && seen.front().is_some_and(|(at, _)| at.as_millis() < oldest) {
            seen.pop_front();
        }
        if seen.len() < rule.threshold {
            return None;
        }
        let evidence = seen.iter().rev().take(MOST_EVIDENCE).map(|(_, id)| id.clone()).collect();
        seen.clear();
        self.raise(kind, subject, evidence, record.time)
    }

    /// A call that took long counts; the usual is the middle of those before.
    fn timed(&mut self, tool: String, took: Option<u64>, record: &Record) -> Option<&Signal> {
        let took = took?;
        let times = self.times.entry(tool.clone()).or_default();
        let mut before: Vec<u64> = times.iter().copied().collect();
        before.sort_unstable();
        let usual = before.get(before.len() / 2).copied().filter(|_| before.len() >= 20);
        times.push_back(took);
        if times.len() > TIMES {
            times.pop_front();
        }
        if usual.is_some_and(|usual| took > 1_000_000 && took > usual.saturating_mul(4)) {
            return self.count(SignalKind::LatencySpike, tool, record);
        }
        None
    }

    fn raise(
        &mut self,
        kind: SignalKind,
        subject: String,
        evidence: Vec<String>,
        at: Timestamp,
    ) -> Option<&Signal> {
        let key = (kind, subject.clone());
        // One is enough until somebody has looked.
        if self.open.contains_key(&key) {
            return None;
        }
        let signal_id = format!("sig_{}", evidence.first().cloned().unwrap_or_default());
        self.open.insert(key, self.signals.len());
        let (severity, state) = (kind.rule().severity, SignalState::Open);
        self.signals.push(Signal {
            signal_id,
            kind,
            severity,
            state,
            subject,
            opened_at: at,
            evidence,
            note: None,
        });
        self.signals.last()
    }

    fn resolve(&mut self, kind: SignalKind, subject: &str) {
        if let Some(at) = self.open.remove(&(kind, subject.to_owned())) {
            self.signals[at].state = SignalState::Resolved;
        }
    }

    fn acknowledge(&mut self, document: &Value) {
        let id = text(&document["signal_id"]);
        let found = self.open.iter().find(|(_, at)| self.signals[**at].signal_id == id);
        let Some((key, at)) = found.map(|(key, at)| (key.clone(), *at)) else { return };
        self.open.remove(&key);
        self.signals[at].state = SignalState::Acknowledged;
        self.signals[at].note = document["note"].as_str().map(str::to_owned);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
