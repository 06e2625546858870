//! A server's tools, read from a session and held together with it (gauntlet §1).
//!
//! [`bind`] asks a session for its tools, all pages of them, and gives a [`Bound`]: the session, what it may be used for,
//! and its tools, in one value. There is no table in which a session is looked up, so no session can be mistaken for
//! another that is gone, and there is no way to call a tool but through the value that knows what may be called
//! (GNT-B2). The gateway binds in its own way, under declarations and permits; this is the gauntlet for those who have
//! neither.
//!
//! A tool that cannot be used is listed beside the good ones and hides none of them (GNT-B5).

#[cfg(feature = "stdio")]
mod stdio;
mod translate;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use portcullis_core::{ServerIdentity, ServerVersion};
use serde_json::{Map, Value};

use crate::sanitise::clean::Raw;
use crate::{
    Args, Capabilities, Clean, Gauntlet, GauntletError, Grants, RawResult, Requirement, SafeResult, Screened,
    ToolSpec, screen,
};

#[cfg(feature = "stdio")]
pub use stdio::{StdioParams, StdioSession};

/// CAT-40: how much a server may list.
const MAX_PAGES: usize = 1_000;
const MAX_TOOLS: usize = 20_000;
const MAX_LISTED_BYTES: usize = 64 << 20;

/// A future behind a pointer, so that sessions of any kind can be bound.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something that has tools: a connection, or a stand-in for one. It is used, never opened or closed (GNT-B1).
pub trait ToolSession: Send + Sync {
    /// The opening exchange: `initialize`, or `server/discover` where that is how one begins.
    fn initialize(&self) -> BoxFuture<'_, Result<ServerInfo, UpstreamError>>;
    /// One page of `tools/list`: the text of its result.
    fn list_tools<'a>(&'a self, cursor: Option<&'a str>) -> BoxFuture<'a, Result<RawPage, UpstreamError>>;
    /// One `tools/call`. It takes what [`screen`] let pass, so nothing else can be sent.
    fn call_tool<'a>(&'a self, screened: &'a Screened) -> BoxFuture<'a, Result<RawResult, UpstreamError>>;
}

/// What a server says about itself in the opening exchange.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerInfo {
    /// Its version.
    pub version: String,
    /// The revision of the protocol that was agreed on.
    pub protocol: String,
}

/// The text of one `tools/list` result.
pub struct RawPage(Bytes);

impl RawPage {
    /// Takes a server's text into custody.
    pub fn new(text: impl Into<Bytes>) -> Self {
        Self(text.into())
    }
}

impl std::fmt::Debug for RawPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RawPage({} bytes)", self.0.len())
    }
}

/// Why a session did not answer (gauntlet §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words say it")]
pub enum UpstreamReason {
    Error,
    Timeout,
    Unavailable,
    Protocol,
    Cancelled,
}

impl UpstreamReason {
    /// As written in error objects.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Protocol => "protocol",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A session that did not answer, or not with what was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the server did not answer: {}", reason.as_str())]
pub struct UpstreamError {
    /// Why.
    pub reason: UpstreamReason,
    /// What the server, or the transport, said.
    pub said: Option<Raw<String>>,
}

impl UpstreamError {
    /// Without any words of the server.
    pub fn new(reason: UpstreamReason) -> Self {
        Self { reason, said: None }
    }

    /// With what was said; it is shown only once it is clean.
    pub fn with(reason: UpstreamReason, said: impl Into<String>) -> Self {
        Self { reason, said: Some(Raw::new(said.into())) }
    }
}

/// What does not bind, or does not pass.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A page without a list of tools.
    #[error("the server's list of tools is not a list")]
    ListShape,
    /// A cursor that was given before.
    #[error("the server's list of tools goes round in circles")]
    CursorLoop,
    /// More than is read.
    #[error("the server lists more than {limit} {unit}")]
    ListTooLong {
        /// The limit.
        limit: usize,
        /// What was counted.
        unit: &'static str,
    },
    /// The version a server gives is none that an identity can hold.
    #[error("the server's version cannot be part of an identity")]
    Version,
    /// The first tool that was rejected, for those who want all or nothing.
    #[error("{0}")]
    Tool(Rejected),
    /// No tool of that name is bound.
    #[error("no such tool")]
    UnknownTool,
    /// The gauntlet refuses.
    #[error(transparent)]
    Gauntlet(#[from] GauntletError),
    /// The server did not answer.
    #[error("{error}")]
    Upstream {
        /// Why.
        error: UpstreamError,
        /// The tool that was called, if one was.
        tool: Option<Arc<ToolSpec>>,
        /// What was said, safe to show.
        detail: Option<Clean<String>>,
    },
}

impl BindError {
    /// The stable word, where there is one.
    pub fn violation(&self) -> Option<&'static str> {
        match self {
            Self::ListShape => Some("mcp-list-shape"),
            Self::CursorLoop => Some("mcp-list-cursor-loop"),
            Self::ListTooLong { .. } => Some("mcp-list-too-long"),
            Self::Tool(rejected) => Some(rejected.violation),
            Self::Gauntlet(error) => Some(error.violation()),
            Self::Version | Self::UnknownTool | Self::Upstream { .. } => None,
        }
    }

