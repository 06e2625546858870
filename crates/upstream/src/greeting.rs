//! Finding out which era a server speaks, and greeting it accordingly (PRO-2, PRO-62).
//!
//! A server is asked `server/discover` first. A modern one answers. Most old ones say that they know no such
//! method; some say something else, some say nothing, and one dies of the question; so anything but a recognised
//! modern answer means: try `initialize`. For a child process that is a *new* process, since many servers will not
//! hear of one era after they were spoken to in the other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use portcullis_core::ServerIdentity;
use portcullis_core::jsonrpc::RpcError;
use portcullis_governance::boundary::{CancellationSignal, Outcome, ProbeAuthority, TransmitFailure};
use portcullis_sandbox::broker::Secret;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::era::{MODERN_REVISION, legacy_revision};
use crate::event::Events;
use crate::frame::{Frames, fresh_id};
use crate::http::HttpLink;
use crate::legacy_sse::LegacySseLink;
use crate::link::{Answer, Exchange, Link, MESSAGE_LIMIT};
use crate::records::RecordsLink;
use crate::stdio::StdioLink;
use crate::{Endpoint, Era, Greeting, Settings, StdioEndpoint, UpstreamError};

/// How long to wait for a server's last words once it has failed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Who asks, whom, and by whose leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) server: &'a ServerIdentity,
    pub(crate) authority: &'a Arc<dyn ProbeAuthority>,
    pub(crate) settings: &'a Settings,
}

/// A server's answer to a listing question.
#[derive(Debug)]
pub(crate) enum Reply {
    Result(Bytes),
    Error(RpcError),
    Status(u16),
    Locked(UpstreamError),
}

/// Why an era did not work out.
enum Unfit {
    /// The other era may.
    OtherEra(UpstreamError),
    /// It is not about the era.
    Failed(UpstreamError),
}

