//! Bytes in, bytes out: who asks, which endpoint, what goes into the log, which fault strikes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::answer::{Answer, Outcome, Refusal};
use crate::faults::{Fault, Kind};
use crate::grant::{self, Bearer};
use crate::query::Query;
use crate::server::State;
use crate::{admin, aggregate, events, records, schema, search, window};

const VERSION: &str = "2026-04-06";
const MOST_BYTES: usize = 8 << 20;

pub async fn serve(listener: TcpListener, state: Arc<State>, is_admin: bool) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let state = state.clone();
                async move {
                    if is_admin { Ok(admin(&state, request).await) } else { answer(&state, request).await }
                }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The connection is closed without an answer.
#[derive(Debug)]
struct Reset;

impl std::fmt::Display for Reset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("reset on demand")
    }
}

impl std::error::Error for Reset {}

async fn admin(state: &State, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MOST_BYTES)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let outcome = admin::answer(state, parts.method.as_str(), parts.uri.path(), &body).await;
    match outcome {
        Ok(answer) => rendered(answer.status, &answer.body),
        Err(refusal) => rendered(refusal.status, &refusal.body("")),
    }
}

async fn answer(state: &State, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Reset> {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.as_str().to_owned(), parts.uri.path().to_owned());
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let bearer =
        parts.headers.get("authorization").and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let bearer = bearer.map(ToOwned::to_owned);
    let body = Limited::new(body, MOST_BYTES)
        .collect()
        .await
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let request_id = state.id("req_", 16);
    let fault = state.faults.take(&method, &path);
    if let Some(Fault { kind: Kind::Slow, delay_ms, .. }) = &fault {
        tokio::time::sleep(Duration::from_millis(delay_ms.unwrap_or(500))).await;
    }
    let struck = fault.as_ref().filter(|fault| fault.kind != Kind::Slow);
    let response = match struck {
        Some(fault) => struck_by(fault).await,
        None => {
            let asked = Asked {
                method: &method,
                path: &path,
                target: parts.uri.path_and_query().map_or("", |target| target.as_str()),
                query: &query,
                body: &body,
                bearer: bearer.as_deref(),
            };
            Ok(honest(state, &asked, &request_id).await)
        }
    };
    let status = response.as_ref().map_or(0, |response| response.status().as_u16());
    let label = grant::label(&state.store, bearer.as_deref()).await;
    let mut entry =
        json!({"method": method, "path": path, "query": query.0, "token_label": label, "status": status});
    if let Some(fault) = &fault {
        entry["fault"] = json!(fault.kind.as_str());
    }
    let _ = state.store.execute("INSERT INTO request_log(entry_json) VALUES(?)", &[&entry.to_string()]).await;
    response
}

/// A request, taken apart.
struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    target: &'a str,
    query: &'a Query,
    body: &'a [u8],
    bearer: Option<&'a str>,
}

async fn honest(state: &State, asked: &Asked<'_>, request_id: &str) -> Response<Full<Bytes>> {
    if asked.path == "/.well-known/oauth-protected-resource" && asked.method == "GET" {
        return marked(rendered(200, &events::protected_resource(&state.base)), request_id);
    }
    let segments: Vec<String> = asked.path.trim_start_matches('/').split('/').map(decoded).collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let outcome: Option<Outcome> = match Bearer::find(&state.store, asked.bearer).await {
        Err(refusal) if segments.first() == Some(&"v1") => Some(Err(refusal)),
        Err(_) => None,
        Ok(bearer) => route(state, &bearer, asked, &segments).await,
    };
    let Some(outcome) = outcome else {
        let body = json!({
            "message": format!("Route {}:{} not found", asked.method, asked.path), "error": "Not Found", "statusCode": 404,
        });
        return rendered(404, &body);
    };
    let metadata = format!("{}/.well-known/oauth-protected-resource", state.base);
    let response = match outcome {
        Ok(Answer { status: 204, .. }) => {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Ok(Answer { status, mut body }) => {
            finish(&mut body, asked.target);
            rendered(status, &body)
        }
        Err(refusal) if refusal.status == 401 => {
            let next = "Fetch error.resource_metadata and request a scoped client grant.";
            let refusal = refusal.with("resource_metadata", json!(metadata)).with("next_step", json!(next));
            let mut response = rendered(401, &refusal.body(request_id));
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            if let Ok(value) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert("www-authenticate", value);
            }
            response
        }
        Err(refusal) => rendered(refusal.status, &refusal.body(request_id)),
    };
    marked(response, request_id)
}

