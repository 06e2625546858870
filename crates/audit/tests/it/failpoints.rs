//! What a failing disk and a dying process leave behind. Needs the feature `failpoints`.

use portcullis_audit::EventName;

use crate::child::Child;
use crate::home::{Home, event};

/// Runs the role `commit` with these failpoints until it is blocked; the last acknowledged number and what it said.
fn blocked_by(home: &Home, failpoints: &str) -> (u64, String, String) {
    let mut child = Child::start("commit", home.path(), failpoints);
    let mut durable = 0;
    loop {
        let line = child.wait_for_either("durable ", "blocked ");
        match line.split_once("durable ") {
            Some((_, seq)) => durable = seq.parse().unwrap(),
            None => {
                let health = child.wait_for("health");
                // What it leaves behind is complete when it has ended.
                assert!(!child.was_killed());
                return (durable, line, health);
            }
        }
    }
}

#[test]
fn a_short_write_blocks_the_log_and_becomes_a_torn_tail() {
    // A-9, AUD-26, AUD-62
    let home = Home::new();
    let (durable, said, health) = blocked_by(&home, "audit.write=short(536)@5");
    assert_eq!(
        said.matches("only 536 of").count(),
        2,
        "the second caller is refused for the same cause: {said}"
    );
    assert!(health.contains("Blocked"), "{health}");
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    log.close();
    let names = home.names();
    assert_eq!(
        names[durable as usize + 1..],
        [EventName::AuditTailRepaired, EventName::AuditPersistenceFailure, EventName::ProposalReceived]
    );
    let failure = &home.records()[durable as usize + 2].data;
    assert!(
        failure["first_error"].as_str().unwrap().contains("536") && failure["withheld_calls"] == 1,
        "{failure}"
    );
    home.assert_whole(durable + 4);
}

#[test]
fn a_failed_sync_blocks_the_log_and_is_never_retried() {
    // A-10, AUD-26, AUD-64
    let home = Home::new();
    let (durable, said, health) = blocked_by(&home, "audit.sync=err(EIO)@4");
    assert!(said.matches("os error 5").count() == 2, "{said}");
    // Genesis and the two turns that were acknowledged; the failing one and the later commit add none.
    assert!(health.contains("segment_syncs: 3"), "{health}");
    // Nothing that was acknowledged is lost; what was not may or may not be there.
    home.open().close();
    let names = home.names();
    assert!(
        names.len() as u64 > durable + 1 && names.contains(&EventName::AuditPersistenceFailure),
        "{names:?}"
    );
    assert!(home.verify().ok);
}

#[test]
fn after_a_failed_sync_the_kernel_is_asked_for_no_other_on_that_file() {
    // A-10, AUD-26: as the kernel saw it.
    let home = Home::new();
    let trace = home.path().join("trace");
    let status = std::process::Command::new("strace")
        .args(["-f", "-y", "-e", "trace=fdatasync,pwrite64", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child::role", "--ignored", "--nocapture", "--test-threads=1"])
        .env("AUDIT_TEST_ROLE", "commit")
        .env("AUDIT_TEST_HOME", home.path())
        .env("PORTCULLIS_FAILPOINTS", "audit.sync=err(EIO)@4")
        .stdout(std::process::Stdio::null())
        .status()
        .expect("THIS TEST NEEDS strace");
    assert!(status.success());
    let trace = std::fs::read_to_string(trace).unwrap();
    let of_the_segment: Vec<&str> = trace.lines().filter(|line| line.contains(".seg>")).collect();
    let is_write = |line: &&&str| line.contains("pwrite64(");
    let (writes, syncs) = (
        of_the_segment.iter().filter(is_write).count(),
        of_the_segment.iter().filter(|line| line.contains("fdatasync(")).count(),
    );
    // The fourth write is the one whose sync fails (in our hands, so the kernel sees none): nothing comes after it.
    assert_eq!((writes, syncs), (4, 3), "{trace}");
    assert!(of_the_segment.last().is_some_and(|line| line.contains("pwrite64(")), "{trace}");
}

#[test]
fn a_failed_sync_of_evidence_keeps_the_record_out_of_the_log() {
    // AUD-21
    let home = Home::new();
    let mut child = Child::start("call", home.path(), "audit.pack_sync=err(EIO)");
    child.wait_for("blocked");
    drop(child);
    home.open().close();
    assert!(!home.names().contains(&EventName::ExecutionIntent));
}

#[test]
fn a_write_or_a_rotation_that_fails_blocks_and_loses_nothing() {
    // AUD-3, AUD-17
    for failpoints in ["audit.before_write=err(ENOSPC)@9", "audit.rotate=err(ENOSPC)"] {
        let home = Home::new();
        let (durable, said, _) = blocked_by(&home, failpoints);
        assert!(said.contains("os error 28"), "{said}");
        home.open().close();
        // AUD-63: a full disk is said into the reserve.
        // (But for a segment that has no room for that, where the next cannot be begun.)
        let names = home.names();
        let said: &[EventName] = &[EventName::AuditBlocked, EventName::AuditPersistenceFailure];
        let rest = &names[durable as usize + 1..];
        assert!(
            rest == said || (failpoints.contains("rotate") && rest == &said[1..]),
            "{failpoints}: {rest:?}"
        );
        assert!(home.verify().ok);
    }
}

#[test]
fn a_process_killed_around_a_sync_leaves_a_log_that_opens() {
    // A-12 (the log's part), AUD-1, AUD-2
    for (point, intent, result) in [
        ("audit.after_intent_sync", true, false),
        ("audit.before_result", true, false),
        ("audit.after_result_sync", true, true),
        ("audit.key_rewrite", false, false),
    ] {
        let home = Home::new();
        let child = Child::start("call", home.path(), &format!("{point}=abort"));
        assert!(child.was_killed(), "{point}");
        home.open().close();
        let names = home.names();
        assert_eq!(names.contains(&EventName::ExecutionIntent), intent, "{point}");
        assert_eq!(names.contains(&EventName::ExecutionResult), result, "{point}");
        assert!(home.verify().ok, "{point}");
    }
}

#[test]
fn a_checkpoint_that_was_not_finished_is_made_at_the_next_start() {
    // AUD-32, AUD-80: cut off before its rename, and refused by the disk. Neither blocks or loses a record.
    let home = Home::new();
    let child = Child::start("commit", home.path(), "audit.checkpoint_rename=abort");
    assert!(child.was_killed());
    let mut child = Child::start("commit", home.path(), "audit.checkpoint_rename=err(EIO)");
    child.wait_for("done");
    drop(child);
    let log = home.open();
    let size = log.checkpoint().unwrap().checkpoint.size;
    log.close();
    assert!(size > 160, "{size}");
    assert!(home.verify().ok);
}

#[test]
fn who_waited_long_enough_is_told_so_and_the_record_may_come_later() {
    // AUD-24
    let home = Home::new();
    let mut child = Child::start("hurry", home.path(), "audit.sync=sleep(1500)@2");
    let told = child.wait_for("told: ");
    assert!(told.contains("MP-FH-010") && told.contains("may become so later"), "{told}");
    assert_eq!(child.wait_for("landed"), "landed, blocked: false");
}
