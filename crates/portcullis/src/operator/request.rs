//! What an operator can ask for by command, and the admin tool that each of it is (ADM-1, ADM-2).

use std::path::PathBuf;
use std::time::Duration;

use portcullis_admin::{Class, Registry};
use portcullis_gateway::control::{Drafting, Reacceptance, Registration};
use portcullis_governance::approval::{Scope, State};
use portcullis_governance::operator::ssh::PublicKey;
use portcullis_governance::policy::{Bundle, PolicyFile};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::identity::Passphrase;

/// What an operator can ask for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    McpAdd {
        registration: Box<Registration>,
    },
    McpDraft {
        drafting: Box<Drafting>,
    },
    McpDraftFromDenials {
        name: String,
    },
    McpList,
    McpShow {
        name: String,
    },
    Separation,
    McpTest {
        name: String,
        /// Whether the declaration it would have now is wanted.
        #[serde(default)]
        emit: bool,
    },
    McpRemove {
        name: String,
        reason: String,
    },
    McpUpdate {
        registration: Box<Registration>,
    },
    McpAccept {
        accept: Reacceptance,
    },
    McpHalt {
        name: String,
        reason: String,
    },
    McpResume {
        name: String,
        reason: String,
    },
    ApproveList {
        status: Option<State>,
    },
    ApproveShow {
        id: String,
    },
    ApproveGrant {
        id: String,
        scope: Scope,
        reason: String,
    },
    ApproveDeny {
        id: String,
        reason: String,
    },
    TrustList {
        server: Option<String>,
        state: Option<String>,
    },
    TrustShow {
        id: String,
    },
    TrustGrant {
        id: String,
        reason: String,
    },
    TrustRevoke {
        id: String,
        reason: String,
    },
    TrustVerify,
    CatalogBrowse {
        query: Option<String>,
        path: Option<String>,
        top_k: Option<usize>,
        kind: String,
    },
    CatalogFindings,
    CatalogRefresh,
    CatalogSnapshot {
        server: Option<String>,
        live: bool,
    },
    PolicyShow {
        version: Option<u64>,
    },
    SurfaceParts {
        mode: Option<portcullis_gateway::exposure::Mode>,
        principal: Option<String>,
    },
    GateTry {
        id: Option<String>,
    },
    Alarms,
    ResultSizes {
        seconds: u64,
        limit: Option<usize>,
    },
    PolicyApply {
        bundle: Bundle,
        reason: String,
    },
    PolicyRollback {
        version: Option<u64>,
        reason: String,
    },
    PolicyExplain {
        tool: String,
        args: String,
        agent: Option<String>,
    },
    GrantsList,
    GrantsRevoke {
        id: String,
        reason: String,
    },
    PermitList {
        state: Option<String>,
    },
    PermitRevoke {
        id: String,
        kill: bool,
        reason: String,
    },
    SessionList,
    SessionEnd {
        session: String,
        reason: String,
    },
    CheckpointList,
    CheckpointOpen {
        session: String,
        reason: String,
    },
    CheckpointResolve {
        session: String,
        reason: String,
    },
    OperatorEnrol {
        name: String,
        passphrase: Passphrase,
    },
    OperatorEnrolKey {
        name: String,
        key: PublicKey,
    },
    /// A link by which an operator enrols a passkey.
    OperatorInvite {
        name: String,
    },
    OperatorRemovePasskey {
        name: String,
        passkey: String,
        reason: String,
    },
    OperatorList,
    OperatorRemove {
        name: String,
        reason: String,
    },
    OperatorTokenCreate {
        name: String,
        lifetime: Option<Duration>,
    },
    OperatorTokenList,
    OperatorTokenRevoke {
        name: String,
        reason: String,
    },
    AdminCall {
        tool: String,
        args: String,
    },
    AdminMcp {
        message: String,
        passthrough: bool,
    },
    CaptureKind {
        id: String,
    },
    CaptureFetch {
        id: String,
    },
    CaptureGive {
        id: String,
        value: Passphrase,
    },
    KeyCreate {
        agent: String,
        grants: Vec<String>,
        #[serde(default)]
        groups: Vec<String>,
        lifetime: Option<Duration>,
    },
    KeyList,
    SecretSet {
        name: String,
        class: String,
        kind: String,
        value: Passphrase,
    },
    SandboxExplain {
        name: String,
    },
    SandboxTest {
        name: String,
    },
    SandboxWaive {
        name: String,
        facility: String,
        reason: String,
        lifetime: Duration,
    },
    SecretList,
    SecretRotate {
        name: String,
        value: Passphrase,
    },
    SecretRemove {
        name: String,
        reason: String,
    },
    SigningKeyExport {
        /// The records server.
        name: String,
        /// The subscription.
        id: String,
        reason: String,
    },
    ArtifactList,
    ArtifactView {
        handle: String,
        selector: Value,
    },
    KeyRevoke {
        agent: String,
        reason: String,
    },
    AuditExport {
        out: PathBuf,
        from: u64,
        to: Option<u64>,
        recipient: Option<String>,
        reason: Option<String>,
    },
    AuditEvidence {
        seqs: Vec<u64>,
        reason: String,
    },
    AuditKeys,
    AuditForget,
    AuditHold {
        key: String,
        held: bool,
        reason: String,
    },
    AuditCassette {
        out: PathBuf,
        session: Option<String>,
    },
    AuditUnblock {
        reason: String,
    },
    AuditRotateSigner {
        reason: String,
    },
    AuditRebuildIndex,
    AuditReplay {
        session: String,
        policies: Option<Vec<PolicyFile>>,
    },
}

