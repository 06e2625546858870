//! Every refusal of the gauntlet, its stable word and its code (gauntlet §7).

use portcullis_core::ToolId;
use portcullis_core::canon::{CanonError, CanonReason};
use portcullis_core::error::{ErrorCode, Fault};
use serde_json::{Map, Value};

use crate::args::reading_keyword;
use crate::violations::{SchemaViolations, Violation};

/// Why something did not pass. No text of it holds a value of the document it is about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GauntletError {
    /// A tool's schema is missing or is no schema of the kind required.
    #[error("the tool's schema is not a JSON Schema object; an input schema says \"type\": \"object\"")]
    ToolSchema,
    /// A schema that means nothing.
    #[error("the schema cannot be compiled: {reason}{}", at(pointer))]
    Uncompilable {
        /// Where in the schema.
        pointer: String,
        /// A keyword, or one of our words: `unsupported-dialect`, `dangling-ref`, `endless-reference`,
        /// `embedded-id`.
        reason: String,
    },
    /// A reference that leaves the document.
    #[error("the schema refers to something outside itself{}", at(pointer))]
    ExternalReference {
        /// Where in the schema.
        pointer: String,
    },
    /// A schema with a control character or marker where it may not be edited.
    #[error("the schema holds text that cannot be shown{}", at(pointer))]
    SchemaMarker {
        /// Where in the schema.
        pointer: String,
    },
    /// A schema beyond a cap.
    #[error("the schema has more than {limit} {what}{}", at(pointer))]
    TooComplex {
        /// Where in the schema the cap was passed.
        pointer: String,
        /// What was counted.
        what: &'static str,
        /// The cap.
        limit: usize,
    },
    /// The caller may not call the tool, or not with these arguments.
    #[error("tool '{}' requires permissions not granted", tool.item().name())]
    CapabilityDenied {
        /// The tool asked for.
        tool: ToolId,
        /// What it takes, templates unexpanded.
        capability: String,
    },
    /// Arguments the strict reader refuses.
    #[error("the arguments cannot be read: {0}")]
    Arguments(CanonError),
    /// Arguments that are some other JSON value.
    #[error("the arguments must be a JSON object")]
    ArgumentsNotAnObject,
    /// Arguments that do not fit.
    #[error("MCP tool '{}' input schema validation failed: {}", tool.item().name(), first(violations))]
    Input {
        /// The tool asked for.
        tool: ToolId,
        /// What does not fit.
        violations: SchemaViolations,
    },
    /// Arguments whose validation was given up.
    #[error("MCP tool '{}' input schema validation exceeded its budget", tool.item().name())]
    InputBudget {
        /// The tool asked for.
        tool: ToolId,
    },
    /// A result that is no tool result.
    #[error("MCP tool '{}' answered with something that is not a tool result: {reason}", tool.item().name())]
    Shape {
        /// The tool called.
        tool: ToolId,
        /// What is wrong, in our words.
        reason: &'static str,
    },
    /// A structured result that is not an object, where only an object is allowed.
    #[error("MCP tool '{}' answered with structured content that is not an object", tool.item().name())]
    NonObjectOutput {
        /// The tool called.
        tool: ToolId,
    },
    /// A structured result that is not what was declared.
    #[error("MCP tool '{}' output schema validation failed: {}", tool.item().name(), first(violations))]
    Output {
        /// The tool called.
        tool: ToolId,
        /// What does not fit.
        violations: SchemaViolations,
    },
    /// A structured result whose validation was given up.
    #[error("MCP tool '{}' output schema validation exceeded its budget", tool.item().name())]
    OutputBudget {
        /// The tool called.
        tool: ToolId,
    },
    /// A result longer, or of more values, than allowed.
    #[error("MCP tool '{}' answered with more than {limit} {unit}", tool.item().name())]
    OutputTooLarge {
        /// The tool called.
        tool: ToolId,
        /// The limit.
        limit: usize,
        /// What was counted.
        unit: &'static str,
    },
    /// A member name that cannot be shown and must not be changed.
    #[error("{}a member name that cannot be shown", answered(tool))]
    OutputKey {
        /// The tool called, if it was one.
        tool: Option<ToolId>,
    },
    /// A text that builds new markers each time one is removed.
    #[error("{}a text that cannot be made safe to show", answered(tool))]
    SanitizeUnstable {
        /// The tool called, if it was one.
        tool: Option<ToolId>,
    },
    /// A text that is too long to be shown once it is written safely.
    #[error("the text is longer than {limit} bytes once it is safe to show")]
    TextTooLarge {
        /// The limit.
        limit: usize,
    },
    /// A result nested too deeply.
    #[error("MCP tool '{}' answered with a result nested deeper than {limit}", tool.item().name())]
    OutputTooDeep {
        /// The tool called.
        tool: ToolId,
        /// The limit.
        limit: usize,
    },
}

impl GauntletError {
    pub(crate) fn uncompilable(pointer: &str, reason: &str) -> Self {
        Self::Uncompilable { pointer: pointer.to_owned(), reason: reason.to_owned() }
    }

