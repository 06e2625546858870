//! Lists: the accepted definitions, byte for byte but for the name and our mark.
//!
//! Everything that only changes with the world is rendered once, when the world is made; what is left for a request
//! is to put a page between its braces and to say how the servers are.

use bytes::Bytes;
use portcullis_core::error::Fault;
use portcullis_core::{Principal, Sha256Digest};
use portcullis_gauntlet::{Gauntlet, Grants};
use portcullis_governance::registry::{Registry, ToolEntry};
use portcullis_upstream::Phase;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::edge::Era;
use crate::edge::told::reaches;
use crate::result::{Members, member, with_our_mark, write_members};
use crate::sealed::Seal;
use crate::surface::offered::Offered;
use crate::world::World;

/// How long a modern client may keep a list of servers that are all well (SURF-86).
const TTL_MS: u64 = 300_000;
/// How many items a page has: some clients never ask for a second one (SURF-85).
const PAGE: usize = 1_000;

/// One list, rendered in pages.
#[derive(Debug)]
pub(crate) struct List {
    /// The member of the result that holds the items.
    member: &'static str,
    pages: Vec<Bytes>,
    digest: Sha256Digest,
    /// Its items one by one; nothing where others decide what is listed.
    governed: Vec<Governed>,
}

/// An item that not everybody is listed.
#[derive(Debug, Clone)]
struct Governed {
    server: String,
    /// What a grant must reach for it.
    short: String,
    text: Bytes,
}

/// The cursor is not one that we gave this principal for this list as it is now.
#[derive(Debug)]
pub(crate) struct UnknownCursor;

impl List {
    /// `tools/list`: what the surface made of the definitions, or what stands for them.
    pub(crate) fn offered(tools: &[Offered]) -> Self {
        Self::new("tools", tools.iter().map(|tool| tool.text().as_bytes().to_vec()))
    }

    /// `prompts/list`, likewise.
    pub(crate) fn prompts(registry: &Registry, gauntlet: &Gauntlet) -> Self {
        let prompts = registry.prompts().iter();
        Self::governed(
            "prompts",
            prompts.map(|entry| owned(entry, named(entry, gauntlet, Era::Modern, "name"))),
        )
    }

    /// `resources/templates/list`, likewise.
    pub(crate) fn templates(registry: &Registry, gauntlet: &Gauntlet) -> Self {
        let templates = registry.templates().iter();
        Self::governed(
            "resourceTemplates",
            templates.map(|entry| owned(entry, named(entry, gauntlet, Era::Modern, "uriTemplate"))),
        )
    }

    /// `resources/list`: those declared by their URI, then those listed by the server that are of a declared form.
    pub(crate) fn resources(registry: &Registry, gauntlet: &Gauntlet) -> Self {
        let declared = registry.resources().iter();
        let mut items: Vec<Governed> =
            declared.map(|entry| owned(entry, named(entry, gauntlet, Era::Modern, "uri"))).collect();
        for server in registry.servers() {
            for listed in &server.declaration.live().resources {
                let uri = registry.outward_uri(&server.record.server_identity, &listed.name);
                let Some((entry, values)) = registry.resource(&uri) else { continue };
                if !values.is_empty() {
                    let text = definition(entry, &listed.definition, ("uri", &uri), gauntlet, Era::Modern);
                    items.push(owned(entry, text));
                }
            }
        }
        Self::governed("resources", items.into_iter())
    }

    fn governed(member: &'static str, items: impl Iterator<Item = Governed>) -> Self {
        let governed: Vec<Governed> = items.collect();
        let texts = governed.iter().map(|item| item.text.to_vec());
        Self { governed: governed.clone(), ..Self::new(member, texts) }
    }

    /// The same without items for which `shows` does not hold, given an item's server and what a grant must reach for it
    /// (CAT-53); `None` if it holds for all.
    pub(crate) fn within(&self, shows: impl Fn(&str, &str) -> bool) -> Option<Self> {
        let reached = self.governed.iter().filter(|item| shows(&item.server, &item.short)).cloned();
        let reached = Self::governed(self.member, reached);
        (reached.governed.len() < self.governed.len()).then_some(reached)
    }

    fn new(member: &'static str, items: impl Iterator<Item = Vec<u8>>) -> Self {
        let items: Vec<Vec<u8>> = items.collect();
        let pages: Vec<Bytes> = items.chunks(PAGE).map(|page| page.join(&b","[..]).into()).collect();
        let parts: Vec<&[u8]> = pages.iter().map(|page| &page[..]).collect();
        let digest = Sha256Digest::of_parts(&parts);
        Self { member, pages, digest, governed: Vec::new() }
    }

