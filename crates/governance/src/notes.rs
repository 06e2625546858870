//! What the events of every call say.
//!
//! Typed, because a call leaves nine of these and building a JSON document for each costs more than the call's
//! validation. Members are declared in canonical (sorted) order, so that writing them down is writing them canonically.
//! Rarer events say theirs with `json!` where they happen.

use portcullis_audit::EventName;
use portcullis_core::name::ScopeName;
use portcullis_core::{ApprovalId, Lineage, LogId, PermitId, PolicyVersion, Sha256Digest};
use serde::Serialize;

use crate::approval::Scope;
use crate::declaration::SideEffect;
use crate::request::Fingerprint;

/// `proposal.received`.
#[derive(Debug, Serialize)]
pub struct Received<'a> {
    /// How long the arguments are.
    pub arguments_bytes: usize,
    /// What the client calls itself, cut and escaped.
    pub client: &'a str,
    /// The name it called, cut and escaped.
    pub name: &'a str,
    /// The span it is part of, if the client says: a `traceparent` that is well-formed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<&'a str>,
}

/// `proposal.canonicalized`.
#[derive(Debug, Serialize)]
pub struct Canonicalized<'a> {
    /// Equal requests of one principal have equal ones.
    pub fingerprint: Fingerprint,
    /// The digest of the canonical document.
    pub request_sha256: Sha256Digest,
    /// The scopes the tool was declared with.
    pub scopes: &'a [ScopeName],
    /// Its classes.
    pub side_effects: &'a [SideEffect],
}

/// `policy.evaluated`.
#[derive(Debug, Serialize)]
pub struct Evaluated<'a> {
    /// The verdict's word.
    pub decision: &'a str,
    /// The policies that decided.
    pub reasons: &'a [String],
}

/// `evidence.prepared`: everything a decision rests on, by version and digest.
#[derive(Debug, Clone, Serialize)]
pub struct Frozen {
    /// The canonicalization.
    pub canon: &'static str,
    /// The accepted declaration.
    pub declaration_sha256: Sha256Digest,
    /// The server's isolation class.
    pub isolation: &'static str,
    /// Who asks, where.
    pub lineage: Lineage,
    /// The policy.
    pub policy: PolicyVersion,
    /// The canonical request.
    pub request_sha256: Sha256Digest,
    /// How often the server's trust was reset.
    pub reset_epoch: u64,
    /// The sandbox profile, if the server has one.
    pub sandbox_profile_sha256: Option<Sha256Digest>,
    /// The server's trust.
    pub trust: &'static str,
}

/// `approval.determined` when nobody has to be asked.
#[derive(Debug, Serialize)]
pub struct Determined {
    /// The approval that covers the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// `met` or `not_needed`.
    pub outcome: &'static str,
    /// How far the approval reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// `envelope.used`.
#[derive(Debug, Serialize)]
pub struct EnvelopeUsed<'a> {
    /// Which.
    pub envelope_id: &'a str,
    /// The permit that was minted of it.
    pub permit_id: PermitId,
}

/// An event that only names a permit: `permit.validated`, `mcp.tool_timeout`, `execution.indeterminate`.
#[derive(Debug, Serialize)]
pub struct OfPermit {
    /// Which.
    pub permit_id: PermitId,
}

/// `execution.intent`.
#[derive(Debug, Serialize)]
pub(crate) struct Intent<'a> {
    pub(crate) approval_id: Option<ApprovalId>,
    pub(crate) declaration_sha256: Sha256Digest,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) permit_id: PermitId,
    /// How the process is shared; nothing for a server that is no process of ours.
    pub(crate) process_model: Option<&'static str>,
    pub(crate) replica: LogId,
    pub(crate) request_sha256: Sha256Digest,
    pub(crate) sandbox_profile_sha256: Option<Sha256Digest>,
    pub(crate) scopes: &'a [ScopeName],
    pub(crate) side_effects: &'a [SideEffect],
    /// When the steps before were noted, in microseconds since the call came in.
    pub(crate) steps_us: &'a [(EventName, u64)],
    /// Why nothing confines the server, in the words of who took that upon themselves (SBX §10).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waived: Option<&'a str>,
}

/// `execution.result`.
#[derive(Debug, Serialize)]
pub(crate) struct Came {
    pub(crate) bytes: Option<usize>,
    /// Microseconds since the call came in.
    pub(crate) elapsed_us: u64,
    /// Of the request that was answered: what trust counts by.
    pub(crate) fingerprint: Fingerprint,
    pub(crate) outcome: &'static str,
    pub(crate) permit_id: PermitId,
    /// Whether an operator took the permit back while the call was under way (GOV-1004).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) revoked: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::canon::to_jcs;
    use portcullis_core::{Principal, SessionId, Timestamp};

    fn assert_canonical(note: &impl Serialize) {
        let plain = serde_json::to_vec(note).unwrap();
        assert_eq!(String::from_utf8(plain).unwrap(), String::from_utf8(to_jcs(note).unwrap()).unwrap());
    }

    #[test]
    fn every_note_is_written_canonically() {
        // AUD-10
        let now = Timestamp::from_millis(1_800_000_000_000);
        let digest = Sha256Digest::of(b"x");
        let (permit_id, approval_id) = (PermitId::new(now), None);
        let fingerprint: Fingerprint = serde_json::from_value(serde_json::json!("00".repeat(32))).unwrap();
        let lineage = Lineage {
            parent: None,
            principal: Principal::agent("a").unwrap(),
            session: SessionId::new(now),
            step: 3,
        };
        assert_canonical(&Received { arguments_bytes: 1, client: "c", name: "n", traceparent: Some("t") });
        assert_canonical(&Canonicalized {
            fingerprint,
            request_sha256: digest,
            scopes: &[],
            side_effects: &[],
        });
        assert_canonical(&Evaluated { decision: "allow", reasons: &["r".into()] });
        assert_canonical(&Frozen {
            canon: "canon-v1",
            declaration_sha256: digest,
            isolation: "i",
            lineage,
            policy: PolicyVersion { counter: 1, sha256: digest },
            request_sha256: digest,
            reset_epoch: 0,
            sandbox_profile_sha256: None,
            trust: "untrusted",
        });
        assert_canonical(&Determined { approval_id: None, outcome: "met", scope: Some(Scope::Once) });
        assert_canonical(&EnvelopeUsed { envelope_id: "env-1", permit_id });
        assert_canonical(&OfPermit { permit_id });
        assert_canonical(&Intent {
            approval_id,
            declaration_sha256: digest,
            fingerprint,
            permit_id,
            process_model: Some("shared"),
            replica: LogId::new(now),
            request_sha256: digest,
            sandbox_profile_sha256: None,
            scopes: &[],
            side_effects: &[],
            steps_us: &[(EventName::ProposalReceived, 3)],
            waived: Some("w"),
        });
        assert_canonical(&Came {
            bytes: Some(1),
            elapsed_us: 7,
            fingerprint,
            outcome: "result",
            permit_id,
            revoked: true,
        });
    }
}
