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
    kek: XChaCha20Poly1305,
    state: RwLock<State>,
}

struct State {
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
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealedKey {
    key: KeyName,
    announced: bool,
    nonce: String,
    wrapped: String,
}

impl KeyRing {
    /// Reads the keys of `log`, creating the KEK file and the key file if they do not exist.
    pub(crate) fn open(log: LogId, path: PathBuf, kek_file: &Path) -> Result<Self, AuditError> {
        let kek = seal::cipher(read_or_create_kek(kek_file)?.expose());
        let sealed = if path.exists() {
            let text = std::fs::read(&path).at(&path)?;
            serde_json::from_slice(&text).map_err(|_| AuditError::Keys {
                path: path.clone(),
                problem: "is not a file of sealed keys",
            })?
        } else {
            let sealed = SealedKeys { v: 1, generation: 1, keys: Vec::new() };
            store(&path, &sealed)?;
            sealed
        };
        let ring = Self { log, path, kek, state: RwLock::new(State { current: Default::default(), sealed }) };
        // A wrong KEK shows now, not when somebody needs the evidence.
        if ring.read().sealed.keys.last().is_some_and(|newest| ring.unwrap(newest).is_none()) {
            return Err(AuditError::Keys { path: ring.path, problem: "does not open with this key file" });
        }
        Ok(ring)
    }

    /// The key for `class` on `day`. If there is none yet it is made and stored, then handed to `announce`,
    /// and only after that can anybody seal with it.
    pub(crate) fn current(
        &self,
        class: RetentionClass,
        day: Day,
        announce: impl FnOnce(&DataKey) -> Result<(), String>,
    ) -> Result<Arc<DataKey>, String> {
        let fits = |key: &&Arc<DataKey>| key.name.day == day;
        if let Some(key) = self.read().current[class as usize].as_ref().filter(fits) {
            return Ok(key.clone());
        }
        let mut state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(key) = state.current[class as usize].as_ref().filter(fits) {
            return Ok(key.clone());
        }
        let of_the_day = |key: &&SealedKey| key.key.class == class && key.key.day == day;
        let stored = state.sealed.keys.iter().rfind(|key| of_the_day(key) && key.announced);
        let key = match stored.and_then(|stored| self.unwrap(stored)) {
            Some(key) => key,
            None => {
                let number = state.sealed.keys.iter().filter(of_the_day).map(|key| key.key.number).max();
                let name = KeyName { class, day, number: number.unwrap_or(0) + 1 };
                let (key, sealed) = self.create(name);
                state.sealed.keys.push(sealed);
                if let Err(error) = store(&self.path, &state.sealed) {
                    state.sealed.keys.pop();
                    return Err(error.to_string());
                }
                announce(&key)?;
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
        self.unwrap(state.sealed.keys.iter().find(|key| key.key == name)?)
    }

    /// Remembers that every key is announced durably. Called when the log closes in order.
    pub(crate) fn mark_announced(&self) -> Result<(), AuditError> {
        let mut state = self.state.write().unwrap_or_else(std::sync::PoisonError::into_inner);
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

    fn create(&self, name: KeyName) -> (DataKey, SealedKey) {
        let key = Secret::random_key();
        let nonce: [u8; 24] = rand::rng().random();
        let mut wrapped = key.expose().to_vec();
        let tag = self
            .kek
            .encrypt_inout_detached(
                &XNonce::from(nonce),
                &self.wrapping_of(name),
                InOutBuf::from(&mut wrapped[..]),
            )
            .expect("thirty-two bytes are within the cipher's limit");
        wrapped.extend_from_slice(&tag);
        let sealed =
            SealedKey { key: name, announced: false, nonce: to_hex(&nonce), wrapped: to_hex(&wrapped) };
        (self.ready(name, key.expose()), sealed)
    }

    fn unwrap(&self, sealed: &SealedKey) -> Option<DataKey> {
        let nonce: [u8; 24] = parse_hex(&sealed.nonce)?;
        let wrapped: [u8; 48] = parse_hex(&sealed.wrapped)?;
        let (mut key, tag) = (*wrapped.first_chunk::<32>()?, *wrapped.last_chunk::<16>()?);
        self.kek
            .decrypt_inout_detached(
                &XNonce::from(nonce),
                &self.wrapping_of(sealed.key),
                InOutBuf::from(&mut key[..]),
                &Tag::from(tag),
            )
            .ok()?;
        let ready = self.ready(sealed.key, &key);
        key.zeroize();
        Some(ready)
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

fn store(path: &Path, sealed: &SealedKeys) -> Result<(), AuditError> {
    let text = serde_json::to_vec(sealed).map_err(std::io::Error::other).at(path)?;
    failpoint::pass_io("audit.key_rewrite").at(path)?;
    files::replace(path, &text)
}

/// The KEK file holds 64 hexadecimal digits; it is created with fresh ones if it does not exist.
fn read_or_create_kek(path: &Path) -> Result<Secret<[u8; 32]>, AuditError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn ring(dir: &Path, log: LogId) -> Result<KeyRing, AuditError> {
        KeyRing::open(log, dir.join("keys.sealed"), &dir.join("kek"))
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
}
