//! The keys evidence is sealed with (AUD-42).
//!
//! One data key per retention class and UTC day, so that what must be forgotten can be forgotten by losing a
//! key. Data keys live in `keys.sealed`, each wrapped by the key encryption key (KEK), which comes from a file
//! of its own, created on first use, and is never written anywhere else.
//!
//! A new key is announced in the log (`audit.key_created`, with a check value that pins the key without giving
//! it away) before the first object that uses it. A crash may come between storing a key and announcing it; a
//! key therefore becomes *announced* in the file only when the log was closed in order, and a key that never
//! became it is not used again: the day gets another.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, Tag, XChaCha20Poly1305, XNonce};
use portcullis_core::digest::{parse_hex, to_hex};
use portcullis_core::{LogId, Secret, failpoint};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::error::{AtPath as _, AuditError};
use crate::evidence::{Day, KeyName, RetentionClass};
use crate::{files, seal};

/// A data key, ready to seal.
pub(crate) struct DataKey {
    pub(crate) name: KeyName,
    pub(crate) cipher: XChaCha20Poly1305,
    /// BLAKE3 of the key's name, keyed with the key: pins it without telling it.
    pub(crate) check: String,
}

/// All keys of one log.
pub(crate) struct KeyRing {
    log: LogId,
    path: PathBuf,
    source: KekSource,
    state: RwLock<State>,
}

/// Where the key that wraps the data keys comes from (AUD-42).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KekSource {
    /// A file of 64 hexadecimal digits, created if it does not exist. Destroying a data key makes a new file, because
    /// old copies of `keys.sealed` must not open any more.
    File(PathBuf),
    /// A program that prints 64 hexadecimal digits. It has to see to it itself that old copies do not open.
    Command(Vec<String>),
}

/// Why nothing can be sealed.
#[derive(Debug)]
pub(crate) enum NoKey {
    /// A new key could not be written down.
    Unstored(AuditError),
    /// A new key could not be put on record.
    Unannounced(String),
}

struct State {
    kek: XChaCha20Poly1305,
    /// The keys in use, one per class at most.
    current: [Option<Arc<DataKey>>; RetentionClass::ALL.len()],
    sealed: SealedKeys,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedKeys {
    v: u8,
    /// Which KEK wrapped them: raised when keys are destroyed.
    generation: u64,
    keys: Vec<SealedKey>,
    /// The key of the vault that operators keep credentials in, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vault: Option<SealedVaultKey>,
}

/// The vault's key outlives the data keys: it is wrapped anew with the rest, and never destroyed with one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedVaultKey {
    nonce: String,
    wrapped: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedKey {
    key: KeyName,
    announced: bool,
    /// Kept beyond its time, because an operator said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    held: bool,
    nonce: String,
    wrapped: String,
}

impl KeyRing {
    /// Reads the keys of `log`, creating the KEK file and the key file if they do not exist.
    pub(crate) fn open(log: LogId, path: PathBuf, source: &KekSource) -> Result<Self, AuditError> {
        let sealed = if path.exists() {
            let text = std::fs::read(&path).at(&path)?;
            serde_json::from_slice(&text).map_err(|_| AuditError::Keys {
                path: path.clone(),
                problem: "is not a file of sealed keys",
            })?
        } else {
            let sealed = SealedKeys { v: 1, generation: 1, keys: Vec::new(), vault: None };
            store(&path, &sealed)?;
            sealed
        };
        let kek = source.read(sealed.generation)?;
        let state = State { kek: seal::cipher(kek.expose()), current: Default::default(), sealed };
        let ring = Self { log, path, source: source.clone(), state: RwLock::new(state) };
        // A wrong KEK shows now, not when somebody needs the evidence.
        let opens = |state: &State| {
            state.sealed.keys.last().is_none_or(|newest| ring.unwrap(state, newest).is_some())
        };
        if !opens(&ring.read()) {
            return Err(AuditError::Keys { path: ring.path, problem: "does not open with this key file" });
        }
        // A crash between using a new key file and removing the old one left that.
        source.forget_before(ring.read().sealed.generation);
        Ok(ring)
    }

    /// Every key there is, oldest first, and whether it is held.
    pub(crate) fn list(&self) -> Vec<(KeyName, bool)> {
        let mut keys: Vec<_> = self.read().sealed.keys.iter().map(|key| (key.key, key.held)).collect();
        keys.sort_unstable();
        keys
    }

