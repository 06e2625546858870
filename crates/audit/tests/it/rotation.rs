//! Another key for the checkpoints (AUD-33).

use portcullis_audit::{AuditLog, Checks, EventName, SignedCheckpoint, SignerSource, verify_with};
use portcullis_core::Actor;

use crate::home::{Home, event};

fn newest(log: &AuditLog) -> SignedCheckpoint {
    std::fs::read_to_string(log.dir().join("tlog/checkpoint")).unwrap().parse().unwrap()
}

#[test]
fn the_next_checkpoint_is_signed_by_both_keys_and_those_after_it_by_the_new_one() {
    // AUD-33
    let home = Home::new();
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    log.checkpoint().unwrap();
    let old = log.vkey();
    let new = log.rotate_signer(&Actor::operator("ana"), "yearly").unwrap();
    assert!(new != old && log.vkey() == new);
    let both = newest(&log);
    assert!(both.is_signed_by(&old) && both.is_signed_by(&new));
    log.commit_blocking(vec![event(2)]).unwrap();
    log.checkpoint().unwrap();
    assert!(!newest(&log).is_signed_by(&old) && newest(&log).is_signed_by(&new));
    log.close();
    drop(log);
    let log = home.open();
    assert_eq!(log.vkey(), new);
    log.close();
    assert!(home.verify().ok, "the log names both keys");
    let rotated =
        home.records().into_iter().find(|record| record.event == EventName::AuditSignerRotated).unwrap();
    assert_eq!(
        (&rotated.data["old"], &rotated.data["new"]),
        (&old.to_string().into(), &new.to_string().into())
    );
    assert_eq!(rotated.actor, Actor::operator("ana"));
    // Who knows only the old key is taken along by the checkpoint that has both.
    let pinned = |key| Checks {
        vkey: Some(key),
        checkpoints: vec![("kept".into(), both.clone())],
        ..Checks::default()
    };
    assert!(verify_with(&home.audit(), &pinned(new)).unwrap().ok);
    let report = verify_with(&home.audit(), &pinned(old)).unwrap();
    assert_eq!(report.problems.len(), 1, "only the log's own newest is not signed by it: {report:#?}");
}

#[test]
fn a_rotation_that_was_cut_off_is_followed_through() {
    // AUD-33
    let home = Home::new();
    let log = home.open();
    let old = log.vkey();
    log.close();
    drop(log);
    // A crash after the new key was made and before anything else.
    std::fs::write(home.path().join("log.key.next"), "17".repeat(32)).unwrap();
    std::fs::set_permissions(
        home.path().join("log.key.next"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let log = home.open();
    let new = log.vkey();
    assert!(new != old && newest(&log).is_signed_by(&old) && newest(&log).is_signed_by(&new));
    log.close();
    assert!(!home.path().join("log.key.next").exists() && home.verify().ok);
    // And after everything but the renaming.
    std::fs::rename(home.path().join("log.key"), home.path().join("log.key.next")).unwrap();
    std::fs::write(home.path().join("log.key"), "18".repeat(32)).unwrap();
    std::fs::set_permissions(
        home.path().join("log.key"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    drop(log);
    let log = home.open();
    assert_eq!(log.vkey(), new);
}

#[test]
fn a_signer_that_is_a_program_is_not_rotated_here() {
    let home = Home::new();
    let mut options = home.options();
    let key = ed25519_dalek::SigningKey::from_bytes(&[5; 32]).verifying_key();
    options.signer = SignerSource::Command { command: vec!["true".into()], public_key: key.to_bytes() };
    let log = AuditLog::open(options).unwrap();
    let refused = log.rotate_signer(&Actor::operator("ana"), "x").unwrap_err();
    assert!(refused.to_string().contains("audit.signer"), "{refused}");
}
