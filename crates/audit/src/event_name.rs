//! The names events can have (AUD-13): a closed list, so that a typo is a compile error and a record with a
//! name nobody knows does not verify.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text is not the name of an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the name of an audit event")]
pub struct UnknownEvent;

macro_rules! event_names {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)+) => {
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
    SystemInitialized = "system.initialized",
    SystemStarted = "system.started",
    SystemStopped = "system.stopped",
    SystemClockAnomaly = "system.clock_anomaly",

    AuditTailRepaired = "audit.tail_repaired",
    AuditPersistenceFailure = "audit.persistence_failure",
    AuditBlocked = "audit.blocked",
    AuditUnblocked = "audit.unblocked",
    AuditKeyCreated = "audit.key_created",
    AuditKeyDestroyed = "audit.key_destroyed",
    AuditSignerRotated = "audit.signer_rotated",
    AuditWitnessed = "audit.witnessed",
    AuditExported = "audit.exported",
    AuditEvidenceRead = "audit.evidence_read",
    AuditIndexRebuilt = "audit.index_rebuilt",

    OperatorEnrolled = "operator.enrolled",
    OperatorRemoved = "operator.removed",
    OperatorAuthFailed = "operator.auth_failed",
    AdminOpIntent = "admin.op_intent",
    AdminOpExecuted = "admin.op_executed",
    AdminOpFailed = "admin.op_failed",
    AdminOpDeferred = "admin.op_deferred",
    AdminStateChanged = "admin.state_changed",

    ServerSubmitted = "server.submitted",
    ServerRegistered = "server.registered",
    ServerRejected = "server.rejected",
    ServerProbed = "server.probed",
    ServerHalted = "server.halted",
    ServerResumed = "server.resumed",
    ServerVersionChanged = "server.version_changed",
    ServerSurfaceChanged = "server.surface_changed",
    ServerRemoved = "server.removed",

    DeclarationSubmitted = "declaration.submitted",
    DeclarationAccepted = "declaration.accepted",
    DeclarationRejected = "declaration.rejected",
    DeclarationSuperseded = "declaration.superseded",
    DeclarationWithdrawn = "declaration.withdrawn",

    PolicyActivated = "policy.activated",
    PolicyRejected = "policy.rejected",
    PolicyEvaluated = "policy.evaluated",

    ProposalReceived = "proposal.received",
    ProposalCanonicalized = "proposal.canonicalized",
    ProposalRefused = "proposal.refused",
    EvidencePrepared = "evidence.prepared",

    ApprovalDetermined = "approval.determined",
    ApprovalRequested = "approval.requested",
    ApprovalRecorded = "approval.recorded",
    ApprovalExpired = "approval.expired",
    ApprovalWithdrawn = "approval.withdrawn",
    ApprovalRevoked = "approval.revoked",
    ApprovalInvalidated = "approval.invalidated",
    EnvelopeCreated = "envelope.created",
    EnvelopeUsed = "envelope.used",
    EnvelopeInvalidated = "envelope.invalidated",
    EnvelopeExpired = "envelope.expired",

    PermitIssued = "permit.issued",
    PermitValidated = "permit.validated",
    PermitExpired = "permit.expired",
    PermitRevoked = "permit.revoked",
    PermitInvalidated = "permit.invalidated",

    ExecutionDenied = "execution.denied",
    ExecutionIntent = "execution.intent",
    ExecutionResult = "execution.result",
    ExecutionLateResult = "execution.late_result",
    ExecutionServerRequest = "execution.server_request",
    ExecutionNotifications = "execution.notifications",
    ExecutionIndeterminate = "execution.indeterminate",
    ExecutionCancelled = "execution.cancelled",
    ExecutionSanitised = "execution.sanitised",
    ExecutionWithheld = "execution.withheld",

    McpServerUnavailable = "mcp.server_unavailable",
    McpUngovernedToolSurface = "mcp.ungoverned_tool_surface",
    McpDeclarationMismatch = "mcp.declaration_mismatch",
    McpToolTimeout = "mcp.tool_timeout",
    McpUngovernedSurfaceDetected = "mcp.ungoverned_surface_detected",
    McpIsolationFailure = "mcp.isolation_failure",
    McpScopeViolation = "mcp.scope_violation",
    McpVersionMismatch = "mcp.version_mismatch",

    TrustPromoted = "trust.promoted",
    TrustGranted = "trust.granted",
    TrustRevoked = "trust.revoked",
    TrustViolation = "trust.violation",

    SessionOpened = "session.opened",
    SessionEnded = "session.ended",
    SessionExpired = "session.expired",
    SubscriptionOpened = "subscription.opened",
    SubscriptionEnded = "subscription.ended",
    CheckpointOpened = "checkpoint.opened",
    CheckpointResolved = "checkpoint.resolved",

    SandboxEstablished = "sandbox.established",
    SandboxProcessExited = "sandbox.process_exited",
    SandboxEgressAllowed = "sandbox.egress_allowed",
    SandboxEgressDenied = "sandbox.egress_denied",
    SandboxDnsDenied = "sandbox.dns_denied",
    SandboxSyscallDenied = "sandbox.syscall_denied",
    SandboxWaiverGranted = "sandbox.waiver_granted",
    SandboxWaiverRevoked = "sandbox.waiver_revoked",

    CredentialStored = "credential.stored",
    CredentialRemoved = "credential.removed",
    CredentialLeased = "credential.leased",
    CredentialReleased = "credential.released",
    CredentialDenied = "credential.denied",

    ReplayHit = "replay.hit",
    ReplayMiss = "replay.miss",
    ReplayRun = "replay.run",

    RecordsCredentialRefused = "records.credential_refused",
    RecordsEventReceived = "records.event_received",
    GateEvaluated = "gate.evaluated",
    GateNeverDecides = "gate.never_decides",

    SurfaceCompiled = "surface.compiled",
    SurfaceDegraded = "surface.degraded",
    SurfaceRefused = "surface.refused",
    ResultCacheHit = "result.cache_hit",
    ArtifactViewed = "artifact.viewed",
    ProposalDryRun = "proposal.dry_run",
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
}