    /// The object of gauntlet §7.
    pub fn details(&self) -> Map<String, Value> {
        let mut details = match self {
            Self::Gauntlet(error) => return error.details(),
            _ => Map::new(),
        };
        let mut put = |key: &str, value: Value| details.insert(key.to_owned(), value);
        put("message", self.to_string().into());
        match self {
            Self::Upstream { error, tool, detail } => {
                put("kind", "upstream".into());
                put("reason", error.reason.as_str().into());
                if let Some(spec) = tool {
                    put("tool_id", spec.tool.item().name().into());
                    put("tool", spec.tool.as_str().into());
                }
                if let Some(detail) = detail {
                    put("detail", detail.get().as_str().into());
                }
            }
            _ => {
                put("kind", "validation".into());
                if let Some(violation) = self.violation() {
                    put("violation", violation.into());
                }
            }
        }
        details
    }
}

/// A tool that cannot be used, and why. No text of it is the server's, but for a name that is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its place in the whole list.
    pub index: usize,
    /// Its name, if it has one that can be shown.
    pub name: Option<String>,
    /// The stable word.
    pub violation: &'static str,
    /// What is wrong.
    pub message: String,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.name {
            Some(name) => write!(f, "tool '{name}': {}", self.message),
            None => write!(f, "tool number {}: {}", self.index, self.message),
        }
    }
}

/// What is bound, under which name, and for what.
#[derive(Debug, Clone)]
pub struct BindOptions {
    /// The operator's name for the server.
    pub server: ServerIdentity,
    /// What the server may be used for at most (GNT-C11).
    pub ceiling: Capabilities,
    /// What its tools need besides `mcp.call:<server>/<tool>`, by name (GNT-C7). Without a declaration nothing is known.
    pub permissions: BTreeMap<String, Vec<Requirement>>,
    /// The longest arguments, in bytes of text.
    pub max_request_bytes: usize,
    /// The longest result.
    pub max_response_bytes: usize,
}

impl BindOptions {
    /// The usual limits.
    pub fn new(server: ServerIdentity, ceiling: Capabilities) -> Self {
        let (max_request_bytes, max_response_bytes) = (64 << 10, 256 << 10);
        Self { server, ceiling, permissions: BTreeMap::new(), max_request_bytes, max_response_bytes }
    }
}

/// A tool as it was listed: its spec, and what a model may be told about it.
#[derive(Debug)]
pub struct BoundTool {
    /// What the gauntlet holds calls to.
    pub spec: Arc<ToolSpec>,
    /// Its title, clean.
    pub title: Option<Clean<String>>,
    /// Its description, clean.
    pub description: Option<Clean<String>>,
    /// `external`: nothing is known about what a listed tool does, so the worst is assumed.
    pub side_effects: &'static str,
    /// `must-stub`: a replay never calls it.
    pub replay_policy: &'static str,
    /// Always `mcp`.
    pub namespace: &'static str,
    /// Always `1`.
    pub version: &'static str,
    /// What the server claims about it. Never believed.
    pub hints: Option<Value>,
    /// Whatever else was listed: part of the identity, never passed on.
    pub extra: Map<String, Value>,
}

/// A session with its capabilities and its tools. Dropping it drops the session.
///
/// ```compile_fail
/// // GNT-B2: there is no calling a session that is not bound
/// use portcullis_gauntlet::{Args, bind::ToolSession};
/// fn call(session: &dyn ToolSession, args: Args) {
///     let _ = session.call_tool(&args);
/// }
/// ```
#[derive(Debug)]
pub struct Bound<S> {
    session: S,
    tools: BTreeMap<String, BoundTool>,
    specs: Vec<Arc<ToolSpec>>,
    rejected: Vec<Rejected>,
}

