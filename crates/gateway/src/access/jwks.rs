//! An issuer's keys: fetched when first needed, kept a while, fetched again when a token names one we do not have.

use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};
use portcullis_upstream::web::{Web, WebError};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::Refusal;

/// After this the keys are fetched again: a key that the issuer withdrew counts no longer.
const KEPT: Duration = Duration::from_secs(600);
/// Not more often than this, whatever tokens name: strangers must not make us hammer at the issuer's door.
const FETCHES: u32 = 5;
const WINDOW: Duration = Duration::from_secs(60);
/// Keys that cannot be renewed are used no longer than this.
const STALE: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Jwks {
    issuer: String,
    url: Option<Url>,
    web: Web,
    // Held while fetching, so that a burst of requests fetches once.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    url: Option<Url>,
    keys: Option<(JwkSet, Instant)>,
    /// When counting began, and how often we fetched since.
    fetched: Option<(Instant, u32)>,
}

impl State {
    fn may_fetch(&mut self) -> bool {
        let (since, count) =
            self.fetched.filter(|(since, _)| since.elapsed() < WINDOW).unwrap_or((Instant::now(), 0));
        self.fetched = Some((since, count + 1));
        count < FETCHES
    }
}

#[derive(Deserialize)]
struct IssuerMetadata {
    issuer: String,
    jwks_uri: Url,
}

impl Jwks {
    pub(super) fn new(issuer: String, url: Option<Url>) -> Self {
        Self { issuer, url, web: Web::default(), state: Mutex::default() }
    }

    /// The key a token names, fetched again if it is not known.
    pub(super) async fn key(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, Refusal> {
        let mut state = self.state.lock().await;
        let fresh = |at: &Instant, limit| at.elapsed() < limit;
        let known = state.keys.as_ref().filter(|(_, at)| fresh(at, KEPT));
        if let Some(key) = known.and_then(|(keys, _)| find(keys, kid, algorithm)) {
            return Ok(key);
        }
        if state.may_fetch() {
            match self.fetch(&mut state).await {
                Ok(keys) => state.keys = Some((keys, Instant::now())),
                Err(error) => tracing::warn!(%error, "the keys of the token issuer cannot be fetched"),
            }
        }
        let usable = state.keys.as_ref().filter(|(_, at)| fresh(at, STALE));
        let (keys, _) = usable.ok_or(Refusal::IssuerUnavailable)?;
        find(keys, kid, algorithm).ok_or(Refusal::InvalidCredential)
    }

    async fn fetch(&self, state: &mut State) -> Result<JwkSet, WebError> {
        let url = match self.url.as_ref().or(state.url.as_ref()) {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let keys = self.web.get(&url).await?;
        state.url = Some(url);
        Ok(keys)
    }

    /// RFC 8414, then OpenID Connect Discovery. The document must be the issuer's own.
    async fn discover(&self) -> Result<Url, WebError> {
        let malformed = || WebError::Malformed(portcullis_core::error::one_line(&self.issuer));
        let issuer = Url::parse(&self.issuer).map_err(|_| malformed())?;
        let path = issuer.path().trim_end_matches('/').to_owned();
        let at = |path: String| {
            let mut url = issuer.clone();
            url.set_path(&path);
            url
        };
        let places = [
            at(format!("/.well-known/oauth-authorization-server{path}")),
            at(format!("/.well-known/openid-configuration{path}")),
            at(format!("{path}/.well-known/openid-configuration")),
        ];
        let mut last = malformed();
        for place in &places {
            match self.web.get::<IssuerMetadata>(place).await {
                Ok(found) if found.issuer == self.issuer => return Ok(found.jwks_uri),
                Ok(_) => last = malformed(),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// The key with this id that may be used with this algorithm. Without an id: the only one there is.
fn find(keys: &JwkSet, kid: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let fits = |jwk: &&Jwk| {
        let named = kid.is_none() || jwk.common.key_id.as_deref() == kid;
        let stated = jwk.common.key_algorithm.as_ref().map(ToString::to_string);
        named && stated.is_none_or(|stated| stated == format!("{algorithm:?}"))
    };
    let mut fitting = keys.keys.iter().filter(fits).filter_map(|jwk| DecodingKey::from_jwk(jwk).ok());
    let first = fitting.next().filter(|key| key.family().algorithms().contains(&algorithm))?;
    (kid.is_some() || fitting.next().is_none()).then_some(first)
}
