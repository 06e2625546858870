//! What is kept of results, for the principal and session that made the call (CTX-20 to 25).
//!
//! [`Artifacts::keep`] takes what an envelope leaves out, [`Artifacts::open`] gives it back to its owner. Content is
//! stored once however often it occurs, under a name nobody can compute without the installation's key, and sealed.
//! Records are sealed too and survive a restart; what has expired is removed then and whenever room is needed.

mod blob;
mod index;
mod record;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::digest::to_hex;
use portcullis_core::{Clock, Secret, SessionId, Sha256Digest};
use serde::{Deserialize, Serialize};

pub use self::index::Limits;
pub use self::record::{Origin, Owner, Record, Sensitivity};

use self::blob::{Blob, BlobKeys, BlobName};
use self::index::{Holdings, Standing};
use crate::envelope::{ArtifactRef, NewArtifact};
use crate::firewall::reference;
use crate::handle::Handle;
use crate::lines::Index;

/// Artifacts in a folder of this machine.
pub struct Artifacts {
    blobs: PathBuf,
    records: PathBuf,
    keys: BlobKeys,
    limits: Limits,
    clock: Arc<dyn Clock>,
    holdings: Mutex<Holdings>,
}

impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts")
            .field("blobs", &self.blobs)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Why something could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum NotKept {
    /// It is too large, or everything else of its principal would have to go and still not make room.
    #[error("there is no room for it")]
    NoRoom,
    /// The disk failed.
    #[error("the artifact folder cannot be written: {0}")]
    Disk(#[from] io::Error),
}

/// Why there is nothing to view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotThere {
    /// No such handle, or somebody else's: nobody can tell the two apart (CTX-21).
    #[error("no such handle")]
    Unknown,
    /// It was there, and the one who asks owned it.
    #[error("the artifact has expired; call the tool again")]
    Expired,
    /// The disk failed, or the file is not what was written.
    #[error("the artifact cannot be read")]
    Unreadable,
}

/// A record as it is kept: with the blob's name, which is for nobody else.
#[derive(Serialize, Deserialize)]
struct Stored {
    record: Record,
    blob: String,
}

impl Artifacts {
    /// Opens the store in `folder`, making it if need be. What has expired, and what a crash left half-written, goes.
    pub fn open_in(
        folder: &Path,
        installation: &Secret<[u8; 32]>,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let (blobs, records) = (folder.join("blobs"), folder.join("records"));
        for folder in [&blobs, &records] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let keys = BlobKeys::derive(installation);
        let holdings = Mutex::default();
        let artifacts = Self { blobs, records, keys, limits, clock, holdings };
        artifacts.restore()?;
        Ok(artifacts)
    }

    fn restore(&self) -> io::Result<()> {
        let now = self.clock.now();
        let mut holdings = self.holdings();
        for (name, path) in files(&self.records)? {
            let stored = std::fs::read(&path).ok().and_then(|sealed| self.keys.open_small(&name, &sealed));
            let stored = stored.and_then(|text| serde_json::from_slice::<Stored>(&text).ok());
            let alive = stored.filter(|stored| stored.record.expires_at > now).and_then(|stored| {
                let blob = BlobName(portcullis_core::digest::parse_hex(&stored.blob)?);
                self.blobs.join(blob.hex()).exists().then_some((stored.record, blob))
            });
            match alive {
                Some((record, blob)) => {
                    holdings.add(record, blob);
                }
                None => std::fs::remove_file(&path)?,
            }
        }
        for (name, path) in files(&self.blobs)? {
            let blob = portcullis_core::digest::parse_hex(&name).map(BlobName);
            if !blob.is_some_and(|blob| holdings.has_blob(blob)) {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Keeps an artifact for its owner. What is returned names it.
    pub fn keep(
        &self,
        owner: &Owner,
        origin: &Origin,
        new: &NewArtifact<'_>,
    ) -> Result<ArtifactRef, NotKept> {
        let size = new.bytes.len() as u64;
        if size > self.limits.artifact_bytes {
            return Err(NotKept::NoRoom);
        }
        let blob = self.keys.name(&new.bytes);
        let now = self.clock.now();
        let record = Record {
            handle: Handle::random(),
            owner: owner.clone(),
            origin: origin.clone(),
            source: new.source.clone(),
            part_index: new.part_index,
            media_type: new.media_type.clone(),
            size_bytes: size,
            content_hash: Sha256Digest::of(&new.bytes),
            label: new.label.clone(),
            created_at: now,
            expires_at: now.after(self.limits.ttl),
        };
        let handle = record.handle;
        let mut reference = reference(handle, new);
        reference.content_hash = Some(record.content_hash.to_string());
        // Entered first, so that nobody removes the blob while it is being written; views find it only afterwards,
        // because nobody knows the handle yet.
        let is_new = {
            let mut holdings = self.holdings();
            let gone = holdings.make_room(owner, blob, size, &self.limits, now).ok_or(NotKept::NoRoom)?;
            self.forget(&gone);
            holdings.add(record.clone(), blob)
        };
        // Another may be writing the same content; writing it twice is harmless, reading half of it is not possible.
        let present = !is_new && self.blobs.join(blob.hex()).exists();
        let written = if present {
            Ok(())
        } else {
            blob::write(&self.keys, &self.blobs, blob, &new.bytes, &Index::of(&new.bytes))
        };
        if let Err(error) = written.and_then(|()| self.store(&record, blob)) {
            let mut holdings = self.holdings();
            if let Some(blob) = holdings.remove(handle) {
                self.forget(&[blob]);
            }
            return Err(NotKept::Disk(error));
        }
        Ok(reference)
    }

    /// What is known of an artifact, for its owner; nothing is renewed yet.
    pub fn find(&self, handle: Handle, owner: &Owner) -> Result<Record, NotThere> {
        let holdings = self.holdings();
        match holdings.standing(handle, owner, self.clock.now()) {
            Standing::Alive => Ok(holdings.get(handle).ok_or(NotThere::Unknown)?.record.clone()),
            Standing::Expired => Err(NotThere::Expired),
            Standing::Unknown => Err(NotThere::Unknown),
        }
    }

    /// Opens an artifact for its owner, and renews it.
    pub fn open(&self, handle: Handle, owner: &Owner) -> Result<Opened<'_>, NotThere> {
        let record = self.find(handle, owner)?;
        let mut holdings = self.holdings();
        holdings.viewed(handle, &self.limits, self.clock.now());
        let blob = holdings.get(handle).ok_or(NotThere::Unknown)?.blob;
        drop(holdings);
        self.opened(record, blob)
    }

    /// Opens an artifact for an operator, who owns none and renews none.
    pub fn open_for_operator(&self, handle: Handle) -> Result<Opened<'_>, NotThere> {
        let (record, blob) = {
            let holdings = self.holdings();
            let entry = holdings.get(handle).ok_or(NotThere::Unknown)?;
            (entry.record.clone(), entry.blob)
        };
        self.opened(record, blob)
    }

    fn opened(&self, record: Record, blob: BlobName) -> Result<Opened<'_>, NotThere> {
        let blob = Blob::open(&self.keys, &self.blobs, blob, record.size_bytes);
        Ok(Opened { blob: blob.map_err(|_| NotThere::Unreadable)?, record })
    }

