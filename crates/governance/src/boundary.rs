//! The boundary: eight checks between a permit and the wire, and durable evidence on both sides of it.
//!
//! [`Boundary::admit`] turns a [`Permit`] into a [`ValidatedPermit`], or refuses. When it returns one, the
//! intent and everything before it is on disk (AUD-1). `upstream` consumes it to send exactly one frame and
//! gives back a [`SealedResponse`], which nobody can read; [`Boundary::settle`] records it and only then opens
//! it (AUD-2).

mod cancel;
mod continuing;
mod probe;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portcullis_audit::{AuditBlocked, EventName, Receipt, RetentionClass, Role};
use portcullis_core::{Clock, LogId, PermitId, ProposalId, Sha256Digest, ToolId, failpoint};
use portcullis_gauntlet::{Raw, RawResult};
use serde_json::json;

use crate::accepted::{AcceptedTool, Reach};
use crate::broker::Delivery;
use crate::declaration::SideEffect;
use crate::notes::{Came, Intent, OfPermit};
use crate::permit::{Fate, Mint, Permit, PermitKey, PermitTrust};
use crate::record::Isolation;
use crate::registry::{ActiveRegistry, Registry};
use crate::request::{CanonicalRequest, Fingerprint};
use crate::session::Session;
use crate::trail::Trail;

pub use cancel::{CancellationSignal, Canceller};
pub use continuing::Continuation;
pub use probe::{ProbeAuthority, ProbeDenied, ProbePermit, Prober};

/// A future that can be stored.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The eight checks, in their order (GOV-1003).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Check {
    Authenticity,
    Expiry,
    ToolIdentity,
    ArgumentScope,
    SideEffectClass,
    Lineage,
    Trust,
    Checkpoint,
}

impl Check {
    /// The word in events and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            Check::Authenticity => "authenticity",
            Check::Expiry => "expiry",
            Check::ToolIdentity => "tool_identity",
            Check::ArgumentScope => "argument_scope",
            Check::SideEffectClass => "side_effect_class",
            Check::Lineage => "lineage",
            Check::Trust => "trust",
            Check::Checkpoint => "checkpoint",
        }
    }
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// A check failed (MP-FH-006).
    #[error("permit check failed: {}", .0.as_str())]
    Check(Check),
    /// The intent could not be made durable (MP-FH-010).
    #[error(transparent)]
    Audit(#[from] AuditBlocked),
}

/// A call as an upstream connection needs it to build a frame.
#[derive(Debug, Clone, Copy)]
pub struct WireCall<'a> {
    /// `tools/call`, `resources/read`, `prompts/get` or `completion/complete`.
    pub method: &'static str,
    /// The server's own name or URI, where a transport repeats it outside the body.
    pub name: Option<&'a str>,
    /// The members of `params`, without braces; the arguments in them are canonical.
    pub params: &'a [u8],
    /// Arguments that go into headers too, where there are headers.
    pub mirrored: &'a [(String, String)],
}

/// The exact bytes that will be sent.
#[derive(Debug, Clone)]
pub struct WireFrame {
    /// The JSON-RPC id inside.
    pub id: u64,
    /// The message, without any framing of the transport.
    pub bytes: Bytes,
    /// For transports that repeat it outside the body.
    pub method: &'static str,
    /// Likewise.
    pub name: Option<String>,
    /// Likewise.
    pub mirrored: Vec<(String, String)>,
}