impl Probe<'_> {
    /// Connects and greets. `remembered` is the era found last time, which spares the question.
    /// `lent` is in the environment of the process alone that is started.
    pub(crate) async fn connect(
        self,
        endpoint: &Endpoint,
        remembered: Option<Era>,
        events: &Events,
        lent: &[(String, Arc<Secret>)],
    ) -> Result<(Link, Greeting), UpstreamError> {
        let order = match remembered {
            Some(Era::Legacy) => [Era::Legacy, Era::Modern],
            _ => [Era::Modern, Era::Legacy],
        };
        let mut first_reason = None;
        for era in order {
            let attempt = match endpoint {
                Endpoint::Stdio(program) => self.open_stdio(program, (era, remembered), events, lent).await,
                Endpoint::Http(url) => {
                    let link = Link::Http(HttpLink::open(self.server, url, events.clone(), self.settings)?);
                    self.greet(&link, era, remembered).await.map(|greeting| (link, greeting))
                }
                // It is of our making, and modern.
                Endpoint::Records(_) if era == Era::Legacy => continue,
                Endpoint::Records(place) => {
                    let name = self.server.as_str();
                    let options = self.settings.records.get(name).cloned().unwrap_or_default();
                    let link = RecordsLink::new(name, place, options, self.settings, events.clone());
                    let link = Link::Records(Box::new(link));
                    self.greet(&link, era, remembered).await.map(|greeting| (link, greeting))
                }
                // What it was before sessions: no modern server speaks it.
                Endpoint::LegacySse(_) if era == Era::Modern => continue,
                Endpoint::LegacySse(url) => {
                    let link = LegacySseLink::open(self.server, url, events.clone(), self.settings).await?;
                    let link = Link::LegacySse(link);
                    self.greet(&link, era, remembered).await.map(|greeting| (link, greeting))
                }
            };
            match attempt {
                Ok(connected) => return Ok(connected),
                Err(Unfit::Failed(error)) => return Err(error),
                // What the era said that we tried second is mostly "I do not know that": the first is the reason.
                Err(Unfit::OtherEra(error)) => {
                    first_reason.get_or_insert(error);
                }
            }
        }
        Err(first_reason.unwrap_or(UpstreamError::UnknownRevision))
    }

    async fn open_stdio(
        self,
        program: &StdioEndpoint,
        (era, remembered): (Era, Option<Era>),
        events: &Events,
        lent: &[(String, Arc<Secret>)],
    ) -> Result<(Link, Greeting), Unfit> {
        let (stdio, (layers, cgroup)) =
            StdioLink::open(program, events.clone(), &self, lent).await.map_err(Unfit::Failed)?;
        self.authority.confined(self.server, &layers, cgroup);
        let link = Link::Stdio(stdio);
        match self.greet(&link, era, remembered).await {
            Ok(greeting) => Ok((link, greeting)),
            Err(unfit) => {
                let Link::Stdio(stdio) = &link else { return Err(unfit) };
                let words = match &unfit {
                    Unfit::Failed(UpstreamError::Unavailable { .. })
                    | Unfit::OtherEra(UpstreamError::Unavailable { .. }) => stdio.epitaph(LAST_WORDS).await,
                    _ => None,
                };
                // It must be gone before another one starts: they may share files.
                link.close(Duration::ZERO).await;
                Err(match (unfit, words) {
                    (Unfit::Failed(_), Some(words)) => Unfit::Failed(UpstreamError::unavailable(words)),
                    (Unfit::OtherEra(_), Some(words)) => Unfit::OtherEra(UpstreamError::unavailable(words)),
                    (unfit, None) => unfit,
                })
            }
        }
    }

    /// Opens the conversation in one era.
    async fn greet(self, link: &Link, era: Era, remembered: Option<Era>) -> Result<Greeting, Unfit> {
        if let Link::Http(http) = link {
            http.begin(era);
        }
        match era {
            Era::Modern => self.discover(link, remembered).await,
            Era::Legacy => self.initialize(link).await.map_err(|error| match error {
                // A server remembered as legacy may have been updated meanwhile.
                UpstreamError::Refused { .. } | UpstreamError::Protocol { .. } => Unfit::OtherEra(error),
                error => Unfit::Failed(error),
            }),
        }
    }

    async fn discover(self, link: &Link, remembered: Option<Era>) -> Result<Greeting, Unfit> {
        let frames = Frames::new(Era::Modern, self.settings);
        let patience = match remembered {
            Some(Era::Modern) => self.settings.handshake_timeout,
            _ => self.settings.probe_patience,
        };
        let method = "server/discover";
        let asked = async || {
            self.ask(link, method, |id| frames.discover(id), patience).await.map_err(|error| {
                match (&error, link) {
                    // Silence and death are answers of old child processes; of a web server they are just failures.
                    (UpstreamError::Timeout { .. } | UpstreamError::Unavailable { .. }, Link::Stdio(_))
                    | (UpstreamError::Protocol { .. }, _) => Unfit::OtherEra(error),
                    _ => Unfit::Failed(error),
                }
            })
        };
        let mut reply = asked().await?;
        // Whoever refuses a revision and names those it speaks is asked again in one of them, which may be the same: parts
        // of a server that is being updated differ. Once.
        if matches!(&reply, Reply::Error(error) if names_modern(error)) {
            reply = asked().await?;
        }
        match reply {
            Reply::Result(text) => match read_discovery(&text) {
                Some(greeting) => Ok(greeting),
                None => Err(Unfit::OtherEra(UpstreamError::UnknownRevision)),
            },
            // Errors that only a modern server knows: wrong header, missing capability; and wrong version, unless
            // it names only old ones.
            Reply::Error(error) if matches!(error.code, -32020 | -32021) || names_modern(&error) => {
                Err(Unfit::Failed(UpstreamError::Refused { method, code: error.code }))
            }
            Reply::Error(error) => Err(Unfit::OtherEra(UpstreamError::Refused { method, code: error.code })),
            Reply::Locked(error) => Err(Unfit::Failed(error)),
            Reply::Status(status @ (401 | 403 | 500..=599)) => Err(Unfit::Failed(http_failure(status))),
            Reply::Status(status) => Err(Unfit::OtherEra(http_failure(status))),
        }
    }

    /// Opens a legacy session; also renews one on a link that had one.
    pub(crate) async fn initialize(self, link: &Link) -> Result<Greeting, UpstreamError> {
        let frames = Frames::new(Era::Legacy, self.settings);
        let method = "initialize";
        let timeout = self.settings.handshake_timeout;
        let greeting = match self.ask(link, method, |id| frames.initialize(id), timeout).await? {
            Reply::Result(text) => read_initialization(&text)?,
            Reply::Error(error) => return Err(UpstreamError::Refused { method, code: error.code }),
            Reply::Status(status) => return Err(http_failure(status)),
            Reply::Locked(error) => return Err(error),
        };
        if let Link::Http(http) = link {
            http.agree(Era::Legacy, greeting.protocol_version);
        }
        link.notify(Frames::initialized()).await;
        Ok(greeting)
    }

    /// Asks one listing question, under a permit of its own.
    pub(crate) async fn ask(
        self,
        link: &Link,
        method: &'static str,
        frame: impl FnOnce(u64) -> Bytes,
        timeout: Duration,
    ) -> Result<Reply, UpstreamError> {
        // Recorded durably before a byte leaves (GOV-404); consumed by this one exchange.
        let permit = self.authority.authorise(self.server, method).await?;
        debug_assert_eq!(permit.method(), method);
        let id = fresh_id();
        let bytes = frame(id);
        let exchange = Exchange {
            id,
            call: None,
            bytes: &bytes,
            method,
            name: None,
            mirrored: &[],
            timeout,
            max_response_bytes: MESSAGE_LIMIT,
            attendant: None,
            headers: &[],
        };
        let (_canceller, never) = CancellationSignal::pair();
        let answer = link.exchange(exchange, never).await;
        drop(permit);
        match answer {
            Answer::Of(Outcome::Result(text)) => Ok(Reply::Result(text)),
            Answer::Of(Outcome::RpcError(text)) => serde_json::from_slice(&text)
                .map(Reply::Error)
                .map_err(|_| UpstreamError::protocol("an error without a code")),
            // Only a call that was permitted is sealed as escaped; a probe sees its server end.
            Answer::Of(Outcome::Escaped { .. }) => {
                Err(UpstreamError::unavailable("the server left its scopes"))
            }
            Answer::Of(Outcome::TooLarge { .. }) => {
                Err(UpstreamError::protocol("an answer that is too long"))
            }
            // Only a question to a client is passed on.
            Answer::Of(Outcome::PassedOn) => Err(UpstreamError::Closed),
            Answer::Of(Outcome::Failed(failure)) => Err(match failure {
                TransmitFailure::Unavailable { reason, .. } => UpstreamError::Unavailable { reason },
                TransmitFailure::Timeout => UpstreamError::Timeout { method, after: timeout },
                TransmitFailure::Protocol { reason } => UpstreamError::Protocol { reason },
                TransmitFailure::Cancelled => UpstreamError::Closed,
            }),
            Answer::SessionExpired => Err(UpstreamError::unavailable("the session expired")),
            Answer::Status(status) => Ok(Reply::Status(status)),
            Answer::Locked { status, scope } => {
                let words = locked(self.server.as_str(), status, scope.as_deref());
                Ok(Reply::Locked(UpstreamError::unavailable(words)))
            }
        }
    }
}