    /// The same with these definitions after the others.
    pub(crate) fn with(&self, definitions: &[String]) -> Self {
        let mut pages: Vec<Vec<u8>> = self.pages.iter().map(|page| page.to_vec()).collect();
        let last = match pages.last_mut() {
            Some(last) => last,
            None => {
                pages.push(Vec::new());
                &mut pages[0]
            }
        };
        let more = definitions.join(",");
        if !last.is_empty() {
            last.push(b',');
        }
        last.extend_from_slice(more.as_bytes());
        let parts: Vec<&[u8]> = pages.iter().map(|page| &page[..]).collect();
        let digest = Sha256Digest::of_parts(&parts);
        let pages = pages.into_iter().map(Bytes::from).collect();
        Self { member: self.member, pages, digest, governed: Vec::new() }
    }

    /// Changes when what is listed does.
    pub(crate) fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// The bytes of its items, as served.
    pub(crate) fn bytes(&self) -> usize {
        self.pages.iter().map(Bytes::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The result of a list request.
    pub(crate) fn page(
        &self,
        world: &World,
        era: Era,
        cursor: Option<&str>,
        (principal, grants): (&Principal, &Grants),
        seal: &Seal,
    ) -> Result<Bytes, UnknownCursor> {
        let (digest, principal) = (self.digest.to_string(), principal.to_string());
        let bound = ["cursor", self.member, &digest, &principal];
        let index = match cursor {
            None => 0,
            Some(cursor) => seal
                .open(&bound, cursor)
                .and_then(|index| std::str::from_utf8(&index).ok()?.parse().ok())
                .ok_or(UnknownCursor)?,
        };
        let page = self.pages.get(index).cloned().unwrap_or_default();
        let next =
            (index + 1 < self.pages.len()).then(|| seal.close(&bound, (index + 1).to_string().as_bytes()));
        let mut meta = json!({"io.portcullis/servers": outcomes(world, grants)});
        if self.is_empty() {
            meta["io.portcullis/empty"] = json!(self.why_empty(world.registry()));
        }
        let ttl = (era == Era::Modern).then(|| ttl_ms(world, grants));
        Ok(served(self.member, &page, next.as_deref(), &meta.to_string(), ttl).into())
    }

    /// Never an unexplained empty list (PRO-3).
    fn why_empty(&self, registry: &Registry) -> String {
        if registry.servers().next().is_none() {
            return "no server is registered; run `portcullis mcp add`".into();
        }
        format!("no registered server declares any {}", self.member)
    }
}

fn owned(entry: &ToolEntry, text: Vec<u8>) -> Governed {
    let id = entry.tool.id();
    Governed { server: id.server().to_string(), short: id.short().to_owned(), text: text.into() }
}

/// A page as it is served: items that were rendered before, between their braces. Modern clients are told how long they may
/// keep it.
pub fn served(member: &str, page: &[u8], next: Option<&str>, meta: &str, ttl_ms: Option<u64>) -> Vec<u8> {
    let mut rest = String::from("]");
    if let Some(next) = next {
        rest += &format!(",\"nextCursor\":\"{next}\"");
    }
    rest += &format!(",\"_meta\":{meta}");
    if let Some(ttl) = ttl_ms {
        // PRO-69: what is listed is this principal's, whatever the servers say of their parts.
        rest += &format!(",\"resultType\":\"complete\",\"ttlMs\":{ttl},\"cacheScope\":\"private\"");
    }
    rest.push('}');
    let head = format!("{{\"{member}\":[");
    let mut out = Vec::with_capacity(head.len() + page.len() + rest.len());
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(page);
    out.extend_from_slice(rest.as_bytes());
    out
}

/// How long a modern client may keep what it is told now: not at all while a server is halted or being looked at,
/// since that may end at any moment (SURF-86).
pub(crate) fn ttl_ms(world: &World, grants: &Grants) -> u64 {
    let settled = world.registry().servers().filter(|server| reaches(grants, server)).all(|server| {
        let upstream = world.upstream(&server.record.server_identity);
        let phase = upstream.map(|upstream| upstream.status().phase);
        server.is_active() && !matches!(phase, Some(Phase::Connecting))
    });
    if settled { TTL_MS } else { 0 }
}

/// How each server is (PRO §3) that somebody with these grants can see: its items stay listed whatever that is.
pub(crate) fn outcomes(world: &World, grants: &Grants) -> Map<String, Value> {
    let registry = world.registry();
    (registry.servers())
        .filter(|server| reaches(grants, server))
        .map(|server| {
            let name = &server.record.server_identity;
            let phase = world.upstream(name).map(|upstream| upstream.status().phase);
            let outcome = if !server.is_active() {
                let reason = server.record.halt.as_deref().unwrap_or("halted by an operator");
                json!({"status": "halted", "reason": reason})
            } else if matches!(phase, Some(Phase::Failing | Phase::BreakerOpen | Phase::Closed) | None) {
                json!({"status": "unavailable", "reason": Fault::Unavailable.as_str()})
            } else {
                let declaration = &server.declaration;
                let mut outcome = json!({"status": "ok", "tools": declaration.tools().len()});
                let others = [("resources", declaration.resources()), ("prompts", declaration.prompts())];
                for (kind, items) in others.into_iter().filter(|(_, items)| !items.is_empty()) {
                    outcome[kind] = items.len().into();
                }
                outcome
            };
            (name.to_string(), outcome)
        })
        .collect()
}

/// A tool's definition as it is before the surface makes it fit.
pub(crate) fn tool_definition(entry: &ToolEntry, gauntlet: &Gauntlet, era: Era) -> Vec<u8> {
    named(entry, gauntlet, era, "name")
}

/// A definition under the name agents use, which `member` holds.
fn named(entry: &ToolEntry, gauntlet: &Gauntlet, era: Era, member: &str) -> Vec<u8> {
    definition(entry, entry.tool.definition(), (member, &entry.wire_name), gauntlet, era)
}

/// One definition: the server's own bytes with the name replaced, the canonical id added to `_meta`, every label
/// cleaned (GNT-Z12), and the output schema such that cleaned results fit it (GNT-Z18).
fn definition(
    entry: &ToolEntry,
    text: &RawValue,
    (key, name): (&str, &str),
    gauntlet: &Gauntlet,
    era: Era,
) -> Vec<u8> {
    let members: Members<'_> = serde_json::from_str(text.get()).expect("accepted definitions are objects");
    let mut changes: Vec<(&str, Option<Box<RawValue>>)> = Vec::new();
    for (member, value) in members.iter().filter(|(member, _)| *member != key && *member != "_meta") {
        if let Some(shown) = advertised(entry, gauntlet, era, member, value) {
            changes.push((member, shown.map(|value| raw(&value))));
        }
    }
    changes.push((key, Some(raw(&json!(name)))));
    // REC-21: what we publish ourselves is published as it is written down.
    if !entry.server.record.transport.is_builtin() {
        changes.push(("_meta", Some(meta(entry, gauntlet, &members))));
    }
    let changes: Vec<_> = changes.iter().map(|(name, value)| (*name, value.as_deref())).collect();
    let mut out = Vec::with_capacity(text.get().len() + 160);
    write_members(&mut out, &members, &changes);
    out
}

/// What is shown in place of a member, or that it is left out; nothing if it is shown as it is.
fn advertised(
    entry: &ToolEntry,
    gauntlet: &Gauntlet,
    era: Era,
    name: &str,
    value: &RawValue,
) -> Option<Option<Value>> {
    let Ok(told) = serde_json::from_str::<Value>(value.get()) else { return Some(None) };
    let spec = entry.tool.spec();
    let shown = match (name, &spec.output) {
        ("inputSchema", _) => Some(gauntlet.advertised_schema(&told)),
        ("outputSchema", Some(schema)) => {
            let describes_an_object = told.get("type").is_some_and(|kind| kind == "object");
            let wrap = era == Era::Legacy && spec.any_root && !describes_an_object;
            Some(gauntlet.relax_output_schema(schema, gauntlet.escape_for(spec), wrap))
        }
        _ => gauntlet.advertised_member(&told),
    };
    (shown.as_ref() != Some(&told)).then_some(shown)
}

/// The server's own `_meta` without what looks like ours, and ours. What need not be cleaned is as it wrote it.
fn meta(entry: &ToolEntry, gauntlet: &Gauntlet, members: &Members<'_>) -> Box<RawValue> {
    let own = member(members, "_meta");
    let told = own.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()).filter(Value::is_object);
    let shown = told.as_ref().and_then(|told| gauntlet.advertised_member(told));
    let cleaned = shown.as_ref().filter(|shown| Some(*shown) != told.as_ref()).map(raw);
    let own = own.filter(|_| shown.is_some());
    with_our_mark(cleaned.as_deref().or(own), ("io.portcullis/tool_id", &json!(entry.tool.id())))
}

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a value is JSON")
}
