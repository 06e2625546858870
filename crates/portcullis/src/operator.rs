//! The operator channel (GOV-104): how a command reaches the running gateway, or takes its place.
//!
//! One JSON document each way over a Unix socket that only the gateway's own user can open; the peer's uid is
//! checked besides. Without a running gateway the command takes the writer lock and does the same in its own
//! process. Either way the operation is [`perform`], and its answer is the same document.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use portcullis_admin::mcp::{AdminMcp, Exposure};
use portcullis_admin::{Actor, Class, Envelope, Invoker, Registry};
use portcullis_catalog::Kind;
use portcullis_core::digest::to_hex;
use portcullis_core::{ApprovalId, ErrorCode, ServerIdentity, SessionId};
use portcullis_gateway::control::{
    Activation, Claimant, Credential as ShownCredential, Disclosure, Drafting, Enrolment, Reacceptance,
    Registration, Target, told_to_stop,
};
use portcullis_gateway::edge::Edge;
use portcullis_gateway::{Control, ControlError, Gateway};
use portcullis_governance::approval::{Approval, Scope, State};
use portcullis_governance::declaration::diff;
use portcullis_governance::operator::ssh::PublicKey;
use portcullis_governance::operator::{Method, OperatorProof, Separation};
use portcullis_governance::policy::{Bundle, PolicyFile};
use portcullis_governance::record::Surface;
use portcullis_governance::registry::{Availability, ServerEntry, Trust};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::failure::Failure;
use crate::home;
use crate::identity::{Challenge, Credential, Passphrase, Proof};

/// Longest request: a declaration may be 16 MiB.
const MAX_REQUEST: u64 = 20 << 20;

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
    McpTest {
        name: String,
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
    KeyCreate {
        agent: String,
        grants: Vec<String>,
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

impl Request {
    /// Whether it needs an operator's credential: everything that changes something, or opens evidence (GOV-104).
    pub(crate) fn changes_something(&self) -> bool {
        if let Request::AdminCall { tool, .. } = self {
            return class_of(tool) != Some(Class::Read);
        }
        !matches!(
            self,
            Request::McpList
                | Request::McpShow { .. }
                | Request::McpTest { .. }
                | Request::ApproveList { .. }
                | Request::ApproveShow { .. }
                | Request::GrantsList
                | Request::SessionList
                | Request::PermitList { .. }
                | Request::CheckpointList
                | Request::OperatorList
                | Request::OperatorTokenList
                | Request::TrustList { .. }
                | Request::TrustShow { .. }
                | Request::TrustVerify
                | Request::SurfaceParts { .. }
                | Request::GateTry { .. }
                | Request::Alarms
                | Request::ResultSizes { .. }
                | Request::PolicyShow { .. }
                | Request::PolicyExplain { .. }
                | Request::KeyList
                | Request::SecretList
                | Request::SandboxExplain { .. }
                | Request::SandboxTest { .. }
                | Request::AuditKeys
        )
    }
}

/// What goes over the socket: a request, as it was signed if it was, and who asks.
#[derive(Debug, Serialize, Deserialize)]
struct Letter {
    credential: Option<Proof>,
    request: Box<RawValue>,
}

/// What an operator whose agent signs asks for first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WantsChallenge {
    challenge_for: String,
}

type Answer = Result<Value, Failure>;

/// What a tool may do; `None` if there is no such tool.
fn class_of(tool: &str) -> Option<Class> {
    let registry = Registry::build(portcullis_admin::tools::modules()).ok()?;
    registry.get(tool).map(portcullis_admin::ToolDef::class)
}

/// Where operators are served: the control plane, and the one door to its operations.
pub(crate) struct Desk {
    pub(crate) control: Arc<Control>,
    pub(crate) invoker: Invoker,
    edge: Arc<Edge>,
}

impl Desk {
    pub(crate) fn of(gateway: &Gateway) -> Result<Self, Failure> {
        let control = gateway.control.clone();
        let invoker = Invoker::new(control.clone())
            .map_err(|fault| Failure::new(ErrorCode::Internal, fault.to_string()))?;
        Ok(Self { control, invoker, edge: gateway.edge.clone() })
    }
}

/// The control plane: the running one, or our own.
pub(crate) enum Channel {
    Running(UnixStream, PathBuf),
    Own(Box<Gateway>, Desk),
}

impl Channel {
    /// Reaches the running gateway, or starts a control plane in this process.
    pub(crate) async fn open(options: portcullis_gateway::GatewayOptions) -> Result<Self, Failure> {
        let socket = home::operator_socket(&options.home);
        match UnixStream::connect(&socket).await {
            Ok(stream) => return Ok(Channel::Running(stream, socket)),
            // Not ours to take the place of: somebody else is the operator here.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let message = "only the gateway's own user is its operator";
                return Err(Failure::new(ErrorCode::OperatorAuth, message));
            }
            Err(_) => {}
        }
        let gateway = Box::new(Gateway::start(options).await?);
        let desk = Desk::of(&gateway)?;
        Ok(Channel::Own(gateway, desk))
    }

    /// Asks for one thing of several.
    pub(crate) async fn ask_again(&self, request: &Request, credential: Option<Credential>) -> Answer {
        match self {
            Channel::Running(_, socket) => {
                let lost =
                    |error: std::io::Error| Failure::unavailable(format!("the gateway went away: {error}"));
                exchange(UnixStream::connect(socket).await.map_err(lost)?, request, credential).await
            }
            Channel::Own(_, desk) => ask_own(desk, request, credential).await,
        }
    }

    /// Done asking.
    pub(crate) async fn close(self) {
        if let Channel::Own(gateway, _) = self {
            gateway.finish().await;
        }
    }

    /// Asks for one thing.
    pub(crate) async fn ask(self, request: &Request, credential: Option<Credential>) -> Answer {
        match self {
            Channel::Running(stream, _) => exchange(stream, request, credential).await,
            Channel::Own(gateway, desk) => {
                let answer = ask_own(&desk, request, credential).await;
                gateway.finish().await;
                answer
            }
        }
    }
}

