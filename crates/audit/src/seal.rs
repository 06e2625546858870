//! Sealing evidence objects (AUD-41).
//!
//! An object is `len u32 | crc32c u32 | flags u8 | nonce 24 | ciphertext`: big-endian, the length that of
//! everything after the checksum, the checksum over length, flags, nonce and ciphertext. Sealing is
//! XChaCha20-Poly1305 with a random nonce; the associated data is the log's sixteen bytes, the role's word, a
//! zero byte and the proposal's sixteen bytes if there is one, so an object cannot be passed off as another
//! role's or another proposal's. The address is SHA-256 over nonce and ciphertext: checkable without any key,
//! and telling nothing about a guessable plaintext after the key is gone.
//!
//! The flags are not in the associated data. A flipped one cannot go unnoticed for all that: the record, which
//! is hashed, has the plaintext's length, and a compressed form is a fifth shorter.

use std::cell::RefCell;

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, Key, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use portcullis_core::{LogId, ProposalId, Sha256Digest};
use rand::RngExt as _;
use zstd::bulk::Compressor;

use crate::evidence::Role;

pub(crate) const OBJECT_HEAD: usize = 8;
const NONCE: usize = 24;
const TAG: usize = 16;
/// Everything of an object but its ciphertext proper.
pub(crate) const OVERHEAD: usize = OBJECT_HEAD + 1 + NONCE + TAG;
/// Flags, nonce and tag: the shortest content an object can have.
const LEAST: usize = 1 + NONCE + TAG;
const COMPRESSED: u8 = 1;
/// Below this, compressing costs more than the bytes it saves are worth.
const TRY_COMPRESSION_FROM: usize = 1024;
const LEVEL: i32 = 1;

/// To what an object is bound besides its key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binding {
    pub(crate) log: LogId,
    pub(crate) role: Role,
    pub(crate) proposal: Option<ProposalId>,
}

impl Binding {
    fn associated_data<'b>(&self, buf: &'b mut [u8; 64]) -> &'b [u8] {
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            buf[len..len + bytes.len()].copy_from_slice(bytes);
            len += bytes.len();
        };
        put(&self.log.to_bytes());
        put(self.role.as_str().as_bytes());
        put(&[0]);
        if let Some(proposal) = self.proposal {
            put(&proposal.to_bytes());
        }
        &buf[..len]
    }
}

/// Seals `plaintext` and returns the object with its address; `None` if it is longer than an object can be.
pub(crate) fn seal(
    cipher: &XChaCha20Poly1305,
    binding: Binding,
    plaintext: &[u8],
) -> Option<(Sha256Digest, Vec<u8>)> {
    let compressed = compress(plaintext);
    let (flags, content) = match &compressed {
        Some(shorter) => (COMPRESSED, shorter.as_slice()),
        None => (0, plaintext),
    };
    let len = u32::try_from(content.len() + LEAST).ok()?;
    let mut object = Vec::with_capacity(content.len() + OVERHEAD);
    object.extend_from_slice(&len.to_be_bytes());
    object.extend_from_slice(&[0; 4]);
    object.push(flags);
    let nonce: [u8; NONCE] = rand::rng().random();
    object.extend_from_slice(&nonce);
    object.extend_from_slice(content);
    let body = InOutBuf::from(&mut object[OBJECT_HEAD + 1 + NONCE..]);
    let mut associated = [0; 64];
    let tag = cipher
        .encrypt_inout_detached(&XNonce::from(nonce), binding.associated_data(&mut associated), body)
        .ok()?;
    object.extend_from_slice(&tag);
    let crc = checksum(&object);
    object[4..8].copy_from_slice(&crc.to_be_bytes());
    Some((address(&object), object))
}

/// Opens an object; `None` if it was not sealed with this key for this binding, or is not `bytes` long.
pub(crate) fn open(
    cipher: &XChaCha20Poly1305,
    binding: Binding,
    bytes: u64,
    object: &[u8],
) -> Option<Vec<u8>> {
    let flags = *object.get(OBJECT_HEAD)?;
    let nonce: [u8; NONCE] = object.get(OBJECT_HEAD + 1..OBJECT_HEAD + 1 + NONCE)?.try_into().ok()?;
    let (content, tag) = object[OBJECT_HEAD + 1 + NONCE..].split_last_chunk::<TAG>()?;
    let mut content = content.to_vec();
    let mut associated = [0; 64];
    cipher
        .decrypt_inout_detached(
            &XNonce::from(nonce),
            binding.associated_data(&mut associated),
            InOutBuf::from(content.as_mut_slice()),
            &Tag::from(*tag),
        )
        .ok()?;
    if flags & COMPRESSED != 0 {
        // The recorded length bounds what is unpacked, so no object can fill the memory.
        content = zstd::bulk::decompress(&content, usize::try_from(bytes).ok()?).ok()?;
    }
    (content.len() as u64 == bytes).then_some(content)
}

