//! What operators ordered about agents and tools besides policy: how far an agent goes by itself, what it is shown, how much
//! it may use, and which tools nobody uses for now.
//!
//! Each is a document of the control plane ([`Document`]). Calls read one snapshot of all of them through an atomic
//! pointer; the control plane replaces it after a change is durable.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use portcullis_core::{Principal, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::control::Document;
use crate::exposure::Mode;

/// How far an agent goes by itself: a ceiling after the policy decision, which only ever takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Autonomy {
    /// Every call is denied.
    Locked,
    /// Every call is asked about.
    Supervised,
    /// What policy lets pass passes, but no approval reaches further than one call.
    Semi,
    /// As policy decides.
    #[default]
    Full,
}

impl Autonomy {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Autonomy::Locked => "locked",
            Autonomy::Supervised => "supervised",
            Autonomy::Semi => "semi",
            Autonomy::Full => "full",
        }
    }
}

/// What is known of an agent besides its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The name in `agent:<name>`.
    pub client_id: String,
    /// What people call it.
    pub display_name: String,
    /// `agent`, `human` or `service`.
    pub kind: String,
    /// The team it is counted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// What it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<String>,
    /// Roles that show it admin tools which look, for its own objects (ADM-3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// How far it goes by itself.
    #[serde(default)]
    pub autonomy: Autonomy,
    /// Whether its access was taken back: then it is locked, whatever it proves.
    #[serde(default)]
    pub revoked: bool,
    /// How often what it may do was changed.
    #[serde(default)]
    pub grant_epoch: u64,
    /// Since when.
    pub created_at: Timestamp,
}

impl Document for Client {
    const KIND: &'static str = "client";

    fn id(&self) -> String {
        self.client_id.clone()
    }
}

/// What clients of a kind are shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub profile_id: String,
    /// How much of the catalogue at once.
    pub mode: Mode,
    /// Whose tools, by namespace; everybody's if there are none.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Bytes of a result that are not too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_budget: Option<u64>,
}

impl Document for Profile {
    const KIND: &'static str = "profile";

    fn id(&self) -> String {
        self.profile_id.clone()
    }
}

/// Whom or what a quota is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// Everybody together.
    Global,
    /// One agent.
    Client(String),
    /// The agents of a team together.
    Team(String),
    /// Everybody's calls of a server.
    Server(String),
    /// Everybody's calls of a tool, `<server>/<tool>`.
    Tool(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Global => f.write_str("global"),
            Subject::Client(id) => write!(f, "client:{id}"),
            Subject::Team(id) => write!(f, "team:{id}"),
            Subject::Server(id) => write!(f, "server:{id}"),
            Subject::Tool(id) => write!(f, "tool:{id}"),
        }
    }
}

/// The text names no subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a subject: global, client:ID, team:ID, server:ID or tool:SERVER/TOOL")]
pub struct NoSubject;

impl FromStr for Subject {
    type Err = NoSubject;

    fn from_str(text: &str) -> Result<Self, NoSubject> {
        if text == "global" {
            return Ok(Subject::Global);
        }
        let (kind, id) = text.split_once(':').ok_or(NoSubject)?;
        let plain = !id.is_empty() && id.len() <= 200 && id.chars().all(|c| c.is_ascii_graphic());
        let id = Some(id.to_owned()).filter(|_| plain).ok_or(NoSubject)?;
        match kind {
            "client" => Ok(Subject::Client(id.strip_prefix("agent:").map_or(id.clone(), str::to_owned))),
            "team" => Ok(Subject::Team(id)),
            "server" => Ok(Subject::Server(id)),
            // A whole identity names its version too; what is counted is the tool.
            "tool" => Ok(Subject::Tool(id.split_once('@').map_or(id.clone(), |(short, _)| short.to_owned()))),
            _ => Err(NoSubject),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Calls.
    Calls,
    /// Bytes of results.
    BytesOut,
    /// Tokens of results.
    TokensOut,
    /// Calls at once.
    Concurrent,
    /// What the tokens cost, in millionths.
    CostMicros,
}

impl Metric {
    /// All of them.
    pub const ALL: [Metric; 5] =
        [Metric::Calls, Metric::BytesOut, Metric::TokensOut, Metric::Concurrent, Metric::CostMicros];

    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::Calls => "calls",
            Metric::BytesOut => "bytes_out",
            Metric::TokensOut => "tokens_out",
            Metric::Concurrent => "concurrent",
            Metric::CostMicros => "cost_micros",
        }
    }
}

/// For how long something is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Window {
    Minute,
    Hour,
    Day,
    /// Thirty days.
    Month,
    /// The life of a session.
    Session,
}

impl Window {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Window::Minute => "minute",
            Window::Hour => "hour",
            Window::Day => "day",
            Window::Month => "month",
            Window::Session => "session",
        }
    }

    /// How long it is; a session is as long as it is.
    pub fn millis(self) -> Option<u64> {
        const MINUTE: u64 = 60_000;
        match self {
            Window::Minute => Some(MINUTE),
            Window::Hour => Some(60 * MINUTE),
            Window::Day => Some(24 * 60 * MINUTE),
            Window::Month => Some(30 * 24 * 60 * MINUTE),
            Window::Session => None,
        }
    }
}

