//! How long a connection may keep the listener waiting: for the rest of a request that has begun to arrive, for the next one
//! (PRO-31), and for an answer to be read. Whoever sends a byte now and then holds a connection no longer than whoever
//! sends none.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::body::Body;

/// What a connection is doing, and since when.
#[derive(Debug, Clone, Copy)]
enum Phase {
    /// A head is on its way, or the first one should be.
    Arriving(Instant),
    /// A request is being answered. Whoever does that looks after its body.
    Serving,
    /// Between two requests.
    Idle(Instant),
}

/// The life of one connection.
#[derive(Debug)]
pub(super) struct Pulse(watch::Sender<State>);

#[derive(Debug, Clone, Copy)]
struct State {
    phase: Phase,
    /// Since when nothing more of an answer can be sent, because nobody reads it.
    stuck: Option<Instant>,
}

impl Pulse {
    /// A connection was made: its first request is expected.
    pub(super) fn begin() -> Arc<Self> {
        let phase = Phase::Arriving(Instant::now());
        Arc::new(Self(watch::Sender::new(State { phase, stuck: None })))
    }

    /// A request has arrived; it is being answered until what is given back is dropped.
    pub(super) fn serve(pulse: &Arc<Self>) -> Served {
        pulse.enter(Phase::Serving);
        Served(Arc::clone(pulse))
    }

    fn enter(&self, phase: Phase) {
        self.0.send_modify(|state| state.phase = phase);
    }

    fn heard(&self) {
        self.0.send_if_modified(|state| {
            let begins = matches!(state.phase, Phase::Idle(_));
            if begins {
                state.phase = Phase::Arriving(Instant::now());
            }
            begins
        });
    }

    fn stuck(&self, since: Option<Instant>) {
        self.0.send_modify(|state| state.stuck = since);
    }

    /// Resolves when a request took too long to arrive, none came for too long, or an answer was not read.
    pub(super) async fn exhausted(&self, read: Duration, idle: Duration) {
        let mut states = self.0.subscribe();
        loop {
            let State { phase, stuck } = *states.borrow_and_update();
            let until = match phase {
                Phase::Arriving(since) => Some(since + read),
                Phase::Idle(since) => Some(since + idle),
                Phase::Serving => None,
            };
            // An answer may have left its maker and still be on its way.
            let until = until.into_iter().chain(stuck.map(|since| since + read)).min();
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = states.changed() => {}
                () = over => return,
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Served(Arc<Pulse>);

impl Served {
    /// The body of its answer: it is answered when that has been sent.
    pub(super) fn with(self, body: Body) -> Answering {
        Answering { body, _served: self }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle(Instant::now()));
    }
}

/// A body on its way.
pub(super) struct Answering {
    body: Body,
    _served: Served,
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream whose first bytes after a pause are noticed.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    pulse: Arc<Pulse>,
    is_stuck: bool,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, pulse: Arc<Pulse>) -> Self {
        Self { stream, pulse, is_stuck: false }
    }

    /// Notes whether something of an answer could be sent.
    fn sent(&mut self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_pending() != self.is_stuck {
            self.is_stuck = written.is_pending();
            self.pulse.stuck(self.is_stuck.then(Instant::now));
        }
        written
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, into);
        if into.filled().len() > before {
            this.pulse.heard();
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.sent(written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.sent(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
