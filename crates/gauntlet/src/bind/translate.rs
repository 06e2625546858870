//! From a listed tool to one that can be called (the table of gauntlet §1).

use std::collections::BTreeMap;
use std::sync::Arc;

use portcullis_core::canon;
use portcullis_core::{
    DeclarationVersion, Item, ServerIdentity, ServerVersion, Sha256Digest, ToolId, ToolName,
};
use serde_json::Value;

use super::{BoundTool, Rejected};
use crate::sanitise::clean::Raw;
use crate::{Capabilities, Clean, CompiledSchema, Gauntlet, Requirement, ResultKind, SchemaRole, ToolSpec};

/// The longest title or description, in bytes.
const MAX_LABEL_BYTES: usize = 16 << 10;
/// Names that are ours.
const RESERVED: &str = "portcullis_";

pub(super) struct Translation<'b> {
    pub(super) gauntlet: &'b Gauntlet,
    pub(super) server: &'b ServerIdentity,
    pub(super) version: &'b ServerVersion,
    pub(super) any_root: bool,
    pub(super) permissions: &'b BTreeMap<String, Vec<Requirement>>,
    pub(super) ceiling: Arc<Capabilities>,
    pub(super) max_request_bytes: usize,
    pub(super) max_response_bytes: usize,
}

/// What is wrong with a tool: the stable word, and ours.
type Problem = (&'static str, String);

impl Translation<'_> {
    /// The good ones by name, and the others.
    pub(super) fn tools(&self, listed: Vec<Value>) -> (BTreeMap<String, BoundTool>, Vec<Rejected>) {
        let name_of = |tool: &Value| tool.get("name").and_then(Value::as_str).map(str::to_owned);
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for name in listed.iter().filter_map(name_of) {
            *times.entry(name).or_default() += 1;
        }
        let (mut tools, mut rejected) = (BTreeMap::new(), Vec::new());
        for (index, tool) in listed.into_iter().enumerate() {
            let name = name_of(&tool);
            let repeated = name.as_ref().is_some_and(|name| times[name] > 1);
            match self.tool(tool, repeated) {
                Ok((name, tool)) => drop(tools.insert(name, tool)),
                Err((violation, message)) => {
                    let name = name.filter(|name| self.is_showable(name));
                    rejected.push(Rejected { index, name, violation, message });
                }
            }
        }
        (tools, rejected)
    }

    fn tool(&self, tool: Value, repeated: bool) -> Result<(String, BoundTool), Problem> {
        let Value::Object(mut listed) = tool else {
            return Err(problem("mcp-tool-bad-shape", "it is not an object"));
        };
        let text = canon::to_jcs(&Value::Object(listed.clone()))
            .map_err(|_| problem("mcp-tool-bad-shape", "it has no canonical form"))?;
        let Some(Value::String(name)) = listed.remove("name") else {
            return Err(problem("mcp-tool-missing-name", "it has no name"));
        };
        let item: ToolName = name
            .parse()
            .map_err(|_| problem("mcp-tool-bad-name", "its name is not one to 128 of A-Z a-z 0-9 _ . / -"))?;
        // The grammar lets a marker through.
        if !self.is_showable(&name) {
            return Err(problem("mcp-tool-bad-name", "its name cannot be shown"));
        }
        if name.starts_with(RESERVED) {
            return Err(problem("mcp-tool-bad-name", "its name begins with portcullis_, which is reserved"));
        }
        if repeated {
            return Err(problem("mcp-tool-duplicate-name", "another tool has the same name"));
        }
        let title = self.label(listed.remove("title"))?;
        let description = self.label(listed.remove("description"))?;
        let input = compiled(&listed.remove("inputSchema").unwrap_or_default(), SchemaRole::Input)?;
        let output = match listed.remove("outputSchema") {
            None => None,
            Some(schema) => Some(compiled(&schema, SchemaRole::Output)?),
        };
        let declaration = DeclarationVersion { counter: 1, sha256: Sha256Digest::of(&text) };
        let spec = Arc::new(ToolSpec {
            tool: ToolId::new(self.server.clone(), Item::Tool(item), self.version.clone(), declaration),
            permissions: self.permissions.get(&name).cloned().unwrap_or_default(),
            ceiling: Arc::clone(&self.ceiling),
            scopes_bound: false,
            input,
            output,
            result: ResultKind::Tool,
            any_root: self.any_root,
            max_request_bytes: self.max_request_bytes,
            max_response_bytes: self.max_response_bytes,
        });
        let tool = BoundTool {
            spec,
            title,
            description,
            side_effects: "external",
            replay_policy: "must-stub",
            namespace: "mcp",
            version: "1",
            hints: listed.remove("annotations"),
            extra: listed,
        };
        Ok((name, tool))
    }

    fn is_showable(&self, name: &str) -> bool {
        name.parse::<ToolName>().is_ok() && self.gauntlet.sanitiser.is_clean(name)
    }

    fn label(&self, label: Option<Value>) -> Result<Option<Clean<String>>, Problem> {
        let text = match label {
            None => return Ok(None),
            Some(Value::String(text)) => text,
            Some(_) => return Err(problem("mcp-tool-bad-shape", "its title or description is not a text")),
        };
        if text.len() > MAX_LABEL_BYTES {
            return Err(problem("mcp-tool-too-large", "its title or description has more than 16 KiB"));
        }
        let clean = self.gauntlet.clean_label(Raw::new(&text));
        let clean = clean.map_err(|error| (error.violation(), error.to_string()))?;
        Ok(Some(Clean::new(clean.into_inner().into_owned())))
    }
}

fn compiled(schema: &Value, role: SchemaRole) -> Result<CompiledSchema, Problem> {
    CompiledSchema::compile(schema, role).map_err(|error| (error.violation(), error.to_string()))
}

fn problem(violation: &'static str, message: &str) -> Problem {
    (violation, message.to_owned())
}
