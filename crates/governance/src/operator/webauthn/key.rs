//! The public half of a passkey, as authenticators write it (COSE), and signatures by the other half.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

use super::cbor::Item;

/// What we ask authenticators for, in the order of preference.
pub const ALGORITHMS: [i64; 3] = [ES256, EDDSA, RS256];

const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;

/// The public half of a passkey.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PasskeyKey {
    /// As the authenticator wrote it.
    cose: Vec<u8>,
    key: Key,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Key {
    /// An uncompressed point of P-256.
    Es256([u8; 65]),
    Ed25519(VerifyingKey),
    Rs256 {
        n: Vec<u8>,
        e: Vec<u8>,
    },
}

impl PasskeyKey {
    /// Reads a key, and says how many bytes of `cose` it took.
    pub(super) fn read(cose: &[u8]) -> Option<(Self, usize)> {
        let (map, rest) = Item::first(cose)?;
        let number = |at: i64| map.at(at).and_then(Item::integer);
        let bytes = |at: i64| map.at(at).and_then(Item::bytes);
        let key = match (number(1)?, number(3)?) {
            (2, ES256) if number(-1) == Some(1) => {
                let (x, y): ([u8; 32], [u8; 32]) = (bytes(-2)?.try_into().ok()?, bytes(-3)?.try_into().ok()?);
                let mut point = [4; 65];
                point[1..33].copy_from_slice(&x);
                point[33..].copy_from_slice(&y);
                Key::Es256(point)
            }
            (1, EDDSA) if number(-1) == Some(6) => {
                let key = VerifyingKey::from_bytes(bytes(-2)?.try_into().ok()?).ok()?;
                // One of the few keys for which signatures can be made without a private half.
                Key::Ed25519((!key.is_weak()).then_some(key)?)
            }
            (3, RS256) => {
                let (n, e) = (bytes(-1)?, bytes(-2)?);
                let sound = (256..=512).contains(&n.len()) && n[0] >= 0x80 && (1..=4).contains(&e.len());
                sound.then(|| Key::Rs256 { n: n.to_vec(), e: e.to_vec() })?
            }
            _ => return None,
        };
        let length = cose.len() - rest.len();
        Some((Self { cose: cose[..length].to_vec(), key }, length))
    }

    /// Whether this is the key's signature of a message.
    pub(super) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        match &self.key {
            Key::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, point).verify(message, signature).is_ok()
            }
            Key::Ed25519(key) => ed25519_dalek::Signature::from_slice(signature)
                .is_ok_and(|signature| key.verify_strict(message, &signature).is_ok()),
            Key::Rs256 { n, e } => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
        }
    }
}

impl fmt::Display for PasskeyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(&self.cose))
    }
}

impl From<PasskeyKey> for String {
    fn from(key: PasskeyKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PasskeyKey {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let cose = URL_SAFE_NO_PAD.decode(text).map_err(|_| "not base64url")?;
        match Self::read(&cose) {
            Some((key, length)) if length == cose.len() => Ok(key),
            _ => Err("not a public key of a kind that is taken"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};

    /// A map of a COSE key: numbers and byte strings.
    fn cose(numbers: &[(u8, &[u8])], strings: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0xa0 | (numbers.len() + strings.len()) as u8];
        for (key, value) in numbers {
            bytes.push(*key);
            bytes.extend_from_slice(value);
        }
        for (key, value) in strings {
            bytes.push(*key);
            bytes.push(0x59);
            match value.len() {
                0..24 => *bytes.last_mut().unwrap() = 0x40 | value.len() as u8,
                24..256 => {
                    *bytes.last_mut().unwrap() = 0x58;
                    bytes.push(value.len() as u8);
                }
                length => bytes.extend_from_slice(&(length as u16).to_be_bytes()),
            }
            bytes.extend_from_slice(value);
        }
        bytes
    }

    fn es256(point: &[u8]) -> Vec<u8> {
        cose(&[(1, b"\x02"), (3, b"\x26"), (0x20, b"\x01")], &[(0x21, &point[..32]), (0x22, &point[32..])])
    }

    #[test]
    fn keys_of_the_three_kinds_verify_what_they_signed_and_nothing_else() {
        // GOV-104
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let (key, _) = PasskeyKey::read(&es256(&pair.public_key().as_ref()[1..])).unwrap();
        let signature = pair.sign(&random, b"message").unwrap();
        assert!(key.verifies(b"message", signature.as_ref()));
        assert!(!key.verifies(b"massage", signature.as_ref()) && !key.verifies(b"message", b""));

        let private = SigningKey::from_bytes(&[7; 32]);
        let public = private.verifying_key();
        let (key, _) = PasskeyKey::read(&cose(
            &[(1, b"\x01"), (3, b"\x27"), (0x20, b"\x06")],
            &[(0x21, public.as_bytes())],
        ))
        .unwrap();
        let signature = private.sign(b"message").to_bytes();
        assert!(key.verifies(b"message", &signature) && !key.verifies(b"message", &signature[1..]));

        // A modulus and a signature that openssl made.
        let (key, length) = PasskeyKey::read(&cose(
            &[(1, b"\x03"), (3, b"\x39\x01\x00")],
            &[(0x20, include_bytes!("testdata/rsa.n")), (0x21, b"\x01\x00\x01")],
        ))
        .unwrap();
        assert_eq!(length, key.cose.len());
        assert!(key.verifies(b"message", include_bytes!("testdata/rsa.sig")));
        assert!(!key.verifies(b"massage", include_bytes!("testdata/rsa.sig")));
        let again: PasskeyKey = key.to_string().try_into().unwrap();
        assert_eq!(again, key);
    }

    #[test]
    fn other_kinds_and_keys_that_anybody_could_sign_for_are_refused() {
        // GOV-104
        let (numbers, x): ([(u8, &[u8]); 3], [u8; 32]) =
            ([(1, b"\x02"), (3, b"\x26"), (0x20, b"\x01")], [9; 32]);
        assert!(PasskeyKey::read(&cose(&numbers, &[(0x21, &x), (0x22, &x)])).is_some());
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let wrong = [
            cose(&numbers, &[(0x21, &x)]),
            cose(&numbers, &[(0x21, &x), (0x22, &x[1..])]),
            cose(&[(1, b"\x02"), (3, b"\x38\x22"), (0x20, b"\x02")], &[(0x21, &x), (0x22, &x)]),
            cose(&[(1, b"\x02"), (3, b"\x27"), (0x20, b"\x01")], &[(0x21, &x), (0x22, &x)]),
            cose(&[(1, b"\x01"), (3, b"\x27"), (0x20, b"\x06")], &[(0x21, &neutral)]),
            cose(&[(1, b"\x03"), (3, b"\x39\x01\x00")], &[(0x20, &[0xff; 128]), (0x21, b"\x01\x00\x01")]),
            cose(&[(1, b"\x03"), (3, b"\x39\x01\x00")], &[(0x20, &[0x7f; 256]), (0x21, b"\x01\x00\x01")]),
            cose(&[(1, b"\x03"), (3, b"\x39\x01\x00")], &[(0x20, &[0xff; 256])]),
            b"\xa0".to_vec(),
            Vec::new(),
        ];
        for bytes in wrong {
            assert!(PasskeyKey::read(&bytes).is_none(), "{bytes:x?}");
        }
        assert!(PasskeyKey::try_from("!!".to_owned()).is_err());
    }
}
