//! Whom a server trusts: RFC 9728 at the server, then RFC 8414 or OpenID Connect at the issuer it names.

use portcullis_core::name::printable;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{OAuthError, covers, reachable};
use crate::era::{LEGACY_REVISIONS, MODERN_REVISION};
use crate::web::{Web, WebError};

/// What is known of a server and its issuer.
#[derive(Debug, Clone)]
pub struct Discovered {
    /// The server's name for itself, which tokens are asked for.
    pub resource: String,
    /// What it wants covered, if it says.
    pub scope: Option<String>,
    /// Whether it wants tokens bound to a key (RFC 9449).
    pub dpop: bool,
    /// Who gives tokens for it.
    pub issuer: Issuer,
}

/// An issuer's metadata, as far as it is used here.
#[derive(Debug, Clone, Deserialize)]
pub struct Issuer {
    /// Who it is.
    pub issuer: String,
    /// Where people log in.
    #[serde(default)]
    pub authorization_endpoint: Option<Url>,
    /// Where tokens are got.
    pub token_endpoint: Url,
    /// Where clients register themselves.
    #[serde(default)]
    pub registration_endpoint: Option<Url>,
    /// How clients may prove themselves.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// What clients may sign with that show who they are.
    #[serde(default)]
    pub token_endpoint_auth_signing_alg_values_supported: Option<Vec<String>>,
    /// What keys may sign with that tokens are bound to.
    #[serde(default)]
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
    /// How codes may be bound to who asked for them.
    #[serde(default)]
    pub code_challenge_methods_supported: Option<Vec<String>>,
    /// What may be asked for.
    #[serde(default)]
    pub scopes_supported: Option<Vec<String>>,
    /// How tokens may be come by.
    #[serde(default)]
    pub grant_types_supported: Option<Vec<String>>,
    /// Whether it says who it is when it sends somebody back (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    /// Whether a client may be known by the address of a document about it.
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
}

/// RFC 9728.
#[derive(Debug, Deserialize)]
struct ProtectedResource {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
    #[serde(default)]
    dpop_bound_access_tokens_required: bool,
}

/// A `WWW-Authenticate: Bearer` challenge, or one of `DPoP`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) dpop: bool,
    pub(crate) resource_metadata: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) error: Option<String>,
}

impl Challenge {
    /// The first challenge of the kind that is understood here.
    pub(crate) fn read<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let understood = |text: &'a str| {
            let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
            let dpop = scheme.eq_ignore_ascii_case("dpop");
            (dpop || scheme.eq_ignore_ascii_case("bearer")).then_some((dpop, rest))
        };
        let (dpop, rest) = headers.into_iter().find_map(understood)?;
        let mut challenge = Self { dpop, ..Self::default() };
        for (name, value) in parameters(rest) {
            match name.as_str() {
                "resource_metadata" => challenge.resource_metadata = Some(value),
                "scope" => challenge.scope = Some(value),
                "error" => challenge.error = Some(value),
                _ => {}
            }
        }
        Some(challenge)
    }
}

/// `name="value", name=value`
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([',', ' ']).to_ascii_lowercase();
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name, value.trim().to_owned()));
        rest = next;
    }
    found
}

/// Asks a server whom it trusts.
pub async fn discover(web: &Web, server: &Url) -> Result<Discovered, OAuthError> {
    let (status, challenge) = challenged(web, server).await?;
    if status != 401 && challenge.is_none() && (200..300).contains(&status) {
        return Err(OAuthError::NotWanted);
    }
    let challenge = challenge.unwrap_or_default();
    let document = protected_resource(web, server, challenge.resource_metadata.as_deref()).await?;
    let bound = document.as_ref().is_some_and(|document| document.dpop_bound_access_tokens_required);
    let (resource, issuers, scopes) = match document {
        Some(document) => {
            if !covers(&document.resource, server) {
                let named = printable(&document.resource);
                return Err(OAuthError::refused(format!(
                    "the server's metadata is about {named}, not about it"
                )));
            }
            (document.resource, document.authorization_servers, document.scopes_supported)
        }
        // 2025-03-26: the server is its own issuer.
        None => (plain(server), Vec::new(), None),
    };
    let issuer = match issuers.first() {
        Some(issuer) => of_issuer(web, issuer).await?,
        None => of_the_server_itself(web, server).await?,
    };
    let supported = scopes.filter(|scopes| !scopes.is_empty()).map(|scopes| scopes.join(" "));
    let dpop = challenge.dpop || bound;
    Ok(Discovered { resource, scope: challenge.scope.or(supported), dpop, issuer })
}

