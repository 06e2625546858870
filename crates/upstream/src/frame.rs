//! The exact bytes of our messages.
//!
//! Frames are written, not serialised: the parts that vary are an id, a name and arguments that are canonical JSON
//! already. What is constant for a connection (in the modern era every request says who we are) is prepared once.

use std::collections::BTreeSet;

use bytes::Bytes;
use portcullis_governance::boundary::{WireCall, WireFrame};
use serde_json::{Value, json};

use crate::beside::Wants;
use crate::era::{LEGACY_REVISIONS, MODERN_REVISION};
use crate::{Era, Settings};

/// Ids lie below 2^53, where every JSON reader agrees about integers.
const ID_LIMIT: u64 = 1 << 53;

/// What we want to hear of from a modern server.
const LISTENED_TO: &[u8] =
    br#""notifications":{"toolsListChanged":true,"resourcesListChanged":true,"promptsListChanged":true}"#;

/// An id that nobody can guess (GOV-303) and nobody had before (PRO-68).
pub(crate) fn fresh_id() -> u64 {
    rand::random_range(1..ID_LIMIT)
}

/// Writes messages in the language of one era.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    era: Era,
    /// `"_meta":{…}` of every modern request that wants nothing of its own; empty in the legacy era.
    meta: String,
    client: Value,
    /// What we say we can be asked (GOV-408).
    capabilities: Value,
}

impl Frames {
    pub(crate) fn new(era: Era, settings: &Settings) -> Self {
        let client = json!({"name": settings.client_name, "version": settings.client_version});
        let mut capabilities = settings.capabilities.clone();
        // Extensions are of the modern revision; a legacy session could not take one back for a single call either.
        if let (Era::Legacy, Some(members)) = (era, capabilities.as_object_mut()) {
            members.remove("extensions");
        }
        let mut frames = Self { era, meta: String::new(), client, capabilities };
        if era == Era::Modern {
            frames.meta = format!("\"_meta\":{}", frames.modern_meta(&frames.capabilities));
        }
        frames
    }

    fn modern_meta(&self, capabilities: &Value) -> Value {
        json!({
            "io.modelcontextprotocol/protocolVersion": MODERN_REVISION,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": self.client,
        })
    }

    pub(crate) fn call(&self, call: &WireCall<'_>, wants: &Wants) -> WireFrame {
        let id = fresh_id();
        let mut params = call.params.to_vec();
        if let Some(input) = &wants.input {
            params.extend_from_slice(format!(",\"inputResponses\":{}", input.responses).as_bytes());
            if let Some(state) = &input.state {
                params.extend_from_slice(b",\"requestState\":");
                write_string(&mut params, state);
            }
        }
        if let (Era::Legacy, Some(task)) = (self.era, wants.task) {
            let ttl = task.ttl_ms.map_or_else(|| json!({}), |ttl| json!({"ttl": ttl}));
            params.extend_from_slice(format!(",\"task\":{ttl}").as_bytes());
        }
        let meta = self.call_meta(id, wants);
        let bytes = self.request_with(id, call.method, &params, meta.as_deref().unwrap_or(&self.meta));
        let (name, mirrored) = (call.name.map(str::to_owned), call.mirrored.to_vec());
        WireFrame { id, bytes, method: call.method, name, mirrored }
    }

    /// `_meta` of a call that wants something; `None` if it wants nothing special.
    fn call_meta(&self, id: u64, wants: &Wants) -> Option<String> {
        let level = wants.log_level.filter(|_| self.era == Era::Modern);
        let able = if wants.capabilities.is_null() { json!({}) } else { wants.capabilities.clone() };
        let plain = !wants.progress && level.is_none() && wants.trace.is_empty();
        if plain && (self.era == Era::Legacy || able == self.capabilities) {
            return None;
        }
        let mut meta = match self.era {
            Era::Legacy => json!({}),
            Era::Modern => self.modern_meta(&able),
        };
        if wants.progress {
            // Unguessable, unique in flight, and it says which call it is about.
            meta["progressToken"] = id.into();
        }
        if let Some(level) = level {
            meta["io.modelcontextprotocol/logLevel"] = level.into();
        }
        wants.trace.write(&mut meta);
        Some(format!("\"_meta\":{meta}"))
    }

    pub(crate) fn initialize(&self, id: u64) -> Bytes {
        let proposed = LEGACY_REVISIONS[0];
        let params = format!(
            r#""protocolVersion":"{proposed}","capabilities":{},"clientInfo":{}"#,
            self.capabilities, self.client
        );
        self.request(id, "initialize", params.as_bytes())
    }

