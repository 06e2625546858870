//! Where in which conversation a request stands.

use serde::{Deserialize, Serialize};

use crate::id::{ProposalId, SessionId};
use crate::principal::Principal;

/// The lineage a permit binds (GOV-1001): who, in which session, as which step, because of which proposal.
///
/// Fields are declared in canonical (sorted) order, so that plain serialisation is canonical.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lineage {
    /// The proposal this one continues (a retry, a further round), if any.
    pub parent: Option<ProposalId>,
    /// The agent that asks.
    pub principal: Principal,
    /// Its session.
    pub session: SessionId,
    /// The number of this invocation within the session, from 1.
    pub step: u64,
}
