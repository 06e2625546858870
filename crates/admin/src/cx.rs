//! What a handler works with: the services it may ask, and who asks.

use std::sync::Arc;

use portcullis_gateway::Control;

use crate::actor::{Actor, Channel};
use crate::grant::Op;
use crate::registry::Registry;
use crate::roles::Roles;
use crate::services::{
    ApprovalService, AuditService, CallService, CredentialService, GrantService, HistoryService,
    HouseService, PolicyService, ServerService, SessionService, TrustService,
};

/// What a handler is given besides its arguments.
#[derive(Debug, Clone)]
pub struct Cx {
    pub(crate) control: Arc<Control>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) actor: Option<Actor>,
    pub(crate) channel: Channel,
}

impl Cx {
    /// Servers and what is declared of them.
    pub fn servers(&self) -> ServerService {
        ServerService::new(self.control.clone())
    }

    /// Approvals.
    pub fn approvals(&self) -> ApprovalService {
        ApprovalService::new(self.control.clone())
    }

    /// The house itself.
    pub fn house(&self) -> HouseService {
        HouseService::new(self.control.clone())
    }

    /// What happened.
    pub fn history(&self) -> HistoryService {
        HistoryService::new(self.control.clone())
    }

    /// Approvals that were given.
    pub fn grants(&self) -> GrantService {
        GrantService::new(self.control.clone())
    }

    /// Policies.
    pub fn policies(&self) -> PolicyService {
        PolicyService::new(self.control.clone())
    }

    /// Trust.
    pub fn trust(&self) -> TrustService {
        TrustService::new(self.control.clone())
    }

    /// What is lent to servers.
    pub fn credentials(&self) -> CredentialService {
        CredentialService::new(self.control.clone())
    }

    /// Past calls.
    pub fn calls(&self) -> CallService {
        CallService::new(self.control.clone())
    }

    /// Live sessions, and what stops them.
    pub fn sessions(&self) -> SessionService {
        SessionService::new(self.control.clone())
    }

    /// The evidence.
    pub fn audit(&self) -> AuditService {
        AuditService::new(self.control.clone())
    }
}

/// The actor of a write, with the operation it may do.
#[derive(Debug)]
pub struct ActorRef {
    actor: Actor,
    op: Op,
}

impl ActorRef {
    pub(crate) fn new(actor: Actor, op: Op) -> Self {
        Self { actor, op }
    }

    /// Who.
    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// What mutating methods of services take.
    pub fn op(&self) -> &Op {
        &self.op
    }
}
