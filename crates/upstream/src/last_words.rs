//! What a child says on stderr: the last 64 KiB of it (PRO-36). Hostile text, kept for operators, without the credentials that
//! were lent to the child's calls (SBX-54).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portcullis_core::name::printable;
use portcullis_core::scrub::scrub;
use portcullis_sandbox::broker::Echoes;
use tokio::io::{AsyncRead, AsyncReadExt as _};

const KEPT: usize = 64 * 1024;
/// So many sets of credentials are looked for; a child that is told a value itself has one call, and so one set.
const MOST_SETS: usize = 8;

/// The end of everything a child wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    ring: VecDeque<u8>,
    /// What must not be in it.
    lent: VecDeque<Arc<Echoes>>,
    /// Whether somebody was told that it was.
    told: bool,
}

impl LastWords {
    /// Reads to the end, forgetting the beginning. A child whose stderr nobody reads would block on it.
    pub(crate) async fn record(self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 8 * 1024];
        while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
            let ring = &mut self.lock().ring;
            ring.extend(&chunk[..read]);
            let surplus = ring.len().saturating_sub(KEPT);
            ring.drain(..surplus);
        }
    }

    /// From now on these are looked for.
    pub(crate) fn must_not_hold(&self, lent: &Arc<Echoes>) {
        let known = &mut self.lock().lent;
        known.push_back(Arc::clone(lent));
        if known.len() > MOST_SETS {
            known.pop_front();
        }
    }

    /// Whether a credential was found in it that nobody was told of yet.
    pub(crate) fn take_echo(&self) -> bool {
        let mut words = self.lock();
        let said: Vec<u8> = words.ring.iter().copied().collect();
        let heard = words.lent.iter().any(|lent| lent.heard_in(&said));
        heard && !std::mem::replace(&mut words.told, true)
    }

    /// All that is kept, with marks in the place of credentials.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let words = self.lock();
        let said: Vec<u8> = words.ring.iter().copied().collect();
        words.lent.iter().fold(said, |said, lent| lent.taken_out_of(&said).unwrap_or(said))
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

    fn lock(&self) -> MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_lent_is_not_in_what_is_kept() {
        // SBX-54
        let secret = portcullis_sandbox::broker::Secret::take(b"canary-value".to_vec()).unwrap();
        let echoes = Arc::new(Echoes::of([("issues.read", &secret)]).unwrap());
        let words = LastWords::default();
        words.clone().record(&b"token is canary-value, in hex 63616e6172792d76616c7565\n"[..]).await;
        assert!(!words.take_echo());
        words.must_not_hold(&echoes);
        assert_eq!(words.text(), "token is [credential:issues.read], in hex [credential:issues.read]\n");
        assert!(words.take_echo() && !words.take_echo());
    }

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
