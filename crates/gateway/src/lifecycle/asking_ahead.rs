//! Asking for an approval before there is a call: the same request, the same fingerprint, and nothing sent.

use bytes::Bytes;
use portcullis_audit::{AuditBlocked, Event, EventName, RetentionClass, Role};
use portcullis_core::error::ErrorDocument;
use portcullis_core::{Actor, ApprovalId, ErrorCode, Lineage, Principal, ProposalId, SessionId};
use portcullis_gauntlet::{Args, Grants, screen};
use portcullis_governance::approval::{Asked, Scope};
use portcullis_governance::evidence::Evidence;
use portcullis_governance::policy::{Circumstances, Verdict};
use portcullis_governance::request::CanonicalRequest;
use serde_json::json;

use super::{Lifecycle, blocked, gauntlet_refusal, request_refusal};

impl Lifecycle {
    /// Asks operators about a call that `principal` would make. An equal call joins or uses what comes of it.
    pub(crate) async fn ask_ahead(
        &self,
        (by, principal): (&Actor, &Principal),
        tool: &str,
        arguments: &str,
    ) -> Result<ApprovalId, ErrorDocument> {
        let world = self.world.load();
        let registry = world.registry();
        let named = |entry: &&std::sync::Arc<portcullis_governance::registry::ToolEntry>| {
            let id = entry.tool.id();
            entry.wire_name == tool || id.short() == tool || id.as_str() == tool
        };
        let entry = registry.tools().iter().find(named).ok_or_else(|| {
            ErrorDocument::new(
                ErrorCode::NotFound,
                portcullis_core::error::one_line(tool),
                "there is no such tool",
            )
        })?;
        let path = entry.tool.id().short();
        let screened = Args::parse(arguments.as_bytes(), entry.tool.spec().max_request_bytes)
            .and_then(|args| screen(entry.tool.spec(), &Grants::Declared, args))
            .map_err(|error| gauntlet_refusal(&error, entry))?;
        let now = self.clock.now();
        let session = SessionId::new(now);
        let lineage = Lineage { parent: None, principal: principal.clone(), session, step: 1 };
        let request = CanonicalRequest::new(&entry.tool, &screened, lineage, &self.fingerprint_key)
            .map_err(|error| request_refusal(&error, entry))?;
        let policy = registry.policy().clone();
        let groups = self.groups_of(principal);
        let circumstances = Circumstances {
            authenticated: true,
            client: "portcullis admin",
            groups: &groups,
            session_calls: 1,
            now,
        };
        let decision = policy.decide(&request, &entry.facts, &circumstances);
        match decision.verdict() {
            Verdict::NeedsApproval => {}
            Verdict::Denied => {
                let message = format!("policy denies this call: {}", decision.reasons().join(", "));
                return Err(ErrorDocument::new(ErrorCode::PolicyDenied, path, message));
            }
            Verdict::Unattended => {
                let message = "policy lets this call pass without asking anybody";
                return Err(ErrorDocument::new(ErrorCode::Conflict, path, message));
            }
        }
        let mut offers = policy.offers(&decision);
        // There is no session yet that an approval could be for the life of.
        offers.retain(|offer| offer.scope != Scope::Session);
        let evidence = Evidence::prepare(&request, entry, policy.version());
        let waived = self.waivers.of(&entry.server.record.server_identity);
        let presented = evidence.present(&request, entry, &decision, &offers, &waived);
        let _one_at_a_time = self.asking.lock().await;
        let proposal = ProposalId::new(now);
        match self.book.ask(&request, proposal, offers, &policy, presented.sha256(), now) {
            Asked::Joined(id) => Ok(id),
            Asked::Suppressed { until } => {
                let message = format!("operators denied this three times; nobody is asked before {until}");
                Err(ErrorDocument::new(ErrorCode::PolicyDenied, path, message))
            }
            Asked::New(approval) => {
                let id = approval.approval_id;
                let event = Event::new(EventName::ApprovalRequested, by)
                    .session(session)
                    .proposal(proposal)
                    .tool(entry.tool.id())
                    .epoch(entry.tool.epoch())
                    .policy(policy.version())
                    .data(json!({"approval": approval, "ahead": true}))
                    .evidence(
                        Role::Presented,
                        RetentionClass::Hold,
                        Bytes::copy_from_slice(presented.bytes()),
                    );
                let receipt = self.log.commit(vec![event]).await;
                let receipt = receipt.map_err(|AuditBlocked { reason }| blocked(path, &reason))?;
                if let Some(replicas) = &self.replicas {
                    replicas.publish(receipt).await;
                }
                self.book.enter(*approval, presented.bytes());
                Ok(id)
            }
        }
    }

    /// The fingerprint of a call that `principal` would make; `None` if it would be none.
    pub(crate) fn fingerprint_of(
        &self,
        principal: &Principal,
        entry: &portcullis_governance::registry::ToolEntry,
        arguments: &str,
    ) -> Option<portcullis_governance::request::Fingerprint> {
        let args = Args::parse(arguments.as_bytes(), entry.tool.spec().max_request_bytes).ok()?;
        let screened = screen(entry.tool.spec(), &Grants::Declared, args).ok()?;
        let session = SessionId::new(self.clock.now());
        let lineage = Lineage { parent: None, principal: principal.clone(), session, step: 1 };
        let request = CanonicalRequest::new(&entry.tool, &screened, lineage, &self.fingerprint_key).ok()?;
        Some(request.fingerprint())
    }
}