/// The running gateway's socket, if there is one that answers.
pub(crate) async fn running(home: &Path) -> Option<UnixStream> {
    UnixStream::connect(home::operator_socket(home)).await.ok()
}

async fn exchange(stream: UnixStream, request: &Request, credential: Option<Credential>) -> Answer {
    let lost = |error: std::io::Error| Failure::unavailable(format!("the gateway went away: {error}"));
    let silent = |_| Failure::unavailable("the gateway went away before it answered");
    let (read, mut write) = stream.into_split();
    let (mut read, mut reply) = (BufReader::new(read), String::new());
    let request = raw(request)?;
    let credential = match credential {
        Some(credential) => {
            let challenge = match credential.needs_challenge() {
                Some(name) => {
                    write
                        .write_all(&line_of(&WantsChallenge { challenge_for: name })?)
                        .await
                        .map_err(lost)?;
                    read.read_line(&mut reply).await.map_err(lost)?;
                    Some(serde_json::from_str(&reply).map_err(silent)?)
                }
                None => None,
            };
            credential.prove(challenge, request.get())?
        }
        None => None,
    };
    write.write_all(&line_of(&Letter { credential, request })?).await.map_err(lost)?;
    reply.clear();
    read.read_to_string(&mut reply).await.map_err(lost)?;
    serde_json::from_str(&reply).map_err(silent)?
}

/// The same without a socket, where the command is its own control plane.
async fn ask_own(desk: &Desk, request: &Request, credential: Option<Credential>) -> Answer {
    let raw = raw(request)?;
    let challenge =
        credential.as_ref().and_then(Credential::needs_challenge).map(|name| challenge(desk, &name));
    let random = challenge.as_ref().map(|challenge| challenge.random.clone());
    let proof = match credential {
        Some(credential) => credential.prove(challenge, raw.get())?,
        None => None,
    };
    authorised(desk, Method::Local, request, proof.map(|proof| proof.shown(random.as_deref(), raw.get())))
        .await
}

/// Something never asked before, for the agent of this operator to sign.
fn challenge(desk: &Desk, operator: &str) -> Challenge {
    Challenge { random: to_hex(&rand::rng().random::<[u8; 32]>()), key: desk.control.ssh_key(operator) }
}

fn raw(request: &Request) -> Result<Box<RawValue>, Failure> {
    to_raw_value(request).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))
}

