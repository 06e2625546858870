//! Operators' SSH keys: what a signature by one says, and whether it is one (GOV-104).
//!
//! The private half stays in the operator's ssh-agent. What it signs is an SSHSIG (the format of `ssh-keygen -Y sign`) in a
//! namespace of ours, so that a signature made for anything else is worth nothing here, and one made here nothing elsewhere.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use portcullis_core::Sha256Digest;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What our signatures are for.
const NAMESPACE: &str = "operator@portcullis";
const ED25519: &str = "ssh-ed25519";

/// The public half of an operator's key. Keys of other kinds than Ed25519 are refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// A line of a `.pub` file or of `authorized_keys`: kind, key, and perhaps a comment.
    pub fn parse(line: &str) -> Result<Self, &'static str> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some(ED25519) => {}
            Some(_) => return Err("only ssh-ed25519 keys are taken: ssh-keygen -t ed25519 makes one"),
            None => return Err("no key in it"),
        }
        let blob = words.next().and_then(|word| STANDARD.decode(word).ok());
        Self::from_blob(&blob.ok_or("not the line of a public key")?).ok_or("not an Ed25519 key")
    }

    /// As agents name it on the wire.
    pub fn blob(&self) -> Vec<u8> {
        [string(ED25519.as_bytes()), string(self.0.as_bytes())].concat()
    }

    fn from_blob(blob: &[u8]) -> Option<Self> {
        let key = VerifyingKey::from_bytes(&two_strings::<32>(blob)?).ok()?;
        // One of the few keys for which signatures can be made without a private half.
        (!key.is_weak()).then_some(Self(key))
    }

    /// Whether this is the key's signature, as an agent gives it, of a request with this digest.
    pub fn verifies(&self, digest: &Sha256Digest, signature: &[u8]) -> bool {
        two_strings::<64>(signature).is_some_and(|signature| {
            self.0.verify_strict(&signed(digest), &Signature::from_bytes(&signature)).is_ok()
        })
    }
}

/// The bytes that are signed for a request.
pub fn signed(digest: &Sha256Digest) -> Vec<u8> {
    // The message is the digest; what SSHSIG signs is a hash of the message.
    let hash = Sha256::digest(digest.as_bytes());
    let parts = [NAMESPACE.as_bytes(), b"", b"sha256", &hash];
    let mut bytes = b"SSHSIG".to_vec();
    bytes.extend(parts.into_iter().flat_map(string));
    bytes
}

/// What an operator signs: this request, as this operator, in answer to this challenge.
pub fn request_digest(challenge: &str, operator: &str, request: &[u8]) -> Sha256Digest {
    let head = format!("portcullis/operator-request-v1\n{challenge}\n{operator}\n");
    Sha256Digest::of(&[head.as_bytes(), request].concat())
}

/// Bytes with their length in front.
fn string(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("keys and names are short");
    [&length.to_be_bytes(), bytes].concat()
}

/// The second of exactly two strings, the first of which names the kind.
fn two_strings<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let take = |bytes: &'_ [u8]| -> Option<(usize, usize)> {
        let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        (bytes.len() >= 4 + length).then_some((4, 4 + length))
    };
    let (from, to) = take(bytes)?;
    let (kind, rest) = (&bytes[from..to], &bytes[to..]);
    let (from, to) = take(rest)?;
    (kind == ED25519.as_bytes() && to == rest.len()).then(|| rest[from..to].try_into().ok())?
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ED25519} {}", STANDARD.encode(self.blob()))
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

impl TryFrom<String> for PublicKey {
    type Error = &'static str;

    fn try_from(line: String) -> Result<Self, Self::Error> {
        Self::parse(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};

    fn key() -> (SigningKey, PublicKey) {
        let private = SigningKey::from_bytes(&[7; 32]);
        let public = PublicKey(private.verifying_key());
        (private, public)
    }

    fn by_agent(private: &SigningKey, digest: &Sha256Digest) -> Vec<u8> {
        let signature = private.sign(&signed(digest));
        [string(ED25519.as_bytes()), string(&signature.to_bytes())].concat()
    }

    #[test]
    fn a_signature_is_for_one_request_of_one_operator_and_one_challenge() {
        // GOV-104
        let (private, public) = key();
        let digest = request_digest("c1", "ana", b"{}");
        let signature = by_agent(&private, &digest);
        assert!(public.verifies(&digest, &signature));
        for (challenge, operator, request) in
            [("c2", "ana", "{}"), ("c1", "bob", "{}"), ("c1", "ana", "{ }"), ("c1\nana", "", "{}")]
        {
            let other = request_digest(challenge, operator, request.as_bytes());
            assert!(!public.verifies(&other, &signature), "{challenge} {operator} {request}");
        }
        let other = PublicKey(SigningKey::from_bytes(&[8; 32]).verifying_key());
        assert!(!other.verifies(&digest, &signature));
        for length in 0..signature.len() {
            assert!(!public.verifies(&digest, &signature[..length]), "{length}");
        }
        assert!(!public.verifies(&digest, &[signature.as_slice(), b"x"].concat()));
        // Signed without our namespace it is nothing.
        let plain = private.sign(digest.as_bytes());
        let plain = [string(ED25519.as_bytes()), string(&plain.to_bytes())].concat();
        assert!(!public.verifies(&digest, &plain));
    }

    #[test]
    fn a_key_is_read_as_it_is_written_and_other_kinds_are_refused() {
        // GOV-104
        let (_, public) = key();
        let line = public.to_string();
        assert_eq!(PublicKey::parse(&format!("{line} ana@desk\n")), Ok(public));
        for wrong in ["", "ssh-ed25519", "ssh-ed25519 !!", "ssh-ed25519 AAAA"] {
            assert!(PublicKey::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(PublicKey::parse("ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ").unwrap_err().contains("ed25519"));
        // The neutral element: anybody could sign for it.
        let mut neutral = [0; 32];
        neutral[0] = 1;
        let weak = [string(ED25519.as_bytes()), string(&neutral)].concat();
        assert!(PublicKey::parse(&format!("ssh-ed25519 {}", STANDARD.encode(weak))).is_err());
    }
}
