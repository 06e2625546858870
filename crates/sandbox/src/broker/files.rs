//! Credentials in files of one process: empty until a call is lent them, and empty again when it is over (SBX-52).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use super::Secret;
use crate::profile::{Profile, Via};

/// The folder inside.
pub(crate) const FOLDER: &str = "/run/secrets";

/// The names of the files that a profile has, in their order.
pub(crate) fn names(profile: &Profile) -> impl Iterator<Item = &str> {
    profile.secrets.iter().filter(|secret| secret.via == Via::Fd).map(|secret| secret.name.as_str())
}

/// The files of one process, open for writing on our side; it has them for reading alone.
#[derive(Debug, Default)]
pub struct SecretFiles(Vec<(String, File)>);

impl SecretFiles {
    /// What the launcher handed out for this profile.
    pub(crate) fn new(profile: &Profile, opened: Vec<OwnedFd>) -> io::Result<Self> {
        let names: Vec<String> = names(profile).map(str::to_owned).collect();
        if names.len() != opened.len() {
            return Err(io::Error::other("the launcher did not hand over the files for credentials"));
        }
        Ok(Self(names.into_iter().zip(opened.into_iter().map(File::from)).collect()))
    }

    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts a value into the file of this name, for as long as the answer lives.
    pub fn write(&self, name: &str, secret: &Secret) -> io::Result<Written> {
        let found = self.0.iter().find(|(known, _)| known == name);
        let (_, file) = found.ok_or_else(|| io::Error::other("the process has no file of this name"))?;
        // First of all: what is written in part is wiped too.
        let written = Written(file.try_clone()?);
        file.write_all_at(secret.expose(), 0)?;
        Ok(written)
    }
}

/// A value in a file. Dropping it wipes the file.
#[derive(Debug)]
pub struct Written(File);

impl Drop for Written {
    fn drop(&mut self) {
        let length = self.0.metadata().map_or(0, |about| about.len());
        let zeros = vec![0; usize::try_from(length).unwrap_or(0)];
        let _ = self.0.write_all_at(&zeros, 0);
        let _ = self.0.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::SecretScope;

    #[test]
    fn a_file_holds_a_value_for_as_long_as_it_is_lent() {
        // SBX-52
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("KEY");
        let mut profile = Profile::bare("/bin/true", Vec::new());
        let scope = |via, name: &str| SecretScope {
            class: "c".into(),
            via,
            name: name.into(),
            toward: None,
            format: None,
            within: Vec::new(),
        };
        profile.secrets = vec![scope(Via::Env, "OTHER"), scope(Via::Fd, "KEY")];
        assert!(SecretFiles::new(&profile, Vec::new()).is_err(), "one is missing");
        let files = SecretFiles::new(&profile, vec![File::create(&path).unwrap().into()]).unwrap();
        let secret = Secret::take(b"a value".to_vec()).unwrap();
        assert!(files.write("OTHER", &secret).is_err(), "it has no file");
        let written = files.write("KEY", &secret).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a value");
        drop(written);
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }
}
