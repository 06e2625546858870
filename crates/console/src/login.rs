//! How a session begins and ends (GOV-104).

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use portcullis_core::Secret;
use portcullis_gateway::control::{Claimant, Credential};
use portcullis_governance::operator::webauthn::CredentialId;
use portcullis_governance::operator::{Method, OperatorProof};
use serde::Deserialize;

use crate::Console;
use crate::admission::{Signed, fields, login_at};
use crate::keys::KeyWay;
use crate::page::{assets_version, rendered};
use crate::session::Use;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    version: &'a str,
    next: &'a str,
    name: &'a str,
    problem: &'a str,
    /// The command to run first, if nobody can log in yet.
    enrol: Option<&'a str>,
    /// Whether a passphrase opens anything.
    passphrase: bool,
    /// Whether a security key does, here.
    key: KeyWay,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    next: String,
}

/// The login page.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Response {
    let next = local_path(&wanted.next);
    if console.session(&headers, Use::Watches).is_some() {
        return Redirect::to(next).into_response();
    }
    console.login_page(&headers, next, "", "")
}

/// A name and a passphrase: a session begins, or it does not.
pub(crate) async fn begin(State(console): State<Arc<Console>>, headers: HeaderMap, body: Bytes) -> Response {
    let mut fields = fields(&body);
    let mut field = |name: &str| match fields.remove(name) {
        Some(serde_json::Value::String(text)) => text,
        _ => String::new(),
    };
    let (name, next, passphrase) = (field("name"), field("next"), Secret::new(field("passphrase")));
    let next = local_path(&next);
    let credential = Some((name.clone(), Credential::Passphrase(passphrase)));
    let claimant = Claimant { channel: Method::Passphrase, user: name.clone(), credential };
    let proof = match console.control.authenticate(claimant, false).await {
        Ok(proof) => proof,
        Err(error) => {
            let mut page = console.login_page(&headers, next, &name, &error.message);
            *page.status_mut() = StatusCode::UNAUTHORIZED;
            return page;
        }
    };
    console.begin_session(proof, None, next)
}

#[derive(Debug, Deserialize)]
pub(crate) struct Nothing {}

/// Ends the session.
pub(crate) async fn end(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    Signed { session, form: Nothing {} }: Signed<Nothing>,
) -> Response {
    tracing::info!(operator = session.operator.name(), "logged out of the console");
    if let Some(cookie) = console.cookie_of(&headers) {
        console.sessions.end(&cookie);
    }
    let mut response = Redirect::to("/login").into_response();
    set_cookie(&console, &mut response, "", 0);
    response
}

impl Console {
    /// A session of an operator who has proved itself, with the key it did so with, if it was one.
    pub(crate) fn begin_session(
        &self,
        proof: OperatorProof,
        passkey: Option<CredentialId>,
        next: &str,
    ) -> Response {
        let enrolled = self.control.operators().into_iter().find(|operator| operator.name == proof.name());
        let Some(enrolled) = enrolled else {
            return Redirect::to("/login").into_response();
        };
        let cookie = self.sessions.begin(proof, enrolled.enrolled_at, passkey, Instant::now());
        let whole = self.sessions.life().whole.as_secs();
        let mut response = Redirect::to(next).into_response();
        set_cookie(self, &mut response, cookie.expose(), whole);
        response
    }

    pub(crate) fn login_page(&self, headers: &HeaderMap, next: &str, name: &str, problem: &str) -> Response {
        let nobody = self.control.operators().is_empty();
        let passphrase = self.control.takes(Method::Passphrase);
        let command = format!("{}{}", self.enrol, if passphrase { "" } else { " --passkey" });
        let enrol = nobody.then_some(command.as_str());
        let key = self.key_way(headers, &login_at(next));
        rendered(&LoginPage { version: assets_version(), next, name, problem, enrol, passphrase, key })
    }
}

fn set_cookie(console: &Console, response: &mut Response, value: &str, seconds: u64) {
    let name = console.place.cookie();
    let secure = if console.place.is_secure() { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(value) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
}

/// Where to go after the login: a path of ours, never another site, however it is spelt.
pub(crate) fn local_path(next: &str) -> &str {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.?=&%:,".contains(&b);
    let ours = next.starts_with('/') && !next.starts_with("//") && next.bytes().all(plain);
    if ours { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::local_path;

    #[test]
    fn a_login_never_leads_to_another_site() {
        for path in ["/", "/approvals/0f3a", "/calls?page=2&state=denied"] {
            assert_eq!(local_path(path), path);
        }
        for foreign in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "evil",
            "/a\r\nSet-Cookie: x",
            "/\t/evil",
        ] {
            assert_eq!(local_path(foreign), "/", "{foreign:?}");
        }
    }
}
