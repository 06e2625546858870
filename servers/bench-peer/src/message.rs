//! The echo server's answers. The question is parsed no further than needed, and what is echoed is a slice of it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

const MODERN: &str = "2026-07-28";
const BLOB_BYTES: usize = 4096;
/// The catalogue; `bench.yaml` declares the same.
const TOOLS: &str = concat!(
    r#"[{"name":"echo","description":"Answer with the same text.","inputSchema":{"type":"object","#,
    r#""additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string","maxLength":65536}}}},"#,
    r#"{"name":"blob","description":"Answer with 4 KiB of text.","inputSchema":{"type":"object","#,
    r#""additionalProperties":false,"properties":{}}}]"#
);
const SERVER: &str = r#"{"name":"bench","version":"1.0.0"}"#;

#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Params<'a>,
}

#[derive(Deserialize, Default)]
struct Params<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Arguments<'a>,
    #[serde(borrow, rename = "protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(rename = "_meta", default)]
    meta: Meta,
}

#[derive(Deserialize, Default)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// The answer to one message; `None` if it wants none.
pub(crate) fn answer(raw: &[u8]) -> Option<String> {
    let Ok(question) = serde_json::from_slice::<Question<'_>>(raw) else {
        return Some(error("null", -32700, "this is not a message"));
    };
    let id = question.id?.get();
    let modern = question.params.meta.version.is_some();
    if question.params.meta.version.as_deref().is_some_and(|version| version != MODERN) {
        return Some(error(id, -32022, "unsupported protocol version"));
    }
    let blob;
    let result = match (&*question.method, modern) {
        ("tools/call", _) => match &*question.params.name {
            "echo" => text(question.params.arguments.text.map_or("\"\"", RawValue::get)),
            "blob" => {
                blob = format!("\"{}\"", "x".repeat(BLOB_BYTES));
                text(&blob)
            }
            _ => return Some(error(id, -32602, "no such tool")),
        },
        ("tools/list", _) => cacheable(format!("\"tools\":{TOOLS}"), modern),
        ("server/discover", true) => cacheable(
            format!("\"supportedVersions\":[\"{MODERN}\"],\"capabilities\":{{\"tools\":{{}}}}"),
            true,
        ),
        ("initialize", false) => {
            // Any legacy revision will do: the answers are the same in all of them.
            let asked = question.params.version.map_or("", RawValue::get);
            let version =
                if asked.starts_with("\"202") && !asked.contains(MODERN) { asked } else { "\"2025-11-25\"" };
            format!(
                "\"protocolVersion\":{version},\"capabilities\":{{\"tools\":{{}}}},\"serverInfo\":{SERVER}"
            )
        }
        ("ping", false) => String::new(),
        _ => return Some(error(id, -32601, "no such method")),
    };
    Some(if modern {
        format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{result},\"resultType\":\"complete\",\
             \"_meta\":{{\"io.modelcontextprotocol/serverInfo\":{SERVER}}}}}}}"
        )
    } else {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{result}}}}}")
    })
}

fn text(json_string: &str) -> String {
    format!("\"content\":[{{\"type\":\"text\",\"text\":{json_string}}}],\"isError\":false")
}

fn cacheable(members: String, modern: bool) -> String {
    if modern { format!("{members},\"ttlMs\":60000,\"cacheScope\":\"private\"") } else { members }
}

fn error(id: &str, code: i32, message: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ask(message: &Value) -> Value {
        serde_json::from_str(&answer(message.to_string().as_bytes()).expect("an answer")).expect("JSON")
    }

    #[test]
    fn a_text_is_echoed_whatever_is_in_it() {
        let text = "a\"b\\c\u{1}ü😀";
        let call = json!({ "id": "x", "method": "tools/call", "params": { "name": "echo", "arguments": { "text": text } } });
        assert_eq!(
            ask(&call),
            json!({ "jsonrpc": "2.0", "id": "x", "result": {
                "content": [{ "type": "text", "text": text }], "isError": false } })
        );
    }

    #[test]
    fn a_modern_question_gets_a_complete_answer() {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28" });
        let list = ask(&json!({ "id": 1, "method": "tools/list", "params": { "_meta": meta } }));
        assert_eq!(list["result"]["resultType"], "complete");
        assert!(list["result"]["ttlMs"].is_u64());
        let blob =
            ask(&json!({ "id": 1, "method": "tools/call", "params": { "name": "blob", "_meta": meta } }));
        assert_eq!(blob["result"]["content"][0]["text"].as_str().map(str::len), Some(4096));
        let discover = ask(&json!({ "id": 1, "method": "server/discover", "params": { "_meta": meta } }));
        assert_eq!(discover["result"]["supportedVersions"][0], "2026-07-28");
        let none = ask(&json!({ "id": 1, "method": "server/discover" }));
        assert_eq!(none["error"]["code"], -32601);
    }

    #[test]
    fn a_notification_gets_none() {
        assert_eq!(answer(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), None);
    }
}
