//! Files as a log needs them: private, never through a symbolic link, and on the disk when they say so
//! (AUD-15, AUD-17).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::OFlags;

use crate::error::{AtPath as _, AuditError};
use crate::filling::{BLOCK, Filling};

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

/// Opens a file of the log to read and overwrite.
pub(crate) fn open_rw(path: &Path) -> Result<File, AuditError> {
    private().read(true).write(true).open(path).at(path)
}

/// Opens a file of the log to overwrite whole blocks of it past the page cache; through the page cache if the file
/// system knows no other way.
pub(crate) fn open_direct(path: &Path) -> Result<File, AuditError> {
    #[cfg(target_os = "linux")]
    {
        let direct =
            private().write(true).custom_flags((OFlags::NOFOLLOW | OFlags::DIRECT).bits() as i32).open(path);
        match direct {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {}
            direct => return direct.at(path),
        }
    }
    private().write(true).open(path).at(path)
}

/// Opens a file of the log to read.
pub(crate) fn open_read(path: &Path) -> Result<File, AuditError> {
    private().read(true).open(path).at(path)
}

/// All of a small file of the log.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, AuditError> {
    let mut bytes = Vec::new();
    open_read(path)?.read_to_end(&mut bytes).at(path)?;
    Ok(bytes)
}

/// Writes a private file that has no readers yet. It is durable once the returned file is synced.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<File, AuditError> {
    let mut file = private().write(true).create(true).truncate(true).open(path).at(path)?;
    file.write_all(bytes).at(path)?;
    Ok(file)
}

/// Opens the lock file, creating it if there is none.
pub(crate) fn open_or_create(path: &Path) -> Result<File, AuditError> {
    private().read(true).write(true).create(true).open(path).at(path)
}

/// Creates a folder and those above it that are missing; what is created is private.
pub(crate) fn create_dir_all(path: &Path) -> Result<(), AuditError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).at(path)
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), AuditError> {
    File::open(path).and_then(|dir| dir.sync_all()).at(path)
}

fn sync_parent(path: &Path) -> Result<(), AuditError> {
    path.parent().map_or(Ok(()), sync_dir)
}

/// Puts `bytes` at `path` so that a crash leaves either the old content or the new, never a mixture.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), AuditError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let mut file = private().write(true).create(true).truncate(true).open(&new).at(&new)?;
    file.write_all(bytes).and_then(|()| file.sync_all()).at(&new)?;
    rename(&new, path)
}

/// Renames durably.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), AuditError> {
    std::fs::rename(from, to).at(to)?;
    sync_parent(to)
}

/// Creates a file of `len` zeros that are really on the disk (AUD-17). Overwriting them later changes no
/// metadata, so its sync needs no journal commit; a sparse or merely reserved file would need one each time.
///
/// The zeros go out in pieces, each synced before the next and, unless there is `hurry`, followed by a rest as
/// long as it took: a commit's own few bytes would otherwise queue behind all of them.
pub(crate) fn preallocate(path: &Path, len: u64, hurry: &AtomicBool) -> Result<(), AuditError> {
    #[repr(align(4096))]
    struct Zeros([u8; 1 << 20]);
    static ZEROS: Zeros = Zeros([0; 1 << 20]);
    private().write(true).create(true).truncate(true).open(path).at(path)?;
    let file = open_direct(path)?;
    let mut offset = 0;
    while offset < len {
        let piece = ZEROS.0.len().min((len - offset) as usize);
        let started = Instant::now();
        file.write_all_at(&ZEROS.0[..piece], offset).at(path)?;
        offset += piece as u64;
        if !hurry.load(Ordering::Relaxed) {
            file.sync_data().at(path)?;
            std::thread::sleep(started.elapsed());
        }
    }
    file.sync_all().at(path)
}

/// A preallocated file that is made on another thread before it is needed.
pub(crate) struct Spare {
    path: PathBuf,
    making: Option<std::thread::JoinHandle<Result<u64, AuditError>>>,
    hurry: Arc<AtomicBool>,
}

