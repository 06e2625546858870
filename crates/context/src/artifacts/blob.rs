//! The bytes of an artifact where it lies: sealed in chunks, so that a view opens only what it shows (CTX-23).
//!
//! An object is `PCART1\0\0 | prefix 16 | chunk... | index`. A chunk is at most 16 KiB of content and its tag, sealed with
//! XChaCha20-Poly1305 under the nonce `prefix | number`; what it is bound to besides is the blob's name, the length of
//! the whole, so that no object can be cut short, continued or passed off as another. The index is a chunk of its own with
//! the last number there is: where every sixty-fourth line begins. The prefix follows from the name, which follows from the
//! content: who keeps the same content writes the same bytes, whenever and wherever that is.

use std::io;

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use portcullis_core::Secret;
use portcullis_core::digest::to_hex;
use rand::RngExt as _;

use super::place::{Drawer, Object, Place};
use crate::lines::Index;

const MAGIC: &[u8; 8] = b"PCART1\0\0";
const PREFIX: usize = 16;
const HEAD: u64 = (MAGIC.len() + PREFIX) as u64;
/// Small enough that ten lines cost one, large enough that tags cost little.
const CHUNK: usize = 16 * 1024;
const TAG: usize = 16;
const INDEX: u64 = u64::MAX;

/// What blobs are called and sealed with. Both keys are made from the installation's.
pub(crate) struct BlobKeys {
    name: Secret<[u8; 32]>,
    cipher: XChaCha20Poly1305,
}

impl BlobKeys {
    pub(crate) fn derive(installation: &Secret<[u8; 32]>) -> Self {
        let key = |what: &str| blake3::derive_key(what, installation.expose());
        let sealing = Secret::new(key("portcullis 2026 artifact blobs: sealing"));
        Self {
            name: Secret::new(key("portcullis 2026 artifact blobs: names")),
            cipher: XChaCha20Poly1305::new(&(*sealing.expose()).into()),
        }
    }

    /// The name of content: who lacks the key cannot tell whether something he guesses is kept here.
    pub(crate) fn name(&self, content: &[u8]) -> BlobName {
        BlobName(*blake3::keyed_hash(self.name.expose(), content).as_bytes())
    }

    /// What the nonces of a blob begin with.
    fn prefix(&self, name: BlobName) -> [u8; PREFIX] {
        let mut made = blake3::Hasher::new_keyed(self.name.expose());
        made.update(b"prefix").update(&name.0);
        let mut prefix = [0; PREFIX];
        made.finalize_xof().fill(&mut prefix);
        prefix
    }

    /// Seals a short text that belongs to `name`, a record.
    pub(crate) fn seal_small(&self, name: &str, content: &[u8]) -> Vec<u8> {
        let nonce: [u8; 24] = rand::rng().random();
        let mut sealed = nonce.to_vec();
        sealed.extend_from_slice(content);
        let body = InOutBuf::from(&mut sealed[24..]);
        let tag = self.cipher.encrypt_inout_detached(&XNonce::from(nonce), name.as_bytes(), body);
        sealed.extend_from_slice(&tag.expect("a record is short"));
        sealed
    }

    /// Opens what [`seal_small`](Self::seal_small) sealed.
    pub(crate) fn open_small(&self, name: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, rest) = sealed.split_first_chunk::<24>()?;
        let (content, tag) = rest.split_last_chunk::<TAG>()?;
        let mut content = content.to_vec();
        let body = InOutBuf::from(content.as_mut_slice());
        let nonce = XNonce::from(*nonce);
        self.cipher.decrypt_inout_detached(&nonce, name.as_bytes(), body, &Tag::from(*tag)).ok()?;
        Some(content)
    }
}

/// The keyed hash of a blob's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlobName(pub(crate) [u8; 32]);

impl BlobName {
    pub(crate) fn hex(&self) -> String {
        to_hex(&self.0)
    }
}

struct Binding<'k> {
    keys: &'k BlobKeys,
    name: BlobName,
    length: u64,
    prefix: [u8; PREFIX],
}

