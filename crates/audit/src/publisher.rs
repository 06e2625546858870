//! The thread that turns durable records into tiles and signed checkpoints (AUD-30, AUD-32).
//!
//! The committer leaves the leaf hash of every durable record here and goes on; nothing a call waits for happens in
//! this file. A second after the first of them, or when 4096 wait, the tree is brought up to date: tiles first, and
//! when those are on the disk, the checkpoint that speaks of them. If that fails it is said, and tried again with
//! the next records: the log itself is whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use portcullis_core::{Sha256Digest, failpoint};

use crate::error::{AtPath as _, AuditError, ProblemKind};
use crate::export::Bundle;
use crate::files;
use crate::layout::Layout;
use crate::note::{Checkpoint, NoteKey, NoteSignature, SignedCheckpoint};
use crate::read::raw_from;
use crate::signer::Signer;
use crate::sinks::Outbox;
use crate::tile::{self, Edge, Tile, Tiles, WIDTH};
use crate::witness;

/// AUD-32.
const EVERY: Duration = Duration::from_secs(1);
const AT_LATEST: usize = 4096;

/// Where the committer leaves leaf hashes, and where others ask for a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    leaves: Vec<Sha256Digest>,
    /// How often a checkpoint was asked for, and up to which of these it was made.
    asked: u64,
    answered: u64,
    answer: Option<Result<SignedCheckpoint, String>>,
    /// Who signs from now on.
    successor: Option<Signer>,
    closed: bool,
}

impl Leaves {
    /// Takes the leaf hashes of a durable turn.
    pub(crate) fn add(&self, leaves: impl Iterator<Item = Sha256Digest>) {
        let mut state = self.lock();
        let first = state.leaves.is_empty();
        state.leaves.extend(leaves);
        let wake = first || state.leaves.len() >= AT_LATEST;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
    }

