//! A folder to keep a log in, and short words for what every scenario does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portcullis_audit::{AuditError, AuditLog, Event, EventName, Options, Record, Report};
use portcullis_core::clock::ManualClock;
use portcullis_core::{Actor, Timestamp};
use serde_json::json;

/// A temporary home with an audit folder.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn audit(&self) -> PathBuf {
        self.dir.path().join("audit")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn options(&self) -> Options {
        options_in(self.dir.path())
    }

    pub(crate) fn open(&self) -> AuditLog {
        self.try_open().unwrap()
    }

    pub(crate) fn try_open(&self) -> Result<AuditLog, AuditError> {
        AuditLog::open(self.options())
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        portcullis_audit::read(&self.audit()).unwrap().map(Result::unwrap).collect()
    }

    pub(crate) fn names(&self) -> Vec<EventName> {
        self.records().iter().map(|record| record.event).collect()
    }

    pub(crate) fn verify(&self) -> Report {
        portcullis_audit::verify(&self.audit()).unwrap()
    }

    /// Asserts that the log verifies and has `size` records.
    pub(crate) fn assert_whole(&self, size: u64) {
        let report = self.verify();
        assert!(report.ok, "{report:#?}");
        assert_eq!((report.size, report.checked), (size, size));
    }

    /// As if the process had died before it made a checkpoint: what is torn off may be a tail.
    pub(crate) fn forget_checkpoints(&self) {
        let log = std::fs::read_dir(self.audit()).unwrap().next().unwrap().unwrap().path();
        std::fs::remove_dir_all(log.join("tlog")).unwrap();
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let log = std::fs::read_dir(self.audit()).unwrap().next().unwrap().unwrap().path();
        let mut segments: Vec<_> = std::fs::read_dir(log.join("segments"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
            .collect();
        segments.sort();
        segments
    }
}

pub(crate) fn options_in(home: &Path) -> Options {
    Options::new(home.join("audit"), home.join("kek")).with_tiny_segments(64 * 1024)
}

pub(crate) fn manual(options: Options, at: Timestamp) -> (Options, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(at));
    (Options { clock: clock.clone(), ..options }, clock)
}

pub(crate) fn event(n: u64) -> Event {
    Event::new(EventName::ProposalReceived, &Actor::operator("ana")).data(json!({ "n": n }))
}