/// Where an identity provider that an operator names exchanges tokens.
pub async fn token_endpoint_of(web: &Web, provider: &Url) -> Result<Url, OAuthError> {
    // An issuer's name is compared as it is written; URLs of hosts alone are mostly written without their slash.
    let written = provider.as_str();
    let names = [written.strip_suffix('/').filter(|_| provider.path() == "/"), Some(written)];
    let mut last = OAuthError::refused("the identity provider publishes no metadata");
    for name in names.into_iter().flatten() {
        match of_issuer(web, name).await {
            Ok(found) => return Ok(found.token_endpoint),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// What a server says to who shows nothing: to a question of the newest revision, or to a greeting of the older ones. Some
/// let everybody in who only says hello.
async fn challenged(web: &Web, server: &Url) -> Result<(u16, Option<Challenge>), OAuthError> {
    let client = json!({"name": "portcullis", "version": env!("CARGO_PKG_VERSION")});
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": MODERN_REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client,
    });
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let headers = [("MCP-Protocol-Version", MODERN_REVISION), ("Mcp-Method", "tools/list")];
    let (status, said) = web.challenge(server, &list, &headers).await?;
    let challenge = Challenge::read(said.iter().map(String::as_str));
    if status == 401 || challenge.is_some() {
        return Ok((status, challenge));
    }
    let params = json!({"protocolVersion": LEGACY_REVISIONS[0], "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let (status, said) = web.challenge(server, &hello, &[]).await?;
    Ok((status, Challenge::read(said.iter().map(String::as_str))))
}

/// The server's URL as a resource's name.
fn plain(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    url.set_query(None);
    url.to_string()
}

async fn protected_resource(
    web: &Web,
    server: &Url,
    named: Option<&str>,
) -> Result<Option<ProtectedResource>, OAuthError> {
    if let Some(named) = named {
        let malformed = || OAuthError::refused("the server's challenge names no URL");
        let url = Url::parse(named).map_err(|_| malformed())?;
        // What a server says of itself it says itself.
        if url.origin() != server.origin() {
            return Err(OAuthError::refused("the server's metadata is kept by somebody else"));
        }
        return Ok(Some(web.get(&url).await?));
    }
    let path = server.path().trim_end_matches('/');
    let mut places = vec![format!("/.well-known/oauth-protected-resource{path}")];
    if !path.is_empty() {
        places.push("/.well-known/oauth-protected-resource".into());
    }
    for place in places {
        match web.get(&at(server, &place)).await {
            Ok(document) => return Ok(Some(document)),
            Err(WebError::Status { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn at(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

async fn of_issuer(web: &Web, issuer: &str) -> Result<Issuer, OAuthError> {
    let url =
        Url::parse(issuer).map_err(|_| OAuthError::refused("the server names an issuer that is no URL"))?;
    reachable(web, &url)?;
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    let mut last = OAuthError::refused("the issuer publishes no metadata");
    for place in places {
        match web.get::<Issuer>(&at(&url, &place)).await {
            // RFC 8414 section 3.3: exactly.
            Ok(found) if found.issuer == issuer => return checked(web, found),
            Ok(found) => {
                let named = printable(&found.issuer);
                return Err(OAuthError::refused(format!(
                    "the issuer's metadata is about {named}, not about it"
                )));
            }
            Err(WebError::Status { .. }) => {}
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

/// 2025-03-26: metadata at the server's origin, or the addresses that are usual.
async fn of_the_server_itself(web: &Web, server: &Url) -> Result<Issuer, OAuthError> {
    let origin = server.origin().ascii_serialization();
    match web.get::<Issuer>(&at(server, "/.well-known/oauth-authorization-server")).await {
        Ok(found) if found.issuer.trim_end_matches('/') == origin => return checked(web, found),
        Ok(found) => {
            let named = printable(&found.issuer);
            return Err(OAuthError::refused(format!("the issuer's metadata is about {named}, not about it")));
        }
        Err(WebError::Status { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(Issuer {
        issuer: origin,
        authorization_endpoint: Some(at(server, "/authorize")),
        token_endpoint: at(server, "/token"),
        registration_endpoint: Some(at(server, "/register")),
        token_endpoint_auth_methods_supported: None,
        token_endpoint_auth_signing_alg_values_supported: None,
        dpop_signing_alg_values_supported: None,
        code_challenge_methods_supported: Some(vec!["S256".into()]),
        scopes_supported: None,
        grant_types_supported: None,
        authorization_response_iss_parameter_supported: false,
        client_id_metadata_document_supported: false,
    })
}

fn checked(web: &Web, issuer: Issuer) -> Result<Issuer, OAuthError> {
    let endpoints = [
        issuer.authorization_endpoint.as_ref(),
        Some(&issuer.token_endpoint),
        issuer.registration_endpoint.as_ref(),
    ];
    for endpoint in endpoints.into_iter().flatten() {
        reachable(web, endpoint)?;
    }
    Ok(issuer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_read_as_it_is_written_in_the_field() {
        let read = |text: &str| Challenge::read([text]);
        let full = read(
            r#"Bearer realm="x", resource_metadata="https://a/b?c=d", scope="one two", error="insufficient_scope""#,
        );
        let full = full.unwrap();
        assert_eq!(full.resource_metadata.as_deref(), Some("https://a/b?c=d"));
        assert_eq!(
            (full.scope.as_deref(), full.error.as_deref()),
            (Some("one two"), Some("insufficient_scope"))
        );
        assert_eq!(read("bearer scope=read").unwrap().scope.as_deref(), Some("read"));
        assert_eq!(read("Bearer").unwrap(), Challenge::default());
        assert_eq!(read("Basic realm=\"x\""), None);
        let dpop = read(r#"DPoP error="use_dpop_nonce", resource_metadata="https://a/b""#).unwrap();
        assert!(dpop.dpop && dpop.resource_metadata.is_some() && !read("Bearer").unwrap().dpop);
        assert_eq!(Challenge::read(["Basic x", "Bearer scope=\"a\""]).unwrap().scope.as_deref(), Some("a"));
    }
}
