//! Step 4: what would be shown and signed, frozen before anybody is asked (GOV-902).

use portcullis_core::canon::to_jcs;
use portcullis_core::{PolicyVersion, Sha256Digest};
use serde_json::{Value, json};

use crate::notes::Frozen;
use crate::policy::{Decision, Offer};
use crate::registry::ToolEntry;
use crate::request::{CANON, CanonicalRequest};

/// Everything a decision rests on, by version and digest.
#[derive(Debug)]
pub struct Evidence {
    frozen: Frozen,
}

/// Exactly what an operator is shown, and its digest.
#[derive(Debug, Clone)]
pub struct Presented {
    bytes: Vec<u8>,
    sha256: Sha256Digest,
}

impl Evidence {
    /// Freezes declaration, policy, canonicalisation and trust of one request.
    pub fn prepare(request: &CanonicalRequest, entry: &ToolEntry, policy: PolicyVersion) -> Self {
        let frozen = Frozen {
            canon: CANON,
            declaration_sha256: request.tool().id().declaration().sha256,
            isolation: entry.server.record.isolation_class.as_str(),
            lineage: request.lineage().clone(),
            policy,
            request_sha256: request.sha256(),
            reset_epoch: entry.server.live.reset_epoch(),
            sandbox_profile_sha256: entry.tool.cage().map(|cage| cage.sha256),
            trust: entry.server.trust_in(entry.tool.id()).as_str(),
        };
        Self { frozen }
    }

    /// The data of `evidence.prepared`.
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// The operator's view of the request: every fact the decision rests on, in full. `waived` are facilities of the machine
    /// without which the server is started (SBX-71).
    pub fn present(
        &self,
        request: &CanonicalRequest,
        entry: &ToolEntry,
        decision: &Decision<'_>,
        offers: &[Offer],
        waived: &[String],
    ) -> Presented {
        let tool = request.tool();
        let coverage: Vec<Value> = (offers.iter())
            .map(|offer| json!({"scope": offer.scope, "quorum": offer.quorum, "covers": offer.scope.coverage()}))
            .collect();
        let view = json!({
            "arguments": request.args_value(),
            "bindings": request.bindings(),
            "classes": tool.side_effects(),
            "credentials": tool.credentials(),
            "evidence": self.frozen,
            "fingerprint": request.fingerprint(),
            "idempotency": tool.idempotency().as_str(),
            "offers": coverage,
            "policies": decision.reasons(),
            "scopes": tool.scopes(),
            "server": {
                "isolation": entry.server.record.isolation_class.as_str(),
                "isolation_reason": entry.server.record.isolation_reason,
                "justification": entry.server.record.justification,
                "process_model": tool.cage().map(|cage| cage.model.as_str()),
                "transport": entry.server.record.transport.as_str(),
                "waived": waived,
            },
            "tool_id": tool.id(),
        });
        let bytes = to_jcs(&view).expect("a view is plain JSON");
        Presented { sha256: Sha256Digest::of(&bytes), bytes }
    }
}

impl Presented {
    /// The view's bytes: evidence.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Their digest, which the approval carries.
    pub fn sha256(&self) -> Sha256Digest {
        self.sha256
    }
}
