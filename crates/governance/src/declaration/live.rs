//! The declaration held against what the server really lists (GOV-403.8, GOV-501).

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use portcullis_core::name::printable;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Declaration;

/// What a probe found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LiveSurface {
    /// The protocol revision agreed on.
    pub protocol_version: String,
    /// The name the server gives itself; informational.
    pub server_name: Option<String>,
    /// The version the server gives itself (GOV-1302).
    pub server_version: Option<String>,
    /// Its tools, in its own order, all pages.
    pub tools: Vec<LiveTool>,
    /// Its resources, by URI.
    #[serde(default)]
    pub resources: Vec<LiveTool>,
    /// Its resource templates, by template.
    #[serde(default)]
    pub templates: Vec<LiveTool>,
    /// Its prompts, by name.
    #[serde(default)]
    pub prompts: Vec<LiveTool>,
    /// Whether it completes arguments.
    #[serde(default)]
    pub completions: bool,
    /// What it would like models to be told; informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
}

/// One tool, resource, template or prompt as the server lists it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LiveTool {
    /// The name, or the URI; hostile until compared with a declared one.
    pub name: String,
    /// The whole definition, byte for byte.
    pub definition: Box<RawValue>,
}

/// A definition could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("item {index} of a list of the server's is malformed: {problem}")]
pub struct MalformedTool {
    index: usize,
    problem: &'static str,
}

/// The parts of a definition that acceptance compares.
#[derive(Debug, Deserialize)]
struct Compared {
    #[serde(default)]
    description: Option<String>,
    #[serde(default, rename = "inputSchema")]
    input_schema: Value,
    #[serde(default, rename = "outputSchema")]
    output_schema: Option<Value>,
}

/// Where declaration and server differ. Empty = equal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Listed by the server, not declared (MP-FH-005).
    pub added: Vec<String>,
    /// Declared, not listed (MP-FH-003).
    pub removed: Vec<String>,
    /// Both, but different (MP-FH-003).
    pub changed: Vec<Changed>,
}

/// One field of one tool that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changed {
    /// The tool.
    pub tool: String,
    /// `description`, `inputSchema`, `outputSchema` or `definition`.
    pub field: &'static str,
}

impl LiveSurface {
    /// Digest of what the server says of itself, if it says anything (SURF-14).
    pub fn instructions_sha256(&self) -> Option<Sha256Digest> {
        self.instructions.as_deref().map(|text| Sha256Digest::of(text.as_bytes()))
    }
}

impl LiveTool {
    /// Reads one entry of a `tools/list`.
    pub fn read(index: usize, definition: &RawValue) -> Result<Self, MalformedTool> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let named: Named = serde_json::from_str(definition.get())
            .map_err(|_| MalformedTool { index, problem: "not an object with one string `name`" })?;
        Ok(Self { name: named.name, definition: definition.to_owned() })
    }

    /// Reads one entry of a list whose items are known by another member: `uri`, `uriTemplate`.
    pub fn keyed(index: usize, key: &'static str, definition: &RawValue) -> Result<Self, MalformedTool> {
        let members: std::collections::HashMap<String, Value> = serde_json::from_str(definition.get())
            .map_err(|_| MalformedTool { index, problem: "not an object" })?;
        match members.get(key) {
            Some(Value::String(name)) => Ok(Self { name: name.clone(), definition: definition.to_owned() }),
            _ => Err(MalformedTool { index, problem: "its uri or template is not a string" }),
        }
    }

    /// Digest of the definition, whatever the spacing and key order.
    pub fn digest(&self) -> Sha256Digest {
        let value: Value = serde_json::from_str(self.definition.get()).unwrap_or(Value::Null);
        Sha256Digest::of(&to_jcs(&value).unwrap_or_default())
    }
}

impl Difference {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    /// The declared items that changed or are gone; what is new is nobody's doing but the server's.
    pub fn blamed(&self) -> Vec<String> {
        if !self.added.is_empty() {
            return Vec::new();
        }
        let changed = self.changed.iter().map(|change| change.tool.clone());
        let mut blamed: Vec<String> = self.removed.iter().cloned().chain(changed).collect();
        blamed.sort();
        blamed.dedup();
        blamed
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        // Quotes only where a name needs them: this is read by people, also where markup is escaped.
        let shown = |name: &str| {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./- ".contains(&byte));
            if plain { name.to_owned() } else { printable(name) }
        };
        let list = |names: &[String]| names.iter().map(|name| shown(name)).collect::<Vec<_>>().join(", ");
        if !self.added.is_empty() {
            parts.push(format!("the server lists undeclared {}", list(&self.added)));
        }
        if !self.removed.is_empty() {
            parts.push(format!("the server does not list declared {}", list(&self.removed)));
        }
        for change in &self.changed {
            parts.push(format!("{} of {} differs", change.field, shown(&change.tool)));
        }
        parts.join("; ")
    }
}

