//! What a governed request is about: a tool, a resource, a prompt, the completion of an argument, or a question of the
//! server's.
//!
//! All of them take the same path (GOV-101). What differs is how the arguments that were decided about become the
//! message that is sent, and that is here.

use portcullis_gauntlet::ResultKind;
use serde_json::{Map, Value, json};

use crate::declaration::ServerRequest;
use crate::uri_template::UriTemplate;

/// What is asked for.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A tool; the arguments are its own.
    Tool,
    /// One resource; there are no arguments.
    Resource {
        /// The server's own URI.
        uri: String,
    },
    /// Resources of one form; the template's variables are the arguments.
    Template(UriTemplate),
    /// A prompt; the arguments are its own.
    Prompt,
    /// Completing an argument of a prompt or template.
    Completion {
        /// `ref` as the server knows it.
        reference: Value,
    },
    /// A question of the server's to the client; the arguments are its `params` (GOV-408).
    Request(ServerRequest),
}

impl Subject {
    /// The method on the wire.
    pub fn method(&self) -> &'static str {
        match self {
            Subject::Tool => "tools/call",
            Subject::Resource { .. } | Subject::Template(_) => "resources/read",
            Subject::Prompt => "prompts/get",
            Subject::Completion { .. } => "completion/complete",
            Subject::Request(kind) => kind.method(),
        }
    }

    /// What its results look like.
    pub fn result(&self) -> ResultKind {
        match self {
            Subject::Tool => ResultKind::Tool,
            Subject::Resource { .. } | Subject::Template(_) => ResultKind::Resource,
            Subject::Prompt => ResultKind::Prompt,
            // What a client answers is judged by the edge, against the question.
            Subject::Completion { .. } | Subject::Request(_) => ResultKind::Completion,
        }
    }

    /// The server's own URI of a resource, from the values of its template's variables.
    pub fn uri(&self, values: &Map<String, Value>) -> Option<String> {
        match self {
            Subject::Resource { uri } => Some(uri.clone()),
            Subject::Template(template) => template.expand(values),
            Subject::Tool | Subject::Prompt | Subject::Completion { .. } | Subject::Request(_) => None,
        }
    }

    /// The members of `params`, without braces, from canonical arguments; and what `Mcp-Name` repeats.
    pub(crate) fn params(&self, name: &str, args: &str, values: &Value) -> (Vec<u8>, Option<String>) {
        match self {
            Subject::Tool | Subject::Prompt => {
                let mut params = Vec::with_capacity(args.len() + name.len() + 32);
                params.extend_from_slice(b"\"name\":");
                serde_json::to_writer(&mut params, name).expect("a name is text");
                params.extend_from_slice(b",\"arguments\":");
                params.extend_from_slice(args.as_bytes());
                (params, Some(name.to_owned()))
            }
            Subject::Resource { uri } => (format!("\"uri\":{}", json!(uri)).into_bytes(), Some(uri.clone())),
            Subject::Template(template) => {
                let none = Map::new();
                // The arguments were read out of a URI by this very template, so they give it back.
                let uri = template.expand(values.as_object().unwrap_or(&none)).unwrap_or_default();
                (format!("\"uri\":{}", json!(uri)).into_bytes(), Some(uri))
            }
            Subject::Completion { reference } => {
                let inside = args.strip_prefix('{').and_then(|args| args.strip_suffix('}'));
                (format!("\"ref\":{reference},{}", inside.unwrap_or_default()).into_bytes(), None)
            }
            Subject::Request(_) => {
                let inside = args.strip_prefix('{').and_then(|args| args.strip_suffix('}'));
                (inside.unwrap_or_default().as_bytes().to_vec(), None)
            }
        }
    }
}