/// A connection that is up, so that an intent without a result can only mean "bytes may have left" (GOV-705).
pub trait ReadyChannel: Send + Sync {
    /// Builds the frame of a call: a fresh id, and whatever the server's era wants around the arguments.
    fn frame(&self, call: &WireCall<'_>) -> WireFrame;
}

/// Sends one call per validated permit.
pub trait Transmit: Send + Sync {
    /// Sends the permit's frame and waits for its answer, its timeout or its cancellation.
    fn transmit(
        &self,
        permit: ValidatedPermit,
        cancel: CancellationSignal,
    ) -> impl Future<Output = SealedResponse> + Send;
}

/// A permit that passed the eight checks, with its intent durable: one transmission.
///
/// Sending spends it:
///
/// ```
/// use portcullis_governance::boundary::{CancellationSignal, SealedResponse, Transmit, ValidatedPermit};
/// async fn once(wire: impl Transmit, permit: ValidatedPermit, cancel: CancellationSignal) -> SealedResponse {
///     wire.transmit(permit, cancel).await
/// }
/// ```
///
/// so that there is no second time (INV-MP-003, GOV-1602), also not by a copy:
///
/// ```compile_fail,E0382
/// use portcullis_governance::boundary::{CancellationSignal, SealedResponse, Transmit, ValidatedPermit};
/// async fn twice(wire: impl Transmit, permit: ValidatedPermit, cancel: CancellationSignal) -> SealedResponse {
///     wire.transmit(permit, cancel.clone()).await;
///     wire.transmit(permit, cancel).await
/// }
/// ```
///
/// ```compile_fail,E0277
/// use portcullis_governance::boundary::ValidatedPermit;
/// fn copy(permit: &ValidatedPermit) -> ValidatedPermit {
///     ValidatedPermit::clone(permit)
/// }
/// ```
///
/// Only [`Boundary::admit`] makes one, and [`Boundary::follow`] for what a task of an admitted call needs: its fields are
/// private, and it cannot be read from text.
///
/// ```compile_fail,E0451
/// use portcullis_governance::boundary::{ValidatedPermit, WireFrame};
/// fn resend(permit: ValidatedPermit, frame: WireFrame) -> ValidatedPermit {
///     ValidatedPermit { frame, ..permit }
/// }
/// ```
///
/// ```compile_fail,E0277
/// use portcullis_governance::boundary::ValidatedPermit;
/// fn read(text: &str) -> ValidatedPermit {
///     serde_json::from_str(text).unwrap()
/// }
/// ```
#[derive(Debug)]
pub struct ValidatedPermit {
    facts: Facts,
    frame: WireFrame,
    _intent: IntentReceipt,
}

/// A call that was sent, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfCall {
    /// Its permit.
    pub permit_id: PermitId,
    /// Its proposal.
    pub proposal: ProposalId,
    /// What was called.
    pub tool: ToolId,
}

/// What settling needs to know of the permit.
#[derive(Debug, Clone)]
struct Facts {
    permit_id: PermitId,
    timeout: Duration,
    max_response_bytes: usize,
    class: RetentionClass,
    idempotent: bool,
    fingerprint: Fingerprint,
    reach: Option<Arc<Reach>>,
    deliveries: Arc<[Delivery]>,
    fate: Arc<Fate>,
    tool: Arc<AcceptedTool>,
    trust: PermitTrust,
    proposal: ProposalId,
    /// What is asked about a task of the call, if this is not the call itself.
    follows: Option<&'static str>,
}

/// Proof that the intent is durable. Made only from a resolved commit (AUD-22).
#[derive(Debug)]
struct IntentReceipt {
    _receipt: Receipt,
}

impl ValidatedPermit {
    /// The exact bytes to send.
    pub fn frame(&self) -> &WireFrame {
        &self.frame
    }

    /// How long the answer may take.
    pub fn timeout(&self) -> Duration {
        self.facts.timeout
    }

    /// How long the answer may be.
    pub fn max_response_bytes(&self) -> usize {
        self.facts.max_response_bytes
    }

    /// Whether the declaration says that calling twice is like calling once.
    pub fn idempotent(&self) -> bool {
        self.facts.idempotent
    }

    /// Tells when an operator cuts the call.
    pub fn killed(&self) -> tokio::sync::watch::Receiver<bool> {
        self.facts.fate.killed()
    }

    /// Which one it is.
    pub fn permit_id(&self) -> PermitId {
        self.facts.permit_id
    }

    /// Which call it is, for who hears an answer after it was given up.
    pub fn of_call(&self) -> OfCall {
        let (permit_id, proposal) = (self.facts.permit_id, self.facts.proposal);
        OfCall { permit_id, proposal, tool: self.facts.tool.id().clone() }
    }

    /// The server it lets a request go to.
    pub fn server(&self) -> &portcullis_core::ServerIdentity {
        self.facts.fate.server()
    }

    /// What the call may reach over the network.
    pub fn reach(&self) -> Option<&Reach> {
        self.facts.reach.as_deref()
    }

    /// The credentials that the call is given, and how (SBX-52).
    pub fn credentials(&self) -> &[Delivery] {
        &self.facts.deliveries
    }

    /// Spends the permit: whatever came of it, sealed until it is recorded.
    pub fn seal(self, outcome: Outcome) -> SealedResponse {
        failpoint::pass("upstream.after_transmit");
        SealedResponse { facts: self.facts, outcome }
    }
}

