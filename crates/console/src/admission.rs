//! Who may see a page, and whose form it is: extractors, so that a handler cannot forget to ask.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use portcullis_admin::Actor;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::Console;
use crate::confirmation::Sent;
use crate::page::{Frame, Message};
use crate::session::{Session, Use};

/// An operator who is logged in.
#[derive(Debug)]
pub(crate) struct LoggedIn(pub(crate) Session);

impl FromRequestParts<Arc<Console>> for LoggedIn {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, console: &Arc<Console>) -> Result<Self, Response> {
        let usage = if is_live(&parts.headers) { Use::Watches } else { Use::Acts };
        match console.session(&parts.headers, usage) {
            Some(session) => Ok(Self(session)),
            None => Err(stranger(&parts.headers, &parts.uri)),
        }
    }
}

/// A form that a page of this session wrote, and nobody else.
#[derive(Debug)]
pub(crate) struct Signed<T> {
    pub(crate) session: Session,
    pub(crate) form: T,
}

impl<T: DeserializeOwned> FromRequest<Arc<Console>> for Signed<T> {
    type Rejection = Response;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let LoggedIn(session) = LoggedIn::from_request_parts(&mut parts, console).await?;
        let path = parts.uri.path().to_owned();
        let request = Request::from_parts(parts, body);
        let bytes = Bytes::from_request(request, console).await.map_err(IntoResponse::into_response)?;
        let fields = fields(&bytes);
        let token = fields.get("csrf").and_then(Value::as_str).unwrap_or_default();
        if !session.wrote(token) {
            let message = "This form is not of your session. Go back, reload the page and try again.";
            return Err(
                Message::new(Frame::of(&session, ""), "Not taken", message).with(StatusCode::FORBIDDEN)
            );
        }
        let (sent, signature) = Sent::new(&path, fields.clone());
        let session = match console.confirmed(session.clone(), sent, signature).await {
            Ok(session) => session,
            Err(error) => {
                return Err(Message::new(Frame::of(&session, ""), "Not taken", &error.message)
                    .with(StatusCode::UNAUTHORIZED));
            }
        };
        match serde_json::from_value(Value::Object(fields)) {
            Ok(form) => Ok(Self { session, form }),
            Err(error) => Err(Message::new(Frame::of(&session, ""), "Not understood", &error.to_string())
                .with(StatusCode::BAD_REQUEST)),
        }
    }
}

/// The fields of a form; of equal names the last one counts.
pub(crate) fn fields(body: &[u8]) -> Map<String, Value> {
    url::form_urlencoded::parse(body)
        .map(|(name, value)| (name.into_owned(), Value::String(value.into_owned())))
        .collect()
}

impl Console {
    /// The session of a request, if its operator is still the one who logged in.
    pub(crate) fn session(&self, headers: &HeaderMap, usage: Use) -> Option<Session> {
        let cookie = self.cookie_of(headers)?;
        let session = self.sessions.find(&cookie, usage, Instant::now())?;
        let enrolled = self.control.operators().into_iter().any(|operator| {
            operator.name == session.operator.name()
                && operator.enrolled_at == session.enrolled_at
                && session.passkey.as_ref().is_none_or(|id| operator.passkeys.iter().any(|key| key.id == *id))
        });
        if !enrolled {
            self.sessions.end(&cookie);
            return None;
        }
        Some(session)
    }

    /// What the session's cookie says.
    pub(crate) fn cookie_of(&self, headers: &HeaderMap) -> Option<String> {
        let name = self.place.cookie();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    }
}

/// Lets pages of a session use the admin tools over HTTP (ADM-2): who sends the session's cookie and, in
/// `X-CSRF-Token`, its token is its operator. Whoever does not is left to what comes behind.
pub async fn admit(State(console): State<Arc<Console>>, mut request: Request, next: Next) -> Response {
    let token =
        request.headers().get("x-csrf-token").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let session = console.session(request.headers(), Use::Acts).filter(|session| session.wrote(token));
    if let Some(session) = session.filter(|_| !request.headers().contains_key(header::AUTHORIZATION)) {
        let (operator, signed) = match console.signed_request(session, request).await {
            Ok(signed) => signed,
            Err(refused) => return refused,
        };
        request = signed;
        request.extensions_mut().insert(Actor::operator(operator));
    }
    next.run(request).await
}

/// Whether the page asks by itself, because something changed.
pub(crate) fn is_live(headers: &HeaderMap) -> bool {
    headers.get(HeaderName::from_static("hx-request")).is_some()
}

/// To the login page, and back here afterwards.
fn stranger(headers: &HeaderMap, uri: &Uri) -> Response {
    if is_live(headers) {
        // The page itself goes to the login, not the part of it that asked.
        let mut response = StatusCode::UNAUTHORIZED.into_response();
        let current = HeaderName::from_static("hx-current-url");
        let current = headers.get(current).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let path = url::Url::parse(current).map(|url| url.path().to_owned()).unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&login_at(&path)) {
            response.headers_mut().insert(HeaderName::from_static("hx-redirect"), value);
        }
        return response;
    }
    Redirect::to(&login_at(uri.path_and_query().map_or("/", |path| path.as_str()))).into_response()
}

/// The login page that leads back to `path`.
pub(crate) fn login_at(path: &str) -> String {
    match path {
        "" | "/" => "/login".to_owned(),
        path => {
            let next: String = url::form_urlencoded::byte_serialize(path.as_bytes()).collect();
            format!("/login?next={next}")
        }
    }
}
