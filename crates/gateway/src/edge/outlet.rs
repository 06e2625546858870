//! Where what belongs to a request goes, besides its answer.

use tokio::sync::mpsc;

/// How many messages may wait for a client that does not read.
const QUEUE: usize = 256;

/// The way to the client of one request.
#[derive(Debug, Clone)]
pub(crate) enum Outlet {
    /// The client takes nothing but the answer.
    None,
    /// Lines of stdio, which the answers share.
    Lines(mpsc::UnboundedSender<Vec<u8>>),
    /// Events of this request's own stream.
    Events(mpsc::Sender<Beside>),
}

/// What happens on the stream of a request before its answer.
#[derive(Debug)]
pub(crate) enum Beside {
    /// A message for the client.
    Message(Vec<u8>),
    /// The server wants to be asked again later, and so may the client.
    Pause,
}

impl Outlet {
    /// A stream of its own.
    pub(crate) fn events() -> (Self, mpsc::Receiver<Beside>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Outlet::Events(sender), receiver)
    }

    pub(crate) fn is_open(&self) -> bool {
        match self {
            Outlet::None => false,
            Outlet::Lines(lines) => !lines.is_closed(),
            Outlet::Events(events) => !events.is_closed(),
        }
    }

    /// Sends a message; false if the client cannot take it. Never waits: who does not read loses notifications.
    pub(crate) fn send(&self, message: Vec<u8>) -> bool {
        match self {
            Outlet::None => false,
            Outlet::Lines(lines) => lines.send(message).is_ok(),
            Outlet::Events(events) => events.try_send(Beside::Message(message)).is_ok(),
        }
    }

    /// Passes on that a server let its stream end to be asked again.
    pub(crate) fn pause(&self) {
        if let Outlet::Events(events) = self {
            let _ = events.try_send(Beside::Pause);
        }
    }
}
