//! Signed notes and checkpoints (AUD-31; C2SP signed-note, tlog-checkpoint).
//!
//! A checkpoint is three lines: whose log, how many records, and the root over them. Signed by the log's key it is a
//! promise that can be held against the log for ever, by anybody who kept a copy elsewhere.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signature, VerifyingKey};
use portcullis_core::{Sha256Digest, Timestamp};

/// The kinds of signature a note can carry, by their byte in the key id.
const ED25519: u8 = 1;
const COSIGNATURE_V1: u8 = 4;
/// A witness's signature has the time before it.
const COSIGNATURE_LEN: usize = 8 + 64;

/// The text is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoteError(&'static str);

/// A key that signatures of notes are checked with: `<name>+<id>+<base64>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    kind: u8,
    key: VerifyingKey,
}

impl NoteKey {
    /// The key of a log.
    pub fn log(name: &str, key: VerifyingKey) -> Self {
        Self { name: name.into(), kind: ED25519, key }
    }

    /// The key of a witness.
    pub fn witness(name: &str, key: VerifyingKey) -> Self {
        Self { name: name.into(), kind: COSIGNATURE_V1, key }
    }

    /// Whose key it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a witness's.
    pub fn is_witness(&self) -> bool {
        self.kind == COSIGNATURE_V1
    }

    /// The first four bytes of SHA-256 over name, newline, kind and key.
    pub fn id(&self) -> [u8; 4] {
        let digest =
            Sha256Digest::of_parts(&[self.name.as_bytes(), b"\n", &[self.kind], self.key.as_bytes()]);
        let [a, b, c, d, ..] = *digest.as_bytes();
        [a, b, c, d]
    }

    /// Whether `signature` is this key's over the text of a note.
    pub fn verifies(&self, text: &str, signature: &NoteSignature) -> bool {
        if signature.name != self.name || signature.id != self.id() {
            return false;
        }
        match self.kind {
            ED25519 => Signature::from_slice(&signature.bytes)
                .is_ok_and(|bytes| self.key.verify_strict(text.as_bytes(), &bytes).is_ok()),
            _ => {
                let Some((time, bytes)) = signature.bytes.split_first_chunk::<8>() else { return false };
                let message = cosigned(u64::from_be_bytes(*time), text);
                Signature::from_slice(bytes)
                    .is_ok_and(|bytes| self.key.verify_strict(message.as_bytes(), &bytes).is_ok())
            }
        }
    }
}

/// What a witness signs: the time it says it saw the note, and the note.
fn cosigned(time: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![self.kind];
        key.extend_from_slice(self.key.as_bytes());
        let id = portcullis_core::digest::to_hex(&self.id());
        write!(f, "{}+{id}+{}", self.name, BASE64.encode(key))
    }
}

impl FromStr for NoteKey {
    type Err = NoteError;
    fn from_str(text: &str) -> Result<Self, NoteError> {
        const SHAPE: NoteError = NoteError("not a verifier key: expected <name>+<id>+<base64>");
        let (name, rest) = text.split_once('+').ok_or(SHAPE)?;
        let (id, key) = rest.split_once('+').ok_or(SHAPE)?;
        let bytes = BASE64.decode(key).map_err(|_| SHAPE)?;
        let (kind, key) = bytes.split_first().ok_or(SHAPE)?;
        let key: [u8; 32] = key.try_into().map_err(|_| SHAPE)?;
        if !is_name(name) {
            return Err(SHAPE);
        }
        if !matches!(*kind, ED25519 | COSIGNATURE_V1) {
            return Err(NoteError(
                "a verifier key of a kind that is not known: Ed25519 and cosignature/v1 are",
            ));
        }
        let key = VerifyingKey::from_bytes(&key).map_err(|_| SHAPE)?;
        let key = Self { name: name.into(), kind: *kind, key };
        if portcullis_core::digest::to_hex(&key.id()) != id {
            return Err(NoteError("the id in the verifier key is not that of its name and key"));
        }
        Ok(key)
    }
}

/// Whether a key may have this name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '+' || c.is_whitespace() || c.is_control())
}

/// One signature line of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    pub(crate) name: String,
    pub(crate) id: [u8; 4],
    pub(crate) bytes: Vec<u8>,
}

impl NoteSignature {
    /// The signature `bytes` by `key`.
    pub(crate) fn new(key: &NoteKey, bytes: Vec<u8>) -> Self {
        Self { name: key.name.clone(), id: key.id(), bytes }
    }

    /// Who signed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When a witness says it signed; `None` for a log's own signature.
    pub fn witnessed_at(&self) -> Option<Timestamp> {
        let (time, _) =
            self.bytes.split_first_chunk::<8>().filter(|_| self.bytes.len() == COSIGNATURE_LEN)?;
        Some(Timestamp::from_millis(u64::from_be_bytes(*time).saturating_mul(1000)))
    }

    /// Reads one line.
    pub fn parse(line: &str) -> Result<Self, NoteError> {
        const SHAPE: NoteError = NoteError("not a signature line");
        let (name, encoded) = line.strip_prefix("— ").and_then(|rest| rest.split_once(' ')).ok_or(SHAPE)?;
        let bytes = BASE64.decode(encoded).map_err(|_| SHAPE)?;
        let (id, bytes) = bytes.split_first_chunk::<4>().ok_or(SHAPE)?;
        if !is_name(name) || bytes.is_empty() {
            return Err(SHAPE);
        }
        Ok(Self { name: name.into(), id: *id, bytes: bytes.to_vec() })
    }
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "— {} {}", self.name, BASE64.encode([&self.id[..], &self.bytes].concat()))
    }
}

