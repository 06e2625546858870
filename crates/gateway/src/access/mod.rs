//! Who may reach the edge over HTTP (PRO-34).
//!
//! An agent proves who it is with a key of ours ([`agent_keys`]) or with an access token of an issuer that the
//! operator named ([`bearer`]). Without proof it is the anonymous agent of this machine, if that is allowed at all.
//! The socket in the home folder needs none: only the gateway's own user can open it.
//!
//! # Invariants
//! - A credential that is presented and does not hold is refused; it never falls back to anonymous.
//! - The three kinds of principal cannot be taken for one another: `local` is nobody's key, and the names of token
//!   holders begin with `oauth.`, which no key's name does.
//! - Nothing of a credential leaves this module: not into an error, a record, a log or towards a server.

pub mod agent_keys;
mod bearer;
mod jwks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use http::header::AUTHORIZATION;
use portcullis_audit::{AuditLog, Event, EventName};
use portcullis_core::{Actor, Clock, Principal};
use portcullis_gauntlet::{CapMode, Capabilities, Grants};
use serde_json::{Value, json};
use url::Url;

use agent_keys::AgentKeys;
use bearer::Tokens;

use crate::separation::AgentUsers;

/// The one grant that stands for everything the accepted declarations offer (GNT-C11).
pub const DECLARED: &str = "declared";
/// How names of agents begin whose proof is an issuer's token.
pub const OAUTH_PREFIX: &str = "oauth.";

/// How agents prove who they are.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// What a grant without a scope is worth.
    pub mode: CapMode,
    /// Whether an agent without proof is refused.
    pub required: bool,
    /// The issuer whose access tokens count.
    pub oauth: Option<OAuthOptions>,
}

/// The gateway as an OAuth 2.1 resource server.
#[derive(Debug, Clone)]
pub struct OAuthOptions {
    /// Who issues the tokens, exactly as their `iss` says.
    pub issuer: String,
    /// Where agents reach this gateway; the audience a token must have been issued for.
    pub resource: Url,
    /// Where the issuer's keys are; found through its metadata if not given.
    pub jwks_url: Option<Url>,
    /// The scope a token must have.
    pub scope: Option<String>,
    /// The claim that names the agent.
    pub agent_claim: String,
    /// What agents with a token may do.
    pub grants: Vec<String>,
}

/// An agent that was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Who it is.
    pub principal: Principal,
}

/// Why an agent was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It proved nothing.
    NoCredential,
    /// What it presented does not hold.
    InvalidCredential,
    /// The token holds but lacks the scope.
    InsufficientScope,
    /// The issuer's keys cannot be had, so nothing can be said about the token.
    IssuerUnavailable,
}

/// The gate at the HTTP edge.
#[derive(Debug)]
pub struct Access {
    keys: Arc<AgentKeys>,
    tokens: Option<Tokens>,
    mode: CapMode,
    required: bool,
    anonymous: Principal,
    log: AuditLog,
    clock: Arc<dyn Clock>,
    /// Under which users agents run.
    users: AgentUsers,
    /// The second in which a refusal was last recorded.
    recorded: AtomicU64,
}

impl Access {
    pub(crate) fn new(
        options: AccessOptions,
        keys: Arc<AgentKeys>,
        anonymous: Principal,
        log: AuditLog,
        clock: Arc<dyn Clock>,
        users: AgentUsers,
    ) -> Self {
        let (tokens, mode) = (options.oauth.map(Tokens::new), options.mode);
        Self {
            keys,
            tokens,
            mode,
            required: options.required,
            anonymous,
            log,
            clock,
            users,
            recorded: AtomicU64::new(0),
        }
    }

