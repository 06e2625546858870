//! What a process was seen trying, and whether that is the end of it (SBX-60).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use crate::notify::Attempt;

/// Hears of attempts from wherever they are noticed. What counts is set down at once; telling others may take longer.
#[derive(Debug)]
pub(crate) struct Sentry {
    /// Set when the program is let go: what the self-test tries is no attempt of its.
    armed: AtomicBool,
    escaped: OnceLock<&'static str>,
    expected: Vec<String>,
    tell: mpsc::UnboundedSender<Attempt>,
}

impl Sentry {
    /// A sentry, and what it tells. `expected` are addresses that are asked for in vain and that nobody minds (SBX-49).
    pub(crate) fn new(expected: &[String]) -> (Self, mpsc::UnboundedReceiver<Attempt>) {
        let (tell, told) = mpsc::unbounded_channel();
        let sentry = Self {
            armed: AtomicBool::new(false),
            escaped: OnceLock::new(),
            expected: expected.to_vec(),
            tell,
        };
        (sentry, told)
    }

    /// From here on it counts.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Release);
    }

    /// Something was tried.
    pub(crate) fn saw(&self, attempt: Attempt) {
        if !self.armed.load(Ordering::Acquire) {
            return;
        }
        if let Some(kind) = self.kind(&attempt) {
            self.found(kind);
        }
        let _ = self.tell.send(attempt);
    }

    /// The process has left its scopes.
    pub(crate) fn found(&self, kind: &'static str) {
        let _ = self.escaped.set(kind);
    }

    /// How it did so first, if it did.
    pub(crate) fn escaped(&self) -> Option<&'static str> {
        self.escaped.get().copied()
    }

    /// What kind of violation an attempt is; none if it is none.
    pub(crate) fn kind(&self, attempt: &Attempt) -> Option<&'static str> {
        match attempt {
            Attempt::Address(to, _) if self.expects(&to.to_string()) => None,
            Attempt::Address(..) => Some("egress"),
            Attempt::Call(_) => Some("syscall"),
            Attempt::Probe(_) => None,
            Attempt::Bait(_) => Some("bait"),
            Attempt::Artifact(_) => Some("artifact"),
            Attempt::File(_) => Some("file"),
        }
    }

    /// Whether a denial of this target is expected.
    pub(crate) fn expects(&self, target: &str) -> bool {
        self.expected.iter().any(|known| known.eq_ignore_ascii_case(target))
    }
}
