//! A store in a folder of its own, with a clock that is set by hand.

use std::borrow::Cow;
use std::sync::Arc;

use portcullis_context::{
    Artifacts, Handle, Limits, NewArtifact, NotKept, Origin, Owner, Sensitivity, Source,
};
use portcullis_core::clock::ManualClock;
use portcullis_core::{Clock as _, ProposalId, Secret, SessionId, Timestamp};
use tempfile::TempDir;

pub(crate) struct Shelf {
    pub(crate) folder: TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) artifacts: Artifacts,
    limits: Limits,
}

impl Shelf {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
        let artifacts = Artifacts::open_in(folder.path(), &key(7), limits, clock.clone()).unwrap();
        Self { folder, clock, artifacts, limits }
    }

    /// The same folder after a restart.
    pub(crate) fn reopened(self) -> Self {
        let Self { folder, clock, limits, artifacts } = self;
        drop(artifacts);
        let artifacts = Artifacts::open_in(folder.path(), &key(7), limits, clock.clone()).unwrap();
        Self { folder, clock, artifacts, limits }
    }

    pub(crate) fn keep(&self, owner: &Owner, media_type: &str, bytes: &[u8]) -> Result<Handle, NotKept> {
        self.keep_as(owner, media_type, bytes, Source::Text)
    }

    pub(crate) fn keep_as(
        &self,
        owner: &Owner,
        media_type: &str,
        bytes: &[u8],
        source: Source,
    ) -> Result<Handle, NotKept> {
        let origin = Origin {
            call_id: ProposalId::new(self.clock.now()),
            tool_identity: "notes/read@1#1:aa".into(),
            sensitivity: Sensitivity::Public,
            redacted: false,
        };
        let new = NewArtifact {
            bytes: Cow::Borrowed(bytes),
            media_type: media_type.into(),
            declared_type: None,
            label: String::new(),
            part_index: Some(0),
            source,
        };
        self.artifacts.keep(owner, &origin, &new).map(|reference| reference.handle)
    }

    pub(crate) fn blobs(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("blobs")).unwrap().count()
    }
}

pub(crate) fn key(byte: u8) -> Secret<[u8; 32]> {
    Secret::new([byte; 32])
}

pub(crate) fn owner(name: &str) -> Owner {
    let principal = format!("agent:{name}").parse().unwrap();
    Owner { principal, session: SessionId::new(Timestamp::from_millis(1_800_000_000_000)) }
}
