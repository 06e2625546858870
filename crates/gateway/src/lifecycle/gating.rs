//! Gates on the path of a call: between policy and approval, each asks its source by an ordinary call of the same
//! principal, with a permit of its own, that nobody is asked to approve (SURF-90 to SURF-92).

use portcullis_audit::EventName;
use portcullis_core::error::ErrorDocument;
use portcullis_core::{ErrorCode, ProposalId, Sha256Digest};
use portcullis_gauntlet::gate::Verdict;
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::Wants;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Answered, Call, Lifecycle, Proposal, Response};
use crate::alarms::AlarmKind;
use crate::gates::{ArgumentGate, Question, Triggered};
use crate::target::Target;

/// A document, or why there is none.
pub(crate) type Asked = Result<Value, &'static str>;

impl Lifecycle {
    /// Refuses arguments that the server's own live document does not support. Who asks for such a document is not
    /// gated.
    pub(super) async fn pass_gates(
        &self,
        call: &Call,
        arguments: &str,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(), ErrorDocument> {
        if call.is_source {
            return Ok(());
        }
        for gate in self.gates.before(entry.tool.id().short()) {
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            let Some(asked) = gate.triggered(&arguments) else { continue };
            let began = std::time::Instant::now();
            let document = self.ask_source(gate, Some(&asked), call, &entry.tool, Some(proposal.id)).await;
            let (verdict, reason) = match &document {
                Ok(document) => (gate.judge(document, &asked), ""),
                Err(reason) => (Verdict::SourceError, *reason),
            };
            let sha256 = document.ok().map(|document| Sha256Digest::of(document.to_string().as_bytes()));
            let elapsed = began.elapsed();
            gate.meter.count(verdict, reason, elapsed);
            let spent = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            proposal.trail.note(
                EventName::GateEvaluated,
                json!({"id": gate.id(), "reason": reason, "source_ms": spent, "source_sha256": sha256, "verdict": verdict.as_str()}),
            );
            self.count(gate, verdict, reason, proposal);
            if gate.refuses(verdict) {
                let (code, param, message) = gate.refusal(&asked);
                let document = ErrorDocument::new(ErrorCode::ArgsInvalid, entry.tool.id().short(), message);
                return Err(document
                    .with("code", code)
                    .with("param", param)
                    .with("gate", gate.id())
                    .with("verdict", verdict.as_str())
                    .with("source", gate.source(entry.tool.id().server().as_str())));
            }
        }
        Ok(())
    }

    /// A gate that cannot decide must be seen (SURF-95).
    fn count(&self, gate: &ArgumentGate, verdict: Verdict, reason: &str, proposal: &mut Proposal) {
        let told = gate.indecision.count(verdict);
        let (unknown_subject, source_error) = gate.indecision.undecided();
        if told {
            tracing::warn!(gate = gate.id(), unknown_subject, source_error, "a gate never decides");
            proposal.trail.note(
                EventName::GateNeverDecides,
                json!({"id": gate.id(), "reason": reason, "source_error": source_error, "unknown_subject": unknown_subject}),
            );
        }
        if gate.indecision.never_decides() {
            self.alarms.undecided(gate.id(), (unknown_subject, source_error));
        } else {
            self.alarms.end(AlarmKind::GateNeverDecides, gate.id());
        }
    }

    /// Asks for the document of a gate on behalf of a call, or of a principal who has made none yet. Without a subject
    /// it is asked about everything there is.
    pub(crate) async fn ask_source(
        &self,
        gate: &ArgumentGate,
        asked: Option<&Triggered>,
        call: &Call,
        gated: &AcceptedTool,
        parent: Option<ProposalId>,
    ) -> Asked {
        let question = gate.question(gated.id().server().as_str(), asked);
        let world = self.world.load();
        let (target, arguments) = match &question {
            Question::Accepted => {
                return serde_json::from_str(gated.definition().get()).map_err(|_| "bad_json");
            }
            Question::Resource(uri) => {
                (Target::Resource(world.registry().outward_uri(gated.id().server(), uri)), None)
            }
            Question::Tool(source, arguments) => {
                let found = world.registry().tools().iter().find(|tool| tool.tool.id().short() == *source);
                let name = found.map(|tool| tool.wire_name.clone()).ok_or("no_source")?;
                let arguments = RawValue::from_string(arguments.to_string()).map_err(|_| "no_source")?;
                (Target::Tool(name), Some(arguments))
            }
        };
        let who = format!("{} {question:?}", call.session.principal());
        if let Some(document) = gate.kept(&who) {
            return Ok(document);
        }
        let (canceller, cancel) = CancellationSignal::pair();
        let wants = Wants::default();
        let child = Call { target, arguments, parent, wants, is_source: true, cancel, ..call.clone() };
        let mut answered = Box::pin(self.call(&child));
        let answered = tokio::select! {
            answered = &mut answered => answered,
            () = tokio::time::sleep(gate.timeout()) => {
                // It is told to end rather than dropped: what left must be settled.
                canceller.cancel();
                let _ = answered.await;
                return Err("timeout");
            }
        };
        let document = match answered {
            Ok(Response { answered: Answered::Result(result), .. }) if !result.is_error() => {
                if result.json().len() > gate.most_bytes() {
                    return Err("too_large");
                }
                document(result.json()).ok_or("bad_json")
            }
            Ok(Response { answered: Answered::Result(result), .. }) => Err(refused(result.json())),
            Ok(_) => Err("refused"),
            Err(document) => Err(match document.error {
                ErrorCode::PolicyDenied => "not_authorised",
                ErrorCode::UpstreamTimeout => "timeout",
                ErrorCode::ResultTooLarge => "too_large",
                _ => "unavailable",
            }),
        }?;
        gate.keep(who, &document);
        Ok(document)
    }
}

/// Why a tool that offers a document failed, by the code of its error where it has one.
fn refused(result: &[u8]) -> &'static str {
    let result: Value = serde_json::from_slice(result).unwrap_or_default();
    let said = [&result["structuredContent"]["error"], &result["structuredContent"]["details"]["code"]];
    let is = |word: &str| said.iter().any(|text| **text == word);
    match () {
        () if is("AUTH_FAILED") || is("PERMISSION_DENIED") => "not_authorised",
        () if is("RESULT_TOO_LARGE") => "too_large",
        () if is("UPSTREAM_TIMEOUT") => "timeout",
        () if is("redirect") => "redirect",
        () if is("bad_json") || is("not_json") => "bad_json",
        () if is("UPSTREAM_UNAVAILABLE") => "unavailable",
        () => "refused",
    }
}

/// The structured content of a result, else its first text read as JSON.
fn document(result: &[u8]) -> Option<Value> {
    let result: Value = serde_json::from_slice(result).ok()?;
    if let Some(structured) = result.get("structuredContent") {
        return Some(structured.clone());
    }
    let parts = result.get("content").or_else(|| result.get("contents"))?;
    let text = parts.as_array()?.iter().find_map(|part| part["text"].as_str())?;
    serde_json::from_str(&unescaped(text)).ok()
}

/// A text cleaned for models, with its quotes as they were.
pub(crate) fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}
