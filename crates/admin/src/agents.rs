//! Admin tools at the agents' door (ADM-3): those that look, if a role of the agent shows them, for its own objects.

use portcullis_core::Principal;
use portcullis_gateway::edge::{OwnCall, OwnTools};
use serde_json::value::RawValue;

use crate::actor::{Actor, Channel};
use crate::invoker::Invoker;
use crate::mcp;

/// What [`portcullis_gateway::edge::Edge::offer`] takes.
#[derive(Debug)]
pub struct AgentTools(Invoker);

impl AgentTools {
    /// The tools of an invoker.
    pub fn new(invoker: Invoker) -> Self {
        Self(invoker)
    }
}

impl OwnTools for AgentTools {
    fn shown(&self, principal: &Principal) -> Vec<String> {
        let tools = self.0.visible(Some(&Actor::client(principal)), Channel::Agent);
        tools.into_iter().map(|tool| tool.wire().to_string()).collect()
    }

    fn call<'c>(&'c self, principal: &'c Principal, name: &'c str, arguments: &'c RawValue) -> OwnCall<'c> {
        Box::pin(async move {
            let actor = Actor::client(principal);
            let envelope = self.0.call(name, arguments, Some(&actor), Channel::Agent).await;
            // What is hidden is as unknown as what never was, in the edge's own words for that.
            (!envelope.is_unknown_tool()).then(|| mcp::shown(&envelope.to_json(), envelope.is_error()))
        })
    }
}
