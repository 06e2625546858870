//! A child process as a connection: a line in, a line out.
//!
//! Four tasks live as long as the child. One reads its output and hands each answer to the call that waits for it,
//! never waiting itself: a slow caller cannot hold up another. One writes, putting whatever has queued up
//! meanwhile into a single write. One keeps its last words. One waits for its end, and brings it about when told.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use portcullis_core::jsonrpc::{self, Kind, Message};
use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure};
use portcullis_sandbox::Layers;
use rustix::process::Pid;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::beside::Unanswered;
use crate::event::{Events, UpstreamEvent};
use crate::frame::Frames;
use crate::last_words::LastWords;
use crate::link::{Exchange, MESSAGE_LIMIT, too_large, within};
use crate::pending::{Addressee, Attending, Pending};
use crate::process::{self, Cage};
use crate::{StdioEndpoint, UpstreamError};

/// How many frames may wait to be written. A server that reads nothing must not make us hold more.
const QUEUE: usize = 1_024;
/// How many frames go into one write at most.
const BATCH: usize = 64;
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
}

/// What the tasks share: where answers go, and where ours leave.
#[derive(Debug)]
struct Desk {
    pending: Pending,
    outbox: mpsc::Sender<Bytes>,
    events: Events,
    /// A request that stays open and whose answer, if it ever comes, only says that it is over.
    subscription: OnceLock<u64>,
}

impl StdioLink {
    /// Starts the child; the second value says what confines it, if anything does.
    pub(crate) async fn open(
        endpoint: &StdioEndpoint,
        events: Events,
        grace: Duration,
    ) -> Result<(Self, Option<(Layers, &'static str)>), UpstreamError> {
        let (mut child, cage) = process::spawn(endpoint).await?;
        let confined = cage.as_ref().map(|cage| (cage.layers.clone(), cage.cgroup.version));
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(UpstreamError::unavailable("the server's pipes are missing"));
        };
        let group = process::group_of(&child);
        let (outbox, frames) = mpsc::channel(QUEUE);
        let (closing, close) = watch::channel(false);
        let (end, ended) = watch::channel(None);
        let words = LastWords::default();
        let desk =
            Arc::new(Desk { pending: Pending::default(), outbox, events, subscription: OnceLock::new() });
        tokio::spawn(words.clone().record(stderr));
        tokio::spawn(write(stdin, frames, close.clone()));
        let reader = tokio::spawn(read(stdout, Arc::clone(&desk), closing.clone()));
        tokio::spawn(keep(child, cage, close, grace, reader, Arc::clone(&desk), end));
        Ok((Self { desk, closing, ended, words, group }, confined))
    }

    /// Sends a request and waits for its answer. Whoever stops waiting, by time, by cancellation or by dropping
    /// this future, is taken off the table, and the server is told.
    pub(crate) async fn exchange(&self, exchange: Exchange<'_>, mut cancel: CancellationSignal) -> Outcome {
        let Exchange { id, bytes, method, timeout, max_response_bytes, attendant, .. } = exchange;
        let answer = match self.desk.pending.register(id, max_response_bytes, attendant.cloned()) {
            Ok(answer) => answer,
            Err(reason) => return unavailable(reason, false),
        };
        // The one request that may not be cancelled opens the session.
        let mut waiting = StillWaiting { desk: &self.desk, id, tell: method != "initialize" };
        if self.desk.outbox.try_send(bytes.clone()).is_err() {
            waiting.tell = false;
            return unavailable("the server does not read its input".into(), false);
        }
        tokio::select! {
            biased;
            answer = answer => answer.unwrap_or_else(|_| unavailable("the connection ended".into(), true)),
            () = cancel.cancelled() => Outcome::Failed(TransmitFailure::Cancelled),
            () = tokio::time::sleep(timeout) => Outcome::Failed(TransmitFailure::Timeout),
        }
    }

    pub(crate) fn notify(&self, bytes: Bytes) {
        let _ = self.desk.outbox.try_send(bytes);
    }

