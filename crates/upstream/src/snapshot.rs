//! What a server says it is and has.

use std::collections::{HashMap, HashSet};

use portcullis_core::ServerIdentity;
use portcullis_core::name::printable;
use portcullis_governance::mirrored;
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
const MAX_ITEMS: usize = 20_000;
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

#[derive(Default, Deserialize)]
struct Capabilities {
    #[serde(default)]
    tools: Option<Listed>,
    #[serde(default)]
    resources: Option<Listed>,
    #[serde(default)]
    prompts: Option<Listed>,
    #[serde(default)]
    completions: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    tasks: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    #[serde(default)]
    list_changed: bool,
    #[serde(default)]
    subscribe: bool,
}

impl Greeting {
    pub(crate) fn announces_changes(&self) -> bool {
        let Capabilities { tools, resources, prompts, .. } = self.offered();
        [tools, resources, prompts].iter().flatten().any(|listed| listed.list_changed)
    }

    /// Whether it says, to who asks, that a resource changed.
    pub fn announces_updates(&self) -> bool {
        self.offered().resources.is_some_and(|resources| resources.subscribe)
    }

    /// Whether calls of its tools may ask for a task, in the form of 2025-11-25, the one revision that has it.
    pub fn gives_tasks_to_who_asks(&self) -> bool {
        self.protocol_version == "2025-11-25"
            && self.offered().tasks.is_some_and(|tasks| tasks["requests"]["tools"]["call"].is_object())
    }

    /// Whether it completes arguments. Revisions before 2025-03-26 had no word for it.
    pub fn completes(&self) -> bool {
        self.offered().completions.is_some() || self.protocol_version == "2024-11-05"
    }

    fn offered(&self) -> Capabilities {
        serde_json::from_str(self.capabilities.get()).unwrap_or_default()
    }
}

impl Snapshot {
    /// Whether two processes of a server say the same of themselves, in whatever order.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let sorted = |items: &[Box<RawValue>]| {
            let mut texts: Vec<String> = items.iter().map(|item| item.get().to_owned()).collect();
            texts.sort_unstable();
            texts
        };
        let lists = |of: &Self| {
            [sorted(&of.tools), sorted(&of.resources), sorted(&of.templates), sorted(&of.prompts)]
        };
        let greeted = |of: &Self| (of.greeting.protocol_version, of.greeting.server_version.clone());
        greeted(self) == greeted(other) && lists(self) == lists(other)
    }
}

/// A server at one moment: its greeting, and every tool it lists.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// What it said when it was greeted.
    pub greeting: Greeting,
    /// Its tool definitions, as it wrote them, in its order (PRO-10).
    pub tools: Vec<Box<RawValue>>,
    /// Its resources.
    pub resources: Vec<Box<RawValue>>,
    /// Its resource templates.
    pub templates: Vec<Box<RawValue>>,
    /// Its prompts.
    pub prompts: Vec<Box<RawValue>>,
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
        let offered = greeting.offered();
        let mut snapshot = Snapshot {
            greeting: greeting.clone(),
            tools: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
        };
        if offered.tools.is_some() {
            snapshot.tools = read_list(probe, link, greeting.era, &TOOLS).await?;
            if greeting.era == Era::Modern && matches!(link, Link::Http(_)) {
                snapshot.tools.retain(|tool| can_be_called(probe.server, tool));
            }
        }
        if offered.resources.is_some() {
            snapshot.resources = listed_if_any(probe, link, greeting.era, &RESOURCES).await?;
            snapshot.templates = listed_if_any(probe, link, greeting.era, &TEMPLATES).await?;
        }
        if offered.prompts.is_some() {
            snapshot.prompts = listed_if_any(probe, link, greeting.era, &PROMPTS).await?;
        }
        if !unsettled() || !changes.has_changed().unwrap_or(false) {
            return Ok(snapshot);
        }
    }
}

/// A tool whose arguments are to go into headers that cannot be is left out of what the server lists, as the newest revision
/// wants it of clients: whoever called it would have to break the rules of headers, and the server's other tools are not
/// worse for it.
fn can_be_called(server: &ServerIdentity, tool: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Listed {
        #[serde(default)]
        name: String,
        #[serde(default, rename = "inputSchema")]
        input_schema: serde_json::Value,
    }
    let Ok(Listed { name, input_schema }) = serde_json::from_str(tool.get()) else { return true };
    match mirrored::read(&input_schema) {
        Ok(_) => true,
        Err(problem) => {
            let (name, problem) = (printable(&name), printable(&problem));
            tracing::warn!(%server, tool = %name, %problem, "a listed tool cannot be called and is left out");
            false
        }
    }
}

/// A list and the member of its result that holds it.
struct ListOf {
    method: &'static str,
    member: &'static str,
}

const TOOLS: ListOf = ListOf { method: "tools/list", member: "tools" };
const RESOURCES: ListOf = ListOf { method: "resources/list", member: "resources" };
const TEMPLATES: ListOf = ListOf { method: "resources/templates/list", member: "resourceTemplates" };
const PROMPTS: ListOf = ListOf { method: "prompts/list", member: "prompts" };

/// A list that a server may refuse although it should have it (PRO-64): then it is empty. What is declared and not
/// listed is refused at acceptance.
async fn listed_if_any(
    probe: Probe<'_>,
    link: &Link,
    era: Era,
    list: &ListOf,
) -> Result<Vec<Box<RawValue>>, UpstreamError> {
    match read_list(probe, link, era, list).await {
        Err(UpstreamError::Refused { .. }) => Ok(Vec::new()),
        read => read,
    }
}

/// Every page of a list, within the caps of CAT-40.
async fn read_list(
    probe: Probe<'_>,
    link: &Link,
    era: Era,
    list: &ListOf,
) -> Result<Vec<Box<RawValue>>, UpstreamError> {
    let frames = Frames::new(era, probe.settings);
    let method = list.method;
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let frame = |id| frames.list(id, method, cursor.as_deref());
        let text = match probe.ask(link, method, frame, probe.settings.list_timeout).await? {
            Reply::Result(text) => text,
            Reply::Error(error) => return Err(UpstreamError::Refused { method, code: error.code }),
            Reply::Status(status) => return Err(http_failure(status)),
            Reply::Locked(error) => return Err(error),
        };
        bytes += text.len();
        if bytes > MAX_BYTES {
            return Err(UpstreamError::ListTooLong { limit: MAX_BYTES, unit: "bytes" });
        }
        let mut page: HashMap<String, Box<RawValue>> =
            serde_json::from_slice(&text).map_err(|_| UpstreamError::ListShape)?;
        let part = page.remove(list.member).ok_or(UpstreamError::ListShape)?;
        let part: Vec<Box<RawValue>> =
            serde_json::from_str(part.get()).map_err(|_| UpstreamError::ListShape)?;
        items.extend(part);
        if items.len() > MAX_ITEMS {
            return Err(UpstreamError::ListTooLong { limit: MAX_ITEMS, unit: list.member });
        }
        // PRO-65: an empty string is a cursor like any other.
        let next = page.get("nextCursor").map(|raw| serde_json::from_str::<Option<String>>(raw.get()));
        let Some(next) = next.transpose().map_err(|_| UpstreamError::ListShape)?.flatten() else {
            return Ok(items);
        };
        if !cursors.insert(next.clone()) {
            return Err(UpstreamError::CursorLoop);
        }
        cursor = Some(next);
    }
    Err(UpstreamError::ListTooLong { limit: MAX_PAGES, unit: "pages" })
}
