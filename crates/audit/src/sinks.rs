//! Checkpoints kept elsewhere (AUD-34): what an attacker on this host cannot take back.
//!
//! A thread of its own hands the newest checkpoint to every sink, at most one per interval. A sink that fails is
//! said and tried again with the next checkpoint; no call and no commit ever waits for one.

use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{AtPath as _, AuditError};
use crate::note::SignedCheckpoint;

/// Where checkpoints go besides the log's own folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sink {
    /// A file, replaced whole each time; best on another host's disk.
    File(PathBuf),
    /// The system's log.
    Syslog,
    /// A program that gets the checkpoint on its standard input.
    Command(Vec<String>),
}

/// The text names no sink.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a sink: expected file:PATH, syslog or command:PROGRAM ARGUMENTS")]
pub struct SinkError;

impl FromStr for Sink {
    type Err = SinkError;
    fn from_str(text: &str) -> Result<Self, SinkError> {
        match text.split_once(':') {
            None if text == "syslog" => Ok(Sink::Syslog),
            Some(("file", path)) if Path::new(path).is_absolute() => Ok(Sink::File(path.into())),
            Some(("command", command)) if !command.trim().is_empty() => {
                Ok(Sink::Command(command.split_whitespace().map(ToOwned::to_owned).collect()))
            }
            _ => Err(SinkError),
        }
    }
}

impl Sink {
    /// The size of the checkpoint it has, if it can be asked: a log shorter than that was cut (AUD-61).
    pub(crate) fn promised(&self) -> Option<(PathBuf, u64)> {
        let Sink::File(path) = self else { return None };
        let note: SignedCheckpoint = std::fs::read_to_string(path).ok()?.parse().ok()?;
        Some((path.clone(), note.checkpoint.size))
    }

    fn take(&self, checkpoint: &SignedCheckpoint) -> std::io::Result<()> {
        match self {
            Sink::File(path) => {
                let new = path.with_added_extension("new");
                let mut file = std::fs::File::create(&new)?;
                file.write_all(checkpoint.to_string().as_bytes())?;
                file.sync_all()?;
                std::fs::rename(&new, path)
            }
            Sink::Syslog => {
                let line = checkpoint.to_string().trim_end().replace('\n', "\\n");
                let socket = UnixDatagram::unbound()?;
                // facility authpriv, severity notice
                socket.send_to(format!("<85>portcullis: checkpoint {line}").as_bytes(), "/dev/log").map(drop)
            }
            Sink::Command(command) => {
                let mut child = Command::new(&command[0])
                    .args(&command[1..])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?;
                if let Some(mut stdin) = child.stdin.take() {
                    stdin.write_all(checkpoint.to_string().as_bytes())?;
                }
                let status = child.wait()?;
                if status.success() {
                    Ok(())
                } else {
                    Err(std::io::Error::other(format!("it ended with {status}")))
                }
            }
        }
    }
}

/// The newest checkpoint, on its way to the sinks.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    newest: Option<SignedCheckpoint>,
    closed: bool,
}

/// What came out of an outbox.
pub(crate) enum Next {
    Checkpoint(SignedCheckpoint),
    /// Nothing before the deadline.
    Nothing,
    /// There will be none.
    Closed,
}

impl Outbox {
    pub(crate) fn put(&self, checkpoint: &SignedCheckpoint) {
        self.lock().newest = Some(checkpoint.clone());
        self.changed.notify_all();
    }

    /// What is there is still delivered.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for a checkpoint, until a deadline if there is one.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Next {
        let mut state = self.lock();
        loop {
            if let Some(newest) = state.newest.take() {
                return Next::Checkpoint(newest);
            }
            if state.closed {
                return Next::Closed;
            }
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Nothing;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets the interval pass, unless the log is closed meanwhile.
    pub(crate) fn rest(&self, until: Instant) {
        let mut state = self.lock();
        while !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts delivering what is put into `outbox`; ends after it is closed.
pub(crate) fn deliver(
    sinks: Vec<Sink>,
    interval: Duration,
    outbox: Arc<Outbox>,
) -> Result<JoinHandle<()>, AuditError> {
    let run = move || {
        while let Next::Checkpoint(checkpoint) = outbox.next(None) {
            let begun = Instant::now();
            for sink in &sinks {
                if let Err(error) = sink.take(&checkpoint) {
                    tracing::warn!(?sink, "a checkpoint of the audit log was not taken: {error}");
                }
            }
            outbox.rest(begun + interval);
        }
    };
    std::thread::Builder::new().name("audit-sinks".into()).spawn(run).at(Path::new("audit-sinks"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_named_by_its_kind() {
        // AUD-34
        assert_eq!("syslog".parse(), Ok(Sink::Syslog));
        assert_eq!("file:/mnt/x/cp".parse(), Ok(Sink::File("/mnt/x/cp".into())));
        assert_eq!(
            "command:/bin/push --to x".parse(),
            Ok(Sink::Command(vec!["/bin/push".into(), "--to".into(), "x".into()]))
        );
        for bad in ["file:relative", "command: ", "mail:me", ""] {
            assert_eq!(bad.parse::<Sink>(), Err(SinkError), "{bad}");
        }
    }
}
