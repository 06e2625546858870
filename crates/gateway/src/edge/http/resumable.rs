//! Streams of events that a legacy client can come back to (PRO-31, T-PRO-8).
//!
//! Every event has an id that says which stream it is of and where in it. What was sent is kept for a while, within
//! bounds; a client that lost its connection names the last event it saw and gets the rest, each once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

/// How much of a stream is kept.
const EVENTS: usize = 256;
const BYTES: usize = 1 << 20;
/// How many streams a session has at most; beyond, the oldest that is over is forgotten.
const STREAMS: usize = 64;
/// How long a client should wait before it comes back, in milliseconds.
const RETRY_MS: u32 = 500;

/// The streams of one session.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    begun: u64,
    streams: VecDeque<Arc<Resumable>>,
    /// The one that belongs to no request.
    standing: Option<Arc<Resumable>>,
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Resumable {
    number: u64,
    state: Mutex<State>,
    /// Whether somebody reads.
    attached: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
    next: u64,
    over: bool,
    reader: Option<mpsc::Sender<Bytes>>,
}

/// Why a stream cannot be gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// There is no such stream.
    Unknown,
    /// There was more than is kept.
    Forgotten,
}

impl Streams {
    /// A new stream for one request; `None` if the session has too many.
    pub(crate) fn open(&self) -> Option<Arc<Resumable>> {
        let mut open = self.lock();
        if open.streams.len() >= STREAMS {
            let over = open.streams.iter().position(|stream| stream.is_over())?;
            open.streams.remove(over);
        }
        open.begun += 1;
        let stream = Arc::new(Resumable::new(open.begun));
        open.streams.push_back(Arc::clone(&stream));
        Some(stream)
    }

    /// The stream that belongs to no request, anew: nothing is sent twice, so an older one ends.
    pub(crate) fn stand(&self) -> Option<Arc<Resumable>> {
        let stream = self.open()?;
        if let Some(earlier) = self.lock().standing.replace(Arc::clone(&stream)) {
            earlier.finish();
        }
        Some(stream)
    }

