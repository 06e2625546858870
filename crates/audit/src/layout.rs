//! Where things lie in the audit folder, and who may write there (AUD-15, AUD-60).

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use portcullis_core::{LogId, Timestamp};
use rustix::fs::FlockOperation;

use crate::error::{AtPath as _, AuditError};
use crate::evidence::RetentionClass;
use crate::files;

/// The folder of one log.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn segments(&self) -> PathBuf {
        self.dir.join("segments")
    }

    pub(crate) fn segment(&self, first_seq: u64) -> PathBuf {
        self.segments().join(format!("{first_seq:020}.seg"))
    }

    pub(crate) fn spare_segment(&self) -> PathBuf {
        self.segments().join("spare")
    }

    pub(crate) fn quarantine(&self) -> PathBuf {
        self.dir.join("quarantine")
    }

    pub(crate) fn packs(&self, class: RetentionClass) -> PathBuf {
        self.dir.join("blobs").join(class.as_str())
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.dir.join("keys.sealed")
    }

    /// Room that is given back when the disk is full (AUD-63).
    pub(crate) fn reserve(&self) -> PathBuf {
        self.dir.join("reserve.bin")
    }

    /// What a log that could not go on leaves for the next start to record (AUD-64).
    pub(crate) fn failure(&self) -> PathBuf {
        self.dir.join("failure.json")
    }

    /// Which keys are being destroyed, until that is done and on record (AUD-43).
    pub(crate) fn destruction(&self) -> PathBuf {
        self.dir.join("destroying.json")
    }

    pub(crate) fn description(&self) -> PathBuf {
        self.dir.join("log.toml")
    }

    /// The tree: `checkpoint` and `tile/`, as others may read it.
    pub(crate) fn tlog(&self) -> PathBuf {
        self.dir.join("tlog")
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.tlog().join("checkpoint")
    }

    /// Where in the log records are, by what one asks for (AUD-66). Made and read by others.
    pub(crate) fn index(&self) -> PathBuf {
        self.dir.join("index.db")
    }

    /// The newest checkpoint that a witness signed.
    pub(crate) fn witnessed(&self) -> PathBuf {
        self.tlog().join("checkpoint.witnessed")
    }

    fn lock(&self) -> PathBuf {
        self.dir.join("LOCK")
    }

    /// The segments in order.
    pub(crate) fn list_segments(&self) -> Result<Vec<Segment>, AuditError> {
        let dir = self.segments();
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&dir).at(&dir)? {
            let path = entry.at(&dir)?.path();
            let name =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".seg"));
            if let Some(first_seq) = name.and_then(|name| name.parse().ok()) {
                found.push(Segment { first_seq, path });
            }
        }
        found.sort_unstable_by_key(|segment| segment.first_seq);
        Ok(found)
    }

    /// Takes the folder `dir` as it is: a log's own folder, or one with exactly one log in it.
    pub(crate) fn find(dir: &Path) -> Result<(LogId, Layout), AuditError> {
        if let Some(log) = log_id_of(dir)
            && dir.join("segments").is_dir()
        {
            return Ok((log, Layout { dir: dir.into() }));
        }
        match logs_in(dir)?.as_slice() {
            [log] => Ok((*log, Layout { dir: dir.join(log.to_string()) })),
            [] => Err(AuditError::Layout { path: dir.into(), problem: "holds no audit log".into() }),
            logs => Err(several(dir, logs.len())),
        }
    }

    /// Finds the one log in `dir`, or makes the folders of a new one. Holds the folder's own lock meanwhile,
    /// so that two processes starting together cannot make two.
    pub(crate) fn find_or_create(dir: &Path, now: Timestamp) -> Result<(LogId, Layout), AuditError> {
        files::create_dir_all(dir)?;
        files::check_dir(dir)?;
        let handle = File::open(dir).at(dir)?;
        rustix::fs::flock(&handle, FlockOperation::LockExclusive).at(dir)?;
        let log = match logs_in(dir)?.as_slice() {
            [] => LogId::new(now),
            [log] => *log,
            logs => return Err(several(dir, logs.len())),
        };
        let layout = Layout { dir: dir.join(log.to_string()) };
        files::create_dir_all(&layout.segments())?;
        files::create_dir_all(&layout.quarantine())?;
        files::create_dir_all(&layout.tlog())?;
        for class in RetentionClass::ALL {
            files::create_dir_all(&layout.packs(class))?;
        }
        for folder in [layout.dir.join("blobs"), layout.dir.clone(), dir.to_owned()] {
            files::sync_dir(&folder)?;
        }
        Ok((log, layout))
    }

    /// Becomes the log's only writer until the returned file is dropped (AUD-60).
    pub(crate) fn acquire(&self, now: Timestamp) -> Result<File, AuditError> {
        let path = self.lock();
        let mut file = files::open_or_create(&path)?;
        if let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(error).at(&path);
            }
            let mut text = String::new();
            let _ = file.read_to_string(&mut text);
            let mut words = text.split_whitespace();
            let pid = words.next().and_then(|word| word.parse().ok());
            let since = words.next().and_then(|word| word.parse().ok());
            return Err(AuditError::Held { dir: self.dir.clone(), pid, since });
        }
        // Who holds it, for the message above; the lock itself is the kernel's.
        let text = format!("{} {now}\n", std::process::id());
        file.set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .at(&path)?;
        Ok(file)
    }
}

/// A segment file by its name.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) first_seq: u64,
    pub(crate) path: PathBuf,
}

fn log_id_of(path: &Path) -> Option<LogId> {
    path.file_name()?.to_str()?.parse().ok()
}

fn logs_in(dir: &Path) -> Result<Vec<LogId>, AuditError> {
    let mut logs = Vec::new();
    for entry in std::fs::read_dir(dir).at(dir)? {
        let path = entry.at(dir)?.path();
        if path.is_dir() {
            logs.extend(log_id_of(&path));
        }
    }
    Ok(logs)
}

fn several(dir: &Path, count: usize) -> AuditError {
    AuditError::Layout {
        path: dir.into(),
        problem: format!("holds {count} audit logs; one gateway has one, move the others away"),
    }
}