    /// Waits for a checkpoint over everything that was added before.
    pub(crate) fn checkpoint(&self) -> Result<SignedCheckpoint, String> {
        let mut state = self.lock();
        if state.closed {
            return Err("the audit log is closed".into());
        }
        state.asked += 1;
        let mine = state.asked;
        self.changed.notify_all();
        while state.answered < mine {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.answer.clone().unwrap_or_else(|| Err("the audit log is closed".into()))
    }

    /// From the next checkpoint on `signer` signs; that one is signed by its predecessor too (AUD-33).
    pub(crate) fn succeed(&self, signer: Signer) {
        self.lock().successor = Some(signer);
    }

    /// Lets the publisher make its last checkpoint.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits until there is something to publish and it is time to; `None` when there will be nothing more.
    fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        while state.leaves.is_empty() && !state.closed && state.asked == state.answered {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let due = Instant::now() + EVERY;
        while state.leaves.len() < AT_LATEST && !state.closed && state.asked == state.answered {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.closed && state.leaves.is_empty() && state.asked == state.answered {
            return None;
        }
        let leaves = std::mem::take(&mut state.leaves);
        Some(Work { leaves, asked: state.asked, successor: state.successor.take() })
    }

    fn answer(&self, asked: u64, answer: Result<SignedCheckpoint, String>) {
        let mut state = self.lock();
        state.answered = asked;
        state.answer = Some(answer);
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Work {
    leaves: Vec<Sha256Digest>,
    asked: u64,
    successor: Option<Signer>,
}

/// The writer of tiles and checkpoints.
pub(crate) struct Publisher {
    layout: Layout,
    origin: String,
    signer: Signer,
    edge: Edge,
    /// Tiles that are not known to be on the disk.
    unwritten: BTreeMap<String, Vec<u8>>,
    /// Whether full entry bundles are written beside the tiles, and the first that is not yet.
    publish: bool,
    bundles: u64,
    /// Partial tiles of the newest checkpoint and of the one before, which somebody may be reading.
    partial: [Vec<PathBuf>; 2],
    newest: Arc<Newest>,
    /// Where the newest also goes.
    outboxes: Vec<Arc<Outbox>>,
    /// Who signed until now, and signs the next checkpoint too (AUD-33).
    outgoing: Option<Signer>,
}

/// The newest checkpoint, to which witnesses add their signatures while it is.
#[derive(Debug)]
pub(crate) struct Newest {
    path: PathBuf,
    note: Mutex<Option<SignedCheckpoint>>,
}

impl Newest {
    fn get(&self) -> Option<SignedCheckpoint> {
        self.lock().clone()
    }

    fn replace(&self, signed: &SignedCheckpoint) -> Result<(), AuditError> {
        let mut note = self.lock();
        files::replace(&self.path, signed.to_string().as_bytes())?;
        *note = Some(signed.clone());
        Ok(())
    }

    /// Adds signatures of a witness to the checkpoint it signed, which is also kept when there is a newer one.
    pub(crate) fn cosign(
        &self,
        signed: &SignedCheckpoint,
        signatures: Vec<NoteSignature>,
        layout: &Layout,
    ) -> Result<SignedCheckpoint, AuditError> {
        let mut note = self.lock();
        let mut cosigned = match &*note {
            Some(newest) if newest.text() == signed.text() => newest.clone(),
            _ => signed.clone(),
        };
        let new: Vec<_> = signatures.into_iter().filter(|new| !cosigned.signatures.contains(new)).collect();
        cosigned.signatures.extend(new);
        witness::keep(&layout.witnessed(), &cosigned)?;
        if note.as_ref().is_some_and(|newest| newest.text() == cosigned.text()) {
            files::replace(&self.path, cosigned.to_string().as_bytes())?;
            *note = Some(cosigned.clone());
        }
        Ok(cosigned)
    }

    fn lock(&self) -> MutexGuard<'_, Option<SignedCheckpoint>> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Publisher {
    /// Goes on with the tree as the newest checkpoint left it, up to `size` records of the log. Tiles that are lost
    /// or do not have the promised root are made again from the records; if these do not have it either, the log
    /// was changed behind its checkpoint and stays shut (AUD-61).
    pub(crate) fn open(
        layout: Layout,
        origin: String,
        signer: Signer,
        newest: Option<SignedCheckpoint>,
        size: u64,
        publish: bool,
    ) -> Result<Self, AuditError> {
        let checkpoint = layout.checkpoint();
        let mut publisher = Self {
            layout,
            origin,
            signer,
            edge: Edge::default(),
            unwritten: BTreeMap::new(),
            publish,
            bundles: 0,
            partial: [Vec::new(), Vec::new()],
            newest: Arc::new(Newest { path: checkpoint, note: Mutex::new(newest) }),
            outboxes: Vec::new(),
            outgoing: None,
        };
        if let Some(promised) = publisher.newest.get().map(|newest| newest.checkpoint) {
            let stored = Tiles::new(&publisher.layout.tlog(), promised.size).edge();
            match stored {
                Ok(edge) if edge.root() == promised.root => {
                    publisher.partial[0] = publisher.partial_paths(&edge);
                    publisher.edge = edge;
                }
                _ => publisher.grow_from_records(promised.size)?,
            }
            if publisher.edge.root() != promised.root {
                return Err(AuditError::Checkpoint {
                    path: publisher.layout.checkpoint(),
                    kind: ProblemKind::InconsistentCheckpoint,
                    detail: format!("the first {} records are not those it was made over", promised.size),
                });
            }
        }
        publisher.grow_from_records(size)?;
        if publish {
            publisher.bundles = publisher.first_missing_bundle();
        }
        Ok(publisher)
    }

    /// Every new checkpoint also goes into `outbox`.
    pub(crate) fn with_outbox(mut self, outbox: Arc<Outbox>) -> Self {
        self.outboxes.push(outbox);
        self
    }

    /// The newest checkpoint, for those who add to it.
    pub(crate) fn newest(&self) -> Arc<Newest> {
        self.newest.clone()
    }

    /// Starts the thread. It ends after [`Leaves::close`], with a checkpoint over everything.
    pub(crate) fn start(mut self, leaves: Arc<Leaves>) -> Result<JoinHandle<()>, AuditError> {
        let dir = self.layout.dir().to_owned();
        let run = move || {
            while let Some(work) = leaves.take() {
                for leaf in work.leaves {
                    self.push(leaf);
                }
                if let Some(signer) = work.successor {
                    self.outgoing = Some(std::mem::replace(&mut self.signer, signer));
                }
                let published = self.publish();
                if let Err(error) = &published {
                    tracing::warn!("no checkpoint of the audit log: {error}");
                }
                leaves.answer(work.asked, published.map_err(|error| error.to_string()));
            }
        };
        std::thread::Builder::new().name("audit-checkpoints".into()).spawn(run).at(&dir)
    }

    fn grow_from_records(&mut self, size: u64) -> Result<(), AuditError> {
        if self.edge.size() >= size {
            return Ok(());
        }
        for record in raw_from(self.layout.dir(), self.edge.size())? {
            let record = record?;
            debug_assert_eq!(record.seq, self.edge.size(), "records come in order");
            self.push(record.leaf());
            if self.edge.size() == size {
                break;
            }
        }
        Ok(())
    }

    fn push(&mut self, leaf: Sha256Digest) {
        let unwritten = &mut self.unwritten;
        self.edge.push(leaf, |tile: Tile| {
            unwritten.insert(tile.path(), tile.bytes());
        });
    }

    /// Tiles, then the checkpoint; nothing if the tree has not grown.
    fn publish(&mut self) -> Result<SignedCheckpoint, AuditError> {
        if let Some(newest) = self.newest.get().filter(|newest| newest.checkpoint.size == self.edge.size()) {
            return Ok(newest);
        }
        let folder = self.layout.tlog().join("tile");
        let full = self.unwritten.iter().map(|(name, bytes)| (folder.join(name), bytes.clone()));
        let partial = self.edge.partial().map(|tile| (folder.join(tile.path()), tile.bytes()));
        write_all(full.chain(partial).collect())?;
        self.unwritten.clear();
        if self.publish {
            self.write_bundles(&folder)?;
        }

        let (size, root) = (self.edge.size(), self.edge.root());
        let checkpoint = Checkpoint { origin: self.origin.clone(), size, root };
        let mut signatures = vec![self.signer.sign(&checkpoint.text())?];
        if let Some(outgoing) = &self.outgoing {
            signatures.push(outgoing.sign(&checkpoint.text())?);
        }
        let signed = SignedCheckpoint::new(checkpoint, signatures);
        failpoint::pass_io("audit.checkpoint_rename").at(&self.layout.checkpoint())?;
        self.newest.replace(&signed)?;
        self.outgoing = None;
        self.outboxes.iter().for_each(|outbox| outbox.put(&signed));

        let now = self.partial_paths(&self.edge);
        let [before, oldest] = std::mem::replace(&mut self.partial, [now, Vec::new()]);
        for path in oldest.iter().filter(|path| !self.partial[0].contains(path) && !before.contains(path)) {
            let _ = std::fs::remove_file(path);
            let _ = path.parent().map(std::fs::remove_dir);
        }
        self.partial[1] = before;
        Ok(signed)
    }

    /// AUD-30: who publishes a log gives out its records too, in bundles as wide as tiles.
    fn write_bundles(&mut self, folder: &Path) -> Result<(), AuditError> {
        let full = self.edge.size() / WIDTH as u64;
        if self.bundles >= full {
            return Ok(());
        }
        let mut bundle = Bundle::default();
        for record in raw_from(self.layout.dir(), self.bundles * WIDTH as u64)? {
            bundle.add(&record?.bytes);
            if bundle.entries == WIDTH {
                let name = tile::path("entries", self.bundles, WIDTH);
                write_all(vec![(folder.join(name), std::mem::take(&mut bundle).bytes)])?;
                self.bundles += 1;
            }
            if self.bundles == full {
                break;
            }
        }
        Ok(())
    }

    fn first_missing_bundle(&self) -> u64 {
        let folder = self.layout.tlog().join("tile");
        let full = self.edge.size() / WIDTH as u64;
        (0..full).find(|n| !folder.join(tile::path("entries", *n, WIDTH)).exists()).unwrap_or(full)
    }

    fn partial_paths(&self, edge: &Edge) -> Vec<PathBuf> {
        let folder = self.layout.tlog().join("tile");
        edge.partial().map(|tile| folder.join(tile.path())).collect()
    }
}

/// Writes files and waits until they and their names are on the disk.
fn write_all(written: Vec<(PathBuf, Vec<u8>)>) -> Result<(), AuditError> {
    let mut open = Vec::with_capacity(written.len());
    let mut folders: Vec<PathBuf> = Vec::new();
    for (path, bytes) in &written {
        let folder = path.parent().unwrap_or(Path::new("."));
        if !folder.exists() {
            files::create_dir_all(folder)?;
            folders.extend(folder.ancestors().take(6).skip(1).map(Path::to_path_buf));
        }
        folders.push(folder.into());
        open.push((path, files::write_new(path, bytes)?));
    }
    for (path, file) in open {
        file.sync_all().at(path)?;
    }
    folders.sort_unstable();
    folders.dedup();
    folders.iter().try_for_each(|folder| files::sync_dir(folder))
}

/// The checkpoint at `path`, checked against the log's keys if some are given; `None` if there is none.
pub(crate) fn newest(path: &Path, keys: &[NoteKey]) -> Result<Option<SignedCheckpoint>, AuditError> {
    if !path.exists() {
        return Ok(None);
    }
    let wrong = |detail: String| AuditError::Checkpoint {
        path: path.into(),
        kind: ProblemKind::CheckpointSignature,
        detail,
    };
    let text = String::from_utf8(files::read(path)?).map_err(|_| wrong("is not text".into()))?;
    let signed: SignedCheckpoint = text.parse().map_err(|error| wrong(format!("{error}")))?;
    if !keys.is_empty() && !keys.iter().any(|key| signed.is_signed_by(key)) {
        return Err(wrong("is not signed by the log's key".into()));
    }
    Ok(Some(signed))
}
