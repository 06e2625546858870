//! Opening: one writer, private files, sane options.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use portcullis_audit::{AuditError, AuditLog, Options};
use portcullis_core::ErrorCode;

use crate::child::Child;
use crate::home::{Home, event};

fn chmod(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_second_writer_is_told_who_holds_the_log_and_a_killed_one_holds_it_no_more() {
    // AUD-60, A-6
    let home = Home::new();
    let mut holder = Child::start("hold", home.path(), "");
    holder.wait_for("holding");
    match home.try_open() {
        Err(error @ AuditError::Held { pid, since, .. }) => {
            assert_eq!(pid, Some(holder.id()));
            assert!(since.is_some());
            assert_eq!((error.code(), error.code().exit_code()), (ErrorCode::ControlUnavailable, 5));
            assert!(error.to_string().contains(&holder.id().to_string()), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // Reading needs no lock.
    assert!(home.records().len() >= 2);
    holder.kill();
    let log = home.open();
    log.commit_blocking(vec![event(1)]).unwrap();
    log.close();
    assert!(home.verify().ok);
}

#[test]
fn two_handles_in_one_process_are_two_writers() {
    // AUD-60
    let home = Home::new();
    let log = home.open();
    assert!(matches!(home.try_open(), Err(AuditError::Held { .. })));
    drop(log);
    home.open();
}

#[test]
fn everything_is_private_and_anything_looser_refuses_the_start() {
    // AUD-15
    let home = Home::new();
    let log = home.open();
    let dir = log.dir().to_owned();
    log.close();
    let kek = home.path().join("kek");
    let (files, folders) = (
        [dir.join("LOCK"), dir.join("keys.sealed"), dir.join("log.toml"), home.segments()[0].clone(), kek],
        [home.audit(), dir.clone(), dir.join("segments"), dir.join("blobs/standard"), dir.join("quarantine")],
    );
    let modes = files.iter().map(|path| (path, 0o600)).chain(folders.iter().map(|path| (path, 0o700)));
    for (path, mode) in modes {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode, "{path:?}");
        for looser in [mode | 0o040, mode | 0o002] {
            chmod(path, looser);
            match home.try_open() {
                Err(error @ AuditError::Permissions { .. }) => {
                    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
                    assert_eq!(error.code(), ErrorCode::Validation);
                }
                other => panic!("{path:?} {looser:o}: {other:?}"),
            }
            chmod(path, mode);
        }
    }
    home.open();
}

#[test]
fn a_symbolic_link_refuses_the_start() {
    // AUD-15
    let home = Home::new();
    let dir = home.open().dir().to_owned();
    let (real, moved) = (dir.join("keys.sealed"), home.path().join("elsewhere"));
    std::fs::rename(&real, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &real).unwrap();
    assert!(matches!(home.try_open(), Err(AuditError::Permissions { path, .. }) if path == real));
}

#[test]
fn options_out_of_range_and_folders_with_two_logs_are_refused() {
    // AUD-17, AUD-20, AUD-32
    let home = Home::new();
    let plain = || Options::new(home.audit(), home.path().join("kek"));
    for bad in [
        Options { segment_bytes: 1 << 20, ..plain() },
        Options { segment_bytes: 2 << 30, ..plain() },
        Options { group_delay: Duration::from_millis(6), ..plain() },
        Options { origin: "a b".into(), ..plain() },
    ] {
        assert!(matches!(AuditLog::open(bad), Err(AuditError::Options { .. })));
    }
    let log = home.open();
    let other = portcullis_core::LogId::new(portcullis_core::Timestamp::from_millis(1));
    std::fs::create_dir(home.audit().join(other.to_string())).unwrap();
    log.close();
    assert!(matches!(home.try_open(), Err(AuditError::Layout { .. })));
    assert!(matches!(portcullis_audit::verify(&home.audit()), Err(AuditError::Layout { .. })));
    assert!(portcullis_audit::verify(log.dir()).unwrap().ok, "a log's own folder says which one is meant");
}

#[test]
fn a_group_delay_delays_and_loses_nothing() {
    let home = Home::new();
    let log = AuditLog::open(Options { group_delay: Duration::from_millis(1), ..home.options() }).unwrap();
    for n in 0..5 {
        log.commit_blocking(vec![event(n)]).unwrap();
    }
    home.assert_whole(6);
}

/// Takes the flag off again, so that a temporary folder can go.
#[cfg(target_os = "linux")]
struct Removable(Home);

#[cfg(target_os = "linux")]
impl Drop for Removable {
    fn drop(&mut self) {
        use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
        for segment in self.0.segments() {
            let file = std::fs::File::open(segment).unwrap();
            if let Ok(flags) = ioctl_getflags(&file) {
                let _ = ioctl_setflags(&file, flags - IFlags::APPEND);
            }
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn segments_that_are_done_are_append_only_where_that_may_be_asked_for() {
    // AUD-15
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let home = Removable(Home::new());
    let append_only = |path: &std::path::Path| {
        ioctl_getflags(std::fs::File::open(path).unwrap()).is_ok_and(|flags| flags.contains(IFlags::APPEND))
    };
    // Whether this process may is not for the log to say.
    let probe = home.0.path().join("probe");
    let file = std::fs::File::create(&probe).unwrap();
    let may = ioctl_getflags(&file).is_ok_and(|flags| ioctl_setflags(&file, flags | IFlags::APPEND).is_ok());
    if let Ok(flags) = ioctl_getflags(&file) {
        let _ = ioctl_setflags(&file, flags - IFlags::APPEND);
    }
    let fill = |append_only: bool, segments: usize| {
        let log = AuditLog::open(Options { append_only, ..home.0.options() }).unwrap();
        while home.0.segments().len() < segments {
            log.commit_blocking((0..20).map(event).collect()).unwrap();
        }
        log.close();
    };
    let flagged = || home.0.segments().iter().map(|path| append_only(path)).collect::<Vec<bool>>();
    fill(false, 3);
    assert_eq!(flagged(), [false; 3], "not unless it is wanted");
    // The next run makes up for what was left, and goes on.
    fill(true, 5);
    assert_eq!(flagged(), [may, may, may, may, false]);
    fill(true, 6);
    assert!(home.0.verify().ok);
    if may {
        let done = &home.0.segments()[0];
        assert!(std::fs::OpenOptions::new().write(true).open(done).is_err(), "nothing can be changed");
        assert!(std::fs::remove_file(done).is_err(), "nor removed");
    }
}
