//! A disk that is full, read-only, gone, or open to others: a real one, small, mounted by the test.

use std::path::{Path, PathBuf};
use std::process::Command;

use portcullis_audit::{AuditLog, Event, EventName, Health, Options, RetentionClass, Role};
use portcullis_core::Actor;
use serde_json::json;

use crate::home::event;

/// A file system of its own; unmounted when dropped.
pub(crate) struct Disk {
    dir: tempfile::TempDir,
    mounts: Vec<PathBuf>,
}

impl Disk {
    /// A tmpfs of so many KiB. Not being able to mount one is a failed test: nothing was tested.
    fn small(kib: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Self { dir, mounts: Vec::new() };
        let at = disk.dir.path().to_owned();
        disk.mount(&["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0700"), "none"], &at);
        disk
    }

    fn mount(&mut self, args: &[&str], at: &Path) {
        let mounted = Command::new("mount").args(args).arg(at).output().unwrap();
        assert!(
            mounted.status.success(),
            "THIS TEST MOUNTS A FILE SYSTEM AND COULD NOT; run it as root: {}",
            String::from_utf8_lossy(&mounted.stderr)
        );
        self.mounts.push(at.to_owned());
    }

    /// Another process fills it to the last byte.
    fn fill(&self) -> PathBuf {
        let filler = self.dir.path().join("filler");
        let out = format!("of={}", filler.display());
        let filled = Command::new("dd").args(["if=/dev/zero", &out, "bs=1k"]).output().unwrap();
        assert!(String::from_utf8_lossy(&filled.stderr).contains("No space left"));
        filler
    }

    fn options(&self) -> Options {
        let options = Options::new(self.dir.path().join("audit"), self.dir.path().join("kek"));
        Options { pack_bytes: Some(32 * 1024), ..options.with_tiny_segments(32 * 1024) }
    }

    fn log(&self) -> PathBuf {
        let audit = self.dir.path().join("audit");
        std::fs::read_dir(audit).unwrap().flatten().find(|entry| entry.path().is_dir()).unwrap().path()
    }

    fn names(&self) -> Vec<EventName> {
        portcullis_audit::read(&self.log()).unwrap().map(|record| record.unwrap().event).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for at in self.mounts.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(at).status();
        }
    }
}

/// An event with evidence that does not get smaller.
fn evidence(n: u8) -> Event {
    let hasher = noise(n);
    let bytes: Vec<u8> = std::iter::repeat_with(hasher).take(6000).collect();
    Event::new(EventName::ExecutionResult, &Actor::system()).evidence(
        Role::Response,
        RetentionClass::Standard,
        bytes.into(),
    )
}

/// Bytes without a pattern, from a digest of a counter.
fn noise(seed: u8) -> impl FnMut() -> u8 {
    let mut n = 0u64;
    move || {
        n += 1;
        portcullis_core::Sha256Digest::of(&[&[seed][..], &n.to_be_bytes()].concat()).as_bytes()[0]
    }
}

fn blocked_reason(log: &AuditLog) -> String {
    match log.health() {
        Health::Blocked { cause: "audit_persistence", reason } => reason,
        other => panic!("not blocked: {other:?}"),
    }
}

#[test]
fn a_full_disk_blocks_the_log_which_still_says_how_calls_ended_and_goes_on_when_there_is_room() {
    // A-7, A-8 (the log's part), AUD-63, AUD-64
    let disk = Disk::small(256);
    let mut options = disk.options();
    options.min_free = 0;
    let log = AuditLog::open(options).unwrap();
    log.commit_blocking(vec![evidence(0)]).unwrap();
    let reserve = disk.log().join("reserve.bin");
    while !reserve.exists() {
        std::thread::yield_now();
    }
    assert_eq!(log.health(), Health::Ok);
    let filler = disk.fill();
    let refused = (1..).find_map(|n| log.commit_blocking(vec![evidence(n)]).err()).unwrap();
    assert!(refused.reason.contains("os error 28") && refused.reason.contains("audit unblock"), "{refused}");
    assert_eq!(blocked_reason(&log), refused.reason);
    assert!(!reserve.exists(), "it was given up");
    assert!(log.commit_blocking(vec![event(1)]).is_err(), "nothing new is taken");
    assert!(log.append(vec![event(1)]).is_err());
    assert_eq!(disk.names().last(), Some(&EventName::AuditBlocked));

    // How a call under way ended is still said.
    log.conclude(vec![Event::new(EventName::ExecutionIndeterminate, &Actor::system()).data(json!({}))]);
    while disk.names().last() != Some(&EventName::ExecutionIndeterminate) {
        std::thread::yield_now();
    }

    // Only room helps.
    let ana = Actor::operator("ana");
    std::fs::OpenOptions::new()
        .append(true)
        .open(&filler)
        .and_then(|mut f| {
            // What the reserve had freed is taken as well.
            std::io::copy(&mut std::io::repeat(0), &mut f)
        })
        .unwrap_err();
    let still = log.unblock(&ana, "too early").unwrap_err();
    assert!(still.to_string().contains("os error 28"), "{still}");
    assert!(log.blocked().is_some());
    log.conclude(vec![Event::new(EventName::ExecutionCancelled, &Actor::system()).data(json!({}))]);
    std::fs::remove_file(&filler).unwrap();
    let receipt = log.unblock(&ana, "made room").unwrap();
    assert!(reserve.exists() && log.blocked().is_none());
    let names = disk.names();
    assert_eq!(
        names[names.len() - 5..],
        [
            EventName::AuditBlocked,
            EventName::ExecutionIndeterminate,
            EventName::AuditPersistenceFailure,
            EventName::ExecutionCancelled,
            EventName::AuditUnblocked
        ]
    );
    assert_eq!(receipt.seq as usize, names.len() - 1);
    let records: Vec<_> = portcullis_audit::read(&disk.log()).unwrap().map(Result::unwrap).collect();
    let failure = &records[names.len() - 3].data;
    assert!(failure["first_error"].as_str().unwrap().contains("os error 28"), "{failure}");
    assert!(failure["since"].is_string() && failure["withheld_calls"] == 1, "{failure}");
    assert_eq!(records.last().unwrap().actor, ana);
    assert!(log.unblock(&ana, "again").is_err(), "it is not blocked");

    log.commit_blocking(vec![evidence(200)]).unwrap();
    log.checkpoint().unwrap();
    log.close();
    let report = portcullis_audit::verify_with(
        &disk.log(),
        &portcullis_audit::Checks { evidence: true, ..portcullis_audit::Checks::default() },
    );
    let report = report.unwrap();
    assert!(report.ok, "{report:#?}");
}

