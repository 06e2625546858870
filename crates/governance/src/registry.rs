//! Everything that is registered and accepted, as one immutable snapshot.
//!
//! The data plane reads a [`Registry`] through an atomic pointer and never waits for the control plane. What
//! must take effect at once on calls already under way (a halt, a trust reset) lives in [`ServerLive`], which
//! all snapshots of one registration share.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use portcullis_core::{Item, RegistrationEpoch, ServerIdentity, ToolId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::accepted::{AcceptedDeclaration, AcceptedTool};
use crate::declaration::ServerRequest;
use crate::declaration::live::LiveSurface;
use crate::policy::{Policy, ToolFacts};
use crate::record::{RegistrationRecord, ServerState};
use crate::subject::Subject;
use crate::wire_uri;

/// How far a tool or server is trusted (GOV-1101). Trust only saves prompts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// Where everything starts.
    #[default]
    Untrusted,
    /// Has behaved for a while.
    Probationary,
    /// Has behaved for long, and an operator said so.
    Trusted,
}

impl Trust {
    /// The word in records and policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Trust::Untrusted => "untrusted",
            Trust::Probationary => "probationary",
            Trust::Trusted => "trusted",
        }
    }
}

/// What can change under a running call.
#[derive(Debug, Default)]
pub struct ServerLive {
    halted: AtomicBool,
    reset_epoch: AtomicU64,
    /// The set of tools is that of the declaration and never changes.
    tools: HashMap<ToolId, ToolLive>,
}

/// What can change about one tool.
#[derive(Debug, Default)]
struct ToolLive {
    /// How often its trust was reset.
    resets: AtomicU64,
    availability: AtomicU8,
}

/// Whether a server whose surface changes still has a tool as it was accepted (GOV-502).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// It has.
    Accepted,
    /// It has another one of this name, which waits to be declared and accepted.
    PendingRedeclaration,
    /// It has it no more.
    Withdrawn,
}

impl ServerLive {
    /// For a server that may offer what `declaration` says.
    pub fn of(declaration: &AcceptedDeclaration) -> Self {
        let tools = declaration.everything().map(|tool| (tool.id().clone(), ToolLive::default())).collect();
        Self { tools, ..Self::default() }
    }

    /// Every permit of this tool that was issued before is dead (GOV-1105).
    pub fn reset_tool(&self, tool: &ToolId) {
        if let Some(tool) = self.tools.get(tool) {
            tool.resets.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the server has the tool as it was accepted.
    pub fn availability(&self, tool: &ToolId) -> Availability {
        match self.tools.get(tool).map(|tool| tool.availability.load(Ordering::Acquire)) {
            Some(1) => Availability::PendingRedeclaration,
            Some(2) => Availability::Withdrawn,
            _ => Availability::Accepted,
        }
    }

    /// The server was looked at. Permits of a tool that is not what was accepted are dead. True if that is news.
    pub fn found(&self, tool: &ToolId, availability: Availability) -> bool {
        let Some(live) = self.tools.get(tool) else { return false };
        let now = match availability {
            Availability::Accepted => 0,
            Availability::PendingRedeclaration => 1,
            Availability::Withdrawn => 2,
        };
        let news = live.availability.swap(now, Ordering::AcqRel) != now;
        if news && now != 0 {
            live.resets.fetch_add(1, Ordering::AcqRel);
        }
        news
    }

    /// Every permit of this server that was issued before is dead.
    pub fn reset(&self) {
        self.reset_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Rises with every trust reset of the tool.
    pub fn tool_reset_epoch(&self, tool: &ToolId) -> u64 {
        self.tools.get(tool).map_or(0, |tool| tool.resets.load(Ordering::Acquire))
    }

    /// Stops the server: nothing more is admitted, and every permit issued before is dead (GOV-1003 check 7).
    pub fn halt(&self) {
        self.halted.store(true, Ordering::Release);
        self.reset_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Lets it run again; permits from before stay dead.
    pub fn resume(&self) {
        self.halted.store(false, Ordering::Release);
    }

    /// Whether it is stopped.
    pub fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Acquire)
    }

    /// Rises with every halt and trust reset.
    pub fn reset_epoch(&self) -> u64 {
        self.reset_epoch.load(Ordering::Acquire)
    }
}

/// One registered server with its accepted declaration.
#[derive(Debug, Clone)]
pub struct ServerEntry {
    /// What the operator registered.
    pub record: Arc<RegistrationRecord>,
    /// What it may offer.
    pub declaration: Arc<AcceptedDeclaration>,
    /// What can change under a running call.
    pub live: Arc<ServerLive>,
    /// How far the server is trusted.
    pub trust: Trust,
    /// How far its tools are.
    pub tools: Arc<HashMap<ToolId, ToolTrust>>,
}

/// How far one tool is trusted, as far as its server's tier lets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ToolTrust {
    /// Its state.
    pub state: Trust,
    /// How often it was demoted for a violation.
    pub violations: u64,
}

/// One callable tool, or a resource or prompt, with all that deciding about it needs.
#[derive(Debug)]
pub struct ToolEntry {
    /// The name agents use: for a resource its URI, for a template the template.
    pub wire_name: String,
    /// The tool.
    pub tool: Arc<AcceptedTool>,
    /// Its server.
    pub server: ServerEntry,
    /// What policy is told about both.
    pub facts: ToolFacts,
}

/// How agents name what servers offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// `<server>__<tool>`: tools of different servers are never taken for one another.
    #[default]
    Prefixed,
    /// The server's own name, for a gateway in front of a single server (PRO-65).
    Bare,
}