    /// Keeps a key beyond its time, or no longer; false if there is no such key.
    pub(crate) fn hold(&self, name: KeyName, held: bool) -> Result<bool, AuditError> {
        let mut state = self.write();
        let Some(key) = state.sealed.keys.iter_mut().find(|key| key.key == name) else { return Ok(false) };
        key.held = held;
        store(&self.path, &state.sealed)?;
        Ok(true)
    }

    /// Destroys keys (AUD-43): the others are wrapped anew under a fresh key, and the old one is removed.
    pub(crate) fn destroy(&self, names: &[KeyName]) -> Result<(), AuditError> {
        let mut state = self.write();
        let generation = state.sealed.generation + 1;
        let fresh = self.source.create(generation)?;
        let kek = seal::cipher(fresh.expose());
        let mut kept = Vec::new();
        for key in state.sealed.keys.iter().filter(|key| !names.contains(&key.key)) {
            let mut plain = self.unwrap_plain(&state.kek, key).ok_or_else(|| AuditError::Keys {
                path: self.path.clone(),
                problem: "has a key that does not open; nothing is destroyed",
            })?;
            let (nonce, wrapped) = self.wrap(&kek, key.key, &plain);
            plain.zeroize();
            kept.push(SealedKey { key: key.key, announced: key.announced, held: key.held, nonce, wrapped });
        }
        let vault = match &state.sealed.vault {
            Some(sealed) => Some(self.wrap_vault(&kek, &self.unwrap_vault(&state.kek, sealed)?)),
            None => None,
        };
        let sealed = SealedKeys { v: 1, generation, keys: kept, vault };
        store(&self.path, &sealed)?;
        (state.sealed, state.kek) = (sealed, kek);
        for current in &mut state.current {
            if current.as_ref().is_some_and(|key| names.contains(&key.name)) {
                *current = None;
            }
        }
        self.source.forget_before(generation);
        Ok(())
    }

    /// The key for `class` on `day`. If there is none yet it is made and stored, then handed to `announce`,
    /// and only after that can anybody seal with it.
    pub(crate) fn current(
        &self,
        class: RetentionClass,
        day: Day,
        announce: impl FnOnce(&DataKey) -> Result<(), String>,
    ) -> Result<Arc<DataKey>, NoKey> {
        let fits = |key: &&Arc<DataKey>| key.name.day == day;
        if let Some(key) = self.read().current[class as usize].as_ref().filter(fits) {
            return Ok(key.clone());
        }
        let mut state = self.write();
        if let Some(key) = state.current[class as usize].as_ref().filter(fits) {
            return Ok(key.clone());
        }
        let of_the_day = |key: &&SealedKey| key.key.class == class && key.key.day == day;
        let stored = state.sealed.keys.iter().rfind(|key| of_the_day(key) && key.announced);
        let key = match stored.and_then(|stored| self.unwrap(&state, stored)) {
            Some(key) => key,
            None => {
                let number = state.sealed.keys.iter().filter(of_the_day).map(|key| key.key.number).max();
                let name = KeyName { class, day, number: number.unwrap_or(0) + 1 };
                let (key, sealed) = self.create(&state.kek, name);
                state.sealed.keys.push(sealed);
                if let Err(error) = store(&self.path, &state.sealed) {
                    state.sealed.keys.pop();
                    return Err(NoKey::Unstored(error));
                }
                announce(&key).map_err(NoKey::Unannounced)?;
                key
            }
        };
        let key = Arc::new(key);
        state.current[class as usize] = Some(key.clone());
        Ok(key)
    }

    /// The key with this name, if it still exists.
    pub(crate) fn named(&self, name: KeyName) -> Option<DataKey> {
        let state = self.read();
        self.unwrap(&state, state.sealed.keys.iter().find(|key| key.key == name)?)
    }

    /// The key of the credential vault (SBX-55), made at the first call.
    pub(crate) fn vault_key(&self) -> Result<Secret<[u8; 32]>, AuditError> {
        let mut state = self.write();
        if let Some(sealed) = &state.sealed.vault {
            return self.unwrap_vault(&state.kek, sealed);
        }
        let key = Secret::random_key();
        state.sealed.vault = Some(self.wrap_vault(&state.kek, &key));
        if let Err(error) = store(&self.path, &state.sealed) {
            state.sealed.vault = None;
            return Err(error);
        }
        Ok(key)
    }