/// What an HTTP status that is not the protocol's means to us.
pub(crate) fn http_failure(status: u16) -> UpstreamError {
    match status {
        401 | 403 => UpstreamError::unavailable(locked("", status, None)),
        500..=599 => UpstreamError::unavailable(format!("the server failed (HTTP {status})")),
        _ => UpstreamError::protocol(format!("HTTP {status} without an answer")),
    }
}

/// What to do about a server that does not let us in (PRO-70: never what it said itself).
pub(crate) fn locked(server: &str, status: u16, scope: Option<&str>) -> String {
    match scope {
        Some(scope) => format!(
            "the server wants a login that covers {scope} (HTTP {status}); `portcullis auth login {server} --scope` asks for that"
        ),
        None => format!(
            "the server wants other credentials (HTTP {status}); `portcullis auth login` gets some where it has an issuer"
        ),
    }
}

fn names_modern(error: &RpcError) -> bool {
    #[derive(Deserialize)]
    struct Supported {
        supported: Vec<String>,
    }
    let data = error.data.as_deref().map(RawValue::get).unwrap_or_default();
    error.code == -32022
        && serde_json::from_str::<Supported>(data)
            .is_ok_and(|data| data.supported.iter().any(|version| version == MODERN_REVISION))
}

#[derive(Deserialize)]
struct Implementation {
    name: String,
    #[serde(default)]
    version: String,
}

