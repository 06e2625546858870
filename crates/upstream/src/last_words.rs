//! What a child says on stderr: the last 64 KiB of it (PRO-36). Hostile text, kept for operators.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::name::printable;
use portcullis_core::scrub::scrub;
use tokio::io::{AsyncRead, AsyncReadExt as _};

const KEPT: usize = 64 * 1024;

/// The end of everything a child wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    /// Reads to the end, forgetting the beginning. A child whose stderr nobody reads would block on it.
    pub(crate) async fn record(self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            let mut ring = self.lock();
            ring.extend(&chunk[..read]);
            let surplus = ring.len().saturating_sub(KEPT);
            ring.drain(..surplus);
        }
    }

    /// All that is kept.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.lock().iter().copied().collect()
    }

    /// All that is kept, as far as it is text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The last line that says something, without secrets, quoted and escaped.
    pub(crate) fn last_line(&self) -> Option<String> {
        let text = self.text();
        text.lines().rev().find(|line| !line.trim().is_empty()).map(|line| printable(&scrub(line.trim())))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_is_kept_and_the_beginning_is_not() {
        // PRO-36
        let words = LastWords::default();
        let mut said = vec![b'x'; 3 * KEPT];
        said.extend_from_slice(b"\nfatal: \x1b[31mno token=abc\n\n");
        words.clone().record(said.as_slice()).await;
        assert_eq!(words.text().len(), KEPT);
        assert_eq!(words.last_line().unwrap(), r#""fatal: \u{1b}[31mno token=***""#);
        assert_eq!(LastWords::default().last_line(), None);
    }
}
