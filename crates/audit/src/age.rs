//! Sealing to a recipient in the age format (age-encryption.org/v1, X25519), so that whoever gets an export opens it
//! with a tool that is not ours. Only this much is here: one recipient, encryption. The crate `age` brings thirty others
//! and prompts of its own; the tests have the original tool open what this writes.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, Key, KeyInit, Nonce};
use curve25519_dalek::MontgomeryPoint;
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use rand::RngExt as _;
use sha2::Sha256;
use zeroize::Zeroize as _;

/// The first line of every file.
const VERSION: &str = "age-encryption.org/v1";
const LABEL: &str = "X25519";
/// The payload is sealed in pieces of this length.
const CHUNK: usize = 64 << 10;
/// Lines of a stanza's body are this long.
const COLUMNS: usize = 64;

/// Somebody who can open what is sealed for them: `age1…`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipient([u8; 32]);

/// The text is not an age recipient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a recipient: expected the public key of an age identity, age1… (age-keygen makes one)")]
pub struct RecipientError;

impl FromStr for Recipient {
    type Err = RecipientError;
    fn from_str(text: &str) -> Result<Self, RecipientError> {
        bech32_data("age", text).and_then(|data| data.try_into().ok()).map(Self).ok_or(RecipientError)
    }
}

impl fmt::Display for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&bech32("age", &self.0))
    }
}

/// Seals `plaintext` so that only the recipient's identity opens it; `None` if the recipient is a point of small order,
/// for which there would be no secret.
pub(crate) fn seal(recipient: &Recipient, plaintext: &[u8]) -> Option<Vec<u8>> {
    let mut file_key: [u8; 16] = rand::rng().random();
    let mut ephemeral: [u8; 32] = rand::rng().random();
    let share = MontgomeryPoint::mul_base_clamped(ephemeral).to_bytes();
    let mut shared = MontgomeryPoint(recipient.0).mul_clamped(ephemeral).to_bytes();
    ephemeral.zeroize();
    if shared == [0; 32] {
        return None;
    }
    let salt = [share, recipient.0].concat();
    let wrapping = derive(&shared, &salt, b"age-encryption.org/v1/X25519");
    shared.zeroize();
    let mut body = file_key.to_vec();
    encrypt(&wrapping, [0; 12], &mut body);

    let mut header = format!("{VERSION}\n-> {LABEL} {}\n", BASE64.encode(share));
    let encoded = BASE64.encode(&body);
    for line in encoded.as_bytes().chunks(COLUMNS) {
        header.push_str(&String::from_utf8_lossy(line));
        header.push('\n');
    }
    // A last line that is full must be followed by one that is not.
    if encoded.len().is_multiple_of(COLUMNS) {
        header.push('\n');
    }
    header.push_str("---");
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&derive(&file_key, &[], b"header")).ok()?;
    mac.update(header.as_bytes());
    header.push_str(&format!(" {}\n", BASE64.encode(mac.finalize().into_bytes())));

    let mut out = header.into_bytes();
    let nonce: [u8; 16] = rand::rng().random();
    out.extend_from_slice(&nonce);
    let payload = derive(&file_key, &nonce, b"payload");
    file_key.zeroize();
    let chunks = plaintext.len().div_ceil(CHUNK).max(1);
    for number in 0..chunks {
        let chunk = &plaintext[number * CHUNK..plaintext.len().min((number + 1) * CHUNK)];
        let mut nonce = [0; 12];
        nonce[3..11].copy_from_slice(&(number as u64).to_be_bytes());
        nonce[11] = u8::from(number + 1 == chunks);
        let mut sealed = chunk.to_vec();
        encrypt(&payload, nonce, &mut sealed);
        out.append(&mut sealed);
    }
    Some(out)
}

fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> [u8; 32] {
    let mut key = [0; 32];
    Hkdf::<Sha256>::new(Some(salt), secret).expand(info, &mut key).expect("thirty-two bytes are few");
    key
}

fn encrypt(key: &[u8; 32], nonce: [u8; 12], text: &mut Vec<u8>) {
    let cipher = ChaCha20Poly1305::new(&Key::from(*key));
    let tag = cipher
        .encrypt_inout_detached(&Nonce::from(nonce), b"", InOutBuf::from(text.as_mut_slice()))
        .expect("a chunk is within the cipher's limit");
    text.extend_from_slice(&tag);
}

const CHARSET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";

/// BIP 173's checksum over a prefix and five-bit values.
fn polymod(prefix: &str, values: &[u8]) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let high = prefix.bytes().map(|byte| byte >> 5);
    let low = prefix.bytes().map(|byte| byte & 31);
    let mut check = 1u32;
    for value in high.chain([0]).chain(low).chain(values.iter().copied()) {
        let top = check >> 25;
        check = ((check & 0x01ff_ffff) << 5) ^ u32::from(value);
        for (bit, generator) in GENERATOR.iter().enumerate() {
            if (top >> bit) & 1 == 1 {
                check ^= generator;
            }
        }
    }
    check
}

fn bech32(prefix: &str, data: &[u8]) -> String {
    let mut values = regroup(data, 8, 5, true).unwrap_or_default();
    let mut padded = values.clone();
    padded.extend([0; 6]);
    let check = polymod(prefix, &padded) ^ 1;
    values.extend((0..6).map(|n| ((check >> (5 * (5 - n))) & 31) as u8));
    let text: String = values.iter().map(|value| char::from(CHARSET[usize::from(*value)])).collect();
    format!("{prefix}1{text}")
}

fn bech32_data(prefix: &str, text: &str) -> Option<Vec<u8>> {
    let rest = text.strip_prefix(prefix)?.strip_prefix('1')?;
    let value = |byte: u8| CHARSET.iter().position(|letter| *letter == byte).map(|at| at as u8);
    let values: Vec<u8> = rest.bytes().map(value).collect::<Option<_>>()?;
    let data = values.len().checked_sub(6)?;
    if polymod(prefix, &values) != 1 {
        return None;
    }
    regroup(&values[..data], 5, 8, false)
}

/// Bits in groups of `from` as groups of `to`; `None` if what is left over is not padding.
fn regroup(values: &[u8], from: u32, to: u32, pad: bool) -> Option<Vec<u8>> {
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for value in values {
        bits = (bits << from) | u32::from(*value);
        count += from;
        while count >= to {
            count -= to;
            out.push(((bits >> count) & ((1 << to) - 1)) as u8);
        }
        bits &= (1 << count) - 1;
    }
    if pad && count > 0 {
        out.push(((bits << (to - count)) & ((1 << to) - 1)) as u8);
    } else if !pad && (count >= from || bits != 0) {
        return None;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the README of the original.
    const PUBLISHED: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

    #[test]
    fn a_recipient_has_one_spelling_and_a_wrong_letter_shows() {
        let recipient: Recipient = PUBLISHED.parse().unwrap();
        assert_eq!(recipient.to_string(), PUBLISHED);
        let other = PUBLISHED.replacen("z7hj", "z7hk", 1);
        for bad in [other.as_str(), "", "age1", "age1qqqq", "AGE1QL3Z7", &PUBLISHED[..61]] {
            assert_eq!(bad.parse::<Recipient>(), Err(RecipientError), "{bad}");
        }
    }

    #[test]
    fn nothing_is_sealed_for_a_point_that_has_no_secret() {
        assert!(seal(&Recipient([0; 32]), b"x").is_none());
        assert!(seal(&PUBLISHED.parse().unwrap(), b"x").is_some());
    }
}
