//! What must never have happened, asked of the log itself (AUD-51): one pass over the records of one log or several.
//!
//! These are the promises of governance, checked against what was recorded and not against the code that recorded it.
//! Records are taken as they are; whether they are genuine is [`verify`](crate::verify())'s question.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use portcullis_core::LogId;
use portcullis_core::principal::ActorKind;
use serde::Serialize;
use serde_json::Value;

use crate::error::AuditError;
use crate::event_name::EventName;
use crate::merged::merged;
use crate::record::Record;

/// The invariants, in the order they are reported.
const ALL: [&str; 9] = [
    "INV-MP-001",
    "INV-MP-002",
    "INV-MP-003",
    "INV-MP-004",
    "INV-MP-005",
    "INV-MP-006",
    "AUD-A",
    "AUD-68",
    "ADM-53",
];

/// What was found about one invariant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// How many records it had something to say about.
    pub checked: u64,
    /// Where it does not hold.
    pub violations: Vec<Violation>,
    /// How many records could not be held to it, because an older gateway did not write down what it takes.
    #[serde(skip_serializing_if = "is_zero")]
    pub unchecked: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A record that should not be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// In which log.
    pub log: LogId,
    /// Which record.
    pub seq: u64,
    /// What is wrong with it.
    pub detail: String,
}

/// Checks all invariants over the union of the logs or exports in `dirs`.
pub fn check_invariants(dirs: &[PathBuf]) -> Result<BTreeMap<&'static str, Verdict>, AuditError> {
    let mut ledger = Ledger::new(dirs.len() > 1);
    for record in merged(dirs)? {
        ledger.take(&record?);
    }
    Ok(ledger.finish())
}

/// Everything that has to be remembered of the records so far.
struct Ledger {
    verdicts: BTreeMap<&'static str, Verdict>,
    /// Whether references to other logs can be followed.
    several: bool,
    accepted: HashMap<String, Accepted>,
    registered: HashSet<String>,
    permits: HashMap<String, Permit>,
    approvals: HashMap<String, Approval>,
    denied_proposals: HashSet<String>,
    asking_proposals: HashSet<String>,
    /// Servers whose scope violation is not answered by a halt yet.
    to_be_halted: HashMap<String, (LogId, u64)>,
    /// Admin operations that were announced: where, and whether they were concluded.
    operations: HashMap<String, (LogId, u64, bool)>,
    refs: Vec<(LogId, u64, LogId, u64)>,
    sizes: HashMap<LogId, u64>,
}

struct Accepted {
    server: String,
    in_force: bool,
    /// What each item was accepted with.
    tools: HashMap<String, Value>,
    /// How many items it has, where the record says so.
    items: Option<u64>,
}

#[derive(Default)]
struct Permit {
    issued: u32,
    log: Option<LogId>,
    tool: String,
    request: Value,
    scopes: Value,
    side_effects: Value,
    profile: Value,
    validated: bool,
    denied: bool,
    intents: u32,
    settled: u32,
    intent: Option<(LogId, u64)>,
}

struct Approval {
    server: String,
    epoch: Option<String>,
    once: bool,
    granted: bool,
    ended: bool,
    used: u32,
}

impl Ledger {
    fn new(several: bool) -> Self {
        Self {
            verdicts: ALL.into_iter().map(|name| (name, Verdict::default())).collect(),
            several,
            accepted: HashMap::new(),
            registered: HashSet::new(),
            permits: HashMap::new(),
            approvals: HashMap::new(),
            denied_proposals: HashSet::new(),
            asking_proposals: HashSet::new(),
            to_be_halted: HashMap::new(),
            operations: HashMap::new(),
            refs: Vec::new(),
            sizes: HashMap::new(),
        }
    }

