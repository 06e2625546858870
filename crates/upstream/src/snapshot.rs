//! What a server says it is and has.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout};

use crate::event::Events;
use crate::frame::Frames;
use crate::greeting::{Probe, Reply, http_failure};
use crate::link::Link;
use crate::{Era, UpstreamError};

/// CAT-40.
const MAX_PAGES: usize = 1_000;
const MAX_TOOLS: usize = 20_000;
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// What a server said when it was greeted. All texts are its own, and hostile until cleaned.
#[derive(Debug, Clone)]
pub struct Greeting {
    /// Which era it speaks.
    pub era: Era,
    /// The revision agreed upon.
    pub protocol_version: &'static str,
    /// What it calls itself, if it says.
    pub server_name: Option<String>,
    /// Which version it says it is.
    pub server_version: Option<String>,
    /// What it would like a model to be told.
    pub instructions: Option<String>,
    /// Its capabilities, as it wrote them.
    pub capabilities: Box<RawValue>,
}

#[derive(Deserialize)]
struct Capabilities {
    #[serde(default)]
    tools: Option<ToolCapabilities>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCapabilities {
    #[serde(default)]
    list_changed: bool,
}

impl Greeting {
    fn has_tools(&self) -> bool {
        self.tool_capabilities().is_some()
    }

    pub(crate) fn announces_changes(&self) -> bool {
        self.tool_capabilities().is_some_and(|tools| tools.list_changed)
    }

    fn tool_capabilities(&self) -> Option<ToolCapabilities> {
        serde_json::from_str::<Capabilities>(self.capabilities.get()).ok()?.tools
    }
}

/// A server at one moment: its greeting, and every tool it lists.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What it said when it was greeted.
    pub greeting: Greeting,
    /// Its tool definitions, as it wrote them, in its order (PRO-10).
    pub tools: Vec<Box<RawValue>>,
}

/// Takes a snapshot. A server that has just been greeted may still be announcing its tools, five times in a row;
/// it is given a moment of quiet first (PRO-64).
pub(crate) async fn take(
    probe: Probe<'_>,
    link: &Link,
    greeting: &Greeting,
    events: &Events,
    greeted: Instant,
) -> Result<Snapshot, UpstreamError> {
    let mut changes = events.changes();
    let deadline = greeted + probe.settings.settle_limit;
    let unsettled =
        || greeting.era == Era::Legacy && matches!(link, Link::Stdio(_)) && Instant::now() < deadline;
    loop {
        while unsettled() && timeout(probe.settings.settle_quiet, changes.changed()).await.is_ok() {}
        changes.mark_unchanged();
        let tools =
            if greeting.has_tools() { list_tools(probe, link, greeting.era).await? } else { Vec::new() };
        if !unsettled() || !changes.has_changed().unwrap_or(false) {
            return Ok(Snapshot { greeting: greeting.clone(), tools });
        }
    }
}

/// Every page of `tools/list`, within the caps of CAT-40.
async fn list_tools(probe: Probe<'_>, link: &Link, era: Era) -> Result<Vec<Box<RawValue>>, UpstreamError> {
    #[derive(Deserialize)]
    struct Page {
        tools: Vec<Box<RawValue>>,
        #[serde(rename = "nextCursor", default)]
        next_cursor: Option<String>,
    }
    let frames = Frames::new(era, probe.settings);
    let method = "tools/list";
    let mut tools = Vec::new();
    let mut bytes = 0;
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let frame = |id| frames.list_tools(id, cursor.as_deref());
        let text = match probe.ask(link, method, frame, probe.settings.list_timeout).await? {
            Reply::Result(text) => text,
            Reply::Error(error) => return Err(UpstreamError::Refused { method, code: error.code }),
            Reply::Status(status) => return Err(http_failure(status)),
        };
        bytes += text.len();
        if bytes > MAX_BYTES {
            return Err(UpstreamError::ListTooLong { limit: MAX_BYTES, unit: "bytes" });
        }
        let page: Page = serde_json::from_slice(&text).map_err(|_| UpstreamError::ListShape)?;
        tools.extend(page.tools);
        if tools.len() > MAX_TOOLS {
            return Err(UpstreamError::ListTooLong { limit: MAX_TOOLS, unit: "tools" });
        }
        // PRO-65: an empty string is a cursor like any other.
        let Some(next) = page.next_cursor else { return Ok(tools) };
        if !cursors.insert(next.clone()) {
            return Err(UpstreamError::CursorLoop);
        }
        cursor = Some(next);
    }
    Err(UpstreamError::ListTooLong { limit: MAX_PAGES, unit: "pages" })
}
