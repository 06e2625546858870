//! In a session that began with a security key, each change is signed by that key (GOV-104).
//!
//! A form that changes something comes back once, with what was sent and a challenge; the page has the key sign it and
//! sends it again. The challenge is the digest of the form, as that operator's, so a signature is good for what was shown and
//! nothing else. Pages that use the admin tools over HTTP ask for a challenge first and send the signature in a header.

use std::sync::Arc;
use std::time::Instant;

use askama::Template;
use axum::Json;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method as HttpMethod, StatusCode};
use axum::response::{IntoResponse as _, Response};
use portcullis_admin::Class;
use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use portcullis_gateway::ControlError;
use portcullis_gateway::control::{Claimant, Credential};
use portcullis_governance::operator::ssh::request_digest;
use portcullis_governance::operator::webauthn::{Assertion, Expected};
use portcullis_governance::operator::{Method, OperatorProof};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Console;
use crate::keys::base64url;
use crate::page::{Frame, rendered};
use crate::session::{Session, Use};
use crate::visible::{self, Piece};

/// The largest request over HTTP: a declaration may be 16 MiB.
const LARGEST: usize = 20 << 20;

/// A form that was sent, for its operator's key to sign.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    path: String,
    fields: Map<String, Value>,
}

/// What a page sends beside a request that its key signed.
#[derive(Debug, Deserialize)]
pub(crate) struct Signature {
    challenge: String,
    passkey: Assertion,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    frame: Frame,
    path: String,
    fields: Vec<(String, String, Vec<Piece>)>,
    random: String,
    challenge: String,
    rp_id: String,
    passkey: String,
}

/// A form on its way to its operator's key.
#[derive(Debug)]
pub(crate) struct Unsigned {
    sent: Sent,
    random: String,
    challenge: Sha256Digest,
    rp_id: String,
    passkey: String,
}

impl Sent {
    /// Takes what the key signed out of the fields, if it did.
    pub(crate) fn new(path: &str, mut fields: Map<String, Value>) -> (Self, Option<Signature>) {
        let mut field = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let (challenge, passkey) = (field("passkey_challenge"), field("passkey"));
        let signature = challenge.zip(passkey.and_then(|text| serde_json::from_str(&text).ok()));
        let signature = signature.map(|(challenge, passkey)| Signature { challenge, passkey });
        fields.remove("csrf");
        (Self { path: path.to_owned(), fields }, signature)
    }

    /// What is signed. Browsers write the ends of lines in their own way when they send a form again.
    fn bytes(&self) -> Vec<u8> {
        let plain = |value: &Value| match value {
            Value::String(text) => json!(text.replace("\r\n", "\n").replace('\r', "\n")),
            other => other.clone(),
        };
        let fields: Map<String, Value> =
            self.fields.iter().map(|(name, value)| (name.clone(), plain(value))).collect();
        to_jcs(&json!({"fields": fields, "path": self.path})).unwrap_or_default()
    }
}

impl Unsigned {
    /// The page on which it is signed.
    pub(crate) fn page(&self, frame: Frame) -> Response {
        let shown = |(name, value): (&String, &Value)| {
            let text = value.as_str().unwrap_or_default();
            (name.clone(), text.to_owned(), visible::pieces(text))
        };
        rendered(&ConfirmPage {
            frame,
            path: self.sent.path.clone(),
            fields: self.sent.fields.iter().map(shown).collect(),
            random: self.random.clone(),
            challenge: base64url(self.challenge.as_bytes()),
            rp_id: self.rp_id.clone(),
            passkey: self.passkey.clone(),
        })
    }
}

impl Console {
    /// Whether a tool may not be called in this session before its key has signed that.
    pub(crate) fn wants_key(&self, session: &Session, tool: &str) -> bool {
        let reads = self.invoker.registry().get(tool).is_some_and(|tool| tool.class() == Class::Read);
        session.needs_key() && !reads
    }

    /// The form of this request, for the key to sign; `None` if there is none that could be.
    pub(crate) fn unsigned(&self, session: &Session) -> Option<Unsigned> {
        let (sent, passkey) = (session.sent.as_deref()?, session.passkey.as_ref()?);
        let (random, challenge) = self.challenge_for(session, &sent.bytes());
        let rp_id = self.control.relying_party().ok()?.id;
        let passkey = passkey.as_str().to_owned();
        Some(Unsigned { sent: sent.clone(), random, challenge, rp_id, passkey })
    }

    fn challenge_for(&self, session: &Session, request: &[u8]) -> (String, Sha256Digest) {
        let random = self.confirmations.give(session.csrf(), Instant::now());
        let challenge = request_digest(&random, session.operator.name(), request);
        (random, challenge)
    }