    fn take(&mut self, record: &Record) {
        use EventName as E;
        self.sizes.insert(record.log, record.seq + 1);
        self.refs.extend(record.refs.iter().map(|r| (record.log, record.seq, r.log, r.seq)));
        self.owner(record);
        let data = &record.data;
        match record.event {
            E::ServerRegistered => {
                if let Some(name) = data["record"]["server_identity"].as_str()
                    && record.actor.kind() == ActorKind::Operator
                {
                    self.registered.insert(name.to_owned());
                }
            }
            E::ServerRemoved | E::ServerVersionChanged => {
                self.server_changed(text(&data["server"]), record.event);
            }
            E::ServerHalted => {
                self.to_be_halted.remove(text(&data["server"]));
            }
            E::McpScopeViolation => self.scope_violation(record),
            E::DeclarationAccepted => self.accept(data),
            E::DeclarationDescribed => self.describe(data),
            E::DeclarationSuperseded | E::DeclarationWithdrawn => {
                let sha256 = digest_of(text(&data["version"]));
                if let Some(declaration) = self.accepted.get_mut(sha256) {
                    declaration.in_force = false;
                }
            }
            E::PolicyEvaluated => {
                let proposal = record.proposal.map(|id| id.to_string()).unwrap_or_default();
                match text(&data["decision"]) {
                    "deny" => drop(self.denied_proposals.insert(proposal)),
                    "approval" => drop(self.asking_proposals.insert(proposal)),
                    _ => {}
                }
            }
            E::ApprovalRecorded => self.approve(record),
            E::PermitIssued => self.issue(record),
            E::PermitValidated => self.permit(data).validated = true,
            E::ExecutionDenied => self.permit(data).denied = true,
            E::ExecutionIntent => self.intend(record),
            E::ExecutionResult => self.settle(record, true),
            E::ExecutionIndeterminate | E::ExecutionCancelled => self.settle(record, false),
            E::SystemStarted => self.started(record),
            E::AdminOpIntent => self.announce(record),
            E::AdminOpExecuted | E::AdminOpFailed => self.conclude(record),
            _ => {}
        }
    }

    /// INV-MP-004.
    fn owner(&mut self, record: &Record) {
        let (server, problem) = match (&record.tool_id, record.event) {
            (Some(tool), _) => {
                (tool.server().as_str().to_owned(), "is about a server that no operator registered")
            }
            (None, EventName::ServerRegistered) if record.actor.kind() != ActorKind::Operator => {
                (String::new(), "registers a server without an operator")
            }
            _ => return,
        };
        self.count("INV-MP-004");
        if !self.registered.contains(&server) {
            self.violated("INV-MP-004", record, problem);
        }
    }

    fn accept(&mut self, data: &Value) {
        let server = text(&data["server"]).to_owned();
        let declaration =
            Accepted { server, in_force: true, tools: HashMap::new(), items: data["items"].as_u64() };
        self.accepted.insert(digest_of(text(&data["version"])).to_owned(), declaration);
        self.describe(data);
    }

    fn describe(&mut self, data: &Value) {
        let declaration = self.accepted.get_mut(digest_of(text(&data["version"])));
        if let (Some(declaration), Some(tools)) = (declaration, data["tools"].as_object()) {
            declaration.tools.extend(tools.iter().map(|(name, tool)| (name.clone(), tool.clone())));
        }
    }

    fn server_changed(&mut self, server: &str, event: EventName) {
        for approval in self.approvals.values_mut().filter(|approval| approval.server == server) {
            approval.ended = true;
        }
        if event == EventName::ServerRemoved {
            // It stays one that was registered: calls under way are refused, cut and recorded after it is gone.
            for declaration in self.accepted.values_mut().filter(|declaration| declaration.server == server) {
                declaration.in_force = false;
            }
        }
    }

    fn scope_violation(&mut self, record: &Record) {
        self.count("INV-MP-006");
        let server = record.tool_id.as_ref().map(|tool| tool.server().as_str());
        let server = server.unwrap_or(text(&record.data["server"])).to_owned();
        self.to_be_halted.entry(server).or_insert((record.log, record.seq));
    }

    fn approve(&mut self, record: &Record) {
        let data = &record.data;
        let approval = Approval {
            server: record.tool_id.as_ref().map(|tool| tool.server().as_str().to_owned()).unwrap_or_default(),
            epoch: record.epoch.map(|epoch| epoch.to_string()),
            once: data["scope"] == "once",
            granted: data["decision"] == "approved",
            ended: false,
            used: 0,
        };
        self.approvals.insert(text(&data["approval_id"]).to_owned(), approval);
    }

    fn issue(&mut self, record: &Record) {
        let data = &record.data;
        let permit = self.permit(data);
        permit.issued += 1;
        permit.log = Some(record.log);
        permit.tool = record.tool_id.as_ref().map(|tool| tool.as_str().to_owned()).unwrap_or_default();
        permit.request = data["request_sha256"].clone();
        permit.scopes = data["scopes"].clone();
        permit.side_effects = data["side_effects"].clone();
        permit.profile = data["sandbox_profile_sha256"].clone();
    }

