//! Signing what we say of ourselves: the key of a client, and JSON Web Tokens made with it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rand::RngExt as _;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

use super::OAuthError;

/// How long a statement about ourselves is good: it is made for one request.
const GOOD_FOR: u64 = 120;

/// A private key. Never printed.
pub(super) enum SigningKey {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// A key out of a PEM file: PKCS #8, of P-256, Ed25519 or RSA.
    pub(super) fn from_pem(text: &str) -> Result<Self, OAuthError> {
        let unusable = || {
            OAuthError::refused(
                "the client's key is no PKCS #8 private key of P-256, Ed25519 or RSA in a PEM file",
            )
        };
        let body = text.split_once("-----BEGIN PRIVATE KEY-----").ok_or_else(unusable)?.1;
        let body = body.split_once("-----END PRIVATE KEY-----").ok_or_else(unusable)?.0;
        let plain: String = body.split_whitespace().collect();
        let der = STANDARD.decode(plain).map_err(|_| unusable())?;
        let random = SystemRandom::new();
        if let Ok(key) = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &random) {
            return Ok(Self::P256(key));
        }
        if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der) {
            return Ok(Self::Ed25519(key));
        }
        RsaKeyPair::from_pkcs8(&der).map(Self::Rsa).map_err(|_| unusable())
    }

    /// A key of our own making, and what is kept of it.
    pub(super) fn made() -> Result<(Self, String), OAuthError> {
        let failed = |_| OAuthError::refused("no key could be made");
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(failed)?;
        let kept = STANDARD.encode(der.as_ref());
        Ok((Self::kept(&kept)?, kept))
    }

    /// A key of our own making that was kept.
    pub(super) fn kept(text: &str) -> Result<Self, OAuthError> {
        let unusable = || OAuthError::refused("the key of the login cannot be read; log in again");
        let der = STANDARD.decode(text).map_err(|_| unusable())?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &der, &SystemRandom::new());
        key.map(Self::P256).map_err(|_| unusable())
    }

    /// The algorithm, as RFC 7518 calls it.
    pub(super) fn algorithm(&self) -> &'static str {
        match self {
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The public half of a P-256 key, as RFC 7517 writes it.
    pub(super) fn public(&self) -> Option<Value> {
        let Self::P256(key) = self else { return None };
        // A point that is not compressed: a mark, then both coordinates.
        let point = key.public_key().as_ref();
        let (x, y) = (point.get(1..33)?, point.get(33..65)?);
        Some(
            json!({"kty": "EC", "crv": "P-256", "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)}),
        )
    }

    /// A token with this head and these claims.
    pub(super) fn token(&self, head: &Value, claims: &Value) -> Result<String, OAuthError> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(head), part(claims));
        let failed = |_| OAuthError::refused("the statement could not be signed");
        let random = SystemRandom::new();
        let signature = match self {
            Self::P256(key) => key.sign(&random, text.as_bytes()).map_err(failed)?.as_ref().to_vec(),
            Self::Ed25519(key) => key.sign(text.as_bytes()).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature).map_err(failed)?;
                signature
            }
        };
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}

/// The statement with which a client shows who it is at an issuer (RFC 7523 section 2.2).
pub(super) fn client_assertion(
    key: &SigningKey,
    client: &str,
    issuer: &str,
    now: u64,
) -> Result<String, OAuthError> {
    let head = json!({"typ": "JWT", "alg": key.algorithm()});
    let claims = json!({
        "iss": client, "sub": client, "aud": issuer, "iat": now, "exp": now + GOOD_FOR, "jti": unguessable(),
    });
    key.token(&head, &claims)
}

/// A name that nobody gave to anything before.
pub(super) fn unguessable() -> String {
    URL_SAFE_NO_PAD.encode(rand::rng().random::<[u8; 16]>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey};

    fn pem(der: &[u8]) -> String {
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
    }

    #[test]
    fn a_client_signs_who_it_is_and_whom_it_tells() {
        // PRO-35
        let random = SystemRandom::new();
        let curve = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        for (der, algorithm) in [(curve.as_ref(), "ES256"), (edwards.as_ref(), "EdDSA")] {
            let key = SigningKey::from_pem(&pem(der)).unwrap();
            let token = client_assertion(&key, "me", "https://issuer.example", 1_000).unwrap();
            let parts: Vec<&str> = token.split('.').collect();
            let read = |part: &str| -> Value {
                serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
            };
            assert_eq!(read(parts[0])["alg"], algorithm);
            let claims = read(parts[1]);
            assert_eq!((&claims["iss"], &claims["sub"]), (&json!("me"), &json!("me")));
            assert_eq!((&claims["aud"], &claims["exp"]), (&json!("https://issuer.example"), &json!(1_120)));
            let signature = URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
            let text = format!("{}.{}", parts[0], parts[1]);
            let verified = match &key {
                SigningKey::P256(key) => {
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.public_key().as_ref())
                        .verify(text.as_bytes(), &signature)
                }
                SigningKey::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key.public_key().as_ref())
                    .verify(text.as_bytes(), &signature),
                SigningKey::Rsa(_) => unreachable!(),
            };
            assert!(verified.is_ok());
        }
        let again = SigningKey::from_pem(&pem(curve.as_ref())).unwrap();
        let twice = [(); 2].map(|()| client_assertion(&again, "me", "x", 1).unwrap());
        assert_ne!(twice[0].split('.').nth(1), twice[1].split('.').nth(1), "each is made once");
    }

    #[test]
    fn what_is_no_private_key_is_refused_without_being_quoted() {
        for bad in ["", "hunter2", "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----"] {
            let Err(error) = SigningKey::from_pem(bad) else { panic!("{bad} is no key") };
            let error = error.to_string();
            assert!(error.contains("PKCS #8") && !error.contains("hunter2") && !error.contains("aHVu"));
        }
    }
}
