//! A child on two pipes, shared by many callers: requests are numbered here, and answers find their caller by number.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};

use crate::call::{INITIALIZED, Revision, initialize};

pub(crate) struct StdioChild {
    lines: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Arc<Waiting>,
    last_id: AtomicU64,
    /// Held for its `kill_on_drop`.
    _child: Child,
}

type Waiting = Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>;

impl StdioChild {
    /// Starts the command; its standard error is ours.
    pub(crate) fn start(command: &[OsString]) -> io::Result<Self> {
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::other("there is no command"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("the child has no pipes"));
        };
        let (lines, mut outgoing) = mpsc::unbounded_channel::<Vec<u8>>();
        tokio::spawn(async move {
            let mut batch = Vec::new();
            while outgoing.recv_many(&mut batch, 64).await > 0 {
                // Whatever is waiting leaves in one write.
                if input.write_all(&batch.concat()).await.is_err() {
                    break;
                }
                batch.clear();
            }
        });
        let waiting = Arc::<Waiting>::default();
        tokio::spawn(deliver(output, waiting.clone()));
        Ok(Self { lines, waiting, last_id: AtomicU64::new(0), _child: child })
    }

    /// Initialises in the legacy era; the modern one needs nothing.
    pub(crate) async fn open(&self, revision: Revision) -> io::Result<()> {
        if revision == Revision::Legacy {
            self.ask(initialize).await?;
            self.tell(INITIALIZED.as_bytes().to_vec());
        }
        Ok(())
    }

    /// Sends the request that `message` writes for a fresh id, and waits for its answer.
    pub(crate) async fn ask(&self, message: impl FnOnce(u64) -> String) -> io::Result<Vec<u8>> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        lock(&self.waiting).insert(id, sender);
        self.tell(message(id).into_bytes());
        receiver.await.map_err(|_| io::Error::other("the child has ended"))
    }

    /// Sends a message that wants no answer. To a child that has ended it says nothing; the next question will.
    pub(crate) fn tell(&self, mut message: Vec<u8>) {
        message.push(b'\n');
        let _ = self.lines.send(message);
    }
}

#[derive(Deserialize)]
struct Head {
    id: Option<serde_json::Number>,
    method: Option<IgnoredAny>,
}

async fn deliver(output: ChildStdout, waiting: Arc<Waiting>) {
    let mut output = BufReader::with_capacity(64 * 1024, output);
    loop {
        let mut line = Vec::new();
        if !matches!(output.read_until(b'\n', &mut line).await, Ok(1..)) {
            break;
        }
        if let Ok(Head { id: Some(id), method: None }) = serde_json::from_slice(&line)
            && let Some(caller) = id.as_u64().and_then(|id| lock(&waiting).remove(&id))
        {
            let _ = caller.send(line);
        }
    }
    // Nobody will be answered any more: dropping the senders tells the callers.
    lock(&waiting).clear();
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
