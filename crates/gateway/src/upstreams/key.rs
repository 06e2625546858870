//! Which of a server's connections carries a call.

use std::sync::Arc;

use portcullis_core::{Principal, SessionId, Sha256Digest};
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::declaration::Sharing;
use portcullis_governance::record::ProcessModel;
use portcullis_governance::registry::ServerEntry;
use portcullis_governance::session::Session;
use portcullis_upstream::Era;
use serde_json::Value;

/// Who calls: in which session, and what of it can be asked meanwhile (PRO-63).
#[derive(Debug, Clone, Copy)]
pub struct Caller<'c> {
    /// The session.
    pub session: &'c Arc<Session>,
    /// What its client and the declaration have in common.
    pub capabilities: &'c Value,
}

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
    /// What a legacy server was told that it can ask, where that is less than its declaration lists. A modern one is told
    /// with each request.
    told: Option<String>,
}

impl ConnectionKey {
    /// The connection for all calls of everybody, and for looking at the server.
    pub(crate) fn common() -> Self {
        Self::default()
    }

    /// The connection of calls of this tool by this caller (SBX-12, PRO-39, PRO-63). `era` is the server's.
    pub(crate) fn of(
        tool: &AcceptedTool,
        Caller { session, capabilities }: Caller<'_>,
        server: &ServerEntry,
        era: Era,
    ) -> Self {
        let sharing = server.declaration.session();
        let told = legacy(capabilities);
        let all = told == legacy(server.declaration.client_capabilities());
        let cage = tool.cage().filter(|cage| cage.model != ProcessModel::Shared);
        let apart = (sharing == Sharing::PerClient).then(|| session.id());
        Self {
            cage: cage.map(|cage| cage.sha256),
            principal: (cage.is_some() || apart.is_some()).then(|| session.principal().clone()),
            session: apart,
            told: (era == Era::Legacy && !all).then(|| told.to_string()),
        }
    }

    /// Whether its server knows of less that it can ask than its declaration lists.
    pub(crate) fn is_told_less(&self) -> bool {
        self.told.is_some()
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

/// Capabilities as they are said once for a session: extensions are of the modern era.
fn legacy(capabilities: &Value) -> Value {
    let mut capabilities = capabilities.clone();
    if let Some(members) = capabilities.as_object_mut() {
        members.shift_remove("extensions");
    }
    capabilities
}
