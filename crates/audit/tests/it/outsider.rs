//! An export as somebody sees it who has nothing of ours: read and proved by the crates `tlog_tiles` and `signed_note`.
//! Also what the gateway's own tests show their exports to.

use std::path::{Path, PathBuf};

use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{
    Checkpoint, Error, Hash, Tile, TileHashReader, TileReader, check_record, check_tree, prove_record,
    prove_tree, record_hash,
};

/// At most so many records of an export are proved one by one.
const PROVED: usize = 600;

/// Tiles in a folder, as their reader wants them.
struct Folder(PathBuf);

impl TileReader for Folder {
    fn height(&self) -> u8 {
        8
    }
    fn read_tiles(&self, tiles: &[Tile]) -> Result<Vec<Vec<u8>>, Error> {
        let read = |tile: &Tile| {
            // Their path names the height first, as sumdb does; tlog-tiles leaves it out.
            let path = tile.path().replacen("tile/8/", "tile/", 1);
            std::fs::read(self.0.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        Ok(tiles.iter().map(read).collect())
    }
    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

/// Holds an export of all records to its checkpoint, and the checkpoint to the key beside it; panics if something is not
/// as it should be.
pub(crate) fn verified(dir: &Path) -> Checkpoint {
    let vkey = std::fs::read_to_string(dir.join("vkey")).unwrap();
    let note = Note::from_bytes(&std::fs::read(dir.join("checkpoint")).unwrap()).unwrap();
    let known = VerifierList::new(vec![Box::new(StandardVerifier::new(vkey.trim()).unwrap())]);
    let (verified, _) = note.verify(&known).unwrap();
    assert_eq!(verified.len(), 1);
    let checkpoint = Checkpoint::from_bytes(note.text()).unwrap();

    let (size, root) = (checkpoint.size(), *checkpoint.hash());
    let folder = Folder(dir.into());
    // Their reader checks every tile it is given against the root before it gives out a hash.
    let hashes = TileHashReader::new(size, root, &folder);
    let lines = std::fs::read_to_string(dir.join("records.ndjson")).unwrap();
    assert_eq!(lines.lines().count() as u64, size);
    let step = (size as usize / PROVED).max(1);
    for (index, line) in lines.lines().enumerate().step_by(step) {
        let index = index as u64;
        let proof = prove_record(size, index, &hashes).unwrap();
        check_record(&proof, size, root, index, record_hash(line.as_bytes())).unwrap();
        let other = Hash(*portcullis_core::Sha256Digest::of(b"other").as_bytes());
        assert!(check_record(&proof, size, root, index, other).is_err());
    }
    checkpoint
}

/// Has it proved that the log went on from `old` to `new`, which the export in `dir` is of.
pub(crate) fn grew(dir: &Path, old: &Checkpoint, new: &Checkpoint) {
    let folder = Folder(dir.into());
    let hashes = TileHashReader::new(new.size(), *new.hash(), &folder);
    let growth = prove_tree(new.size(), old.size(), &hashes).unwrap();
    check_tree(&growth, new.size(), *new.hash(), old.size(), *old.hash()).unwrap();
}
