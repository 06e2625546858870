//! The admin tools over HTTP, for programs and for the console (ADM-2).
//!
//! Nothing is seen without an operator's credential: not the tools, not their description, not whether a path exists.
//! Programs send the token of an operator. Who has authenticated a request otherwise, as the console does with its
//! sessions, puts the [`Actor`] into the request's extensions before it comes here.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use portcullis_core::ErrorCode;
use portcullis_gateway::Control;
use portcullis_gateway::control::Given;
use portcullis_gateway::edge::revision::Revision;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::actor::{Actor, Channel};
use crate::invoker::Invoker;
use crate::mcp::{AdminMcp, Exposure};
use crate::openapi;

/// The largest request: a declaration may be 16 MiB.
const LARGEST: usize = 20 << 20;

/// Where the listener is, as clients say it.
#[derive(Debug, Clone)]
pub struct Door {
    /// The address it listens on.
    pub local: SocketAddr,
    /// What operators reach it by, if something stands in front of it.
    pub public: Option<Url>,
}

impl Door {
    /// Whether a `Host` names this listener: a page elsewhere cannot make a browser say so (DNS rebinding).
    fn is_host(&self, host: &str) -> bool {
        let Ok(url) = Url::parse(&format!("http://{host}/")) else { return false };
        let Some(name) = url.host_str() else { return false };
        if url.path() != "/" || !url.username().is_empty() || url.password().is_some() {
            return false;
        }
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let address = bare.parse::<std::net::IpAddr>().ok();
        let loopback = name == "localhost" || address.is_some_and(|ip| ip.is_loopback());
        let itself = address == Some(self.local.ip()) && !self.local.ip().is_unspecified();
        let here = url.port_or_known_default() == Some(self.local.port());
        let public = self.public.as_ref().is_some_and(|public| public.host_str() == Some(name));
        (here && ((loopback && self.local.ip().is_loopback()) || itself)) || public
    }

    fn is_origin(&self, origin: &str, host: &str) -> bool {
        match &self.public {
            Some(public) => origin == public.origin().ascii_serialization(),
            None => origin == format!("http://{host}"),
        }
    }

    /// Why a request is refused before it is looked at.
    fn refusal(&self, headers: &HeaderMap) -> Option<&'static str> {
        let said = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{0}"));
        let host = said(header::HOST).unwrap_or_default();
        if !self.is_host(host) {
            return Some("this Host is not ours");
        }
        let site = said(HeaderName::from_static("sec-fetch-site"));
        match said(header::ORIGIN) {
            Some(origin) if !self.is_origin(origin, host) => Some("this Origin is not ours"),
            None if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) => {
                Some("this comes from another site")
            }
            _ => None,
        }
    }
}

/// What the routes work with.
#[derive(Debug)]
struct Api {
    control: Arc<Control>,
    invoker: Invoker,
    door: Door,
    version: String,
}

/// `POST /api/admin/<tool>`, `/api/captures/<id>`, `/api/exports/<id>`, `GET /api/openapi.json`, `GET /api/metrics` and `/admin/mcp`.
pub fn router(control: Arc<Control>, invoker: Invoker, door: Door, version: impl Into<String>) -> Router {
    let api = Arc::new(Api { control, invoker, door, version: version.into() });
    Router::new()
        .route("/api/admin/{tool}", post(call))
        .route("/api/captures/{id}", get(fetch).post(give))
        .route("/api/exports/{id}", get(report))
        .route("/api/openapi.json", get(describe))
        .route("/api/metrics", get(metrics))
        .route("/admin/mcp", post(mcp).get(no_stream).delete(no_stream))
        .layer(DefaultBodyLimit::max(LARGEST))
        .layer(axum::middleware::from_fn_with_state(api.clone(), admit))
        .with_state(api)
}

/// Stands before everything: the right place, then an operator.
async fn admit(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    if let Some(reason) = api.door.refusal(request.headers()) {
        return refused(StatusCode::FORBIDDEN, reason);
    }
    if request.extensions().get::<Actor>().is_none() {
        let presented = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = presented.and_then(|value| value.strip_prefix("Bearer "));
        let proof = token.and_then(|token| api.control.authenticate_token(token.trim()).ok());
        let Some(proof) = proof else {
            let mut response = refused(StatusCode::UNAUTHORIZED, "an operator's token is needed");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        };
        request.extensions_mut().insert(Actor::operator(proof));
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if response.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than 20 MiB");
    }
    response
}

/// One call of one tool: arguments in, envelope out.
async fn call(
    State(api): State<Arc<Api>>,
    Extension(actor): Extension<Actor>,
    Path(tool): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_json(&headers) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
    }
    let text = std::str::from_utf8(&body).ok().map(str::to_owned);
    let raw = match text.map(|text| if text.trim().is_empty() { "{}".to_owned() } else { text }) {
        Some(text) => RawValue::from_string(text),
        None => RawValue::from_string("\u{0}".into()),
    };
    // What is not JSON is an argument that is not acceptable, said by the same door as every other.
    let raw = raw.unwrap_or_else(|_| RawValue::from_string("\"not JSON\"".into()).expect("a text"));
    let envelope = api.invoker.call(&tool, &raw, Some(&actor), Channel::Operator).await;
    let status = StatusCode::from_u16(envelope.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json_response(status, envelope.to_json())
}