/// The snapshot.
#[derive(Debug)]
pub struct Registry {
    servers: BTreeMap<ServerIdentity, ServerEntry>,
    names: Names,
    tools: Named,
    prompts: Named,
    resources: Named,
    templates: Named,
    prompt_completions: Named,
    template_completions: Named,
    requests: Named,
    policy: Arc<Policy>,
}

/// Entries of one kind, in order and by name.
#[derive(Debug, Default)]
struct Named {
    entries: Vec<Arc<ToolEntry>>,
    by_name: HashMap<String, usize>,
}

impl Named {
    fn add(&mut self, wire_name: String, tool: &Arc<AcceptedTool>, server: &ServerEntry) {
        self.by_name.insert(wire_name.clone(), self.entries.len());
        let facts = ToolFacts::new(tool, &server.record, server.trust, server.tool_trust(tool.id()));
        let entry = ToolEntry { wire_name, tool: tool.clone(), server: server.clone(), facts };
        self.entries.push(Arc::new(entry));
    }

    fn get(&self, wire_name: &str) -> Option<&Arc<ToolEntry>> {
        self.by_name.get(wire_name).map(|index| &self.entries[*index])
    }
}

/// Where the current snapshot is read from.
pub trait ActiveRegistry: Send + Sync {
    /// The snapshot in force now.
    fn current(&self) -> Arc<Registry>;
}

impl Registry {
    /// Builds a snapshot of the servers that are not removed.
    pub fn new(servers: impl IntoIterator<Item = ServerEntry>, policy: Arc<Policy>) -> Self {
        Self::named(servers, policy, Names::Prefixed)
    }

    /// Likewise, with a choice of names.
    pub fn named(servers: impl IntoIterator<Item = ServerEntry>, policy: Arc<Policy>, names: Names) -> Self {
        let servers: BTreeMap<_, _> =
            servers.into_iter().map(|entry| (entry.record.server_identity.clone(), entry)).collect();
        let mut registry = Self {
            servers: BTreeMap::new(),
            names,
            tools: Named::default(),
            prompts: Named::default(),
            resources: Named::default(),
            templates: Named::default(),
            prompt_completions: Named::default(),
            template_completions: Named::default(),
            requests: Named::default(),
            policy,
        };
        for server in servers.values() {
            registry.add(server);
        }
        registry.servers = servers;
        registry
    }

