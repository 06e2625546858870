//! One message in, at most one message out.
//!
//! The protocol has two eras. The legacy one (until 2025-11-25) opens with `initialize`; the modern one (2026-07-28)
//! has no opening: each request carries its version and the client's capabilities in `_meta`. The era of a process is
//! settled by the first request that fits one, and the other era's opening is refused from then on.

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::catalogue;
use crate::lines::Line;
use crate::notebook::{NoteName, Notebook, NotebookError};
use crate::tools::Tool;

const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
const MODERN: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_KEY: &str = "io.modelcontextprotocol/serverInfo";
const SUBSCRIPTION_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// The lists change only with the program, so that a client may keep them for a while.
const LIST_TTL_MS: u64 = 60_000;

/// Which eras a process is willing to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Revisions {
    /// Only 2025-11-25 and older.
    Legacy,
    /// Only 2026-07-28.
    Modern,
    /// Whichever the client opens with.
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// The state of one client's connection.
#[derive(Debug)]
pub(crate) struct Session {
    notebook: Notebook,
    revisions: Revisions,
    era: Option<Era>,
    turned: bool,
}

/// A JSON-RPC error.
#[derive(Debug)]
struct Failure {
    code: i64,
    message: String,
    data: Option<Value>,
}

impl Failure {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    fn unknown_method(method: &str) -> Self {
        Self::new(-32601, format!("no such method: {method}"))
    }
}

impl From<NotebookError> for Failure {
    fn from(error: NotebookError) -> Self {
        let code = if matches!(error, NotebookError::Disk(_)) { -32603 } else { -32602 };
        Self::new(code, error.to_string())
    }
}

type Outcome = Result<Value, Failure>;

impl Session {
    /// A connection on which nothing was said yet.
    pub(crate) fn new(notebook: Notebook, revisions: Revisions) -> Self {
        Self { notebook, revisions, era: None, turned: false }
    }

    /// From here on the server lists something else than it did.
    pub(crate) fn turn(&mut self) {
        self.turned = true;
    }

