//! What an agent asks for, by the name it knows, and what that leads to.

use std::sync::Arc;

use portcullis_core::ErrorCode;
use portcullis_core::error::{ErrorDocument, one_line};
use portcullis_core::name::printable;
use portcullis_governance::registry::{Registry, ToolEntry};
use serde_json::Value;
use serde_json::value::RawValue;

/// What an agent asks for.
#[derive(Debug, Clone)]
pub enum Target {
    /// `tools/call`, by name.
    Tool(String),
    /// `resources/read`, by URI.
    Resource(String),
    /// `prompts/get`, by name.
    Prompt(String),
    /// `completion/complete` of an argument of a prompt, by the prompt's name.
    PromptArgument(String),
    /// `completion/complete` of a variable of a template, by the template.
    TemplateVariable(String),
    /// What an id of the catalogue was resolved to. If it is not in force any more, there is no such thing (CTX-94).
    Resolved {
        /// The id the agent gave.
        id: String,
        /// What it meant when it was resolved.
        entry: Arc<ToolEntry>,
        /// The arguments of a resource, which has none, or of a template.
        arguments: Option<Box<RawValue>>,
    },
    /// A name that leads nowhere for this agent, whatever it may mean to others.
    Nothing(String),
}

/// What a name led to.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) entry: Arc<ToolEntry>,
    /// The arguments that were in the name itself: the variables of a template.
    pub(crate) arguments: Option<Box<RawValue>>,
}

impl Target {
    /// The name as the agent knows it.
    pub fn name(&self) -> &str {
        match self {
            Target::Tool(name)
            | Target::Resource(name)
            | Target::Prompt(name)
            | Target::PromptArgument(name)
            | Target::TemplateVariable(name)
            | Target::Resolved { id: name, .. }
            | Target::Nothing(name) => name,
        }
    }

    pub(crate) fn find(&self, registry: &Registry) -> Option<Found> {
        let entry = match self {
            Target::Tool(name) => registry.tool(name),
            Target::Prompt(name) => registry.prompt(name),
            Target::PromptArgument(name) => registry.prompt_completion(name),
            Target::TemplateVariable(name) => registry.template_completion(name),
            Target::Resource(uri) => {
                let (entry, values) = registry.resource(uri)?;
                let arguments = RawValue::from_string(Value::Object(values).to_string()).ok()?;
                return Some(Found { entry: entry.clone(), arguments: Some(arguments) });
            }
            Target::Resolved { entry, arguments, .. } => {
                registry.owner(&entry.tool)?;
                return Some(Found { entry: entry.clone(), arguments: arguments.clone() });
            }
            Target::Nothing(_) => return None,
        };
        Some(Found { entry: entry?.clone(), arguments: None })
    }

    /// There is no such thing, or none that is declared; the two look the same (MP-FH-002).
    pub(crate) fn unknown(&self) -> ErrorDocument {
        let shown = printable(self.name());
        let message = match self {
            Target::Tool(_) | Target::Resolved { .. } | Target::Nothing(_) => {
                format!("there is no tool {shown}; tools/list names those there are")
            }
            Target::Resource(_) => format!(
                "there is no resource {shown}; resources/list and resources/templates/list name those there are"
            ),
            Target::Prompt(_) => format!("there is no prompt {shown}; prompts/list names those there are"),
            Target::PromptArgument(_) | Target::TemplateVariable(_) => {
                format!("nothing completes arguments of {shown}")
            }
        };
        ErrorDocument::new(ErrorCode::PathNotFound, one_line(self.name()), message).with("code", "MP-FH-002")
    }
}