impl Binding<'_> {
    fn nonce(&self, number: u64) -> XNonce {
        let mut nonce = [0; 24];
        nonce[..PREFIX].copy_from_slice(&self.prefix);
        nonce[PREFIX..].copy_from_slice(&number.to_be_bytes());
        XNonce::from(nonce)
    }

    fn associated(&self) -> [u8; 40] {
        let mut data = [0; 40];
        data[..32].copy_from_slice(&self.name.0);
        data[32..].copy_from_slice(&self.length.to_be_bytes());
        data
    }

    fn seal(&self, number: u64, content: &mut Vec<u8>) -> io::Result<()> {
        let body = InOutBuf::from(content.as_mut_slice());
        let sealed = self.keys.cipher.encrypt_inout_detached(&self.nonce(number), &self.associated(), body);
        let tag = sealed.map_err(|_| io::Error::other("a chunk cannot be sealed"))?;
        content.extend_from_slice(&tag);
        Ok(())
    }

    fn open(&self, number: u64, mut sealed: Vec<u8>) -> io::Result<Vec<u8>> {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "a chunk does not open");
        let tag: [u8; TAG] = *sealed.last_chunk().ok_or_else(broken)?;
        sealed.truncate(sealed.len() - TAG);
        let body = InOutBuf::from(sealed.as_mut_slice());
        let opened = self.keys.cipher.decrypt_inout_detached(
            &self.nonce(number),
            &self.associated(),
            body,
            &Tag::from(tag),
        );
        opened.map_err(|_| broken())?;
        Ok(sealed)
    }
}

/// Writes a blob (CTX-25).
pub(crate) fn write(
    keys: &BlobKeys,
    place: &dyn Place,
    name: BlobName,
    content: &[u8],
    index: &Index,
) -> io::Result<()> {
    let binding = Binding { keys, name, length: content.len() as u64, prefix: keys.prefix(name) };
    place.put(Drawer::Blobs, &name.hex(), &mut |out| {
        out.write_all(MAGIC)?;
        out.write_all(&binding.prefix)?;
        let mut sealed = Vec::with_capacity(CHUNK + TAG);
        for (number, chunk) in content.chunks(CHUNK).enumerate() {
            sealed.clear();
            sealed.extend_from_slice(chunk);
            binding.seal(number as u64, &mut sealed)?;
            out.write_all(&sealed)?;
        }
        let mut index = index.to_bytes();
        binding.seal(INDEX, &mut index)?;
        out.write_all(&index)
    })
}

/// A blob that can be read from anywhere.
pub(crate) struct Blob<'k> {
    object: Box<dyn Object>,
    binding: Binding<'k>,
}

impl<'k> Blob<'k> {
    pub(crate) fn open(
        keys: &'k BlobKeys,
        place: &dyn Place,
        name: BlobName,
        length: u64,
    ) -> io::Result<Self> {
        let object = place.open(Drawer::Blobs, &name.hex())?;
        let mut head = [0; HEAD as usize];
        object.read_exact_at(&mut head, 0)?;
        let (magic, prefix) = head.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not an artifact"));
        }
        let prefix = prefix.try_into().expect("the head has a prefix");
        Ok(Self { object, binding: Binding { keys, name, length, prefix } })
    }

    /// The bytes from `begin` to `end`, as far as there are any. Their chunks lie one behind the other and are fetched
    /// together: where the place is far away, each fetch counts.
    pub(crate) fn read(&self, begin: u64, end: u64) -> io::Result<Vec<u8>> {
        const SEALED: u64 = (CHUNK + TAG) as u64;
        let end = end.min(self.binding.length);
        if begin >= end {
            return Ok(Vec::new());
        }
        let (first, last) = (begin / CHUNK as u64, (end - 1) / CHUNK as u64);
        let whole = self.binding.length + self.binding.length.div_ceil(CHUNK as u64) * TAG as u64;
        let mut sealed = vec![0; (((last + 1) * SEALED).min(whole) - first * SEALED) as usize];
        self.object.read_exact_at(&mut sealed, HEAD + first * SEALED)?;
        let mut bytes = Vec::with_capacity((end - begin) as usize);
        for (number, chunk) in (first..=last).zip(sealed.chunks(SEALED as usize)) {
            let chunk = self.binding.open(number, chunk.to_vec())?;
            let base = number * CHUNK as u64;
            let from = begin.saturating_sub(base) as usize;
            let to = ((end - base) as usize).min(chunk.len());
            bytes.extend_from_slice(&chunk[from..to]);
        }
        Ok(bytes)
    }

    /// Where its lines begin.
    pub(crate) fn index(&self) -> io::Result<Index> {
        let chunks = self.binding.length.div_ceil(CHUNK as u64);
        let at = HEAD + self.binding.length + chunks * TAG as u64;
        let size = self.object.len()?.saturating_sub(at) as usize;
        let mut sealed = vec![0; size];
        self.object.read_exact_at(&mut sealed, at)?;
        let opened = self.binding.open(INDEX, sealed)?;
        Index::from_bytes(&opened).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no index"))
    }
}
