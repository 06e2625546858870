//! Showing that a record is in a log to somebody who has only a checkpoint of it (AUD-30).

use std::path::Path;

use portcullis_core::Sha256Digest;
use serde::Serialize;

use crate::error::{AuditError, ProblemKind};
use crate::layout::Layout;
use crate::note::SignedCheckpoint;
use crate::publisher;
use crate::tile::Tiles;
use crate::tree::{self, Nodes as _};

/// A record's place under a signed root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// The record's number.
    pub index: u64,
    /// Its leaf hash.
    pub leaf: Sha256Digest,
    /// The hashes from the leaf to the root.
    pub path: Vec<Sha256Digest>,
    /// How many records the checkpoint is over.
    pub size: u64,
    /// Their root.
    pub root: Sha256Digest,
    /// The signed checkpoint itself.
    pub checkpoint: String,
}

/// Proves record `seq` of the log in `dir` against its newest checkpoint; `None` if that does not reach so far yet.
pub fn prove(dir: &Path, seq: u64) -> Result<Option<Proof>, AuditError> {
    let (_, layout) = Layout::find(dir)?;
    let Some(signed) =
        publisher::newest(&layout.checkpoint(), &[])?.filter(|newest| newest.checkpoint.size > seq)
    else {
        return Ok(None);
    };
    let (size, root) = (signed.checkpoint.size, signed.checkpoint.root);
    let mut tiles = Tiles::new(&layout.tlog(), size);
    let leaf = tiles.at(0, seq)?;
    let path = tree::inclusion(&mut tiles, seq, size)?;
    if !tree::verify_inclusion(&leaf, seq, size, &path, &root) {
        let detail = format!("the tiles do not show record {seq}; run `portcullis audit verify`");
        return Err(AuditError::Checkpoint {
            path: layout.checkpoint(),
            kind: ProblemKind::TileMismatch,
            detail,
        });
    }
    Ok(Some(Proof { index: seq, leaf, path, size, root, checkpoint: signed.to_string() }))
}

/// The hashes that show that the newest checkpoint of the log in `dir` goes on from its first `old` records; `None`
/// if it does not reach so far.
pub fn prove_growth(
    dir: &Path,
    old: u64,
) -> Result<Option<(SignedCheckpoint, Vec<Sha256Digest>)>, AuditError> {
    let (_, layout) = Layout::find(dir)?;
    let Some(signed) =
        publisher::newest(&layout.checkpoint(), &[])?.filter(|newest| newest.checkpoint.size >= old)
    else {
        return Ok(None);
    };
    let size = signed.checkpoint.size;
    let path = tree::consistency(&mut Tiles::new(&layout.tlog(), size), old, size)?;
    Ok(Some((signed, path)))
}