    fn wrap_vault(&self, kek: &XChaCha20Poly1305, key: &Secret<[u8; 32]>) -> SealedVaultKey {
        let (nonce, wrapped) = wrap_key(kek, &self.vault_wrapping(), key.expose());
        SealedVaultKey { nonce, wrapped }
    }

    fn unwrap_vault(
        &self,
        kek: &XChaCha20Poly1305,
        sealed: &SealedVaultKey,
    ) -> Result<Secret<[u8; 32]>, AuditError> {
        let problem = "has a vault key that does not open";
        unwrap_key(kek, &self.vault_wrapping(), &sealed.nonce, &sealed.wrapped)
            .map(Secret::new)
            .ok_or_else(|| AuditError::Keys { path: self.path.clone(), problem })
    }

    fn vault_wrapping(&self) -> Vec<u8> {
        format!("portcullis vault key v1 {}", self.log).into_bytes()
    }

    /// Remembers that every key is announced durably. Called when the log closes in order.
    pub(crate) fn mark_announced(&self) -> Result<(), AuditError> {
        let mut state = self.write();
        let current: Vec<KeyName> = state.current.iter().flatten().map(|key| key.name).collect();
        let mut changed = false;
        for key in state.sealed.keys.iter_mut().filter(|key| current.contains(&key.key)) {
            changed |= !std::mem::replace(&mut key.announced, true);
        }
        if changed { store(&self.path, &state.sealed) } else { Ok(()) }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn create(&self, kek: &XChaCha20Poly1305, name: KeyName) -> (DataKey, SealedKey) {
        let key = Secret::random_key();
        let (nonce, wrapped) = self.wrap(kek, name, key.expose());
        let sealed = SealedKey { key: name, announced: false, held: false, nonce, wrapped };
        (self.ready(name, key.expose()), sealed)
    }

    fn wrap(&self, kek: &XChaCha20Poly1305, name: KeyName, key: &[u8; 32]) -> (String, String) {
        wrap_key(kek, &self.wrapping_of(name), key)
    }

    fn unwrap(&self, state: &State, sealed: &SealedKey) -> Option<DataKey> {
        let mut key = self.unwrap_plain(&state.kek, sealed)?;
        let ready = self.ready(sealed.key, &key);
        key.zeroize();
        Some(ready)
    }

    fn unwrap_plain(&self, kek: &XChaCha20Poly1305, sealed: &SealedKey) -> Option<[u8; 32]> {
        unwrap_key(kek, &self.wrapping_of(sealed.key), &sealed.nonce, &sealed.wrapped)
    }

    fn ready(&self, name: KeyName, key: &[u8; 32]) -> DataKey {
        let check = blake3::keyed_hash(key, &self.wrapping_of(name)).to_hex().to_string();
        DataKey { name, cipher: seal::cipher(key), check }
    }

    /// What a wrapped key and a check value are bound to.
    fn wrapping_of(&self, name: KeyName) -> Vec<u8> {
        format!("portcullis audit key v1 {} {name}", self.log).into_bytes()
    }
}

/// A key wrapped under another, bound to what it is for: its nonce, and itself with its tag.
fn wrap_key(kek: &XChaCha20Poly1305, purpose: &[u8], key: &[u8; 32]) -> (String, String) {
    let nonce: [u8; 24] = rand::rng().random();
    let mut wrapped = key.to_vec();
    let tag = kek
        .encrypt_inout_detached(&XNonce::from(nonce), purpose, InOutBuf::from(&mut wrapped[..]))
        .expect("thirty-two bytes are within the cipher's limit");
    wrapped.extend_from_slice(&tag);
    (to_hex(&nonce), to_hex(&wrapped))
}

fn unwrap_key(kek: &XChaCha20Poly1305, purpose: &[u8], nonce: &str, wrapped: &str) -> Option<[u8; 32]> {
    let nonce: [u8; 24] = parse_hex(nonce)?;
    let wrapped: [u8; 48] = parse_hex(wrapped)?;
    let (mut key, tag) = (*wrapped.first_chunk::<32>()?, *wrapped.last_chunk::<16>()?);
    let text = InOutBuf::from(&mut key[..]);
    kek.decrypt_inout_detached(&XNonce::from(nonce), purpose, text, &Tag::from(tag)).ok()?;
    Some(key)
}

fn store(path: &Path, sealed: &SealedKeys) -> Result<(), AuditError> {
    let text = serde_json::to_vec(sealed).map_err(std::io::Error::other).at(path)?;
    failpoint::pass_io("audit.key_rewrite").at(path)?;
    files::replace(path, &text)
}

impl KekSource {
    /// The file of a generation: the first has the configured name.
    fn file(path: &Path, generation: u64) -> PathBuf {
        if generation <= 1 { path.into() } else { path.with_added_extension(generation.to_string()) }
    }

