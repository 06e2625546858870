//! What an operator asks of the catalogue: searching it, what is odd in it, what servers offer now and offered then.

use portcullis_catalog::drift::{Capabilities, Offer, Server};
use portcullis_catalog::{
    BrowseError, BuildOptions, CatalogSnapshot, Counts, Finding, Kind, Matched, Request, SearchOptions,
    ServerCtx, Source, ToolDef,
};
use portcullis_core::{ErrorCode, ServerIdentity};
use portcullis_gauntlet::Raw;
use portcullis_governance::declaration::live::LiveSurface;
use portcullis_governance::registry::ServerEntry;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Control, ControlError};

/// An item that a search found, with why it is where it is.
#[derive(Debug, Clone)]
pub struct FoundItem {
    /// The governed identity.
    pub identity: String,
    /// How well it fits; comparable within one search only.
    pub score: u32,
    /// How many more of its kind there are that look alike.
    pub similar: usize,
    /// What each word was worth to it.
    pub why: Vec<Matched>,
}

/// As many as one search can find.
const MOST_FOUND: usize = 50;

impl Control {
    /// What an agent that sees everything would find, the best first, and why.
    pub fn find_items(&self, query: &str, kind: Kind) -> Result<Vec<FoundItem>, ControlError> {
        let world = self.world();
        let catalogue = world.catalogue();
        let options = SearchOptions { kind, top_k: MOST_FOUND, ..SearchOptions::default() };
        let hits = catalogue
            .search(query, catalogue.everything(), options)
            .map_err(|error| ControlError::field("query", error.to_string()))?;
        let found = hits.into_iter().map(|hit| FoundItem {
            identity: catalogue.items()[hit.index].identity.clone(),
            score: hit.score,
            similar: hit.similar,
            why: catalogue.why(query, hit.index, kind),
        });
        Ok(found.collect())
    }

    /// What an agent that sees everything would be answered.
    pub fn browse(&self, request: Request<'_>, kind: Kind) -> Result<String, ControlError> {
        let world = self.world();
        let catalogue = world.catalogue();
        let options = world.shelf().options().browse.options(kind);
        let answer = catalogue.browse(request, catalogue.everything(), options, None);
        answer.map(|answer| answer.text).map_err(|error| match error {
            BrowseError::PathNotFound => ControlError::new(ErrorCode::NotFound, error.to_string()),
            other => ControlError::field("query", other.to_string()),
        })
    }

    /// What a server wrote, as the gauntlet lets it through; what it does not is withheld.
    pub async fn clean_words(&self, words: Value) -> Value {
        let gauntlet = self.state.lock().await.gauntlet.clone();
        match gauntlet.clean_value(Raw::new(words)) {
            Ok((clean, _)) => clean.into_inner(),
            Err(_) => Value::String(portcullis_core::scrub::WITHHELD.into()),
        }
    }

    /// What is odd about accepted definitions.
    pub fn findings(&self) -> Vec<Finding> {
        self.world().catalogue().findings().to_vec()
    }

    /// Builds the catalogue again from what is accepted (CAT-52).
    pub async fn refresh_catalogue(&self) -> Result<Counts, ControlError> {
        let state = self.state.lock().await;
        state.shelf.forget();
        self.world.swap(state.world());
        drop(state);
        let world = self.world();
        tokio::task::spawn_blocking(move || world.catalogue().counts())
            .await
            .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
    }

    /// What was accepted of servers, or with `live` what they say now (CAT-110).
    pub async fn capabilities(
        &self,
        only: Option<&ServerIdentity>,
        live: bool,
    ) -> Result<Capabilities, ControlError> {
        let world = self.world();
        let entries: Vec<ServerEntry> = match only {
            Some(name) => {
                vec![world.registry().server(name).cloned().ok_or_else(|| ControlError::not_found(name))?]
            }
            None => world.registry().servers().cloned().collect(),
        };
        let mut servers = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = &entry.record.server_identity;
            let surface =
                if live { self.look_again(&entry).await? } else { entry.declaration.live().clone() };
            let namespace = world.shelf().options().namespaces.get(name.as_str()).cloned();
            servers.push(offered(&entry, &surface, namespace, live));
        }
        Ok(Capabilities::new(servers))
    }
}

/// A server's surface as items of a catalogue of its own, so that ids do not depend on who else is there.
fn offered(entry: &ServerEntry, surface: &LiveSurface, namespace: Option<String>, live: bool) -> Server {
    let kinds = [
        (Kind::Tool, &surface.tools),
        (Kind::Resource, &surface.resources),
        (Kind::Resource, &surface.templates),
        (Kind::Prompt, &surface.prompts),
    ];
    let listed: Vec<(Kind, &RawValue)> =
        kinds.iter().flat_map(|(kind, list)| list.iter().map(move |one| (*kind, &*one.definition))).collect();
    let effects = |kind: Kind, name: &str| {
        let declared = match kind {
            Kind::Prompt => entry.declaration.prompts(),
            Kind::Resource => entry.declaration.resources(),
            Kind::Tool | Kind::Internal => entry.declaration.tools(),
        };
        let tool = declared.iter().find(|tool| tool.id().item().name() == name);
        let classes = tool.map(|tool| tool.side_effects()).unwrap_or_default();
        classes.iter().filter_map(|class| portcullis_catalog::Effect::named(class.as_str())).collect()
    };
    let definitions = listed.iter().map(|(kind, definition)| {
        let value: Value = serde_json::from_str(definition.get()).unwrap_or(Value::Null);
        let name = value.get("name").and_then(Value::as_str).unwrap_or_default();
        ToolDef { kind: *kind, effects: effects(*kind, name), ..ToolDef::tool(definition) }
    });
    let server =
        ServerCtx { server: entry.record.server_identity.to_string(), namespace, ..ServerCtx::default() };
    let source = Source { server, definitions: definitions.collect() };
    let catalogue = CatalogSnapshot::build(1, &[source], &BuildOptions::default());
    let offers = |kind: Kind| {
        let items = catalogue.items().iter().filter(move |item| item.kind == kind);
        items
            .map(|item| {
                let definition = listed.iter().map(|(_, raw)| raw).find_map(|raw| {
                    let value: Value = serde_json::from_str(raw.get()).ok()?;
                    let is_it = ["name", "uri", "uriTemplate"].iter().any(|key| {
                        value.get(*key).and_then(Value::as_str) == Some(item.upstream_name.as_str())
                    });
                    is_it.then_some(value)
                });
                Offer::of(item, &definition.unwrap_or(Value::Null))
            })
            .collect()
    };
    Server {
        name: entry.record.server_identity.to_string(),
        version: surface.server_version.clone().unwrap_or_else(|| entry.record.server_version.to_string()),
        protocol: surface.protocol_version.clone(),
        declaration_version: (!live).then(|| entry.declaration.version().to_string()),
        tools: offers(Kind::Tool),
        resources: offers(Kind::Resource),
        prompts: offers(Kind::Prompt),
    }
}
