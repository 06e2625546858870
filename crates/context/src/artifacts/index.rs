//! Which artifacts there are, and which go when there is no more room (CTX-24).
//!
//! No IO and no clock: the store asks what to do and does it. Expired artifacts go first, then those of the *same*
//! principal that were not viewed for longest. A principal can never make room at another's cost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use portcullis_core::{Principal, SessionId, Timestamp};

use super::blob::BlobName;
use super::record::{Owner, Record};
use crate::handle::Handle;

/// How much may be kept, and how long.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one artifact.
    pub artifact_bytes: u64,
    /// Bytes of one session.
    pub session_bytes: u64,
    /// Artifacts of one session.
    pub session_artifacts: usize,
    /// Bytes of all.
    pub total_bytes: u64,
    /// How long an artifact lives after it was made or viewed.
    pub ttl: Duration,
    /// How long at most.
    pub longest: Duration,
    /// How long after its session has ended.
    pub after_session: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            artifact_bytes: 16 << 20,
            session_bytes: 256 << 20,
            session_artifacts: 4_096,
            total_bytes: 8 << 30,
            ttl: Duration::from_secs(3_600),
            longest: Duration::from_secs(24 * 3_600),
            after_session: Duration::from_secs(300),
        }
    }
}

/// How many expired handles are remembered, so that their owners can be told.
const REMEMBERED: usize = 65_536;

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) record: Record,
    pub(crate) blob: BlobName,
    /// When it was viewed, as a count: two views in one millisecond are still one after the other.
    viewed: u64,
}

/// Everything that is kept.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    entries: HashMap<Handle, Entry>,
    /// How many artifacts share a blob, and its size.
    blobs: HashMap<BlobName, (usize, u64)>,
    sessions: HashMap<SessionId, Used>,
    /// Least recently viewed first, per principal.
    ages: HashMap<Principal, BTreeMap<u64, Handle>>,
    expired: VecDeque<(Handle, Owner)>,
    expired_owners: HashMap<Handle, Owner>,
    total: u64,
    views: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Used {
    bytes: u64,
    artifacts: usize,
}

/// What is no longer kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) handle: Handle,
    /// Its blob, if nobody else has it.
    pub(crate) blob: Option<BlobName>,
}

/// What a handle is to somebody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Alive,
    /// Only its owner learns that it was ever there.
    Expired,
    Unknown,
}

impl Holdings {
    /// Makes room for an artifact: what went for it. `None` if there is no room even so.
    pub(crate) fn make_room(
        &mut self,
        owner: &Owner,
        blob: BlobName,
        size: u64,
        limits: &Limits,
        now: Timestamp,
    ) -> Option<Vec<Gone>> {
        if size > limits.artifact_bytes || size > limits.session_bytes || size > limits.total_bytes {
            return None;
        }
        let mut gone = Vec::new();
        if !self.fits(owner, blob, size, limits) {
            gone.extend(self.expire(now));
        }
        while !self.fits(owner, blob, size, limits) {
            let victim = self.victim(owner, blob, size, limits)?;
            gone.extend(self.remove(victim));
        }
        Some(gone)
    }

    fn fits(&self, owner: &Owner, blob: BlobName, size: u64, limits: &Limits) -> bool {
        self.session_fits(owner, size, limits) && self.total_fits(blob, size, limits)
    }

    fn session_fits(&self, owner: &Owner, size: u64, limits: &Limits) -> bool {
        let used = self.sessions.get(&owner.session).copied().unwrap_or_default();
        used.bytes + size <= limits.session_bytes && used.artifacts < limits.session_artifacts
    }

    fn total_fits(&self, blob: BlobName, size: u64, limits: &Limits) -> bool {
        self.blobs.contains_key(&blob) || self.total + size <= limits.total_bytes
    }

    /// The least recently viewed of the same principal whose going helps.
    fn victim(&self, owner: &Owner, blob: BlobName, size: u64, limits: &Limits) -> Option<Handle> {
        let of_session = !self.session_fits(owner, size, limits) && self.total_fits(blob, size, limits);
        let ages = self.ages.get(&owner.principal)?;
        ages.values()
            .find(|handle| {
                !of_session
                    || self.entries.get(handle).is_some_and(|e| e.record.owner.session == owner.session)
            })
            .copied()
    }

