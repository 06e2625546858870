//! What can be asked of the gateway, one service per part of it (ADM-72).
//!
//! A service owns the shape of its records and calls the control plane. What changes something takes an
//! [`Op`](crate::Op), so that only a write or an admin handler can ask for it.

mod approvals;
mod audit;
mod calls;
mod credentials;
mod grants;
mod history;
mod house;
mod past;
mod policies;
mod servers;
mod sessions;
mod trust;

pub use approvals::{ApprovalDetail, ApprovalRecord, ApprovalService, DecisionRecord, RiskLevel};
pub use audit::{AuditDetail, AuditEntry, AuditService, ExportedRecord, ProofRecord, Verification};
pub use calls::{CallDetail, CallEvidence, CallService, CallSummary, CallsBucket, CallsOverview, StepTime};
pub use credentials::{CredentialRecord, CredentialService, WaiverRecord};
pub use grants::{GrantRecord, GrantService};
pub(crate) use history::short;
pub use history::{
    ActivityRecord, Bounds, CallCounts, CallRecord, ErrorCounts, HistoryService, PermitRecord, SessionRecord,
    ToolCounts,
};
pub use house::{FootprintRecord, HouseService};
pub use past::{ArtifactRecord, ExportRecord, TrustEvent};
pub use policies::{
    ArgumentProblem, DryRunRecord, ExplanationRecord, PolicyDetail, PolicyFileRecord, PolicyRecord,
    PolicyService, ValidationRecord, VerdictRow,
};
pub(crate) use servers::word;
pub use servers::{
    DraftRecord, DraftedRow, DriftRow, RefreshRecord, RemovedRecord, ReplacedRecord, ScopeRow, ServerDetail,
    ServerRecord, ServerService, TestRecord, ToolRow,
};
pub use sessions::{CheckpointRecord, LiveSession, RevokedPermits, SessionService};
pub use trust::{TrustRecord, TrustService};
