//! What can be asked of the gateway, one service per part of it (ADM-72).
//!
//! A service owns the shape of its records and calls the control plane. What changes something takes an
//! [`Op`](crate::Op), so that only a write or an admin handler can ask for it. A read handler has none:
//!
//! ```compile_fail,E0061
//! use portcullis_admin::{AdminError, Cx, Reply, args::NoArgs, read_tool};
//! // SO-40: a read that removes a role.
//! read_tool("roles", "wipe", "Wipe.", |cx: Cx, _: NoArgs| async move {
//!     cx.people().delete_role("auditor").await?;
//!     Ok::<Reply<u8>, AdminError>(Reply::ok(1))
//! });
//! ```

mod approvals;
mod audit;
mod calls;
mod clients;
mod credentials;
mod custody;
mod declarations;
mod grants;
mod history;
mod house;
mod imports;
mod notices;
mod past;
mod people;
mod policies;
mod quality;
mod servers;
mod sessions;
mod settings;
mod trust;

pub use approvals::{
    ApprovalDetail, ApprovalRecord, ApprovalService, AskedCall, DecisionRecord, OfferRecord, RiskLevel,
};
pub use audit::{AuditDetail, AuditEntry, AuditService, ProofRecord, Verification};
pub use calls::{CallDetail, CallEvidence, CallService, CallSummary, CallsBucket, CallsOverview, StepTime};
pub use clients::{
    CaptureRecord, ClientChange, ClientDetail, ClientRecord, ClientService, CreatedClient, IssuedKey,
    ProfileRecord, QuotaRecord, RevokedClient, RotatedKey, ToolOrderRecord, UsageRecord,
};
pub use credentials::{CredentialRecord, CredentialService, Expected, SigningKeyFile, WaiverRecord};
pub use custody::{CassetteRecord, ExportAsked, ExportedRecord, HeldKey};
pub use declarations::{DeclarationDiff, DeclarationRecord, DraftedDeclaration};
pub use grants::{EnvelopeRecord, GrantRecord, GrantService};
pub(crate) use history::short;
pub use history::{
    ActivityRecord, Bounds, CallCounts, CallRecord, ErrorCounts, HistoryService, PermitRecord, SessionRecord,
    StillThere, ToolCounts,
};
pub use house::{FootprintRecord, HouseService};
pub use imports::{FoundRecord, ImportRecord, ImportService};
pub use notices::{
    DeliveryRecord, NoticeService, NotificationRecord, SignalRecord, SignalRule, SignalSnapshot,
    WebhookRecord,
};
pub use past::{ArtifactRecord, ArtifactSlice, ContextItem, ErasedRecord, ExportRecord, TrustEvent};
pub use people::{
    CreatedToken, EnrolledRecord, PasskeyRecord, PeopleService, RoleRecord, TokenRecord, UserRecord,
};
pub use policies::{
    ArgumentProblem, DryRunRecord, ExplanationRecord, PolicyDetail, PolicyFileRecord, PolicyRecord,
    PolicyService, ValidationRecord, VerdictRow,
};
pub use quality::{QualitySummary, ReportRecord, ScoreRecord, ScoreTerms};
pub(crate) use servers::word;
pub use servers::{
    ChangedRow, DraftRecord, DraftedRow, DriftRow, FieldRow, PendingRow, RefreshRecord, RemovedRecord,
    ReplacedRecord, ScopeRow, ServerDetail, ServerRecord, ServerService, TestRecord, ToolRow,
};
pub use sessions::{
    CheckRecord, CheckpointRecord, LiveSession, LockRecord, RestartedRecord, RevokedPermits, SessionService,
};
pub use settings::{BackupRecord, BackupVerified, RestorePlan, SettingRecord, SettingService};
pub use trust::{TrustRecord, TrustService, TrustVerified};