    /// Who sends a request with these headers.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let admitted = self.examine(headers).await;
        if let Err(refusal) = admitted {
            self.record(refusal);
        }
        admitted
    }

    async fn examine(&self, headers: &HeaderMap) -> Result<Caller, Refusal> {
        let mut presented = headers.get_all(AUTHORIZATION).iter();
        let (first, second) = (presented.next(), presented.next());
        if second.is_some() {
            return Err(Refusal::InvalidCredential);
        }
        let token = first.map(|value| bearer_of(value.as_bytes()));
        match (token, &self.tokens) {
            (Some(Some(token)), _) if token.starts_with(agent_keys::PREFIX) => {
                let principal = self.keys.holder(token, self.clock.now());
                principal.map(|principal| Caller { principal }).ok_or(Refusal::InvalidCredential)
            }
            (Some(Some(token)), Some(tokens)) => {
                tokens.holder(token).await.map(|principal| Caller { principal })
            }
            // Something we issue nothing for and know no issuer of.
            (Some(_), _) if self.required => Err(Refusal::InvalidCredential),
            (None, _) if self.required => Err(Refusal::NoCredential),
            _ => Ok(Caller { principal: self.anonymous.clone() }),
        }
    }

    /// The same for the gate. Grants that cannot be understood grant nothing.
    pub fn granted(&self, principal: &Principal) -> Grants {
        let grants = self.grants_of(principal);
        if grants.iter().any(|grant| grant == DECLARED) {
            return Grants::Declared;
        }
        let parsed = Capabilities::parse(self.mode, grants.iter().map(String::as_str));
        Grants::Only(parsed.unwrap_or_default())
    }

    /// Under which users agents run (GOV-105).
    pub fn users(&self) -> &AgentUsers {
        &self.users
    }

    /// What a grant without a scope is worth.
    pub(crate) fn mode(&self) -> CapMode {
        self.mode
    }

    /// What the operator lets `principal` do at most; nothing for one that is no longer known.
    pub fn grants_of(&self, principal: &Principal) -> Vec<String> {
        if *principal == self.anonymous {
            return vec![DECLARED.into()];
        }
        if principal.name().starts_with(OAUTH_PREFIX) {
            return self.tokens.as_ref().map(|tokens| tokens.grants().to_vec()).unwrap_or_default();
        }
        self.keys.grants_of(principal, self.clock.now())
    }

    /// RFC 9728, if there is an issuer.
    pub(crate) fn metadata(&self) -> Option<Value> {
        let options = self.tokens.as_ref()?.options();
        let mut document = json!({
            "resource": options.resource,
            "authorization_servers": [options.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Portcullis",
        });
        if let Some(scope) = &options.scope {
            document["scopes_supported"] = json!([scope]);
        }
        Some(document)
    }

    /// The `WWW-Authenticate` of a refusal (RFC 6750, RFC 9728).
    pub(crate) fn challenge(&self, refusal: Refusal) -> String {
        let mut parts = Vec::new();
        match refusal {
            Refusal::InvalidCredential => parts.push(r#"error="invalid_token""#.to_owned()),
            Refusal::InsufficientScope => parts.push(r#"error="insufficient_scope""#.to_owned()),
            Refusal::NoCredential | Refusal::IssuerUnavailable => {}
        }
        match self.tokens.as_ref().map(Tokens::options) {
            Some(options) => {
                parts.push(format!(r#"resource_metadata="{}""#, metadata_url(&options.resource)));
                if let Some(scope) = &options.scope {
                    parts.push(format!(r#"scope="{scope}""#));
                }
            }
            None => parts.insert(0, r#"realm="portcullis""#.to_owned()),
        }
        format!("Bearer {}", parts.join(", "))
    }

    /// At most one record a second: whoever knocks at the door must not be able to fill the log.
    fn record(&self, refusal: Refusal) {
        let second = self.clock.now().as_millis() / 1000;
        if self.recorded.swap(second, Ordering::Relaxed) == second {
            return;
        }
        let event = Event::new(EventName::CredentialDenied, &Actor::system());
        let _ = self.log.append(vec![event.data(json!({"kind": "agent", "reason": refusal.as_str()}))]);
    }
}

impl Refusal {
    /// The word in records.
    fn as_str(self) -> &'static str {
        match self {
            Refusal::NoCredential => "no_credential",
            Refusal::InvalidCredential => "invalid_credential",
            Refusal::InsufficientScope => "insufficient_scope",
            Refusal::IssuerUnavailable => "issuer_unavailable",
        }
    }

    /// For the agent's user.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Refusal::NoCredential => {
                "this gateway wants a bearer token; `portcullis key create NAME` makes one"
            }
            Refusal::InvalidCredential => {
                "the credential is unknown, malformed, expired or meant for somebody else"
            }
            Refusal::InsufficientScope => "the token lacks the scope this gateway wants",
            Refusal::IssuerUnavailable => {
                "the token cannot be checked now: its issuer's keys cannot be fetched"
            }
        }
    }
}

/// The token of `Bearer …`.
fn bearer_of(value: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty()).then(|| token.trim())
}

/// RFC 9728, section 3.1: the well-known part goes between host and path.
fn metadata_url(resource: &Url) -> Url {
    let mut url = resource.clone();
    let path = resource.path().trim_end_matches('/').to_owned();
    url.set_path(&format!("{WELL_KNOWN}{path}"));
    url
}

/// Where the metadata of the resource is.
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_token_is_read_from_its_header_alone() {
        assert_eq!(bearer_of(b"Bearer abc"), Some("abc"));
        assert_eq!(bearer_of(b"bearer  abc "), Some("abc"));
        for bad in [&b"Basic abc"[..], b"Bearer", b"Bearer  ", b"", b"Bearer\xff x"] {
            assert_eq!(bearer_of(bad), None);
        }
    }

    #[test]
    fn the_metadata_lies_between_host_and_path() {
        let url = |text: &str| metadata_url(&text.parse().unwrap()).to_string();
        assert_eq!(
            url("https://gate.example.org/mcp"),
            "https://gate.example.org/.well-known/oauth-protected-resource/mcp"
        );
        assert_eq!(
            url("https://gate.example.org/"),
            "https://gate.example.org/.well-known/oauth-protected-resource"
        );
    }
}
