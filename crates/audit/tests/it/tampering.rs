//! whoever can write the files can fix checksums too. The chain still tells.

use portcullis_audit::{ProblemKind, Report};
use serde_json::{Value, json};

use crate::home::{Home, event};

/// The records of the one segment, as text, and the segment they came from.
fn taken_apart(home: &Home) -> Vec<String> {
    let segment = std::fs::read(&home.segments()[0]).unwrap();
    let (mut at, mut records) = (64, Vec::new());
    loop {
        let len = u32::from_be_bytes(segment[at..at + 4].try_into().unwrap()) as usize;
        if len == 0 {
            return records;
        }
        if segment[at + 4] == 1 {
            records.push(String::from_utf8(segment[at + 12..at + 12 + len].to_vec()).unwrap());
        }
        at += 12 + len;
    }
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.push(kind);
    let crc = crc32c::crc32c(&[&frame[..], body].concat());
    frame.extend_from_slice(&[0; 3]);
    frame.extend_from_slice(&crc.to_be_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Puts a segment together again, with right checksums and a commit frame that fits.
fn put_together(home: &Home, records: &[String]) {
    let path = &home.segments()[0];
    let mut segment = std::fs::read(path).unwrap();
    let len = segment.len();
    segment.truncate(64);
    for record in records {
        segment.extend(frame(1, record.as_bytes()));
    }
    let last: Value = serde_json::from_str(records.last().unwrap()).unwrap();
    let leaf = portcullis_core::Sha256Digest::of_parts(&[&[0], records.last().unwrap().as_bytes()]);
    let mut commit = last["seq"].as_u64().unwrap().to_be_bytes().to_vec();
    commit.extend_from_slice(&(records.len() as u32).to_be_bytes());
    commit.extend_from_slice(leaf.as_bytes());
    segment.extend(frame(2, &commit));
    segment.resize(len, 0);
    std::fs::write(path, segment).unwrap();
}

fn kinds(report: &Report) -> Vec<(u64, ProblemKind)> {
    report.problems.iter().map(|problem| (problem.seq, problem.kind)).collect()
}

/// What the tree says, which is not what the chain says.
fn is_of_the_tree(kind: ProblemKind) -> bool {
    use ProblemKind::{CheckpointAhead, RootMismatch, TileMismatch};
    matches!(kind, RootMismatch | TileMismatch | CheckpointAhead)
}

/// A log of eleven records, tampered with by `change`, and what the chain tells. The tree must tell too.
fn after(change: impl FnOnce(&mut Vec<String>)) -> Vec<(u64, ProblemKind)> {
    let home = Home::new();
    let log = home.open();
    log.commit_blocking((1..=10).map(event).collect()).unwrap();
    log.close();
    let mut records = taken_apart(&home);
    put_together(&home, &records);
    home.assert_whole(11);
    change(&mut records);
    put_together(&home, &records);
    let report = home.verify();
    assert_eq!(report.ok, report.problems.is_empty());
    let (of_the_tree, of_the_chain) =
        kinds(&report).into_iter().partition::<Vec<_>, _>(|(_, kind)| is_of_the_tree(*kind));
    assert!(!of_the_tree.is_empty(), "{report:#?}");
    of_the_chain
}

#[test]
fn changing_a_single_member_of_a_record_breaks_the_chain_after_it() {
    // A-1, AUD-5, AUD-11
    for (member, value) in [
        ("actor", json!({"id": "eve", "kind": "operator"})),
        ("policy", json!(format!("7:{}", "0".repeat(64)))),
        ("data", json!({"n": 6})),
        ("session", json!("01JD4Z8Q4T3M5R7N9P1S2V6W8X")),
        ("trust", json!("trusted")),
    ] {
        let found = after(|records| {
            let mut record: Value = serde_json::from_str(&records[5]).unwrap();
            record[member] = value;
            records[5] = String::from_utf8(portcullis_core::canon::to_jcs(&record).unwrap()).unwrap();
        });
        assert_eq!(found, [(6, ProblemKind::PrevMismatch)], "{member}");
    }
}

#[test]
fn changing_only_the_time_shows() {
    //
    let found = after(|records| {
        let mut record: Value = serde_json::from_str(&records[5]).unwrap();
        record["time"] = json!("2020-01-01T00:00:00.000Z");
        records[5] = String::from_utf8(portcullis_core::canon::to_jcs(&record).unwrap()).unwrap();
    });
    assert!(
        found.contains(&(5, ProblemKind::TimeRegressed)) && found.contains(&(6, ProblemKind::PrevMismatch)),
        "{found:?}"
    );
}

#[test]
fn removing_swapping_and_inserting_records_shows() {
    //
    use ProblemKind::{PrevMismatch, SeqGap};
    assert_eq!(after(|records| drop(records.remove(5))), [(5, SeqGap), (6, PrevMismatch)]);
    let found = after(|records| records.swap(5, 6));
    assert!(found.contains(&(5, SeqGap)) && found.contains(&(6, PrevMismatch)), "{found:?}");
    let found = after(|records| records.insert(5, records[4].clone()));
    assert!(found.contains(&(5, SeqGap)) && found.contains(&(4, PrevMismatch)), "{found:?}");
    let found = after(|records| drop(records.remove(0)));
    assert!(found.contains(&(0, ProblemKind::MissingGenesis)), "{found:?}");
}

#[test]
fn another_spelling_and_an_unknown_event_show() {
    // AUD-10, AUD-13, A-25
    let found = after(|records| records[5] = records[5].replacen("{\"actor\"", "{ \"actor\"", 1));
    assert_eq!(found, [(5, ProblemKind::NotCanonical), (6, ProblemKind::PrevMismatch)]);
    let found =
        after(|records| records[5] = records[5].replacen("proposal.received", "proposal.conceived", 1));
    assert_eq!(found, [(5, ProblemKind::UnknownEvent), (6, ProblemKind::PrevMismatch)]);
    let found = after(|records| records[10] = records[10].replacen(",\"trust\":null", "", 1));
    assert_eq!(found, [(10, ProblemKind::NotCanonical)]);
}

#[test]
fn every_flipped_byte_of_a_record_is_one_finding_with_its_number() {
    //
    let home = Home::new();
    let log = home.open();
    for n in 1..=4 {
        log.commit_blocking(vec![event(n), event(n)]).unwrap();
    }
    log.close();
    let path = &home.segments()[0];
    let segment = std::fs::read(path).unwrap();
    let at = segment.windows(7).position(|window| window == b"\"seq\":3").unwrap();
    let mut damaged = segment.clone();
    damaged[at - 20] ^= 1;
    std::fs::write(path, &damaged).unwrap();
    let report = home.verify();
    assert_eq!(kinds(&report), [(3, ProblemKind::BadCrc)]);
    assert_eq!((report.size, report.checked), (9, 8));
    // Reading stops where the damage is, and says so.
    let read: Vec<_> = portcullis_audit::read(&home.audit()).unwrap().collect();
    assert!(read.last().unwrap().is_err() && read.len() == 4);
}

#[test]
fn a_missing_segment_shows() {
    //
    let home = Home::new();
    let log = home.open();
    while home.segments().len() < 3 {
        log.commit_blocking((0..20).map(event).collect()).unwrap();
    }
    log.close();
    std::fs::remove_file(&home.segments()[1]).unwrap();
    let report = home.verify();
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    assert_eq!(report.problems[0].kind, ProblemKind::SeqGap);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["problems"][0]["kind"], "seq_gap");
    assert!(["log", "size", "head", "checked", "ok"].iter().all(|member| json.get(member).is_some()));
}

#[test]
fn damage_in_an_old_segment_blocks_a_log_that_was_opened_with_it() {
    // AUD-65
    let home = Home::new();
    let log = home.open();
    while home.segments().len() < 3 {
        log.commit_blocking((0..20).map(event).collect()).unwrap();
    }
    log.verify_or_block().unwrap();
    log.close();
    let mut first = std::fs::read(&home.segments()[0]).unwrap();
    let at = first.windows(5).position(|window| window == b"\"ana\"").unwrap();
    first[at + 1] ^= 1;
    std::fs::write(&home.segments()[0], first).unwrap();
    // Opening looks at the end only, and the end is whole.
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    let blocked = log.verify_or_block().unwrap_err();
    assert!(blocked.reason.contains("bad_crc"), "{blocked}");
    assert!(log.commit_blocking(vec![event(2)]).is_err());
}
