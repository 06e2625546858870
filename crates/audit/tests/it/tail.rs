//! The end of a log after its writer died, and damage that is not an end.

use std::path::Path;

use portcullis_audit::{AuditError, AuditLog, EventName, ProblemKind, Record};
use portcullis_core::{ErrorCode, Sha256Digest};

use crate::home::{Home, event, options_in};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
    std::fs::set_permissions(to, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

/// The offsets right after the commit frames of a segment: a second reader of the framing, kept apart from the
/// first on purpose.
fn commit_ends(segment: &[u8]) -> Vec<usize> {
    let (mut at, mut ends) = (64, Vec::new());
    loop {
        let len = u32::from_be_bytes(segment[at..at + 4].try_into().unwrap()) as usize;
        if len == 0 {
            return ends;
        }
        let kind = segment[at + 4];
        at += 12 + len;
        if kind == 2 {
            ends.push(at);
        }
    }
}

fn written() -> (Home, Vec<Record>, Vec<u8>, Vec<usize>) {
    let home = Home::new();
    let log = home.open();
    for n in 0..5 {
        log.commit_blocking(vec![event(n), event(n + 100)]).unwrap();
    }
    log.close();
    home.forget_checkpoints();
    let records = home.records();
    let segment = std::fs::read(&home.segments()[0]).unwrap();
    let ends = commit_ends(&segment);
    assert_eq!((records.len(), ends.len()), (11, 6));
    (home, records, segment, ends)
}

#[test]
fn a_log_cut_anywhere_in_its_last_commits_keeps_every_whole_one_and_invents_nothing() {
    // A-4, AUD-61
    let (home, records, segment, ends) = written();
    let (from, to) = (ends[2], ends[5]);
    // Thousands of opens: in memory where that is possible, because what is tested is not the disk.
    let memory = Path::new("/dev/shm");
    let work = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    copy(home.path(), work.path());
    let name = home.segments()[0].strip_prefix(home.path()).unwrap().to_owned();
    let copied = work.path().join(name);
    for cut in from..=to {
        // Half of the cuts shorten the file, as a copy would; half leave zeros, as a crash does.
        let (mut cut_segment, leave_zeros) = (segment[..cut].to_vec(), cut % 2 == 0);
        if leave_zeros {
            cut_segment.resize(to + 2048, 0);
        }
        std::fs::write(&copied, &cut_segment).unwrap();
        // A hash may end in zeros; then a commit without its last bytes is whole where zeros were left.
        let is_whole =
            |end: usize| end <= cut || (leave_zeros && segment[cut..end].iter().all(|&byte| byte == 0));
        let whole = ends.iter().filter(|&&end| is_whole(end)).count();
        let kept = 2 * whole - 1;
        let log = AuditLog::open(options_in(work.path()).with_tiny_segments(8 * 1024)).unwrap();
        log.close();
        let now: Vec<Record> = portcullis_audit::read(log.dir()).unwrap().map(Result::unwrap).collect();
        assert_eq!(now[..kept], records[..kept], "cut at {cut}");
        let tail = &segment[ends[whole - 1].min(cut)..cut];
        let used = tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        if used == 0 {
            // Nothing came after the last whole commit, or nothing but the zeros that were there before.
            assert_eq!(now.len(), kept, "cut at {cut}");
        } else {
            assert_eq!(now.len(), kept + 1, "cut at {cut}");
            let repair = &now[kept];
            assert_eq!(repair.event, EventName::AuditTailRepaired);
            assert_eq!(repair.data["sha256"], Sha256Digest::of(&tail[..used]).to_string());
            assert_eq!(repair.data["offset"], ends[whole - 1]);
        }
        assert!(portcullis_audit::verify(log.dir()).unwrap().ok);
        // Make the copy what it was: a shortened segment has no room, so the log went on in another.
        std::fs::remove_dir_all(log.dir().join("tlog")).unwrap();
        for folder in ["quarantine", "segments"] {
            for file in std::fs::read_dir(log.dir().join(folder)).unwrap() {
                let path = file.unwrap().path();
                if path != copied {
                    std::fs::remove_file(path).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_cut_tail_is_kept_and_a_crash_before_its_record_does_not_lose_the_record() {
    // AUD-61
    let (home, _, segment, ends) = written();
    // In the last record, whose text has no zeros; the commit frame after it takes 56 bytes.
    let cut = ends[5] - 60;
    std::fs::write(&home.segments()[0], &segment[..cut]).unwrap();
    let log = home.open();
    let quarantine = log.dir().join("quarantine");
    log.close();
    let kept: Vec<_> = std::fs::read_dir(&quarantine).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(kept.len(), 1);
    assert_eq!(std::fs::read(&kept[0]).unwrap(), &segment[ends[4]..cut]);
    // As if the process had died between erasing the tail and recording that it did.
    std::fs::rename(&kept[0], quarantine.join("00000000000000000000-77.pending")).unwrap();
    home.open().close();
    let last = home.records().pop().unwrap();
    assert_eq!((last.event, &last.data["offset"]), (EventName::AuditTailRepaired, &77.into()));
    home.open().close();
    assert_eq!(home.records().pop().unwrap().seq, last.seq, "recorded once");
    home.assert_whole(last.seq + 1);
}

fn refused_as(home: &Home, segment: &[u8], kind: ProblemKind) {
    std::fs::write(&home.segments()[0], segment).unwrap();
    match home.try_open() {
        Err(error @ AuditError::Corrupt { kind: found, .. }) => {
            assert_eq!(found, kind);
            assert_eq!((error.code(), error.code().exit_code()), (ErrorCode::Integrity, 1));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(&home.segments()[0]).unwrap(), segment, "nothing is repaired");
}

#[test]
fn a_flipped_byte_anywhere_before_a_commit_frame_keeps_the_log_shut() {
    // AUD-61, A-5
    let (home, _, segment, ends) = written();
    for at in (64..ends[5] - 56).step_by(37) {
        let mut damaged = segment.clone();
        damaged[at] ^= 0x40;
        let crc = refused_kind(&home, &damaged);
        assert!(matches!(crc, ProblemKind::BadCrc | ProblemKind::BadFrame), "at {at}: {crc:?}");
    }
    let mut damaged = segment;
    damaged[20] ^= 1;
    refused_as(&home, &damaged, ProblemKind::BadFrame);
}

fn refused_kind(home: &Home, segment: &[u8]) -> ProblemKind {
    std::fs::write(&home.segments()[0], segment).unwrap();
    match home.try_open() {
        Err(AuditError::Corrupt { kind, .. }) => kind,
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_written_out_of_order_before_a_power_cut_are_a_tail_if_nothing_follows() {
    // AUD-61
    let home = Home::new();
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    // A turn over several sectors.
    log.commit_blocking((0..8).map(event).collect()).unwrap();
    log.close();
    let segment = std::fs::read(&home.segments()[0]).unwrap();
    let ends = commit_ends(&segment);
    let hole = (ends[1] + 600) / 512 * 512;
    let mut torn = segment.clone();
    torn[hole..hole + 512].fill(0);
    std::fs::write(&home.segments()[0], &torn).unwrap();
    home.forget_checkpoints();
    home.open().close();
    assert_eq!(
        home.names(),
        [EventName::SystemInitialized, EventName::ProposalReceived, EventName::AuditTailRepaired]
    );
    // The same hole with a later turn behind it cannot be a torn write: that turn came after a sync.
    std::fs::write(&home.segments()[0], &segment).unwrap();
    home.forget_checkpoints();
    let log = home.open();
    log.commit_blocking(vec![event(9)]).unwrap();
    log.close();
    let mut damaged = std::fs::read(&home.segments()[0]).unwrap();
    damaged[hole..hole + 512].fill(0);
    assert!(matches!(refused_kind(&home, &damaged), ProblemKind::BadCrc | ProblemKind::BadFrame));
}

#[test]
fn a_log_that_died_between_two_segments_goes_on() {
    // AUD-17
    let home = Home::new();
    let log = home.open();
    while home.segments().len() < 2 {
        log.commit_blocking((0..20).map(event).collect()).unwrap();
    }
    let (last, time) = (log.next_seq(), log.last_time());
    log.close();
    // Erase all of the second segment but its header, and the first record of it from memory.
    let path = &home.segments()[1];
    let mut second = std::fs::read(path).unwrap();
    second[64..].fill(0);
    std::fs::write(path, &second).unwrap();
    home.forget_checkpoints();
    let log = home.open();
    assert_eq!(log.next_seq(), last - 20);
    assert!(log.last_time() <= time && log.last_time().as_millis() > 0);
    log.commit_blocking(vec![event(1)]).unwrap();
    log.close();
    home.assert_whole(last - 20 + 1);
}
