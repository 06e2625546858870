//! Where values of credentials lie (SBX-55): in the vault's file, in the kernel's keyring, or with a program that knows them.
//!
//! Names, classes and versions are in the vault's file whatever the backend; only what is secret lies elsewhere. What is put
//! into the keyring is sealed like what is put into the file: somebody else who runs as our user can take it away, and
//! read nothing. The kernel forgets it at every reboot.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use portcullis_sandbox::broker::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::vault::{Entry, LONGEST};

/// How long a program has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long its answer is good for: calls need not wait for it each time, and what was changed behind us is noticed.
const FRESH: Duration = Duration::from_secs(60);

/// What a program reads the credential from that is wanted.
const NAME: &str = "PORTCULLIS_SECRET_NAME";
const VERSION: &str = "PORTCULLIS_SECRET_VERSION";

/// Where values are put.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Backend {
    /// Into the vault's file.
    #[default]
    VaultFile,
    /// Into the kernel's keyring of our user.
    Keyring,
    /// Nowhere: this program knows them.
    Command(Vec<String>),
}

impl std::str::FromStr for Backend {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "vault-file" => Ok(Self::VaultFile),
            None if text == "keyring" => Ok(Self::Keyring),
            Some(("command", command)) if Path::new(command.trim()).is_absolute() => {
                Ok(Self::Command(command.split_whitespace().map(ToOwned::to_owned).collect()))
            }
            _ => Err("must be vault-file, keyring or command:/PATH/OF/PROGRAM ARGUMENTS"),
        }
    }
}

/// Where the value of one credential lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Lies {
    #[default]
    File,
    Keyring,
    Command,
}

impl Lies {
    pub(super) fn in_the_file(&self) -> bool {
        *self == Lies::File
    }
}

/// What a program said of late, by the credential's id.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<String, (Instant, Secret)>>);

impl Answers {
    /// The value of a credential, from the program unless it said so just now.
    pub(super) fn get(&self, command: &[String], entry: &Entry) -> Result<Secret, String> {
        if let Some((at, value)) = self.lock().get(&entry.id)
            && at.elapsed() < FRESH
        {
            return copied(value);
        }
        let text = waiting(|| ask(command, &entry.name, entry.version))?;
        let value = Secret::take(text.to_vec()).map_err(|error| error.to_string())?;
        let kept = copied(&value)?;
        self.lock().insert(entry.id.clone(), (Instant::now(), kept));
        Ok(value)
    }

    /// What was said of it, however long ago; nobody is asked.
    pub(super) fn known(&self, id: &str) -> Option<Secret> {
        self.lock().get(id).and_then(|(_, value)| copied(value).ok())
    }

    pub(super) fn forget(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Secret)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn copied(value: &Secret) -> Result<Secret, String> {
    Secret::take(value.expose().to_vec()).map_err(|error| error.to_string())
}

/// Others go on meanwhile, where there are others.
fn waiting<T>(ask: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(ask),
        _ => ask(),
    }
}

