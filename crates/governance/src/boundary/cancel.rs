//! Cancelling a call under way.

/// Tells a call under way that its caller has gone.
#[derive(Debug, Clone)]
pub struct CancellationSignal(tokio::sync::watch::Receiver<bool>);

/// Cancels the calls that hold the signal.
#[derive(Debug)]
pub struct Canceller(tokio::sync::watch::Sender<bool>);

impl CancellationSignal {
    /// A canceller and its signal.
    pub fn pair() -> (Canceller, CancellationSignal) {
        let (sender, receiver) = tokio::sync::watch::channel(false);
        (Canceller(sender), CancellationSignal(receiver))
    }

    /// Resolves when the call is cancelled; never, if the canceller is dropped without cancelling.
    pub async fn cancelled(&mut self) {
        if self.0.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Whether it is cancelled already.
    pub fn is_cancelled(&self) -> bool {
        *self.0.borrow()
    }
}

impl Canceller {
    /// Cancels.
    pub fn cancel(&self) {
        self.0.send_replace(true);
    }
}
