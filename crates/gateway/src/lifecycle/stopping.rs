//! Whether a session may go on: it is not over, and no checkpoint stops it (GOV-1202, GOV-1203).

use portcullis_audit::EventName;
use portcullis_core::error::{ErrorDocument, Fault};
use portcullis_governance::registry::ToolEntry;
use portcullis_governance::request::CanonicalRequest;
use portcullis_governance::session::{Checkpoint, CheckpointRules, Passage};
use serde_json::json;

use super::{Call, Lifecycle, Proposal};

/// How a call passes the checkpoint of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// Nothing stops it.
    Freely,
    /// An operator must approve this very call; that lets the session go on.
    OnceApproved,
}

impl Lifecycle {
    /// Stops a call of a session that is stopped or over, and a session whose call goes too far.
    pub(super) fn pass_checkpoint(
        &self,
        call: &Call,
        request: &CanonicalRequest,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(), ErrorDocument> {
        let path = entry.tool.id().short();
        let refuse = |proposal: &mut Proposal, document: ErrorDocument, check| {
            let data = json!({"check": check, "error": document.error.as_str(), "message": document.message});
            proposal.trail.note(EventName::ProposalRefused, data);
            Err(document.with("check", check))
        };
        if call.session.is_over() {
            let message = format!("this session is {}; open another one", call.session.state().as_str());
            return refuse(proposal, ErrorDocument::fault(Fault::Permit, path, message), "lineage");
        }
        // What a gate asks on its own account is nothing the session did.
        let rules = match call.is_source {
            true => CheckpointRules::default(),
            false => proposal.world.registry().policy().settings().checkpoint_rules(),
        };
        match call.session.approach(request, &rules, proposal.id, self.clock.now()) {
            Passage::Free => Ok(()),
            Passage::Awaits => {
                proposal.passing = Passing::OnceApproved;
                Ok(())
            }
            Passage::Opened(checkpoint) => {
                proposal.trail.note(EventName::CheckpointOpened, json!({"checkpoint": checkpoint}));
                proposal.passing = Passing::OnceApproved;
                Ok(())
            }
            Passage::Stopped(checkpoint) => refuse(proposal, stopped(path, &checkpoint), "checkpoint"),
        }
    }
}

fn stopped(path: &str, checkpoint: &Checkpoint) -> ErrorDocument {
    let (session, reason) = (checkpoint.session_id, &checkpoint.reason);
    let message = format!(
        "a checkpoint stops this session: {reason}; an operator lets it go on with: portcullis checkpoint resolve {session} --reason WHY"
    );
    let document = ErrorDocument::fault(Fault::Permit, path, message);
    let document = document.with("session_id", json!(session)).with("trigger", checkpoint.trigger.as_str());
    match checkpoint.approval_id {
        Some(approval) => document.with("approval_id", json!(approval)),
        None => document,
    }
}