    pub(crate) fn initialized() -> Bytes {
        Bytes::from_static(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
    }

    pub(crate) fn discover(&self, id: u64) -> Bytes {
        self.request(id, "server/discover", b"")
    }

    pub(crate) fn list(&self, id: u64, method: &str, cursor: Option<&str>) -> Bytes {
        let mut params = Vec::new();
        if let Some(cursor) = cursor {
            params.extend_from_slice(b"\"cursor\":");
            write_string(&mut params, cursor);
        }
        self.request(id, method, &params)
    }

    /// Modern: what used to be announced to everybody is announced to who asks.
    pub(crate) fn listen(&self, id: u64) -> Bytes {
        self.request(id, "subscriptions/listen", LISTENED_TO)
    }

    /// Modern: the same, about resources.
    pub(crate) fn listen_for(&self, id: u64, uris: &BTreeSet<String>) -> Bytes {
        let params = format!(r#""notifications":{{"resourceSubscriptions":{}}}"#, json!(uris));
        self.request(id, "subscriptions/listen", params.as_bytes())
    }

    /// Legacy: a request about one resource.
    pub(crate) fn about(&self, id: u64, method: &str, uri: &str) -> Bytes {
        let mut params = b"\"uri\":".to_vec();
        write_string(&mut params, uri);
        self.request(id, method, &params)
    }

    pub(crate) fn cancelled(id: u64) -> Bytes {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        text.into()
    }

    /// `params` is the inside of the object.
    fn request(&self, id: u64, method: &str, params: &[u8]) -> Bytes {
        self.request_with(id, method, params, &self.meta)
    }

    fn request_with(&self, id: u64, method: &str, params: &[u8], meta: &str) -> Bytes {
        let mut text = Vec::with_capacity(params.len() + meta.len() + method.len() + 72);
        text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        text.extend_from_slice(id.to_string().as_bytes());
        text.extend_from_slice(br#","method":"#);
        write_string(&mut text, method);
        text.extend_from_slice(br#","params":{"#);
        text.extend_from_slice(params);
        if !params.is_empty() && !meta.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(meta.as_bytes());
        text.extend_from_slice(b"}}");
        text.into()
    }
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string is JSON and a vector takes it");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Input, TaskWanted, Trace};

    fn read(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_call_carries_its_canonical_arguments_byte_for_byte() {
        let params = br#""name":"e\"cho","arguments":{"a":1e21,"b":"\u001b"}"#;
        let call = WireCall { method: "tools/call", name: Some("e\"cho"), params, mirrored: &[] };
        for era in [Era::Legacy, Era::Modern] {
            let frame = Frames::new(era, &Settings::default()).call(&call, &Wants::default());
            assert!(frame.bytes.windows(params.len()).any(|part| part == params));
            let value = read(&frame.bytes);
            assert_eq!((value["id"].as_u64(), &value["params"]["name"]), (Some(frame.id), &json!("e\"cho")));
            let version = value["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
            assert_eq!(version, (era == Era::Modern).then_some("2026-07-28"));
        }
    }

    #[test]
    fn a_call_says_what_it_wants_in_the_words_of_its_era() {
        // PRO-11, PRO-63, PRO-68
        let call =
            WireCall { method: "tools/call", name: Some("x"), params: br#""name":"x""#, mirrored: &[] };
        let input = Input { responses: json!({"q": {"action": "accept"}}), state: Some("s\"\u{e9}".into()) };
        let capabilities = json!({"elicitation": {}});
        let parent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
        let trace = Trace::read(Some(parent), None, Some("k=v"));
        let wants = Wants {
            progress: true,
            log_level: Some("info"),
            capabilities,
            input: Some(input),
            trace,
            task: Some(TaskWanted { ttl_ms: Some(7) }),
        };
        for era in [Era::Legacy, Era::Modern] {
            let frame = Frames::new(era, &Settings::default()).call(&call, &wants);
            let params = &read(&frame.bytes)["params"];
            assert_eq!(params["_meta"]["progressToken"].as_u64(), Some(frame.id));
            assert_eq!(
                (&params["_meta"]["traceparent"], &params["_meta"]["baggage"]),
                (&json!(parent), &json!("k=v"))
            );
            assert_eq!(params["requestState"], "s\"\u{e9}");
            let level = params["_meta"]["io.modelcontextprotocol/logLevel"].as_str();
            assert_eq!(level, (era == Era::Modern).then_some("info"));
            let able = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(able.is_object(), era == Era::Modern);
            // The modern era has no such word: there the server decides.
            assert_eq!(params.get("task"), (era == Era::Legacy).then_some(&json!({"ttl": 7})));
        }
    }

    #[test]
    fn every_message_is_one_line_of_json() {
        for era in [Era::Legacy, Era::Modern] {
            let frames = Frames::new(era, &Settings { client_name: "a\"\n".into(), ..Settings::default() });
            for bytes in [
                frames.initialize(1),
                frames.discover(2),
                frames.list(3, "tools/list", None),
                frames.list(4, "tools/list", Some("")),
                frames.list(5, "tools/list", Some("a\"\n")),
                frames.listen(7),
                Frames::initialized(),
                Frames::cancelled(6),
            ] {
                assert_eq!(read(&bytes)["jsonrpc"], "2.0");
                assert!(!bytes.contains(&b'\n'));
            }
        }
    }

    #[test]
    fn ids_are_fresh_and_exact_in_every_reader() {
        // PRO-68, GOV-303
        let ids: std::collections::HashSet<_> = (0..10_000).map(|_| fresh_id()).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| (1..ID_LIMIT).contains(id)));
    }
}
