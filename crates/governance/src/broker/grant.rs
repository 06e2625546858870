//! What a login at a server's issuer brought (PRO-35): a credential of kind `oauth2`.
//!
//! It is kept whole in the vault, under the name of its server. Only the access token ever travels to the server; the refresh
//! token and the client's secret travel to the token endpoint of the one issuer that they are from.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::CredentialClass;

/// A grant. Never printed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What it is for: the server's own name for itself, RFC 8707.
    pub resource: String,
    /// Who gave it.
    pub issuer: String,
    /// Where it is renewed.
    pub token_endpoint: String,
    /// Who we are there.
    pub client_id: String,
    /// And how we prove it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
    /// Or with what we sign that it is us: a private key, as PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<String>,
    /// How the issuer wants to be told.
    pub client_authentication: ClientAuthentication,
    /// How it was come by, and so how it is renewed.
    pub flow: Flow,
    /// Who says who we are, where that is somebody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vouched: Option<Vouched>,
    /// The key that the access token is bound to (RFC 9449): its private part, as PKCS #8 in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dpop_key: Option<String>,
    /// What it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// What the server is shown.
    pub access_token: String,
    /// What a new one is got with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<String>,
    /// Until when the access token is good, in seconds since 1970, if the issuer says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

/// How a client is known at a token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuthentication {
    /// By its name alone.
    None,
    /// By a header.
    ClientSecretBasic,
    /// By a field of the form.
    ClientSecretPost,
    /// By a statement that it signs (RFC 7523).
    PrivateKeyJwt,
}

/// Who says who we are: a file on this machine that somebody keeps fresh, read again for each renewal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vouched {
    /// The file with the token.
    pub file: String,
    /// Whom it is shown to first, where the issuer does not know its maker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
}

/// An identity provider that gives statements for issuers (SEP-990).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Where tokens are exchanged.
    pub token_endpoint: String,
    /// Who we are there.
    pub client_id: String,
}

/// How a grant is come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flow {
    /// Somebody logged in.
    AuthorizationCode,
    /// For the gateway itself.
    ClientCredentials,
    /// For whom a token speaks that somebody else made (RFC 7523).
    JwtBearer,
}

impl Grant {
    /// A grant out of the vault.
    pub fn read(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// The same, for the vault.
    pub fn written(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a grant is plain JSON")
    }

    /// Under what class the grant for a server is kept.
    pub fn class_of(server: &str) -> Option<CredentialClass> {
        format!("oauth.{server}").parse().ok()
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { issuer, resource, scope, expires_at, .. } = self;
        let mut shown = f.debug_struct("Grant");
        shown.field("issuer", issuer).field("resource", resource).field("scope", scope);
        shown.field("expires_at", expires_at).finish_non_exhaustive()
    }
}
