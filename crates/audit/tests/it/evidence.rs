//! Evidence: exact bytes in, exact bytes out, and nothing readable in between.

use std::path::Path;
use std::time::Duration;

use portcullis_audit::{
    AuditError, AuditLog, Event, EventName, EvidenceProblem, EvidenceRef, RetentionClass, Role,
};
use portcullis_core::{Actor, ProposalId, Timestamp};
use serde_json::json;

use crate::home::{Home, event, manual};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn with(class: RetentionClass, role: Role, bytes: &[u8]) -> Event {
    Event::new(EventName::ExecutionResult, &Actor::system()).evidence(role, class, bytes.to_vec().into())
}

fn files_under(dir: &Path, into: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_under(&path, into) } else { into.push(path) }
    }
}

#[test]
fn what_went_in_comes_out_and_nothing_of_it_can_be_read_on_the_disk() {
    // AUD-40, AUD-41, A-15
    let home = Home::new();
    let log = home.open();
    let proposal = ProposalId::new(NOW);
    let canary = "canary-3f9ab27c";
    let contents: Vec<Vec<u8>> = vec![
        Vec::new(),
        canary.as_bytes().to_vec(),
        format!("{canary} ").repeat(300).into_bytes(),
        (0..=255).cycle().take(200_000).collect(),
        // Larger than a first pack.
        canary
            .repeat(320_000)
            .into_bytes()
            .into_iter()
            .enumerate()
            .map(|(n, b)| b ^ ((n * n) >> 8) as u8)
            .collect(),
    ];
    for (class, bytes) in RetentionClass::ALL.into_iter().cycle().zip(&contents) {
        log.commit_blocking(vec![with(class, Role::Response, bytes).proposal(proposal)]).unwrap();
    }
    let references: Vec<EvidenceRef> =
        home.records().into_iter().flat_map(|record| record.evidence).collect();
    assert_eq!(references.len(), contents.len());
    for (reference, bytes) in references.iter().zip(&contents) {
        assert_eq!(reference.bytes, bytes.len() as u64);
        assert_eq!(&log.evidence(reference, Some(proposal)).unwrap(), bytes);
        // Sealed to its proposal.
        let other = log.evidence(reference, None);
        assert!(matches!(other, Err(AuditError::Evidence { problem: EvidenceProblem::Digest, .. })));
    }
    log.close();
    let mut files = Vec::new();
    files_under(home.path(), &mut files);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(canary.len()).any(|window| window == canary.as_bytes()), "{file:?}");
    }
    // And after a restart.
    let log = home.open();
    assert_eq!(&log.evidence(&references[2], Some(proposal)).unwrap(), &contents[2]);
}

#[test]
fn a_class_has_a_key_and_packs_per_day_and_the_log_announces_the_key_first() {
    // AUD-42
    let home = Home::new();
    let (options, clock) = manual(home.options(), NOW);
    let log = AuditLog::open(options).unwrap();
    for _ in 0..3 {
        log.commit_blocking(vec![with(RetentionClass::Standard, Role::Request, b"x")]).unwrap();
    }
    log.commit_blocking(vec![with(RetentionClass::Sensitive, Role::Request, b"y")]).unwrap();
    clock.advance(Duration::from_secs(86_400));
    log.commit_blocking(vec![with(RetentionClass::Standard, Role::Request, b"z")]).unwrap();
    let records = home.records();
    let mut announced = Vec::new();
    for record in &records {
        if record.event == EventName::AuditKeyCreated {
            announced.push(record.data["key"].as_str().unwrap().to_owned());
            assert_eq!(record.data["check"].as_str().unwrap().len(), 64);
        }
        for reference in &record.evidence {
            assert!(announced.contains(&reference.key.to_string()));
        }
    }
    assert_eq!(announced, ["std-20270115-1", "sens-20270115-1", "std-20270116-1"]);
    for pack in ["standard/20270115-1.pack", "sensitive/20270115-1.pack", "standard/20270116-1.pack"] {
        assert!(log.dir().join("blobs").join(pack).exists(), "{pack}");
    }
}