    /// Sends the one request that is not waited for.
    pub(crate) fn subscribe(&self, id: u64, bytes: Bytes) {
        if self.desk.subscription.set(id).is_ok() {
            self.notify(bytes);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.desk.pending.is_closed()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.desk.pending.len()
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
        self.closing.send_replace(true);
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(Option::is_some).await.map(drop);
    }
}

impl Drop for StdioLink {
    fn drop(&mut self) {
        self.closing.send_replace(true);
    }
}

/// A place in the table that is given up when its caller goes.
struct StillWaiting<'d> {
    desk: &'d Desk,
    id: u64,
    tell: bool,
}

impl Drop for StillWaiting<'_> {
    fn drop(&mut self) {
        if self.desk.pending.abandon(self.id) && self.tell {
            let _ = self.desk.outbox.try_send(Frames::cancelled(self.id));
        }
    }
}

fn unavailable(reason: String, sent: bool) -> Outcome {
    Outcome::Failed(TransmitFailure::Unavailable { reason, sent })
}

/// Resolves when the connection is to end.
async fn told(close: &mut watch::Receiver<bool>) {
    let _ = close.wait_for(|close| *close).await;
}

/// Writes frames until told to stop; then the child's input closes.
async fn write(mut stdin: ChildStdin, mut frames: mpsc::Receiver<Bytes>, mut close: watch::Receiver<bool>) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut text = Vec::new();
    loop {
        tokio::select! {
            count = frames.recv_many(&mut batch, BATCH) => if count == 0 { return },
            () = told(&mut close) => return,
        }
        text.clear();
        for frame in batch.drain(..) {
            text.extend_from_slice(&frame);
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
async fn read(mut stdout: ChildStdout, desk: Arc<Desk>, closing: watch::Sender<bool>) {
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
    // Without output the server is of no use, even if it still runs.
    desk.pending.close("the server closed its output");
    closing.send_replace(true);
}

impl Desk {
    fn line(self: &Arc<Self>, line: &Bytes) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let Some(message) = Message::read(line) else {
            return self.events.violation("a line that is not a JSON-RPC message");
        };
        match message.kind() {
            Kind::Response { id, outcome } => {
                let outcome = match outcome {
                    Ok(result) => Ok(line.slice_ref(result.get().as_bytes())),
                    Err(error) => Err(line.slice_ref(error.get().as_bytes())),
                };
                let id = id.get().parse().ok();
                if id.is_none() || id != self.subscription.get().copied() {
                    self.answer(id, |limit| within(limit, outcome));
                }
            }
            Kind::Request { id, method: "ping" } => {
                let _ = self.outbox.try_send(jsonrpc::result_response(id, b"{}").into());
            }
            Kind::Request { id, method } => self.question(id, method, message.params),
            Kind::Notification { method: method @ "notifications/progress" } => {
                if let Some(params) = message.params
                    && let Some(attendant) = progress_token(params).and_then(|id| self.pending.attendant(id))
                {
                    attendant.notified(method, params);
                }
            }
            Kind::Notification { method: method @ "notifications/message" } => {
                if let (Some(params), Attending::One(attendant)) = (message.params, self.pending.attending())
                {
                    attendant.notified(method, params);
                }
            }
            Kind::Notification {
                method:
                    "notifications/tools/list_changed"
                    | "notifications/resources/list_changed"
                    | "notifications/prompts/list_changed",
            } => {
                self.events.emit(UpstreamEvent::ListChanged);
            }
            Kind::Notification { .. } => {}
            Kind::Invalid => self.events.violation("a message that is no request, notification or response"),
        }
    }

    /// A question to the client: answered by who attends to the one call under way, or refused.
    fn question(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let attendant = match self.pending.attending() {
            Attending::One(attendant) => attendant,
            Attending::Nobody => {
                self.events.server_request(method);
                let _ = self.outbox.try_send(answered(id, Err(Unanswered::Undeclared)).into());
                return;
            }
            Attending::Several => {
                let message = "several calls are under way, and nothing says which one asks".into();
                let refusal = answered(id, Err(Unanswered::Refused { code: -32603, message }));
                let _ = self.outbox.try_send(refusal.into());
                return;
            }
        };
        let (desk, id, method) = (Arc::clone(self), id.to_owned(), method.to_owned());
        let params = params.map_or_else(empty_object, ToOwned::to_owned);
        tokio::spawn(async move {
            let answer = attendant.asked(method.clone(), params).await;
            if answer == Err(Unanswered::Undeclared) {
                desk.events.server_request(&method);
            }
            let _ = desk.outbox.send(answered(&id, answer).into()).await;
        });
    }

    /// Hands an outcome to whoever waits for it.
    fn answer(&self, id: Option<u64>, outcome: impl FnOnce(usize) -> Outcome) {
        match id.map_or(Addressee::Nobody, |id| self.pending.take(id)) {
            Addressee::Waiting(waiting) => {
                let _ = waiting.reply.send(outcome(waiting.max_response_bytes));
            }
            Addressee::GaveUp => self.events.emit(UpstreamEvent::LateAnswer),
            Addressee::Nobody => self.events.emit(UpstreamEvent::UnknownId),
        }
    }

    /// A line that will not be read to its end. If its beginning says whose it is, that call is over; others go on.
    fn overlong(&self, head: &[u8]) {
        self.events.violation("a line longer than 16 MiB");
        if let Some(id) = leading_id(head) {
            self.answer(Some(id), |_| too_large(head.len(), head));
        }
    }
}

/// The call a progress report is about: our tokens are the ids of requests.
pub(crate) fn progress_token(params: &RawValue) -> Option<u64> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: u64,
    }
    serde_json::from_str::<Progress>(params.get()).ok().map(|progress| progress.progress_token)
}

