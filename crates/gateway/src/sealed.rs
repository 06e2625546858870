//! Opaque texts that a client carries for us: cursors and request states (PRO-11).
//!
//! XChaCha20-Poly1305 under a key of this process, with what the text is bound to as associated data. A text that
//! was made up, changed, or belongs to another principal, list or server opens to nothing.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut as _, Key, KeyInit as _, Tag, XChaCha20Poly1305, XNonce};
use portcullis_core::Secret;
use rand::RngExt as _;

const NONCE: usize = 24;
const TAG: usize = 16;

/// Seals and opens texts.
pub(crate) struct Seal(XChaCha20Poly1305);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// With a key that nobody else has, and that is gone with this process.
    pub(crate) fn new() -> Self {
        Self(XChaCha20Poly1305::new(&Key::from(*Secret::random_key().expose())))
    }

    /// Closes `content`, bound to all of `bound`.
    pub(crate) fn close(&self, bound: &[&str], content: &[u8]) -> String {
        let nonce: [u8; NONCE] = rand::rng().random();
        let mut text = Vec::with_capacity(NONCE + content.len() + TAG);
        text.extend_from_slice(&nonce);
        text.extend_from_slice(content);
        let tag = (self.0)
            .encrypt_inout_detached(&XNonce::from(nonce), &joined(bound), InOutBuf::from(&mut text[NONCE..]))
            .expect("a text of this size can be sealed");
        text.extend_from_slice(&tag);
        URL_SAFE_NO_PAD.encode(text)
    }

    /// What was closed, if it was closed here and bound to the same.
    pub(crate) fn open(&self, bound: &[&str], text: &str) -> Option<Vec<u8>> {
        let mut text = URL_SAFE_NO_PAD.decode(text).ok()?;
        let tag: [u8; TAG] = text.split_off(text.len().checked_sub(TAG)?).try_into().ok()?;
        let nonce: [u8; NONCE] = text.get(..NONCE)?.try_into().ok()?;
        let mut content = text.split_off(NONCE);
        let body = InOutBuf::from(&mut content[..]);
        (self.0).decrypt_inout_detached(&XNonce::from(nonce), &joined(bound), body, &Tag::from(tag)).ok()?;
        Some(content)
    }
}

/// Each part with its length, so that `["ab", "c"]` and `["a", "bc"]` differ.
fn joined(parts: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part.as_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_opens_only_where_it_was_closed_and_only_unchanged() {
        // PRO-11
        let seal = Seal::new();
        let text = seal.close(&["cursor", "agent:a"], b"500");
        assert_eq!(seal.open(&["cursor", "agent:a"], &text).as_deref(), Some(&b"500"[..]));
        assert_eq!(seal.open(&["cursor", "agent:b"], &text), None);
        assert_eq!(seal.open(&["cursoragent", ":a"], &text), None);
        assert_eq!(Seal::new().open(&["cursor", "agent:a"], &text), None);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(seal.open(&["cursor", "agent:a"], &changed), None, "{at}");
        }
        for short in ["", "AAAA", "not base64 !"] {
            assert_eq!(seal.open(&["cursor", "agent:a"], short), None);
        }
    }
}