    fn add(&mut self, server: &ServerEntry) {
        let (names, identity) = (self.names, &server.record.server_identity);
        let name = |tool: &AcceptedTool, named: &Named| {
            wire_name(tool, names, |taken| named.by_name.contains_key(taken))
        };
        let has = |tool: &&Arc<AcceptedTool>| server.live.availability(tool.id()) == Availability::Accepted;
        for tool in server.declaration.tools().iter().filter(has) {
            self.tools.add(name(tool, &self.tools), tool, server);
        }
        for prompt in server.declaration.prompts().iter().filter(has) {
            self.prompts.add(name(prompt, &self.prompts), prompt, server);
        }
        for resource in server.declaration.resources() {
            match (resource.subject(), names) {
                (Subject::Resource { uri }, Names::Bare) => {
                    self.resources.add(uri.clone(), resource, server);
                }
                (Subject::Resource { uri }, Names::Prefixed) => {
                    self.resources.add(wire_uri::outward(identity, uri), resource, server);
                }
                (Subject::Template(template), _) => {
                    let name = self.template_name(identity, template.as_str());
                    self.templates.add(name, resource, server);
                }
                _ => {}
            }
        }
        for request in server.declaration.requests() {
            self.requests.add(request.id().short().to_owned(), request, server);
        }
        for completion in server.declaration.completions() {
            let Subject::Completion { reference } = completion.subject() else { continue };
            match reference["uri"].as_str() {
                Some(template) => {
                    let name = self.template_name(identity, template);
                    self.template_completions.add(name, completion, server);
                }
                None => {
                    self.prompt_completions.add(
                        name(completion, &self.prompt_completions),
                        completion,
                        server,
                    );
                }
            }
        }
    }

    fn template_name(&self, server: &ServerIdentity, template: &str) -> String {
        match self.names {
            Names::Bare => template.to_owned(),
            Names::Prefixed => wire_uri::outward_template(server, template),
        }
    }

    /// The servers, by name.
    pub fn servers(&self) -> impl Iterator<Item = &ServerEntry> {
        self.servers.values()
    }

    /// One server.
    pub fn server(&self, identity: &ServerIdentity) -> Option<&ServerEntry> {
        self.servers.get(identity)
    }

    /// The server a tool belongs to, if this snapshot has that very registration and declaration.
    pub fn owner(&self, tool: &AcceptedTool) -> Option<&ServerEntry> {
        self.servers.get(tool.id().server()).filter(|entry| {
            entry.record.registration_epoch == tool.epoch()
                && entry.declaration.version() == tool.id().declaration()
        })
    }

    /// The tool an agent means by a name in `tools/call`.
    pub fn tool(&self, wire_name: &str) -> Option<&Arc<ToolEntry>> {
        self.tools.get(wire_name)
    }

    /// All tools, sorted by server and declared order.
    pub fn tools(&self) -> &[Arc<ToolEntry>] {
        &self.tools.entries
    }

    /// The prompt an agent means by a name in `prompts/get`.
    pub fn prompt(&self, wire_name: &str) -> Option<&Arc<ToolEntry>> {
        self.prompts.get(wire_name)
    }

    /// All prompts, likewise.
    pub fn prompts(&self) -> &[Arc<ToolEntry>] {
        &self.prompts.entries
    }

    /// The resource an agent means by a URI, and the arguments in it: exactly the declared one, or of the form of
    /// exactly one declared template (GOV-407).
    pub fn resource(&self, uri: &str) -> Option<(&Arc<ToolEntry>, Map<String, Value>)> {
        if let Some(entry) = self.resources.get(uri) {
            return Some((entry, Map::new()));
        }
        let (server, own) = match self.names {
            Names::Prefixed => wire_uri::inward(uri)?,
            Names::Bare => (self.servers.keys().next()?.clone(), uri.to_owned()),
        };
        // Encoded in another way than we do, it is the same resource all the same.
        if let Some(entry) = self.resources.get(&wire_uri::outward(&server, &own)) {
            return Some((entry, Map::new()));
        }
        let mut fitting = self.templates.entries.iter().filter_map(|entry| match entry.tool.subject() {
            Subject::Template(template) if *entry.tool.id().server() == server => {
                template.values(&own).map(|values| (entry, values))
            }
            _ => None,
        });
        let found = fitting.next()?;
        fitting.next().is_none().then_some(found)
    }