    fn read(&self, generation: u64) -> Result<Secret<[u8; 32]>, AuditError> {
        match self {
            KekSource::File(path) => {
                let path = Self::file(path, generation);
                if generation <= 1 { read_or_create_kek(&path) } else { read_kek(&path) }
            }
            KekSource::Command(command) => {
                let program = Path::new(command.first().map_or("", String::as_str));
                let output = std::process::Command::new(program)
                    .args(command.iter().skip(1))
                    .stdin(std::process::Stdio::null())
                    .output()
                    .at(program)?;
                let mut text = String::from_utf8(output.stdout).unwrap_or_default();
                let key = parse_hex(text.trim_end()).filter(|_| output.status.success());
                text.zeroize();
                let problem = "did not print a key of 64 hexadecimal digits";
                key.map(Secret::new).ok_or_else(|| AuditError::Keys { path: program.into(), problem })
            }
        }
    }

    /// A fresh key for the next generation.
    fn create(&self, generation: u64) -> Result<Secret<[u8; 32]>, AuditError> {
        match self {
            KekSource::File(path) => {
                let path = Self::file(path, generation);
                // One that a crash left was never used.
                let _ = std::fs::remove_file(&path);
                read_or_create_kek(&path)
            }
            KekSource::Command(_) => self.read(generation),
        }
    }