/// The compressed form if it saves a fifth.
fn compress(plaintext: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        // Making one costs several times what using it does.
        static COMPRESSOR: RefCell<Option<Compressor<'static>>> = RefCell::new(Compressor::new(LEVEL).ok());
    }
    if plaintext.len() < TRY_COMPRESSION_FROM {
        return None;
    }
    let shorter = COMPRESSOR.with_borrow_mut(|compressor| compressor.as_mut()?.compress(plaintext).ok())?;
    (shorter.len() <= plaintext.len() / 5 * 4).then_some(shorter)
}

fn checksum(object: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&object[..4]), &object[OBJECT_HEAD..])
}

/// SHA-256 over nonce and ciphertext of a whole object.
pub(crate) fn address(object: &[u8]) -> Sha256Digest {
    Sha256Digest::of(&object[OBJECT_HEAD + 1..])
}

/// The nonce of a whole object.
pub(crate) fn nonce(object: &[u8]) -> Option<&[u8; NONCE]> {
    object.get(OBJECT_HEAD + 1..)?.first_chunk()
}

/// What an object's head says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectHead {
    /// Nothing was written here.
    End,
    /// An object, this long with its head.
    Object(usize),
    /// No object can begin like this.
    Bad,
}

pub(crate) fn head(bytes: &[u8; OBJECT_HEAD]) -> ObjectHead {
    let len = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    match len {
        0 if *bytes == [0; OBJECT_HEAD] => ObjectHead::End,
        len if len < LEAST => ObjectHead::Bad,
        len => ObjectHead::Object(OBJECT_HEAD + len),
    }
}

/// Whether a whole object's checksum is right.
pub(crate) fn intact(object: &[u8]) -> bool {
    object.len() >= OBJECT_HEAD + LEAST && checksum(object).to_be_bytes() == object[4..8]
}

/// Whether an object of this length with these flags can hold a plaintext of `bytes`: spares hashing most of
/// the others when one is looked for.
pub(crate) fn may_hold(object_len: usize, flags: u8, bytes: u64) -> bool {
    let content = (object_len - OVERHEAD) as u64;
    if flags & COMPRESSED == 0 { content == bytes } else { content <= bytes / 5 * 4 }
}

/// A cipher for this key.
pub(crate) fn cipher(key: &[u8; 32]) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&Key::from(*key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;
    use proptest::prelude::*;

    fn binding() -> Binding {
        let now = Timestamp::from_millis(1_800_000_000_000);
        Binding { log: LogId::new(now), role: Role::Response, proposal: Some(ProposalId::new(now)) }
    }

    #[test]
    fn an_object_opens_only_as_what_it_was_sealed_for() {
        // AUD-41
        let (key, bound) = (cipher(&[7; 32]), binding());
        let plaintext = b"the answer".to_vec();
        let (address_of, object) = seal(&key, bound, &plaintext).unwrap();
        assert_eq!(address(&object), address_of);
        assert_eq!(address_of, Sha256Digest::of(&object[9..]));
        assert!(intact(&object));
        assert_eq!(open(&key, bound, 10, &object).unwrap(), plaintext);
        assert!(open(&cipher(&[8; 32]), bound, 10, &object).is_none());
        assert!(open(&key, Binding { role: Role::Request, ..bound }, 10, &object).is_none());
        assert!(open(&key, Binding { proposal: None, ..bound }, 10, &object).is_none());
        assert!(open(&key, Binding { log: LogId::from_bytes([1; 16]), ..bound }, 10, &object).is_none());
        assert!(open(&key, bound, 11, &object).is_none());
        // Two seals of one plaintext have nothing in common.
        assert_ne!(seal(&key, bound, &plaintext).unwrap().0, address_of);
    }

    #[test]
    fn what_repeats_itself_is_compressed_and_what_does_not_is_kept_as_it_is() {
        let (key, bound) = (cipher(&[7; 32]), binding());
        let repeating = b"abcdefgh".repeat(1000);
        let (_, object) = seal(&key, bound, &repeating).unwrap();
        assert!(object.len() < 1000 && object[OBJECT_HEAD] == COMPRESSED);
        assert!(may_hold(object.len(), COMPRESSED, 8000) && !may_hold(object.len(), 0, 8000));
        assert_eq!(open(&key, bound, 8000, &object).unwrap(), repeating);
        // A flag is not sealed, but the length that the record has is.
        let mut flipped = object.clone();
        flipped[OBJECT_HEAD] = 0;
        assert!(open(&key, bound, 8000, &flipped).is_none());
        let random: Vec<u8> = (0..8000).map(|_| rand::rng().random()).collect();
        let (_, object) = seal(&key, bound, &random).unwrap();
        assert_eq!((object.len(), object[OBJECT_HEAD]), (8000 + OVERHEAD, 0));
        assert_eq!(open(&key, bound, 8000, &object).unwrap(), random);
    }

    proptest! {
        #[test]
        fn every_flipped_bit_of_an_object_is_noticed(
            plaintext in prop::collection::vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(),
            bit in 0..8u32,
        ) {
            let (key, bound) = (cipher(&[7; 32]), binding());
            let (_, mut object) = seal(&key, bound, &plaintext).unwrap();
            prop_assert_eq!(open(&key, bound, plaintext.len() as u64, &object).unwrap(), plaintext);
            let at = at.index(object.len());
            object[at] ^= 1 << bit;
            prop_assert!(!intact(&object));
        }
    }
}