/// What came of a transmission.
#[derive(Debug)]
pub enum Outcome {
    /// The raw JSON of `result`.
    Result(Bytes),
    /// The raw JSON of `error`.
    RpcError(Bytes),
    /// More than the declared bytes; what was read before giving up.
    TooLarge {
        /// How many bytes were seen.
        bytes: usize,
        /// The first of them.
        prefix: Bytes,
    },
    /// The server left its scopes while it worked on the call (MP-FH-008). What it answered, if it did, is evidence and
    /// nothing else.
    Escaped {
        /// How (SBX-60): `egress`, `secret_echo` and so on.
        violation: &'static str,
        /// The raw JSON of its answer, without credentials.
        answer: Option<Bytes>,
    },
    /// A question was handed to a client that answers it in a call of its own (GOV-408).
    PassedOn,
    /// No answer.
    Failed(TransmitFailure),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransmitFailure {
    /// The connection failed (MP-FH-001).
    Unavailable {
        /// Why, in our words.
        reason: String,
        /// Whether bytes may have left.
        sent: bool,
    },
    /// No answer in time (MP-FH-004).
    Timeout,
    /// The server broke the protocol.
    Protocol {
        /// How, in our words.
        reason: String,
    },
    /// The caller went away.
    Cancelled,
}

/// A response that nobody can read yet: it has no accessors (GOV-1602). [`Boundary::settle`] opens it.
///
/// ```
/// use portcullis_governance::boundary::{Boundary, ReleasedResponse, SealedResponse};
/// use portcullis_governance::trail::Trail;
/// async fn open(boundary: &Boundary, sealed: SealedResponse, trail: &mut Trail) -> Option<ReleasedResponse> {
///     boundary.settle(sealed, trail).await.ok().map(|(released, _)| released)
/// }
/// ```
///
/// ```compile_fail,E0616
/// use portcullis_governance::boundary::{Outcome, SealedResponse};
/// fn peek(sealed: &SealedResponse) -> &Outcome {
///     &sealed.outcome
/// }
/// ```
///
/// ```compile_fail,E0451
/// use portcullis_governance::boundary::{Outcome, SealedResponse};
/// fn unseal(sealed: SealedResponse) -> Outcome {
///     let SealedResponse { outcome, .. } = sealed;
///     outcome
/// }
/// ```
#[derive(Debug)]
pub struct SealedResponse {
    facts: Facts,
    outcome: Outcome,
}

impl SealedResponse {
    /// The permit it came under.
    pub fn permit_id(&self) -> PermitId {
        self.facts.permit_id
    }

    /// Whether the server's answer is, byte for byte, the one with this digest. Nothing else is told of it.
    pub fn is(&self, sha256: Sha256Digest) -> bool {
        match &self.outcome {
            Outcome::Result(raw) | Outcome::RpcError(raw) => Sha256Digest::of(raw) == sha256,
            _ => false,
        }
    }
}

/// A response whose evidence is durable.
#[derive(Debug)]
pub enum ReleasedResponse {
    /// To be finished by the gauntlet, which alone can read it.
    Result(RawResult),
    /// The server's JSON-RPC error, which only the gauntlet can read as well.
    RpcError(Raw<Bytes>),
    /// The result was larger than declared.
    TooLarge {
        /// How many bytes were seen.
        bytes: usize,
    },
    /// The server left its scopes; its answer is not released.
    Escaped,
    /// The answer comes in a call of its own.
    PassedOn,
    /// There is no answer.
    Failed(TransmitFailure),
}

/// The validator. It verifies and redeems; it cannot mint, and it does not give out the key with which one could
/// (GOV-1002, GOV-1602).
///
/// ```compile_fail,E0599
/// use portcullis_governance::boundary::Boundary;
/// use portcullis_governance::permit::Permit;
/// use portcullis_governance::policy::Authorised;
/// use portcullis_governance::registry::ServerEntry;
/// use portcullis_governance::session::Session;
/// fn mint(boundary: &Boundary, authorised: Authorised<'_>, server: &ServerEntry, session: &Session) -> Permit {
///     boundary.issue(authorised, server, session)
/// }
/// ```
///
/// ```compile_fail,E0616
/// fn steal(boundary: portcullis_governance::boundary::Boundary) {
///     let _ = boundary.key;
/// }
/// ```
#[derive(Debug)]
pub struct Boundary {
    key: Arc<PermitKey>,
    replica: LogId,
    clock: Arc<dyn Clock>,
}

/// What a call is checked against: not what the permit says, but what is so now.
#[derive(Clone, Copy)]
pub struct Now<'a> {
    /// The snapshot in force.
    pub registry: &'a dyn ActiveRegistry,
    /// The live session.
    pub session: &'a Session,
    /// The live request's lineage.
    pub lineage: &'a portcullis_core::Lineage,
}

