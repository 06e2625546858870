//! Proving to servers who we are: OAuth 2.1 as their clients (PRO-35).
//!
//! | module | the idea |
//! |---|---|
//! | [`discovery`] | whom a server trusts, told by the server itself; and what that issuer can do |
//! | [`login`] | becoming a client there, sending somebody to log in, and taking what comes back |
//! | `tokens` | what is asked at a token endpoint |
//! | `signing` | the keys of clients, and what they sign with them |
//! | `dpop` | tokens that are bound to a key |
//! | `account` | the grant of one connection: shown, renewed before its time, renewed when refused |
//!
//! Everything a server or an issuer says is a claim. A document counts for the one it is about and nobody else; what leads
//! away from the public network leads nowhere, unless the server itself is on this machine; nothing is followed elsewhere.

mod account;
pub mod discovery;
mod dpop;
pub mod login;
mod signing;
mod tokens;

pub(crate) use account::Account;
pub(crate) use discovery::Challenge;

use portcullis_core::name::printable;
use url::Url;

use crate::web::{Web, WebError};

/// Why there is no grant. What issuers say is quoted printably, and never what was sent to them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// Somebody cannot be reached, or said nothing that helps.
    #[error(transparent)]
    Web(#[from] WebError),
    /// The server lets everybody in.
    #[error("the server answers without a login; none is needed")]
    NotWanted,
    /// What a document says does not hold together.
    #[error("{0}")]
    Refused(String),
    /// An issuer said no.
    #[error("the issuer refused: {0}")]
    Denied(String),
}

impl OAuthError {
    fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }

    /// An error of RFC 6749, by its word.
    fn denied(document: &serde_json::Value, status: u16) -> Self {
        let word = document["error"].as_str().map_or_else(|| format!("HTTP {status}"), printable);
        let said = document["error_description"].as_str().map(printable);
        Self::Denied(said.map_or(word.clone(), |said| format!("{word}: {said}")))
    }
}

/// Whether a URL that a stranger named may be asked for something: in private, and not on this machine or a network of ours
/// unless the server is there too (SSRF).
fn reachable(web: &Web, url: &Url) -> Result<(), OAuthError> {
    if web.may_reach(url) {
        return Ok(());
    }
    let host = printable(url.host_str().unwrap_or_default());
    Err(OAuthError::refused(format!("{host} is not a public address with https")))
}

/// Whether a resource's name covers a server's URL: the same place, at it or above it.
pub(crate) fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    let below = server.path();
    resource.origin() == server.origin()
        && resource.query().is_none_or(|query| server.query() == Some(query))
        && (below == above
            || below.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn a_resource_covers_itself_and_what_is_below_it() {
        // RFC 8707, RFC 9728: confused deputies begin where this is loose
        let server = url("https://api.example/team/mcp");
        for good in [
            "https://api.example/team/mcp",
            "https://api.example/team/mcp/",
            "https://api.example/team",
            "https://api.example",
            "https://api.example/",
            "https://API.example:443/team",
        ] {
            assert!(covers(good, &server), "{good}");
        }
        for bad in [
            "https://other.example/team/mcp",
            "https://api.example/tea",
            "https://api.example/team/mcp/more",
            "http://api.example/team",
            "https://api.example:8443/",
            "https://api.example/?x=1",
            "mcp",
            "",
        ] {
            assert!(!covers(bad, &server), "{bad}");
        }
    }
}
