//! Where credentials are kept: a file, each value sealed under a key that is sealed under the KEK (SBX-55), unless its
//! [`Backend`] has the values.
//!
//! Names, classes and versions are in the clear, and bound to the value they belong to: a file in which they were
//! exchanged does not open.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, KeyInit as _, Tag, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac as _};
use portcullis_core::digest::{parse_hex, to_hex};
use portcullis_core::scrub::{KnownSecrets, is_secret_key, scrub_knowing};
use portcullis_core::{Secret as Key, Timestamp};
use portcullis_sandbox::broker::Secret;
use rand::RngExt as _;
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::backend::{self, Answers, Backend, Lies};
use super::{CredentialClass, CredentialDenied, CredentialHandle};

/// The longest value: a private key with its chain fits.
pub const LONGEST: usize = 64 << 10;

/// What kind of thing a credential is (SBX-55).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A value that stays as it is until somebody changes it.
    #[default]
    Static,
    /// What a login left, renewed when need be: see [`Grant`](super::grant::Grant).
    Oauth2,
    /// A private key with its certificate, with which the gateway itself proves to one server who it is. No call is lent it.
    Mtls,
}

impl Kind {
    /// The word in lists and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Oauth2 => "oauth2",
            Self::Mtls => "mtls",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "static" => Ok(Self::Static),
            "oauth2" => Ok(Self::Oauth2),
            "mtls" => Ok(Self::Mtls),
            _ => Err(
                "the kinds of credentials are `static`, `mtls` and `oauth2`; `portcullis auth login` leaves the third".into(),
            ),
        }
    }
}

/// One credential, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The operator's name for it.
    pub name: String,
    /// What it is good for.
    pub class: CredentialClass,
    /// What kind of thing it is.
    pub kind: Kind,
    /// Raised by every change of its value.
    pub version: u32,
    /// What leases call it.
    pub id: String,
    /// Since when it has this value.
    pub stored_at: Timestamp,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    v: u8,
    secrets: Vec<Sealed>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Sealed {
    #[serde(flatten)]
    entry: Entry,
    #[serde(default, skip_serializing_if = "Lies::in_the_file")]
    lies: Lies,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    nonce: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    sealed: String,
}

/// All credentials of one gateway.
pub struct Vault {
    path: PathBuf,
    key: Key<[u8; 32]>,
    kept: Mutex<Kept>,
    backend: Backend,
    answers: Answers,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vault").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Vault {
    /// Reads the file, if there is one; values are put into it too.
    pub fn open(path: PathBuf, key: Key<[u8; 32]>) -> io::Result<Self> {
        Self::open_with(path, key, Backend::VaultFile)
    }