/// Why nothing confines the server of a tool, if somebody took that upon themselves.
fn waiver(registry: &Registry, tool: &AcceptedTool) -> Option<String> {
    let record = &registry.owner(tool)?.record;
    record.isolation_reason.clone().filter(|_| record.isolation_class == Isolation::UnmanagedLocal)
}

impl Boundary {
    /// The boundary that redeems what `mint` issues.
    pub fn new(mint: &Mint, clock: Arc<dyn Clock>) -> Self {
        Self { key: mint.verifying_key(), replica: mint.replica(), clock }
    }

    /// Steps 8 and 9a: the eight checks, then the intent on disk, then the checks that could have changed
    /// meanwhile. `proposal` is the client's message as received: evidence. A denial is durable when this returns it.
    pub async fn admit(
        &self,
        permit: Permit,
        request: CanonicalRequest,
        channel: &dyn ReadyChannel,
        now: Now<'_>,
        proposal: Bytes,
        trail: &mut Trail,
    ) -> Result<ValidatedPermit, Denied> {
        let permit_id = permit.id();
        if let Err(check) = self.check(&permit, &request, &now, &now.registry.current()) {
            if !self.is_alive(&permit) {
                trail.note(EventName::PermitExpired, OfPermit { permit_id });
            }
            trail.note(EventName::ExecutionDenied, json!({"check": check.as_str(), "permit_id": permit_id}));
            trail.commit().await?;
            return Err(Denied::Check(check));
        }
        trail.note(EventName::PermitValidated, OfPermit { permit_id });
        failpoint::pass("boundary.after_validate");

        let tool = request.tool();
        let subject = tool.subject();
        let (params, name) = subject.params(tool.id().item().name(), request.args(), request.args_value());
        let mirrored: Vec<(String, String)> = (tool.mirrored().iter())
            .filter_map(|one| Some((one.header().to_owned(), one.value(request.args_value())?)))
            .collect();
        let call = WireCall {
            method: subject.method(),
            name: name.as_deref(),
            params: &params,
            mirrored: &mirrored,
        };
        let frame = channel.frame(&call);
        let facts = Facts {
            permit_id,
            timeout: tool.timeout(),
            max_response_bytes: tool.spec().max_response_bytes,
            class: retention(&request),
            fingerprint: request.fingerprint(),
            reach: tool.reach().cloned(),
            deliveries: Arc::clone(tool.deliveries()),
            idempotent: tool.idempotency() == crate::declaration::Idempotency::Idempotent,
            fate: permit.fate().clone(),
            tool: Arc::clone(tool),
            trust: permit.body().trust.clone(),
            proposal: trail.proposal(),
            follows: None,
        };
        // Only what is no process of ours can be unconfined.
        let waived = match tool.cage() {
            Some(_) => None,
            None => waiver(&now.registry.current(), tool),
        };
        // The trail takes the note below while it lends the steps above.
        let mut steps = trail.steps().to_vec();
        steps.push((EventName::ExecutionIntent, trail.elapsed_us()));
        let intent = Intent {
            approval_id: permit.body().approval_id,
            declaration_sha256: permit.body().declaration_sha256,
            fingerprint: request.fingerprint(),
            permit_id,
            process_model: tool.cage().map(|cage| cage.model.as_str()),
            replica: self.replica,
            request_sha256: request.sha256(),
            sandbox_profile_sha256: permit.body().sandbox_profile_sha256,
            scopes: &permit.body().scopes,
            side_effects: &permit.body().side_effects,
            steps_us: &steps,
            waived: waived.as_deref(),
        };
        trail.note_with(
            EventName::ExecutionIntent,
            intent,
            [
                (Role::Proposal, facts.class, proposal),
                (Role::Canonical, facts.class, Bytes::copy_from_slice(request.document())),
                (Role::Request, facts.class, frame.bytes.clone()),
            ],
        );
        let receipt = match trail.commit().await {
            Ok(receipt) => receipt,
            Err(blocked) => {
                // AUD-24: should the intent become durable after all, it says that nothing was sent.
                trail.conclude(
                    EventName::ExecutionCancelled,
                    json!({"permit_id": permit_id, "transmitted": false}),
                );
                return Err(blocked.into());
            }
        };
        // GOV-704 step 9: revocation is checked again, now that waiting is over.
        if let Err(check) = self.check(&permit, &request, &now, &now.registry.current()) {
            trail.note(EventName::ExecutionCancelled, json!({"permit_id": permit_id, "transmitted": false}));
            trail.note(EventName::ExecutionDenied, json!({"check": check.as_str(), "permit_id": permit_id}));
            trail.commit().await?;
            return Err(Denied::Check(check));
        }
        if let Some(claim) = permit.into_claim() {
            claim.spend();
        }
        facts.fate.sent();
        failpoint::pass("boundary.before_transmit");
        Ok(ValidatedPermit { facts, frame, _intent: IntentReceipt { _receipt: receipt } })
    }