fn line_of(message: &impl Serialize) -> Result<Vec<u8>, Failure> {
    let mut line =
        serde_json::to_vec(message).map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

/// Serves the operator socket until told to stop.
pub(crate) async fn serve(desk: Arc<Desk>, mut stop: watch::Receiver<bool>) -> std::io::Result<()> {
    let path = home::operator_socket(desk.control.home());
    let listener = home::listen(&path)?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    tokio::spawn(serve_one(desk.clone(), stream));
                },
                () = told_to_stop(&mut stop) => break,
            }
        }
        let _ = std::fs::remove_file(&path);
    });
    Ok(())
}

async fn serve_one(desk: Arc<Desk>, stream: UnixStream) -> Option<()> {
    let peer = stream.peer_cred().ok()?;
    let (read, mut write) = stream.into_split();
    let answer: Answer = if peer.uid() == rustix::process::geteuid().as_raw() {
        let mut line = String::new();
        let mut read = BufReader::new(read.take(MAX_REQUEST));
        read.read_line(&mut line).await.ok()?;
        let mut asked = None;
        if let Ok(wanted) = serde_json::from_str::<WantsChallenge>(&line) {
            let challenge = challenge(&desk, &wanted.challenge_for);
            write.write_all(&line_of(&challenge).ok()?).await.ok()?;
            asked = Some(challenge.random);
            line.clear();
            read.read_line(&mut line).await.ok()?;
        }
        let letter = serde_json::from_str::<Letter>(&line);
        let letter = letter.and_then(|letter| {
            let request: Request = serde_json::from_str(letter.request.get())?;
            // A challenge is for one request; there is no second on this connection.
            let shown = letter.credential.map(|proof| proof.shown(asked.as_deref(), letter.request.get()));
            Ok((request, shown))
        });
        match letter {
            Ok((request, shown)) => authorised(&desk, Method::Uid, &request, shown).await,
            Err(error) => {
                Err(Failure::new(ErrorCode::Validation, format!("not an operator request: {error}")))
            }
        }
    } else {
        let event = portcullis_audit::Event::new(
            portcullis_audit::EventName::OperatorAuthFailed,
            &portcullis_core::Actor::operator(format!("uid-{}", peer.uid())),
        );
        let _ = desk.control.log().append(vec![event.data(json!({"method": "uid"}))]);
        Err(Failure::new(ErrorCode::OperatorAuth, "only the gateway's own user is its operator"))
    };
    let reply = serde_json::to_vec(&answer).ok()?;
    write.write_all(&reply).await.ok()
}

/// Who the operator is, for the record: the login name, else the uid.
pub(crate) fn user_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    let name = std::fs::read_to_string("/etc/passwd").ok().and_then(|passwd| {
        let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid.to_string()))?;
        line.split(':').next().map(ToOwned::to_owned)
    });
    name.unwrap_or_else(|| format!("uid-{uid}"))
}

/// Carries out one request, if who asks may.
async fn authorised(
    desk: &Desk,
    channel: Method,
    request: &Request,
    credential: Option<(String, ShownCredential)>,
) -> Answer {
    let proof = if request.changes_something() {
        let claimant = Claimant { channel, user: user_name(), credential };
        let enrolling = matches!(request, Request::OperatorEnrol { .. } | Request::OperatorEnrolKey { .. });
        desk.control.authenticate(claimant, enrolling).await?
    } else {
        OperatorProof::authenticated(user_name(), channel, Separation::SameUid)
    };
    perform(desk, &proof, request).await
}