    /// All resources with a URI of their own.
    pub fn resources(&self) -> &[Arc<ToolEntry>] {
        &self.resources.entries
    }

    /// All resource templates.
    pub fn templates(&self) -> &[Arc<ToolEntry>] {
        &self.templates.entries
    }

    /// Who completes arguments of this prompt.
    pub fn prompt_completion(&self, wire_name: &str) -> Option<&Arc<ToolEntry>> {
        self.prompt_completions.get(wire_name)
    }

    /// Who completes variables of this template.
    pub fn template_completion(&self, template: &str) -> Option<&Arc<ToolEntry>> {
        self.template_completions.get(template)
    }

    /// A question that a server may put to clients, as something to decide about (GOV-408).
    pub fn request(&self, server: &ServerIdentity, kind: ServerRequest) -> Option<&Arc<ToolEntry>> {
        self.requests.get(&format!("{server}/request:{}", kind.as_str()))
    }

    /// Whether anything completes arguments.
    pub fn completes(&self) -> bool {
        !self.prompt_completions.entries.is_empty() || !self.template_completions.entries.is_empty()
    }

    /// How things are called.
    pub fn names(&self) -> Names {
        self.names
    }

    /// A server's URI as agents see it.
    pub fn outward_uri(&self, server: &ServerIdentity, uri: &str) -> String {
        match self.names {
            Names::Bare => uri.to_owned(),
            Names::Prefixed => wire_uri::outward(server, uri),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }
}

impl ServerEntry {
    /// Whether calls may be admitted now.
    pub fn is_active(&self) -> bool {
        self.record.state == ServerState::Active && !self.live.is_halted()
    }

    /// How far a tool of it is trusted; one that nothing is known about is not.
    pub fn tool_trust(&self, tool: &ToolId) -> ToolTrust {
        // A question earns nothing by itself, or asking often would be a way to be trusted: it has its server's trust.
        if let Item::Request(_) = tool.item() {
            return ToolTrust { state: self.trust, violations: 0 };
        }
        self.tools.get(tool).copied().unwrap_or_default()
    }

    /// What a call of the tool rests on: the lesser of both (GOV-1104).
    pub fn trust_in(&self, tool: &ToolId) -> Trust {
        self.trust.min(self.tool_trust(tool).state)
    }

    /// This life of the server.
    pub fn epoch(&self) -> RegistrationEpoch {
        self.record.registration_epoch
    }

    /// Whether it says of itself what was accepted (SURF-14). Records from before the digest was kept have the text alone.
    pub fn says_as_accepted(&self, live: &LiveSurface) -> bool {
        let accepted = || self.declaration.live().instructions_sha256();
        live.instructions_sha256() == self.record.instructions_sha256.or_else(accepted)
    }
}

/// The name agents use (CAT-24): `<server>__<tool>` in `[A-Za-z0-9_-]{1,64}`, unique in the snapshot.
fn wire_name(tool: &AcceptedTool, names: Names, taken: impl Fn(&str) -> bool) -> String {
    let own = tool.id().item().name();
    let full = match names {
        Names::Prefixed => format!("{}__{own}", tool.id().server()),
        Names::Bare => own.to_string(),
    };
    let plain: String = full
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
        .collect();
    if plain.len() <= 64 && !taken(&plain) {
        return plain;
    }
    let digest = portcullis_core::Sha256Digest::of(tool.id().short().as_bytes()).to_string();
    // Six digits can be made to collide by who names the tools; more are taken until the name is free.
    let shortened = |digits: usize| {
        let (kept, suffix) = (plain.len().min(63 - digits), &digest[..digits]);
        format!("{}_{suffix}", &plain[..kept])
    };
    (6..63).map(shortened).find(|name| !taken(name)).unwrap_or(digest)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
