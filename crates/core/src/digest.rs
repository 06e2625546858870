//! Digests, always lowercase hexadecimal in text.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest([u8; 32]);

/// The text is not 64 lowercase hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 digest: expected 64 lowercase hexadecimal digits")]
pub struct DigestError;

impl Sha256Digest {
    /// Sixty-four zeros: the predecessor of the first record of a log.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The digest of the concatenation of `parts`.
    pub fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Takes a digest computed elsewhere.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The raw digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Digest({self})")
    }
}

impl FromStr for Sha256Digest {
    type Err = DigestError;
    fn from_str(text: &str) -> Result<Self, DigestError> {
        parse_hex(text).map(Self).ok_or(DigestError)
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut buf = [0; 64];
        s.serialize_str(encode_hex(&self.0, &mut buf))
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes `bytes` as lowercase hexadecimal into `buf`, which is twice as long, and returns the text.
pub fn encode_hex<'b>(bytes: &[u8], buf: &'b mut [u8]) -> &'b str {
    for (byte, out) in bytes.iter().zip(buf.chunks_exact_mut(2)) {
        out[0] = DIGITS[usize::from(byte >> 4)];
        out[1] = DIGITS[usize::from(byte & 15)];
    }
    std::str::from_utf8(&buf[..bytes.len() * 2]).expect("hexadecimal digits are ASCII")
}

/// The lowercase hexadecimal text of `bytes`.
pub fn to_hex(bytes: &[u8]) -> String {
    let mut buf = vec![0; bytes.len() * 2];
    encode_hex(bytes, &mut buf).to_owned()
}

pub(crate) fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    let mut buf = [0; 64];
    f.write_str(encode_hex(bytes, &mut buf[..bytes.len() * 2]))
}

/// Reads exactly `N` bytes of lowercase hexadecimal; upper case is a second spelling and refused.
pub fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    let (eights, rest) = text.as_bytes().as_chunks::<8>();
    let (fours, tail) = bytes.as_chunks_mut::<4>();
    for (four, eight) in fours.iter_mut().zip(eights) {
        *four = parse_eight(u64::from_be_bytes(*eight))?;
    }
    for (byte, pair) in tail.iter_mut().zip(rest.chunks_exact(2)) {
        let padded = [b'0', b'0', b'0', b'0', b'0', b'0', pair[0], pair[1]];
        *byte = parse_eight(u64::from_be_bytes(padded))?[3];
    }
    Some(bytes)
}

/// Eight digits at once, one in each byte of a number: a log is read again digest by digest.
fn parse_eight(digits: u64) -> Option<[u8; 4]> {
    const EACH: u64 = 0x0101_0101_0101_0101;
    // The worth of a digit is its low half, and nine more for a letter, which has a bit that figures lack.
    let worth = (digits & (0x0f * EACH)) + 9 * ((digits >> 6) & EACH);
    // Written again they must be the same: 48 more, and 39 more for what is above nine.
    let above_nine = ((worth + 0x76 * EACH) >> 7) & EACH;
    let again = worth + 0x30 * EACH + 39 * above_nine;
    if again != digits || worth & (0xf0 * EACH) != 0 {
        return None;
    }
    let pairs = worth | worth >> 4;
    Some([(pairs >> 48) as u8, (pairs >> 32) as u8, (pairs >> 16) as u8, pairs as u8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_abc_is_the_published_one() {
        let abc = Sha256Digest::of(b"abc");
        assert_eq!(abc.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Sha256Digest::of_parts(&[b"a", b"", b"bc"]), abc);
        assert_eq!(abc.to_string().parse::<Sha256Digest>().unwrap(), abc);
        assert!(abc.to_string().to_uppercase().parse::<Sha256Digest>().is_err());
    }

    #[test]
    fn hexadecimal_is_read_back_and_one_wrong_digit_anywhere_is_noticed() {
        let bytes: [u8; 7] = [0x00, 0x0f, 0xf0, 0x9a, 0xa9, 0x5b, 0xff];
        let text = to_hex(&bytes);
        assert_eq!(parse_hex::<7>(&text), Some(bytes));
        for wrong in ['g', 'o', 'A', 'F', '/', ':', '`', '@', ' ', '\0', '\x7f'] {
            for at in 0..text.len() {
                let mut other = text.clone();
                other.replace_range(at..=at, &wrong.to_string());
                assert_eq!(parse_hex::<7>(&other), None, "{other:?}");
            }
        }
        for byte in 0..=255u8 {
            assert_eq!(parse_hex::<1>(&to_hex(&[byte])), Some([byte]));
        }
        assert_eq!(parse_hex::<7>(&text[..12]), None);
        assert_eq!(parse_hex::<1>("\u{e9}"), None);
    }
}
