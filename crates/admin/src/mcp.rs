//! The admin tools over MCP (ADM-2, ADM-80).
//!
//! An agent of an operator, with the operator's credential, sees three tools instead of a hundred and fifty: one to look
//! for a tool, one to look at it whole, one to call it. Each message stands alone: there is no session to keep.

mod catalogue;
#[cfg(test)]
mod ratchet;

use portcullis_gateway::edge::revision::{NEWEST_LEGACY, Revision, SUPPORTED};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::actor::{Actor, Channel};
use crate::args;
use crate::args::NonBlank;
use crate::boundary;
use crate::envelope::Envelope;
use crate::invoker::Invoker;

/// How much of the tools a client sees at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// Three tools over the catalogue.
    #[default]
    Gateway,
    /// Every tool.
    Passthrough,
}

/// Where a client begins, in every mode: whole within what clients show that cut at 512 characters (SURF-11, SURF-12).
const HEAD: &str = "Portcullis administration: access is limited to what the operator's role shows, and every call is \
audited. Find a tool with tool_browse, read its whole schema with tool_view, call it with tool_execute. Arguments are typed \
and unknown ones are refused. Results are bounded: page with offset and limit. Tools marked Destructive take confirm: true \
and a reason that names why. Never put credentials in arguments.";

/// What there is to say besides (SURF-13).
const NOTE: &str = "Admin notes: ask the person you work for before you set confirm. Lists show at most 500 rows at a time. \
data.pending_approval means that another operator must agree first.";

fn instructions() -> String {
    format!("{HEAD:<512}\n{NOTE}")
}

/// Answers MCP messages for an invoker.
#[derive(Debug, Clone)]
pub struct AdminMcp {
    invoker: Invoker,
    exposure: Exposure,
    version: String,
}

#[derive(Deserialize)]
struct Message<'m> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'m RawValue>,
    #[serde(borrow, default)]
    id: Option<&'m RawValue>,
    method: Option<String>,
    #[serde(borrow, default)]
    params: Option<&'m RawValue>,
}

#[derive(Deserialize)]
struct CallParams<'m> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'m RawValue>,
}

/// A JSON-RPC error.
struct Refused {
    code: i32,
    message: &'static str,
}

const UNKNOWN_TOOL: Refused = Refused { code: -32602, message: "Unknown tool" };

impl AdminMcp {
    /// A server for `invoker`; `version` is what it says of itself.
    pub fn new(invoker: Invoker, exposure: Exposure, version: impl Into<String>) -> Self {
        Self { invoker, exposure, version: version.into() }
    }