/// Carries out one request.
async fn perform(desk: &Desk, operator: &OperatorProof, request: &Request) -> Answer {
    let control = &*desk.control;
    Ok(match request {
        Request::McpAdd { registration } => {
            let args = register_args(registration);
            let done = act(desk, operator, "servers_register", args, &registration.justification).await;
            done.map_err(justified)?;
            let mut document = record(control, &registration.name)?;
            let granted = control.approvals_of(&server(&registration.name)?).len();
            document["approvals_granted"] = json!(granted);
            document
        }
        Request::McpDraft { drafting } => json!(control.draft(operator, (**drafting).clone()).await?),
        Request::McpDraftFromDenials { name } => {
            json!(control.draft_from_denials(operator, &server(name)?).await?)
        }
        Request::McpList => list(control),
        Request::McpShow { name } => show(control, &server(name)?)?,
        Request::McpTest { name } => {
            let report = control.test(&server(name)?).await?;
            json!({
                "reachable": report.reachable, "reason": report.reason, "version_ok": report.version_ok,
                "protocol_version": report.protocol_version, "isolation": report.isolation,
                "declaration": {
                    "match": report.matches, "added": report.difference.added,
                    "removed": report.difference.removed, "changed": report.difference.changed, "fields": report.fields,
                },
            })
        }
        Request::McpRemove { name, reason } => {
            let removed = act(desk, operator, "servers_remove", json!({"server_id": name}), reason).await?;
            json!({"name": name, "state": "removed", "approvals_invalidated": removed["approvals_ended"]})
        }
        Request::McpUpdate { registration } => {
            let args = register_args(registration);
            let updated = act(desk, operator, "servers_update", args, &registration.justification).await;
            let updated = updated.map_err(justified)?;
            let mut document = record(control, &registration.name)?;
            document["approvals_invalidated"] = updated["approvals_ended"].clone();
            document
        }
        Request::McpAccept { accept } => {
            let (file, text) = accept.declaration.clone().unzip();
            let args = json!({
                "server_id": accept.name, "declaration": text, "declaration_file": file,
                "carry_approvals": accept.carry_approvals, "grant": accept.grant.as_ref().map(|grant| grant.which),
                "grant_to": accept.grant.as_ref().and_then(|grant| grant.agent.as_ref()),
                "waive": accept.waive, "allow_over_budget": accept.allow_over_budget,
            });
            let accepted = act(desk, operator, "declarations_accept", args, &accept.reason).await?;
            json!({
                "name": accept.name, "state": accepted["state"], "declaration_version": accepted["declaration_version"],
                "approvals_invalidated": accepted["approvals_ended"], "approvals_carried": accepted["approvals_carried"],
                "approvals_granted": accepted["approvals_granted"],
                "surface": accepted["surface"],
            })
        }
        Request::McpHalt { name, reason } => {
            let ending = control.approvals_of(&server(name)?).len();
            let args = json!({"server_id": name, "state": "halted"});
            act(desk, operator, "servers_set_state", args, reason).await?;
            json!({"name": name, "state": "halted", "approvals_invalidated": ending})
        }
        Request::McpResume { name, reason } => {
            let args = json!({"server_id": name, "state": "active"});
            act(desk, operator, "servers_set_state", args, reason).await?;
            json!({"name": name, "state": "active", "approvals_invalidated": 0})
        }
        Request::ApproveList { status } => {
            Value::Array(control.approvals(*status).iter().map(approval_row).collect())
        }
        Request::ApproveShow { id } => shown(control, &control.approval(approval(id)?)?)?,
        Request::ApproveGrant { id, scope, reason } => {
            let id = approval(id)?;
            let seen = control.approval(id)?.presented_sha256;
            let args = json!({"approval_id": id, "scope": scope, "presented_sha256": seen});
            let decided = act(desk, operator, "approvals_approve", args, reason).await?;
            approval_decided(control, id, &decided)?
        }
        Request::ApproveDeny { id, reason } => {
            let id = approval(id)?;
            let decided = act(desk, operator, "approvals_reject", json!({"approval_id": id}), reason).await?;
            approval_decided(control, id, &decided)?
        }
        Request::AuditExport { out, from, to, recipient: None, .. } => {
            json!(control.export(operator, *from, *to, out.clone()).await?)
        }
        Request::AuditExport { out, from, to, recipient: Some(recipient), reason } => {
            let recipient = recipient.parse().map_err(|error: portcullis_audit::RecipientError| {
                Failure::field("recipient", error.to_string())
            })?;
            let disclosure = Disclosure { recipient, reason: reason.clone().unwrap_or_default() };
            let (exported, disclosed) =
                control.export_with_evidence(operator, *from, *to, out.clone(), disclosure).await?;
            let mut done = json!(exported);
            done["evidence"] = json!(disclosed);
            done
        }
        Request::AuditEvidence { seqs, reason } => {
            json!(control.read_evidence(operator, seqs, reason).await?)
        }
        Request::AuditKeys => json!(control.evidence_keys().await?),
        Request::AuditForget => json!({"destroyed": control.destroy_expired(operator.actor()).await?}),
        Request::AuditHold { key, held, reason } => {
            let name = key
                .parse()
                .map_err(|error: portcullis_audit::KeyNameError| Failure::field("key", error.to_string()))?;
            control.hold_evidence(operator, name, *held, reason).await?;
            json!({"key": key, "held": held})
        }
        Request::AuditCassette { out, session: wanted } => {
            let wanted = wanted.as_deref().map(session).transpose()?;
            json!({"entries": control.record_cassette(operator, wanted, out.clone()).await?})
        }
        Request::AuditUnblock { reason } => control.unblock(operator, reason).await?,
        Request::AuditRotateSigner { reason } => control.rotate_signer(operator, reason).await?,
        Request::AuditRebuildIndex => control.rebuild_index(operator).await?,
        Request::AuditReplay { session: wanted, policies } => {
            json!(control.replay_session(operator, session(wanted)?, policies.clone()).await?)
        }
        Request::GrantsList => {
            Value::Array(control.approvals(Some(State::Approved)).iter().map(granted).collect())
        }
        Request::GrantsRevoke { id, reason } => {
            let id = approval(id)?;
            let mut before = granted(&control.approval(id)?);
            act(desk, operator, "grants_revoke", json!({"grant_id": id}), reason).await?;
            before["state"] = json!(State::Revoked);
            before
        }
        Request::PermitList { state } => {
            let mut permits =
                look(desk, operator, "permits_list", json!({"state": state, "limit": 500})).await?;
            if let Some(permits) = permits.as_array_mut() {
                permits.reverse();
            }
            permits
        }
        Request::PermitRevoke { id, kill, reason } => {
            let args = json!({"permit_id": id, "kill": kill});
            act(desk, operator, "permits_revoke", args, reason).await?
        }
        Request::SessionList => json!(control.sessions()),
        Request::SessionEnd { session: wanted, reason } => {
            let args = json!({"session_id": session(wanted)?});
            let ended = act(desk, operator, "sessions_terminate", args, reason).await?;
            let approvals = ended["approvals_ended"].clone();
            json!({"session_id": wanted, "state": "ended", "approvals_invalidated": approvals})
        }
        Request::CheckpointList => json!(control.checkpoints()),
        Request::CheckpointOpen { session: wanted, reason } => {
            json!(control.open_checkpoint(operator, session(wanted)?, reason).await?)
        }
        Request::CheckpointResolve { session: wanted, reason } => {
            let id = session(wanted)?;
            act(desk, operator, "checkpoints_resolve", json!({"session_id": id}), reason).await?
        }
        Request::OperatorEnrol { name, passphrase } => {
            json!(control.enrol(operator, name, Enrolment::Passphrase(passphrase.secret())).await?)
        }
        Request::OperatorEnrolKey { name, key } => {
            json!(control.enrol(operator, name, Enrolment::SshKey(key.clone())).await?)
        }
        Request::OperatorList => json!(control.operators()),
        Request::OperatorRemove { name, reason } => {
            act(desk, operator, "users_delete", json!({"user_id": name}), reason).await?;
            json!({"name": name, "state": "removed"})
        }
        Request::OperatorTokenCreate { name, lifetime } => {
            let (token, kept) = control.create_operator_token(operator, name, *lifetime).await?;
            let mut created = json!(kept);
            // To the operator, once, over a socket that only the gateway's user can open.
            created["token"] = json!(token.expose());
            created
        }
        Request::SecretSet { name, class, kind, value } => {
            let kind = kind.parse().map_err(|error: String| Failure::field("kind", error))?;
            json!(control.set_secret(operator, name, class, kind, value.bytes()).await?)
        }
        Request::SandboxExplain { name } => control.explain_cage(&server(name)?).await?,
        Request::SandboxTest { name } => control.test_cage(&server(name)?).await?,
        Request::SandboxWaive { name, facility, reason, lifetime } => {
            json!(control.waive(operator, &server(name)?, facility, reason, *lifetime).await?)
        }
        Request::SecretList => json!(control.secrets()),
        Request::SecretRotate { name, value } => {
            json!(control.rotate_secret(operator, name, value.bytes()).await?)
        }
        Request::SecretRemove { name, reason } => {
            control.remove_secret(operator, name, reason).await?;
            json!({"name": name, "state": "removed"})
        }
        Request::OperatorTokenList => json!(control.operator_tokens()),
        Request::OperatorTokenRevoke { name, reason } => {
            control.revoke_operator_token(operator, name, reason).await?;
            json!({"name": name, "state": "revoked"})
        }
        Request::AdminCall { tool, args } => {
            let actor = Actor::operator(operator.clone());
            let raw = serde_json::value::RawValue::from_string(args.clone())
                .map_err(|_| Failure::field("json", "the arguments are not JSON"))?;
            let channel = portcullis_admin::Channel::Operator;
            said(&desk.invoker.call(tool, &raw, Some(&actor), channel).await)
        }
        Request::AdminMcp { message, passthrough } => {
            let exposure = if *passthrough { Exposure::Passthrough } else { Exposure::Gateway };
            let server = AdminMcp::new(desk.invoker.clone(), exposure, env!("CARGO_PKG_VERSION"));
            json!(server.answer(&Actor::operator(operator.clone()), message.as_bytes()).await)
        }
        Request::TrustList { server, state } => {
            let wanted = |row: &Value| {
                server.as_ref().is_none_or(|server| row["server"] == server.as_str())
                    && state.as_ref().is_none_or(|state| row["state"] == state.as_str())
            };
            Value::Array(control.trust_records().await.into_iter().filter(wanted).collect())
        }
        Request::TrustShow { id } => control.trust_record(id).await?,
        Request::TrustGrant { id, reason } => {
            act(desk, operator, "trust_grant", json!({"tool": id, "state": "trusted"}), reason).await?;
            control.trust_record(id).await?
        }
        Request::TrustRevoke { id, reason } => {
            act(desk, operator, "trust_revoke", json!({"tool": id}), reason).await?;
            control.trust_record(id).await?
        }
        Request::TrustVerify => control.verify_trust().await?,
        Request::CatalogBrowse { query, path, top_k, kind } => {
            let kind = match kind.as_str() {
                "resource" => Kind::Resource,
                "prompt" => Kind::Prompt,
                _ => Kind::Tool,
            };
            let (query, path) = (query.as_deref(), path.as_deref());
            let asked = portcullis_catalog::Request { query, path, top_k: *top_k, cursor: None };
            json!({"text": control.browse(asked, kind)?})
        }
        Request::CatalogFindings => json!(control.findings()),
        Request::CatalogRefresh => json!(control.refresh_catalogue().await?),
        Request::CatalogSnapshot { server: only, live } => {
            let only = only.as_deref().map(server).transpose()?;
            json!(control.capabilities(only.as_ref(), *live).await?)
        }
        Request::SurfaceParts { mode, principal } => {
            let agent = principal.as_deref().map(|name| control.agent(name)).transpose()?;
            json!(control.surface_parts(*mode, agent.as_ref()))
        }
        Request::GateTry { id } => json!(control.try_gates(&desk.edge, id.as_deref()).await),
        Request::Alarms => json!(control.alarms()),
        Request::ResultSizes { seconds, limit } => json!(control.result_sizes(*seconds, *limit)),
        Request::PolicyShow { version } => policy(control, *version).await?,
        Request::PolicyApply { bundle, reason } => {
            act(desk, operator, "policies_apply", json!({"bundle": bundle_args(bundle)}), reason).await?;
            json!(control.activations().await.last())
        }
        Request::PolicyRollback { version, reason } => {
            act(desk, operator, "policies_rollback", json!({"version": version}), reason).await?;
            json!(control.activations().await.last())
        }
        Request::PolicyExplain { tool, args, agent } => {
            json!(control.explain(agent.as_deref(), tool, args)?)
        }
        Request::KeyCreate { agent, grants, lifetime } => {
            let (key, kept) = control.create_key(operator, agent, grants.clone(), *lifetime).await?;
            let mut created = json!(kept);
            // To the operator, once, over a socket that only the gateway's user can open.
            created["key"] = json!(key.expose());
            created
        }
        Request::KeyList => json!(control.keys()),
        Request::ArtifactList => json!(control.artifacts()),
        Request::ArtifactView { handle, selector } => {
            control.view_artifact(operator, handle, selector).await?
        }
        Request::KeyRevoke { agent, reason } => {
            act(desk, operator, "clients_revoke", json!({"client_id": agent}), reason).await?;
            json!({"agent": agent, "state": "revoked"})
        }
    })
}

