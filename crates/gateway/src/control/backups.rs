//! Backups: the evidence as it is at one moment, copied beside it. State is made of evidence, so a backup has nothing else
//! but the keys that open it stay where they are. A restore is a plan that the next start carries out, before anything is
//! opened; what was there is kept beside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use portcullis_audit::{Checks, verify_with};
use portcullis_core::{Clock as _, ErrorCode, EventId, Sha256Digest, SystemClock};
use portcullis_governance::operator::OperatorProof;
use serde::{Deserialize, Serialize};

use super::kept::{Document, Versioned};
use super::{Control, ControlError};

/// Where a start looks for what to restore.
const PLAN: &str = "state/restore";

/// A backup.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Backup {
    /// Its id, and the name of its folder below `backups`.
    pub backup_id: String,
    /// What an operator calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Since when.
    pub created_at: String,
    /// How large it is.
    pub bytes: u64,
    /// The digest of its files, one after the other by name.
    pub sha256: Sha256Digest,
    /// How many records it holds.
    pub records: u64,
}

impl Document for Backup {
    const KIND: &'static str = "backup";

    fn id(&self) -> String {
        self.backup_id.clone()
    }
}

/// What looking at a backup came to.
#[derive(Debug, Clone, Copy)]
pub struct Verified {
    /// Whether its files are those that were copied.
    pub digest: bool,
    /// Whether its records are whole, and under its checkpoint.
    pub checkpoint: bool,
}

impl Control {
    /// Copies the evidence.
    pub async fn create_backup(
        &self,
        operator: &OperatorProof,
        label: Option<String>,
    ) -> Result<Backup, ControlError> {
        let now = self.clock.now();
        let backup_id = format!("bak_{}", EventId::new(now));
        let (log, from, folder) = (self.log.clone(), self.options.audit_dir(), self.folder_of(&backup_id));
        let copied = tokio::task::spawn_blocking(move || -> io::Result<(u64, Sha256Digest, u64)> {
            // Under a checkpoint over everything there is; what is written meanwhile is a tail that a start cuts off.
            log.checkpoint().map_err(io::Error::other)?;
            let records = log.next_seq();
            copy(&from, &folder)?;
            let (bytes, sha256) = digest(&folder)?;
            Ok((bytes, sha256, records))
        });
        let copied = copied.await.map_err(|error| failed(&io::Error::other(error)))?;
        let (bytes, sha256, records) = copied.map_err(|error| failed(&error))?;
        let backup = Backup { backup_id, label, created_at: now.to_string(), bytes, sha256, records };
        let kept = self.set(operator, &backup, Some(0), Vec::new(), |_| Ok(())).await;
        if kept.is_err() {
            let _ = fs::remove_dir_all(self.folder_of(&backup.backup_id));
        }
        kept.map(|_| backup)
    }

    fn folder_of(&self, id: &str) -> PathBuf {
        self.home().join("backups").join(id)
    }

    /// One backup.
    pub fn backup(&self, id: &str) -> Result<Versioned<Backup>, ControlError> {
        self.document::<Backup>(id).ok_or_else(|| {
            let shown = portcullis_core::name::printable(id);
            ControlError::new(ErrorCode::NotFound, format!("there is no backup {shown}"))
        })
    }

    /// Whether a backup is what was copied, and whole.
    pub async fn verify_backup(&self, id: &str) -> Result<Verified, ControlError> {
        let backup = self.backup(id)?.document;
        let folder = self.folder_of(id);
        let looked = tokio::task::spawn_blocking(move || Verified {
            digest: digest(&folder).is_ok_and(|(_, sha256)| sha256 == backup.sha256),
            checkpoint: verify_with(&folder, &Checks::default()).is_ok_and(|report| report.ok),
        });
        looked.await.map_err(|error| failed(&io::Error::other(error)))
    }

    /// Plans that the next start begins with a backup. Nothing changes before.
    pub async fn plan_restore(&self, id: &str) -> Result<PathBuf, ControlError> {
        let verified = self.verify_backup(id).await?;
        if !verified.digest || !verified.checkpoint {
            let message = "the backup is not what was copied, or not whole; it is not restored";
            return Err(ControlError::new(ErrorCode::Conflict, message));
        }
        let plan = self.home().join(PLAN);
        fs::write(&plan, id).map_err(|error| failed(&error))?;
        Ok(plan)
    }
}

/// Carries out what was planned, before anything is opened: the evidence is put aside, the backup takes its place, and state
/// is made of it anew.
pub(super) fn restore_as_planned(home: &Path) -> io::Result<()> {
    let plan = home.join(PLAN);
    let id = match fs::read_to_string(&plan) {
        Ok(id) => id.trim().to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let plain = id.starts_with("bak_") && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let folder = home.join("backups").join(&id);
    if !plain || !folder.is_dir() {
        return Err(io::Error::other(format!("{} names no backup; remove it to go on", plan.display())));
    }
    let aside = home.join(format!("audit.before-{id}-{}", SystemClock.now().as_millis()));
    fs::rename(home.join("audit"), &aside)?;
    copy(&folder, &home.join("audit"))?;
    for state in ["state.db", "state.db-wal", "state.db-shm", "started"] {
        match fs::remove_file(home.join("state").join(state)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    tracing::warn!(backup = id, aside = %aside.display(), "restored; what was there is kept beside");
    fs::remove_file(&plan)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() && !is_made_anew(&entry.file_name().to_string_lossy()) {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Who writes, and where to look things up: a start makes both.
fn is_made_anew(name: &str) -> bool {
    name == "LOCK" || name.starts_with("index.db")
}

fn digest(folder: &Path) -> io::Result<(u64, Sha256Digest)> {
    let mut files = Vec::new();
    list(folder, &mut files)?;
    files.sort();
    let (mut bytes, mut digests) = (0, Vec::new());
    for file in files {
        let content = fs::read(&file)?;
        bytes += content.len() as u64;
        let name = file.strip_prefix(folder).unwrap_or(&file).display().to_string();
        digests.push(format!("{} {name}\n", Sha256Digest::of(&content)));
    }
    Ok((bytes, Sha256Digest::of(digests.concat().as_bytes())))
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

fn failed(error: &io::Error) -> ControlError {
    ControlError::new(ErrorCode::Internal, format!("the backup failed: {error}"))
}
