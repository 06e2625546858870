//! The exact bytes of our messages.
//!
//! Frames are written, not serialised: the parts that vary are an id, a name and arguments that are canonical JSON
//! already. What is constant for a connection (in the modern era every request says who we are) is prepared once.

use bytes::Bytes;
use portcullis_governance::boundary::{WireCall, WireFrame};
use serde_json::json;

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
    /// `"_meta":{…}` of every modern request; empty in the legacy era.
    meta: String,
    client: String,
}

impl Frames {
    pub(crate) fn new(era: Era, settings: &Settings) -> Self {
        let client = json!({"name": settings.client_name, "version": settings.client_version});
        // PRO-63: nothing is declared that the gateway does not carry, and so far it carries nothing.
        let meta = match era {
            Era::Legacy => String::new(),
            Era::Modern => {
                let meta = json!({
                    "io.modelcontextprotocol/protocolVersion": MODERN_REVISION,
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "io.modelcontextprotocol/clientInfo": client,
                });
                format!("\"_meta\":{meta}")
            }
        };
        Self { meta, client: client.to_string() }
    }

    pub(crate) fn call(&self, call: &WireCall<'_>) -> WireFrame {
        let id = fresh_id();
        let bytes = self.request(id, call.method, call.params);
        WireFrame { id, bytes, method: call.method, name: call.name.map(str::to_owned) }
    }

    pub(crate) fn initialize(&self, id: u64) -> Bytes {
        let proposed = LEGACY_REVISIONS[0];
        let params =
            format!(r#""protocolVersion":"{proposed}","capabilities":{{}},"clientInfo":{}"#, self.client);
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

    pub(crate) fn cancelled(id: u64) -> Bytes {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
        );
        text.into()
    }

    /// `params` is the inside of the object.
    fn request(&self, id: u64, method: &str, params: &[u8]) -> Bytes {
        let mut text = Vec::with_capacity(params.len() + self.meta.len() + method.len() + 72);
        text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        text.extend_from_slice(id.to_string().as_bytes());
        text.extend_from_slice(br#","method":"#);
        write_string(&mut text, method);
        text.extend_from_slice(br#","params":{"#);
        text.extend_from_slice(params);
        if !params.is_empty() && !self.meta.is_empty() {
            text.push(b',');
        }
        text.extend_from_slice(self.meta.as_bytes());
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
    use serde_json::Value;

    fn read(bytes: &Bytes) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn a_call_carries_its_canonical_arguments_byte_for_byte() {
        let params = br#""name":"e\"cho","arguments":{"a":1e21,"b":"\u001b"}"#;
        let call = WireCall { method: "tools/call", name: Some("e\"cho"), params };
        for era in [Era::Legacy, Era::Modern] {
            let frame = Frames::new(era, &Settings::default()).call(&call);
            assert!(frame.bytes.windows(params.len()).any(|part| part == params));
            let value = read(&frame.bytes);
            assert_eq!((value["id"].as_u64(), &value["params"]["name"]), (Some(frame.id), &json!("e\"cho")));
            let version = value["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
            assert_eq!(version, (era == Era::Modern).then_some("2026-07-28"));
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