/// Does one thing through the one door (ADM-1): the operator has typed the command, which is its confirmation.
async fn act(desk: &Desk, operator: &OperatorProof, tool: &str, args: Value, reason: &str) -> Answer {
    let mut args = args;
    if let Some(args) = args.as_object_mut() {
        args.retain(|_, value| !value.is_null());
        args.insert("confirm".into(), json!(true));
        args.insert("reason".into(), json!(reason.chars().take(500).collect::<String>()));
    }
    let actor = Actor::operator(operator.clone());
    let channel = portcullis_admin::Channel::Operator;
    let envelope = desk.invoker.call_value(tool, &args, Some(&actor), channel).await;
    told(tool, &envelope)
}

/// Asks an admin tool that changes nothing.
async fn look(desk: &Desk, operator: &OperatorProof, tool: &str, args: Value) -> Answer {
    let mut args = args;
    if let Some(args) = args.as_object_mut() {
        args.retain(|_, value| !value.is_null());
    }
    let actor = Actor::operator(operator.clone());
    told(tool, &desk.invoker.call_value(tool, &args, Some(&actor), portcullis_admin::Channel::Operator).await)
}

/// What an admin tool said.
fn told(tool: &str, envelope: &Envelope) -> Answer {
    match (envelope.data(), envelope.failure()) {
        (Some(data), _) => serde_json::from_str(data.get())
            .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string())),
        (None, Some(error)) => Err(Failure::from(error)),
        (None, None) => {
            Err(Failure::new(ErrorCode::NotFound, format!("there is no admin tool {tool} for you")))
        }
    }
}

