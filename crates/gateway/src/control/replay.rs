//! Recorded sessions: taken out as a cassette, or driven through today's rules again, offline (AUD-72, AUD-74).

use std::collections::HashMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use portcullis_audit::{AuditError, AuditLog, Event, EventName, EvidenceRef, Record, Role, read};
use portcullis_core::canon::to_jcs;
use portcullis_core::error::one_line;
use portcullis_core::{Actor, ErrorCode, Item, Lineage, Principal, Secret, SessionId, Sha256Digest};
use portcullis_gauntlet::{Args, Gauntlet, Grants, RawResult, Screened, screen};
use portcullis_governance::declaration::Replay;
use portcullis_governance::operator::OperatorProof;
use portcullis_governance::policy::{Bundle, Circumstances, Policy, PolicyFile, Verdict};
use portcullis_governance::registry::{Registry, ToolEntry};
use portcullis_governance::request::CanonicalRequest;
use serde::Serialize;
use serde_json::{Value, json};

use super::evidence::blocking;
use super::{Control, ControlError};
use crate::cassette::{Entry, args_sha256};

/// What driving a session again showed.
#[derive(Debug, Default, Serialize)]
pub struct Replayed {
    /// Which session.
    pub session: String,
    /// How many calls of it were sent.
    pub calls: u64,
    /// How many of them could be driven again.
    pub hits: u64,
    /// How many could not: their tool, declaration or evidence is gone.
    pub misses: u64,
    /// Where policy says something else now.
    pub policy_diffs: Vec<Value>,
    /// Where canonicalization, validation or cleaning does something else now.
    pub output_diffs: Vec<Value>,
}

/// What another policy would have decided.
#[derive(Debug, Default, Serialize)]
pub struct Verdicts {
    /// How many calls could be asked about again.
    pub compared: u64,
    /// Those about which it decides otherwise.
    pub changed: Vec<VerdictChange>,
}

/// A call about which two policies disagree.
#[derive(Debug, Clone, Serialize)]
pub struct VerdictChange {
    /// The record of it.
    pub seq: u64,
    /// `<server>/<tool>`.
    pub tool: String,
    /// What the policy in force says.
    pub now: &'static str,
    /// What the other one would.
    pub then: &'static str,
}

/// A call as it was recorded.
struct Recorded {
    intent: Record,
    result: Option<Record>,
    decision: String,
    client: String,
    /// The groups its agent is in now.
    groups: Vec<String>,
    /// Whether its result was withheld because it broke its declaration.
    withheld: bool,
}

impl Control {
    /// Whether calls are answered from a cassette instead of being made (AUD-70).
    pub fn replays(&self) -> bool {
        self.options.replay.is_some()
    }

    /// Writes every recorded result, of one session or of all, to a cassette. Returns how many.
    pub async fn record_cassette(
        &self,
        operator: &OperatorProof,
        session: Option<SessionId>,
        out: PathBuf,
    ) -> Result<u64, ControlError> {
        let calls = self.recorded(session).await?;
        let data = json!({"cassette": one_line(&out.display().to_string()), "session": session});
        let exported = Event::new(EventName::AuditExported, &operator.actor()).data(data);
        self.record_reading(operator, &calls, "cassette", exported).await?;
        let (log, registry) = (self.log.clone(), self.world().registry().clone());
        blocking(move || {
            let broken = |source: std::io::Error| AuditError::Io { path: out.clone(), source };
            let mut file = std::io::BufWriter::new(std::fs::File::create_new(&out).map_err(broken)?);
            let (mut counts, mut written) = (HashMap::new(), 0);
            for call in &calls {
                let Some(entry) = entry_of(&log, &registry, call, &mut counts)? else { continue };
                serde_json::to_writer(&mut file, &entry).map_err(std::io::Error::other).map_err(broken)?;
                file.write_all(b"\n").map_err(broken)?;
                written += 1;
            }
            file.flush().map_err(broken)?;
            Ok(written)
        })
        .await
    }

