//! Copies of what was pinned: what runs is what was accepted, whatever happens to the originals (SBX-30).
//!
//! Each pinned file or folder is kept under its digest. A start shows the copy at the original's path, so that a file which
//! is swapped between the look and the start changes nothing. The original is still looked at: one that is not what was
//! registered any more is refused (MP-FH-009), since nobody would expect the old bytes to run. Looking means comparing
//! what the file system says of it; it is read again when that is not what it was.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portcullis_core::Sha256Digest;
use sha2::Digest as _;

use crate::endpoint::{self, EndpointError, Pin, check_permissions, unusable};

/// Where copies are kept, and what was seen of files lately.
#[derive(Debug)]
pub struct Copies {
    folder: PathBuf,
    /// What the file system said of a path when its content had this digest.
    seen: Mutex<HashMap<PathBuf, (Sha256Digest, Sha256Digest)>>,
}

impl Copies {
    /// Copies below `folder`, which nobody else may write to; programs that lie beside it are kept well as they are.
    pub fn below(folder: PathBuf) -> Self {
        Self { folder, seen: Mutex::default() }
    }

    /// Looks at the originals, and says where the bytes are that may run in their place. Blocks.
    pub fn of(&self, pins: &[Pin]) -> Result<BTreeMap<PathBuf, PathBuf>, EndpointError> {
        let mut found = BTreeMap::new();
        for pin in pins {
            let original = Path::new(&pin.path);
            self.look_at(original, pin)?;
            if self.folder.parent().is_none_or(|own| !original.starts_with(own)) {
                found.insert(original.to_owned(), self.copy_of(pin)?);
            }
        }
        Ok(found)
    }

    /// Whether a path has the pinned content still; read only if something about it is not as it was.
    fn look_at(&self, path: &Path, pin: &Pin) -> Result<(), EndpointError> {
        let metadata = check_permissions(path)?;
        let stamp = stamp(path, &metadata).map_err(|error| unusable(path, error))?;
        if self.seen().get(path) == Some(&(stamp, pin.sha256)) {
            return Ok(());
        }
        if endpoint::pin(path, &pin.role)?.sha256 != pin.sha256 {
            return Err(EndpointError::Changed { path: path.display().to_string() });
        }
        // Of before it was read: whatever changed meanwhile is seen the next time.
        self.seen().insert(path.to_owned(), (stamp, pin.sha256));
        Ok(())
    }

    /// The copy, made now if there is none yet.
    fn copy_of(&self, pin: &Pin) -> Result<PathBuf, EndpointError> {
        let copy = self.folder.join(pin.sha256.to_string());
        if fs::symlink_metadata(&copy).is_err() {
            self.make(Path::new(&pin.path), &copy).map_err(|error| unusable(&copy, error))?;
        }
        match self.look_at(&copy, pin) {
            // Nobody but us may write there, so this is damage, or an original that was swapped while it was copied.
            Err(EndpointError::Changed { .. }) => {
                remove(&copy).map_err(|error| unusable(&copy, error))?;
                Err(EndpointError::Changed { path: pin.path.clone() })
            }
            looked_at => looked_at.map(|()| copy),
        }
    }

