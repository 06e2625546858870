//! Who signs a log's checkpoints (AUD-33): a key in a file of its own, or a program that has one.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use portcullis_core::Secret;
use portcullis_core::digest::{parse_hex, to_hex};
use zeroize::Zeroize as _;

use crate::error::{AtPath as _, AuditError};
use crate::files;
use crate::note::{NoteKey, NoteSignature};

/// Where signatures come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignerSource {
    /// A file with 64 hexadecimal digits; created if it does not exist.
    File(PathBuf),
    /// A program that gets the text on its standard input and answers with the signature in base64.
    Command {
        /// The program and its arguments.
        command: Vec<String>,
        /// Its public key.
        public_key: [u8; 32],
    },
}

/// Signs for one log.
#[derive(Debug)]
pub(crate) struct Signer {
    key: NoteKey,
    by: By,
}

#[derive(Debug)]
enum By {
    Key(SigningKey),
    Command(Vec<String>),
}

impl Signer {
    /// Gets ready to sign for the log with this origin.
    pub(crate) fn open(source: &SignerSource, origin: &str) -> Result<Self, AuditError> {
        match source {
            SignerSource::File(path) => {
                let key = SigningKey::from_bytes(read_or_create_key(path)?.expose());
                Ok(Self { key: NoteKey::log(origin, key.verifying_key()), by: By::Key(key) })
            }
            SignerSource::Command { command, public_key } => {
                let key = VerifyingKey::from_bytes(public_key).map_err(|_| AuditError::Options {
                    what: "audit.signer.public_key is not an Ed25519 key".into(),
                })?;
                if command.is_empty() {
                    return Err(AuditError::Options { what: "audit.signer.command is empty".into() });
                }
                Ok(Self { key: NoteKey::log(origin, key), by: By::Command(command.clone()) })
            }
        }
    }

    /// What its signatures are checked with.
    pub(crate) fn key(&self) -> &NoteKey {
        &self.key
    }

    /// Signs the text of a checkpoint.
    pub(crate) fn sign(&self, text: &str) -> Result<NoteSignature, AuditError> {
        let bytes = match &self.by {
            By::Key(key) => key.sign(text.as_bytes()).to_bytes().to_vec(),
            By::Command(command) => ask(command, text).at(Path::new(&command[0]))?,
        };
        let signature = NoteSignature::new(&self.key, bytes);
        // Another's program may have another's key; what we publish must verify.
        if self.key.verifies(text, &signature) {
            Ok(signature)
        } else {
            Err(AuditError::Options {
                what: "the signature made for a checkpoint is not of the log's key".into(),
            })
        }
    }
}

fn ask(command: &[String], text: &str) -> std::io::Result<Vec<u8>> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let answer = child.wait_with_output()?;
    if !answer.status.success() {
        return Err(std::io::Error::other(format!("the signer ended with {}", answer.status)));
    }
    let line = String::from_utf8_lossy(&answer.stdout);
    BASE64.decode(line.trim()).map_err(|_| std::io::Error::other("the signer did not answer in base64"))
}

fn read_or_create_key(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
    if !path.exists() {
        if let Some(parent) = path.parent() {
            files::create_dir_all(parent)?;
        }
        let key = Secret::random_key();
        let mut text = to_hex(key.expose());
        let created = files::replace(path, text.as_bytes());
        text.zeroize();
        created?;
        return Ok(key);
    }
    files::check_file(path)?;
    let mut text = std::fs::read_to_string(path).at(path)?;
    let key = parse_hex(text.trim_end());
    text.zeroize();
    key.map(Secret::new).ok_or_else(|| AuditError::Keys {
        path: path.into(),
        problem: "is not a key of 64 hexadecimal digits",
    })
}