    /// Drives a recorded session through policy, canonicalization, validation and cleaning as they are now, or with
    /// another policy. Nothing is called.
    pub async fn replay_session(
        &self,
        operator: &OperatorProof,
        session: SessionId,
        policies: Option<Vec<PolicyFile>>,
    ) -> Result<Replayed, ControlError> {
        let calls = self.recorded(Some(session)).await?;
        if calls.is_empty() {
            let message =
                format!("session {session} made no call; `portcullis audit log --event session.` lists them");
            return Err(ControlError::new(ErrorCode::NotFound, message));
        }
        let registry = self.world().registry().clone();
        let policy = match policies {
            Some(files) => Arc::new(self.hypothetical(&files)?),
            None => registry.policy().clone(),
        };
        let run = Event::new(EventName::ReplayRun, &operator.actor())
            .session(session)
            .data(json!({"calls": calls.len(), "policy": policy.version(), "session": session}));
        self.record_reading(operator, &calls, "replay", run).await?;
        let (log, clock) = (self.log.clone(), self.clock.clone());
        let gauntlet = self.state.lock().await.gauntlet.clone();
        blocking(move || {
            let mut replayed = Replayed { session: session.to_string(), ..Replayed::default() };
            for call in &calls {
                replayed.calls += 1;
                let driven = drive(&log, &registry, &policy, &gauntlet, clock.now(), call, &mut replayed)?;
                if driven { replayed.hits += 1 } else { replayed.misses += 1 }
            }
            Ok(replayed)
        })
        .await
    }

    /// On which of the newest calls another policy would decide otherwise than the one in force, both asked now. The
    /// arguments of those calls are evidence. It is opened only if one of the two policies reads arguments, and that it is, by
    /// whom, is on record first (AUD-44); else nothing is opened, and so nothing recorded (SO-41).
    pub async fn verdicts_under(
        &self,
        asking: &Actor,
        bundle: &Bundle,
        most: usize,
    ) -> Result<Verdicts, ControlError> {
        let other = self.validate_policy(bundle).await?;
        let mut calls = self.recorded(None).await?;
        calls.drain(..calls.len().saturating_sub(most));
        if calls.is_empty() {
            return Ok(Verdicts::default());
        }
        let registry = self.world().registry().clone();
        let now = self.clock.now();
        if let Some(verdicts) = verdicts_without_arguments(&registry, &other, &calls, now) {
            return Ok(verdicts);
        }
        let objects: Vec<_> = (calls.iter().flat_map(|call| &call.intent.evidence))
            .filter(|reference| reference.role == Role::Canonical)
            .map(|reference| reference.object)
            .collect();
        let data = json!({"objects": objects, "reason": "compare policies"});
        let read = Event::new(EventName::AuditEvidenceRead, asking).data(data);
        self.log.commit(vec![read]).await?;
        let log = self.log.clone();
        blocking(move || {
            let mut verdicts = Verdicts::default();
            for call in &calls {
                let Again::Same(entry, request, _) = again(&log, &registry, call)? else { continue };
                let circumstances = circumstances(call, now);
                let of = |policy: &Policy| policy.decide(&request, &entry.facts, &circumstances).verdict();
                verdicts.compare(call, entry, (of(registry.policy()), of(&other)));
            }
            Ok(verdicts)
        })
        .await
    }

    fn hypothetical(&self, files: &[PolicyFile]) -> Result<Policy, ControlError> {
        let world = self.world();
        let current = world.registry().policy();
        let bundle = Bundle { files: files.to_vec(), ..current.bundle().clone() };
        Policy::compile(&bundle, self.options.mode, current.version().counter)
            .map_err(|error| ControlError::field("policy", error.to_string()))
    }

    /// The calls that were sent, in order.
    async fn recorded(&self, session: Option<SessionId>) -> Result<Vec<Recorded>, ControlError> {
        let dir = self.log.dir().to_owned();
        let mut calls = blocking(move || {
            let mut calls: Vec<Recorded> = Vec::new();
            let mut by_permit: HashMap<String, usize> = HashMap::new();
            let mut said: HashMap<String, (String, String)> = HashMap::new();
            for record in read(&dir)? {
                let record = record?;
                if record.proposal.is_none() || (session.is_some() && record.session != session) {
                    continue;
                }
                let proposal = record.proposal.map(|id| id.to_string()).unwrap_or_default();
                let text = |name: &str| record.data[name].as_str().unwrap_or_default().to_owned();
                match record.event {
                    EventName::ProposalReceived => said.entry(proposal).or_default().0 = text("client"),
                    EventName::PolicyEvaluated => said.entry(proposal).or_default().1 = text("decision"),
                    // What a server asked its client is no call.
                    EventName::ExecutionIntent if is_call(&record) => {
                        by_permit.insert(text("permit_id"), calls.len());
                        let (client, decision) = said.remove(&proposal).unwrap_or_default();
                        calls.push(Recorded {
                            intent: record,
                            result: None,
                            decision,
                            client,
                            groups: Vec::new(),
                            withheld: false,
                        });
                    }
                    EventName::ExecutionResult => {
                        if let Some(call) = by_permit.get(&text("permit_id")) {
                            calls[*call].result = Some(record);
                        }
                    }
                    EventName::McpDeclarationMismatch | EventName::ExecutionWithheld => {
                        if let Some(call) =
                            calls.iter_mut().rfind(|call| call.intent.proposal == record.proposal)
                        {
                            call.withheld = true;
                        }
                    }
                    _ => {}
                }
            }
            Ok(calls)
        })
        .await?;
        for call in &mut calls {
            if let Ok(principal) = Principal::agent(call.intent.actor.id()) {
                call.groups = self.groups_of(&principal);
            }
        }
        Ok(calls)
    }

