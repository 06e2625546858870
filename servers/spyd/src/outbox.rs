//! Where answers go. A handler writes text into an outbox and does not know whether it becomes a line of stdout or an
//! event of an HTTP response; the transport at the other end of the channel does.

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

/// One piece of output.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A message, or something that should have been one.
    Text {
        /// Without a newline.
        text: String,
        /// To be written in small pieces.
        split: bool,
    },
    /// Tells, through the sender, that everything before it was written.
    Flushed(oneshot::Sender<()>),
}

/// The sending end; cheap to clone. The output ends when every clone is gone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox(mpsc::UnboundedSender<Outgoing>);

impl Outbox {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Outgoing>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, message: &Value) {
        self.send_text(message.to_string(), false);
    }

    /// What was said to nobody is lost, as on a closed pipe.
    pub(crate) fn send_text(&self, text: String, split: bool) {
        let _ = self.0.send(Outgoing::Text { text, split });
    }

    /// Returns when everything sent so far was written, or cannot be any more.
    pub(crate) async fn flushed(&self) {
        let (sender, receiver) = oneshot::channel();
        let _ = self.0.send(Outgoing::Flushed(sender));
        let _ = receiver.await;
    }

    /// Returns when nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}