/// The reason of a registration is its justification.
fn justified(failure: Failure) -> Failure {
    match failure.field.as_deref() {
        Some("reason") => Failure::field("justification", "say in a few words why the server is here"),
        _ => failure,
    }
}

/// The registration as arguments of a tool.
fn register_args(asked: &Registration) -> Value {
    let (transport, process, url, tls_spki) = match &asked.target {
        Target::Stdio { command, args, env, artifacts } => {
            let process = json!({"command": command, "args": args, "env": env, "artifacts": artifacts});
            ("stdio", Some(process), None, None)
        }
        Target::Http { url, tls_spki } => ("http", None, Some(url), tls_spki.as_ref()),
        Target::Sse { url, tls_spki } => ("sse", None, Some(url), tls_spki.as_ref()),
        Target::Records { url, .. } => ("records", None, Some(url), None),
    };
    let credential_file = match &asked.target {
        Target::Records { credential_file, .. } => Some(credential_file),
        _ => None,
    };
    json!({
        "credential_file": credential_file,
        "server_id": asked.name, "version": asked.server_version, "transport": transport, "process": process, "url": url,
        "tls_spki": tls_spki, "surface": asked.surface, "trust_tier_requested": asked.trust_tier,
        "justification": asked.justification, "policy_tags": asked.modes, "declaration": asked.declaration,
        "declaration_file": asked.declaration_file, "attest": asked.attest, "waive_isolation": asked.waive_isolation,
        "grant": asked.grant.as_ref().map(|grant| grant.which),
        "grant_to": asked.grant.as_ref().and_then(|grant| grant.agent.as_ref()),
        "waive": asked.waive, "allow_over_budget": asked.allow_over_budget,
    })
}

