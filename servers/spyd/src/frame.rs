//! What a received text is, as JSON-RPC sees it.

use serde_json::{Map, Value, json};

use crate::revision::MODERN;

pub(crate) const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request, its parameters always an object.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Map<String, Value>,
}

impl Request {
    /// The version in `_meta`, which makes a request a modern one.
    pub(crate) fn version(&self) -> Option<&str> {
        self.meta(VERSION_KEY).and_then(Value::as_str)
    }

    pub(crate) fn meta(&self, key: &str) -> Option<&Value> {
        self.params.get("_meta").and_then(|meta| meta.get(key))
    }

    /// PRO-61: what every modern request carries.
    pub(crate) fn check_modern(&self) -> Result<(), Failure> {
        let version =
            self.version().ok_or_else(|| Failure::new(-32602, format!("_meta lacks {VERSION_KEY}")))?;
        if version != MODERN {
            return Err(Failure {
                code: -32022,
                message: "unsupported protocol version".to_owned(),
                data: Some(json!({ "supported": [MODERN], "requested": version })),
            });
        }
        if !self.meta(CAPABILITIES_KEY).is_some_and(Value::is_object) {
            return Err(Failure::new(-32602, format!("_meta lacks {CAPABILITIES_KEY}")));
        }
        Ok(())
    }
}

/// One received text.
#[derive(Debug)]
pub(crate) enum Frame {
    Request(Request),
    Notification {
        method: String,
        params: Map<String, Value>,
    },
    /// An answer to something the spy asked: its id and the whole message.
    Answer(Value, Value),
    /// Not a message; the error to send for it.
    Invalid(Failure),
}

impl Frame {
    pub(crate) fn parse(raw: &str) -> Self {
        let invalid = |message: &str| Self::Invalid(Failure::new(-32600, message));
        let mut message = match serde_json::from_str(raw) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return invalid("one JSON-RPC object per frame"),
            Err(error) => return Self::Invalid(Failure::new(-32700, error.to_string())),
        };
        let id = message.get("id").cloned();
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            _ if message.contains_key("result") || message.contains_key("error") => {
                return Self::Answer(id.unwrap_or(Value::Null), Value::Object(message));
            }
            _ => return invalid("there is no method"),
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return invalid("params is an object"),
        };
        match id {
            None => Self::Notification { method, params },
            Some(id @ (Value::String(_) | Value::Number(_))) => Self::Request(Request { id, method, params }),
            Some(_) => invalid("an id is a string or a number"),
        }
    }

    /// The method of a request or a notification.
    pub(crate) fn method(&self) -> &str {
        match self {
            Self::Request(request) => &request.method,
            Self::Notification { method, .. } => method,
            Self::Answer(..) | Self::Invalid(_) => "",
        }
    }
}

/// A JSON-RPC error.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl Failure {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn unknown_method(method: &str) -> Self {
        Self::new(-32601, format!("no such method: {method}"))
    }

    pub(crate) fn message(&self, id: &Value) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    }
}