/// Asks the program. What it says on its standard output is the value, without the line's end; what it says elsewhere is
/// dropped, because it may be the value too.
fn ask(command: &[String], name: &str, version: u32) -> Result<Zeroizing<Vec<u8>>, String> {
    let program = command.first().map_or("", String::as_str);
    let mut asked = Command::new(program);
    asked.args(command.iter().skip(1)).env(NAME, name).env(VERSION, version.to_string());
    asked.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = asked.spawn().map_err(|error| format!("{program} cannot be started: {error}"))?;
    let (said, hears) = mpsc::channel();
    let stdout = child.stdout.take();
    std::thread::spawn(move || {
        let mut text = Zeroizing::new(Vec::with_capacity(LONGEST + 3));
        // One more than is kept, with the end of a line, so that what is too long is refused and not cut.
        let read = stdout.map(|stdout| stdout.take(LONGEST as u64 + 3).read_to_end(&mut text));
        let _ = said.send(matches!(read, Some(Ok(_))).then_some(text));
    });
    let begun = Instant::now();
    let text = hears.recv_timeout(PATIENCE).ok().flatten();
    let mut status = None;
    while text.is_some() && status.is_none() && begun.elapsed() < PATIENCE {
        status = child.try_wait().ok().flatten();
        if status.is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    if status.is_none() {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.wait();
        return Err(format!("{program} did not answer within {} seconds", PATIENCE.as_secs()));
    }
    let mut text = text.unwrap_or_default();
    // Before its status: a program that is not heard out fails for that alone.
    let length = text.len() - text.iter().rev().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if length > LONGEST {
        return Err(format!("{program} printed more than 64 KiB"));
    }
    if !status.is_some_and(|status| status.success()) {
        return Err(format!("{program} does not have '{name}' in version {version}: it failed"));
    }
    text.truncate(length);
    match length {
        0 => Err(format!("{program} printed nothing for '{name}' in version {version}")),
        _ => Ok(text),
    }
}

/// What the keyring calls a value.
fn key_name(entry: &Entry) -> String {
    format!("portcullis-secret:{}", entry.id)
}

/// Puts what is sealed into the keyring.
#[cfg(target_os = "linux")]
pub(super) fn put_into_keyring(entry: &Entry, sealed: &[u8]) -> io::Result<()> {
    use linux_keyutils::{KeyPermissionsBuilder, KeyRing, KeyRingIdentifier, Permission};
    let unusable = |error: linux_keyutils::KeyError| {
        io::Error::other(format!(
            "the kernel's keyring does not take it ({error}); secrets.backend = \"vault-file\" has room"
        ))
    };
    let ring = KeyRing::from_special_id(KeyRingIdentifier::User, true).map_err(unusable)?;
    let key = ring.add_key(&key_name(entry), sealed).map_err(unusable)?;
    // A service has no session through which it would possess what its user owns; that it owns it is enough.
    let rights = KeyPermissionsBuilder::builder().posessor(Permission::ALL).user(Permission::ALL).build();
    key.set_perms(rights).map_err(unusable)
}

/// What is sealed in the keyring.
#[cfg(target_os = "linux")]
pub(super) fn read_from_keyring(entry: &Entry) -> Result<Vec<u8>, String> {
    let gone = || {
        format!(
            "its value is not in the kernel's keyring any more, which forgets at every reboot; `portcullis secret rotate \
             {}` puts it there again",
            entry.name
        )
    };
    find(entry)
        .ok_or_else(gone)?
        .read_to_vec()
        .map_err(|error| format!("the keyring does not give it: {error}"))
}

/// Takes it out of the keyring.
#[cfg(target_os = "linux")]
pub(super) fn remove_from_keyring(entry: &Entry) {
    if let Some(key) = find(entry) {
        let _ = key.invalidate();
    }
}

#[cfg(target_os = "linux")]
fn find(entry: &Entry) -> Option<linux_keyutils::Key> {
    use linux_keyutils::{KeyRing, KeyRingIdentifier};
    KeyRing::from_special_id(KeyRingIdentifier::User, false)
        .and_then(|ring| ring.search(&key_name(entry)))
        .ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn put_into_keyring(_: &Entry, _: &[u8]) -> io::Result<()> {
    Err(io::Error::other("there is no kernel keyring on this system; use secrets.backend = \"vault-file\""))
}

#[cfg(not(target_os = "linux"))]
pub(super) fn read_from_keyring(_: &Entry) -> Result<Vec<u8>, String> {
    Err("there is no kernel keyring on this system".into())
}

#[cfg(not(target_os = "linux"))]
pub(super) fn remove_from_keyring(_: &Entry) {}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_core::Timestamp;

    fn entry(name: &str, version: u32) -> Entry {
        Entry {
            name: name.into(),
            class: "issues.read".parse().unwrap(),
            kind: Default::default(),
            version,
            id: format!("{name}-{version}-{}", std::process::id()),
            stored_at: Timestamp::from_millis(1_800_000_000_000),
        }
    }

    fn shell(script: &str) -> Vec<String> {
        ["/bin/sh", "-c", script].map(ToOwned::to_owned).to_vec()
    }

    #[test]
    fn a_program_is_asked_by_name_and_version_and_its_answer_is_bounded() {
        // SBX-55
        let say = shell(r#"echo "$PORTCULLIS_SECRET_NAME v$PORTCULLIS_SECRET_VERSION"; echo noise >&2"#);
        assert_eq!(ask(&say, "github", 3).unwrap().as_slice(), b"github v3");
        for (script, about) in [
            ("exit 3", "it failed"),
            ("echo canary; exit 1", "it failed"),
            ("true", "printed nothing"),
            ("head -c 70000 /dev/zero", "more than 64 KiB"),
        ] {
            let refused = ask(&shell(script), "github", 3).unwrap_err();
            assert!(refused.contains(about) && !refused.contains("canary"), "{script}: {refused}");
        }
        assert!(
            ask(&["/no/such/program".to_owned()], "github", 1).unwrap_err().contains("cannot be started")
        );
        let whole = ask(&shell("head -c 65536 /dev/zero"), "github", 1).unwrap();
        assert_eq!(whole.len(), LONGEST);
    }

    #[test]
    fn an_answer_is_good_for_a_while_and_for_one_version() {
        // SBX-55
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("asked");
        let count = shell(&format!("echo x >> {0}; wc -l < {0}", file.display()));
        let answers = Answers::default();
        let (one, two) = (entry("github", 1), entry("github", 2));
        assert!(answers.known(&one.id).is_none(), "nobody is asked for the sake of looking");
        assert_eq!(answers.get(&count, &one).unwrap().expose(), b"1");
        assert_eq!(answers.get(&count, &one).unwrap().expose(), b"1");
        assert_eq!(answers.get(&count, &two).unwrap().expose(), b"2", "another version is another question");
        assert_eq!(answers.known(&one.id).unwrap().expose(), b"1");
        answers.forget(&one.id);
        assert!(answers.known(&one.id).is_none());
    }

    #[test]
    fn what_is_in_the_keyring_is_there_until_it_is_taken_out() {
        // SBX-55, with the kernel's own.
        let entry = entry("kept", 1);
        put_into_keyring(&entry, b"sealed").unwrap();
        assert_eq!(read_from_keyring(&entry).unwrap(), b"sealed");
        put_into_keyring(&entry, b"again").unwrap();
        assert_eq!(read_from_keyring(&entry).unwrap(), b"again");
        remove_from_keyring(&entry);
        assert!(read_from_keyring(&entry).unwrap_err().contains("secret rotate kept"));
        let large = put_into_keyring(&entry, &[0; 40_000]).unwrap_err();
        assert!(large.to_string().contains("vault-file"), "{large}");
    }

    #[test]
    fn a_backend_is_one_of_three() {
        // SBX-55
        assert_eq!("vault-file".parse(), Ok(Backend::VaultFile));
        assert_eq!("keyring".parse(), Ok(Backend::Keyring));
        let command = Backend::Command(vec!["/opt/secrets".into(), "--get".into()]);
        assert_eq!("command:/opt/secrets --get".parse(), Ok(command));
        for wrong in ["", "vault", "keyring:x", "command:", "command:secrets", "command: "] {
            assert!(wrong.parse::<Backend>().is_err(), "{wrong}");
        }
    }
}
