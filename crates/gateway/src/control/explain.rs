//! What would happen to a call, and which rules would decide: steps 1 to 3 without a proposal (GOV §15).

use portcullis_core::{ErrorCode, Lineage, Principal, Secret, SessionId};
use portcullis_gauntlet::{Args, Grants, screen};
use portcullis_governance::policy::{Circumstances, Offer, Policy, Verdict};
use portcullis_governance::registry::{Registry, ToolEntry};
use portcullis_governance::request::CanonicalRequest;
use serde::Serialize;

use super::{Control, ControlError};

/// What policy says about a call that nobody made.
#[derive(Debug, Serialize)]
pub struct Explanation {
    /// `deny`, `approval` or `unattended`.
    pub decision: &'static str,
    /// The policies that decided, by id.
    pub reasons: Vec<String>,
    /// The approvals an operator could give.
    pub scopes: Vec<&'static str>,
    /// How many operators the narrowest of them takes.
    pub quorum: Option<u32>,
    /// All of them, each with its number of operators.
    pub offers: Vec<Offer>,
    /// What would be called.
    pub tool_id: String,
    /// By which version of the policy.
    pub policy_version: String,
}

impl Control {
    /// Explains a call of `tool`, by any of its names, with `args` and by `agent`.
    pub fn explain(&self, agent: Option<&str>, tool: &str, args: &str) -> Result<Explanation, ControlError> {
        self.explain_under(self.world().registry().policy(), agent, tool, args)
    }

    /// The same under another policy than the one in force.
    pub fn explain_under(
        &self,
        policy: &Policy,
        agent: Option<&str>,
        tool: &str,
        args: &str,
    ) -> Result<Explanation, ControlError> {
        let world = self.world();
        let entry = find(world.registry(), tool).ok_or_else(|| {
            let shown = portcullis_core::name::printable(tool);
            let message = format!("there is no tool {shown}; `portcullis call` lists those there are");
            ControlError::new(ErrorCode::NotFound, message)
        })?;
        let principal = match agent {
            Some(name) => {
                Principal::agent(name).map_err(|error| ControlError::field("agent", error.to_string()))?
            }
            None => self.options.principal.clone(),
        };
        let lineage = Lineage { parent: None, principal, session: SessionId::new(self.clock.now()), step: 1 };
        let unfit = |error: String| ControlError::field("args", error);
        let screened = Args::parse(args.as_bytes(), entry.tool.spec().max_request_bytes)
            .and_then(|args| screen(entry.tool.spec(), &Grants::Declared, args))
            .map_err(|error| unfit(error.to_string()))?;
        // The key only makes fingerprints, which nothing here compares.
        let request = CanonicalRequest::new(&entry.tool, &screened, lineage, &Secret::new([0; 32]))
            .map_err(|error| unfit(error.to_string()))?;
        let circumstances = Circumstances {
            authenticated: agent.is_some(),
            client: "portcullis policy explain",
            session_calls: 1,
            now: self.clock.now(),
        };
        let decision = policy.decide(&request, &entry.facts, &circumstances);
        let offers = match decision.verdict() {
            Verdict::NeedsApproval => policy.offers(&decision),
            Verdict::Denied | Verdict::Unattended => Vec::new(),
        };
        Ok(Explanation {
            decision: decision.verdict().as_str(),
            reasons: decision.reasons().to_vec(),
            scopes: offers.iter().map(|offer| offer.scope.as_str()).collect(),
            quorum: offers.first().map(|offer| offer.quorum),
            offers,
            tool_id: entry.tool.id().to_string(),
            policy_version: policy.version().to_string(),
        })
    }
}

/// By the name agents use, by `<server>/<tool>`, or by the whole id.
fn find<'r>(registry: &'r Registry, name: &str) -> Option<&'r ToolEntry> {
    let named = |entry: &&ToolEntry| {
        entry.wire_name == name || entry.tool.id().short() == name || entry.tool.id().as_str() == name
    };
    registry.tools().iter().map(|entry| &**entry).find(named)
}