    /// Goes on after the event with this id.
    pub(crate) fn resume(&self, last_event: &str) -> Result<mpsc::Receiver<Bytes>, Lost> {
        let (number, seen) = last_event.split_once('/').ok_or(Lost::Unknown)?;
        let number: u64 = number.parse().map_err(|_| Lost::Unknown)?;
        let seen: u64 = seen.parse().map_err(|_| Lost::Unknown)?;
        let stream = self.lock().streams.iter().find(|stream| stream.number == number).cloned();
        stream.ok_or(Lost::Unknown)?.attach(seen + 1)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resumable {
    fn new(number: u64) -> Self {
        Self { number, state: Mutex::default(), attached: watch::Sender::new(false) }
    }

    /// An event without data, so that the client has something to come back with (2025-11-25).
    pub(crate) fn prime(&self) {
        self.keep(|id| format!("id: {id}\nretry: {RETRY_MS}\ndata: \n\n").into());
    }

    /// One message.
    pub(crate) fn send(&self, message: &[u8]) {
        self.keep(|id| {
            let mut text = format!("event: message\nid: {id}\ndata: ").into_bytes();
            text.extend_from_slice(message);
            text.extend_from_slice(b"\n\n");
            text.into()
        });
    }

    /// Something that need not be repeated.
    pub(crate) fn comment(&self, text: &'static str) {
        if let Some(reader) = &self.lock().reader {
            let _ = reader.try_send(Bytes::from_static(text.as_bytes()));
        }
    }

    fn keep(&self, event: impl FnOnce(String) -> Bytes) {
        let mut state = self.lock();
        let place = state.next;
        state.next += 1;
        let event = event(format!("{}/{place}", self.number));
        state.bytes += event.len();
        state.kept.push_back((place, event.clone()));
        while state.kept.len() > EVENTS || state.bytes > BYTES {
            let Some((_, dropped)) = state.kept.pop_front() else { break };
            state.bytes -= dropped.len();
        }
        // Who does not read loses the connection, not the events.
        if state.reader.as_ref().is_some_and(|reader| reader.try_send(event).is_err()) {
            self.detach(&mut state);
        }
    }

    /// Nothing more will come.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        state.over = true;
        self.detach(&mut state);
    }

    /// Ends the connection, not the stream: the client comes back for the rest.
    pub(crate) fn pause(&self) {
        self.detach(&mut self.lock());
    }

    /// Gives the reader everything from `place` on.
    pub(crate) fn attach(&self, place: u64) -> Result<mpsc::Receiver<Bytes>, Lost> {
        let mut state = self.lock();
        let oldest = state.kept.front().map_or(state.next, |(place, _)| *place);
        if place > state.next {
            return Err(Lost::Unknown);
        }
        if place < oldest {
            return Err(Lost::Forgotten);
        }
        let (sender, receiver) = mpsc::channel(2 * EVENTS);
        for (_, event) in state.kept.iter().filter(|(kept, _)| *kept >= place) {
            let _ = sender.try_send(event.clone());
        }
        if state.over {
            return Ok(receiver);
        }
        state.reader = Some(sender);
        self.attached.send_replace(true);
        Ok(receiver)
    }

    /// Resolves when nobody reads.
    pub(crate) async fn abandoned(&self) {
        let reader = self.lock().reader.clone();
        if let Some(reader) = reader {
            reader.closed().await;
        }
    }

    /// Resolves when somebody reads again.
    pub(crate) async fn rejoined(&self) {
        let mut attached = self.attached.subscribe();
        let _ = attached.wait_for(|attached| *attached).await;
    }

    /// Notes that the reader has gone, if it has.
    pub(crate) fn notice(&self) {
        let mut state = self.lock();
        if state.reader.as_ref().is_none_or(mpsc::Sender::is_closed) {
            self.detach(&mut state);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    fn detach(&self, state: &mut State) {
        state.reader = None;
        self.attached.send_replace(false);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(receiver: &mut mpsc::Receiver<Bytes>) -> Vec<String> {
        let mut events = Vec::new();
        while let Ok(event) = receiver.try_recv() {
            events.push(String::from_utf8(event.to_vec()).unwrap());
        }
        events
    }

    #[test]
    fn what_was_missed_comes_once() {
        // T-PRO-8
        let streams = Streams::default();
        let stream = streams.open().unwrap();
        let mut first = stream.attach(0).unwrap();
        stream.prime();
        stream.send(b"{\"n\":1}");
        assert_eq!(read(&mut first).len(), 2);
        drop(first);
        stream.send(b"{\"n\":2}");
        stream.send(b"{\"n\":3}");
        stream.finish();
        let mut again = streams.resume("1/1").unwrap();
        let events = read(&mut again);
        assert_eq!(events.len(), 2);
        assert!(events[0].contains("id: 1/2\n") && events[0].contains("{\"n\":2}"));
        assert!(matches!(again.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
    }

    #[test]
    fn a_stream_that_is_unknown_or_forgotten_is_said_to_be() {
        let streams = Streams::default();
        let stream = streams.open().unwrap();
        for n in 0..300 {
            stream.send(format!("{n}").as_bytes());
        }
        assert_eq!(streams.resume("1/10").unwrap_err(), Lost::Forgotten);
        assert_eq!(read(&mut streams.resume("1/289").unwrap()).len(), 10);
        for unknown in ["2/1", "1/900", "1", "x/y", "", "1/-1"] {
            assert_eq!(streams.resume(unknown).unwrap_err(), Lost::Unknown, "{unknown}");
        }
        // A single event beyond all bounds is not kept, and that is said as well.
        stream.send(&vec![b'x'; BYTES]);
        assert_eq!(streams.resume("1/299").unwrap_err(), Lost::Forgotten);
    }

    #[test]
    fn streams_that_are_over_make_room_and_others_do_not() {
        let streams = Streams::default();
        let mut open: Vec<_> = (0..STREAMS).map(|_| streams.open().unwrap()).collect();
        assert!(streams.open().is_none());
        open.remove(3).finish();
        assert!(streams.open().is_some() && streams.open().is_none());
    }

    #[test]
    fn only_one_stream_stands() {
        let streams = Streams::default();
        let first = streams.stand().unwrap();
        let second = streams.stand().unwrap();
        assert!(first.is_over() && !second.is_over());
    }
}
