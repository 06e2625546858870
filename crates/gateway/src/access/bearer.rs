//! Access tokens of an issuer: JSON Web Tokens, checked against its published keys.

use jsonwebtoken::{Algorithm, DecodingKey, TokenData, Validation, decode, decode_header};
use portcullis_core::Principal;
use serde_json::{Map, Value};

use super::jwks::Jwks;
use super::{OAUTH_PREFIX, OAuthOptions, Refusal};

/// Only signatures that need the issuer's private key: a shared secret or `none` would let anybody sign.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];
/// Longer ones are not looked at.
const LONGEST: usize = 16 << 10;
/// How far clocks may differ, in seconds.
const LEEWAY: u64 = 30;

/// The tokens of one issuer.
#[derive(Debug)]
pub(super) struct Tokens {
    options: OAuthOptions,
    jwks: Jwks,
}

impl Tokens {
    pub(super) fn new(options: OAuthOptions) -> Self {
        let jwks = Jwks::new(options.issuer.clone(), options.jwks_url.clone());
        Self { options, jwks }
    }

    pub(super) fn options(&self) -> &OAuthOptions {
        &self.options
    }

    pub(super) fn grants(&self) -> &[String] {
        &self.options.grants
    }

    /// Who holds this token.
    pub(super) async fn holder(&self, token: &str) -> Result<Principal, Refusal> {
        let invalid = |_| Refusal::InvalidCredential;
        if token.len() > LONGEST {
            return Err(Refusal::InvalidCredential);
        }
        let header = decode_header(token).map_err(invalid)?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Refusal::InvalidCredential);
        }
        let key = self.jwks.key(header.kid.as_deref(), header.alg).await?;
        let claims = self.validate(token, &key, header.alg)?;
        if let Some(wanted) = &self.options.scope {
            let scope = claims.get("scope").or_else(|| claims.get("scp"));
            if !scope.is_some_and(|scope| has_scope(scope, wanted)) {
                return Err(Refusal::InsufficientScope);
            }
        }
        principal(&claims, &self.options.agent_claim).ok_or(Refusal::InvalidCredential)
    }

    fn validate(
        &self,
        token: &str,
        key: &DecodingKey,
        algorithm: Algorithm,
    ) -> Result<Map<String, Value>, Refusal> {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&[self.options.resource.as_str()]);
        validation.validate_nbf = true;
        validation.leeway = LEEWAY;
        let TokenData { claims, .. } =
            decode(token, key, &validation).map_err(|_| Refusal::InvalidCredential)?;
        Ok(claims)
    }
}

/// Scopes come as one text with spaces (RFC 9068), or as a list.
fn has_scope(scope: &Value, wanted: &str) -> bool {
    match scope {
        Value::String(text) => text.split(' ').any(|word| word == wanted),
        Value::Array(list) => list.iter().any(|word| word == wanted),
        _ => false,
    }
}

/// The agent named by `claim`, or by the subject: as it is if it can be a name, else by its digest, so that two
/// subjects are never one agent.
fn principal(claims: &Map<String, Value>, claim: &str) -> Option<Principal> {
    let named = claims.get(claim).or_else(|| claims.get("sub"))?.as_str().filter(|name| !name.is_empty())?;
    let plain = Principal::agent(&format!("{OAUTH_PREFIX}{named}"));
    let digest = || {
        let digest = blake3::hash(named.as_bytes()).to_hex();
        Principal::agent(&format!("{OAUTH_PREFIX}{}", &digest[..32])).expect("hexadecimal digits")
    };
    Some(plain.unwrap_or_else(|_| digest()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(claims: Value) -> Option<String> {
        principal(claims.as_object().unwrap(), "client_id").map(|principal| principal.name().to_owned())
    }

    #[test]
    fn an_agent_is_named_by_its_claim_and_never_mistaken_for_a_key() {
        assert_eq!(named(json!({"client_id": "ci", "sub": "x"})).unwrap(), "oauth.ci");
        assert_eq!(named(json!({"sub": "local"})).unwrap(), "oauth.local");
        assert_eq!(named(json!({"client_id": 7, "sub": "x"})), None);
        assert_eq!(named(json!({"client_id": "", "sub": "x"})), None);
        let (a, b) =
            (named(json!({"sub": "https://a b"})).unwrap(), named(json!({"sub": "https://a c"})).unwrap());
        assert!(a != b && a.starts_with("oauth."));
    }

    #[test]
    fn a_scope_is_a_whole_word() {
        assert!(has_scope(&json!("openid mcp"), "mcp") && has_scope(&json!(["mcp"]), "mcp"));
        assert!(!has_scope(&json!("mcp-admin"), "mcp") && !has_scope(&json!({"mcp": 1}), "mcp"));
    }
}
