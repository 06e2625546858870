//! One exchange, whatever carries it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use portcullis_governance::boundary::{CancellationSignal, Outcome, TransmitFailure, ValidatedPermit};

use portcullis_sandbox::Gate;
use portcullis_sandbox::broker::SecretFiles;

use crate::beside::Beside;
use crate::desk::Desk;
use crate::http::HttpLink;
use crate::legacy_sse::LegacySseLink;
use crate::records::RecordsLink;
use crate::stdio::StdioLink;

/// No message may be longer, whatever a tool's own limit (PRO-36).
pub(crate) const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;
/// What may stand around a result: the envelope, and metadata beside it.
pub(crate) const ENVELOPE_ALLOWANCE: usize = 64 * 1024;
/// How much of an answer that is too long is kept as evidence.
pub(crate) const PREFIX_KEPT: usize = 64 * 1024;

/// A request to send and how long to wait for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub(crate) id: u64,
    /// The call it is, if it is one.
    pub(crate) call: Option<&'a ValidatedPermit>,
    pub(crate) bytes: &'a Bytes,
    pub(crate) method: &'a str,
    /// The tool, where the method has one.
    pub(crate) name: Option<&'a str>,
    /// Arguments that headers repeat.
    pub(crate) mirrored: &'a [(String, String)],
    pub(crate) timeout: Duration,
    pub(crate) max_response_bytes: usize,
    pub(crate) attendant: Option<&'a Arc<dyn Beside>>,
    /// Credentials, where there are headers. They are no part of the frame, and so of no evidence (SBX-52).
    pub(crate) headers: &'a [(HeaderName, HeaderValue)],
}

impl<'a> Exchange<'a> {
    pub(crate) fn of(
        permit: &'a ValidatedPermit,
        attendant: Option<&'a Arc<dyn Beside>>,
        headers: &'a [(HeaderName, HeaderValue)],
    ) -> Self {
        let frame = permit.frame();
        Self {
            id: frame.id,
            call: Some(permit),
            bytes: &frame.bytes,
            method: frame.method,
            name: frame.name.as_deref(),
            mirrored: &frame.mirrored,
            timeout: permit.timeout(),
            max_response_bytes: permit.max_response_bytes(),
            attendant,
            headers,
        }
    }
}

/// What came of an exchange.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The protocol's answer, or none.
    Of(Outcome),
    /// HTTP: the session is no longer known; the server did not look at the request.
    SessionExpired,
    /// HTTP: an answer that is not the protocol's.
    Status(u16),
    /// HTTP: we are not let in with what we showed; and what a login should cover, if the server says.
    Locked { status: u16, scope: Option<String> },
}

impl Answer {
    pub(crate) fn failed(failure: TransmitFailure) -> Self {
        Self::Of(Outcome::Failed(failure))
    }

    pub(crate) fn unavailable(reason: impl Into<String>, sent: bool) -> Self {
        Self::failed(TransmitFailure::Unavailable { reason: reason.into(), sent })
    }

    pub(crate) fn protocol(reason: impl Into<String>) -> Self {
        Self::failed(TransmitFailure::Protocol { reason: reason.into() })
    }
}

/// The result or error of a response, held to the caller's limit.
pub(crate) fn within(limit: usize, outcome: Result<Bytes, Bytes>) -> Outcome {
    let (Ok(raw) | Err(raw)) = &outcome;
    if raw.len() > limit {
        return too_large(raw.len(), raw);
    }
    match outcome {
        Ok(result) => Outcome::Result(result),
        Err(error) => Outcome::RpcError(error),
    }
}

pub(crate) fn too_large(bytes: usize, head: &[u8]) -> Outcome {
    Outcome::TooLarge { bytes, prefix: Bytes::copy_from_slice(&head[..head.len().min(PREFIX_KEPT)]) }
}

/// A carrier of exchanges.
#[derive(Debug)]
pub(crate) enum Link {
    Stdio(StdioLink),
    Http(HttpLink),
    LegacySse(LegacySseLink),
    Records(Box<RecordsLink>),
}

/// What carries messages: one stream for all calls, single posts, or nothing but function calls.
enum Carrier<'l> {
    Desk(&'l Arc<Desk>),
    Http(&'l HttpLink),
    Records(&'l RecordsLink),
}

impl Link {
    fn carrier(&self) -> Carrier<'_> {
        match self {
            Link::Stdio(link) => Carrier::Desk(link.desk()),
            Link::LegacySse(link) => Carrier::Desk(link.desk()),
            Link::Http(link) => Carrier::Http(link),
            Link::Records(link) => Carrier::Records(link),
        }
    }

    /// Who watches a process of ours.
    pub(crate) fn gate(&self) -> Option<&Gate> {
        match self {
            Link::Stdio(link) => Some(link.gate()),
            Link::Http(_) | Link::LegacySse(_) | Link::Records(_) => None,
        }
    }

    /// The files for credentials of a process of ours.
    pub(crate) fn files(&self) -> Option<&SecretFiles> {
        match self {
            Link::Stdio(link) => Some(link.files()),
            Link::Http(_) | Link::LegacySse(_) | Link::Records(_) => None,
        }
    }

    /// Ends a process of ours at once.
    pub(crate) fn kill(&self) {
        if let Link::Stdio(link) = self {
            link.kill();
        }
    }

    pub(crate) async fn exchange(&self, exchange: Exchange<'_>, cancel: CancellationSignal) -> Answer {
        match self.carrier() {
            Carrier::Desk(desk) => Answer::Of(desk.exchange(exchange, cancel).await),
            Carrier::Http(link) => link.exchange(exchange, cancel).await,
            Carrier::Records(link) => link.exchange(exchange, cancel).await,
        }
    }

    /// Sends something that has no answer.
    pub(crate) async fn notify(&self, bytes: Bytes) {
        match self.carrier() {
            Carrier::Desk(desk) => desk.notify(bytes),
            Carrier::Http(link) => link.notify(bytes).await,
            Carrier::Records(_) => {}
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self.carrier() {
            Carrier::Desk(desk) => !desk.pending.is_closed(),
            Carrier::Http(link) => link.is_open(),
            Carrier::Records(_) => true,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        match self.carrier() {
            Carrier::Desk(desk) => desk.pending.len(),
            Carrier::Http(link) => link.in_flight(),
            Carrier::Records(link) => link.in_flight(),
        }
    }

    /// Lets calls under way end for a while, then ends the connection and everything behind it.
    pub(crate) async fn close(&self, drain: Duration) {
        match self {
            Link::Stdio(link) => link.close(drain).await,
            Link::Http(link) => link.close(drain).await,
            Link::LegacySse(link) => link.close(drain).await,
            // Nothing is open between calls.
            Link::Records(_) => {}
        }
    }
}