#[test]
fn packs_fill_up_and_are_followed_by_others() {
    // AUD-17
    let home = Home::new();
    let (options, _) = manual(home.options(), NOW);
    let log = AuditLog::open(options.clone()).unwrap();
    let noise = |n: u64| -> Vec<u8> {
        (0..20_000u64)
            .flat_map(|i| {
                portcullis_core::Sha256Digest::of(&(i + n * 100_000).to_be_bytes()).as_bytes()[..16].to_vec()
            })
            .collect()
    };
    let mut expected = Vec::new();
    for n in 0..16 {
        let bytes = noise(n);
        log.append(vec![with(RetentionClass::Hold, Role::Response, &bytes)]).unwrap();
        expected.push(bytes);
    }
    log.close();
    assert!(log.dir().join("blobs/hold/20270115-2.pack").exists());
    // Goes on in the pack it was in.
    let log = AuditLog::open(options).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Hold, Role::Response, b"more")]).unwrap();
    expected.push(b"more".to_vec());
    assert!(!log.dir().join("blobs/hold/20270115-3.pack").exists());
    let references = home.records().into_iter().flat_map(|record| record.evidence);
    for (reference, bytes) in references.zip(&expected) {
        assert_eq!(&log.evidence(&reference, None).unwrap(), bytes);
    }
}

#[test]
fn a_torn_object_does_not_hide_what_comes_after() {
    let home = Home::new();
    let (options, _) = manual(home.options(), NOW);
    let log = AuditLog::open(options.clone()).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Standard, Role::Request, b"before")]).unwrap();
    log.close();
    let pack = log.dir().join("blobs/standard/20270115-1.pack");
    let mut bytes = std::fs::read(&pack).unwrap();
    let end = 8 + u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    bytes[end..end + 60].fill(0xAA);
    bytes[end..end + 4].copy_from_slice(&100u32.to_be_bytes());
    std::fs::write(&pack, bytes).unwrap();
    let log = AuditLog::open(options).unwrap();
    log.commit_blocking(vec![with(RetentionClass::Standard, Role::Request, b"after")]).unwrap();
    let contents: Vec<_> = home
        .records()
        .into_iter()
        .flat_map(|record| record.evidence)
        .map(|reference| log.evidence(&reference, None).unwrap())
        .collect();
    assert_eq!(contents, [b"before".to_vec(), b"after".to_vec()]);
}

#[test]
fn an_event_of_a_megabyte_moves_its_large_member_to_evidence() {
    // AUD-10, A-25
    let home = Home::new();
    let log = home.open();
    let large = "é".repeat(1 << 19);
    let data = json!({"large": large, "small": [1, 2]});
    log.commit_blocking(vec![Event::new(EventName::ServerProbed, &Actor::system()).data(data)]).unwrap();
    let record = home.records().pop().unwrap();
    let reference = &record.evidence[0];
    assert_eq!(reference.role, Role::Data);
    assert_eq!(record.data, json!({"large": {"evidence": reference.object}, "small": [1, 2]}));
    let member: String = serde_json::from_slice(&log.evidence(reference, None).unwrap()).unwrap();
    assert_eq!(member, large);
    assert!(home.verify().ok);
}

#[test]
fn missing_objects_and_keys_are_told_apart() {
    let home = Home::new();
    let log = home.open();
    log.commit_blocking(vec![with(RetentionClass::Standard, Role::Request, b"x"), event(1)]).unwrap();
    let reference = home.records().into_iter().flat_map(|record| record.evidence).next().unwrap();
    let problem = |reference: EvidenceRef| match log.evidence(&reference, None) {
        Err(AuditError::Evidence { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let elsewhere = EvidenceRef { object: portcullis_core::Sha256Digest::ZERO, ..reference.clone() };
    assert_eq!(problem(elsewhere), EvidenceProblem::Missing);
    let keyless = EvidenceRef { key: "std-20200101-1".parse().unwrap(), ..reference };
    assert_eq!(problem(keyless), EvidenceProblem::KeyDestroyed);
}