    /// Almost everything is about this one event: a call is about to leave.
    fn intend(&mut self, record: &Record) {
        for name in ["INV-MP-001", "INV-MP-002", "INV-MP-003", "INV-MP-006", "AUD-A"] {
            self.count(name);
        }
        self.intend_declaration(record);
        self.intend_permit(record);
        self.intend_approval(record);
        let permit = self.permit(&record.data);
        permit.intents += 1;
        permit.intent = Some((record.log, record.seq));
        permit.settled = 0;
    }

    fn intend_declaration(&mut self, record: &Record) {
        let data = &record.data;
        let Some(declaration) = self.accepted.get(text(&data["declaration_sha256"])) else {
            return self.violated("INV-MP-001", record, "its declaration was never accepted");
        };
        let name = record.tool_id.as_ref().map(|tool| tool.item().to_string()).unwrap_or_default();
        let tool = declaration.tools.get(&name).cloned();
        let is_whole = declaration.items == Some(declaration.tools.len() as u64);
        if !declaration.in_force {
            self.violated("INV-MP-001", record, "its declaration was superseded or withdrawn before");
        }
        let Some(tool) = tool else {
            match is_whole {
                true => self.violated("INV-MP-006", record, "what it calls is not among what was accepted"),
                // Older gateways left out what did not fit.
                false => self.verdicts.entry("INV-MP-006").or_default().unchecked += 1,
            }
            return;
        };
        if tool["side_effects"] != data["side_effects"] || tool["scopes"] != data["scopes"] {
            self.violated("INV-MP-006", record, "its classes or scopes are not those accepted for the tool");
        }
        if tool.get("profile_sha256").is_some_and(|profile| *profile != data["sandbox_profile_sha256"]) {
            self.violated("INV-MP-006", record, "its sandbox profile is not the one accepted for the tool");
        }
    }

    fn intend_permit(&mut self, record: &Record) {
        let data = &record.data;
        let tool = record.tool_id.as_ref().map(|tool| tool.as_str().to_owned()).unwrap_or_default();
        let permit = self.permit(data);
        let mut wrong = Vec::new();
        if permit.issued != 1 || permit.tool != tool || permit.request != data["request_sha256"] {
            wrong.push(("INV-MP-002", "there is not exactly one permit for this tool and request"));
        }
        if permit.intents > 0 {
            wrong.push(("INV-MP-002", "its permit was used before"));
        }
        if !permit.validated {
            wrong.push(("INV-MP-003", "its permit was not validated before"));
        }
        if permit.denied {
            wrong.push(("INV-MP-003", "its permit was denied at the boundary before"));
        }
        let same = permit.side_effects == data["side_effects"]
            && permit.scopes == data["scopes"]
            && permit.profile == data["sandbox_profile_sha256"];
        if permit.issued > 0 && !same {
            wrong.push(("INV-MP-006", "its classes, scopes or sandbox profile are not the permit's"));
        }
        for (name, detail) in wrong {
            self.violated(name, record, detail);
        }
    }

    fn intend_approval(&mut self, record: &Record) {
        let proposal = record.proposal.map(|id| id.to_string()).unwrap_or_default();
        if self.denied_proposals.contains(&proposal) {
            self.violated("AUD-A", record, "policy denied its proposal");
        }
        let id = text(&record.data["approval_id"]);
        if id.is_empty() {
            if self.asking_proposals.contains(&proposal) {
                self.violated("AUD-A", record, "an approval was required and it names none");
            }
            return;
        }
        self.count("INV-MP-005");
        let epoch = record.epoch.map(|epoch| epoch.to_string());
        let mut wrong = Vec::new();
        match self.approvals.get_mut(id) {
            None => wrong.push(("AUD-A", "its approval is not on record before")),
            Some(approval) => {
                approval.used += 1;
                if !approval.granted {
                    wrong.push(("AUD-A", "its approval was denied"));
                }
                if approval.ended {
                    wrong.push(("INV-MP-005", "its approval ended when its server changed or was removed"));
                }
                if approval.epoch != epoch {
                    wrong.push(("INV-MP-005", "its approval belongs to another life of the server"));
                }
                if approval.once && approval.used > 1 {
                    wrong.push(("AUD-68", "its approval was for one use and is used again"));
                }
            }
        }
        for (name, detail) in wrong {
            self.violated(name, record, detail);
        }
    }

