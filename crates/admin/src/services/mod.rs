//! What can be asked of the gateway, one service per part of it (ADM-72).
//!
//! A service owns the shape of its records and calls the control plane. What changes something takes an
//! [`Op`](crate::Op), so that only a write or an admin handler can ask for it.

mod approvals;
mod audit;
mod calls;
mod policies;
mod servers;
mod trust;

pub use approvals::{ApprovalDetail, ApprovalRecord, ApprovalService, DecisionRecord, RiskLevel};
pub use audit::{AuditService, Verification};
pub use calls::{CallDetail, CallService, CallSummary, CallsBucket, CallsOverview};
pub use policies::{ExplanationRecord, PolicyDetail, PolicyFileRecord, PolicyRecord, PolicyService};
pub use servers::{DriftRow, ServerDetail, ServerRecord, ServerService, ToolRow};
pub use trust::{TrustRecord, TrustService};
