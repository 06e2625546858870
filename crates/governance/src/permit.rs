//! Permits: permission to transmit one exact request once (GOV §10).
//!
//! A permit never leaves the process. It is minted here, from an authorised decision, and spent at the
//! boundary; the key that authenticates it is made anew at every start, so that no permit survives a crash.

mod live;

use std::sync::Arc;
use std::time::Duration;

use portcullis_core::digest::to_hex;
use portcullis_core::name::ScopeName;
use portcullis_core::{
    ApprovalId, Clock, Lineage, LogId, PermitId, PolicyVersion, RegistrationEpoch, Secret, Sha256Digest,
    Timestamp, ToolId,
};
use rand::RngExt as _;
use serde::Serialize;

use crate::approval::Claim;
use crate::declaration::SideEffect;
use crate::policy::{Authorised, Covering};
use crate::registry::{ServerEntry, Trust};
use crate::request::CANON;
use crate::session::Session;

pub(crate) use live::Fate;
pub use live::{LivePermit, LivePermits};

/// How long a permit lives unless configured otherwise (1 to 300 s).
pub const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// Permission to transmit one exact request once. Not `Clone`, not `Deserialize`; only a [`Mint`] makes one, and only
/// from an authorised decision (INV-MP-002):
///
/// ```
/// use portcullis_governance::permit::{Mint, Permit};
/// use portcullis_governance::policy::Decision;
/// use portcullis_governance::registry::ServerEntry;
/// use portcullis_governance::session::Session;
/// fn issue(mint: &Mint, decision: &Decision<'_>, server: &ServerEntry, session: &Session) -> Option<Permit> {
///     Some(mint.issue(decision.unattended()?, server, session))
/// }
/// ```
///
/// ```compile_fail,E0308
/// use portcullis_governance::permit::{Mint, Permit};
/// use portcullis_governance::policy::Decision;
/// use portcullis_governance::registry::ServerEntry;
/// use portcullis_governance::session::Session;
/// fn issue(mint: &Mint, decision: Decision<'_>, server: &ServerEntry, session: &Session) -> Permit {
///     mint.issue(decision, server, session)
/// }
/// ```
///
/// ```compile_fail,E0451
/// use portcullis_governance::permit::Permit;
/// fn prolong(permit: Permit) -> Permit {
///     Permit { deadline: std::time::Duration::MAX, ..permit }
/// }
/// ```
#[derive(Debug)]
pub struct Permit {
    body: PermitBody,
    /// The body in canonical bytes: what the MAC is over and what is recorded.
    bytes: Vec<u8>,
    mac: [u8; 32],
    /// Uptime after which the permit is dead, whatever the wall clock says.
    deadline: Duration,
    claim: Option<Claim>,
    fate: Arc<Fate>,
}

/// What a permit says. Members are declared in canonical (sorted) order.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PermitBody {
    pub(crate) approval_id: Option<ApprovalId>,
    pub(crate) aud: LogId,
    pub(crate) canon_version: &'static str,
    pub(crate) checkpoint_epoch: u64,
    pub(crate) credential_classes: Vec<String>,
    pub(crate) declaration_sha256: Sha256Digest,
    pub(crate) envelope_id: Option<String>,
    pub(crate) exp: Timestamp,
    pub(crate) issued: Timestamp,
    pub(crate) lineage: Lineage,
    pub(crate) nonce: String,
    pub(crate) permit_id: PermitId,
    pub(crate) policy_version: PolicyVersion,
    pub(crate) registration_epoch: RegistrationEpoch,
    pub(crate) request_sha256: Sha256Digest,
    pub(crate) sandbox_profile_sha256: Option<Sha256Digest>,
    pub(crate) scopes: Vec<ScopeName>,
    pub(crate) side_effects: Vec<SideEffect>,
    pub(crate) tool_id: ToolId,
    pub(crate) trust: PermitTrust,
    pub(crate) v: u32,
}

/// The trust a permit was issued under.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PermitTrust {
    pub(crate) min_state: Trust,
    pub(crate) server_reset_epoch: u64,
    pub(crate) tool_reset_epoch: u64,
}

/// The process's permit key. Whoever holds it could mint: it is private to this crate, and the boundary uses
/// it to verify only.
#[derive(Debug)]
pub(crate) struct PermitKey(Secret<[u8; 32]>);

impl PermitKey {
    fn mac(&self, bytes: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(self.0.expose());
        hasher.update(b"portcullis/permit-v1\n");
        hasher.update(bytes);
        *hasher.finalize().as_bytes()
    }
}

impl PermitBody {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1024);
        serde_json::to_writer(&mut bytes, self).expect("a permit is serialisable");
        bytes
    }
}

/// Issues permits; the control plane has one.
#[derive(Debug)]
pub struct Mint {
    key: Arc<PermitKey>,
    live: Arc<LivePermits>,
    replica: LogId,
    clock: Arc<dyn Clock>,
    ttl: Duration,
}