    /// The same with values elsewhere. What an earlier backend has stays where it is until it is changed.
    pub fn open_with(path: PathBuf, key: Key<[u8; 32]>, backend: Backend) -> io::Result<Self> {
        let kept = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map_err(|_| {
                io::Error::other(format!("{} is not a vault of this version", path.display()))
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept { v: 1, secrets: Vec::new() },
            Err(error) => return Err(error),
        };
        if kept.v != 1 {
            return Err(io::Error::other(format!("{} is not a vault of this version", path.display())));
        }
        Ok(Self { path, key, kept: Mutex::new(kept), backend, answers: Answers::default() })
    }

    /// Everything there is, by name.
    pub fn list(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.kept().secrets.iter().map(|sealed| sealed.entry.clone()).collect();
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        entries
    }

    /// Which version of a class's credential there is.
    pub(super) fn handle(&self, class: &CredentialClass) -> Option<CredentialHandle> {
        let kept = self.kept();
        let Entry { id, class, version, .. } =
            &kept.secrets.iter().find(|one| one.entry.class == *class)?.entry;
        Some(CredentialHandle { id: id.clone(), class: class.clone(), version: *version })
    }

    /// What kind of thing the credential of a class is, if there is one.
    pub(super) fn kind(&self, class: &CredentialClass) -> Option<Kind> {
        self.kept().secrets.iter().find(|one| one.entry.class == *class).map(|one| one.entry.kind)
    }

    /// Whether values can be put here at all.
    pub fn keeps_values(&self) -> bool {
        !matches!(self.backend, Backend::Command(_))
    }

    /// Whether the program that knows the values knows this one.
    pub fn is_known(&self, entry: &Entry) -> Result<(), String> {
        match &self.backend {
            Backend::Command(command) => self.answers.get(command, entry).map(drop),
            Backend::VaultFile | Backend::Keyring => Err("values are kept here, and none was given".into()),
        }
    }

    /// Keeps an entry whose value a program knows, in place of what was there.
    pub fn put_known(&self, entry: &Entry) -> io::Result<()> {
        let nothing = String::new;
        self.exchange(Sealed {
            entry: entry.clone(),
            lies: Lies::Command,
            nonce: nothing(),
            sealed: nothing(),
        })
    }

    /// Seals a value and keeps it under the entry's name, in place of what was there.
    pub fn put(&self, entry: &Entry, value: &Secret) -> io::Result<()> {
        if !self.keeps_values() {
            return Err(io::Error::other("secrets.backend is a program, and nothing is put there"));
        }
        let nonce: [u8; 24] = rand::rng().random();
        let mut text = value.expose().to_vec();
        let tag = self
            .cipher()
            .encrypt_inout_detached(&XNonce::from(nonce), &purpose(entry), InOutBuf::from(&mut text[..]))
            .map_err(|_| io::Error::other("the value is too long"))?;
        text.extend_from_slice(&tag);
        let (lies, nonce, sealed) = match self.backend {
            Backend::Keyring => {
                backend::put_into_keyring(entry, &[&nonce, text.as_slice()].concat())?;
                (Lies::Keyring, String::new(), String::new())
            }
            _ => (Lies::File, to_hex(&nonce), to_hex(&text)),
        };
        self.exchange(Sealed { entry: entry.clone(), lies, nonce, sealed })
    }

    /// Keeps this in place of what has its name. What that had elsewhere goes.
    fn exchange(&self, sealed: Sealed) -> io::Result<()> {
        let (name, id) = (sealed.entry.name.clone(), sealed.entry.id.clone());
        let before = self.kept().secrets.iter().find(|known| known.entry.name == name).cloned();
        self.change(|secrets| {
            secrets.retain(|known| known.entry.name != name);
            secrets.push(sealed);
        })?;
        if let Some(before) = before.filter(|before| before.entry.id != id) {
            self.forget(&before);
        }
        Ok(())
    }

    /// What of a credential lies elsewhere goes.
    fn forget(&self, gone: &Sealed) {
        self.answers.forget(&gone.entry.id);
        if gone.lies == Lies::Keyring {
            backend::remove_from_keyring(&gone.entry);
        }
    }

    /// Forgets a credential; its value is gone with the file's last version.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let gone = self.kept().secrets.iter().find(|known| known.entry.name == name).cloned();
        self.change(|secrets| secrets.retain(|known| known.entry.name != name))?;
        if let Some(gone) = gone {
            self.forget(&gone);
        }
        Ok(())
    }

    /// The value of a class. For the broker, which has seen a permit.
    pub(super) fn unseal(
        &self,
        class: &CredentialClass,
    ) -> Result<(CredentialHandle, Secret), CredentialDenied> {
        let found = self.kept().secrets.iter().find(|sealed| sealed.entry.class == *class).cloned();
        let sealed = found.ok_or_else(|| CredentialDenied::Missing(class.clone()))?;
        let unusable = |reason: String| CredentialDenied::Unusable { class: class.clone(), reason };
        let broken = || unusable("the vault's file was changed by somebody else".into());
        let (nonce, mut text): ([u8; 24], Vec<u8>) = match sealed.lies {
            Lies::File => {
                (parse_hex(&sealed.nonce).ok_or_else(broken)?, bytes_of(&sealed.sealed).ok_or_else(broken)?)
            }
            Lies::Keyring => {
                let whole = backend::read_from_keyring(&sealed.entry).map_err(unusable)?;
                let (nonce, text) = whole.split_first_chunk::<24>().ok_or_else(broken)?;
                (*nonce, text.to_vec())
            }
            Lies::Command => {
                let Backend::Command(command) = &self.backend else {
                    let name = &sealed.entry.name;
                    return Err(unusable(format!(
                        "a program knew it, and secrets.backend names none any more; `portcullis secret rotate {name}` takes a value"
                    )));
                };
                let value = self.answers.get(command, &sealed.entry).map_err(unusable)?;
                let Entry { id, class, version, .. } = sealed.entry;
                return Ok((CredentialHandle { id, class, version }, value));
            }
        };
        let tag: [u8; 16] = text.split_off(text.len().checked_sub(16).ok_or_else(broken)?)[..]
            .try_into()
            .map_err(|_| broken())?;
        let cipher = self.cipher();
        let purpose = purpose(&sealed.entry);
        cipher
            .decrypt_inout_detached(
                &XNonce::from(nonce),
                &purpose,
                InOutBuf::from(&mut text[..]),
                &Tag::from(tag),
            )
            .map_err(|_| broken())?;
        let secret = Secret::take(text).map_err(|error| unusable(error.to_string()))?;
        let Entry { id, class, version, .. } = sealed.entry;
        Ok((CredentialHandle { id, class, version }, secret))
    }

