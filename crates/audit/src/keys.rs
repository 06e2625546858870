//! The keys evidence is sealed with (AUD-42).
//!
//! One data key per retention class and UTC day, so that what must be forgotten can be forgotten by losing a
//! key. Data keys live in `keys.sealed`, each wrapped by the key encryption key (KEK), which comes from elsewhere
//! ([`KekSource`]) and is never written beside them.
//!
//! A new key is announced in the log (`audit.key_created`, with a check value that pins the key without giving
//! it away) before the first object that uses it. A crash may come between storing a key and announcing it; a
//! key therefore becomes *announced* in the file only when the log was closed in order, and a key that never
//! became it is not used again: the day gets another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, Tag, XChaCha20Poly1305, XNonce};
use portcullis_core::digest::{parse_hex, to_hex};
use portcullis_core::{LogId, Secret, SessionId, failpoint};
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

use crate::error::{AtPath as _, AuditError};
use crate::evidence::{Day, KeyName, RetentionClass};
use crate::kek::KekSource;
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
    /// The keys in use: one per class, or one per class and session of the day.
    current: HashMap<(RetentionClass, Option<SessionId>), Arc<DataKey>>,
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
    /// The session it is for, where each has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionId>,
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

    /// Whether keys can be destroyed now: there has to be another key for those that are left.
    pub(crate) fn can_destroy(&self) -> Result<(), AuditError> {
        let generation = self.read().sealed.generation;
        self.source.can_create(generation + 1)
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
            let SealedKey { key, announced, held, session, .. } = *key;
            kept.push(SealedKey { key, announced, held, session, nonce, wrapped });
        }
        let vault = match &state.sealed.vault {
            Some(sealed) => Some(self.wrap_vault(&kek, &self.unwrap_vault(&state.kek, sealed)?)),
            None => None,
        };
        let sealed = SealedKeys { v: 1, generation, keys: kept, vault };
        store(&self.path, &sealed)?;
        (state.sealed, state.kek) = (sealed, kek);
        state.current.retain(|_, key| !names.contains(&key.name));
        self.source.forget_before(generation);
        Ok(())
    }

    /// The key for `class` on `day`, or on that day for a session alone. If there is none yet it is made and stored,
    /// then handed to `announce`, and only after that can anybody seal with it.
    pub(crate) fn current(
        &self,
        class: RetentionClass,
        day: Day,
        session: Option<SessionId>,
        announce: impl FnOnce(&DataKey) -> Result<(), String>,
    ) -> Result<Arc<DataKey>, NoKey> {
        let fits = |key: &&Arc<DataKey>| key.name.day == day;
        if let Some(key) = self.read().current.get(&(class, session)).filter(fits) {
            return Ok(key.clone());
        }
        let mut state = self.write();
        if let Some(key) = state.current.get(&(class, session)).filter(fits) {
            return Ok(key.clone());
        }
        let of_the_day = |key: &&SealedKey| key.key.class == class && key.key.day == day;
        let mut of_the_session =
            state.sealed.keys.iter().filter(|key| of_the_day(key) && key.session == session);
        let stored = of_the_session.rfind(|key| key.announced);
        let key = match stored.and_then(|stored| self.unwrap(&state, stored)) {
            Some(key) => key,
            None => {
                let number = state.sealed.keys.iter().filter(of_the_day).map(|key| key.key.number).max();
                let name = KeyName { class, day, number: number.unwrap_or(0) + 1 };
                let (key, sealed) = self.create(&state.kek, name, session);
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
        // Sessions come and go; those of another day do not come back with that day's key.
        state.current.retain(|_, known| known.name.day == day || known.name.class != class);
        state.current.insert((class, session), key.clone());
        Ok(key)
    }

    /// The key with this name, if it still exists.
    pub(crate) fn named(&self, name: KeyName) -> Option<DataKey> {
        let state = self.read();
        self.unwrap(&state, state.sealed.keys.iter().find(|key| key.key == name)?)
    }

    /// What opens the one object with this nonce, and no other: the key that XChaCha20 derives for it.
    pub(crate) fn key_of_object(&self, name: KeyName, nonce: &[u8; 24]) -> Option<Secret<[u8; 32]>> {
        let state = self.read();
        let sealed = state.sealed.keys.iter().find(|key| key.key == name)?;
        let mut key = self.unwrap_plain(&state.kek, sealed)?;
        let first: [u8; 16] = *nonce.first_chunk()?;
        let derived = chacha20::hchacha::<chacha20::R20>(&key.into(), &first.into());
        key.zeroize();
        Some(Secret::new(derived.into()))
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
        let current: Vec<KeyName> = state.current.values().map(|key| key.name).collect();
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

    fn create(
        &self,
        kek: &XChaCha20Poly1305,
        name: KeyName,
        session: Option<SessionId>,
    ) -> (DataKey, SealedKey) {
        let key = Secret::random_key();
        let (nonce, wrapped) = self.wrap(kek, name, key.expose());
        let sealed = SealedKey { key: name, announced: false, held: false, session, nonce, wrapped };
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
        let key = ring.current(class, Day::of(NOW), None, |_| {
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
        let key = ring.current(RetentionClass::Standard, next_day, None, |_| Ok(())).unwrap();
        assert_eq!(key.name.to_string(), "std-20270116-1");
    }

    #[test]
    fn the_vault_s_key_outlives_restarts_and_the_destruction_of_others() {
        // SBX-55: sealed under the KEK, which destroying a data key replaces.
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let first = ring(dir.path(), log).unwrap();
        let key = first.vault_key().unwrap();
        assert!(first.vault_key().unwrap() == key);
        let doomed = first.current(RetentionClass::Standard, Day::of(NOW), None, |_| Ok(())).unwrap().name;
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
        let check =
            first.current(RetentionClass::Hold, Day::of(NOW), None, |_| Ok(())).unwrap().check.clone();
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

    #[test]
    fn sessions_can_have_keys_of_their_own() {
        // AUD-42
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let first = ring(dir.path(), log).unwrap();
        let (one, two) = (SessionId::new(NOW), SessionId::from_bytes([9; 16]));
        let of = |ring: &KeyRing, session| {
            ring.current(RetentionClass::Standard, Day::of(NOW), session, |_| Ok(()))
                .unwrap()
                .name
                .to_string()
        };
        assert_eq!(of(&first, Some(one)), "std-20270115-1");
        assert_eq!(of(&first, Some(two)), "std-20270115-2");
        assert_eq!(of(&first, None), "std-20270115-3");
        assert_eq!(of(&first, Some(one)), "std-20270115-1");
        first.mark_announced().unwrap();
        drop(first);
        let second = ring(dir.path(), log).unwrap();
        assert_eq!(
            (of(&second, Some(two)), of(&second, Some(one))),
            ("std-20270115-2".into(), "std-20270115-1".into())
        );
        second.destroy(&["std-20270115-1".parse().unwrap()]).unwrap();
        assert_eq!(of(&second, Some(two)), "std-20270115-2", "what is left stays as it was");
        assert_eq!(of(&second, Some(one)), "std-20270115-4");
    }

    #[test]
    fn a_program_is_told_which_generation_is_wanted() {
        // AUD-42, AUD-43
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let script = "printf '%064d' $PORTCULLIS_KEK_GENERATION";
        let source = KekSource::Command(vec!["/bin/sh".into(), "-c".into(), script.into()]);
        let path = dir.path().join("keys.sealed");
        let ring = KeyRing::open(log, path.clone(), &source).unwrap();
        let (old, _) = today(&ring, RetentionClass::Standard);
        let (kept, _) = today(&ring, RetentionClass::Hold);
        let copy = std::fs::read(&path).unwrap();
        ring.destroy(&[old.parse().unwrap()]).unwrap();
        drop(ring);
        let ring = KeyRing::open(log, path.clone(), &source).unwrap();
        assert!(ring.named(kept.parse().unwrap()).is_some() && ring.named(old.parse().unwrap()).is_none());
        drop(ring);
        // A copy opens only for who still has the first key.
        let text = String::from_utf8(copy).unwrap().replace("\"generation\":1", "\"generation\":2");
        std::fs::write(&path, text).unwrap();
        assert!(matches!(KeyRing::open(log, path, &source), Err(AuditError::Keys { .. })));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_key_in_the_kernel_s_keyring_is_used_and_only_the_operator_replaces_it() {
        // AUD-42, AUD-43
        use linux_keyutils::{KeyRing as Kernel, KeyRingIdentifier};
        let (dir, log) = (tempfile::tempdir().unwrap(), LogId::new(NOW));
        let kernel =
            Kernel::from_special_id(KeyRingIdentifier::User, true).expect("THIS TEST NEEDS a keyring");
        let name = format!("portcullis-test-{}", to_hex(Secret::random_key().expose()));
        let next = format!("{name}.2");
        let path = dir.path().join("keys.sealed");
        let open = || KeyRing::open(log, path.clone(), &KekSource::Keyring(name.clone()));
        let Err(missing) = open() else { panic!("there is no key yet") };
        let said = missing.to_string();
        assert!(said.contains(&format!("keyctl padd user {name} @u")) && said.contains("reboot"), "{said}");

        kernel.add_key(&name, to_hex(Secret::random_key().expose()).as_bytes()).unwrap();
        let ring = open().unwrap();
        let (old, _) = today(&ring, RetentionClass::Standard);
        let (kept, _) = today(&ring, RetentionClass::Hold);
        // Without a fresh key nothing is forgotten: one of our own would be gone with the next reboot.
        assert!(ring.can_destroy().unwrap_err().to_string().contains(&next));
        assert!(ring.destroy(&[old.parse().unwrap()]).is_err());
        assert!(ring.named(old.parse().unwrap()).is_some());
        kernel.add_key(&next, Secret::random_key().expose()).unwrap();
        ring.can_destroy().unwrap();
        ring.destroy(&[old.parse().unwrap()]).unwrap();
        drop(ring);
        assert!(kernel.search(&name).is_err(), "the old key is gone from the kernel");
        let ring = open().unwrap();
        assert!(ring.named(kept.parse().unwrap()).is_some() && ring.named(old.parse().unwrap()).is_none());
        kernel.search(&next).unwrap().invalidate().unwrap();
        drop(ring);
        assert!(open().is_err(), "as after a reboot");
    }
}
