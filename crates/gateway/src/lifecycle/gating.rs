//! Gates on the path of a call: between policy and approval, each asks its source by an ordinary call of the same
//! principal, with a permit of its own, that nobody is asked to approve (SURF-90 to SURF-92).

use portcullis_audit::EventName;
use portcullis_core::error::ErrorDocument;
use portcullis_core::{ErrorCode, Sha256Digest};
use portcullis_gauntlet::gate::Verdict;
use portcullis_governance::boundary::CancellationSignal;
use portcullis_governance::registry::ToolEntry;
use portcullis_upstream::Wants;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Answered, Call, Lifecycle, Proposal, Response};
use crate::gates::{ArgumentGate, Triggered};
use crate::target::Target;

/// A document, or why there is none.
type Asked = Result<Value, &'static str>;

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
            let document = self.ask_source(gate, &asked, call, entry, proposal).await;
            let (verdict, reason) = match &document {
                Ok(document) => (gate.judge(document, &asked), ""),
                Err(reason) => (Verdict::SourceError, *reason),
            };
            let sha256 = document.ok().map(|document| Sha256Digest::of(document.to_string().as_bytes()));
            let spent = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            proposal.trail.note(
                EventName::GateEvaluated,
                json!({"id": gate.id(), "reason": reason, "source_ms": spent, "source_sha256": sha256, "verdict": verdict.as_str()}),
            );
            if gate.indecision.count(verdict) {
                tracing::warn!(gate = gate.id(), "a gate never decides");
                proposal.trail.note(EventName::GateNeverDecides, json!({"id": gate.id(), "reason": reason}));
            }
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

    async fn ask_source(
        &self,
        gate: &ArgumentGate,
        asked: &Triggered,
        call: &Call,
        entry: &ToolEntry,
        proposal: &Proposal,
    ) -> Asked {
        let source = gate.source(entry.tool.id().server().as_str());
        let registry = proposal.world.registry();
        let found = registry.tools().iter().find(|tool| tool.tool.id().short() == source);
        let name = found.map(|tool| tool.wire_name.clone()).ok_or("no_source")?;
        let arguments =
            RawValue::from_string(gate.source_arguments(asked).to_string()).map_err(|_| "no_source")?;
        let (canceller, cancel) = CancellationSignal::pair();
        let child = Call {
            target: Target::Tool(name),
            arguments: Some(arguments),
            parent: Some(proposal.id),
            wants: Wants::default(),
            is_source: true,
            cancel,
            ..call.clone()
        };
        let mut answered = Box::pin(self.call(child));
        let answered = tokio::select! {
            answered = &mut answered => answered,
            () = tokio::time::sleep(gate.timeout()) => {
                // It is told to end rather than dropped: what left must be settled.
                canceller.cancel();
                let _ = answered.await;
                return Err("timeout");
            }
        };
        match answered {
            Ok(Response { answered: Answered::Result(result), .. }) if !result.is_error() => {
                if result.json().len() > gate.most_bytes() {
                    return Err("too_large");
                }
                document(result.json()).ok_or("bad_json")
            }
            Ok(_) => Err("refused"),
            Err(document) if document.error == ErrorCode::PolicyDenied => Err("not_authorised"),
            Err(document) if document.error == ErrorCode::UpstreamTimeout => Err("timeout"),
            Err(_) => Err("unavailable"),
        }
    }
}

/// The structured content of a result, else its first text read as JSON.
fn document(result: &[u8]) -> Option<Value> {
    let result: Value = serde_json::from_slice(result).ok()?;
    if let Some(structured) = result.get("structuredContent") {
        return Some(structured.clone());
    }
    let text = result["content"].as_array()?.iter().find_map(|part| part["text"].as_str())?;
    // Cleaned for models; quotes come back as they were.
    let plain = text
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    serde_json::from_str(&plain).ok()
}
