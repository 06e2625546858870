//! Servers that cannot be used for a call: not there, not isolated, not what was accepted, or not for this client.

use portcullis_audit::EventName;
use portcullis_core::error::{ErrorDocument, Fault, one_line};
use portcullis_governance::permit::Permit;
use portcullis_governance::record::Isolation;
use portcullis_governance::registry::ToolEntry;
use portcullis_sandbox::doctor;
use portcullis_sandbox::launch::WAIVABLE;
use portcullis_upstream::UpstreamError;
use serde_json::json;

use super::{Lifecycle, Proposal, Violation, blocked};
use crate::upstreams::NotUsable;

/// Where a refusal says what a client would have to be able to do.
pub(crate) const REQUIRED_CAPABILITIES: &str = "requiredCapabilities";

impl Lifecycle {
    /// A server that runs unmanaged on this machine is not used unless somebody took that upon themselves.
    pub(super) fn is_isolated(
        &self,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> Result<(), ErrorDocument> {
        let record = &entry.server.record;
        let allowed = || proposal.world.registry().policy().settings().allows_unmanaged_local();
        let waived = || record.isolation_is_waived(self.clock.now());
        if record.isolation_class != Isolation::UnmanagedLocal || waived() || allowed() {
            return Ok(());
        }
        let message = match record.isolation_reason {
            Some(_) => {
                "the server runs unmanaged on this machine, and nobody has answered for that for 90 days; `portcullis mcp update` with --waive-isolation does so again"
            }
            None => {
                "the server runs unmanaged on this machine; register it as stdio, or add --waive-isolation with a reason"
            }
        };
        proposal.trail.note(EventName::McpIsolationFailure, json!({"facility": "unmanaged_local"}));
        let document = ErrorDocument::fault(Fault::Isolation, entry.tool.id().short(), message);
        Err(document.with("facility", "unmanaged_local"))
    }

    /// The server is not there, or not what was accepted; in the second case it is halted.
    pub(super) fn not_usable(
        &self,
        error: &NotUsable,
        permit: &Permit,
        entry: &ToolEntry,
        proposal: &mut Proposal,
    ) -> ErrorDocument {
        let fault = error.fault();
        if fault == Fault::Audit {
            return blocked(entry.tool.id().short(), &error.to_string());
        }
        if let NotUsable::Lacking { .. } = error {
            let denied = json!({"check": "capabilities", "permit_id": permit.id()});
            proposal.trail.note(EventName::ExecutionDenied, denied);
            return self.unusable(error, entry);
        }
        let event = match fault {
            Fault::Mismatch => EventName::McpDeclarationMismatch,
            Fault::UngovernedSurface => EventName::McpUngovernedSurfaceDetected,
            Fault::Version => EventName::McpVersionMismatch,
            Fault::Isolation => EventName::McpIsolationFailure,
            _ => EventName::McpServerUnavailable,
        };
        let reason = self.cleaned_line(&error.to_string());
        let server = entry.tool.id().server();
        proposal.trail.note(event, json!({"code": fault.as_str(), "reason": reason, "server": server}));
        // One that died with its server is on record already.
        if !permit.is_revoked() {
            let data = json!({"permit_id": permit.id(), "reason": fault.as_str()});
            proposal.trail.note(EventName::PermitInvalidated, data);
        }
        self.unusable(error, entry)
    }

    /// The refusal for a server that cannot be used. One that is not what was accepted is halted.
    pub(crate) fn unusable(&self, error: &NotUsable, entry: &ToolEntry) -> ErrorDocument {
        let fault = error.fault();
        if fault == Fault::Audit {
            return blocked(entry.tool.id().short(), &error.to_string());
        }
        let reason = self.cleaned_line(&error.to_string());
        if matches!(fault, Fault::Mismatch | Fault::UngovernedSurface | Fault::Version) {
            entry.server.live.halt();
            let server = entry.tool.id().server().clone();
            let _ = self.violations.send(Violation {
                server,
                fault,
                tools: error.tools(),
                reason: reason.clone(),
            });
        }
        let document = ErrorDocument::fault(fault, entry.tool.id().short(), reason);
        match error {
            NotUsable::Lacking { needs } => document.with(REQUIRED_CAPABILITIES, needs.clone()),
            // SBX-70: what is missing, what was found, what helps.
            NotUsable::Upstream(UpstreamError::Isolation { facility, detail }) => document
                .with("facility", facility.as_str())
                .with("found", one_line(detail))
                .with("fix", json!(doctor::advice(facility)))
                .with("waivable", WAIVABLE.contains(&facility.as_str())),
            _ => document,
        }
    }
}