/// A log's promise: these were its records, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whose log.
    pub origin: String,
    /// How many records.
    pub size: u64,
    /// The root over them.
    pub root: Sha256Digest,
}

impl Checkpoint {
    /// The text that is signed.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, BASE64.encode(self.root.as_bytes()))
    }

    /// Reads the text. Lines after the third are extensions, which this kind of log does not use.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        const SHAPE: NoteError = NoteError("not a checkpoint: expected origin, size and root");
        let mut lines = text.strip_suffix('\n').ok_or(SHAPE)?.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(SHAPE);
        };
        let parsed: u64 = size.parse().map_err(|_| SHAPE)?;
        let root: [u8; 32] = BASE64.decode(root).ok().and_then(|root| root.try_into().ok()).ok_or(SHAPE)?;
        if parsed.to_string() != size || origin.is_empty() {
            return Err(SHAPE);
        }
        Ok(Self { origin: origin.into(), size: parsed, root: Sha256Digest::from_bytes(root) })
    }
}

/// A checkpoint with its signatures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedCheckpoint {
    /// What is promised.
    pub checkpoint: Checkpoint,
    /// The exact text that is signed.
    text: String,
    /// Who promises, and who saw it.
    pub signatures: Vec<NoteSignature>,
}

impl SignedCheckpoint {
    pub(crate) fn new(checkpoint: Checkpoint, signatures: Vec<NoteSignature>) -> Self {
        Self { text: checkpoint.text(), checkpoint, signatures }
    }

    /// The exact text that is signed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `key` signed it.
    pub fn is_signed_by(&self, key: &NoteKey) -> bool {
        self.signatures.iter().any(|signature| key.verifies(&self.text, signature))
    }
}

impl fmt::Display for SignedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

impl FromStr for SignedCheckpoint {
    type Err = NoteError;
    fn from_str(note: &str) -> Result<Self, NoteError> {
        const SHAPE: NoteError = NoteError("not a signed note: expected text, an empty line and signatures");
        // The last empty line: a text may have others.
        let at = note.rfind("\n\n").ok_or(SHAPE)?;
        let (text, signatures) = (&note[..=at], &note[at + 2..]);
        let lines = signatures.strip_suffix('\n').ok_or(SHAPE)?;
        let signatures = lines.split('\n').map(NoteSignature::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { checkpoint: Checkpoint::parse(text)?, text: text.into(), signatures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ed25519_dalek::{Signer as _, SigningKey};

    fn key() -> SigningKey {
        SigningKey::from_bytes(&[7; 32])
    }

    fn signed() -> (SignedCheckpoint, NoteKey) {
        let key_of_log = NoteKey::log("example.org/log", key().verifying_key());
        let checkpoint =
            Checkpoint { origin: "example.org/log".into(), size: 1843, root: Sha256Digest::of(b"x") };
        let signature = key().sign(checkpoint.text().as_bytes()).to_bytes().to_vec();
        let signature = NoteSignature::new(&key_of_log, signature);
        (SignedCheckpoint::new(checkpoint, vec![signature]), key_of_log)
    }

    #[test]
    fn the_published_example_of_a_signed_note_verifies() {
        // AUD-31: the example of the C2SP signed-note specification.
        let key: NoteKey =
            "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".parse().unwrap();
        let text = "If you think cryptography is the answer to your problem,\n\
                    then you don't know what your problem is.\n";
        let line = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=";
        let signature = NoteSignature::parse(line).unwrap();
        assert!(key.verifies(text, &signature));
        assert!(!key.verifies(&text.replace("think", "thank"), &signature));
        assert_eq!(signature.to_string(), line);
        assert_eq!(key.to_string(), "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW");
    }

    #[test]
    fn a_checkpoint_has_three_lines_and_reads_back() {
        // AUD-31
        let (note, key) = signed();
        let text = note.to_string();
        assert!(text.starts_with("example.org/log\n1843\n"), "{text}");
        assert!(text.contains("\n\n— example.org/log "), "{text}");
        let back: SignedCheckpoint = text.parse().unwrap();
        assert_eq!(back, note);
        assert!(back.is_signed_by(&key));
        let altered: SignedCheckpoint = text.replace("1843", "1844").parse().unwrap();
        assert!(!altered.is_signed_by(&key));
        assert_eq!(key.to_string().parse::<NoteKey>().unwrap(), key);
    }

    #[test]
    fn what_is_not_a_checkpoint_is_refused() {
        let (note, _) = signed();
        let text = note.to_string();
        for bad in [
            text.replace("1843", "01843"),
            text.replace("1843", "-1"),
            text.replace("\n\n", "\n"),
            text.trim_end().to_owned(),
            text.replace("— ", "- "),
            String::new(),
        ] {
            assert!(bad.parse::<SignedCheckpoint>().is_err(), "{bad:?}");
        }
        for bad in ["x", "x+00000000+AA==", "a b+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"] {
            assert!(bad.parse::<NoteKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_witness_signs_the_time_with_the_text() {
        // AUD-34
        let (note, _) = signed();
        let witness = NoteKey::witness("witness.example", key().verifying_key());
        let time = 1_800_000_000u64;
        let signature = key().sign(cosigned(time, note.text()).as_bytes()).to_bytes();
        let bytes = [&time.to_be_bytes()[..], &signature].concat();
        let line = NoteSignature::new(&witness, bytes);
        assert!(witness.verifies(note.text(), &line) && witness.is_witness());
        assert_eq!(line.witnessed_at().unwrap().as_millis(), time * 1000);
        let mut later = line.clone();
        later.bytes[7] ^= 1;
        assert!(!witness.verifies(note.text(), &later));
    }
}
