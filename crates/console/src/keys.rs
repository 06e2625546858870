//! Operators' own security keys (GOV-104): enrolled by a link, listed, removed; and a login with one.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_core::{ErrorCode, Sha256Digest};
use portcullis_gateway::control::{Claimant, Credential};
use portcullis_gateway::{Control, ControlError};
use portcullis_governance::operator::Method;
use portcullis_governance::operator::ssh::request_digest;
use portcullis_governance::operator::webauthn::{ALGORITHMS, Assertion, Expected, Registration};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::Console;
use crate::admission::{LoggedIn, Signed, fields};
use crate::desk::text;
use crate::login::{Nothing, local_path};
use crate::page::{Frame, Message, assets_version, rendered};
use crate::session::Use;
use crate::visible::{self, Piece};

/// What a key signs to begin a session.
const LOGIN: &[u8] = b"login";

/// How a security key can be used on the page that asks.
pub(crate) enum KeyWay {
    /// `operator.auth` does not name them, or browsers could not use them.
    None,
    /// Here.
    Here,
    /// Not by the name that this page was opened with, but there.
    At(String),
}

struct Row {
    id: String,
    label: Vec<Piece>,
    added_at: String,
}

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage {
    frame: Frame,
    keys: Vec<Row>,
    way: KeyWay,
    problem: String,
}

#[derive(Template)]
#[template(path = "enrol.html")]
struct EnrolPage {
    version: &'static str,
}

impl Console {
    /// How a security key can be used on a page that was asked for with these headers.
    pub(crate) fn key_way(&self, headers: &HeaderMap, path: &str) -> KeyWay {
        let Ok(party) = self.control.relying_party() else { return KeyWay::None };
        let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
        match party.origin.split_once("://").is_some_and(|(_, ours)| ours == host) {
            true => KeyWay::Here,
            false => KeyWay::At(format!("{}{path}", party.origin)),
        }
    }
}

/// The operator's own keys.
pub(crate) async fn page(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    LoggedIn(session): LoggedIn,
) -> Response {
    let frame = console.frame(&session, "/keys").await;
    let users = match console.ask(&session, "users_list", json!({"limit": 500})).await {
        Ok(users) => users,
        Err(refused) => return refused.page(frame),
    };
    let own = users.rows().iter().find(|user| user["user_id"] == session.operator.name());
    let row = |key: &Value| Row {
        id: text(&key["id"]),
        label: visible::pieces(&text(&key["label"])),
        added_at: text(&key["added_at"]),
    };
    let keys = own.and_then(|user| user["passkeys"].as_array()).into_iter().flatten().map(row).collect();
    let problem = console.control.relying_party().err().map(|error| error.message).unwrap_or_default();
    rendered(&KeysPage { frame, keys, way: console.key_way(&headers, "/keys"), problem })
}

/// Makes a link for a key of the operator's own, and follows it.
pub(crate) async fn add(
    State(console): State<Arc<Console>>,
    Signed { session, form: Nothing {} }: Signed<Nothing>,
) -> Response {
    let frame = console.frame(&session, "/keys").await;
    let args = json!({
        "user_id": session.operator.name(), "passkey": true, "confirm": true, "reason": "a security key of my own",
    });
    let invited = match console.ask(&session, "users_enrol", args).await {
        Ok(answer) => answer.data,
        Err(refused) => return refused.page(frame),
    };
    match console.control.fetch_key(&session.operator, &text(&invited["capture_id"])) {
        Ok(link) => Redirect::to(link.expose()).into_response(),
        // ADM-54: nothing has happened yet.
        Err(_) => {
            Message::new(frame, "Not yet", "Another operator must agree first.").with(StatusCode::ACCEPTED)
        }
    }
}

/// Which key is to go, and why.
#[derive(Debug, Deserialize)]
pub(crate) struct Removing {
    id: String,
    reason: String,
}

/// Removes one of the operator's own keys.
pub(crate) async fn remove(
    State(console): State<Arc<Console>>,
    Signed { session, form }: Signed<Removing>,
) -> Response {
    let args = json!({
        "user_id": session.operator.name(), "passkey": form.id, "confirm": true, "reason": form.reason,
    });
    match console.ask(&session, "users_remove_passkey", args).await {
        Ok(_) => Redirect::to("/keys").into_response(),
        Err(refused) => refused.page(console.frame(&session, "/keys").await),
    }
}