fn bundle_args(bundle: &Bundle) -> Value {
    let mut args = json!({"preset": bundle.preset, "files": bundle.files});
    if !bundle.settings.trim().is_empty() {
        args["settings"] = json!(bundle.settings);
    }
    args
}

/// The record of a registered server.
fn record(control: &Control, name: &str) -> Answer {
    let name = server(name)?;
    let world = control.world();
    let entry = world.registry().server(&name);
    entry
        .map(|entry| json!(*entry.record))
        .ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("server '{name}' went away meanwhile")))
}

/// An approval after a decision; one that a waiting call has used up at once is as it was decided.
fn approval_decided(control: &Control, id: ApprovalId, decided: &Value) -> Answer {
    let mut row = approval_row(&control.approval(id)?);
    row["state"] = decided["status"].clone();
    Ok(row)
}

/// An envelope as its own bytes, so that every surface answers the same.
fn said(envelope: &Envelope) -> Value {
    json!({"envelope": envelope.to_json(), "exit": envelope.exit_code()})
}

fn server(name: &str) -> Result<ServerIdentity, Failure> {
    name.parse().map_err(|error: portcullis_core::NameError| Failure::field("name", error.to_string()))
}

fn session(id: &str) -> Result<SessionId, Failure> {
    id.parse().map_err(|error: portcullis_core::id::IdError| Failure::field("session", error.to_string()))
}