    /// The answer to one message; `None` if it wants none.
    pub async fn answer(&self, actor: &Actor, message: &[u8]) -> Option<String> {
        let Ok(text) = std::str::from_utf8(message) else { return Some(error(None, -32700, "Parse error")) };
        if text.trim_start().starts_with('[') {
            return Some(error(None, -32600, "Invalid Request: send one message at a time"));
        }
        let message: Message<'_> = match serde_json::from_str(text) {
            Ok(message) => message,
            Err(fault) if fault.is_data() => return Some(error(None, -32600, "Invalid Request")),
            Err(_) => return Some(error(None, -32700, "Parse error")),
        };
        if message.jsonrpc.is_none_or(|version| version.get() != "\"2.0\"") {
            return Some(error(message.id, -32600, "Invalid Request"));
        }
        // An answer to something we never ask, or a notification: nothing to say.
        let method = message.method.as_deref()?;
        let id = message.id?;
        if id.get().starts_with(['{', '[', 't', 'f', 'n']) {
            return Some(error(None, -32600, "Invalid Request"));
        }
        let result = match method {
            "initialize" => Ok(self.initialize(message.params)),
            "server/discover" => Ok(self.discover()),
            "ping" => Ok("{}".to_owned()),
            "tools/list" => Ok(self.list(actor)),
            "tools/call" => self.call(actor, message.params).await,
            _ => Err(Refused { code: -32601, message: "Method not found" }),
        };
        Some(match result {
            Ok(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, id.get()),
            Err(refused) => error(Some(id), refused.code, refused.message),
        })
    }

    fn initialize(&self, params: Option<&RawValue>) -> String {
        let asked: Value =
            params.and_then(|params| serde_json::from_str(params.get()).ok()).unwrap_or(Value::Null);
        let asked = asked["protocolVersion"].as_str().and_then(Revision::named);
        let revision = asked.filter(|revision| *revision <= NEWEST_LEGACY).unwrap_or(NEWEST_LEGACY);
        json!({
            "protocolVersion": revision.as_str(), "capabilities": {"tools": {}}, "serverInfo": self.info(),
            "instructions": instructions(),
        })
        .to_string()
    }

    fn discover(&self) -> String {
        json!({
            "supportedVersions": SUPPORTED.map(Revision::as_str), "capabilities": {"tools": {}},
            "instructions": instructions(), "resultType": "complete",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.info()},
        })
        .to_string()
    }

    fn info(&self) -> Value {
        json!({"name": "portcullis-admin", "title": "Portcullis administration", "version": self.version})
    }

    fn list(&self, actor: &Actor) -> String {
        let tools: Vec<Value> = match self.exposure {
            Exposure::Gateway => catalogue::meta_tools(),
            Exposure::Passthrough => {
                let seen = self.invoker.visible(Some(actor), Channel::Operator);
                seen.into_iter().map(crate::tool::ToolDef::wire).collect()
            }
        };
        json!({"tools": tools, "resultType": "complete"}).to_string()
    }

    async fn call(&self, actor: &Actor, params: Option<&RawValue>) -> Result<String, Refused> {
        let invalid = Refused { code: -32602, message: "Invalid params" };
        let params = params.ok_or(Refused { code: -32602, message: "Invalid params" })?;
        let params: CallParams<'_> = serde_json::from_str(params.get()).map_err(|_| invalid)?;
        let none = RawValue::from_string("{}".into()).expect("an object");
        let arguments = params.arguments.unwrap_or(&none);
        match (self.exposure, params.name.as_str()) {
            (Exposure::Gateway, "tool_browse") => Ok(self.about(actor, "meta_list_tools", arguments).await),
            (Exposure::Gateway, "tool_view") => Ok(self.view(actor, arguments).await),
            (Exposure::Gateway, "tool_execute") => self.execute(actor, arguments).await,
            (Exposure::Passthrough, name) if name.starts_with("portcullis_") => {
                finished(&self.invoker.call(name, arguments, Some(actor), Channel::Operator).await)
            }
            _ => Err(UNKNOWN_TOOL),
        }
    }

    /// Cards of tools, the best first.
    async fn about(&self, actor: &Actor, tool: &str, arguments: &RawValue) -> String {
        let asked = boundary::object(arguments)
            .and_then(|object| boundary::parse::<catalogue::Browse>("mcp.tool", &object));
        match asked {
            Ok(asked) => {
                let seen = self.invoker.visible(Some(actor), Channel::Operator);
                text_result(&catalogue::cards(&seen, &asked), false)
            }
            Err(refused) => {
                let envelope = Envelope::error(tool, "req_browse", refused);
                result(&envelope.to_json(), true)
            }
        }
    }

    /// One tool whole.
    async fn view(&self, actor: &Actor, arguments: &RawValue) -> String {
        args! { struct View { tool: NonBlank } }
        let asked =
            boundary::object(arguments).and_then(|object| boundary::parse::<View>("mcp.tool", &object));
        match asked {
            Ok(View { tool }) => {
                let wanted = json!({"tool": tool.as_str(), "detail": "full"});
                let envelope =
                    self.invoker.call_value("meta_list_tools", &wanted, Some(actor), Channel::Operator).await;
                result(&envelope.to_json(), envelope.is_error())
            }
            Err(refused) => result(&Envelope::error("tool_view", "req_view", refused).to_json(), true),
        }
    }

    async fn execute(&self, actor: &Actor, arguments: &RawValue) -> Result<String, Refused> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Execute<'m> {
            tool: String,
            #[serde(borrow, default)]
            arguments: Option<&'m RawValue>,
        }
        let Ok(asked) = serde_json::from_str::<Execute<'_>>(arguments.get()) else {
            return Err(Refused { code: -32602, message: "Invalid params: give tool and arguments" });
        };
        let none = RawValue::from_string("{}".into()).expect("an object");
        let inner = asked.arguments.unwrap_or(&none);
        finished(&self.invoker.call(&asked.tool, inner, Some(actor), Channel::Operator).await)
    }
}

fn finished(envelope: &Envelope) -> Result<String, Refused> {
    if envelope.is_unknown_tool() {
        return Err(UNKNOWN_TOOL);
    }
    Ok(result(&envelope.to_json(), envelope.is_error()))
}

fn result(envelope: &str, is_error: bool) -> String {
    let mut result = shown(envelope, is_error);
    result.truncate(result.len() - 1);
    result + r#","resultType":"complete"}"#
}

/// The envelope as structured content, and the same JSON as one text block.
pub(crate) fn shown(envelope: &str, is_error: bool) -> String {
    let text = serde_json::to_string(envelope).expect("a text is JSON");
    format!(
        r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{envelope},"isError":{is_error}}}"#
    )
}

fn text_result(text: &str, is_error: bool) -> String {
    json!({"content": [{"type": "text", "text": text}], "isError": is_error, "resultType": "complete"})
        .to_string()
}

fn error(id: Option<&RawValue>, code: i32, message: &str) -> String {
    let id = id.map_or("null", RawValue::get);
    let message = serde_json::to_string(message).expect("a text is JSON");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}