/// A key that was made, shown this once to an operator (ADM-24).
async fn fetch(
    State(api): State<Arc<Api>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
) -> Response {
    let Some(proof) = actor.proof() else { return refused(StatusCode::FORBIDDEN, "operators only") };
    match api.control.fetch_key(proof, &id) {
        Ok(key) => json_response(StatusCode::OK, json!({"key": key.expose()}).to_string()),
        Err(error) => refused(StatusCode::NOT_FOUND, &error.message),
    }
}

/// A credential or a passphrase that is expected: the body is the value, and goes nowhere but where it is kept.
async fn give(
    State(api): State<Arc<Api>>,
    Extension(actor): Extension<Actor>,
    Path(id): Path<String>,
    body: Bytes,
) -> Response {
    let Some(proof) = actor.proof() else { return refused(StatusCode::FORBIDDEN, "operators only") };
    match api.control.give(proof, &id, body.to_vec()).await {
        Ok(Given::Credential(row)) => {
            json_response(StatusCode::OK, json!({"name": row.name, "version": row.version}).to_string())
        }
        Ok(Given::Operator(enrolled)) => {
            json_response(StatusCode::OK, json!({"name": enrolled.name}).to_string())
        }
        Err(error) if error.code == ErrorCode::NotFound => refused(StatusCode::NOT_FOUND, &error.message),
        Err(error) if error.is_blocked() => refused(StatusCode::SERVICE_UNAVAILABLE, &error.message),
        Err(error) => refused(StatusCode::BAD_REQUEST, &error.message),
    }
}

/// A report, as long as it is kept. A file, never a page of ours.
async fn report(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Response {
    match api.control.report(&id) {
        Ok(content) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, "attachment"),
            ];
            (headers, content).into_response()
        }
        Err(error) => refused(StatusCode::NOT_FOUND, &error.message),
    }
}

async fn describe(State(api): State<Arc<Api>>) -> Response {
    json_response(StatusCode::OK, openapi::document(api.invoker.registry(), &api.version).to_string())
}

async fn metrics(State(api): State<Arc<Api>>) -> Response {
    let text = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    // Counting tokens takes its time.
    let (calls, control) = (api.invoker.calls().exposition(), api.control.clone());
    match tokio::task::spawn_blocking(move || control.measures()).await {
        Ok(measures) => (text, calls + &measures).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[derive(Debug, Deserialize)]
struct McpQuery {
    #[serde(default)]
    mode: Option<String>,
}

/// MCP over HTTP, each message by itself: no session, and an answer is one JSON document.
async fn mcp(
    State(api): State<Arc<Api>>,
    Extension(actor): Extension<Actor>,
    Query(query): Query<McpQuery>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !is_json(&headers) {
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json");
    }
    let spoken = headers.get("mcp-protocol-version").map(|version| version.to_str().unwrap_or_default());
    if spoken.is_some_and(|version| Revision::named(version).is_none()) {
        return refused(StatusCode::BAD_REQUEST, "this revision of the protocol is not known");
    }
    let exposure = match query.mode.as_deref() {
        None | Some("gateway") => Exposure::Gateway,
        Some("passthrough") => Exposure::Passthrough,
        Some(_) => return refused(StatusCode::BAD_REQUEST, "mode is gateway or passthrough"),
    };
    let server = AdminMcp::new(api.invoker.clone(), exposure, api.version.clone());
    match server.answer(&actor, &body).await {
        Some(answer) => json_response(StatusCode::OK, answer),
        None => StatusCode::ACCEPTED.into_response(),
    }
}

/// There is nothing to stream and no session to end.
async fn no_stream() -> Response {
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, "send messages with POST");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn refused(status: StatusCode, reason: &str) -> Response {
    json_response(status, json!({"error": reason}).to_string())
}

fn json_response(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_to_this_place_and_from_it_are_let_in() {
        let door = Door { local: "127.0.0.1:7411".parse().unwrap(), public: None };
        let refusal = |pairs: &[(&str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
            }
            door.refusal(&headers)
        };
        assert_eq!(refusal(&[("host", "127.0.0.1:7411")]), None);
        assert_eq!(refusal(&[("host", "localhost:7411"), ("origin", "http://localhost:7411")]), None);
        for host in ["", "evil.example", "127.0.0.1:80", "evil@127.0.0.1:7411", "127.0.0.1:7411/x"] {
            assert!(refusal(&[("host", host)]).is_some(), "{host}");
        }
        for origin in ["http://evil.example", "null", "https://127.0.0.1:7411"] {
            assert!(refusal(&[("host", "127.0.0.1:7411"), ("origin", origin)]).is_some(), "{origin}");
        }
        let behind =
            Door { local: "0.0.0.0:80".parse().unwrap(), public: Url::parse("https://gate.example").ok() };
        assert!(behind.is_host("gate.example") && !behind.is_host("localhost"));
        assert!(behind.is_origin("https://gate.example", "gate.example"));
    }
}