    fn settle(&mut self, record: &Record, is_result: bool) {
        self.count("AUD-A");
        let permit = self.permit(&record.data);
        permit.settled += 1;
        let (intended, settled) = (permit.intents > 0, permit.settled);
        if is_result && !intended {
            self.violated("AUD-A", record, "is a result without an intent");
        } else if is_result && settled > 1 {
            self.violated("AUD-A", record, "is a second result for one intent");
        }
        self.forget_settled(&record.data);
    }

    /// ADM-53: an operation is announced by an operator, once.
    fn announce(&mut self, record: &Record) {
        self.count("ADM-53");
        if record.actor.kind() != ActorKind::Operator {
            self.violated("ADM-53", record, "announces an operation of nobody");
        }
        let id = text(&record.data["op_id"]).to_owned();
        if self.operations.insert(id, (record.log, record.seq, false)).is_some() {
            self.violated("ADM-53", record, "announces an operation that was announced before");
        }
    }

    /// And concluded once, after that. What has no operation is a note of its own.
    fn conclude(&mut self, record: &Record) {
        let id = text(&record.data["op_id"]);
        if id.is_empty() {
            return;
        }
        self.count("ADM-53");
        match self.operations.get_mut(id) {
            None => self.violated("ADM-53", record, "concludes an operation that nobody announced"),
            Some((.., true)) => self.violated("ADM-53", record, "concludes an operation a second time"),
            Some((.., concluded)) => *concluded = true,
        }
    }

    /// A start closes everything that was open in its log.
    fn started(&mut self, record: &Record) {
        let cut: Vec<(LogId, u64)> = (self.operations.values_mut())
            .filter(|(log, _, concluded)| *log == record.log && !concluded)
            .map(|(log, seq, concluded)| {
                *concluded = true;
                (*log, *seq)
            })
            .collect();
        for (log, seq) in cut {
            let detail = "announces an operation that was not concluded before the next start".into();
            self.report("ADM-53", Violation { log, seq, detail });
        }
        let open: Vec<(LogId, u64)> = (self.permits.values())
            .filter(|permit| permit.log == Some(record.log) && permit.settled == 0)
            .filter_map(|permit| permit.intent)
            .collect();
        for (log, seq) in open {
            let detail = "has neither a result nor another end before the next start".into();
            self.report("AUD-A", Violation { log, seq, detail });
        }
    }

    /// What a permit looked like is not needed any more; that it was used is.
    fn forget_settled(&mut self, data: &Value) {
        let permit = self.permit(data);
        (permit.scopes, permit.side_effects, permit.profile) = (Value::Null, Value::Null, Value::Null);
    }

    fn finish(mut self) -> BTreeMap<&'static str, Verdict> {
        for (log, seq) in std::mem::take(&mut self.to_be_halted).into_values() {
            let detail = "a scope violation was not followed by a halt of its server".into();
            self.report("INV-MP-006", Violation { log, seq, detail });
        }
        if self.several {
            for (log, seq, of, number) in std::mem::take(&mut self.refs) {
                self.count("AUD-68");
                if self.sizes.get(&of).is_none_or(|size| *size <= number) {
                    let detail = format!("refers to {of}/{number}, which is not there");
                    self.report("AUD-68", Violation { log, seq, detail });
                }
            }
        }
        for verdict in self.verdicts.values_mut() {
            verdict.violations.sort_by_key(|violation| (violation.log, violation.seq));
        }
        self.verdicts
    }

    fn permit(&mut self, data: &Value) -> &mut Permit {
        self.permits.entry(text(&data["permit_id"]).to_owned()).or_default()
    }

    fn count(&mut self, name: &'static str) {
        self.verdicts.entry(name).or_default().checked += 1;
    }

    fn violated(&mut self, name: &'static str, record: &Record, detail: &str) {
        self.report(name, Violation { log: record.log, seq: record.seq, detail: detail.into() });
    }

    fn report(&mut self, name: &'static str, violation: Violation) {
        self.verdicts.entry(name).or_default().violations.push(violation);
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The digest of a version, `7:a3f8…`.
fn digest_of(version: &str) -> &str {
    version.split_once(':').map_or(version, |(_, digest)| digest)
}