/// `None` if this is not the answer of a modern server.
fn read_discovery(text: &[u8]) -> Option<Greeting> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovery {
        supported_versions: Vec<String>,
        capabilities: Box<RawValue>,
        #[serde(default)]
        instructions: Option<String>,
        /// Where earlier drafts of the revision had it.
        #[serde(default)]
        server_info: Option<Implementation>,
        #[serde(rename = "_meta", default)]
        meta: Meta,
    }
    #[derive(Default, Deserialize)]
    struct Meta {
        #[serde(rename = "io.modelcontextprotocol/serverInfo", default)]
        server: Option<Implementation>,
    }
    let discovery: Discovery = serde_json::from_slice(text).ok()?;
    discovery.supported_versions.iter().any(|version| version == MODERN_REVISION).then(|| {
        let (server_name, server_version) = discovery
            .meta
            .server
            .or(discovery.server_info)
            .map(|server| (server.name, server.version))
            .unzip();
        Greeting {
            era: Era::Modern,
            protocol_version: MODERN_REVISION,
            server_name,
            server_version,
            instructions: discovery.instructions,
            capabilities: discovery.capabilities,
        }
    })
}

fn read_initialization(text: &[u8]) -> Result<Greeting, UpstreamError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Initialization {
        protocol_version: String,
        capabilities: Box<RawValue>,
        #[serde(default)]
        server_info: Option<Implementation>,
        #[serde(default)]
        instructions: Option<String>,
    }
    let answer: Initialization = serde_json::from_slice(text)
        .map_err(|_| UpstreamError::protocol("an answer to initialize that is not one"))?;
    let protocol_version = legacy_revision(&answer.protocol_version).ok_or(UpstreamError::UnknownRevision)?;
    let (server_name, server_version) =
        answer.server_info.map(|server| (server.name, server.version)).unzip();
    Ok(Greeting {
        era: Era::Legacy,
        protocol_version,
        server_name,
        server_version,
        instructions: answer.instructions,
        capabilities: answer.capabilities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_nobody_knows_is_refused() {
        // PRO-62: one server in the field echoes any string
        let answer = |version: &str| {
            let text = format!(
                r#"{{"protocolVersion":"{version}","capabilities":{{}},"serverInfo":{{"name":"x"}}}}"#
            );
            read_initialization(text.as_bytes())
        };
        assert_eq!(answer("2024-11-05").unwrap().protocol_version, "2024-11-05");
        assert!(matches!(answer("2026-07-28"), Err(UpstreamError::UnknownRevision)));
        assert!(matches!(answer("banana"), Err(UpstreamError::UnknownRevision)));
        assert!(matches!(read_initialization(b"{}"), Err(UpstreamError::Protocol { .. })));
    }

    #[test]
    fn only_a_modern_answer_is_taken_for_one() {
        assert!(read_discovery(br#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#).is_some());
        assert!(read_discovery(br#"{"supportedVersions":["2025-11-25"],"capabilities":{}}"#).is_none());
        assert!(read_discovery(br"{}").is_none());
    }
}