/// Where a link leads: whoever has it enrols a key.
pub(crate) async fn enrol_page() -> Response {
    rendered(&EnrolPage { version: assets_version() })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Beginning {
    token: String,
}

/// What the browser needs to have a key made.
pub(crate) async fn begin_enrolment(State(console): State<Arc<Console>>, body: Bytes) -> Response {
    let Ok(Beginning { token }) = serde_json::from_slice(&body) else { return unreadable() };
    let found = console.control.invited(&token);
    let (invitation, party) = match found.and_then(|found| Ok((found, console.control.relying_party()?))) {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let known = console.control.operators().into_iter().find(|known| known.name == invitation.operator);
    let known: Vec<String> =
        known.iter().flat_map(|known| &known.passkeys).map(|key| key.id.as_str().to_owned()).collect();
    // The authenticator's own name for the account: it says nothing, and no two links share one.
    let user = Sha256Digest::of(format!("portcullis/passkey-user-v1\n{token}").as_bytes());
    Json(json!({
        "challenge": base64url(Control::enrolment_challenge(&token).as_bytes()), "rp_id": party.id,
        "user": base64url(user.as_bytes()), "name": invitation.operator, "algorithms": ALGORITHMS, "known": known,
    }))
    .into_response()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    token: String,
    label: String,
    client_data: String,
    attestation: String,
}

/// Enrols the key that was made.
pub(crate) async fn finish_enrolment(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let made = serde_json::from_slice::<Made>(&body);
    let Ok(Made { token, label, client_data, attestation }) = made else { return unreadable() };
    let registration = Registration { client_data, attestation };
    match console.control.enrol_passkey(&token, &label, &registration).await {
        Ok(enrolled) => {
            let next = if console.session(&headers, Use::Watches).is_some() { "/keys" } else { "/login" };
            Json(json!({"name": enrolled.name, "next": next})).into_response()
        }
        Err(error) => refused(&error),
    }
}

/// What a key is asked to sign, so that a session begins.
pub(crate) async fn begin_login(State(console): State<Arc<Console>>) -> Response {
    let party = match console.control.relying_party() {
        Ok(party) => party,
        Err(error) => return refused(&error),
    };
    let random = console.logins.give("", Instant::now());
    let challenge = request_digest(&random, "", LOGIN);
    Json(json!({"random": random, "challenge": base64url(challenge.as_bytes()), "rp_id": party.id}))
        .into_response()
}

/// A key signed: a session begins, or it does not. Whose key it is says who it is.
pub(crate) async fn log_in(State(console): State<Arc<Console>>, headers: HeaderMap, body: Bytes) -> Response {
    let fields = fields(&body);
    let field = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
    let next = local_path(field("next"));
    let proved = match serde_json::from_str::<Assertion>(field("passkey")) {
        Ok(assertion) => {
            let passkey = assertion.id.clone();
            match console.control.relying_party() {
                Ok(party) => {
                    let random = field("passkey_challenge");
                    let challenge = match console.logins.take(random, "", Instant::now()) {
                        true => request_digest(random, "", LOGIN),
                        false => Sha256Digest::of(b""),
                    };
                    let expected = Expected { party, challenge };
                    let credential = Some((String::new(), Credential::Passkey { expected, assertion }));
                    let claimant = Claimant { channel: Method::Webauthn, user: String::new(), credential };
                    console.control.authenticate(claimant, false).await.map(|proof| (proof, passkey))
                }
                Err(error) => Err(error),
            }
        }
        Err(_) => {
            Err(ControlError::new(ErrorCode::OperatorAuth, "the browser sent no answer of a security key"))
        }
    };
    match proved {
        Ok((proof, passkey)) => console.begin_session(proof, Some(passkey), next),
        Err(error) => {
            let mut page = console.login_page(&headers, next, "", &error.message);
            *page.status_mut() = StatusCode::UNAUTHORIZED;
            page
        }
    }
}

fn unreadable() -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"error": "not what this page sends"}))).into_response()
}

fn refused(error: &ControlError) -> Response {
    let status = match error.code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::OperatorAuth => StatusCode::UNAUTHORIZED,
        ErrorCode::Conflict => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, Json(json!({"error": error.message}))).into_response()
}

/// Bytes as scripts take them.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