/// Holds a declaration against the live server: name set, input schema, output schema, description.
pub fn compare(declaration: &Declaration, live: &LiveSurface) -> Difference {
    let mut difference = Difference::default();
    for tool in &live.tools {
        if !declaration.body.tools.iter().any(|declared| declared.name.as_str() == tool.name) {
            difference.added.push(tool.name.clone());
        }
    }
    for declared in &declaration.body.tools {
        let name = declared.name.as_str();
        let mut copies = live.tools.iter().filter(|tool| tool.name == name);
        let Some(tool) = copies.next() else {
            difference.removed.push(name.to_owned());
            continue;
        };
        let mut changed = |field| difference.changed.push(Changed { tool: name.to_owned(), field });
        if copies.next().is_some() {
            changed("definition");
        }
        let Ok(found) = serde_json::from_str::<Compared>(tool.definition.get()) else {
            changed("definition");
            continue;
        };
        if !same(&declared.parameters, &closed(found.input_schema)) {
            changed("inputSchema");
        }
        let output_agrees = match (&declared.output.schema, &found.output_schema) {
            (Some(declared), Some(found)) => same(declared, found),
            (None, None) => true,
            _ => false,
        };
        if !output_agrees {
            changed("outputSchema");
        }
        if declared.description.is_some() && declared.description != found.description {
            changed("description");
        }
    }
    // What is listed besides is not offered and does no harm: lists of resources are data, not surface.
    for declared in declaration.body.resources.iter().filter_map(|resource| resource.uri.as_ref()) {
        if !live.resources.iter().any(|found| found.name == *declared) {
            difference.removed.push(format!("resource {declared}"));
        }
    }
    for declared in &declaration.body.prompts {
        let name = declared.name.as_str();
        match live.prompts.iter().find(|found| found.name == name) {
            None => difference.removed.push(format!("prompt {name}")),
            Some(found) if !same_arguments(&declared.arguments, &found.definition) => {
                difference.changed.push(Changed { tool: format!("prompt {name}"), field: "arguments" });
            }
            Some(_) => {}
        }
    }
    difference
}

/// Whether a prompt takes what was declared: the same names, and the same of them required.
fn same_arguments(declared: &[super::PromptArgument], definition: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Prompt {
        #[serde(default)]
        arguments: Vec<Argument>,
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        #[serde(default)]
        required: bool,
    }
    let Ok(found) = serde_json::from_str::<Prompt>(definition.get()) else { return false };
    let mut found: Vec<_> = found.arguments.iter().map(|arg| (arg.name.as_str(), arg.required)).collect();
    let mut declared: Vec<_> = declared.iter().map(|arg| (arg.name.as_str(), arg.required)).collect();
    found.sort_unstable();
    declared.sort_unstable();
    found == declared
}

/// Holds a later probe against the accepted one: any difference is drift (GOV-501).
pub fn drift(accepted: &LiveSurface, live: &LiveSurface) -> Difference {
    let mut difference = Difference::default();
    for tool in &live.tools {
        match accepted.tools.iter().find(|known| known.name == tool.name) {
            None => difference.added.push(tool.name.clone()),
            Some(known) if known.digest() != tool.digest() => {
                difference.changed.push(Changed { tool: tool.name.clone(), field: "definition" });
            }
            Some(_) => {}
        }
    }
    for known in &accepted.tools {
        if !live.tools.iter().any(|tool| tool.name == known.name) {
            difference.removed.push(known.name.clone());
        }
    }
    difference
}

/// Few real servers close their schemas, and rule 6 wants them closed. So the operator declares the live schema
/// with `additionalProperties: false` at its root: stricter than what the server lists, equal in everything else.
pub fn closed(mut schema: Value) -> Value {
    if let Some(root) = schema.as_object_mut()
        && !root.contains_key("additionalProperties")
        && !root.contains_key("unevaluatedProperties")
    {
        root.insert("additionalProperties".into(), Value::Bool(false));
    }
    schema
}

fn same(a: &Value, b: &Value) -> bool {
    // By canonical bytes, as the digests would be: 1.0 and 1 are one number.
    matches!((to_jcs(a), to_jcs(b)), (Ok(a), Ok(b)) if a == b)
}
