//! Which of a server's connections carries a call.

use portcullis_core::{Principal, SessionId, Sha256Digest};
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::declaration::Sharing;
use portcullis_governance::record::ProcessModel;
use portcullis_governance::session::Session;

/// What a call has in common with those that may go over the same connection. Whatever keeps calls apart is a member;
/// where it does not, the member says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct ConnectionKey {
    /// The cage of the process; nothing where one serves all tools.
    cage: Option<Sha256Digest>,
    /// Whom the process works for; nothing where it works for everybody.
    principal: Option<Principal>,
    /// Whose conversation it is part of; nothing where the server does not remember those.
    session: Option<SessionId>,
}

impl ConnectionKey {
    /// The connection for all calls of everybody, and for looking at the server.
    pub(crate) fn common() -> Self {
        Self::default()
    }

    /// The connection of calls of this tool in this session (SBX-12, PRO-39).
    pub(crate) fn of(tool: &AcceptedTool, session: &Session, sharing: Sharing) -> Self {
        let cage = tool.cage().filter(|cage| cage.model != ProcessModel::Shared);
        let apart = (sharing == Sharing::PerClient).then(|| session.id());
        Self {
            cage: cage.map(|cage| cage.sha256),
            principal: (cage.is_some() || apart.is_some()).then(|| session.principal().clone()),
            session: apart,
        }
    }

    /// Whether it is for one session of a client alone.
    pub(crate) fn is_of_session(&self) -> bool {
        self.session.is_some()
    }

    /// Whether its process has a cage of its own.
    pub(crate) fn has_cage(&self) -> bool {
        self.cage.is_some()
    }

    /// Whether it is the one for everybody.
    pub(crate) fn is_common(&self) -> bool {
        *self == Self::common()
    }
}
