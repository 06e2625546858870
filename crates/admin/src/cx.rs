//! What a handler works with: the services it may ask, and who asks.

use std::path::PathBuf;
use std::sync::Arc;

use portcullis_gateway::Control;
use portcullis_governance::operator::OperatorProof;

use crate::actor::{Actor, Channel};
use crate::args::NonBlank;
use crate::error::AdminError;
use crate::grant::Op;
use crate::registry::Registry;
use crate::roles::Roles;
use crate::services::{
    ApprovalService, AuditService, CallService, ClientService, CredentialService, GrantService,
    HistoryService, HouseService, ImportService, NoticeService, PeopleService, PolicyService, ServerService,
    SessionService, SettingService, TrustService,
};

/// What a handler is given besides its arguments.
#[derive(Debug, Clone)]
pub struct Cx {
    pub(crate) control: Arc<Control>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) roles: Arc<Roles>,
    pub(crate) invoker: crate::Invoker,
    pub(crate) actor: Option<Actor>,
    pub(crate) channel: Channel,
}

impl Cx {
    /// A file or folder that the caller names, which only the gateway's own user does: to others its machine is not theirs.
    pub(crate) fn named_path(
        &self,
        field: &str,
        path: Option<NonBlank>,
    ) -> Result<Option<PathBuf>, AdminError> {
        let Some(path) = path else { return Ok(None) };
        match self.actor.as_ref().is_some_and(Actor::is_here) {
            true => Ok(Some(PathBuf::from(String::from(path)))),
            false => Err(AdminError::argument(field, "only commands of the gateway's own user name one")),
        }
    }

    /// Whether an object of this client is shown to who asks: to operators all are, to an agent its own (ADM-3).
    pub(crate) fn may_see(&self, client: &str) -> bool {
        match self.channel {
            Channel::Operator => true,
            Channel::Agent => self.actor.as_ref().is_some_and(|actor| actor.id() == client),
        }
    }

    /// Whether an agent reads the answer: what operators tell each other is not for it.
    pub(crate) fn is_for_an_agent(&self) -> bool {
        self.channel == Channel::Agent
    }

    /// Who asks, in the words of the log.
    pub(crate) fn asking(&self) -> portcullis_core::Actor {
        let proof = self.actor.as_ref().and_then(Actor::proof);
        proof.map_or_else(portcullis_core::Actor::system, OperatorProof::actor)
    }

    /// Servers and what is declared of them.
    pub fn servers(&self) -> ServerService {
        ServerService::new(self.control.clone())
    }

    /// Approvals.
    pub fn approvals(&self) -> ApprovalService {
        ApprovalService::new(self.invoker.clone())
    }

    /// Agents, what they are shown and what they may use.
    pub fn clients(&self) -> ClientService {
        ClientService::new(self.control.clone())
    }

    /// Operators and their roles.
    pub fn people(&self) -> PeopleService {
        PeopleService::new(self.control.clone())
    }

    /// What somebody should look at, and who is told.
    pub fn notices(&self) -> NoticeService {
        NoticeService::new(self.control.clone())
    }

    /// Settings and backups.
    pub fn settings(&self) -> SettingService {
        SettingService::new(self.control.clone())
    }

    /// Servers in clients' configurations.
    pub fn imports(&self) -> ImportService {
        ImportService::new(self.control.clone())
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