    /// AUD-44: that evidence is read, and what for, is on record first.
    async fn record_reading(
        &self,
        operator: &OperatorProof,
        calls: &[Recorded],
        reason: &str,
        event: Event,
    ) -> Result<(), ControlError> {
        let records = calls.iter().flat_map(|call| std::iter::once(&call.intent).chain(&call.result));
        let objects: Vec<_> = records
            .flat_map(|record| &record.evidence)
            .filter(|reference| matches!(reference.role, Role::Canonical | Role::Response))
            .map(|reference| reference.object)
            .collect();
        let data = json!({"objects": objects, "reason": reason});
        let read = Event::new(EventName::AuditEvidenceRead, &operator.actor()).data(data);
        self.commit(operator, vec![event, read]).await?;
        Ok(())
    }
}

impl Verdicts {
    fn compare(&mut self, call: &Recorded, entry: &ToolEntry, (now, then): (Verdict, Verdict)) {
        self.compared += 1;
        if now != then {
            let tool = entry.tool.id().short().to_owned();
            let (now, then) = (now.as_str(), then.as_str());
            self.changed.push(VerdictChange { seq: call.intent.seq, tool, now, then });
        }
    }
}

/// What two policies say of calls that are known by who called what; `None` if one of them would have to know more.
fn verdicts_without_arguments(
    registry: &Registry,
    other: &Policy,
    calls: &[Recorded],
    now: portcullis_core::Timestamp,
) -> Option<Verdicts> {
    let mut verdicts = Verdicts::default();
    for call in calls {
        let Some(entry) = tool_of(registry, &call.intent) else { continue };
        let Ok(principal) = call.intent.actor.to_string().parse() else { continue };
        let of =
            |policy: &Policy| policy.verdict_on_any_call(&principal, &entry.facts, circumstances(call, now));
        verdicts.compare(call, entry, (of(registry.policy())?, of(other)?));
    }
    Some(verdicts)
}

fn piece(record: &Record, role: Role) -> Option<&EvidenceRef> {
    record.evidence.iter().find(|reference| reference.role == role)
}

/// The exact bytes; `None` if they are not there any more.
fn open(log: &AuditLog, record: &Record, role: Role) -> Result<Option<Vec<u8>>, AuditError> {
    let Some(reference) = piece(record, role) else { return Ok(None) };
    match log.evidence(reference, record.proposal) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(AuditError::Evidence { problem, .. }) if problem != portcullis_audit::EvidenceProblem::Digest => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The canonical arguments of a recorded call.
fn arguments(log: &AuditLog, call: &Recorded) -> Result<Option<String>, AuditError> {
    let Some(document) = open(log, &call.intent, Role::Canonical)? else { return Ok(None) };
    Ok(args_in(&document))
}

/// The arguments in a canonical request document.
pub(super) fn args_in(document: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(document).ok()?;
    String::from_utf8(to_jcs(&value["args"]).ok()?).ok()
}

fn tool_of<'r>(registry: &'r Registry, record: &Record) -> Option<&'r ToolEntry> {
    registry
        .tools()
        .iter()
        .map(|entry| &**entry)
        .find(|entry| Some(entry.tool.id()) == record.tool_id.as_ref())
}

fn entry_of(
    log: &AuditLog,
    registry: &Registry,
    call: &Recorded,
    counts: &mut HashMap<(String, Sha256Digest), u64>,
) -> Result<Option<Entry>, AuditError> {
    let Some(result) = &call.result else { return Ok(None) };
    let outcome = result.data["outcome"].as_str().unwrap_or_default();
    let tool = tool_of(registry, &call.intent);
    if !matches!(outcome, "result" | "rpc_error")
        || tool.is_some_and(|tool| tool.tool.replay() == Replay::FailLoud)
    {
        return Ok(None);
    }
    let (Some(args), Some(response), Some(tool_id)) =
        (arguments(log, call)?, open(log, result, Role::Response)?, &call.intent.tool_id)
    else {
        return Ok(None);
    };
    let args_sha256 = args_sha256(&args);
    let count = counts.entry((tool_id.as_str().to_owned(), args_sha256)).or_default();
    let n = *count;
    *count += 1;
    Ok(Some(Entry {
        v: 1,
        tool_id: tool_id.as_str().to_owned(),
        args_sha256,
        n,
        is_error: outcome == "rpc_error",
        response_sha256: Sha256Digest::of(&response),
        schema_sha256: tool.and_then(output_schema_sha256),
        response_b64: BASE64.encode(response),
        time: result.time,
    }))
}

