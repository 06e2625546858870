//! The parts of a request's `params` that the edge itself needs, read without touching the rest.

use std::borrow::Cow;

use portcullis_upstream::Trace;
use serde::Deserialize;
use serde_json::value::RawValue;

/// What the edge reads of any `params`. Repeated members are refused by the reader.
#[derive(Debug, Deserialize)]
pub(crate) struct Params<'a> {
    #[serde(borrow, default, rename = "_meta")]
    pub(crate) meta: Option<Meta<'a>>,
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) level: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) cursor: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "inputResponses")]
    pub(crate) input_responses: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestState")]
    pub(crate) request_state: Option<&'a RawValue>,
    // Of `tools/call` in revision 2025-11-25.
    #[serde(borrow, default)]
    pub(crate) task: Option<&'a RawValue>,
    // Of `tasks/get` and its like.
    #[serde(borrow, default, rename = "taskId")]
    pub(crate) task_id: Option<Cow<'a, str>>,
    // Of `subscriptions/listen`.
    #[serde(borrow, default)]
    pub(crate) notifications: Option<&'a RawValue>,
    // Of `completion/complete`.
    #[serde(borrow, default, rename = "ref")]
    pub(crate) reference: Option<Reference<'a>>,
    #[serde(borrow, default)]
    pub(crate) argument: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) context: Option<&'a RawValue>,
    // Of `initialize`.
    #[serde(borrow, default, rename = "protocolVersion")]
    pub(crate) protocol_version: Option<Cow<'a, str>>,
    #[serde(default, rename = "clientInfo")]
    pub(crate) client_info: Option<ClientInfo>,
    #[serde(borrow, default)]
    pub(crate) capabilities: Option<&'a RawValue>,
    // Of `notifications/cancelled`.
    #[serde(borrow, default, rename = "requestId")]
    pub(crate) request_id: Option<&'a RawValue>,
}

/// What is to be completed.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Reference<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) uri: Option<Cow<'a, str>>,
}

/// The arguments of a completion as one object, which its schema judges.
pub(crate) fn completion_arguments(
    argument: Option<&RawValue>,
    context: Option<&RawValue>,
) -> Option<Box<RawValue>> {
    let members = [("argument", argument), ("context", context)];
    let members: Vec<String> = (members.into_iter())
        .filter_map(|(name, value)| value.map(|value| format!("\"{name}\":{}", value.get())))
        .collect();
    RawValue::from_string(format!("{{{}}}", members.join(","))).ok()
}

/// What the edge reads of `_meta`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    pub(crate) protocol_version: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    pub(crate) client_capabilities: Option<&'a RawValue>,
    #[serde(default, rename = "io.modelcontextprotocol/clientInfo")]
    pub(crate) client_info: Option<ClientInfo>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    pub(crate) log_level: Option<Cow<'a, str>>,
    /// How much of a result this call wants (SURF-74).
    #[serde(borrow, default, rename = "io.portcullis/result_detail")]
    pub(crate) result_detail: Option<Cow<'a, str>>,
    // Whatever they are: what is no text is left out, and nothing fails of it.
    #[serde(borrow, default)]
    pub(crate) traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) tracestate: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) baggage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    pub(crate) progress_token: Option<&'a RawValue>,
}

/// What a client calls itself.
#[derive(Debug, Deserialize)]
pub(crate) struct ClientInfo {
    #[serde(default)]
    pub(crate) name: String,
}

impl Meta<'_> {
    /// Whose work the request is part of.
    pub(crate) fn trace(&self) -> Trace {
        let text =
            |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let (parent, state) = (text(self.traceparent), text(self.tracestate));
        Trace::read(parent.as_deref(), state.as_deref(), text(self.baggage).as_deref())
    }
}

impl<'a> Params<'a> {
    pub(crate) fn read(raw: &'a RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(raw.get())
    }
}
