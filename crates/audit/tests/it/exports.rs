//! Exports, read by code that is not ours: the crates `tlog_tiles` and `signed_note`.

use std::path::Path;

use portcullis_audit::{AuditLog, Checks, ProblemKind, SignedCheckpoint, export, verify, verify_with};

use crate::home::{Home, event};
use crate::outsider;

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

    let (old, new) = (outsider::verified(&early), outsider::verified(&late));
    assert_eq!((old.size(), new.size()), (300, 66_300));
    outsider::grew(&late, &old, &new);
    let lines = std::fs::read_to_string(late.join("records.ndjson")).unwrap();
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
