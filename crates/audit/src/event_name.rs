//! The names events can have (AUD-13): a closed list, so that a typo is a compile error and a record with a
//! name nobody knows does not verify.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The text is not the name of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an audit event")]
pub struct UnknownEvent;

/// A name comes with what its `data` has at least: `member:kind`, a kind being what
/// [`kind_of`] says, or `any`, which may also be `null`. What else is there is for
/// people, and may change.
macro_rules! event_names {
    ($($variant:ident = $name:literal $members:literal,)+) => {
        /// What an event says happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum EventName {
            $(#[doc = concat!("`", $name, "`")] $variant,)+
        }

        impl EventName {
            /// Every name, in the order of the specification's table.
            pub const ALL: &'static [EventName] = &[$(EventName::$variant),+];

            /// The name as it stands in records.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(EventName::$variant => $name,)+
                }
            }

            const fn members(self) -> &'static str {
                match self {
                    $(EventName::$variant => $members,)+
                }
            }
        }

        impl FromStr for EventName {
            type Err = UnknownEvent;
            fn from_str(text: &str) -> Result<Self, UnknownEvent> {
                match text {
                    $($name => Ok(EventName::$variant),)+
                    _ => Err(UnknownEvent),
                }
            }
        }
    };
}

event_names! {
    SystemInitialized = "system.initialized" "format:text origin:text vkey:text",
    SystemStarted = "system.started" "mode:text pid:number version:text",
    SystemStopped = "system.stopped" "",
    SystemClockAnomaly = "system.clock_anomaly" "behind_ms:number wall:text",

    AuditTailRepaired = "audit.tail_repaired" "bytes:number offset:number segment:text sha256:text",
    AuditPersistenceFailure = "audit.persistence_failure" "first_error:text",
    AuditBlocked = "audit.blocked" "reason:text",
    AuditUnblocked = "audit.unblocked" "reason:text",
    AuditKeyCreated = "audit.key_created" "check:text class:text key:text",
    AuditKeyDestroyed = "audit.key_destroyed" "class:text key:text reason:text",
    AuditSignerRotated = "audit.signer_rotated" "new:text old:any",
    AuditWitnessed = "audit.witnessed" "size:number witness:text",
    AuditExported = "audit.exported" "",
    AuditEvidenceRead = "audit.evidence_read" "objects:list reason:text",
    AuditIndexRebuilt = "audit.index_rebuilt" "reason:text records:number",

    OperatorEnrolled = "operator.enrolled" "operator:object",
    OperatorRemoved = "operator.removed" "operator:any reason:text",
    OperatorAuthFailed = "operator.auth_failed" "method:any operator:any",
    AdminOpIntent = "admin.op_intent" "actor:any args_sha256:text op_id:text tool:text",
    AdminOpExecuted = "admin.op_executed" "",
    AdminOpFailed = "admin.op_failed" "op_id:text tool:text",
    AdminOpDeferred = "admin.op_deferred" "approval_id:text args_sha256:text tool:text",
    AdminStateChanged = "admin.state_changed" "document:any id:text kind:text version:number",

    ServerSubmitted = "server.submitted" "server:text",
    ServerRegistered = "server.registered" "record:object",
    ServerRejected = "server.rejected" "reason:text server:text",
    ServerProbed = "server.probed" "method:text server:text",
    ServerHalted = "server.halted" "reason:text server:text",
    ServerResumed = "server.resumed" "reason:text server:text",
    ServerVersionChanged = "server.version_changed" "record:object",
    ServerSurfaceChanged = "server.surface_changed" "added:list changed:list server:text withdrawn:list",
    ServerRemoved = "server.removed" "reason:text server:text",

    DeclarationSubmitted = "declaration.submitted" "server:text version:text",
    DeclarationAccepted = "declaration.accepted" "server:text version:text",
    DeclarationDescribed = "declaration.described" "server:text tools:any version:text",
    DeclarationRejected = "declaration.rejected" "reason:text server:text",
    DeclarationSuperseded = "declaration.superseded" "server:text version:text",
    DeclarationWithdrawn = "declaration.withdrawn" "server:text version:text",

    PolicyActivated = "policy.activated" "reason:any version:any",
    PolicyRejected = "policy.rejected" "reason:text",
    PolicyEvaluated = "policy.evaluated" "decision:text reasons:list",

    ProposalReceived = "proposal.received" "arguments_bytes:number client:text name:text",
    ProposalCanonicalized = "proposal.canonicalized" "fingerprint:text request_sha256:text scopes:list side_effects:list",
    ProposalRefused = "proposal.refused" "error:text",
    EvidencePrepared = "evidence.prepared" "",

    ApprovalDetermined = "approval.determined" "outcome:text",
    ApprovalRequested = "approval.requested" "approval:object",
    ApprovalRecorded = "approval.recorded" "approval_id:text decision:text",
    ApprovalExpired = "approval.expired" "approval_id:text",
    ApprovalWithdrawn = "approval.withdrawn" "approval_id:text reason:text",
    ApprovalRevoked = "approval.revoked" "approval_id:text reason:text",
    ApprovalInvalidated = "approval.invalidated" "approval_id:text reason:text",
    EnvelopeCreated = "envelope.created" "envelope:object",
    EnvelopeUsed = "envelope.used" "envelope_id:text permit_id:text",
    EnvelopeInvalidated = "envelope.invalidated" "envelope_id:text reason:text",
    EnvelopeExpired = "envelope.expired" "envelope_id:text",

    PermitIssued = "permit.issued" "permit_id:text request_sha256:text tool_id:text",
    PermitValidated = "permit.validated" "permit_id:text",
    PermitExpired = "permit.expired" "permit_id:text",
    PermitRevoked = "permit.revoked" "permit_id:text reason:text",
    PermitInvalidated = "permit.invalidated" "permit_id:text reason:text",

    ExecutionDenied = "execution.denied" "check:text permit_id:text",
    ExecutionIntent = "execution.intent" "declaration_sha256:text fingerprint:text permit_id:text replica:text request_sha256:text scopes:list side_effects:list",
    ExecutionResult = "execution.result" "outcome:text permit_id:text",
    ExecutionLateResult = "execution.late_result" "bytes:number reason:text response_sha256:text server:text",
    ExecutionServerRequest = "execution.server_request" "kind:text",
    ExecutionNotifications = "execution.notifications" "count:number tool:any",
    ExecutionIndeterminate = "execution.indeterminate" "permit_id:text",
    ExecutionCancelled = "execution.cancelled" "permit_id:text transmitted:flag",
    ExecutionSanitised = "execution.sanitised" "",
    ExecutionWithheld = "execution.withheld" "violation:text",
    ExecutionTaskRequest = "execution.task_request" "method:text permit_id:text",
    ExecutionTaskAnswer = "execution.task_answer" "method:text outcome:text permit_id:text",

    McpServerUnavailable = "mcp.server_unavailable" "reason:text",
    McpUngovernedToolSurface = "mcp.ungoverned_tool_surface" "code:text name:text",
    McpDeclarationMismatch = "mcp.declaration_mismatch" "",
    McpToolTimeout = "mcp.tool_timeout" "permit_id:text",
    McpUngovernedSurfaceDetected = "mcp.ungoverned_surface_detected" "reason:text server:text",
    McpIsolationFailure = "mcp.isolation_failure" "",
    McpScopeViolation = "mcp.scope_violation" "reason:text server:text",
    McpVersionMismatch = "mcp.version_mismatch" "reason:text server:text",

    TrustPromoted = "trust.promoted" "server:text state:text",
    TrustGranted = "trust.granted" "reason:text server:text state:text",
    TrustRevoked = "trust.revoked" "reason:text server:text",
    TrustViolation = "trust.violation" "contamination:text fault:text server:text tools:list",

    SessionOpened = "session.opened" "client:any",
    SessionEnded = "session.ended" "",
    SessionExpired = "session.expired" "",
    SubscriptionOpened = "subscription.opened" "uri:text",
    SubscriptionEnded = "subscription.ended" "uri:text",
    CheckpointOpened = "checkpoint.opened" "checkpoint:object",
    CheckpointResolved = "checkpoint.resolved" "how:text reason:text",

    SandboxEstablished = "sandbox.established" "layers:object server:text",
    SandboxProcessExited = "sandbox.process_exited" "reason:text server:text",
    SandboxEgressAllowed = "sandbox.egress_allowed" "host:text port:number server:text",
    SandboxEgressDenied = "sandbox.egress_denied" "reason:text server:text",
    SandboxDnsDenied = "sandbox.dns_denied" "name:text server:text",
    SandboxSyscallDenied = "sandbox.syscall_denied" "call:text server:text",
    SandboxWaiverGranted = "sandbox.waiver_granted" "expires_at:text facility:text reason:text server:text",
    SandboxWaiverRevoked = "sandbox.waiver_revoked" "facility:text reason:text server:text",

    CredentialStored = "credential.stored" "kind:text",
    CredentialRemoved = "credential.removed" "kind:text reason:text",
    CredentialLeased = "credential.leased" "class:text handle:object",
    CredentialReleased = "credential.released" "class:text handle:object",
    CredentialDenied = "credential.denied" "reason:text",

    ReplayHit = "replay.hit" "cassette:text n:number permit_id:text response_sha256:text run_id:text",
    ReplayMiss = "replay.miss" "permit_id:text run_id:text",
    ReplayRun = "replay.run" "calls:any session:text",

    RecordsCredentialRefused = "records.credential_refused" "reason:text server:text",
    RecordsEventReceived = "records.event_received" "server:text type:any",
    RecordsKeyExported = "records.key_exported" "reason:text server:text subscription_id:text",
    GateEvaluated = "gate.evaluated" "id:text verdict:any",
    GateNeverDecides = "gate.never_decides" "id:text reason:text",

    SurfaceCompiled = "surface.compiled" "bytes:number ladder_step:number profile:text surface_digest:text tokens:number",
    SurfaceDegraded = "surface.degraded" "ladder_step:number profile:text",
    SurfaceRefused = "surface.refused" "excess:list profile:text",
    ResultCacheHit = "result.cache_hit" "event:text request_sha256:text",
    ArtifactViewed = "artifact.viewed" "bytes:number handle:any outcome:text selector:any",
    ArtifactErased = "artifact.erased" "digests:list reason:text",
    ProposalDryRun = "proposal.dry_run" "outcome:any",
    QuotaCrossed = "quota.crossed" "",
    WebhookDelivered = "webhook.delivered" "attempts:number delivery_id:any event:any webhook:any",
    WebhookFailed = "webhook.failed" "attempts:number delivery_id:any event:any webhook:any",
}

