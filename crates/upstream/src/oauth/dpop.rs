//! Tokens that are worth nothing in other hands (DPoP, RFC 9449): each request proves anew that we have their key.

use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::OAuthError;
use super::signing::{SigningKey, unguessable};
use super::tokens::now;

/// No nonce is longer.
const LONGEST_NONCE: usize = 512;

/// The key of a token, and what the other side last wanted to see in a proof.
pub(super) struct Dpop {
    key: SigningKey,
    nonce: Mutex<Option<String>>,
}

impl std::fmt::Debug for Dpop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dpop").finish_non_exhaustive()
    }
}

impl Dpop {
    pub(super) fn new(key: SigningKey) -> Self {
        Self { key, nonce: Mutex::default() }
    }

    /// The proof for one request; with a token, that it is this one that is shown.
    pub(super) fn proof(&self, method: &str, url: &Url, token: Option<&str>) -> Result<String, OAuthError> {
        let mut place = url.clone();
        place.set_query(None);
        place.set_fragment(None);
        let head = json!({"typ": "dpop+jwt", "alg": self.key.algorithm(), "jwk": self.key.public()});
        let mut claims = json!({"jti": unguessable(), "htm": method, "htu": place, "iat": now()});
        if let Some(token) = token {
            claims["ath"] = json!(URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
        }
        if let Some(nonce) = &*self.nonce.lock().unwrap_or_else(PoisonError::into_inner) {
            claims["nonce"] = json!(nonce);
        }
        self.key.token(&head, &claims)
    }

    /// The other side says what it wants to see from now on. True if that is something else than before.
    pub(super) fn told(&self, nonce: &str) -> bool {
        if nonce.is_empty() || nonce.len() > LONGEST_NONCE {
            return false;
        }
        let mut known = self.nonce.lock().unwrap_or_else(PoisonError::into_inner);
        known.replace(nonce.to_owned()).as_deref() != Some(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn claims(proof: &str) -> Value {
        let part = proof.split('.').nth(1).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn each_proof_is_for_one_request_and_one_token() {
        // PRO-35, RFC 9449
        let dpop = Dpop::new(SigningKey::made().unwrap().0);
        let url = Url::parse("https://mcp.example/mcp?team=1#x").unwrap();
        let first = claims(&dpop.proof("POST", &url, Some("token")).unwrap());
        assert_eq!((&first["htm"], &first["htu"]), (&json!("POST"), &json!("https://mcp.example/mcp")));
        assert_eq!(first["ath"], "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A");
        assert!(first.get("nonce").is_none());
        assert!(dpop.told("n1") && !dpop.told("n1") && !dpop.told(""));
        let second = claims(&dpop.proof("POST", &url, None).unwrap());
        assert_eq!(second["nonce"], "n1");
        assert!(second.get("ath").is_none());
        assert_ne!(first["jti"], second["jti"]);
    }

    #[test]
    fn a_kept_key_is_the_same_key() {
        let (key, kept) = SigningKey::made().unwrap();
        assert_eq!(SigningKey::kept(&kept).unwrap().public(), key.public());
        assert!(SigningKey::kept("no key").is_err());
    }
}