    /// Step 8 of a call that will be answered from a record (AUD-73): the same eight checks, and no intent, because
    /// nothing is going to leave.
    pub async fn rehearse(
        &self,
        permit: Permit,
        request: &CanonicalRequest,
        now: Now<'_>,
        trail: &mut Trail,
    ) -> Result<PermitId, Denied> {
        let permit_id = permit.id();
        if let Err(check) = self.check(&permit, request, &now, &now.registry.current()) {
            trail.note(EventName::ExecutionDenied, json!({"check": check.as_str(), "permit_id": permit_id}));
            trail.commit().await?;
            return Err(Denied::Check(check));
        }
        trail.note(EventName::PermitValidated, OfPermit { permit_id });
        if let Some(claim) = permit.into_claim() {
            claim.spend();
        }
        Ok(permit_id)
    }

    fn is_alive(&self, permit: &Permit) -> bool {
        self.clock.now() < permit.body().exp && self.clock.uptime() < permit.deadline()
    }

    fn check(
        &self,
        permit: &Permit,
        request: &CanonicalRequest,
        now: &Now<'_>,
        registry: &Registry,
    ) -> Result<(), Check> {
        let body = permit.body();
        let require = |holds: bool, check: Check| if holds { Ok(()) } else { Err(check) };

        require(permit.is_authentic(&self.key, self.replica), Check::Authenticity)?;

        // A policy activation kills issued permits (GOV-801), and so does the end of the approval behind one
        // (GOV-906): the state is no longer `issued`.
        let issued = registry.policy().version() == body.policy_version
            && permit.approval_stands()
            && !permit.is_revoked();
        require(self.is_alive(permit) && issued, Check::Expiry)?;

        let tool = request.tool();
        let server = registry.owner(tool).ok_or(Check::ToolIdentity)?;
        let same_tool = tool.id() == &body.tool_id
            && tool.epoch() == body.registration_epoch
            && tool.id().declaration().sha256 == body.declaration_sha256;
        require(same_tool, Check::ToolIdentity)?;

        let same_request = CanonicalRequest::digest_of(request.document()) == body.request_sha256;
        let inside = request.bindings().iter().all(|binding| body.scopes.contains(&binding.scope));
        require(same_request && inside && tool.scopes() == body.scopes, Check::ArgumentScope)?;

        require(tool.side_effects() == body.side_effects, Check::SideEffectClass)?;

        let same_lineage = now.lineage == &body.lineage && now.session.id() == body.lineage.session;
        let same_session = now.session.principal() == &body.lineage.principal && !now.session.is_over();
        require(same_lineage && same_session, Check::Lineage)?;

        let trusted = server.is_active()
            && server.live.reset_epoch() == body.trust.server_reset_epoch
            && server.live.tool_reset_epoch(tool.id()) == body.trust.tool_reset_epoch
            && server.trust_in(tool.id()) >= body.trust.min_state;
        require(trusted, Check::Trust)?;

        let passes =
            !now.session.checkpoint_open() && now.session.checkpoint_epoch() == body.checkpoint_epoch;
        require(passes, Check::Checkpoint)
    }

