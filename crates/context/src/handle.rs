//! The name of an artifact: `art_` and 128 random bits, so that nobody can guess one (CTX-20).

use std::fmt;
use std::str::FromStr;

use portcullis_core::Sha256Digest;
use rand::RngExt as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PREFIX: &str = "art_";
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// The name of one artifact, new for every stored part of every call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(u128);

/// The text is not a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a handle: expected art_ and 26 characters of lower-case Crockford base 32")]
pub struct HandleError;

impl Handle {
    /// A fresh, unguessable handle.
    pub fn random() -> Self {
        Self(rand::rng().random())
    }

    /// What operators know its record by: it tells nobody the handle, which is the agent's (CTX-21).
    pub fn record_id(self) -> String {
        let digest = Sha256Digest::of(format!("portcullis artifact record {self}").as_bytes());
        format!("rec_{}", &digest.to_string()[..32])
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; LENGTH];
        for (at, digit) in text.iter_mut().enumerate() {
            *digit = DIGITS[(self.0 >> (5 * (LENGTH - 1 - at)) & 31) as usize];
        }
        f.write_str(PREFIX)?;
        f.write_str(std::str::from_utf8(&text).expect("digits are ASCII"))
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({self})")
    }
}

impl FromStr for Handle {
    type Err = HandleError;
    fn from_str(text: &str) -> Result<Self, HandleError> {
        let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == LENGTH).ok_or(HandleError)?;
        let mut value: u128 = 0;
        for (at, byte) in digits.bytes().enumerate() {
            let digit = DIGITS.iter().position(|digit| *digit == byte).ok_or(HandleError)? as u128;
            // 26 digits hold 130 bits; the first one has room for three.
            if at == 0 && digit > 7 {
                return Err(HandleError);
            }
            value = value << 5 | digit;
        }
        Ok(Self(value))
    }
}

impl Serialize for Handle {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Handle {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_without_its_handle() {
        // CTX-21
        let (one, other) = (Handle(1), Handle(2));
        assert_eq!(one.record_id(), one.record_id());
        assert_ne!(one.record_id(), other.record_id());
        assert!(one.record_id().parse::<Handle>().is_err());
    }

    #[test]
    fn a_handle_has_one_spelling() {
        // CTX-20
        for value in [0, 1, u128::MAX, u128::MAX / 3] {
            let text = Handle(value).to_string();
            assert_eq!((text.len(), text.parse()), (30, Ok(Handle(value))));
            assert!(text.to_uppercase().parse::<Handle>().is_err());
        }
        let too_much = format!("art_8{}", "0".repeat(25));
        for wrong in
            ["", "art_", "art_5z9k2m7q0v3x8c1n6b4d2f9h0", "art_5z9k2m7q0v3x8c1n6b4d2f9h0i", &too_much]
        {
            assert!(wrong.parse::<Handle>().is_err(), "{wrong}");
        }
        assert_ne!(Handle::random(), Handle::random());
    }
}