async fn route(state: &State, bearer: &Bearer, asked: &Asked<'_>, segments: &[&str]) -> Option<Outcome> {
    let query = asked.query;
    Some(match (asked.method, segments) {
        ("GET", ["v1", "schema"]) => schema::answer(state, bearer, query).await,
        ("GET", ["v1", "streams", stream, "records"]) => records::page(state, bearer, stream, query).await,
        ("GET", ["v1", "streams", stream, "records", id]) => {
            records::one(state, bearer, stream, id, query).await
        }
        ("GET", ["v1", "streams", stream, "records", id, "field-window"]) => {
            window::answer(state, bearer, stream, id, query).await
        }
        ("GET", ["v1", "streams", stream, "aggregate"]) => {
            aggregate::answer(state, bearer, stream, query).await
        }
        ("GET", ["v1", "search"]) => search::answer(state, bearer, search::Way::Lexical, query).await,
        ("GET", ["v1", "search", "semantic"]) => {
            search::answer(state, bearer, search::Way::Semantic, query).await
        }
        ("GET", ["v1", "search", "hybrid"]) => {
            search::answer(state, bearer, search::Way::Hybrid, query).await
        }
        (method, ["v1", "event-subscriptions", rest @ ..]) => {
            return events::answer(state, bearer, method, rest, asked.body).await;
        }
        _ => return None,
    })
}

/// Links and an empty meta, where the endpoint has not said more.
fn finish(body: &mut Value, target: &str) {
    let Some(object) = body.as_object_mut().filter(|object| object.contains_key("object")) else { return };
    let next = object.remove("__next");
    let mut links = json!({"self": target});
    if let Some(next) = next {
        links["next"] = match next.as_str() {
            Some(cursor) => {
                let base: Vec<&str> = target.split('&').filter(|part| !part.starts_with("cursor=")).collect();
                json!(format!("{}&cursor={cursor}", base.join("&")))
            }
            None => Value::Null,
        };
    }
    object.insert("links".into(), links);
    let meta = object.entry("meta").or_insert_with(|| json!({}));
    if meta.get("count").is_none() {
        meta["count"] = json!({"kind": "none"});
    }
    if meta.get("warnings").is_none() {
        meta["warnings"] = json!([]);
    }
}

async fn struck_by(fault: &Fault) -> Result<Response<Full<Bytes>>, Reset> {
    let html = "<html><body><h1>Bad gateway</h1></body></html>";
    let plain = |status: u16, kind: &'static str, body: Bytes| {
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    match fault.kind {
        Kind::Hang => {
            tokio::time::sleep(Duration::from_millis(fault.delay_ms.unwrap_or(120_000))).await;
            Err(Reset)
        }
        Kind::Reset | Kind::Truncate => Err(Reset),
        Kind::BadJson => Ok(plain(200, "application/json", Bytes::from_static(b"{\"object\": \"sch"))),
        Kind::Html => Ok(plain(fault.status.unwrap_or(200), "text/html", html.into())),
        Kind::Large => {
            let filler = "x".repeat(fault.body_bytes.unwrap_or(2 << 20));
            Ok(plain(
                200,
                "application/json",
                json!({"object": "schema", "filler": filler}).to_string().into(),
            ))
        }
        Kind::Redirect => {
            let mut response = plain(302, "text/html", Bytes::new());
            let location = fault.location.as_deref().unwrap_or("/v1/elsewhere");
            if let Ok(value) = HeaderValue::from_str(location) {
                response.headers_mut().insert("location", value);
            }
            Ok(response)
        }
        Kind::Status | Kind::Slow => {
            let status = fault.status.unwrap_or(503);
            let refusal = Refusal::new(status, "fault", "failing on demand");
            Ok(plain(status, "application/json", refusal.body("req_fault").to_string().into()))
        }
    }
}

fn marked(mut response: Response<Full<Bytes>>, request_id: &str) -> Response<Full<Bytes>> {
    if let Ok(id) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert("request-id", id);
    }
    response.headers_mut().insert("pdpp-version", HeaderValue::from_static(VERSION));
    response
}

fn rendered(status: u16, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}

/// A path segment without percent encoding. A plus stays one.
fn decoded(segment: &str) -> String {
    let kept = segment.replace('+', "%2B");
    let text = format!("x={kept}");
    let pair = url::form_urlencoded::parse(text.as_bytes()).next();
    pair.map(|(_, value)| value.into_owned()).unwrap_or_default()
}
