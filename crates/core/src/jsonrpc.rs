//! The JSON-RPC envelope, read without parsing what it carries.
//!
//! A gateway forwards results it need not understand. Parsing a 64 KB result into typed values and writing it
//! out again costs forty times what finding its boundaries costs, and loses what the types do not know. So a
//! message is read as borrowed slices: the envelope's own members, and raw JSON for the rest.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// One JSON-RPC message, borrowing from the text it was read from.
///
/// Repeated envelope members are refused by the reader; unknown ones are ignored.
#[derive(Debug, Deserialize)]
pub struct Message<'a> {
    /// Must be `"2.0"`.
    #[serde(borrow)]
    pub jsonrpc: Cow<'a, str>,
    /// Present in requests and responses; `null` counts as present.
    #[serde(borrow, default, deserialize_with = "present")]
    pub id: Option<&'a RawValue>,
    /// Present in requests and notifications.
    #[serde(borrow, default)]
    pub method: Option<Cow<'a, str>>,
    /// What the method takes.
    #[serde(borrow, default, deserialize_with = "present")]
    pub params: Option<&'a RawValue>,
    /// A response that worked.
    #[serde(borrow, default, deserialize_with = "present")]
    pub result: Option<&'a RawValue>,
    /// A response that did not.
    #[serde(borrow, default, deserialize_with = "present")]
    pub error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: Deserializer<'de>>(d: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(d).map(Some)
}

/// What a message is, by its members.
#[derive(Debug)]
pub enum Kind<'a> {
    /// Wants an answer.
    Request {
        /// To be echoed.
        id: &'a RawValue,
        /// What to do.
        method: &'a str,
    },
    /// Wants none.
    Notification {
        /// What happened.
        method: &'a str,
    },
    /// Answers a request of ours.
    Response {
        /// The id we gave.
        id: &'a RawValue,
        /// The result, or the error object.
        outcome: Result<&'a RawValue, &'a RawValue>,
    },
    /// None of the three: -32600.
    Invalid,
}

/// A JSON-RPC error as read from a peer.
#[derive(Debug, Clone, Deserialize)]
pub struct RpcError {
    /// The code.
    pub code: i64,
    /// The text; hostile until cleaned.
    #[serde(default)]
    pub message: String,
    /// Whatever else.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

impl<'a> Message<'a> {
    /// Reads one message; `None` if the text is not a JSON object of this shape.
    pub fn read(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// What the message is.
    pub fn kind(&self) -> Kind<'_> {
        if self.jsonrpc != "2.0" {
            return Kind::Invalid;
        }
        match (self.id, &self.method, self.result, self.error) {
            (Some(id), Some(method), None, None) if is_id(id) => Kind::Request { id, method },
            (None, Some(method), None, None) => Kind::Notification { method },
            (Some(id), None, Some(result), None) if is_id(id) => Kind::Response { id, outcome: Ok(result) },
            (Some(id), None, None, Some(error)) if is_id(id) => Kind::Response { id, outcome: Err(error) },
            _ => Kind::Invalid,
        }
    }
}

/// Whether something is a string or an integer, as ids and progress tokens are: what is given back as it came. A string with
/// half of a surrogate pair is none, although it reads like one: whoever got it back could not read the message it is in.
pub fn is_id(raw: &RawValue) -> bool {
    let text = raw.get();
    match text.starts_with('"') {
        true => !text.contains('\\') || serde_json::from_str::<Cow<'_, str>>(text).is_ok(),
        false => text.parse::<i64>().is_ok(),
    }
}

/// A response carrying an already serialised result.
pub fn result_response(id: &RawValue, result: &[u8]) -> Vec<u8> {
    let id = id.get().as_bytes();
    let mut text = Vec::with_capacity(id.len() + result.len() + 40);
    text.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    text.extend_from_slice(id);
    text.extend_from_slice(br#","result":"#);
    text.extend_from_slice(result);
    text.push(b'}');
    text
}

/// A response carrying an error. `id` is `None` when the request's id could not be read, and what is no id counts as that.
pub fn error_response<D: Serialize>(
    id: Option<&RawValue>,
    code: i32,
    message: &str,
    data: Option<&D>,
) -> Vec<u8> {
    #[derive(Serialize)]
    struct Response<'a, D> {
        jsonrpc: &'static str,
        id: Option<&'a RawValue>,
        error: ErrorObject<'a, D>,
    }
    #[derive(Serialize)]
    struct ErrorObject<'a, D> {
        code: i32,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a D>,
    }
    let id = id.filter(|id| is_id(id));
    let response = Response { jsonrpc: "2.0", id, error: ErrorObject { code, message, data } };
    serde_json::to_vec(&response).expect("an error response is serialisable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let kind = |text: &str| match Message::read(text.as_bytes()).as_ref().map(Message::kind) {
            Some(Kind::Request { id, method }) => format!("request {id} {method}"),
            Some(Kind::Notification { method }) => format!("notification {method}"),
            Some(Kind::Response { id, outcome }) => format!("response {id} {}", outcome.is_ok()),
            Some(Kind::Invalid) => "invalid".into(),
            None => "unreadable".into(),
        };
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), "request 1 ping");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":"a","method":"x","params":{}}"#), r#"request "a" x"#);
        assert_eq!(kind(r#"{"jsonrpc":"2.0","method":"n"}"#), "notification n");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"result":null}"#), "response 1 true");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"error":{"code":1}}"#), "response 1 false");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#), "invalid");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#), "invalid");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"result":1,"error":2}"#), "invalid");
        assert_eq!(kind(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), "invalid");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#), "unreadable");
        assert_eq!(kind("[]"), "unreadable");
    }

    #[test]
    fn what_is_no_id_is_not_given_back() {
        // PRO-30
        for id in [r#""\ud800a""#, "{}", "1.5", "null"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
            let message = Message::read(text.as_bytes()).unwrap();
            assert!(matches!(message.kind(), Kind::Invalid), "{id}");
            let answer = error_response(message.id, -32600, "no", None::<&()>);
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            assert!(answer["id"].is_null(), "{answer}");
        }
    }

    #[test]
    fn responses_echo_the_id_byte_for_byte() {
        let message = Message::read(br#"{"jsonrpc":"2.0","id":"\u0061","method":"x"}"#).unwrap();
        let text = result_response(message.id.unwrap(), b"{}");
        assert_eq!(text, br#"{"jsonrpc":"2.0","id":"\u0061","result":{}}"#);
    }
}
