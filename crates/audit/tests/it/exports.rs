//! Exports, read by code that is not ours: the crates `tlog_tiles` and `signed_note`.

use std::path::{Path, PathBuf};

use portcullis_audit::{AuditLog, Checks, ProblemKind, SignedCheckpoint, export, verify, verify_with};
use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{
    Checkpoint, Error, Hash, Tile, TileHashReader, TileReader, check_record, check_tree, prove_record,
    prove_tree, record_hash,
};

use crate::home::{Home, event};

fn log_of(records: u64) -> (Home, AuditLog) {
    let home = Home::new();
    let log = home.open();
    grow(&log, records - 1);
    (home, log)
}

fn grow(log: &AuditLog, records: u64) {
    for from in (0..records).step_by(20) {
        log.commit_blocking((from..records.min(from + 20)).map(event).collect()).unwrap();
    }
    log.checkpoint().unwrap();
}

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

fn their_checkpoint(dir: &Path) -> Checkpoint {
    let vkey = std::fs::read_to_string(dir.join("vkey")).unwrap();
    let note = Note::from_bytes(&std::fs::read(dir.join("checkpoint")).unwrap()).unwrap();
    let known = VerifierList::new(vec![Box::new(StandardVerifier::new(vkey.trim()).unwrap())]);
    let (verified, unverified) = note.verify(&known).unwrap();
    assert_eq!((verified.len(), unverified.len()), (1, 0));
    Checkpoint::from_bytes(note.text()).unwrap()
}

#[test]
fn an_export_is_read_and_proved_by_an_independent_implementation() {
    // A-3, AUD-30, AUD-31
    let (home, log) = log_of(300);
    let early = home.path().join("early");
    export(&home.audit(), &log.vkey(), 0, None, &early).unwrap();
    grow(&log, 66_000);
    let late = home.path().join("late");
    let exported = export(&home.audit(), &log.vkey(), 0, None, &late).unwrap();
    assert_eq!((exported.size, exported.records), (66_300, 66_300));

    let (old, new) = (their_checkpoint(&early), their_checkpoint(&late));
    assert_eq!((old.size(), new.size()), (300, 66_300));
    let folder = Folder(late.clone());
    // Their reader checks every tile it is given against the root before it gives out a hash.
    let hashes = TileHashReader::new(new.size(), *new.hash(), &folder);
    let lines = std::fs::read_to_string(late.join("records.ndjson")).unwrap();
    for (index, line) in lines.lines().enumerate().step_by(997) {
        let proof = prove_record(new.size(), index as u64, &hashes).unwrap();
        let leaf = record_hash(line.as_bytes());
        check_record(&proof, new.size(), *new.hash(), index as u64, leaf).unwrap();
        let other = Hash(*portcullis_core::Sha256Digest::of(b"other").as_bytes());
        assert!(check_record(&proof, new.size(), *new.hash(), index as u64, other).is_err());
    }
    let growth = prove_tree(new.size(), old.size(), &hashes).unwrap();
    check_tree(&growth, new.size(), *new.hash(), old.size(), *old.hash()).unwrap();
    // Entry bundles are the records, each behind its length.
    let bundle = std::fs::read(late.join("tile/entries/000")).unwrap();
    let first = lines.lines().next().unwrap();
    assert_eq!(bundle[..2], (first.len() as u16).to_be_bytes());
    assert_eq!(&bundle[2..2 + first.len()], first.as_bytes());
    // And by ourselves.
    assert!(verify(&late).unwrap().ok);
}

#[test]
fn a_part_of_a_log_can_be_exported_and_checked() {
    let (home, log) = log_of(1000);
    let out = home.path().join("part");
    let exported = export(&home.audit(), &log.vkey(), 300, Some(309), &out).unwrap();
    assert_eq!(exported.records, 10);
    let lines = std::fs::read_to_string(out.join("records.ndjson")).unwrap();
    assert!(lines.lines().count() == 10 && lines.starts_with("{\"actor\""));
    let report = verify(&out).unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!((report.checked, report.size), (256, 1000));
    assert!(export(&home.audit(), &log.vkey(), 0, None, &out).is_err(), "it is not empty");
    assert!(export(&home.audit(), &log.vkey(), 1000, None, &home.path().join("none")).is_err());
}

#[test]
fn a_changed_export_does_not_verify() {
    // AUD-5, AUD-50
    let (home, log) = log_of(600);
    let out = home.path().join("out");
    export(&home.audit(), &log.vkey(), 0, None, &out).unwrap();
    let kinds = |out: &Path| -> Vec<ProblemKind> {
        verify(out).unwrap().problems.iter().map(|problem| problem.kind).collect()
    };
    let changed = |file: &str, from: &str, to: &str| {
        let path = out.join(file);
        let before = std::fs::read(&path).unwrap();
        let at = before.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut after = before.clone();
        after[at..at + from.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, after).unwrap();
        let found = kinds(&out);
        std::fs::write(&path, before).unwrap();
        found
    };
    assert_eq!(kinds(&out), []);
    let found = changed("tile/entries/001", "\"ana\"", "\"eve\"");
    for kind in [ProblemKind::PrevMismatch, ProblemKind::TileMismatch, ProblemKind::RootMismatch] {
        assert!(found.contains(&kind), "{kind:?} in {found:?}");
    }
    assert_eq!(changed("records.ndjson", "\"ana\"", "\"eve\""), [ProblemKind::NotCanonical]);
    let found = changed("checkpoint", "\n600\n", "\n599\n");
    assert!(found.contains(&ProblemKind::CheckpointSignature), "{found:?}");
    // An export is also held to a checkpoint that was kept.
    let (_other, stranger) = log_of(5);
    let kept: SignedCheckpoint = stranger.checkpoint().unwrap();
    let checks = Checks { checkpoints: vec![("kept".into(), kept)], ..Checks::default() };
    assert!(!verify_with(&out, &checks).unwrap().ok);
}

#[test]
fn a_published_log_has_its_full_bundles_beside_the_tiles() {
    // AUD-30
    let home = Home::new();
    let publishing = || {
        let mut options = home.options();
        options.publish = true;
        AuditLog::open(options).unwrap()
    };
    let log = publishing();
    grow(&log, 600);
    let entries = log.dir().join("tlog/tile/entries");
    assert!(entries.join("001").exists() && !entries.join("002").exists());
    log.close();
    std::fs::remove_file(entries.join("001")).unwrap();
    let log = publishing();
    grow(&log, 1);
    assert!(entries.join("001").exists(), "what is missing is written again");
}
