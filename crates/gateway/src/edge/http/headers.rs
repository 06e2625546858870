//! What headers must say: who may talk to us at all, and what a modern request repeats of its body.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{HttpLimits, Reply, plain};
use crate::edge::Params;

pub(super) const SESSION: &str = "mcp-session-id";
pub(super) const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// Headers and body of a modern request must say the same (-32020).
pub(super) fn mismatch(
    headers: &HeaderMap,
    version: &str,
    method: &str,
    params: Option<&Params<'_>>,
) -> Option<&'static str> {
    let says = |header: &str| headers.get(header).map(HeaderValue::as_bytes);
    if says(VERSION) != Some(version.as_bytes()) {
        return Some("MCP-Protocol-Version is missing or differs from the body");
    }
    if says(METHOD) != Some(method.as_bytes()) {
        return Some("Mcp-Method is missing or differs from the body");
    }
    let name = match method {
        "tools/call" | "prompts/get" => params.and_then(|params| params.name.as_deref()),
        "resources/read" => params.and_then(|params| params.uri.as_deref()),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.and_then(|params| params.task_id.as_deref()),
        _ => return None,
    };
    let said = headers.get(NAME).and_then(decoded);
    if said.is_none() || said.as_deref() != name {
        return Some("Mcp-Name is missing or differs from the body");
    }
    None
}

/// A value as it was meant: what is no plain ASCII travels as `=?base64?…?=`.
pub(super) fn decoded(value: &HeaderValue) -> Option<String> {
    let text = value.to_str().ok()?;
    match text.strip_prefix("=?base64?").and_then(|text| text.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(text.to_owned()),
    }
}

/// DNS rebinding: a browser page on another site sends its own `Origin`, or reaches us under its own `Host`.
pub(super) fn foreign(headers: &HeaderMap, local: SocketAddr, limits: &HttpLimits) -> Option<Reply> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("\u{0}"));
    if let Some(origin) = text(header::ORIGIN) {
        let loopback =
            url::Url::parse(origin).is_ok_and(|url| is_loopback(url.host_str().unwrap_or_default()));
        if !loopback && !limits.origins.iter().any(|allowed| allowed == origin) {
            return Some(plain(StatusCode::FORBIDDEN, "this Origin is not allowed"));
        }
    }
    let host = text(header::HOST).unwrap_or_default();
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()))
        .map_or(host, |(name, _)| name);
    let ours = is_loopback(name)
        || (!local.ip().is_unspecified() && name == local.ip().to_string())
        || limits.hosts.iter().any(|allowed| allowed == name);
    if ours { None } else { Some(plain(StatusCode::FORBIDDEN, "this Host is not ours")) }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Whether the client takes answers of `kind`; a client that does not say takes JSON alone.
pub(super) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let Some(accept) = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()) else {
        return kind == "application/json";
    };
    let family = kind.split('/').next().unwrap_or_default();
    accept.split(',').any(|offered| {
        let offered = offered.split(';').next().unwrap_or_default().trim();
        offered == kind || offered == "*/*" || offered.strip_suffix("/*") == Some(family)
    })
}

/// Whether the client would rather have a stream than a document: by the weights it gives, and by its order where they
/// are equal.
pub(super) fn prefers_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let place = |kind: &str| {
        accept.split(',').enumerate().find_map(|(at, offered)| {
            let mut parts = offered.split(';').map(str::trim);
            if parts.next() != Some(kind) {
                return None;
            }
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
            Some((weight.unwrap_or(1.0), at))
        })
    };
    match (place("text/event-stream"), place("application/json")) {
        (Some((events, first)), Some((document, second))) => {
            events > document || (events == document && first < second)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_stream_where_it_prefers_one() {
        // PRO-31
        let prefers = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            prefers_events(&headers)
        };
        assert!(prefers("text/event-stream, application/json"));
        assert!(prefers("application/json;q=0.5, text/event-stream"));
        assert!(!prefers("application/json, text/event-stream"));
        assert!(!prefers("text/event-stream;q=0.5, application/json"));
        assert!(!prefers("*/*") && !prefers("text/event-stream") && !prefers(""));
    }

    #[test]
    fn encoded_names_are_decoded_before_they_are_compared() {
        let value = |text: &str| decoded(&HeaderValue::from_str(text).unwrap());
        assert_eq!(value("us-west1").as_deref(), Some("us-west1"));
        assert_eq!(value("=?base64?SGVsbG8sIOS4lueVjA==?=").as_deref(), Some("Hello, 世界"));
        assert_eq!(value("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=").as_deref(), Some("=?base64?literal?="));
        assert_eq!(value("=?base64?!!!?="), None);
        assert_eq!(value("=?base64?/w==?="), None, "not UTF-8");
    }

    #[test]
    fn what_a_client_accepts_is_what_it_says() {
        let accepting = |accept: &str, kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).unwrap());
            accepts(&headers, kind)
        };
        assert!(accepting("application/json, text/event-stream;q=0.5", "text/event-stream"));
        assert!(accepting("*/*", "text/event-stream") && accepting("text/*", "text/event-stream"));
        assert!(!accepting("application/json", "text/event-stream"));
        assert!(accepts(&HeaderMap::new(), "application/json"));
        assert!(!accepts(&HeaderMap::new(), "text/event-stream"));
    }
}
