//! Another key for the checkpoints (AUD-33): announced in the log, and the next checkpoint is signed by both, so that
//! whoever knows the old one can go over to the new.
//!
//! The new key lies beside the old one until everything is done. A crash on the way is followed through at the next
//! start: announcing a key twice does no harm.

use std::path::{Path, PathBuf};

use portcullis_core::Actor;
use serde_json::json;

use crate::description::Description;
use crate::error::AuditError;
use crate::event::Event;
use crate::event_name::EventName;
use crate::files;
use crate::log::AuditLog;
use crate::note::NoteKey;
use crate::signer::{Signer, SignerSource};

/// Where the next key lies until it is the only one.
fn next_key(path: &Path) -> PathBuf {
    path.with_added_extension("next")
}

/// Before a log is opened: a rotation that was all but done is, so that the key on the disk is the one `described`.
pub(crate) fn finish_renaming(
    source: &SignerSource,
    origin: &str,
    described: Option<&NoteKey>,
) -> Result<(), AuditError> {
    let SignerSource::File(path) = source else { return Ok(()) };
    let next = next_key(path);
    if next.exists() && Some(Signer::open(&SignerSource::File(next.clone()), origin)?.key()) == described {
        files::rename(&next, path)?;
    }
    Ok(())
}

impl AuditLog {
    /// Signs with another key from now on. The next checkpoint, which this waits for, is signed with both.
    pub fn rotate_signer(&self, actor: &Actor, reason: &str) -> Result<NoteKey, AuditError> {
        let SignerSource::File(path) = self.signer_source() else {
            let what = "the log's signer is a program; its key is changed where the program keeps it, and in audit.signer";
            return Err(AuditError::Options { what: what.into() });
        };
        let next = next_key(path);
        let origin = self.vkey().name().to_owned();
        let signer = Signer::open(&SignerSource::File(next.clone()), &origin)?;
        let (old, new) = (self.vkey(), signer.key().clone());
        let data = json!({
            "new": new.to_string(), "old": old.to_string(), "reason": portcullis_core::error::one_line(reason),
        });
        self.commit_blocking(vec![Event::new(EventName::AuditSignerRotated, actor).data(data)])?;
        self.succeed(signer);
        self.checkpoint()?;
        Description { origin, key: Some(new.clone()) }.write(&self.layout().description())?;
        files::rename(&next, path)?;
        Ok(new)
    }

    /// A rotation that a crash cut off is done again from its announcement.
    pub(crate) fn finish_rotation(&self) -> Result<(), AuditError> {
        let SignerSource::File(path) = self.signer_source() else { return Ok(()) };
        if next_key(path).exists() {
            self.rotate_signer(&Actor::system(), "a rotation that was cut off")?;
        }
        Ok(())
    }
}