    /// The session in which its key has signed this form, or in which it has not signed anything.
    pub(crate) async fn confirmed(
        &self,
        mut session: Session,
        sent: Sent,
        signature: Option<Signature>,
    ) -> Result<Session, ControlError> {
        if let Some(signature) = signature.filter(|_| session.passkey.is_some()) {
            session.operator = self.signed(&session, &sent.bytes(), signature).await?;
            session.confirmed = true;
        }
        session.sent = Some(Arc::new(sent));
        Ok(session)
    }

    /// Proof that the session's own key signed these bytes, just now.
    async fn signed(
        &self,
        session: &Session,
        request: &[u8],
        Signature { challenge, passkey }: Signature,
    ) -> Result<OperatorProof, ControlError> {
        let party = self.control.relying_party()?;
        let name = session.operator.name().to_owned();
        // Somebody else's, an old one or one that was used: nothing that was signed fits.
        let given = self.confirmations.take(&challenge, session.csrf(), Instant::now());
        let own = session.passkey.as_ref() == Some(&passkey.id);
        let challenge = match given && own {
            true => request_digest(&challenge, &name, request),
            false => Sha256Digest::of(b""),
        };
        let expected = Expected { party, challenge };
        let credential = Some((name.clone(), Credential::Passkey { expected, assertion: passkey }));
        self.control.authenticate(Claimant { channel: Method::Webauthn, user: name, credential }, false).await
    }

    /// A request over HTTP whose body the session's key signed, if it had to.
    pub(crate) async fn signed_request(
        &self,
        session: Session,
        request: Request,
    ) -> Result<(OperatorProof, Request), Response> {
        let path = request.uri().path().to_owned();
        let free = match path.strip_prefix("/api/admin/") {
            Some(tool) => !self.wants_key(&session, tool),
            // Keys that wait are fetched with GET, and fetching takes them away.
            None => request.method() == HttpMethod::GET && !path.starts_with("/api/captures/"),
        };
        if free || !session.needs_key() {
            return Ok((session.operator, request));
        }
        let header = request.headers().get("x-passkey").and_then(|value| value.to_str().ok());
        let Some(signature) = header.and_then(|text| serde_json::from_str::<Signature>(text).ok()) else {
            let message = "this session began with a security key, which signs each change: send X-Passkey, in answer to \
                           POST /passkey/challenge";
            return Err(refused(StatusCode::UNAUTHORIZED, message));
        };
        let (parts, body) = request.into_parts();
        let Ok(bytes) = to_bytes(body, LARGEST).await else {
            return Err(refused(StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than 20 MiB"));
        };
        let text = over_http(&path, &Sha256Digest::of(&bytes));
        match self.signed(&session, text.as_bytes(), signature).await {
            Ok(operator) => Ok((operator, Request::from_parts(parts, Body::from(bytes)))),
            Err(error) => Err(refused(StatusCode::UNAUTHORIZED, &error.message)),
        }
    }
}

/// What is signed for a request over HTTP.
fn over_http(path: &str, body: &Sha256Digest) -> String {
    format!("{path}\n{body}")
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": message}))).into_response()
}

/// What a page wants to send.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    path: String,
    /// The digest of the body.
    sha256: Sha256Digest,
}

/// A challenge for a request over HTTP.
pub(crate) async fn challenge(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let token = headers.get("x-csrf-token").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let session = console.session(&headers, Use::Acts).filter(|session| session.wrote(token));
    let Some((session, passkey)) = session.and_then(|session| Some((session.clone(), session.passkey?)))
    else {
        return refused(
            StatusCode::UNAUTHORIZED,
            "only a session that began with a security key has one to ask",
        );
    };
    let Ok(Wanted { path, sha256 }) = serde_json::from_slice(&body) else {
        return refused(StatusCode::BAD_REQUEST, "send {\"path\": …, \"sha256\": digest of the body}");
    };
    let party = match console.control.relying_party() {
        Ok(party) => party,
        Err(error) => return refused(StatusCode::CONFLICT, &error.message),
    };
    let (random, challenge) = console.challenge_for(&session, over_http(&path, &sha256).as_bytes());
    Json(json!({
        "random": random, "challenge": base64url(challenge.as_bytes()), "rp_id": party.id, "allow": passkey.as_str(),
    }))
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_the_whole_form_however_lines_end() {
        // GOV-104
        let bytes = |path: &str, reason: &str, more: &[(&str, &str)]| {
            let mut fields = Map::new();
            fields.insert("reason".into(), json!(reason));
            fields.extend(more.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
            Sent::new(path, fields).0.bytes()
        };
        let signed = bytes("/approvals/1/approve", "a\r\nb", &[]);
        assert_eq!(signed, bytes("/approvals/1/approve", "a\nb", &[("csrf", "x")]));
        assert_eq!(signed, bytes("/approvals/1/approve", "a\nb", &[("passkey_challenge", "x")]));
        assert_ne!(signed, bytes("/approvals/2/approve", "a\nb", &[]));
        assert_ne!(signed, bytes("/approvals/1/approve", "a b", &[]));
        assert_ne!(signed, bytes("/approvals/1/approve", "a\nb", &[("scope", "session")]));
    }
}