    /// The stable word, `mcp-…`.
    pub fn violation(&self) -> &'static str {
        match self {
            Self::ToolSchema => "mcp-tool-bad-schema",
            Self::Uncompilable { .. } => "mcp-schema-uncompilable",
            Self::ExternalReference { .. } => "mcp-schema-external-ref",
            Self::TooComplex { .. } => "mcp-schema-too-complex",
            Self::SchemaMarker { .. } => "mcp-schema-marker",
            Self::Arguments(_) | Self::ArgumentsNotAnObject | Self::Input { .. } => "mcp-input-schema",
            Self::CapabilityDenied { .. } => "capability_denied",
            Self::InputBudget { .. } | Self::OutputBudget { .. } => "mcp-schema-budget",
            Self::Shape { .. } => "mcp-call-tool-shape",
            Self::NonObjectOutput { .. } => "mcp-non-object-output",
            Self::Output { .. } => "mcp-output-schema",
            Self::OutputTooLarge { .. } | Self::TextTooLarge { .. } => "mcp-output-too-large",
            Self::OutputKey { .. } => "mcp-output-key",
            Self::SanitizeUnstable { .. } => "mcp-sanitize-unstable",
            Self::OutputTooDeep { .. } => "mcp-output-too-deep",
        }
    }

    /// What a caller can act on.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::ToolSchema
            | Self::Uncompilable { .. }
            | Self::ExternalReference { .. }
            | Self::SchemaMarker { .. }
            | Self::TooComplex { .. } => ErrorCode::SchemaInvalid,
            Self::Arguments(_)
            | Self::ArgumentsNotAnObject
            | Self::Input { .. }
            | Self::InputBudget { .. } => ErrorCode::ArgsInvalid,
            Self::Output { .. } | Self::CapabilityDenied { .. } => ErrorCode::PolicyDenied,
            Self::Shape { .. }
            | Self::NonObjectOutput { .. }
            | Self::OutputBudget { .. }
            | Self::OutputKey { .. }
            | Self::SanitizeUnstable { .. } => ErrorCode::UpstreamError,
            Self::OutputTooLarge { .. } | Self::OutputTooDeep { .. } | Self::TextTooLarge { .. } => {
                ErrorCode::ResultTooLarge
            }
        }
    }

    /// The governed failure mode behind the refusal: a result that is not what was declared is a mismatch.
    pub fn fault(&self) -> Option<Fault> {
        matches!(self, Self::Output { .. }).then_some(Fault::Mismatch)
    }

    /// The object of gauntlet §7: `kind`, `violation`, `message`, `schema_path`, `errors`, `truncated`, and
    /// the tool where one is known.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        let mut put = |key: &str, value: Value| details.insert(key.to_owned(), value);
        if let Self::CapabilityDenied { capability, .. } = self {
            put("kind", "capability_denied".into());
            put("code", "capability_denied".into());
            put("capability", capability.as_str().into());
            put("deployment", "mcp".into());
        } else {
            put("kind", "validation".into());
            put("violation", self.violation().into());
        }
        put("message", self.to_string().into());
        if let Some(tool) = self.tool() {
            put("tool_id", tool.item().name().into());
            put("tool", tool.as_str().into());
        }
        match self {
            Self::Uncompilable { pointer, reason } => {
                put("schema_path", pointer.as_str().into());
                put("reason", reason.as_str().into());
            }
            Self::ExternalReference { pointer }
            | Self::SchemaMarker { pointer }
            | Self::TooComplex { pointer, .. } => {
                put("schema_path", pointer.as_str().into());
            }
            _ => {
                if let Some(violations) = self.violations() {
                    put("schema_path", violations.schema_path().into());
                    put("truncated", violations.truncated.into());
                    put("errors", violations.errors.iter().map(error_object).collect());
                }
            }
        }
        details
    }

    fn tool(&self) -> Option<&ToolId> {
        match self {
            Self::Input { tool, .. }
            | Self::CapabilityDenied { tool, .. }
            | Self::InputBudget { tool }
            | Self::Shape { tool, .. }
            | Self::NonObjectOutput { tool }
            | Self::Output { tool, .. }
            | Self::OutputBudget { tool }
            | Self::OutputTooLarge { tool, .. }
            | Self::OutputTooDeep { tool, .. } => Some(tool),
            Self::OutputKey { tool } | Self::SanitizeUnstable { tool } => tool.as_ref(),
            _ => None,
        }
    }

    fn violations(&self) -> Option<SchemaViolations> {
        match self {
            Self::Input { violations, .. } | Self::Output { violations, .. } => Some(violations.clone()),
            Self::ArgumentsNotAnObject => Some(SchemaViolations::at_root("type", "expected object")),
            Self::Arguments(error) => {
                let mut violations =
                    SchemaViolations::at_root(reading_keyword(error), &error.reason.to_string());
                // A pointer grows with the caller's keys; only a short one is worth telling.
                if error.pointer.len() <= crate::violations::MAX_POINTER_BYTES {
                    violations.errors[0].pointer.clone_from(&error.pointer);
                } else {
                    violations.truncated = true;
                }
                Some(violations)
            }
            _ => None,
        }
    }

    /// Whether the arguments were too long rather than wrong.
    pub fn is_request_too_large(&self) -> bool {
        matches!(self, Self::Arguments(CanonError { reason: CanonReason::TooLong(_), .. }))
    }
}

fn error_object(violation: &Violation) -> Value {
    serde_json::json!({
        "pointer": violation.pointer, "keyword": violation.keyword, "message": violation.message,
    })
}

fn first(violations: &SchemaViolations) -> String {
    match violations.errors.first() {
        Some(error) if error.pointer.is_empty() => error.message.clone(),
        Some(error) => format!("{}: {}", error.pointer, error.message),
        None => "not valid".into(),
    }
}

fn answered(tool: &Option<ToolId>) -> String {
    tool.as_ref().map_or_else(String::new, |tool| format!("MCP tool '{}' answered with ", tool.item().name()))
}

fn at(pointer: &str) -> String {
    if pointer.is_empty() { String::new() } else { format!(" at {pointer}") }
}
