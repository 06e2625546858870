//! Room kept back for a full disk (AUD-63): a file of real zeros that is given up when nothing else can be written, so
//! that how the calls under way ended can still be said.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::error::AuditError;
use crate::files;

/// Makes the reserve unless it is there; all of it is on the disk when this returns.
pub(crate) fn ensure(path: &Path, bytes: u64, hurry: &AtomicBool) -> Result<(), AuditError> {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() == bytes) {
        return Ok(());
    }
    let new = path.with_added_extension("new");
    let made = files::preallocate(&new, bytes, hurry).and_then(|()| files::rename(&new, path));
    if made.is_err() {
        // Half a reserve would take the room that something else needs.
        let _ = std::fs::remove_file(&new);
    }
    made
}

/// Gives the room back; false if there was none.
pub(crate) fn release(path: &Path) -> bool {
    let released = std::fs::remove_file(path).is_ok();
    if released {
        tracing::warn!("the reserve of the audit log was given up, because the disk is full");
    }
    released
}

/// How much room an unprivileged process has on the disk that `dir` is on.
pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(dir).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}
