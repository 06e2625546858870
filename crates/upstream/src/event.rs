//! What a server does unasked.
//!
//! Events are for the control plane: a changed list to look at, a violation to hold against the server's trust.
//! They travel on a bounded channel, and a listener that lags loses the oldest: a server that shouts must not be
//! able to fill our memory with its shouting.

use std::sync::Arc;

use portcullis_core::Sha256Digest;
use portcullis_core::name::printable;
use portcullis_governance::boundary::OfCall;
use tokio::sync::{broadcast, watch};

use crate::Snapshot;
use crate::followed::Followed;

/// Something a server did that nobody had asked for.
#[derive(Debug, Clone)]
pub enum UpstreamEvent {
    /// It says that its tools changed.
    ListChanged,
    /// Its process ended, or its connection did.
    Exited {
        /// How, in our words.
        reason: String,
        /// The end of what its process wrote to stderr, if it was a process of ours. Hostile bytes.
        words: Option<Vec<u8>>,
        /// Whether we ended it because it was not needed any more.
        expected: bool,
    },
    /// It was gone and is back; this is what it says it is now, to be compared with what was accepted.
    Reconnected {
        /// What it has.
        snapshot: Arc<Snapshot>,
    },
    /// It wrote something that is not the protocol (MP-FH-001; the third within ten minutes MP-FH-005).
    ProtocolViolation {
        /// What, in our words.
        reason: String,
    },
    /// Its certificate is valid, but its key is not the one pinned (MP-FH-009).
    OtherKey,
    /// It tried to leave its scopes (MP-FH-008).
    Escaped {
        /// How, in our words.
        reason: String,
    },
    /// It wants messages sent to another origin than the registered one (MP-FH-005).
    ForeignEndpoint,
    /// It answered something that nobody asked, or the same thing twice (MP-FH-005).
    UnknownId,
    /// Its credential is not one of a grant (REC-10).
    OwnerCredential,
    /// A gate was asked often and never decided (SURF-95).
    GateNeverDecides {
        /// Which.
        gate: String,
        /// How often nothing was known of the subject.
        unknown_subject: u64,
        /// How often the document could not be read.
        source_error: u64,
    },
    /// A gate of which that was said has decided after all.
    GateDecides {
        /// Which.
        gate: String,
    },
    /// The grant behind its credential is gone (REC-75).
    CredentialUnavailable {
        /// What the server says of it.
        code: String,
    },
    /// Its credential works again.
    CredentialUsable,
    /// It answered after its caller had given up. The answer is dropped; this is what is left of it.
    LateAnswer {
        /// The call, if it was one.
        call: Option<OfCall>,
        /// How long the answer was.
        bytes: usize,
        /// Its digest.
        sha256: Sha256Digest,
    },
    /// It asked us for something that its declaration does not allow; it was refused.
    ServerRequest {
        /// What it asked for, made printable.
        method: String,
    },
}

/// How many events a listener may be behind.
const BACKLOG: usize = 256;

/// The sending end.
#[derive(Debug, Clone)]
pub(crate) struct Events {
    sender: broadcast::Sender<UpstreamEvent>,
    changes: watch::Sender<u64>,
    followed: Arc<Followed>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Self {
            sender: broadcast::channel(BACKLOG).0,
            changes: watch::Sender::new(0),
            followed: Arc::default(),
        }
    }

    /// Events of another connection to the same server: heard by the same listeners, followed for itself.
    pub(crate) fn sibling(&self) -> Self {
        Self { sender: self.sender.clone(), ..Self::new() }
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<UpstreamEvent> {
        self.sender.subscribe()
    }

    /// Counts announced changes of the list.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Who follows which resources. Beside the events, so that a flood of updates pushes no violation out.
    pub(crate) fn followed(&self) -> &Arc<Followed> {
        &self.followed
    }

    /// An event that nobody listens for is lost, and that is fine.
    pub(crate) fn emit(&self, event: UpstreamEvent) {
        if matches!(event, UpstreamEvent::ListChanged) {
            self.changes.send_modify(|count| *count += 1);
        }
        let _ = self.sender.send(event);
    }

    pub(crate) fn violation(&self, reason: &str) {
        tracing::debug!(reason, "protocol violation by a server");
        self.emit(UpstreamEvent::ProtocolViolation { reason: reason.to_owned() });
    }

    pub(crate) fn server_request(&self, method: &str) {
        self.emit(UpstreamEvent::ServerRequest { method: printable(method) });
    }
}