/// What happens beyond a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Beyond {
    /// Calls are refused.
    Refuse,
    /// An operator is asked about each.
    Approve,
    /// A signal is raised, and calls pass.
    Signal,
}

impl Beyond {
    /// The word in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Beyond::Refuse => "refuse",
            Beyond::Approve => "approve",
            Beyond::Signal => "signal",
        }
    }
}

/// How much of something may be used in a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// By whom, or of what.
    pub subject: Subject,
    /// What is counted.
    pub metric: Metric,
    /// How much.
    pub limit: u64,
    /// In which while.
    pub window: Window,
    /// What happens beyond.
    pub action: Beyond,
}

impl Quota {
    /// Which one it is: a subject has one of each metric.
    pub fn key(subject: &Subject, metric: Metric) -> String {
        format!("{subject}|{}", metric.as_str())
    }
}

impl Document for Quota {
    const KIND: &'static str = "quota";

    fn id(&self) -> String {
        Self::key(&self.subject, self.metric)
    }
}

/// What is ordered about one tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolOrder {
    /// `<server>/<tool>`.
    pub tool: String,
    /// Nobody uses it.
    pub quarantined: bool,
    /// Grants that its callers need besides.
    pub extra_permissions: Vec<String>,
    /// How its texts are written: `html` or `none`.
    pub escape: Option<String>,
    /// What a text of its that is JSON is: `leaf` or `string`.
    pub text_json: Option<String>,
    /// Whether agents are told to use another.
    pub deprecated: bool,
}

impl Document for ToolOrder {
    const KIND: &'static str = "tool_order";

    fn id(&self) -> String {
        self.tool.clone()
    }
}

/// All orders at one moment.
#[derive(Debug, Default)]
pub struct Orders {
    clients: HashMap<String, Client>,
    profiles: HashMap<String, Profile>,
    tools: HashMap<String, ToolOrder>,
    quotas: Vec<Quota>,
    approval_wait: Option<Duration>,
}

impl Orders {
    /// Of these documents.
    pub(crate) fn new(
        clients: impl IntoIterator<Item = Client>,
        profiles: impl IntoIterator<Item = Profile>,
        tools: impl IntoIterator<Item = ToolOrder>,
        quotas: impl IntoIterator<Item = Quota>,
    ) -> Self {
        Self {
            clients: clients.into_iter().map(|client| (client.client_id.clone(), client)).collect(),
            profiles: profiles.into_iter().map(|profile| (profile.profile_id.clone(), profile)).collect(),
            tools: tools.into_iter().map(|order| (order.tool.clone(), order)).collect(),
            quotas: quotas.into_iter().collect(),
            approval_wait: None,
        }
    }

    /// The same, with how long a call waits for an approval.
    pub(crate) fn waiting(self, approval_wait: Option<Duration>) -> Self {
        Self { approval_wait, ..self }
    }

    /// How long a call waits for an approval, where that was set.
    pub fn approval_wait(&self) -> Option<Duration> {
        self.approval_wait
    }

    /// How far an agent goes by itself.
    pub fn autonomy(&self, principal: &Principal) -> Autonomy {
        match self.clients.get(principal.name()) {
            Some(client) if client.revoked => Autonomy::Locked,
            Some(client) => client.autonomy,
            None => Autonomy::Full,
        }
    }

    /// What an agent is shown, if something is ordered about that.
    pub fn profile(&self, principal: &Principal) -> Option<&Profile> {
        self.profiles.get(self.clients.get(principal.name())?.profile_id.as_ref()?)
    }

    /// Whose tools an agent is shown; everybody's if none are named.
    pub fn namespaces(&self, principal: &Principal) -> &[String] {
        self.profile(principal).map(|profile| profile.namespaces.as_slice()).unwrap_or_default()
    }

    /// The team of an agent.
    pub fn team(&self, principal: &Principal) -> Option<&str> {
        self.clients.get(principal.name())?.team_id.as_deref()
    }

    /// What is ordered about a tool, `<server>/<tool>`.
    pub fn tool(&self, short: &str) -> Option<&ToolOrder> {
        self.tools.get(short)
    }

    /// Every quota.
    pub fn quotas(&self) -> &[Quota] {
        &self.quotas
    }
}

/// The orders in force.
#[derive(Debug, Default)]
pub struct OrdersCell(ArcSwap<Orders>);

impl OrdersCell {
    /// Those in force now.
    pub fn load(&self) -> Arc<Orders> {
        self.0.load_full()
    }

    pub(crate) fn put(&self, orders: Orders) {
        self.0.store(Arc::new(orders));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_read_as_they_are_written() {
        for text in ["global", "client:ci", "team:a", "server:fs", "tool:fs/read"] {
            assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
        }
        assert_eq!("client:agent:ci".parse(), Ok(Subject::Client("ci".into())));
        assert_eq!("tool:fs/read@1.0#2".parse(), Ok(Subject::Tool("fs/read".into())));
        for text in ["", "globe", "client:", "client", "user:x", "client:a b"] {
            assert_eq!(text.parse::<Subject>(), Err(NoSubject), "{text}");
        }
    }
}