fn approval(id: &str) -> Result<ApprovalId, Failure> {
    id.parse().map_err(|error: portcullis_core::id::IdError| Failure::field("id", error.to_string()))
}

fn list(control: &Control) -> Value {
    let world = control.world();
    let servers = world.registry().servers().map(|entry| {
        let record = &entry.record;
        json!({
            "name": record.server_identity, "version": record.server_version, "transport": record.transport.as_str(),
            "state": record.state, "surface": record.surface,
            "tier": {"requested": record.requested_trust_tier, "assigned": record.assigned_trust_tier},
            "tools": entry.declaration.tools().len(), "worst_trust": worst_trust(entry), "isolation": record.isolation_class,
        })
    });
    Value::Array(servers.collect())
}

/// The least trusted of a server and its tools.
fn worst_trust(entry: &ServerEntry) -> Trust {
    let tools = entry.declaration.tools().iter().map(|tool| entry.trust_in(tool.id()));
    tools.min().unwrap_or(entry.trust)
}

fn show(control: &Control, name: &ServerIdentity) -> Answer {
    let world = control.world();
    let entry = world.registry().server(name).ok_or_else(|| {
        let message = format!("there is no server '{name}'; `portcullis mcp list` names those there are");
        Failure::from(ControlError::new(ErrorCode::NotFound, message))
    })?;
    let tools = world.registry().tools().iter().filter(|tool| tool.tool.id().server() == name).map(|tool| {
        json!({
            "name": tool.wire_name, "tool_id": tool.tool.id(), "classes": tool.tool.side_effects(), "scopes": tool.tool.scopes(),
            "bound": tool.tool.bound(), "idempotency": tool.tool.idempotency(), "trust": tool.server.trust_in(tool.tool.id()),
        })
    });
    let grants: Vec<Value> = (control.approvals(Some(State::Approved)).iter())
        .filter(|approval| approval.tool_id.server() == name)
        .map(approval_row)
        .collect();
    let mut document = json!(*entry.record);
    document["tools"] = tools.collect();
    document["grants"] = json!(grants);
    let drifted = world.upstream(name).and_then(|upstream| upstream.drifted());
    // GOV-502
    let pending = drifted.as_ref().filter(|_| entry.record.surface == Surface::Dynamic).map(|live| {
        let difference = entry.declaration.drift(live);
        let changed = difference.changed.iter().map(|change| change.tool.clone());
        let waiting = difference.added.iter().cloned().chain(changed);
        let waiting = waiting.map(|name| json!({"name": name, "state": Availability::PendingRedeclaration}));
        let gone =
            difference.removed.iter().map(|name| json!({"name": name, "state": Availability::Withdrawn}));
        waiting.chain(gone).collect::<Vec<_>>()
    });
    document["pending"] = json!(pending.unwrap_or_default());
    document["drift"] = match drifted {
        Some(live) => json!(diff::fields(entry.declaration.live(), &live)),
        None => json!([]),
    };
    document["connection"] = match world.upstream(name) {
        Some(upstream) => json!(format!("{:?}", upstream.connection().status().phase).to_lowercase()),
        None => Value::Null,
    };
    Ok(document)
}

async fn policy(control: &Control, version: Option<u64>) -> Answer {
    let history = control.activations().await;
    let wanted = |activation: &&Activation| version.is_none_or(|n| activation.version.counter == n);
    let shown = history.iter().rev().find(wanted).ok_or_else(|| {
        let message = format!("no policy version {} was ever in force", version.unwrap_or_default());
        Failure::new(ErrorCode::NotFound, message)
    })?;
    let mut document = json!(shown);
    document["bundle"] = json!(shown.bundle);
    document["in_force"] = json!(history.last().is_some_and(|last| last.version == shown.version));
    document["policies"] = json!(control.validate_policy(&shown.bundle).await?.ids());
    document["history"] = json!(history);
    Ok(document)
}

/// A grant with its envelope, if it is a wide one (GOV-1201).
fn granted(approval: &Approval) -> Value {
    let mut row = approval_row(approval);
    row["envelope"] = json!(approval.envelope());
    row
}

fn approval_row(approval: &Approval) -> Value {
    json!(approval)
}

fn shown(control: &Control, approval: &Approval) -> Answer {
    let mut document = approval_row(approval);
    document["presented"] = control.presented(approval.approval_id)?;
    Ok(document)
}