impl EventName {
    /// What `data` lacks to be that of this event: a member that is not there, or is not what it should be.
    pub fn lacking(self, data: &Value) -> Option<String> {
        let wrong = |member: &&str| {
            let (name, kind) = member.split_once(':').unwrap_or((member, "any"));
            let Some(found) = data.get(name) else { return true };
            // What was too large for a record is in evidence (AUD-10).
            let moved = found.get("evidence").is_some_and(Value::is_string);
            !(moved || kind == "any" || kind == kind_of(found))
        };
        let moved = data.get("evidence").is_some_and(Value::is_string);
        let lacking = self.members().split_whitespace().find(wrong).filter(|_| !moved);
        lacking.map(|member| format!("{self} without {member}"))
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "flag",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

impl fmt::Display for EventName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for EventName {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for EventName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_name_is_unique_and_parses_back() {
        // AUD-13
        for name in EventName::ALL {
            assert_eq!(name.as_str().parse::<EventName>(), Ok(*name));
            assert_eq!(EventName::ALL.iter().filter(|other| other.as_str() == name.as_str()).count(), 1);
            // Names go into records without escaping.
            assert!(name.as_str().bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'.' | b'_')));
        }
        assert_eq!("execution.intended".parse::<EventName>(), Err(UnknownEvent));
    }

