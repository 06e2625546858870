//! A child process as a connection: a line in, a line out.
//!
//! Four tasks live as long as the child. One reads its output and hands each answer to the call that waits for it,
//! never waiting itself: a slow caller cannot hold up another. One writes, putting whatever has queued up
//! meanwhile into a single write. One keeps its last words. One waits for its end, and brings it about when told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use portcullis_sandbox::broker::{Secret, SecretFiles};
use portcullis_sandbox::{Doors, Gate, Layers, Observed};
use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::desk::{Desk, Outgoing};
use crate::event::{Events, UpstreamEvent};
use crate::greeting::Probe;
use crate::last_words::LastWords;
use crate::link::MESSAGE_LIMIT;
use crate::process::{self, Cage};
use crate::{StdioEndpoint, UpstreamError};

/// How many frames go into one write at most.
const BATCH: usize = 64;
/// How long a child that says no more may take to end before that is the reason: ending takes longer than closing.
const DYING: Duration = Duration::from_millis(300);
/// How much is asked for in one read.
const READ: usize = 64 * 1024;

/// A running child and who waits for it.
#[derive(Debug)]
pub(crate) struct StdioLink {
    desk: Arc<Desk>,
    closing: watch::Sender<bool>,
    ended: watch::Receiver<Option<String>>,
    words: LastWords,
    group: Option<Pid>,
    gate: Gate,
    files: SecretFiles,
    /// Whether we ended it; then its end is no news.
    ended_by_us: Arc<AtomicBool>,
}

impl StdioLink {
    /// Starts the child, with what is lent to it alone; the second value says what confines it.
    pub(crate) async fn open(
        endpoint: &StdioEndpoint,
        events: Events,
        probe: &Probe<'_>,
        lent: &[(String, Arc<Secret>)],
    ) -> Result<(Self, (Layers, &'static str)), UpstreamError> {
        let (mut child, mut cage, doors) =
            process::spawn(endpoint, probe.server, probe.settings, lent.to_vec()).await?;
        let files = std::mem::take(&mut cage.files);
        let grace = probe.settings.grace;
        let confined = (cage.layers.clone(), cage.cgroup.version);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(UpstreamError::unavailable("the server's pipes are missing"));
        };
        let group = process::group_of(&child);
        let (closing, close) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let words = LastWords::default();
        let gate = guard(doors, &events, probe, group)?;
        let (desk, frames) = Desk::new(events);
        let listener = tokio::spawn(words.clone().record(stderr));
        tokio::spawn(write(stdin, frames, close.clone()));
        let reader = tokio::spawn(read(stdout, Arc::clone(&desk), closing.clone()));
        let heard = Heard { reader, listener, words: words.clone() };
        let ended_by_us = Arc::new(AtomicBool::new(false));
        let by_us = Arc::clone(&ended_by_us);
        tokio::spawn(keep(child, cage, close, grace, heard, Arc::clone(&desk), (end, by_us)));
        Ok((Self { desk, closing, ended, words, group, gate, files, ended_by_us }, confined))
    }

    /// Who watches the child, and through whom it talks to others if it may.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Its files for credentials.
    pub(crate) fn files(&self) -> &SecretFiles {
        &self.files
    }

    /// Ends the child and all it started, now: it holds what it may not keep.
    pub(crate) fn kill(&self) {
        self.ended_by_us.store(true, Ordering::Release);
        process::sweep(self.group);
    }

    pub(crate) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }

    /// The child's process id, which is also its group's.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.group.map(|group| group.as_raw_nonzero().get())
    }

    pub(crate) fn last_words(&self) -> &LastWords {
        &self.words
    }

    /// Why it ended, if it does within `patience`.
    pub(crate) async fn epitaph(&self, patience: Duration) -> Option<String> {
        let mut ended = self.ended.clone();
        let how = timeout(patience, ended.wait_for(Option::is_some)).await.ok()?.ok()?.clone()?;
        Some(match self.words.last_line() {
            Some(words) => format!("{how}; it said {words}"),
            None => how,
        })
    }

    pub(crate) async fn close(&self, drain: Duration) {
        let _ = timeout(drain, self.desk.pending.idle()).await;
        self.ended_by_us.store(true, Ordering::Release);
        self.closing.send_replace(true);
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(Option::is_some).await.map(drop);
    }
}