/// The digest of the output schema a tool has now, as an entry keeps it.
pub(crate) fn output_schema_sha256(tool: &ToolEntry) -> Option<Sha256Digest> {
    let definition: Value = serde_json::from_str(tool.tool.definition().get()).ok()?;
    let schema = definition.get("outputSchema")?;
    to_jcs(schema).ok().map(|bytes| Sha256Digest::of(&bytes))
}

/// A recorded call, made a request again.
enum Again<'r> {
    /// Its tool, its agent or its arguments are not known any more.
    Gone,
    /// The same arguments are refused today, or have another form.
    Otherwise,
    Same(&'r ToolEntry, Box<CanonicalRequest>, Box<Screened>),
}

fn again<'r>(log: &AuditLog, registry: &'r Registry, call: &Recorded) -> Result<Again<'r>, AuditError> {
    let intent = &call.intent;
    let (Some(entry), Some(args)) = (tool_of(registry, intent), arguments(log, call)?) else {
        return Ok(Again::Gone);
    };
    let Ok(principal) = intent.actor.to_string().parse() else { return Ok(Again::Gone) };
    let lineage = Lineage {
        parent: None,
        principal,
        session: intent.session.unwrap_or(SessionId::from_bytes([0; 16])),
        step: intent.step.unwrap_or(0),
    };
    // The key only makes fingerprints, which nothing here compares.
    let key = Secret::new([0; 32]);
    let screened = Args::parse(args.as_bytes(), entry.tool.spec().max_request_bytes)
        .and_then(|args| screen(entry.tool.spec(), &Grants::Declared, args));
    let Ok(screened) = screened else { return Ok(Again::Otherwise) };
    match CanonicalRequest::new(&entry.tool, &screened, lineage, &key) {
        Ok(request) if request.args() == args => {
            Ok(Again::Same(entry, Box::new(request), Box::new(screened)))
        }
        _ => Ok(Again::Otherwise),
    }
}

fn is_call(intent: &Record) -> bool {
    intent.tool_id.as_ref().is_none_or(|tool| !matches!(tool.item(), Item::Request(_)))
}

fn circumstances(call: &Recorded, now: portcullis_core::Timestamp) -> Circumstances<'_> {
    let session_calls = call.intent.step.unwrap_or(0);
    Circumstances { authenticated: false, client: &call.client, groups: &call.groups, session_calls, now }
}

/// Drives one call again; false if it cannot be.
fn drive(
    log: &AuditLog,
    registry: &Registry,
    policy: &Policy,
    gauntlet: &Gauntlet,
    now: portcullis_core::Timestamp,
    call: &Recorded,
    replayed: &mut Replayed,
) -> Result<bool, AuditError> {
    let seq = call.intent.seq;
    let (entry, request, screened) = match again(log, registry, call)? {
        Again::Gone => return Ok(false),
        Again::Otherwise => {
            replayed
                .output_diffs
                .push(json!({"seq": seq, "then": "canonical", "now": "refused or another form"}));
            return Ok(true);
        }
        Again::Same(entry, request, screened) => (entry, request, screened),
    };
    let circumstances = circumstances(call, now);
    let verdict = policy.decide(&request, &entry.facts, &circumstances).verdict().as_str();
    if verdict != call.decision {
        replayed.policy_diffs.push(json!({"seq": seq, "then": call.decision, "now": verdict}));
    }
    let Some(result) = call.result.as_ref().filter(|result| result.data["outcome"] == "result") else {
        return Ok(true);
    };
    let Some(response) = open(log, result, Role::Response)? else { return Ok(false) };
    let passes = gauntlet.finish(*screened, RawResult::new(response.into())).is_ok();
    if passes == call.withheld {
        let word = |passes: bool| if passes { "released" } else { "withheld" };
        replayed
            .output_diffs
            .push(json!({"seq": result.seq, "then": word(!call.withheld), "now": word(passes)}));
    }
    Ok(true)
}
