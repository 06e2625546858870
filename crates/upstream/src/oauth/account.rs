//! The grant of one connection: shown with every request, renewed before its time, and once when it is refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use portcullis_core::{ServerIdentity, Timestamp};
use portcullis_governance::broker::Broker;
use portcullis_governance::broker::grant::Grant;
use portcullis_sandbox::broker::Secret;
use tokio::sync::OnceCell;
use url::Url;

use super::dpop::Dpop;
use super::signing::SigningKey;
use super::{covers, tokens};
use crate::web::Web;

const PROOF: HeaderName = HeaderName::from_static("dpop");
/// A token that ends this soon is renewed now.
const SOON: u64 = 30;

/// What goes into the headers of one request.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) authorization: HeaderValue,
    /// That we have the key of the token, where it is bound to one.
    pub(crate) proof: Option<HeaderValue>,
}

impl Shown {
    pub(crate) fn put(self, headers: &mut HeaderMap) {
        headers.insert(AUTHORIZATION, self.authorization);
        if let Some(proof) = self.proof {
            headers.insert(PROOF, proof);
        }
    }
}

/// What one server is shown of us.
#[derive(Debug)]
pub(crate) struct Account {
    server: ServerIdentity,
    url: Url,
    broker: Arc<Broker>,
    web: OnceCell<Web>,
    current: Mutex<Option<Current>>,
    renewing: tokio::sync::Mutex<()>,
}