    fn make(&self, original: &Path, copy: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        let draft = self.folder.join(format!(".{:032x}", rand::random::<u128>()));
        let made = duplicate(original, &draft).and_then(|()| fs::rename(&draft, copy));
        let made = made.or_else(|error| {
            let _ = remove(&draft);
            // Somebody else was faster.
            if fs::symlink_metadata(copy).is_ok() { Ok(()) } else { Err(error) }
        });
        made.and_then(|()| close(copy))
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<PathBuf, (Sha256Digest, Sha256Digest)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the file system says of a file, or of everything in a folder: device, inode, size and times.
fn stamp(path: &Path, metadata: &Metadata) -> io::Result<Sha256Digest> {
    let mut hasher = sha2::Sha256::new();
    let mut open = vec![(path.to_owned(), metadata.clone())];
    while let Some((path, metadata)) = open.pop() {
        let name = path.as_os_str().as_encoded_bytes();
        hasher.update((name.len() as u64).to_be_bytes());
        hasher.update(name);
        for number in [metadata.dev(), metadata.ino(), metadata.size(), u64::from(metadata.mode())] {
            hasher.update(number.to_be_bytes());
        }
        for number in [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()] {
            hasher.update(number.to_be_bytes());
        }
        if metadata.is_dir() {
            let mut entries = fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                open.push((entry.path(), fs::symlink_metadata(entry.path())?));
            }
        }
    }
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
}

/// Copies a file, or a folder with everything in it; links are copied as links.
fn duplicate(from: &Path, to: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(from)?.file_type();
    if kind.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if !kind.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir(to)?;
    fs::set_permissions(to, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        duplicate(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Nobody writes to a copy, not even by mistake.
fn close(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if kind.is_symlink() {
        return Ok(());
    }
    if kind.is_dir() {
        for entry in fs::read_dir(path)? {
            close(&entry?.path())?;
        }
    }
    fs::set_permissions(path, Permissions::from_mode(0o555))
}

/// Removes a copy, whose folders nobody may write to.
fn remove(path: &Path) -> io::Result<()> {
    let kind = fs::symlink_metadata(path)?.file_type();
    if !kind.is_dir() {
        return fs::remove_file(path);
    }
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(path)? {
        remove(&entry?.path())?;
    }
    fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{pin_artifact, pin_command};

    /// A folder under the target folder, whose parents are ours alone.
    fn place() -> tempfile::TempDir {
        let base = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        tempfile::tempdir_in(base).unwrap()
    }

    #[test]
    fn what_may_run_is_the_copy_and_a_changed_original_is_refused() {
        // SBX-30, S-ART-1
        let dir = place();
        let program = dir.path().join("server");
        fs::write(&program, "the accepted bytes").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let tree = dir.path().join("modules");
        fs::create_dir_all(tree.join("deep")).unwrap();
        fs::write(tree.join("deep/file.js"), "1").unwrap();
        symlink("deep/file.js", tree.join("link")).unwrap();
        for path in [&tree, &tree.join("deep")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        let (_, mut pins) = pin_command(program.to_str().unwrap(), &[]).unwrap();
        pins.push(pin_artifact(tree.to_str().unwrap()).unwrap());
        let copies = Copies::below(dir.path().join("home/artifacts/pinned"));
        let found = copies.of(&pins).unwrap();
        let copy = &found[&program];
        assert_eq!(fs::read_to_string(copy).unwrap(), "the accepted bytes");
        assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o555);
        assert_eq!(fs::read_to_string(found[&tree].join("link")).unwrap(), "1");
        assert_eq!(copies.of(&pins).unwrap(), found, "the second time nothing is read");

        // The same bytes in another file are the same program.
        let again = dir.path().join("again");
        fs::write(&again, "the accepted bytes").unwrap();
        fs::set_permissions(&again, Permissions::from_mode(0o755)).unwrap();
        fs::rename(&again, &program).unwrap();
        assert_eq!(copies.of(&pins).unwrap(), found);

        fs::write(tree.join("deep/file.js"), "2").unwrap();
        let path = tree.display().to_string();
        assert_eq!(copies.of(&pins), Err(EndpointError::Changed { path }));
        assert_eq!(fs::read_to_string(found[&tree].join("deep/file.js")).unwrap(), "1", "what is kept stays");
    }

    #[test]
    fn a_damaged_copy_is_not_used_and_made_again() {
        let dir = place();
        let program = dir.path().join("server");
        fs::write(&program, "the accepted bytes").unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let (_, pins) = pin_command(program.to_str().unwrap(), &[]).unwrap();
        let copies = Copies::below(dir.path().join("home/artifacts/pinned"));
        let copy = copies.of(&pins).unwrap().remove(&program).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        fs::write(&copy, "other bytes").unwrap();
        assert!(matches!(copies.of(&pins), Err(EndpointError::Changed { .. })));
        assert_eq!(fs::read_to_string(&copies.of(&pins).unwrap()[&program]).unwrap(), "the accepted bytes");
    }
}
