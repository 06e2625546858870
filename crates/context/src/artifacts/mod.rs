//! What is kept of results, for the principal and session that made the call (CTX-20 to 25).
//!
//! [`Artifacts::keep`] takes what an envelope leaves out, [`Artifacts::open`] gives it back to its owner. Content is
//! stored once however often it occurs, under a name nobody can compute without the installation's key, and sealed.
//! Records are sealed too and survive a restart; what has expired is removed then and whenever room is needed.

mod blob;
#[cfg(feature = "s3")]
pub mod bucket;
mod index;
mod place;
mod record;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use portcullis_core::digest::to_hex;
use portcullis_core::{Clock, Secret, SessionId, Sha256Digest};
use serde::{Deserialize, Serialize};

pub use self::index::Limits;
pub use self::record::{Origin, Owner, Record, Sensitivity};

use self::blob::{Blob, BlobKeys, BlobName};
use self::index::{Gone, Holdings, Standing};
use self::place::{Drawer, Folder, Place};
use crate::envelope::{ArtifactRef, NewArtifact};
use crate::firewall::reference;
use crate::handle::Handle;
use crate::lines::Index;

/// How much longer than the longest life of an artifact something lies in a shared place before it is taken away: longer
/// than any clock is wrong.
const MARGIN: Duration = Duration::from_secs(3_600);

/// Artifacts in a folder of this machine, or in a bucket that several gateways share.
pub struct Artifacts {
    place: Box<dyn Place>,
    keys: BlobKeys,
    limits: Limits,
    clock: Arc<dyn Clock>,
    holdings: Mutex<Holdings>,
}

