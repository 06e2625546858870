//! Approvals that nobody asked for: an operator gives them while accepting a declaration, so that what only reads does not
//! ask (GOV-1404). Each is one explicit wide approval of one tool, as if it had been asked for; policy may forbid it.

use portcullis_core::canon::to_jcs;
use portcullis_core::{ApprovalId, Principal, ProposalId, SessionId, Sha256Digest, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Approval, Scope, State};
use crate::accepted::{AcceptedDeclaration, AcceptedTool};
use crate::declaration::SideEffect;
use crate::operator::OperatorProof;
use crate::policy::{Circumstances, Offer, Policy, ToolFacts};
use crate::record::RegistrationRecord;
use crate::registry::{ToolTrust, Trust};
use crate::request::{CANON, Fingerprint};

/// Which tools are approved ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ahead {
    /// Those that only read, or do not even that.
    Reads,
    /// All of them.
    All,
}

impl Ahead {
    fn covers(self, tool: &AcceptedTool) -> bool {
        self == Ahead::All || tool.side_effects().iter().all(|class| *class == SideEffect::Read)
    }

    fn as_str(self) -> &'static str {
        match self {
            Ahead::Reads => "reads",
            Ahead::All => "all",
        }
    }
}

/// What was given, with exactly what the operator was told of each, and what policy does not allow to be given.
#[derive(Debug, Default)]
pub struct GivenAhead {
    /// The approvals.
    pub given: Vec<(Approval, Vec<u8>)>,
    /// The tools that policy wants asked about, or wants more than one operator for.
    pub forbidden: Vec<String>,
}

impl GivenAhead {
    /// Approves tools of a declaration for one agent, as far as policy lets one operator do that.
    pub fn new(
        which: Ahead,
        (accepted, record): (&AcceptedDeclaration, &RegistrationRecord),
        agent: &Principal,
        policy: &Policy,
        (operator, reason): (&OperatorProof, &str),
        now: Timestamp,
    ) -> Self {
        let mut ahead = Self::default();
        let items = accepted.tools().iter().chain(accepted.resources()).chain(accepted.prompts());
        for tool in items.filter(|tool| which.covers(tool)) {
            let facts = ToolFacts::new(tool, record, Trust::Untrusted, ToolTrust::default());
            let circumstances =
                Circumstances { authenticated: false, client: "", groups: &[], session_calls: 0, now };
            if policy.quorum_of(agent, &facts, circumstances, Scope::UntilVersionChange) != Some(1) {
                ahead.forbidden.push(tool.id().item().to_string());
                continue;
            }
            let view = json!({
                "agent": agent, "classes": tool.side_effects(), "coverage": Scope::UntilVersionChange.coverage(),
                "credentials": tool.credentials(), "given_ahead": which.as_str(), "idempotency": tool.idempotency(),
                "scopes": tool.scopes(), "tool_id": tool.id(),
            });
            let Ok(view) = to_jcs(&view) else { continue };
            let (life, uses) = Scope::UntilVersionChange.life();
            let approval = Approval {
                approval_id: ApprovalId::random(),
                proposal_id: ProposalId::new(now),
                // It is about no request and no session in particular.
                fingerprint: Fingerprint::NONE,
                session: SessionId::from_bytes([0; 16]),
                tool_id: tool.id().clone(),
                registration_epoch: tool.epoch(),
                principal: agent.clone(),
                policy_version: policy.version(),
                canon_version: CANON.into(),
                offers: vec![Offer { scope: Scope::UntilVersionChange, quorum: 1 }],
                scope: Some(Scope::UntilVersionChange),
                decisions: vec![operator.decision(reason, now)],
                requested_at: now,
                expires_at: now.after(life),
                uses_left: uses,
                presented_sha256: Sha256Digest::of(&view),
                state: State::Approved,
            };
            ahead.given.push((approval, view));
        }
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{self, START, operator};
    use crate::policy::{Bundle, Preset};
    use crate::record::Mode;

    fn given(which: Ahead, preset: Preset) -> (Vec<String>, Vec<String>) {
        let accepted = fixture::accepted(fixture::epoch(1), 1);
        let policy = Policy::compile(&Bundle::preset(preset), Mode::Local, 1).unwrap();
        let agent = Principal::agent("claude-code").unwrap();
        let record = fixture::record(&accepted);
        let by = operator("ana");
        let ahead = GivenAhead::new(which, (&accepted, &record), &agent, &policy, (&by, "known"), START);
        let name = |(approval, _): &(Approval, Vec<u8>)| approval.tool_id.item().to_string();
        (ahead.given.iter().map(name).collect(), ahead.forbidden)
    }

    #[test]
    fn reads_are_those_that_only_read_and_policy_may_forbid_it() {
        // GOV-1404, GOV-805
        let (read, both) =
            (vec!["read_file".to_owned()], vec!["read_file".to_owned(), "write_file".to_owned()]);
        assert_eq!(given(Ahead::Reads, Preset::Observe), (read.clone(), vec![]));
        assert_eq!(given(Ahead::All, Preset::Observe), (both.clone(), vec![]));
        assert_eq!(given(Ahead::All, Preset::Balanced), (read.clone(), vec!["write_file".to_owned()]));
        assert_eq!(
            given(Ahead::Reads, Preset::Strict),
            (vec![], read),
            "strict wants every call asked about"
        );
    }
}