    /// What is there, for operators: agents have no way to list handles (CTX-21).
    pub fn records(&self) -> Vec<Record> {
        let now = self.clock.now();
        let mut records: Vec<Record> =
            self.holdings().records().filter(|record| record.expires_at > now).cloned().collect();
        records.sort_by_key(|record| (record.created_at, record.handle));
        records
    }

    /// Forgets an artifact now. False if there is none.
    pub fn remove(&self, handle: Handle) -> bool {
        let mut holdings = self.holdings();
        if holdings.get(handle).is_none() {
            return false;
        }
        let blob = holdings.remove(handle);
        if let Some(blob) = blob {
            self.forget(&[blob]);
        }
        drop(holdings);
        let _ = std::fs::remove_file(self.records.join(self.record_name(handle)));
        true
    }

    /// A session has ended: what it has kept goes soon.
    pub fn session_ended(&self, session: SessionId) {
        let until = self.clock.now().after(self.limits.after_session);
        self.holdings().session_ended(session, until);
    }

    /// Removes what has expired.
    pub fn sweep(&self) {
        let mut holdings = self.holdings();
        let gone = holdings.expire(self.clock.now());
        self.forget(&gone);
        let alive: HashSet<String> =
            holdings.records().map(|record| self.record_name(record.handle)).collect();
        drop(holdings);
        for (name, path) in files(&self.records).unwrap_or_default() {
            if !alive.contains(&name) && !name.ends_with(".new") {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// A record is not worth waiting for the disk: if it is lost, only a handle is.
    fn store(&self, record: &Record, blob: BlobName) -> io::Result<()> {
        let stored = Stored { record: record.clone(), blob: blob.hex() };
        let name = self.record_name(record.handle);
        let sealed = self.keys.seal_small(&name, &serde_json::to_vec(&stored)?);
        let (own, aside) = (self.records.join(&name), self.records.join(format!("{name}.new")));
        let mut file = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&aside)?;
        io::Write::write_all(&mut file, &sealed)?;
        std::fs::rename(aside, own)
    }

    /// Not the handle itself: who can list the folder could use it.
    fn record_name(&self, handle: Handle) -> String {
        to_hex(&self.keys.name(handle.to_string().as_bytes()).0)
    }

    /// Called with the holdings locked, so that nobody takes a blob up again that is about to go.
    fn forget(&self, blobs: &[BlobName]) {
        for blob in blobs {
            // A file that stays is removed at the next start.
            let _ = std::fs::remove_file(self.blobs.join(blob.hex()));
        }
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn files(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| {
        let entry = entry?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    });
    entries.collect()
}

/// An artifact that its owner may look at.
pub struct Opened<'s> {
    record: Record,
    blob: Blob<'s>,
}

impl fmt::Debug for Opened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("handle", &self.record.handle).finish_non_exhaustive()
    }
}

impl Opened<'_> {
    /// What is known of it.
    pub fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn read(&self, begin: u64, end: u64) -> Result<Vec<u8>, NotThere> {
        self.blob.read(begin, end).map_err(|_| NotThere::Unreadable)
    }

    pub(crate) fn index(&self) -> Result<Index, NotThere> {
        self.blob.index().map_err(|_| NotThere::Unreadable)
    }
}