impl Spare {
    /// Spares of this name lie at `path` until they are used.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path, making: None, hurry: Arc::default() }
    }

    /// Begins to make one of `len` bytes, unless one is being made or already made.
    pub(crate) fn prepare(&mut self, len: u64) {
        let len = len.next_multiple_of(BLOCK as u64);
        if self.making.is_none() {
            self.hurry = Arc::default();
            let (path, hurry) = (self.path.clone(), self.hurry.clone());
            let make = move || make_spare(&path, len, &hurry).map(|()| len);
            self.making = std::thread::Builder::new().name("audit-spare".into()).spawn(make).ok();
        }
    }

    /// Gives out a file of at least `len` bytes under the name `to`, beginning with `head` and to be filled behind
    /// it; waits for the one being made, or makes one of `otherwise` bytes now.
    pub(crate) fn take(
        &mut self,
        to: &Path,
        len: u64,
        otherwise: u64,
        head: &[u8],
    ) -> Result<Filling, AuditError> {
        let size = match self.finish() {
            Some(Ok(size)) if size >= len => size,
            _ => {
                let size = otherwise.max(len).next_multiple_of(BLOCK as u64);
                make_spare(&self.path, size, &AtomicBool::new(true))?;
                size
            }
        };
        if !head.is_empty() {
            let mut beginning = Filling::open(&self.path, size, 0)?;
            beginning.add(head);
            beginning.write().and_then(|()| beginning.sync()).at(&self.path)?;
        }
        rename(&self.path, to)?;
        Filling::open(to, size, head.len() as u64)
    }

    /// Waits for the one being made, which from now on takes no rests.
    fn finish(&mut self) -> Option<Result<u64, AuditError>> {
        self.hurry.store(true, Ordering::Relaxed);
        self.making.take().and_then(|making| making.join().ok())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Makes a spare, or takes the one an earlier run left: it has its name only since all of it is on the disk.
fn make_spare(path: &Path, len: u64, hurry: &AtomicBool) -> Result<(), AuditError> {
    if open_rw(path).and_then(|file| file.metadata().at(path)).is_ok_and(|metadata| metadata.len() == len) {
        return Ok(());
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let new = PathBuf::from(name);
    let made = preallocate(&new, len, hurry).and_then(|()| rename(&new, path));
    if made.is_err() {
        // Half a spare is of no use, and takes the room that something else needs.
        let _ = std::fs::remove_file(&new);
    }
    made
}

/// Has the kernel refuse every change of what is in a file, and its removal (AUD-15); also to us, and to root until
/// `chattr -a`. Says whether that is so now: the file system must know the flag, and the process must have
/// CAP_LINUX_IMMUTABLE.
#[cfg(target_os = "linux")]
pub(crate) fn make_append_only(path: &Path) -> bool {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(file) = open_read(path) else { return false };
    match ioctl_getflags(&file) {
        Ok(flags) if flags.contains(IFlags::APPEND) => true,
        Ok(flags) => ioctl_setflags(&file, flags | IFlags::APPEND).is_ok(),
        Err(_) => false,
    }
}

/// There is no such flag here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn make_append_only(_: &Path) -> bool {
    false
}

/// Refuses everything in and under `dir` that others could read or change (AUD-15).
pub(crate) fn check_tree(dir: &Path) -> Result<(), AuditError> {
    check_dir(dir)?;
    for entry in std::fs::read_dir(dir).at(dir)? {
        let entry = entry.at(dir)?;
        let path = entry.path();
        // `file_type` does not follow links; a link is told apart in `check`.
        if entry.file_type().at(&path)?.is_dir() { check_tree(&path)? } else { check_file(&path)? }
    }
    Ok(())
}

/// Refuses a folder that others could use.
pub(crate) fn check_dir(path: &Path) -> Result<(), AuditError> {
    check(path, true, 0o700)
}

/// Refuses a file that others could use.
pub(crate) fn check_file(path: &Path) -> Result<(), AuditError> {
    check(path, false, 0o600)
}

fn check(path: &Path, dir: bool, most: u32) -> Result<(), AuditError> {
    let refuse = |problem: String| Err(AuditError::Permissions { path: path.into(), problem });
    let metadata = match std::fs::symlink_metadata(path) {
        // A spare may be renamed while the folder is listed.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !dir => return Ok(()),
        other => other.at(path)?,
    };
    if metadata.is_symlink() {
        return refuse("is a symbolic link; put the real file there".into());
    }
    if dir != metadata.is_dir() || !(dir || metadata.is_file()) {
        return refuse(format!("is not a {}", if dir { "folder" } else { "regular file" }));
    }
    let (owner, me) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != me {
        return refuse(format!(
            "belongs to user {owner}, the gateway runs as {me}; run: chown {me} {}",
            path.display()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & !most != 0 {
        return refuse(format!(
            "has mode {mode:o}, at most {most:o} is allowed; run: chmod {most:o} {}",
            path.display()
        ));
    }
    Ok(())
}
