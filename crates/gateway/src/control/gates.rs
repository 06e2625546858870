//! Whether the gates of the configuration fit what is registered (SURF-98).

use std::collections::BTreeMap;

use portcullis_core::ServerIdentity;
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::declaration::SideEffect;
use portcullis_governance::registry::ServerEntry;

use super::ControlError;
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
        for gated in gate.tools() {
            if tool(gated).is_none() {
                return bad("tools", format!("there is no tool {gated}; register its server first"));
            }
            let source = gate.source(gated.split('/').next().unwrap_or_default());
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