    /// Gives a credential another class. False if there is none of this name.
    pub fn assign(&self, name: &str, class: &CredentialClass) -> io::Result<bool> {
        let found = self.kept().secrets.iter().find(|sealed| sealed.entry.name == name).cloned();
        let Some(sealed) = found else { return Ok(false) };
        let entry = Entry { class: class.clone(), ..sealed.entry.clone() };
        if sealed.lies == Lies::Command {
            self.put_known(&entry)?;
            return Ok(true);
        }
        let (_, value) =
            self.unseal(&sealed.entry.class).map_err(|error| io::Error::other(error.to_string()))?;
        self.put(&entry, &value)?;
        Ok(true)
    }

    /// Signs a message with the value of a credential, by its name: HMAC-SHA256. The value stays here.
    pub fn sign(&self, name: &str, message: &[u8]) -> Option<[u8; 32]> {
        let class = self.kept().secrets.iter().find(|sealed| sealed.entry.name == name)?.entry.class.clone();
        let (_, value) = self.unseal(&class).ok()?;
        let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new_from_slice(value.expose()).ok()?;
        mac.update(message);
        Some(mac.finalize().into_bytes().into())
    }

    /// Seals something that the gateway keeps elsewhere, bound to what it is.
    pub fn seal(&self, what: &str, text: &[u8]) -> io::Result<Vec<u8>> {
        let nonce: [u8; 24] = rand::rng().random();
        let mut sealed = [&nonce, text].concat();
        let body = InOutBuf::from(&mut sealed[nonce.len()..]);
        let tag = self
            .cipher()
            .encrypt_inout_detached(&XNonce::from(nonce), &elsewhere(what), body)
            .map_err(|_| io::Error::other("it is too long to be sealed"))?;
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    /// What was sealed as `what`; `None` for everything else.
    pub fn open_sealed(&self, what: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, rest) = sealed.split_first_chunk::<24>()?;
        let (text, tag) = rest.split_last_chunk::<16>()?;
        let mut text = Zeroizing::new(text.to_vec());
        let opened = self.cipher().decrypt_inout_detached(
            &XNonce::from(*nonce),
            &elsewhere(what),
            InOutBuf::from(&mut text[..]),
            &Tag::from(*tag),
        );
        opened.is_ok().then_some(text)
    }

    /// A text without anything that looks like a secret, and without any value that is kept here, however it is spelt
    /// (admin §8). Values stay here.
    pub fn masked(&self, text: &str) -> String {
        let all = self.kept().secrets.clone();
        let values = all.iter().filter_map(|sealed| match sealed.lies {
            // What nobody asked the program for is in no text of ours.
            Lies::Command => self.answers.known(&sealed.entry.id),
            Lies::File | Lies::Keyring => self.unseal(&sealed.entry.class).ok().map(|(_, value)| value),
        });
        let values: Vec<Key<String>> = values.flat_map(|value| parts_of(&value)).collect();
        scrub_knowing(text, &KnownSecrets::new(&values)).into_owned()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Sealed>)) -> io::Result<()> {
        let mut kept = self.kept();
        let mut secrets = kept.secrets.clone();
        change(&mut secrets);
        let next = Kept { v: 1, secrets };
        replace(&self.path, &serde_json::to_vec(&next).map_err(io::Error::other)?)?;
        *kept = next;
        Ok(())
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose().into())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value as text, and if a login left it, what it consists of.
fn parts_of(value: &Secret) -> Vec<Key<String>> {
    let Ok(text) = std::str::from_utf8(value.expose()) else { return Vec::new() };
    let mut parts = vec![Key::new(text.to_owned())];
    if let Ok(serde_json::Value::Object(members)) = serde_json::from_str(text) {
        let texts =
            members.iter().filter(|(name, _)| is_secret_key(name)).filter_map(|(_, part)| part.as_str());
        parts.extend(texts.map(|part| Key::new(part.to_owned())));
    }
    parts
}