struct Current {
    /// Which version of the grant it is of.
    id: String,
    header: HeaderValue,
    /// The key that the token is bound to.
    dpop: Option<Dpop>,
    scope: Option<String>,
    expires_at: Option<u64>,
    /// The token, to look for in what comes back.
    token: Arc<Secret>,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Account {
    pub(crate) fn new(server: &ServerIdentity, url: &Url, broker: Arc<Broker>) -> Self {
        Self {
            server: server.clone(),
            url: url.clone(),
            broker,
            web: OnceCell::new(),
            current: Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        }
    }

    /// Sees to it that what is shown is good, as far as that is known: another login may have happened meanwhile, or time
    /// may have passed. A server without a grant is shown nothing.
    pub(crate) async fn prepare(&self) {
        let Some(handle) = self.broker.grant_handle(self.server.as_str()) else {
            self.lock().take();
            return;
        };
        let (known, ends) = match &*self.lock() {
            Some(current) => (current.id == handle.id, current.expires_at),
            None => (false, None),
        };
        let fading = |ends: Option<u64>| ends.is_some_and(|ends| ends <= tokens::now() + SOON);
        if known && !fading(ends) {
            return;
        }
        let _one_at_a_time = self.renewing.lock().await;
        if !known
            && let Some(grant) = self.load()
            && !fading(grant.expires_at)
        {
            return;
        }
        if fading(self.lock().as_ref().and_then(|current| current.expires_at)) {
            self.renew().await;
        }
    }

    /// What is shown now, with a request of this method: a proof is made for each.
    pub(crate) fn shown(&self, method: &Method) -> Option<Shown> {
        self.shown_at(method, &self.url)
    }

    /// The same, at an address of the server's other than its own.
    pub(crate) fn shown_at(&self, method: &Method, url: &Url) -> Option<Shown> {
        let current = self.lock();
        let current = current.as_ref()?;
        let proof = current.dpop.as_ref().and_then(|dpop| {
            let token = std::str::from_utf8(current.token.expose()).ok()?;
            let proof = dpop.proof(method.as_str(), url, Some(token)).ok()?;
            HeaderValue::from_str(&proof).ok()
        });
        Some(Shown { authorization: current.header.clone(), proof })
    }

    fn header(&self) -> Option<HeaderValue> {
        self.lock().as_ref().map(|current| current.header.clone())
    }

    /// The token that is shown, to look for in what comes back.
    pub(crate) fn token(&self) -> Option<Arc<Secret>> {
        self.lock().as_ref().map(|current| Arc::clone(&current.token))
    }

    /// What a server says about the proofs it wants. True if it is something new.
    pub(crate) fn told(&self, headers: &HeaderMap) -> bool {
        let nonce = headers.get("dpop-nonce").and_then(|nonce| nonce.to_str().ok());
        let current = self.lock();
        let dpop = current.as_ref().and_then(|current| current.dpop.as_ref());
        dpop.zip(nonce).is_some_and(|(dpop, nonce)| dpop.told(nonce))
    }

    /// The server refused what it was shown. True if there is something else to show.
    pub(crate) async fn refused(&self, shown: Option<&HeaderValue>) -> bool {
        let _one_at_a_time = self.renewing.lock().await;
        // Whoever waited for this may find it done.
        if self.header().as_ref() != shown {
            return self.header().is_some();
        }
        self.lock().is_some() && self.renew().await
    }

    /// What a login must ask for so that this is covered too: what it covers already, and what the server wants besides.
    pub(crate) fn with_scope(&self, wanted: &str) -> Option<String> {
        let current = self.lock();
        let covered = current.as_ref().and_then(|current| current.scope.clone()).unwrap_or_default();
        drop(current);
        scopes_joined(&covered, wanted)
    }

    /// Takes the grant out of the vault, if it is for this server.
    fn load(&self) -> Option<Grant> {
        let (handle, grant) = self.broker.grant(self.server.as_str()).ok()?;
        if !covers(&grant.resource, &self.url) {
            tracing::warn!(server = %self.server, "the login is for another address than the server's; log in again");
            self.lock().take();
            return None;
        }
        self.keep(handle.id, &grant);
        Some(grant)
    }

    async fn renew(&self) -> bool {
        let Ok((_, grant)) = self.broker.grant(self.server.as_str()) else { return false };
        let web = self.web.get_or_init(|| Web::toward(&self.url)).await;
        let renewed = match tokens::renew(web, &grant).await {
            Ok(renewed) => renewed,
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "the login cannot be renewed; `portcullis auth login` makes another");
                return false;
            }
        };
        let now = Timestamp::from_millis(tokens::now().saturating_mul(1_000));
        match self.broker.renewed(self.server.as_str(), &renewed, now) {
            Ok(handle) => {
                self.keep(handle.id, &renewed);
                true
            }
            Err(error) => {
                tracing::error!(server = %self.server, %error, "a renewed login could not be kept");
                false
            }
        }
    }

    fn keep(&self, id: String, grant: &Grant) {
        let key = grant.dpop_key.as_deref().map(SigningKey::kept).transpose();
        let scheme = if grant.dpop_key.is_some() { "DPoP" } else { "Bearer" };
        let header = HeaderValue::from_str(&format!("{scheme} {}", grant.access_token));
        let token = Secret::take(grant.access_token.clone().into_bytes());
        let (Ok(mut header), Ok(token), Ok(key)) = (header, token, key) else {
            self.lock().take();
            return;
        };
        header.set_sensitive(true);
        let token = Arc::new(token);
        let (dpop, scope) = (key.map(Dpop::new), grant.scope.clone());
        *self.lock() = Some(Current { id, header, dpop, scope, expires_at: grant.expires_at, token });
    }

    fn lock(&self) -> MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Scopes of RFC 6749, each once, in the order they came; nothing if one of them is none. They are shown to people, so
/// that what could be more than a name there is not taken for one.
fn scopes_joined(covered: &str, wanted: &str) -> Option<String> {
    let plain = |scope: &str| {
        scope.len() <= 128
            && scope.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\'`$&<>".contains(&byte))
    };
    let mut joined: Vec<&str> = Vec::new();
    for scope in covered.split(' ').chain(wanted.split(' ')).filter(|scope| !scope.is_empty()) {
        if !plain(scope) {
            return None;
        }
        if !joined.contains(&scope) {
            joined.push(scope);
        }
    }
    (!joined.is_empty() && joined.len() <= 64).then(|| joined.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_anew_covers_what_was_covered() {
        // PRO-35: SEP-2350
        assert_eq!(scopes_joined("a b", "b c").as_deref(), Some("a b c"));
        assert_eq!(scopes_joined("", "c").as_deref(), Some("c"));
        for bad in ["", "a; rm -rf '/'", "`id`", "$(id)", "\u{202e}x"] {
            assert_eq!(scopes_joined("", bad), None, "{bad}");
        }
    }
}
