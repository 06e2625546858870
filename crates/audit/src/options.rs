//! How a log is kept.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use portcullis_core::{Clock, SystemClock};

use crate::error::AuditError;
use crate::kek::KekSource;
use crate::retention::Retention;
use crate::signer::SignerSource;
use crate::sinks::Sink;
use crate::witness::Witnessing;

pub(crate) const MIB: u64 = 1 << 20;

/// How a log is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The audit folder; the log is a folder in it, named by its id.
    pub dir: PathBuf,
    /// How large a segment is, 8 MiB to 1 GiB.
    pub segment_bytes: u64,
    /// How long a caller waits for durability before it is told that there is none (AUD-24).
    pub commit_timeout: Duration,
    /// How long a turn waits for company, at most 5 ms. Zero is right unless syncs are very dear.
    pub group_delay: Duration,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// Who keeps the log; with the log's id it becomes the origin of its checkpoints (AUD-32).
    pub origin: String,
    /// Where the key that wraps the data keys comes from (AUD-42).
    pub kek: KekSource,
    /// Whether each session's evidence has keys of its own, and not each day's (AUD-42).
    pub key_per_session: bool,
    /// How long evidence is kept (AUD-43).
    pub retention: Retention,
    /// Who signs checkpoints (AUD-33).
    pub signer: SignerSource,
    /// Where checkpoints go besides the log's own folder (AUD-34),
    pub sinks: Vec<Sink>,
    /// and how often at most.
    pub sink_interval: Duration,
    /// Who cosigns checkpoints (AUD-34).
    pub witnessing: Option<Witnessing>,
    /// Whether the kernel is asked to refuse changes of segments that are done (AUD-15). Where the process may not ask for
    /// that, nothing is.
    pub append_only: bool,
    /// Whether the records are also written as entry bundles, for others to fetch (AUD-30).
    pub publish: bool,
    /// Room kept back for how calls ended when the disk is full (AUD-63),
    pub reserve_bytes: u64,
    /// and how little free room is too little to be at ease.
    pub min_free: u64,
    /// How large a pack of evidence is at most, if not as large as a segment.
    #[doc(hidden)]
    pub pack_bytes: Option<u64>,
    /// Lifts the range of `segment_bytes`.
    #[doc(hidden)]
    pub any_segment_size: bool,
}

impl Options {
    /// The defaults for a log in `dir` whose keys are wrapped by the key in `kek_file`, and whose checkpoints are
    /// signed by the key in `log.key` beside that.
    pub fn new(dir: impl Into<PathBuf>, kek_file: impl Into<PathBuf>) -> Self {
        let kek_file: PathBuf = kek_file.into();
        let host = rustix::system::uname().nodename().to_string_lossy().replace([' ', '+'], "-");
        Self {
            dir: dir.into(),
            segment_bytes: 64 * MIB,
            commit_timeout: Duration::from_secs(10),
            group_delay: Duration::ZERO,
            clock: Arc::new(SystemClock),
            origin: format!("portcullis/{host}"),
            signer: SignerSource::File(kek_file.with_file_name("log.key")),
            kek: KekSource::File(kek_file),
            key_per_session: false,
            retention: Retention::default(),
            sinks: Vec::new(),
            sink_interval: Duration::from_secs(10),
            witnessing: None,
            append_only: false,
            publish: false,
            reserve_bytes: 8 * MIB,
            min_free: 256 * MIB,
            pack_bytes: None,
            any_segment_size: false,
        }
    }

    /// Segments of any size, for tests that want to see many.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tiny_segments(mut self, bytes: u64) -> Self {
        self.segment_bytes = bytes;
        self.reserve_bytes = bytes;
        self.pack_bytes = self.pack_bytes.or(Some(u64::MAX));
        self.any_segment_size = true;
        self
    }

    pub(crate) fn check(&self) -> Result<(), AuditError> {
        let refuse = |what: &str| Err(AuditError::Options { what: what.into() });
        if !self.any_segment_size && !(8 * MIB..=1024 * MIB).contains(&self.segment_bytes) {
            return refuse("audit.segment_bytes must be between 8 MiB and 1 GiB");
        }
        if self.group_delay > Duration::from_millis(5) {
            return refuse("audit.group_delay must be at most 5 ms");
        }
        if self.origin.is_empty()
            || self.origin.contains(|c: char| c == '+' || c.is_whitespace() || c.is_control())
        {
            return refuse("audit.origin must be a name without spaces and +");
        }
        Ok(())
    }
}