/// Asks `session` what it is and for all its tools. Calls none of them (GNT-B6).
pub async fn bind<S: ToolSession>(
    session: S,
    options: BindOptions,
    gauntlet: &Gauntlet,
) -> Result<Bound<S>, BindError> {
    let info = session.initialize().await.map_err(|error| upstream(gauntlet, error, None))?;
    let version: ServerVersion = match info.version.as_str() {
        "" => "0".parse(),
        version => version.parse(),
    }
    .map_err(|_| BindError::Version)?;
    let listed = list(&session, gauntlet).await?;
    let translation = translate::Translation {
        gauntlet,
        server: &options.server,
        version: &version,
        // Only since 2026-07-28 may a structured result be anything (GNT-P3).
        any_root: info.protocol.as_str() >= "2026-07-28",
        permissions: &options.permissions,
        ceiling: Arc::new(options.ceiling),
        max_request_bytes: options.max_request_bytes,
        max_response_bytes: options.max_response_bytes,
    };
    let (tools, rejected) = translation.tools(listed);
    let specs = tools.values().map(|tool| Arc::clone(&tool.spec)).collect();
    Ok(Bound { session, tools, specs, rejected })
}

/// Starts a program and binds it. It runs while the bound value lives, and ends with it (GNT-B3).
#[cfg(feature = "stdio")]
pub async fn bind_stdio(
    params: StdioParams,
    options: BindOptions,
    gauntlet: &Gauntlet,
) -> Result<Bound<StdioSession>, BindError> {
    let session = StdioSession::start(params).map_err(|error| upstream(gauntlet, error, None))?;
    bind(session, options, gauntlet).await
}

/// All pages (GNT-B4).
async fn list<S: ToolSession>(session: &S, gauntlet: &Gauntlet) -> Result<Vec<Value>, BindError> {
    let mut tools = Vec::new();
    let mut bytes = 0;
    let mut cursor: Option<String> = None;
    let mut seen = BTreeSet::new();
    for _ in 0..MAX_PAGES {
        let page = session.list_tools(cursor.as_deref()).await;
        let RawPage(text) = page.map_err(|error| upstream(gauntlet, error, None))?;
        bytes += text.len();
        if bytes > MAX_LISTED_BYTES {
            return Err(BindError::ListTooLong { limit: MAX_LISTED_BYTES, unit: "bytes" });
        }
        let page: Value = serde_json::from_slice(&text).map_err(|_| BindError::ListShape)?;
        let Value::Object(mut page) = page else { return Err(BindError::ListShape) };
        match page.remove("tools") {
            Some(Value::Array(more)) => tools.extend(more),
            _ => return Err(BindError::ListShape),
        }
        if tools.len() > MAX_TOOLS {
            return Err(BindError::ListTooLong { limit: MAX_TOOLS, unit: "tools" });
        }
        cursor = match page.remove("nextCursor") {
            None | Some(Value::Null) => return Ok(tools),
            Some(Value::String(next)) if seen.insert(next.clone()) => Some(next),
            Some(Value::String(_)) => return Err(BindError::CursorLoop),
            Some(_) => return Err(BindError::ListShape),
        };
    }
    Err(BindError::ListTooLong { limit: MAX_PAGES, unit: "pages" })
}

fn upstream(gauntlet: &Gauntlet, mut error: UpstreamError, tool: Option<Arc<ToolSpec>>) -> BindError {
    let said = error.said.take().map(Raw::into_inner);
    let detail = said.map(|said| gauntlet.clean_error(Raw::new(&said)));
    BindError::Upstream { error, tool, detail }
}

impl<S> Bound<S> {
    /// The tools that can be used, by name.
    pub fn specs(&self) -> &[Arc<ToolSpec>] {
        &self.specs
    }

    /// One of them, with what was listed about it.
    pub fn tool(&self, name: &str) -> Option<&BoundTool> {
        self.tools.get(name)
    }

    /// The session. It cannot be called but through what is bound.
    pub fn session(&self) -> &S {
        &self.session
    }

    /// Those that cannot, in the order they were listed.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// The same, or the first tool that was rejected.
    pub fn into_strict(mut self) -> Result<Self, BindError> {
        if self.rejected.is_empty() { Ok(self) } else { Err(BindError::Tool(self.rejected.remove(0))) }
    }
}

impl<S: ToolSession> Bound<S> {
    /// One call through all five steps: what is refused before the call is not sent, and what comes back is released
    /// only if it passes.
    pub async fn call(
        &self,
        gauntlet: &Gauntlet,
        name: &str,
        caller: &Grants,
        args: Args,
    ) -> Result<SafeResult, BindError> {
        let tool = self.tools.get(name).ok_or(BindError::UnknownTool)?;
        let screened = screen(&tool.spec, caller, args)?;
        let answered = self.session.call_tool(&screened).await;
        let raw = answered.map_err(|error| upstream(gauntlet, error, Some(Arc::clone(&tool.spec))))?;
        Ok(gauntlet.finish(screened, raw)?)
    }
}
