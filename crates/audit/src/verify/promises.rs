//! What a log promised, held against its records: tiles, its own checkpoint, and those kept elsewhere (AUD-50).

use std::path::{Path, PathBuf};

use portcullis_core::Sha256Digest;

use super::{Checks, Problem};
use crate::error::{AuditError, ProblemKind};
use crate::note::{NoteKey, SignedCheckpoint};
use crate::publisher;
use crate::tile::{self, Edge, Tile};

/// The tree as it grows, and the promises to be checked when it has their size.
pub(super) struct Promises {
    /// Where the log's tiles are, as far as its checkpoint covers them.
    tiles: PathBuf,
    covered: u64,
    /// `None` after records that could not be read: no root can be computed any more.
    edge: Option<Edge>,
    open: Vec<Promise>,
    keys: Vec<NoteKey>,
    pinned: Option<NoteKey>,
    found: Vec<Problem>,
}

struct Promise {
    name: String,
    note: SignedCheckpoint,
    /// Kept elsewhere, so that a log written anew cannot have taken it along.
    elsewhere: bool,
    checked: bool,
}

impl Promises {
    /// Reads the log's own checkpoint. Before its records: those it speaks of are then all there.
    /// `tlog` is the folder that has it and the tiles.
    pub(super) fn read(tlog: &Path, checks: &Checks) -> Result<Self, AuditError> {
        let mut open = Vec::new();
        let mut found = Vec::new();
        match publisher::newest(&tlog.join("checkpoint"), &[]) {
            Ok(own) => open.extend(own.map(|note| Promise {
                name: "the log's checkpoint".into(),
                note,
                elsewhere: false,
                checked: false,
            })),
            Err(AuditError::Checkpoint { kind, detail, .. }) => {
                found.push(Problem { seq: 0, kind, detail: format!("the log's checkpoint {detail}") });
            }
            Err(error) => return Err(error),
        }
        let covered = open.first().map_or(0, |own| own.note.checkpoint.size);
        open.extend(checks.checkpoints.iter().map(|(name, note)| Promise {
            name: name.clone(),
            note: note.clone(),
            elsewhere: true,
            checked: false,
        }));
        let pinned = checks.vkey.clone();
        let tiles = tlog.join("tile");
        let mut promises =
            Self { tiles, covered, edge: Some(Edge::default()), open, keys: Vec::new(), pinned, found };
        promises.check_at_size();
        Ok(promises)
    }

    /// Takes the next record.
    pub(super) fn push(&mut self, leaf: Sha256Digest) {
        let Some(edge) = &mut self.edge else { return };
        let mut full = Vec::new();
        edge.push(leaf, |tile| full.push(tile));
        let size = edge.size();
        if size <= self.covered {
            full.iter().for_each(|tile| self.check_tile(tile));
        }
        self.check_at_size();
    }

    /// A record could not be read.
    pub(super) fn lose_track(&mut self) {
        self.edge = None;
    }

    /// The log names a key of its own.
    pub(super) fn learn(&mut self, key: Option<&str>) {
        self.keys.extend(key.and_then(|key| key.parse().ok()));
    }

    /// The root over everything, if everything could be read.
    pub(super) fn root(&self) -> Option<Sha256Digest> {
        self.edge.as_ref().map(Edge::root)
    }

    /// Judges what is left when all `size` records were seen.
    pub(super) fn finish(mut self, size: u64) -> Vec<Problem> {
        // Numbers can be made up; what counts is how many records there are.
        let size = self.edge.as_ref().map_or(size, Edge::size);
        for promise in &self.open {
            let checkpoint = &promise.note.checkpoint;
            let signed = match &self.pinned {
                Some(key) => promise.note.is_signed_by(key),
                // A part of a log may not have the records that name its keys.
                None if self.keys.is_empty() && self.edge.is_none() => true,
                None => self.keys.iter().any(|key| promise.note.is_signed_by(key)),
            };
            if !signed {
                let by = if self.pinned.is_some() { "the given key" } else { "a key the log names" };
                let detail = format!("{} is not signed by {by}", promise.name);
                self.found.push(Problem {
                    seq: checkpoint.size,
                    kind: ProblemKind::CheckpointSignature,
                    detail,
                });
            }
            if checkpoint.size > size {
                let detail = format!(
                    "{} is over {} records, the log has {size}: its end was cut off",
                    promise.name, checkpoint.size
                );
                self.found.push(Problem { seq: size, kind: ProblemKind::CheckpointAhead, detail });
            }
        }
        self.found
    }

    fn check_at_size(&mut self) {
        let Some(edge) = &self.edge else { return };
        let size = edge.size();
        if !self.open.iter().any(|promise| !promise.checked && promise.note.checkpoint.size == size) {
            return;
        }
        let root = edge.root();
        let partial: Vec<Tile> = edge.partial().collect();
        let mut own = false;
        for promise in self.open.iter_mut().filter(|promise| promise.note.checkpoint.size == size) {
            promise.checked = true;
            own |= !promise.elsewhere;
            if promise.note.checkpoint.root != root {
                let (kind, what) = if promise.elsewhere {
                    (ProblemKind::InconsistentCheckpoint, "history was written anew")
                } else {
                    (ProblemKind::RootMismatch, "records were changed after it was made")
                };
                let detail = format!("{} over {size} records has another root: {what}", promise.name);
                self.found.push(Problem { seq: size, kind, detail });
            }
        }
        if own {
            partial.iter().for_each(|tile| self.check_tile(tile));
        }
    }

    fn check_tile(&mut self, expected: &Tile) {
        let stored = tile::read(&self.tiles, expected.level, expected.number, expected.hashes.len());
        let what = match stored {
            Ok(hashes) if hashes == expected.hashes => return,
            Ok(_) => "has other hashes than its records",
            // A live log puts a wider tile in the place of a partial one.
            Err(_) if expected.hashes.len() < tile::WIDTH && self.is_replaced(expected) => return,
            Err(_) => "is missing or cut",
        };
        let seq = expected.number << (8 * (expected.level + 1));
        let detail = format!("tile {} {what}", expected.path());
        self.found.push(Problem { seq, kind: ProblemKind::TileMismatch, detail });
    }

    fn is_replaced(&self, partial: &Tile) -> bool {
        let folder = self.tiles.join(partial.path());
        let Some(entries) = folder.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
            return false;
        };
        entries.flatten().any(|entry| {
            let width = entry.file_name().to_str().and_then(|name| name.parse::<usize>().ok());
            width.is_some_and(|width| width > partial.hashes.len())
        })
    }
}
