//! The table at which the answers of one stream are handed out.
//!
//! A child process and a server of the first revision over HTTP have this in common: one stream carries everything
//! they say, answers, questions and news, for all calls at once.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use portcullis_core::Sha256Digest;
use portcullis_core::jsonrpc::{self, Kind, Message};
use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure, ValidatedPermit};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::beside::Unanswered;
use crate::event::{Events, UpstreamEvent};
use crate::frame::Frames;
use crate::link::{Exchange, too_large, within};
use crate::pending::{Addressee, Attending, Pending};

/// How many frames may wait to be written. A server that reads nothing must not make us hold more.
const QUEUE: usize = 1_024;

/// What the tasks share: where answers go, and where ours leave.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) pending: Pending,
    outbox: mpsc::Sender<Outgoing>,
    pub(crate) events: Events,
    /// A request that stays open and whose answer, if it ever comes, only says that it is over.
    subscription: OnceLock<u64>,
}

/// A message on its way to the server.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub(crate) bytes: Bytes,
    /// Credentials, for carriers that have headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

impl<B: Into<Bytes>> From<B> for Outgoing {
    fn from(bytes: B) -> Self {
        Self { bytes: bytes.into(), headers: Vec::new() }
    }
}

impl Desk {
    /// A table, and what is to be written to the server.
    pub(crate) fn new(events: Events) -> (Arc<Self>, mpsc::Receiver<Outgoing>) {
        let (outbox, frames) = mpsc::channel(QUEUE);
        let desk = Self { pending: Pending::default(), outbox, events, subscription: OnceLock::new() };
        (Arc::new(desk), frames)
    }

    /// Sends a request and waits for its answer. Whoever stops waiting, by time, by cancellation or by dropping
    /// this future, is taken off the table, and the server is told.
    pub(crate) async fn exchange(&self, exchange: Exchange<'_>, mut cancel: CancellationSignal) -> Outcome {
        let Exchange { id, call, bytes, method, timeout, max_response_bytes, attendant, headers, .. } =
            exchange;
        let answer = match self.pending.register(
            id,
            max_response_bytes,
            attendant.cloned(),
            call.map(ValidatedPermit::of_call),
        ) {
            Ok(answer) => answer,
            Err(reason) => return unavailable(reason, false),
        };
        // The one request that may not be cancelled opens the session.
        let mut waiting = StillWaiting { desk: self, id, tell: method != "initialize" };
        let outgoing = Outgoing { bytes: bytes.clone(), headers: headers.to_vec() };
        if self.outbox.try_send(outgoing).is_err() {
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
        let _ = self.outbox.try_send(bytes.into());
    }

    /// Sends the one request that is not waited for.
    pub(crate) fn subscribe(&self, id: u64, bytes: Bytes) {
        if self.subscription.set(id).is_ok() {
            self.notify(bytes);
        }
    }

    /// Takes one message of the server's.
    pub(crate) fn line(self: &Arc<Self>, line: &Bytes) {
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
            Kind::Notification { method: "notifications/resources/updated" } => {
                self.events.followed().updated(message.params);
            }
            Kind::Notification { method: "notifications/subscriptions/acknowledged" } => {
                self.events.followed().acknowledged(message.params);
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
            // Not late: it ends a subscription that we ended.
            Addressee::GaveUp(_) if id.is_some_and(|id| self.events.followed().is_over(id)) => {}
            Addressee::GaveUp(call) => {
                let answer = match outcome(usize::MAX) {
                    Outcome::Result(raw) | Outcome::RpcError(raw) => raw,
                    Outcome::TooLarge { prefix, .. } => prefix,
                    Outcome::Escaped { .. } | Outcome::PassedOn | Outcome::Failed(_) => Bytes::new(),
                };
                let (bytes, sha256) = (answer.len(), Sha256Digest::of(&answer));
                self.events.emit(UpstreamEvent::LateAnswer { call, bytes, sha256 });
            }
            Addressee::Nobody => self.events.emit(UpstreamEvent::UnknownId),
        }
    }

    /// A line that will not be read to its end. If its beginning says whose it is, that call is over; others go on.
    pub(crate) fn overlong(&self, head: &[u8]) {
        self.events.violation("a line longer than 16 MiB");
        if let Some(id) = leading_id(head) {
            self.answer(Some(id), |_| too_large(head.len(), head));
        }
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
            let _ = self.desk.outbox.try_send(Frames::cancelled(self.id).into());
        }
    }
}

fn unavailable(reason: String, sent: bool) -> Outcome {
    Outcome::Failed(TransmitFailure::Unavailable { reason, sent })
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