impl Mint {
    /// A mint with a fresh key.
    pub fn new(replica: LogId, clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        let ttl = ttl.clamp(Duration::from_secs(1), Duration::from_secs(300));
        Self { key: Arc::new(PermitKey(Secret::random_key())), live: Arc::default(), replica, clock, ttl }
    }

    /// The permits that are issued and not settled.
    pub fn live(&self) -> &Arc<LivePermits> {
        &self.live
    }

    pub(crate) fn verifying_key(&self) -> Arc<PermitKey> {
        self.key.clone()
    }

    pub(crate) fn replica(&self) -> LogId {
        self.replica
    }

    /// Issues the permit of an authorised request. The authorisation is consumed: there is never a second one.
    pub fn issue(&self, authorised: Authorised<'_>, server: &ServerEntry, session: &Session) -> Permit {
        let request = authorised.request;
        let (policy, claim) = authorised.into_parts();
        let tool = request.tool();
        let now = self.clock.now();
        let nonce: [u8; 16] = rand::rng().random();
        let body = PermitBody {
            approval_id: claim.as_ref().map(Claim::approval_id),
            aud: self.replica,
            canon_version: CANON,
            checkpoint_epoch: session.checkpoint_epoch(),
            credential_classes: tool.credentials().to_vec(),
            declaration_sha256: tool.id().declaration().sha256,
            envelope_id: claim.as_ref().and_then(Claim::envelope_id),
            exp: now.after(self.ttl),
            issued: now,
            lineage: request.lineage().clone(),
            nonce: to_hex(&nonce),
            permit_id: PermitId::new(now),
            policy_version: policy,
            registration_epoch: tool.epoch(),
            request_sha256: request.sha256(),
            sandbox_profile_sha256: tool.cage().map(|cage| cage.sha256),
            scopes: tool.scopes().to_vec(),
            side_effects: tool.side_effects().to_vec(),
            tool_id: tool.id().clone(),
            trust: PermitTrust {
                min_state: server.trust_in(tool.id()),
                server_reset_epoch: server.live.reset_epoch(),
                tool_reset_epoch: server.live.tool_reset_epoch(tool.id()),
            },
            v: 1,
        };
        let bytes = body.to_bytes();
        let mac = self.key.mac(&bytes);
        let fate = self.live.enter(LivePermit {
            permit_id: body.permit_id,
            tool_id: body.tool_id.clone(),
            principal: body.lineage.principal.clone(),
            session: body.lineage.session,
            in_flight: false,
        });
        Permit { body, bytes, mac, deadline: self.clock.uptime() + self.ttl, claim, fate }
    }
}

impl Permit {
    /// Its id.
    pub fn id(&self) -> PermitId {
        self.body.permit_id
    }

    /// When it dies.
    pub fn expires_at(&self) -> Timestamp {
        self.body.exp
    }

    /// The approval it spends, if any.
    pub fn approval_id(&self) -> Option<ApprovalId> {
        self.body.approval_id
    }

    /// The envelope it is a use of, if any (GOV-1201).
    pub fn envelope_id(&self) -> Option<&str> {
        self.body.envelope_id.as_deref()
    }

    /// The approval it spends, for what the server asks while the call runs (GOV-408).
    pub fn covering(&self) -> Option<Covering> {
        let claim = self.claim.as_ref()?;
        let (approval_id, scope) = (claim.approval_id(), claim.scope());
        Some(Covering { approval_id, scope, approvers: claim.approvers() })
    }

    /// What is recorded of it: everything but the MAC.
    pub fn recorded(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn body(&self) -> &PermitBody {
        &self.body
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(crate) fn is_authentic(&self, key: &PermitKey, replica: LogId) -> bool {
        let expected = Secret::new(key.mac(&self.bytes));
        self.body.v == 1 && self.body.aud == replica && expected == Secret::new(self.mac)
    }

    /// Whether the approval it spends, if any, is still one.
    pub(crate) fn approval_stands(&self) -> bool {
        self.claim.as_ref().is_none_or(Claim::stands)
    }

    /// Whether it was taken back, or died with what it was issued under.
    pub fn is_revoked(&self) -> bool {
        self.fate.is_revoked()
    }

    pub(crate) fn fate(&self) -> &Arc<Fate> {
        &self.fate
    }

    pub(crate) fn into_claim(self) -> Option<Claim> {
        self.claim
    }

    /// For the tests of the eight checks, which must be able to damage one.
    #[cfg(test)]
    pub(crate) fn tamper(&mut self, change: impl FnOnce(&mut PermitBody, &mut [u8; 32])) {
        change(&mut self.body, &mut self.mac);
        self.bytes = self.body.to_bytes();
    }

    /// Re-authenticates a damaged permit, so that a later check is the one that finds the damage.
    #[cfg(test)]
    pub(crate) fn reseal(&mut self, mint: &Mint) {
        self.mac = mint.key.mac(&self.bytes);
    }
}