    /// Adds an artifact for which there is room; whether its blob must be written.
    pub(crate) fn add(&mut self, record: Record, blob: BlobName) -> bool {
        let (handle, size, owner) = (record.handle, record.size_bytes, record.owner.clone());
        let used = self.sessions.entry(owner.session).or_default();
        used.bytes += size;
        used.artifacts += 1;
        let shared = self.blobs.entry(blob).or_insert((0, size));
        shared.0 += 1;
        let is_new = shared.0 == 1;
        if is_new {
            self.total += size;
        }
        self.views += 1;
        self.ages.entry(owner.principal).or_default().insert(self.views, handle);
        self.entries.insert(handle, Entry { record, blob, viewed: self.views });
        is_new
    }

    /// Takes an artifact out, if it is there.
    pub(crate) fn remove(&mut self, handle: Handle) -> Option<Gone> {
        let entry = self.entries.remove(&handle)?;
        let Owner { principal, session } = &entry.record.owner;
        if let Some(ages) = self.ages.get_mut(principal) {
            ages.remove(&entry.viewed);
            if ages.is_empty() {
                self.ages.remove(principal);
            }
        }
        if let Some(used) = self.sessions.get_mut(session) {
            used.bytes -= entry.record.size_bytes;
            used.artifacts -= 1;
            if used.artifacts == 0 {
                self.sessions.remove(session);
            }
        }
        self.remember(handle, entry.record.owner);
        Some(Gone { handle, blob: self.let_go(entry.blob) })
    }

    /// One artifact less has this blob; the blob, if that was the last one.
    fn let_go(&mut self, blob: BlobName) -> Option<BlobName> {
        let shared = self.blobs.get_mut(&blob)?;
        shared.0 -= 1;
        if shared.0 > 0 {
            return None;
        }
        self.total -= shared.1;
        self.blobs.remove(&blob);
        Some(blob)
    }

    fn remember(&mut self, handle: Handle, owner: Owner) {
        if self.expired.len() == REMEMBERED
            && let Some((oldest, _)) = self.expired.pop_front()
        {
            self.expired_owners.remove(&oldest);
        }
        self.expired.push_back((handle, owner.clone()));
        self.expired_owners.insert(handle, owner);
    }

    /// Takes out everything whose time is over.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Vec<Gone> {
        let over: Vec<Handle> = (self.entries.values())
            .filter(|entry| entry.record.expires_at <= now)
            .map(|entry| entry.record.handle)
            .collect();
        over.into_iter().filter_map(|handle| self.remove(handle)).collect()
    }

    pub(crate) fn standing(&self, handle: Handle, owner: &Owner, now: Timestamp) -> Standing {
        match self.entries.get(&handle) {
            Some(entry) if entry.record.owner != *owner => Standing::Unknown,
            Some(entry) if entry.record.expires_at <= now => Standing::Expired,
            Some(_) => Standing::Alive,
            None if self.expired_owners.get(&handle) == Some(owner) => Standing::Expired,
            None => Standing::Unknown,
        }
    }

    pub(crate) fn get(&self, handle: Handle) -> Option<&Entry> {
        self.entries.get(&handle)
    }

    /// Renews an artifact that is viewed.
    pub(crate) fn viewed(&mut self, handle: Handle, limits: &Limits, now: Timestamp) {
        self.views += 1;
        let Some(entry) = self.entries.get_mut(&handle) else { return };
        let longest = entry.record.created_at.after(limits.longest);
        let renewed = now.after(limits.ttl).min(longest);
        entry.record.expires_at = entry.record.expires_at.max(renewed);
        if let Some(ages) = self.ages.get_mut(&entry.record.owner.principal) {
            ages.remove(&entry.viewed);
            ages.insert(self.views, handle);
        }
        entry.viewed = self.views;
    }

    /// A session has ended: what it has goes soon.
    pub(crate) fn session_ended(&mut self, session: SessionId, until: Timestamp) {
        for entry in self.entries.values_mut().filter(|entry| entry.record.owner.session == session) {
            entry.record.expires_at = entry.record.expires_at.min(until);
        }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.entries.values().map(|entry| &entry.record)
    }

    pub(crate) fn has_blob(&self, blob: BlobName) -> bool {
        self.blobs.contains_key(&blob)
    }
}
