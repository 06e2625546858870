//! Resources and prompts as the rules for tools see them: names, arguments with a schema, classes and scopes.

use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{
    AcceptedRequest, Idempotency, Limits, OutputClause, OutputKind, PromptClause, Replay, ResourceClause,
    Span, ToolClause,
};
use crate::subject::Subject;
use crate::uri_template::UriTemplate;
use crate::wire_uri::is_ours;

/// The longest value of a template's variable, and of an argument being completed.
const LONGEST_VALUE: u64 = 2_048;
/// How long a question may stay open, and how large it may be.
const LONGEST_QUESTION: Duration = Duration::from_secs(300);
const LARGEST_QUESTION: u64 = 4 << 20;

impl ResourceClause {
    /// What it is: one resource, or all of one form.
    pub(crate) fn subject(&self) -> Result<Subject, String> {
        let subject = match (&self.uri, &self.uri_template) {
            (Some(uri), None) => Subject::Resource { uri: uri.clone() },
            (None, Some(text)) => {
                Subject::Template(UriTemplate::parse(text).map_err(|error| format!("uri_template {error}"))?)
            }
            _ => return Err("must have either `uri` or `uri_template`".into()),
        };
        let text = self.uri.as_deref().or(self.uri_template.as_deref()).unwrap_or_default();
        if is_ours(text) || !text.contains(':') {
            return Err("must be a URI of the server's own, with a scheme that is not portcullis:".into());
        }
        Ok(subject)
    }

    /// What a list says of it when the server's own does not.
    pub(crate) fn described(&self) -> Box<RawValue> {
        let mut definition = json!({"name": self.name});
        match (&self.uri, &self.uri_template) {
            (Some(uri), _) => definition["uri"] = json!(uri),
            (_, template) => definition["uriTemplate"] = json!(template),
        }
        if let [mime_type] = &self.mime_types[..] {
            definition["mimeType"] = json!(mime_type);
        }
        RawValue::from_string(definition.to_string()).expect("rendered JSON")
    }

    /// Reading it, as a tool.
    pub(crate) fn as_tool(&self, subject: &Subject) -> ToolClause {
        let names = match subject {
            Subject::Template(template) => template.variables().map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        let text = json!({"type": "string", "minLength": 1, "maxLength": LONGEST_VALUE});
        let properties = names.iter().map(|name| (name.clone(), text.clone())).collect();
        ToolClause {
            scope_bindings: self.scope_bindings.clone(),
            unbound: self.unbound,
            ..plain(self.name.clone(), closed(properties, &names), self)
        }
    }
}

impl PromptClause {
    /// Getting it, as a tool.
    pub(crate) fn as_tool(&self) -> ToolClause {
        let properties = (self.arguments.iter())
            .map(|arg| (arg.name.clone(), json!({"type": "string", "maxLength": arg.max_length})))
            .collect();
        let required = self.arguments.iter().filter(|arg| arg.required).map(|arg| arg.name.clone());
        let parameters = closed(properties, &required.collect::<Vec<_>>());
        // A prompt names no place, so its scopes cannot be bound.
        let unbound = !self.scopes.is_empty() || !self.side_effects.is_empty();
        ToolClause { unbound, ..plain(self.name.clone(), parameters, self) }
    }
}

impl AcceptedRequest {
    /// Asking it, as a tool: without classes and scopes of its own, because what it reaches is the client.
    pub(crate) fn as_tool(&self) -> Result<ToolClause, String> {
        Ok(ToolClause {
            name: self.kind.as_str().parse().map_err(|_| "a kind of request is a name")?,
            version: "1".into(),
            description: None,
            side_effects: Vec::new(),
            scopes: Vec::new(),
            scope_bindings: Vec::new(),
            unbound: false,
            credentials: Vec::new(),
            // The protocol says what is in it, and the edge holds it to that.
            parameters: json!({"type": "object"}),
            output: OutputClause { schema: None, kind: Some(OutputKind::Json) },
            idempotency: Idempotency::Unknown,
            failure_modes: Vec::new(),
            limits: Limits {
                timeout: Span(LONGEST_QUESTION),
                max_request_bytes: LARGEST_QUESTION,
                ..Limits::default()
            },
            replay: Replay::default(),
        })
    }
}

impl ToolClause {
    /// Completing one of the arguments, as a tool of its own: with the same powers, and nothing bound.
    pub(crate) fn completion(&self) -> ToolClause {
        let names = self.parameters["properties"].as_object().map(|map| map.keys().collect::<Vec<_>>());
        let value = json!({"type": "string", "maxLength": LONGEST_VALUE});
        let argument = json!({
            "type": "object", "additionalProperties": false, "required": ["name", "value"],
            "properties": {"name": {"enum": names.unwrap_or_default()}, "value": value},
        });
        let context = json!({
            "type": "object", "additionalProperties": false,
            "properties": {"arguments": {"type": "object", "maxProperties": 64, "additionalProperties": value}},
        });
        let properties = Map::from_iter([("argument".into(), argument), ("context".into(), context)]);
        ToolClause {
            parameters: closed(properties, &["argument".into()]),
            scope_bindings: Vec::new(),
            unbound: !self.scopes.is_empty(),
            ..self.clone()
        }
    }
}

/// What resources and prompts share with tools.
trait Powers {
    fn powers(&self) -> ToolClause;
}

fn plain(name: portcullis_core::ToolName, parameters: Value, clause: &impl Powers) -> ToolClause {
    ToolClause { name, parameters, ..clause.powers() }
}

macro_rules! powers {
    ($clause:ty) => {
        impl Powers for $clause {
            fn powers(&self) -> ToolClause {
                ToolClause {
                    name: self.name.clone(),
                    version: self.version.clone(),
                    description: None,
                    side_effects: self.side_effects.clone(),
                    scopes: self.scopes.clone(),
                    scope_bindings: Vec::new(),
                    unbound: false,
                    credentials: self.credentials.clone(),
                    parameters: Value::Null,
                    output: OutputClause { schema: None, kind: Some(OutputKind::Json) },
                    idempotency: Idempotency::Idempotent,
                    failure_modes: self.failure_modes.clone(),
                    limits: self.limits.clone(),
                    replay: Replay::default(),
                }
            }
        }
    };
}

powers!(ResourceClause);
powers!(PromptClause);

fn closed(properties: Map<String, Value>, required: &[String]) -> Value {
    let mut schema =
        json!({"type": "object", "additionalProperties": false, "properties": Value::Object(properties)});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}
