//! What would happen to a call, and which rules would decide: steps 1 to 3 without a proposal (GOV §15).

use portcullis_core::{ErrorCode, Lineage, Principal, Secret, SessionId};
use portcullis_gauntlet::{Args, GauntletError, Grants, screen};
use portcullis_governance::policy::{Circumstances, Offer, Policy, Verdict};
use portcullis_governance::registry::{Registry, ToolEntry};
use portcullis_governance::request::{CanonicalRequest, RequestError};
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

/// What would become of a call on its way to policy and there.
#[derive(Debug, Serialize)]
pub struct DryRun {
    /// What would be called.
    pub tool_id: String,
    /// What the agent lacks, if it may not call this at all.
    pub denied_capability: Option<String>,
    /// What is wrong with the arguments, each with its place.
    pub errors: Vec<ArgumentError>,
    /// What policy says, if the call gets that far.
    pub policy: Option<Explanation>,
}

/// An argument that does not fit.
#[derive(Debug, Clone, Serialize)]
pub struct ArgumentError {
    /// RFC 6901 pointer; empty for the arguments as a whole.
    pub pointer: String,
    /// What is expected.
    pub problem: String,
}

/// Why a call does not reach policy.
enum Unfit {
    Gauntlet(GauntletError),
    Request(RequestError),
}

impl Unfit {
    fn errors(self) -> Vec<ArgumentError> {
        let one =
            |pointer: &str, problem: String| vec![ArgumentError { pointer: pointer.to_owned(), problem }];
        match self {
            Unfit::Gauntlet(GauntletError::Input { violations, .. }) => (violations.errors.into_iter())
                .map(|error| ArgumentError { pointer: error.pointer, problem: error.message })
                .collect(),
            Unfit::Request(RequestError::OutOfScope(outside)) => {
                one(&outside.pointer, outside.problem.to_string())
            }
            Unfit::Gauntlet(error) => one("", error.to_string()),
            Unfit::Request(error) => one("", error.to_string()),
        }
    }
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::Gauntlet(error) => error.fmt(f),
            Unfit::Request(error) => error.fmt(f),
        }
    }
}

impl Control {
    /// Takes a call through the gauntlet and policy, and nowhere else: nothing is recorded, nothing is sent.
    pub fn dry_run(&self, agent: Option<&str>, tool: &str, args: &str) -> Result<DryRun, ControlError> {
        let world = self.world();
        let entry = known(world.registry(), tool)?;
        let mut run = DryRun {
            tool_id: entry.tool.id().to_string(),
            denied_capability: None,
            errors: Vec::new(),
            policy: None,
        };
        match self.requested(entry, agent, args)? {
            Ok(request) => {
                run.policy = Some(self.decided(world.registry().policy(), entry, &request, agent));
            }
            Err(Unfit::Gauntlet(GauntletError::CapabilityDenied { capability, .. })) => {
                run.denied_capability = Some(capability);
            }
            Err(unfit) => run.errors = unfit.errors(),
        }
        Ok(run)
    }

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
        let entry = known(world.registry(), tool)?;
        let request = self.requested(entry, agent, args)?;
        let request = request.map_err(|unfit| ControlError::field("args", unfit.to_string()))?;
        Ok(self.decided(policy, entry, &request, agent))
    }

    /// The request that such a call would be, or why it would be none.
    fn requested(
        &self,
        entry: &ToolEntry,
        agent: Option<&str>,
        args: &str,
    ) -> Result<Result<CanonicalRequest, Unfit>, ControlError> {
        let principal = match agent {
            Some(name) => {
                Principal::agent(name).map_err(|error| ControlError::field("agent", error.to_string()))?
            }
            None => self.options.principal.clone(),
        };
        let lineage = Lineage { parent: None, principal, session: SessionId::new(self.clock.now()), step: 1 };
        let screened = Args::parse(args.as_bytes(), entry.tool.spec().max_request_bytes)
            .and_then(|args| screen(entry.tool.spec(), &Grants::Declared, args));
        Ok(screened.map_err(Unfit::Gauntlet).and_then(|screened| {
            // The key only makes fingerprints, which nothing here compares.
            CanonicalRequest::new(&entry.tool, &screened, lineage, &Secret::new([0; 32]))
                .map_err(Unfit::Request)
        }))
    }

    fn decided(
        &self,
        policy: &Policy,
        entry: &ToolEntry,
        request: &CanonicalRequest,
        agent: Option<&str>,
    ) -> Explanation {
        let circumstances = Circumstances {
            authenticated: agent.is_some(),
            client: "portcullis policy explain",
            groups: &self.groups_of(&request.lineage().principal),
            session_calls: 1,
            now: self.clock.now(),
        };
        let decision = policy.decide(request, &entry.facts, &circumstances);
        let offers = match decision.verdict() {
            Verdict::NeedsApproval => policy.offers(&decision),
            Verdict::Denied | Verdict::Unattended => Vec::new(),
        };
        Explanation {
            decision: decision.verdict().as_str(),
            reasons: decision.reasons().to_vec(),
            scopes: offers.iter().map(|offer| offer.scope.as_str()).collect(),
            quorum: offers.first().map(|offer| offer.quorum),
            offers,
            tool_id: entry.tool.id().to_string(),
            policy_version: policy.version().to_string(),
        }
    }
}

fn known<'r>(registry: &'r Registry, tool: &str) -> Result<&'r ToolEntry, ControlError> {
    find(registry, tool).ok_or_else(|| {
        let shown = portcullis_core::name::printable(tool);
        let message = format!("there is no tool {shown}; `portcullis call` lists those there are");
        ControlError::new(ErrorCode::NotFound, message)
    })
}

/// By the name agents use, by `<server>/<tool>`, or by the whole id.
fn find<'r>(registry: &'r Registry, name: &str) -> Option<&'r ToolEntry> {
    let named = |entry: &&ToolEntry| {
        entry.wire_name == name || entry.tool.id().short() == name || entry.tool.id().as_str() == name
    };
    registry.tools().iter().map(|entry| &**entry).find(named)
}