/// Has a child watched, and its doors, if it has any. One that tries to leave its scopes is ended at once (SBX-60).
fn guard(
    doors: Doors,
    events: &Events,
    probe: &Probe<'_>,
    group: Option<Pid>,
) -> Result<Gate, UpstreamError> {
    let (server, authority, events) = (probe.server.clone(), Arc::clone(probe.authority), events.clone());
    let ended = AtomicBool::new(false);
    let told = move |what: Observed| {
        authority.observed(&server, &what);
        let reason = match &what {
            Observed::Denied { target, port, reason, violation: Some(_), .. } => {
                format!("it tried to reach {target}:{port}: {reason}")
            }
            Observed::Attempted { kind: "bait", what, violation: true, .. } => {
                format!("bait: it opened {what}, which nobody has a reason to open")
            }
            Observed::Attempted { kind: "artifact", what, violation: true, .. } => {
                format!("artifact: {what} was changed while the server runs")
            }
            Observed::Attempted { kind: "file", what, violation: true, .. } => {
                format!("file: it asked for {what}, which is none of its business")
            }
            Observed::Attempted { kind, what, violation: true, .. } => format!("{kind}: it tried {what}"),
            _ => return,
        };
        // One escape may be noticed in several ways; it is ended once.
        if !ended.swap(true, Ordering::AcqRel) {
            process::sweep(group);
            events.emit(UpstreamEvent::Escaped { reason });
        }
    };
    let outward = if doors.substitutes() {
        Some(crate::tls::private_http(probe.settings.authorities.as_deref())?)
    } else {
        None
    };
    let gate = Gate::open(doors, probe.settings.hosts.clone(), outward, Box::new(told));
    gate.map_err(|error| UpstreamError::unavailable(format!("the server cannot be watched: {error}")))
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.ended_by_us.store(true, Ordering::Release);
        self.closing.send_replace(true);
    }
}

/// Resolves when the connection is to end.
async fn told(close: &mut watch::Receiver<bool>) {
    let _ = close.wait_for(|close| *close).await;
}

/// Writes frames until told to stop; then the child's input closes.
async fn write(
    mut stdin: ChildStdin,
    mut frames: mpsc::Receiver<Outgoing>,
    mut close: watch::Receiver<bool>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut text = Vec::new();
    loop {
        tokio::select! {
            count = frames.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = told(&mut close) => return,
        }
        text.clear();
        for frame in batch.drain(..) {
            text.extend_from_slice(&frame.bytes);
            text.push(b'\n');
        }
        // A child that stops reading must not keep us from closing.
        let written = tokio::select! {
            written = stdin.write_all(&text) => written,
            () = told(&mut close) => return,
        };
        if written.is_err() {
            return;
        }
        if text.capacity() > MESSAGE_LIMIT / 16 {
            text = Vec::new();
        }
    }
}

/// Reads lines until the output ends.
pub(crate) async fn read(mut stdout: impl AsyncRead + Unpin, desk: Arc<Desk>, closing: watch::Sender<bool>) {
    let mut buffer = BytesMut::with_capacity(READ);
    let mut searched = 0;
    let mut skipping = false;
    loop {
        while let Some(at) = memchr::memchr(b'\n', &buffer[searched..]) {
            let line = buffer.split_to(searched + at + 1);
            searched = 0;
            if !std::mem::take(&mut skipping) {
                desk.line(&line.freeze());
            }
        }
        searched = buffer.len();
        if searched > MESSAGE_LIMIT {
            if !skipping {
                desk.overlong(&buffer);
                skipping = true;
            }
            buffer.clear();
            searched = 0;
        }
        buffer.reserve(READ.max(searched.min(READ * 16)));
        match stdout.read_buf(&mut buffer).await {
            Ok(1..) => {}
            Ok(0) | Err(_) => break,
        }
    }
    // Without output the server is of no use, even if it still runs. Who waits is told why by whoever learns how it ended.
    closing.send_replace(true);
}

/// Who hears what a child says, until it says no more.
struct Heard {
    reader: JoinHandle<()>,
    listener: JoinHandle<()>,
    words: LastWords,
}

/// Waits for the child's end, or brings it about.
async fn keep(
    mut child: Child,
    cage: Cage,
    mut close: watch::Receiver<bool>,
    grace: Duration,
    heard: Heard,
    desk: Arc<Desk>,
    (ended, by_us): (watch::Sender<Option<String>>, Arc<AtomicBool>),
) {
    let group = process::group_of(&child);
    let status = tokio::select! {
        status = child.wait() => status,
        () = told(&mut close) => match timeout(DYING, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                if !by_us.load(Ordering::Acquire) {
                    desk.pending.close("the server closed its output");
                }
                process::end(&mut child, group, grace).await
            }
        },
    };
    process::sweep(group);
    let reason = process::epitaph(status, &cage.cgroup);
    // Waits for the last processes of the group to go.
    tokio::task::spawn_blocking(move || drop(cage));
    // What it said before it died still counts.
    let _ = timeout(grace, heard.reader).await;
    desk.pending.close(&reason);
    let _ = timeout(grace, heard.listener).await;
    // SBX-54: what it wrote after its answer is found now.
    if heard.words.take_echo() {
        let reason = "it wrote a credential to stderr that was lent to a call".into();
        desk.events.emit(UpstreamEvent::Escaped { reason });
    }
    let words = Some(heard.words.bytes());
    let expected = by_us.load(Ordering::Acquire);
    desk.events.emit(UpstreamEvent::Exited { reason: reason.clone(), words, expected });
    ended.send_replace(Some(reason));
}