impl fmt::Debug for Artifacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Artifacts")
            .field("place", &self.place)
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
    /// The disk or the bucket failed.
    #[error("the place for artifacts cannot be written: {0}")]
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
    /// The place failed, or what is there is not what was written.
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
        let artifacts = Self::at(Box::new(Folder::make(folder)?), installation, limits, clock);
        artifacts.restore()?;
        Ok(artifacts)
    }

    /// The store in a bucket. Gateways with the same key find what the others kept there; what is there already is read
    /// when somebody asks for it.
    #[cfg(feature = "s3")]
    pub fn open_in_bucket(
        bucket: &bucket::BucketOptions,
        key: &Secret<[u8; 32]>,
        limits: Limits,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        Ok(Self::at(Box::new(bucket::Bucket::open(bucket)?), key, limits, clock))
    }

    fn at(place: Box<dyn Place>, key: &Secret<[u8; 32]>, limits: Limits, clock: Arc<dyn Clock>) -> Self {
        Self { place, keys: BlobKeys::derive(key), limits, clock, holdings: Mutex::default() }
    }

    /// Everything is this gateway's: what is not known is of no use.
    fn restore(&self) -> io::Result<()> {
        let now = self.clock.now();
        let mut holdings = self.holdings();
        let blobs: HashSet<String> = self.place.names(Drawer::Blobs, Duration::ZERO)?.into_iter().collect();
        for name in self.place.names(Drawer::Records, Duration::ZERO)? {
            let alive = self
                .stored(&name)
                .filter(|(record, blob)| record.expires_at > now && blobs.contains(&blob.hex()));
            match alive {
                Some((record, blob)) => {
                    holdings.add(record, blob);
                }
                None => self.place.remove(Drawer::Records, &name)?,
            }
        }
        for name in blobs {
            let blob = portcullis_core::digest::parse_hex(&name).map(BlobName);
            if !blob.is_some_and(|blob| holdings.has_blob(blob)) {
                self.place.remove(Drawer::Blobs, &name)?;
            }
        }
        Ok(())
    }

    /// A record where it lies.
    fn stored(&self, name: &str) -> Option<(Record, BlobName)> {
        let sealed = place::whole(&*self.place, Drawer::Records, name).ok()?;
        let stored: Stored = serde_json::from_slice(&self.keys.open_small(name, &sealed)?).ok()?;
        Some((stored.record, BlobName(portcullis_core::digest::parse_hex(&stored.blob)?)))
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
        let is_new = self.with_holdings(|holdings| {
            let gone = holdings.make_room(owner, blob, size, &self.limits, now);
            let Some(gone) = gone else { return (Vec::new(), Err(NotKept::NoRoom)) };
            (gone, Ok(holdings.add(record.clone(), blob)))
        })?;
        // Another may be writing the same content; writing it twice is harmless, reading half of it is not possible. In a
        // shared place it is always written: that it is young is what keeps it there.
        let present =
            !is_new && !self.place.is_shared() && self.place.open(Drawer::Blobs, &blob.hex()).is_ok();
        let written = if present {
            Ok(())
        } else {
            blob::write(&self.keys, &*self.place, blob, &new.bytes, &Index::of(&new.bytes))
        };
        if let Err(error) = written.and_then(|()| self.store(&record, blob)) {
            self.with_holdings(|holdings| (holdings.remove(handle).into_iter().collect(), ()));
            return Err(NotKept::Disk(error));
        }
        Ok(reference)
    }

    /// What is known of an artifact, for its owner; nothing is renewed yet.
    pub fn find(&self, handle: Handle, owner: &Owner) -> Result<Record, NotThere> {
        let known = |holdings: &Holdings| match holdings.standing(handle, owner, self.clock.now()) {
            Standing::Alive => Ok(holdings.get(handle).ok_or(NotThere::Unknown)?.record.clone()),
            Standing::Expired => Err(NotThere::Expired),
            Standing::Unknown => Err(NotThere::Unknown),
        };
        let found = known(&self.holdings());
        if found != Err(NotThere::Unknown) || !self.place.is_shared() || self.holdings().get(handle).is_some()
        {
            return found;
        }
        self.look_up(handle);
        known(&self.holdings())
    }

    /// Takes in what another gateway kept, or this one before it was started.
    fn look_up(&self, handle: Handle) {
        let Some((record, blob)) = self.stored(&self.record_name(handle)) else { return };
        let mut holdings = self.holdings();
        // Somebody else may have looked it up meanwhile.
        if record.handle == handle && holdings.get(handle).is_none() {
            holdings.add(record, blob);
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
        if self.place.is_shared() && self.holdings().get(handle).is_none() {
            self.look_up(handle);
        }
        let (record, blob) = {
            let holdings = self.holdings();
            let entry = holdings.get(handle).ok_or(NotThere::Unknown)?;
            (entry.record.clone(), entry.blob)
        };
        self.opened(record, blob)
    }

    fn opened(&self, record: Record, blob: BlobName) -> Result<Opened<'_>, NotThere> {
        let blob = Blob::open(&self.keys, &*self.place, blob, record.size_bytes);
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
        let blob = self.holdings().get(handle).map(|entry| entry.blob);
        let Some(blob) = blob else { return false };
        let last = self.with_holdings(|holdings| {
            let gone = holdings.remove(handle);
            let last = gone.as_ref().is_some_and(|gone| gone.blob.is_some());
            (gone.into_iter().collect(), last)
        });
        // Who wants it gone wants it gone everywhere: others that kept the same content have to fetch it again.
        if last && self.place.is_shared() {
            let _ = self.place.remove(Drawer::Blobs, &blob.hex());
        }
        true
    }

    /// A session has ended: what it has kept goes soon.
    pub fn session_ended(&self, session: SessionId) {
        let until = self.clock.now().after(self.limits.after_session);
        self.holdings().session_ended(session, until);
    }

    /// Removes what has expired.
    pub fn sweep(&self) {
        let now = self.clock.now();
        self.with_holdings(|holdings| (holdings.expire(now), ()));
        if !self.place.is_shared() {
            return;
        }
        // Whoever kept it: no artifact lives longer, and who keeps content again writes it again.
        for drawer in [Drawer::Records, Drawer::Blobs] {
            for name in self.place.names(drawer, self.limits.longest + MARGIN).unwrap_or_default() {
                let _ = self.place.remove(drawer, &name);
            }
        }
    }

    fn store(&self, record: &Record, blob: BlobName) -> io::Result<()> {
        let stored = Stored { record: record.clone(), blob: blob.hex() };
        let name = self.record_name(record.handle);
        let sealed = self.keys.seal_small(&name, &serde_json::to_vec(&stored)?);
        self.place.put(Drawer::Records, &name, &mut |out| out.write_all(&sealed))
    }

    /// Not the handle itself: who can list the folder could use it.
    fn record_name(&self, handle: Handle) -> String {
        to_hex(&self.keys.name(handle.to_string().as_bytes()).0)
    }

    /// Changes what is kept, and lets what is gone go. Blobs go while the holdings are locked, so that nobody takes one up
    /// again that is about to go; in a shared place they stay until they are old, and nobody waits for that.
    fn with_holdings<T>(&self, change: impl FnOnce(&mut Holdings) -> (Vec<Gone>, T)) -> T {
        let mut holdings = self.holdings();
        let (gone, outcome) = change(&mut holdings);
        if !self.place.is_shared() {
            for blob in gone.iter().filter_map(|gone| gone.blob) {
                // A file that stays is removed at the next start.
                let _ = self.place.remove(Drawer::Blobs, &blob.hex());
            }
        }
        drop(holdings);
        for Gone { handle, .. } in gone {
            let _ = self.place.remove(Drawer::Records, &self.record_name(handle));
        }
        outcome
    }

    fn holdings(&self) -> MutexGuard<'_, Holdings> {
        self.holdings.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