    /// Removes the files of the generation before this one.
    fn forget_before(&self, generation: u64) {
        if let KekSource::File(path) = self
            && generation > 1
        {
            let old = Self::file(path, generation - 1);
            let _ = std::fs::remove_file(&old);
            let _ = old.parent().map(files::sync_dir);
        }
    }
}

/// The KEK file holds 64 hexadecimal digits; it is created with fresh ones if it does not exist.
fn read_or_create_kek(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
    if path.exists() {
        return read_kek(path);
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

fn read_kek(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
    files::check_file(path)?;
    let mut text = std::fs::read_to_string(path).at(path)?;
    let key = parse_hex(text.trim_end());
    text.zeroize();
    key.map(Secret::new).ok_or_else(|| AuditError::Keys {
        path: path.into(),
        problem: "is not a key of 64 hexadecimal digits",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn ring(dir: &Path, log: LogId) -> Result<KeyRing, AuditError> {
        KeyRing::open(log, dir.join("keys.sealed"), &KekSource::File(dir.join("kek")))
    }

    fn today(ring: &KeyRing, class: RetentionClass) -> (String, bool) {
        let mut announced = false;
        let key = ring.current(class, Day::of(NOW), |_| {
            announced = true;
            Ok(())
        });
        (key.unwrap().name.to_string(), announced)
    }

    #[test]
    fn a_class_has_one_key_a_day_and_announces_it_once() {
        // AUD-42
        let dir = tempfile::tempdir().unwrap();
        let ring = ring(dir.path(), LogId::new(NOW)).unwrap();
        assert_eq!(today(&ring, RetentionClass::Standard), ("std-20270115-1".into(), true));
        assert_eq!(today(&ring, RetentionClass::Standard), ("std-20270115-1".into(), false));
        assert_eq!(today(&ring, RetentionClass::Sensitive), ("sens-20270115-1".into(), true));
        let next_day = Day::of(NOW.after(std::time::Duration::from_secs(86_400)));
        let key = ring.current(RetentionClass::Standard, next_day, |_| Ok(())).unwrap();
        assert_eq!(key.name.to_string(), "std-20270116-1");
    }

    #[test]
    fn the_vault_s_key_outlives_restarts_and_the_destruction_of_others() {
        // SBX-55: sealed under the KEK, which destroying a data key replaces.
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let first = ring(dir.path(), log).unwrap();
        let key = first.vault_key().unwrap();
        assert!(first.vault_key().unwrap() == key);
        let doomed = first.current(RetentionClass::Standard, Day::of(NOW), |_| Ok(())).unwrap().name;
        first.destroy(&[doomed]).unwrap();
        assert!(first.vault_key().unwrap() == key);
        drop(first);
        assert!(ring(dir.path(), log).unwrap().vault_key().unwrap() == key);
        let text = std::fs::read_to_string(dir.path().join("keys.sealed")).unwrap();
        assert!(!text.contains(&to_hex(key.expose())));
    }

    #[test]
    fn a_key_survives_a_restart_only_if_its_announcement_did() {
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let first = ring(dir.path(), log).unwrap();
        let check = first.current(RetentionClass::Hold, Day::of(NOW), |_| Ok(())).unwrap().check.clone();
        drop(first);
        let second = ring(dir.path(), log).unwrap();
        assert_eq!(today(&second, RetentionClass::Hold), ("hold-20270115-2".into(), true));
        second.mark_announced().unwrap();
        drop(second);
        let third = ring(dir.path(), log).unwrap();
        assert_eq!(today(&third, RetentionClass::Hold), ("hold-20270115-2".into(), false));
        // What the unannounced one sealed can still be read.
        assert_eq!(third.named("hold-20270115-1".parse().unwrap()).unwrap().check, check);
    }

    #[test]
    fn keys_open_with_their_own_kek_and_log_only() {
        // AUD-42
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        today(&ring(dir.path(), log).unwrap(), RetentionClass::Standard);
        assert!(matches!(ring(dir.path(), LogId::from_bytes([1; 16])), Err(AuditError::Keys { .. })));
        std::fs::remove_file(dir.path().join("kek")).unwrap();
        assert!(matches!(ring(dir.path(), log), Err(AuditError::Keys { .. })));
        std::fs::write(dir.path().join("kek"), "not a key").unwrap();
        assert!(matches!(ring(dir.path(), log), Err(AuditError::Keys { .. })));
    }

    #[test]
    fn a_destroyed_key_is_gone_and_old_copies_of_the_file_do_not_open() {
        // AUD-43
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let keys = ring(dir.path(), log).unwrap();
        let (old, _) = today(&keys, RetentionClass::Standard);
        let (kept, _) = today(&keys, RetentionClass::Hold);
        let copy = std::fs::read(dir.path().join("keys.sealed")).unwrap();
        keys.destroy(&[old.parse().unwrap()]).unwrap();
        assert!(keys.named(old.parse().unwrap()).is_none());
        let check = keys.named(kept.parse().unwrap()).unwrap().check.clone();
        assert!(!dir.path().join("kek").exists() && dir.path().join("kek.2").exists());
        drop(keys);
        let keys = ring(dir.path(), log).unwrap();
        assert_eq!(keys.named(kept.parse().unwrap()).unwrap().check, check);
        assert_eq!(keys.list().len(), 1);
        drop(keys);
        std::fs::write(dir.path().join("keys.sealed"), copy).unwrap();
        assert!(matches!(
            ring(dir.path(), log).map(|ring| ring.named(old.parse().unwrap()).is_some()),
            Err(AuditError::Keys { .. })
        ));
    }

    #[test]
    fn a_key_can_come_from_a_program() {
        // AUD-42
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let source = |digits: &str| KekSource::Command(vec!["/bin/echo".into(), digits.into()]);
        let path = dir.path().join("keys.sealed");
        let ring = KeyRing::open(log, path.clone(), &source(&"ab".repeat(32))).unwrap();
        let (name, _) = today(&ring, RetentionClass::Standard);
        drop(ring);
        let ring = KeyRing::open(log, path.clone(), &source(&"ab".repeat(32))).unwrap();
        assert!(ring.named(name.parse().unwrap()).is_some());
        drop(ring);
        assert!(matches!(
            KeyRing::open(log, path.clone(), &source(&"cd".repeat(32))),
            Err(AuditError::Keys { .. })
        ));
        assert!(matches!(KeyRing::open(log, path, &source("nothing")), Err(AuditError::Keys { .. })));
    }
}
