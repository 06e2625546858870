//! Forgetting: what is destroyed is gone, and the log is none the worse for it.

use std::time::Duration;

use portcullis_audit::{
    AuditError, AuditLog, Checks, Event, EventName, EvidenceProblem, ProblemKind, RetentionClass, Role,
    verify_with,
};
use portcullis_core::{Actor, Sha256Digest, Timestamp};

use crate::home::{Home, manual};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn with(class: RetentionClass, bytes: &[u8]) -> Event {
    Event::new(EventName::ExecutionResult, &Actor::system()).evidence(
        Role::Response,
        class,
        bytes.to_vec().into(),
    )
}

fn evidence_checks() -> Checks {
    Checks { evidence: true, ..Checks::default() }
}

#[test]
fn a_day_whose_time_is_over_is_destroyed_and_the_log_still_verifies() {
    // A-16, AUD-43
    let home = Home::new();
    let (options, clock) = manual(home.options(), NOW);
    let log = AuditLog::open(options).unwrap();
    // Guessable on purpose: a number of six digits.
    log.commit_blocking(vec![with(RetentionClass::Standard, b"314159")]).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Sensitive, b"271828")]).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Hold, b"kept")]).unwrap();
    let references: Vec<_> = home.records().into_iter().flat_map(|record| record.evidence).collect();
    let operator = Actor::operator("ana");
    clock.advance(30 * DAY);
    assert_eq!(log.destroy_expired(&operator).unwrap(), [], "its thirtieth day is not over");
    clock.advance(2 * DAY);
    let destroyed = log.destroy_expired(&operator).unwrap();
    assert_eq!(destroyed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sens-20270115-1"]);
    let gone = log.evidence(&references[1], None);
    assert!(matches!(gone, Err(AuditError::Evidence { problem: EvidenceProblem::KeyDestroyed, .. })));
    assert_eq!(log.evidence(&references[0], None).unwrap(), b"314159");
    assert!(!log.dir().join("blobs/sensitive/20270115-1.pack").exists());
    // What is held is kept.
    let standard = references[0].key;
    assert!(log.hold(standard, true).unwrap());
    clock.advance(100 * DAY);
    assert_eq!(log.destroy_expired(&operator).unwrap(), []);
    assert!(log.hold(standard, false).unwrap());
    assert_eq!(log.destroy_expired(&operator).unwrap(), [standard]);
    assert_eq!(log.evidence(&references[2], None).unwrap(), b"kept", "that class is kept for good");
    log.close();

    let events: Vec<_> =
        home.records().into_iter().filter(|r| r.event == EventName::AuditKeyDestroyed).collect();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|record| record.actor == operator && record.data["reason"] == "retention"));
    let report = verify_with(&home.audit(), &evidence_checks()).unwrap();
    assert!(report.ok, "{report:#?}");
    // No digest in the log gives away a guess.
    let mut text = String::new();
    for record in home.records() {
        text += &serde_json::to_string(&record).unwrap();
    }
    let digests: std::collections::HashSet<&str> = text
        .split('"')
        .filter(|word| word.len() == 64 && word.bytes().all(|b| b.is_ascii_hexdigit()))
        .collect();
    assert!(digests.len() >= 5);
    for guess in 0..1_000_000u32 {
        let digest = Sha256Digest::of(format!("{guess:06}").as_bytes()).to_string();
        assert!(!digests.contains(digest.as_str()), "{guess}");
    }
    // And after a restart.
    let log = home.open();
    assert_eq!(log.evidence(&references[2], None).unwrap(), b"kept");
    assert_eq!(log.data_keys().len(), 1);
}

#[test]
fn a_crash_between_destroying_and_recording_loses_neither() {
    // AUD-43
    let home = Home::new();
    let (options, clock) = manual(home.options(), NOW);
    let log = AuditLog::open(options.clone()).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Probe, b"x")]).unwrap();
    let pack = log.dir().join("blobs/probe/20270115-1.pack");
    let note = log.dir().join("destroying.json");
    clock.advance(40 * DAY);
    log.close();
    // As if the process had died right after writing down what it was about to do.
    std::fs::write(&note, r#"{"keys":["probe-20270115-1"],"actor":{"id":"ana","kind":"operator"}}"#).unwrap();
    std::fs::set_permissions(&note, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let log = AuditLog::open(options).unwrap();
    assert!(!note.exists() && !pack.exists());
    assert!(log.data_keys().is_empty());
    log.close();
    assert!(home.names().contains(&EventName::AuditKeyDestroyed));
    assert!(verify_with(&home.audit(), &evidence_checks()).unwrap().ok);
}

#[test]
fn evidence_that_is_missing_or_changed_is_found_without_any_key() {
    // AUD-50
    let home = Home::new();
    let (options, _clock) = manual(home.options(), NOW);
    let log = AuditLog::open(options).unwrap();
    let first = log.commit_blocking(vec![with(RetentionClass::Standard, b"first")]).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Standard, b"second")]).unwrap();
    let pack = log.dir().join("blobs/standard/20270115-1.pack");
    log.close();
    assert!(verify_with(&home.audit(), &evidence_checks()).unwrap().ok);
    let mut bytes = std::fs::read(&pack).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    let report = verify_with(&home.audit(), &evidence_checks()).unwrap();
    let found: Vec<_> = report.problems.iter().map(|problem| (problem.seq, problem.kind)).collect();
    assert_eq!(found, [(first.seq, ProblemKind::EvidenceDigest)], "{report:?}");
    assert!(home.verify().ok, "without --evidence only the log itself is checked");
    std::fs::remove_file(&pack).unwrap();
    let problems = verify_with(&home.audit(), &evidence_checks()).unwrap().problems;
    let kinds: Vec<_> = problems.iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds, [ProblemKind::EvidenceMissing; 2]);
}

#[test]
fn a_data_key_that_was_swapped_does_not_fit_the_check_in_the_log() {
    // A-17, AUD-42
    let (home, other) = (Home::new(), Home::new());
    let (options, _) = manual(home.options(), NOW);
    let log = AuditLog::open(options.clone()).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Standard, b"sealed")]).unwrap();
    assert_eq!(log.check_keys().unwrap(), []);
    log.close();
    // Somebody who has the key file makes another key of the same name, in another log with the same id.
    let id = log.id().to_string();
    std::fs::create_dir_all(other.audit().join(&id)).unwrap();
    for dir in [other.audit(), other.audit().join(&id)] {
        std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
    for key in ["kek", "log.key"] {
        std::fs::copy(home.path().join(key), other.path().join(key)).unwrap();
    }
    let (forged_options, _) = manual(other.options(), NOW);
    let forger = AuditLog::open(forged_options).unwrap();
    forger.commit_blocking(vec![with(RetentionClass::Standard, b"forged")]).unwrap();
    forger.close();
    std::fs::copy(forger.dir().join("keys.sealed"), log.dir().join("keys.sealed")).unwrap();
    let log = AuditLog::open(options).unwrap();
    let swapped = log.check_keys().unwrap();
    assert_eq!(swapped.len(), 1);
    assert_eq!(swapped[0].kind, ProblemKind::EvidenceDigest);
    let reference = home.records().into_iter().flat_map(|record| record.evidence).next().unwrap();
    assert!(matches!(
        log.evidence(&reference, None),
        Err(AuditError::Evidence { problem: EvidenceProblem::Digest, .. })
    ));
}