    /// Takes one line and returns the message to send for it, if any.
    pub(crate) fn answer(&mut self, line: Line<'_>) -> Option<Value> {
        let Line::Whole(line) = line else {
            return Some(error(&Value::Null, Failure::new(-32600, "the message is too long")));
        };
        let mut message = match serde_json::from_slice(line) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return Some(error(&Value::Null, Failure::new(-32600, "one JSON-RPC object per line"))),
            Err(reason) => {
                return Some(error(&Value::Null, Failure::new(-32700, format!("not JSON: {reason}"))));
            }
        };
        let Some(Value::String(method)) = message.remove("method") else {
            // We ask for nothing, so that an answer cannot be ours; anything else is no message.
            let is_answer = message.contains_key("result") || message.contains_key("error");
            return (!is_answer).then(|| error(&Value::Null, Failure::new(-32600, "there is no method")));
        };
        let id = match message.remove("id") {
            None => return None, // a notification: nothing here outlives its request
            Some(id @ (Value::String(_) | Value::Number(_))) => id,
            Some(_) => {
                return Some(error(&Value::Null, Failure::new(-32600, "an id is a string or a number")));
            }
        };
        let params = match message.remove("params") {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Some(error(&id, Failure::new(-32602, "params is an object"))),
        };
        let outcome = self.settle_era(&method, &params).and_then(|era| match era {
            Era::Legacy => self.legacy(&method, params),
            Era::Modern => {
                if method == "subscriptions/listen" {
                    return Ok(acknowledge_subscription(&id));
                }
                self.modern(&method, params)
            }
        });
        Some(match outcome {
            // The acknowledgement of a subscription is itself a message: the answer would end the subscription.
            Ok(message) if message.get("method").is_some() => message,
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(failure) => error(&id, failure),
        })
    }

    fn settle_era(&mut self, method: &str, params: &Map<String, Value>) -> Result<Era, Failure> {
        let version = params.get("_meta").and_then(|meta| meta.get(VERSION_KEY));
        let era = match self.era {
            Some(era) => era,
            None if method == "initialize" => Era::Legacy,
            None if version.is_some() || method == "server/discover" => Era::Modern,
            None if self.revisions == Revisions::Modern => Era::Modern,
            None => Era::Legacy,
        };
        let spoken = match era {
            Era::Legacy => self.revisions != Revisions::Modern,
            Era::Modern => self.revisions != Revisions::Legacy,
        };
        // PRO-61: the modern era has no opening, and says so before it looks for what a modern request carries.
        if !spoken || (era == Era::Modern && method == "initialize") {
            return Err(Failure::unknown_method(method));
        }
        if era == Era::Modern {
            check_modern(params)?;
        } else if self.era.is_none() && !matches!(method, "initialize" | "ping") {
            return Err(Failure::new(-32600, "the first request of a session is initialize"));
        }
        if method != "ping" {
            self.era = Some(era);
        }
        Ok(era)
    }

    fn legacy(&self, method: &str, params: Map<String, Value>) -> Outcome {
        match method {
            "initialize" => {
                let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
                let version = LEGACY.into_iter().find(|known| *known == asked).unwrap_or(LEGACY[0]);
                Ok(json!({
                    "protocolVersion": version,
                    "capabilities": capabilities(),
                    "serverInfo": server_info(),
                    "instructions": catalogue::INSTRUCTIONS
                }))
            }
            "ping" => Ok(json!({})),
            // Codes of the eras: an unknown resource is -32002 here.
            "resources/read" => self.shared(method, params).map_err(|failure| match failure.code {
                -32602 => Failure { code: -32002, ..failure },
                _ => failure,
            }),
            _ => self.shared(method, params),
        }
    }

    fn modern(&self, method: &str, params: Map<String, Value>) -> Outcome {
        let mut result = match method {
            "server/discover" => json!({
                "supportedVersions": [MODERN],
                "capabilities": capabilities(),
                "instructions": catalogue::INSTRUCTIONS
            }),
            _ => self.shared(method, params)?,
        };
        result["resultType"] = "complete".into();
        result["_meta"] = json!({ SERVER_KEY: server_info() });
        let ttl = match method {
            // What depends on the notes may change with the next write.
            "resources/list" | "resources/read" => Some(0),
            "server/discover" | "tools/list" | "prompts/list" | "resources/templates/list" => {
                Some(LIST_TTL_MS)
            }
            _ => None,
        };
        if let Some(ttl) = ttl {
            result["ttlMs"] = ttl.into();
            result["cacheScope"] = "private".into();
        }
        Ok(result)
    }

    /// What both eras have, in the same words.
    fn shared(&self, method: &str, mut params: Map<String, Value>) -> Outcome {
        match method {
            "tools/list" if self.turned => Ok(json!({ "tools": catalogue::turned_tools() })),
            "tools/list" => Ok(json!({ "tools": catalogue::tools() })),
            "prompts/list" => Ok(json!({ "prompts": catalogue::prompts() })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": catalogue::resource_templates() })),
            "resources/list" => self.resources(),
            "tools/call" => {
                let name = text(&params, "name")?;
                let tool =
                    Tool::named(name).ok_or_else(|| Failure::new(-32602, format!("no such tool: {name}")))?;
                let arguments = params.remove("arguments").unwrap_or_else(|| json!({}));
                Ok(tool.call(&self.notebook, arguments))
            }
            "resources/read" => self.resource(text(&params, "uri")?),
            "prompts/get" => self.prompt(&params),
            _ => Err(Failure::unknown_method(method)),
        }
    }

    fn resources(&self) -> Outcome {
        let notes = self.notebook.notes()?;
        let resources: Vec<Value> = notes
            .iter()
            .map(|note| {
                json!({
                    "uri": format!("note://{}", note.name),
                    "name": note.name.as_str(),
                    "title": note.title(),
                    "mimeType": "text/markdown",
                    "size": note.text.len()
                })
            })
            .collect();
        Ok(json!({ "resources": resources }))
    }

    fn resource(&self, uri: &str) -> Outcome {
        let name = uri.strip_prefix("note://").unwrap_or_default();
        let name: NoteName = name
            .parse()
            .map_err(|_| Failure::new(-32602, format!("no such resource: {uri}; notes are note://<name>")))?;
        let note = self.notebook.read(&name)?;
        Ok(json!({ "contents": [{ "uri": uri, "mimeType": "text/markdown", "text": note.text }] }))
    }

    fn prompt(&self, params: &Map<String, Value>) -> Outcome {
        let prompt = text(params, "name")?;
        if prompt != "summarise_note" {
            return Err(Failure::new(-32602, format!("no such prompt: {prompt}")));
        }
        let note =
            params.get("arguments").and_then(|arguments| arguments.get("name")).and_then(Value::as_str);
        let name: NoteName =
            note.ok_or_else(|| Failure::new(-32602, "summarise_note needs the argument name"))?.parse()?;
        let note = self.notebook.read(&name)?;
        let request =
            format!("Summarise the note \"{name}\" in three sentences, and name what it asks to be done.");
        Ok(json!({
            "description": format!("Summarise the note {name}"),
            "messages": [
                { "role": "user", "content": { "type": "text", "text": request } },
                { "role": "user", "content": {
                    "type": "resource",
                    "resource": { "uri": format!("note://{name}"), "mimeType": "text/markdown", "text": note.text }
                } }
            ]
        }))
    }
}

fn check_modern(params: &Map<String, Value>) -> Result<(), Failure> {
    let meta = params.get("_meta").and_then(Value::as_object);
    let member = |key: &str| meta.and_then(|meta| meta.get(key));
    let Some(version) = member(VERSION_KEY).and_then(Value::as_str) else {
        return Err(Failure::new(-32602, format!("_meta lacks {VERSION_KEY}")));
    };
    if version != MODERN {
        return Err(Failure {
            code: -32022,
            message: "unsupported protocol version".to_owned(),
            data: Some(json!({ "supported": [MODERN], "requested": version })),
        });
    }
    if !member(CAPABILITIES_KEY).is_some_and(Value::is_object) {
        return Err(Failure::new(-32602, format!("_meta lacks {CAPABILITIES_KEY}")));
    }
    Ok(())
}

/// None of our lists announces changes, so that a subscription is granted with nothing in it and stays open.
fn acknowledge_subscription(id: &Value) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": { "_meta": { SUBSCRIPTION_KEY: id }, "notifications": {} }
    })
}

fn text<'a>(params: &'a Map<String, Value>, key: &str) -> Result<&'a str, Failure> {
    params
        .get(key)
        .and_then(Value::as_str)
        .ok_or_else(|| Failure::new(-32602, format!("params.{key} is a string")))
}

fn capabilities() -> Value {
    json!({ "tools": {}, "prompts": {}, "resources": {} })
}

fn server_info() -> Value {
    json!({ "name": "demo-notes", "title": "Demo notes", "version": env!("CARGO_PKG_VERSION") })
}

fn error(id: &Value, failure: Failure) -> Value {
    let mut error = json!({ "code": failure.code, "message": failure.message });
    if let Some(data) = failure.data {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}