/// What a sealed value is bound to.
fn purpose(entry: &Entry) -> Vec<u8> {
    serde_json::to_vec(&("portcullis vault v1", entry)).expect("an entry is plain JSON")
}

/// What something sealed for another place is bound to: no entry's purpose reads like it.
fn elsewhere(what: &str) -> Vec<u8> {
    serde_json::to_vec(&("portcullis vault v1, elsewhere", what)).expect("two texts are plain JSON")
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    rest.is_empty().then_some(())?;
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The new content is there whole, or the old one is.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let _ = fs::remove_file(&fresh);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(folder) => fs::File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, class: &str) -> Entry {
        Entry {
            name: name.into(),
            class: class.parse().unwrap(),
            kind: Kind::Static,
            version: 1,
            id: format!("id-of-{name}"),
            stored_at: Timestamp::from_millis(1_800_000_000_000),
        }
    }

    fn secret(text: &str) -> Secret {
        Secret::take(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn values_are_kept_sealed_and_survive_a_restart() {
        // SBX-55
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.json");
        let vault = Vault::open(path.clone(), Key::new([7; 32])).unwrap();
        vault.put(&entry("github", "issues.read"), &secret("canary-value-1")).unwrap();
        vault.put(&entry("jira", "tickets.write"), &secret("canary-value-2")).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("canary") && !text.contains(&to_hex(b"canary")), "{text}");
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(vault);
        let vault = Vault::open(path.clone(), Key::new([7; 32])).unwrap();
        assert_eq!(
            vault.list().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
            ["github", "jira"]
        );
        let (handle, value) = vault.unseal(&"issues.read".parse().unwrap()).unwrap();
        assert_eq!((handle.id.as_str(), value.expose()), ("id-of-github", &b"canary-value-1"[..]));
        vault.remove("github").unwrap();
        let gone = vault.unseal(&"issues.read".parse().unwrap()).map(drop);
        assert_eq!(gone, Err(CredentialDenied::Missing("issues.read".parse().unwrap())));
    }

    #[test]
    fn what_is_sealed_for_another_place_opens_as_what_it_is_and_with_this_key() {
        // REC-70
        let dir = tempfile::tempdir().unwrap();
        let vault = |key: u8| Vault::open(dir.path().join("vault.json"), Key::new([key; 32])).unwrap();
        let sealed = vault(7).seal("a hook", b"canary").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"canary"));
        assert_eq!(
            vault(7).open_sealed("a hook", &sealed).as_deref().map(Vec::as_slice),
            Some(&b"canary"[..])
        );
        assert!(vault(7).open_sealed("another hook", &sealed).is_none());
        assert!(vault(8).open_sealed("a hook", &sealed).is_none());
        let mut changed = sealed.clone();
        changed[30] ^= 1;
        assert!(vault(7).open_sealed("a hook", &changed).is_none());
        assert!(vault(7).open_sealed("a hook", &sealed[..39]).is_none());
    }

    #[test]
    fn a_vault_that_was_changed_or_has_another_key_gives_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault.json");
        let vault = Vault::open(path.clone(), Key::new([7; 32])).unwrap();
        vault.put(&entry("low", "low"), &secret("worth little")).unwrap();
        vault.put(&entry("high", "high"), &secret("worth much")).unwrap();
        let refused = |key: u8| {
            let vault = Vault::open(path.clone(), Key::new([key; 32])).unwrap();
            matches!(vault.unseal(&"low".parse().unwrap()), Err(CredentialDenied::Unusable { .. }))
        };
        assert!(refused(8));
        assert!(!refused(7));
        // The value of one under the class of the other.
        let text = fs::read_to_string(&path).unwrap();
        let swapped = text
            .replace("\"class\":\"low\"", "\"class\":\"x\"")
            .replace("\"class\":\"high\"", "\"class\":\"low\"");
        assert_ne!(swapped, text);
        fs::write(&path, swapped).unwrap();
        assert!(refused(7));
        fs::write(&path, "{}").unwrap();
        assert!(Vault::open(path, Key::new([7; 32])).is_err());
    }
}