    /// Step 10: the raw response is durable, then it is released.
    /// With the response comes the sequence number of its record.
    pub async fn settle(
        &self,
        sealed: SealedResponse,
        trail: &mut Trail,
    ) -> Result<(ReleasedResponse, u64), AuditBlocked> {
        if let Some(method) = sealed.facts.follows {
            return self.settle_followed(sealed, method, trail).await;
        }
        let SealedResponse { facts, outcome } = sealed;
        let outcome = outcome.unless_cut(&facts.fate);
        let permit_id = facts.permit_id;
        let (elapsed_us, revoked) = (trail.elapsed_us(), facts.fate.is_revoked());
        let mut result = |outcome: &'static str, bytes: Option<usize>, evidence: Option<Bytes>| {
            trail.note_with(
                EventName::ExecutionResult,
                Came { bytes, elapsed_us, fingerprint: facts.fingerprint, outcome, permit_id, revoked },
                evidence.map(|bytes| (Role::Response, facts.class, bytes)),
            );
        };
        match &outcome {
            Outcome::Result(raw) => result("result", Some(raw.len()), Some(raw.clone())),
            Outcome::RpcError(raw) => result("rpc_error", Some(raw.len()), Some(raw.clone())),
            Outcome::TooLarge { bytes, prefix } => result("too_large", Some(*bytes), Some(prefix.clone())),
            Outcome::Escaped { violation, answer } => {
                result("scope_violation", answer.as_ref().map(Bytes::len), answer.clone());
                let data = json!({"kind": violation, "violation": "scope_violation"});
                trail.note(EventName::ExecutionWithheld, data);
            }
            Outcome::PassedOn => result("passed_on", None, None),
            Outcome::Failed(TransmitFailure::Timeout) => {
                result("timeout", None, None);
                trail.note(EventName::McpToolTimeout, OfPermit { permit_id });
            }
            Outcome::Failed(TransmitFailure::Protocol { reason }) => {
                result("protocol_error", None, None);
                trail
                    .note(EventName::McpServerUnavailable, json!({"permit_id": permit_id, "reason": reason}));
            }
            Outcome::Failed(TransmitFailure::Unavailable { reason, sent }) => {
                trail
                    .note(EventName::McpServerUnavailable, json!({"permit_id": permit_id, "reason": reason}));
                if *sent {
                    trail.note(EventName::ExecutionIndeterminate, OfPermit { permit_id });
                } else {
                    trail.note(
                        EventName::ExecutionCancelled,
                        json!({"permit_id": permit_id, "transmitted": false}),
                    );
                }
            }
            Outcome::Failed(TransmitFailure::Cancelled) => {
                trail.note(
                    EventName::ExecutionCancelled,
                    json!({"permit_id": permit_id, "transmitted": true}),
                );
            }
        }
        let receipt = match trail.commit().await {
            Ok(receipt) => receipt,
            Err(blocked) => {
                // AUD-3, AUD-63: the effect happened and its result is withheld. One that is merely late may still be
                // recorded, so nothing is said about it.
                if trail.is_blocked() {
                    let data = json!({"permit_id": permit_id, "reason": "audit_persistence"});
                    trail.conclude(EventName::ExecutionIndeterminate, data);
                }
                return Err(blocked);
            }
        };
        Ok((outcome.released(), receipt.seq))
    }
}

impl Outcome {
    /// A call that was cut because its server was removed was not given up by anybody: what became of it is unknown.
    fn unless_cut(self, fate: &Fate) -> Self {
        match self {
            Outcome::Failed(TransmitFailure::Cancelled) if fate.is_cut() => {
                let reason = "the server was removed while it worked on the call".into();
                Outcome::Failed(TransmitFailure::Unavailable { reason, sent: true })
            }
            outcome => outcome,
        }
    }

    fn released(self) -> ReleasedResponse {
        match self {
            Outcome::Result(raw) => ReleasedResponse::Result(RawResult::new(raw)),
            Outcome::RpcError(raw) => ReleasedResponse::RpcError(Raw::new(raw)),
            Outcome::TooLarge { bytes, .. } => ReleasedResponse::TooLarge { bytes },
            Outcome::Escaped { .. } => ReleasedResponse::Escaped,
            Outcome::PassedOn => ReleasedResponse::PassedOn,
            Outcome::Failed(failure) => ReleasedResponse::Failed(failure),
        }
    }
}

fn retention(request: &CanonicalRequest) -> RetentionClass {
    let tool = request.tool();
    let sensitive = !tool.credentials().is_empty() || tool.side_effects().contains(&SideEffect::SecretAccess);
    if sensitive { RetentionClass::Sensitive } else { RetentionClass::Standard }
}

#[cfg(test)]
#[path = "boundary_tests.rs"]
mod tests;
