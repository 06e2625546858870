//! Whether the gates of the configuration fit what is registered (SURF-98).

use std::collections::BTreeMap;

use portcullis_core::ServerIdentity;
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::declaration::SideEffect;
use portcullis_governance::registry::ServerEntry;

use serde_json::Value;

use super::{Control, ControlError};
use crate::access::agent_keys::principal_of;
use crate::edge::Edge;
use crate::edge::usable::Tried;
use crate::gates::Gates;

/// A gate before a tool that is not there, or with a source that does more than read, would do nothing, unseen.
pub(super) fn check(
    gates: &Gates,
    entries: &BTreeMap<ServerIdentity, ServerEntry>,
) -> Result<(), ControlError> {
    let tool = |short: &str| -> Option<&AcceptedTool> {
        let tools = entries.values().flat_map(|entry| entry.declaration.tools());
        tools.map(|tool| &**tool).find(|tool| tool.id().short() == short)
    };
    for gate in gates.iter() {
        let bad = |key: &str, message: String| {
            Err(ControlError::field(
                &format!("gate.{}.{key}", gate.id()),
                format!("gate {}: {key}: {message}", gate.id()),
            ))
        };
        let (allowing, denying) = gate.cases();
        if allowing == 0 || denying == 0 {
            tracing::warn!(
                gate = gate.id(),
                "a gate without a case that allows and one that denies is not known to work"
            );
        }
        for gated in gate.tools() {
            let Some(gated_tool) = tool(gated) else {
                return bad("tools", format!("there is no tool {gated}; register its server first"));
            };
            let schema: Value = serde_json::from_str(gated_tool.definition().get()).unwrap_or_default();
            let properties = &schema["inputSchema"]["properties"];
            let first = |pointer: &String| {
                pointer.split('/').nth(1).unwrap_or_default().replace("~1", "/").replace("~0", "~")
            };
            if let Some(pointer) = gate.args().iter().find(|pointer| properties.get(first(pointer)).is_none())
            {
                return bad("args", format!("{gated} has no argument {pointer}"));
            }
            let Some(source) = gate.source_tool(gated.split('/').next().unwrap_or_default()) else {
                continue;
            };
            match tool(&source) {
                None => return bad("source", format!("there is no tool {source}")),
                Some(tool) if tool.side_effects().iter().any(|effect| *effect != SideEffect::Read) => {
                    return bad("source", format!("{source} is declared to do more than read"));
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

impl Control {
    /// Asks the sources of gates once as every agent there is, without a subject; of one gate, or of all (SURF-97).
    pub async fn try_gates(&self, edge: &Edge, id: Option<&str>) -> Vec<Tried> {
        let mut principals = vec![self.options.principal.clone()];
        principals.extend(self.keys.list().into_iter().filter_map(|key| principal_of(&key.agent).ok()));
        let mut tried = Vec::new();
        for gate in self.options.gates.iter().filter(|gate| id.is_none_or(|id| gate.id() == id)) {
            for principal in &principals {
                tried.extend(edge.try_gate(gate, principal).await);
            }
        }
        tried
    }
}