pub(crate) fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".into()).expect("an empty object")
}

/// The response to a question.
pub(crate) fn answered(id: &RawValue, answer: Result<serde_json::Value, Unanswered>) -> Vec<u8> {
    match answer {
        Ok(result) => jsonrpc::result_response(id, result.to_string().as_bytes()),
        Err(Unanswered::Undeclared) => jsonrpc::error_response::<()>(Some(id), -32601, "not available", None),
        Err(Unanswered::Refused { code, message }) => {
            jsonrpc::error_response::<()>(Some(id), code, &message, None)
        }
    }
}

/// The id of a response whose id stands before its result, as servers mostly write it.
fn leading_id(head: &[u8]) -> Option<u64> {
    let head = &head[..head.len().min(512)];
    let before_result = memchr::memmem::find(head, b"\"result\"").map_or(head, |at| &head[..at]);
    let after_key = &before_result[memchr::memmem::find(before_result, b"\"id\"")? + 4..];
    let value = after_key.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}

/// Waits for the child's end, or brings it about.
async fn keep(
    mut child: Child,
    cage: Option<Cage>,
    mut close: watch::Receiver<bool>,
    grace: Duration,
    reader: JoinHandle<()>,
    desk: Arc<Desk>,
    ended: watch::Sender<Option<String>>,
) {
    let group = process::group_of(&child);
    let status = tokio::select! {
        status = child.wait() => status,
        () = told(&mut close) => process::end(&mut child, group, grace).await,
    };
    process::sweep(group);
    // Waits for the last processes of the group to go.
    tokio::task::spawn_blocking(move || drop(cage));
    let reason = process::epitaph(status);
    // What it said before it died still counts.
    let _ = timeout(grace, reader).await;
    desk.pending.close(&reason);
    desk.events.emit(UpstreamEvent::Exited { reason: reason.clone() });
    ended.send_replace(Some(reason));
}

#[cfg(test)]
mod tests {
    use super::leading_id;

    #[test]
    fn the_owner_of_an_endless_line_is_found_where_it_is_said_first() {
        assert_eq!(leading_id(br#"{"jsonrpc":"2.0","id":42,"result":{"content":[{"ty"#), Some(42));
        assert_eq!(leading_id(br#"{"id" : 42 , "result":"#), Some(42));
        assert_eq!(leading_id(br#"{"jsonrpc":"2.0","result":{"id":7,"#), None);
        assert_eq!(leading_id(br#"{"jsonrpc":"2.0","method":"n"#), None);
        assert_eq!(leading_id(br#"{"id":"x","result"#), None);
    }
}