/// What stands behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind<'r> {
    /// A tool that looks: who does not see it is shown nothing.
    Look(&'static str),
    /// A tool that changes something, which is called.
    Act(&'static str),
    /// Whatever tool the caller names.
    Named(&'r str),
    /// Every tool, over MCP.
    Surface,
    /// A secret on its way past the tools, under an id that one of them gave out.
    Capture,
}

impl Request {
    /// The tool that it is.
    pub(crate) fn behind(&self) -> Behind<'_> {
        use Behind::{Act, Look};
        match self {
            Request::McpAdd { .. } => Act("servers_register"),
            Request::McpDraft { .. } => Act("servers_draft"),
            Request::McpDraftFromDenials { .. } => Act("declarations_draft"),
            Request::McpList => Look("servers_list"),
            Request::McpShow { .. } => Look("servers_get"),
            Request::Separation => Look("health_servers"),
            Request::McpTest { .. } => Act("servers_test"),
            Request::McpRemove { .. } => Act("servers_remove"),
            Request::McpUpdate { .. } => Act("servers_update"),
            Request::McpAccept { .. } => Act("declarations_accept"),
            Request::McpHalt { .. } | Request::McpResume { .. } => Act("servers_set_state"),
            Request::ApproveList { .. } => Look("approvals_list"),
            Request::ApproveShow { .. } => Look("approvals_get"),
            Request::ApproveGrant { .. } => Act("approvals_approve"),
            Request::ApproveDeny { .. } => Act("approvals_reject"),
            Request::TrustList { .. } | Request::TrustShow { .. } => Look("trust_list"),
            Request::TrustVerify => Look("trust_verify"),
            Request::TrustGrant { .. } => Act("trust_grant"),
            Request::TrustRevoke { .. } => Act("trust_revoke"),
            Request::CatalogBrowse { .. } | Request::CatalogFindings => Look("tools_list"),
            Request::CatalogSnapshot { .. } => Look("declarations_get"),
            Request::CatalogRefresh => Act("catalog_refresh"),
            Request::PolicyShow { .. } => Look("policies_get"),
            Request::PolicyApply { .. } => Act("policies_apply"),
            Request::PolicyRollback { .. } => Act("policies_rollback"),
            Request::PolicyExplain { .. } => Look("policies_explain"),
            Request::SurfaceParts { .. } => Look("analytics_footprint"),
            Request::GateTry { .. } => Look("health_servers"),
            Request::Alarms => Look("health_check"),
            Request::ResultSizes { .. } => Look("analytics_tools"),
            Request::GrantsList => Look("grants_list"),
            Request::GrantsRevoke { .. } => Act("grants_revoke"),
            Request::PermitList { .. } => Look("permits_list"),
            Request::PermitRevoke { .. } => Act("permits_revoke"),
            Request::SessionList => Look("sessions_list"),
            Request::SessionEnd { .. } => Act("sessions_terminate"),
            Request::CheckpointList => Look("checkpoints_list"),
            Request::CheckpointOpen { .. } => Act("checkpoints_open"),
            Request::CheckpointResolve { .. } => Act("checkpoints_resolve"),
            Request::OperatorEnrol { .. }
            | Request::OperatorEnrolKey { .. }
            | Request::OperatorInvite { .. } => Act("users_enrol"),
            Request::OperatorRemovePasskey { .. } => Act("users_remove_passkey"),
            Request::OperatorList => Look("users_list"),
            Request::OperatorRemove { .. } => Act("users_delete"),
            Request::OperatorTokenCreate { .. } => Act("tokens_create"),
            Request::OperatorTokenList => Look("tokens_list"),
            Request::OperatorTokenRevoke { .. } => Act("tokens_revoke"),
            Request::AdminCall { tool, .. } => Behind::Named(tool),
            Request::AdminMcp { .. } => Behind::Surface,
            Request::CaptureKind { .. } | Request::CaptureFetch { .. } | Request::CaptureGive { .. } => {
                Behind::Capture
            }
            Request::KeyCreate { .. } => Act("clients_issue_key"),
            Request::KeyList => Look("clients_list"),
            Request::KeyRevoke { .. } => Act("clients_revoke"),
            Request::SecretSet { .. } | Request::SecretRotate { .. } => Act("credentials_capture"),
            Request::SecretList => Look("credentials_list"),
            Request::SecretRemove { .. } => Act("credentials_delete"),
            Request::SigningKeyExport { .. } => Act("credentials_export_signing_key"),
            Request::SandboxExplain { .. } | Request::SandboxTest { .. } => Look("health_servers"),
            Request::SandboxWaive { .. } => Act("waivers_put"),
            Request::ArtifactList => Look("artifacts_list"),
            Request::ArtifactView { .. } => Look("artifacts_view"),
            Request::AuditExport { .. } => Act("audit_export"),
            Request::AuditEvidence { .. } => Act("audit_open"),
            Request::AuditKeys => Look("keys_list"),
            Request::AuditForget => Act("meta_run_maintenance"),
            Request::AuditHold { .. } => Act("audit_hold"),
            Request::AuditCassette { .. } => Act("audit_cassette"),
            Request::AuditUnblock { .. } => Act("audit_unblock"),
            Request::AuditRotateSigner { .. } => Act("keys_rotate"),
            Request::AuditRebuildIndex => Act("audit_rebuild_index"),
            Request::AuditReplay { .. } => Act("sessions_replay"),
        }
    }

    /// Whether it needs an operator's credential: everything that changes something, or opens what agents were given
    /// (GOV-104).
    pub(crate) fn changes_something(&self) -> bool {
        match self.behind() {
            Behind::Act(_) | Behind::Surface | Behind::Capture => true,
            Behind::Named(tool) => class_of(tool) != Some(Class::Read),
            Behind::Look(_) => matches!(
                self,
                Request::CatalogBrowse { .. }
                    | Request::CatalogFindings
                    | Request::CatalogSnapshot { .. }
                    | Request::ArtifactList
                    | Request::ArtifactView { .. }
            ),
        }
    }
}

/// What a tool may do; `None` if there is no such tool.
fn class_of(tool: &str) -> Option<Class> {
    let registry = Registry::build(portcullis_admin::tools::modules()).ok()?;
    registry.get(tool).map(portcullis_admin::ToolDef::class)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