    #[test]
    fn every_name_says_what_its_data_has() {
        // AUD-13
        for name in EventName::ALL {
            for member in name.members().split_whitespace() {
                let kind = member.split_once(':').unwrap().1;
                let kinds = ["any", "flag", "list", "number", "object", "text"];
                assert!(kinds.contains(&kind), "{name}: {member}");
            }
        }
        let cancelled = EventName::ExecutionCancelled;
        assert_eq!(cancelled.lacking(&json!({"permit_id": "x", "transmitted": false, "more": 1})), None);
        let lacking = |data: Value| cancelled.lacking(&data).unwrap();
        assert_eq!(lacking(json!({"permit_id": "x"})), "execution.cancelled without transmitted:flag");
        assert_eq!(
            lacking(json!({"permit_id": null, "transmitted": true})),
            "execution.cancelled without permit_id:text"
        );
        assert_eq!(EventName::AuditSignerRotated.lacking(&json!({"new": "k", "old": null})), None);
        assert_eq!(cancelled.lacking(&json!({"evidence": "of what was too large"})), None);
    }

    /// The names of the specification's table, group by group.
    const SPECIFIED: &str = "
        system.initialized system.started system.stopped system.clock_anomaly
        audit.tail_repaired audit.persistence_failure audit.blocked audit.unblocked audit.key_created audit.key_destroyed
        audit.signer_rotated audit.witnessed audit.exported audit.evidence_read audit.index_rebuilt
        operator.enrolled operator.removed operator.auth_failed admin.op_intent admin.op_executed admin.op_failed
        admin.op_deferred
        server.submitted server.registered server.rejected server.probed server.halted server.resumed
        server.version_changed server.removed
        declaration.submitted declaration.accepted declaration.rejected declaration.superseded declaration.withdrawn
        policy.activated policy.rejected policy.evaluated
        proposal.received proposal.canonicalized proposal.refused evidence.prepared
        approval.determined approval.requested approval.recorded approval.expired approval.withdrawn approval.revoked
        approval.invalidated envelope.created envelope.used envelope.invalidated envelope.expired
        permit.issued permit.validated permit.expired permit.revoked permit.invalidated
        execution.denied execution.intent execution.result execution.late_result execution.indeterminate
        execution.cancelled
        mcp.server_unavailable mcp.ungoverned_tool_surface mcp.declaration_mismatch mcp.tool_timeout
        mcp.ungoverned_surface_detected mcp.isolation_failure mcp.scope_violation mcp.version_mismatch
        trust.promoted trust.granted trust.revoked trust.violation
        session.opened session.ended session.expired checkpoint.opened checkpoint.resolved
        sandbox.established sandbox.process_exited sandbox.egress_allowed sandbox.egress_denied sandbox.dns_denied
        sandbox.syscall_denied sandbox.waiver_granted sandbox.waiver_revoked
        credential.stored credential.removed credential.leased credential.released credential.denied
        replay.hit replay.miss replay.run
        surface.compiled surface.degraded surface.refused result.cache_hit artifact.viewed proposal.dry_run";

    #[test]
    fn every_name_of_the_specification_is_there() {
        // AUD-13
        for name in SPECIFIED.split_whitespace() {
            assert!(name.parse::<EventName>().is_ok(), "{name}");
        }
        assert_eq!(SPECIFIED.split_whitespace().count(), 103);
    }
}
