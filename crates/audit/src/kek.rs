//! Where the key comes from that wraps the data keys (AUD-42), and how it is replaced when some are destroyed
//! (AUD-43): old copies of `keys.sealed` must not open any more, so there is another one for each *generation*.
//!
//! A file is made by us and replaced by us. The kernel's keyring is not a place to keep anything: it forgets at every
//! reboot. So a key in it is the operator's, who loads it, keeps it elsewhere, and loads a fresh one before anything
//! can be destroyed; we make none, because one that only the kernel had would take the evidence with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use portcullis_core::Secret;
use portcullis_core::digest::{parse_hex, to_hex};
use zeroize::Zeroize as _;

use crate::error::{AtPath as _, AuditError};
use crate::files;

/// Where the key that wraps the data keys comes from (AUD-42).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KekSource {
    /// A file of 64 hexadecimal digits, created if it does not exist. Destroying a data key makes a new file.
    File(PathBuf),
    /// A key of type `user` with this name in the kernel's keyring of the session or the user: 64 hexadecimal digits or
    /// 32 bytes. That of a later generation has the name with its number, `NAME.2`.
    Keyring(String),
    /// A program that prints 64 hexadecimal digits. It finds the generation that is wanted in
    /// `PORTCULLIS_KEK_GENERATION`.
    Command(Vec<String>),
}

/// What a program reads the generation from.
const GENERATION: &str = "PORTCULLIS_KEK_GENERATION";

impl KekSource {
    /// The key of this generation; a first one that is a file is created.
    pub(crate) fn read(&self, generation: u64) -> Result<Secret<[u8; 32]>, AuditError> {
        match self {
            KekSource::File(path) => {
                let path = named(path, generation);
                if generation <= 1 { read_or_create(&path) } else { read_file(&path) }
            }
            KekSource::Keyring(name) => read_keyring(&named(Path::new(name), generation).to_string_lossy()),
            KekSource::Command(command) => run(command, generation),
        }
    }

    /// Whether there is, or can be, a fresh key for this generation. Asked before anything is begun that needs it.
    pub(crate) fn can_create(&self, generation: u64) -> Result<(), AuditError> {
        match self {
            KekSource::File(_) => Ok(()),
            KekSource::Keyring(_) | KekSource::Command(_) => self.read(generation).map(drop),
        }
    }

    /// A fresh key for the next generation.
    pub(crate) fn create(&self, generation: u64) -> Result<Secret<[u8; 32]>, AuditError> {
        match self {
            KekSource::File(path) => {
                let path = named(path, generation);
                // One that a crash left was never used.
                let _ = std::fs::remove_file(&path);
                read_or_create(&path)
            }
            KekSource::Keyring(_) | KekSource::Command(_) => self.read(generation),
        }
    }

    /// Removes the key of the generation before this one from where we can.
    pub(crate) fn forget_before(&self, generation: u64) {
        if generation <= 1 {
            return;
        }
        match self {
            KekSource::File(path) => {
                let old = named(path, generation - 1);
                let _ = std::fs::remove_file(&old);
                let _ = old.parent().map(files::sync_dir);
            }
            KekSource::Keyring(name) => {
                forget_keyring(&named(Path::new(name), generation - 1).to_string_lossy());
            }
            KekSource::Command(_) => {}
        }
    }
}

/// What a generation is called: the first has the configured name.
fn named(path: &Path, generation: u64) -> PathBuf {
    if generation <= 1 { path.into() } else { path.with_added_extension(generation.to_string()) }
}

fn run(command: &[String], generation: u64) -> Result<Secret<[u8; 32]>, AuditError> {
    let program = Path::new(command.first().map_or("", String::as_str));
    let output = Command::new(program)
        .args(command.iter().skip(1))
        .env(GENERATION, generation.to_string())
        .stdin(Stdio::null())
        .output()
        .at(program)?;
    let mut text = String::from_utf8(output.stdout).unwrap_or_default();
    let key = parse_hex(text.trim_end()).filter(|_| output.status.success());
    text.zeroize();
    let problem = "did not print a key of 64 hexadecimal digits";
    key.map(Secret::new).ok_or_else(|| AuditError::Keys { path: program.into(), problem })
}

/// The KEK file holds 64 hexadecimal digits; it is created with fresh ones if it does not exist.
fn read_or_create(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
    if path.exists() {
        return read_file(path);
    }
    if let Some(parent) = path.parent() {
        files::create_dir_all(parent)?;
    }
    let key = Secret::random_key();
    let mut text = to_hex(key.expose());
    let created = files::replace(path, text.as_bytes());
    text.zeroize();
    created.map(|()| key)
}

fn read_file(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
    files::check_file(path)?;
    let mut text = std::fs::read_to_string(path).at(path)?;
    let key = parse_hex(text.trim_end());
    text.zeroize();
    key.map(Secret::new).ok_or_else(|| AuditError::Keys {
        path: path.into(),
        problem: "is not a key of 64 hexadecimal digits",
    })
}

#[cfg(target_os = "linux")]
fn read_keyring(name: &str) -> Result<Secret<[u8; 32]>, AuditError> {
    let unusable = |problem: String| AuditError::Keyring { name: name.into(), problem };
    let load = format!(
        "load it as the gateway's user (the kernel forgets it at every reboot): keyctl padd user {name} @u < FILE"
    );
    let key = find_in_keyring(name).ok_or_else(|| unusable(format!("is not there; {load}")))?;
    let mut bytes = key.read_to_vec().map_err(|error| {
        unusable(format!("cannot be read ({error}): this process must possess it; {load}"))
    })?;
    let key = match <[u8; 32]>::try_from(bytes.as_slice()) {
        Ok(key) => Some(key),
        Err(_) => std::str::from_utf8(&bytes).ok().and_then(|text| parse_hex(text.trim_end())),
    };
    bytes.zeroize();
    key.map(Secret::new).ok_or_else(|| unusable("is not a key of 64 hexadecimal digits or 32 bytes".into()))
}

#[cfg(target_os = "linux")]
fn find_in_keyring(name: &str) -> Option<linux_keyutils::Key> {
    use linux_keyutils::{KeyRing, KeyRingIdentifier};
    let search = |keyring| KeyRing::from_special_id(keyring, false).and_then(|ring| ring.search(name)).ok();
    search(KeyRingIdentifier::Session).or_else(|| search(KeyRingIdentifier::User))
}

#[cfg(target_os = "linux")]
fn forget_keyring(name: &str) {
    if let Some(key) = find_in_keyring(name)
        && let Err(error) = key.invalidate()
    {
        tracing::warn!(
            "the old key {name} is still in the kernel's keyring ({error}); remove it with keyctl"
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn read_keyring(name: &str) -> Result<Secret<[u8; 32]>, AuditError> {
    Err(AuditError::Keyring {
        name: name.into(),
        problem: "there is no kernel keyring on this system".into(),
    })
}

#[cfg(not(target_os = "linux"))]
fn forget_keyring(_: &str) {}
