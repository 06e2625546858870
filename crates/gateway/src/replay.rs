//! A call that is answered from a cassette (AUD-70, AUD-73).
//!
//! Everything before the boundary has happened as always, and so do the eight checks: a grant that was withdrawn
//! refuses before the cassette is opened. Then the recorded bytes take the way of a server's answer. Nothing is
//! started, connected or sent.

use std::collections::HashMap;

use portcullis_audit::EventName;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_core::{ErrorCode, EventId};
use portcullis_gauntlet::{Raw, RawResult, Screened};
use portcullis_governance::boundary::{Denied, Now, ReleasedResponse, SealedResponse};
use portcullis_governance::declaration::Replay;
use portcullis_governance::permit::Permit;
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::request::CanonicalRequest;
use portcullis_governance::trail::Trail;
use portcullis_upstream::Era;
use serde_json::json;

use crate::cassette::{Cassette, Recorded};
use crate::control::output_schema_sha256;
use crate::lifecycle::{Call, Lifecycle, Proposal, Response, blocked};

/// A gateway in the mode `replay`.
#[derive(Debug)]
pub struct Replaying {
    /// What is played.
    pub cassette: Cassette,
    /// Names this run in refusals.
    pub run_id: EventId,
}

impl Replaying {
    /// Whether calls of a tool with this policy are answered from the cassette. The others are made, as always.
    pub fn stands_for(&self, policy: Replay) -> bool {
        policy != Replay::Reexecute
    }

    /// What a call that is made again was answered when it was recorded.
    pub(crate) fn recorded(&self, entry: &ToolEntry, args: &str) -> Option<Recorded> {
        (entry.tool.replay() == Replay::Reexecute)
            .then(|| self.cassette.next(entry.tool.id().as_str(), args))
            .flatten()
    }

    /// Puts the answer of a call that was made again beside the recorded one. Whether they are the same is on record
    /// with the answer.
    pub(crate) fn compare(&self, recorded: &Recorded, sealed: &SealedResponse, trail: &mut Trail) -> Again {
        let same = sealed.is(recorded.sha256);
        let data = json!({
            "cassette": self.cassette.sha256(), "n": recorded.n, "permit_id": sealed.permit_id(), "reexecuted": true,
            "response_sha256": recorded.sha256, "run_id": self.run_id, "same": same,
        });
        trail.note(EventName::ReplayHit, data);
        Again { same }
    }
}

/// What came of making a recorded call again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Again {
    same: bool,
}

impl Again {
    /// Says so in the mark of the call (AUD-70).
    pub(crate) fn tell(self, response: &mut Response) {
        response.mark["reexecuted"] = json!({"differs": !self.same});
    }
}

impl Lifecycle {
    /// Steps 8 to 10 without a server.
    pub(crate) async fn replay(
        &self,
        replaying: &Replaying,
        permit: Permit,
        (request, screened): (CanonicalRequest, Screened),
        entry: &ToolEntry,
        call: &Call,
        proposal: &mut Proposal,
    ) -> Result<Response, ErrorDocument> {
        let path = entry.tool.id().short();
        let now = Now { registry: &*self.world, session: &call.session, lineage: &proposal.lineage };
        let admitted = self.boundary.rehearse(permit, &request, now, &mut proposal.trail).await;
        let permit_id = admitted.map_err(|denied| match denied {
            Denied::Check(check) => {
                let message = format!("permit check failed: {}", check.as_str());
                ErrorDocument::fault(Fault::Permit, path, message).with("check", check.as_str())
            }
            Denied::Audit(error) => blocked(path, &error.reason),
        })?;
        let policy = entry.tool.replay();
        let tool_id = entry.tool.id().as_str();
        let found = match policy {
            Replay::FailLoud => None,
            _ => replaying.cassette.next(tool_id, request.args()),
        };
        // Its keyed form: the plain digest of guessable arguments would tell them.
        let fingerprint = request.fingerprint();
        let Some(recorded) = found else {
            let data =
                json!({"fingerprint": fingerprint, "permit_id": permit_id, "run_id": replaying.run_id});
            proposal.trail.note(EventName::ReplayMiss, data);
            proposal.trail.commit().await.map_err(|error| blocked(path, &error.reason))?;
            let (reason, message) = match policy {
                Replay::FailLoud => {
                    ("forbidden", "this tool is never replayed, and nothing is called while replaying")
                }
                _ => (
                    "miss",
                    "no recorded result is left for this call, and nothing is called while replaying",
                ),
            };
            return Err(not_replayed(replaying, entry, reason, message));
        };
        // GNT-R2: what was recorded under another schema was never promised to fit this one.
        if !recorded.is_error && recorded.schema_sha256 != output_schema_sha256(entry) {
            let data = json!({
                "fingerprint": fingerprint, "permit_id": permit_id, "reason": "schema_changed", "run_id": replaying.run_id,
            });
            proposal.trail.note(EventName::ReplayMiss, data);
            proposal.trail.commit().await.map_err(|error| blocked(path, &error.reason))?;
            let message = "the recorded result was given under another output schema";
            return Err(not_replayed(replaying, entry, "schema_changed", message));
        }
        let data = json!({
            "cassette": replaying.cassette.sha256(), "fingerprint": fingerprint, "n": recorded.n,
            "permit_id": permit_id, "response_sha256": recorded.sha256, "run_id": replaying.run_id,
        });
        proposal.trail.note(EventName::ReplayHit, data);
        let receipt = proposal.trail.commit().await.map_err(|error| blocked(path, &error.reason))?;
        let era = era_of(&recorded.response);
        let released = match recorded.is_error {
            true => ReleasedResponse::RpcError(Raw::new(recorded.response)),
            false => ReleasedResponse::Result(RawResult::new(recorded.response)),
        };
        let mut response = self.answer(released, receipt.seq, screened, None, era, entry, proposal)?;
        response.mark["replayed"] = json!(true);
        Ok(response)
    }
}

/// The refusal of AUD-73, with the words of gauntlet §7.
fn not_replayed(replaying: &Replaying, entry: &ToolEntry, reason: &str, message: &str) -> ErrorDocument {
    ErrorDocument::new(ErrorCode::UpstreamError, entry.tool.id().short(), message)
        .with("code", "REPLAY_MISS")
        .with("kind", "replay")
        .with("reason", reason)
        .with("run_id", json!(replaying.run_id))
        .with("tool_id", entry.tool.id().as_str())
        .with("side_effects", json!(entry.tool.side_effects()))
}

/// Only servers of the modern era say what type of result they give.
fn era_of(response: &[u8]) -> Era {
    let members: HashMap<String, &serde_json::value::RawValue> =
        serde_json::from_slice(response).unwrap_or_default();
    if members.contains_key("resultType") { Era::Modern } else { Era::Legacy }
}