#[test]
fn a_key_that_cannot_be_stored_blocks_the_log_before_anything_is_sealed() {
    // A-7, AUD-3
    let disk = Disk::small(256);
    let log = AuditLog::open(disk.options()).unwrap();
    let filler = disk.fill();
    assert!(log.commit_blocking(vec![evidence(0)]).is_err());
    // From the moment somebody was told.
    assert!(log.blocked().is_some());
    assert!(blocked_reason(&log).contains("keys.sealed"), "{}", blocked_reason(&log));
    assert!(!disk.names().contains(&EventName::ExecutionResult));
    // Nor does whoever makes room at once wait for a committer that has not noticed yet.
    std::fs::remove_file(&filler).unwrap();
    log.unblock(&Actor::operator("ana"), "made room").unwrap();
    log.commit_blocking(vec![event(1)]).unwrap();
    assert!(disk.names().contains(&EventName::AuditUnblocked));
}

#[test]
fn little_room_is_said_before_there_is_none() {
    // AUD-63
    let disk = Disk::small(1024);
    let mut options = disk.options();
    options.min_free = 16 << 20;
    let log = AuditLog::open(options).unwrap();
    let Health::Degraded { cause: "audit_free_space", reason } = log.health() else {
        panic!("{:?}", log.health())
    };
    assert!(reason.contains("free space"), "{reason}");
    log.commit_blocking(vec![event(1)]).unwrap();
}

#[test]
fn a_folder_that_is_read_only_deleted_or_open_to_others_blocks_with_the_exact_cause() {
    // A-11, AUD-64
    let mut disk = Disk::small(2048);
    let log = AuditLog::open(disk.options()).unwrap();
    log.commit_blocking(vec![event(1)]).unwrap();
    let dir = disk.log();
    let text = dir.to_str().unwrap().to_owned();
    // A file system with open files cannot be remounted; what every new file meets is the same.
    disk.mount(&["--bind", &text], &dir);
    disk.mount(&["-o", "remount,bind,ro"], &dir);
    assert!(log.commit_blocking(vec![evidence(1)]).is_err());
    while log.blocked().is_none() {
        std::thread::yield_now();
    }
    assert!(blocked_reason(&log).contains("os error 30"), "{}", blocked_reason(&log));
    let ana = Actor::operator("ana");
    assert!(log.unblock(&ana, "too early").unwrap_err().to_string().contains("os error 30"));
    assert!(Command::new("umount").arg("-l").arg(&dir).status().unwrap().success());
    log.unblock(&ana, "writable again").unwrap();

    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = log.commit_blocking(vec![event(2)]).unwrap_err();
    assert!(refused.reason.contains("has mode 755") && refused.reason.contains("chmod 700"), "{refused}");
    assert!(log.unblock(&ana, "too early").is_err());
    std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    log.unblock(&ana, "private again").unwrap();
    log.commit_blocking(vec![event(3)]).unwrap();
    assert!(portcullis_audit::verify(&dir).unwrap().ok);

    std::fs::remove_dir_all(&dir).unwrap();
    let refused = log.commit_blocking(vec![event(4)]).unwrap_err();
    assert!(refused.reason.contains("os error 2"), "{refused}");
    assert!(log.unblock(&ana, "it is gone").is_err());
    assert!(log.blocked().is_some());
}
