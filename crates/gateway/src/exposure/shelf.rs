//! The catalogue of a world: built of what is registered, once, and kept while that does not change.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use portcullis_catalog::{
    BuildOptions, CatalogSnapshot, Effect, Kind, Labels, SemanticError, SemanticScorer, ServerCtx, Source,
    Synonyms, ToolDef, View,
};
use portcullis_gauntlet::{Gauntlet, Grants};
use portcullis_governance::accepted::AcceptedTool;
use portcullis_governance::registry::{Registry, ServerEntry, ToolEntry};
use portcullis_governance::subject::Subject;
use serde_json::Value;

use super::ExposureOptions;
use crate::surface::audience::Hidden;

/// What finds by meaning, or why nothing does.
type Semantic = Result<Arc<dyn SemanticScorer>, SemanticError>;

/// Where catalogues come from.
#[derive(Debug)]
pub(crate) struct Shelf {
    options: ExposureOptions,
    gauntlet: Arc<Gauntlet>,
    /// Read for the first catalogue, and kept.
    semantic: OnceLock<Option<Semantic>>,
    /// The newest one, and what it was built of.
    newest: Mutex<Option<(String, Arc<CatalogSnapshot>)>>,
}

impl Shelf {
    pub(crate) fn new(options: ExposureOptions, gauntlet: Arc<Gauntlet>) -> Self {
        Self { options, gauntlet, semantic: OnceLock::new(), newest: Mutex::new(None) }
    }

    /// The next catalogue is built anew, whatever it is built of.
    pub(crate) fn forget(&self) {
        if let Some((built_of, _)) = &mut *self.newest.lock().unwrap_or_else(PoisonError::into_inner) {
            built_of.clear();
        }
    }

    pub(crate) fn options(&self) -> &ExposureOptions {
        &self.options
    }

    pub(crate) fn gauntlet(&self) -> &Gauntlet {
        &self.gauntlet
    }

    /// The catalogue of what is registered.
    pub(crate) fn catalogue(&self, registry: &Registry) -> Arc<CatalogSnapshot> {
        let key = content(registry);
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((built_of, catalogue)) = &*newest
            && *built_of == key
        {
            return catalogue.clone();
        }
        let epoch = newest.as_ref().map_or(0, |(_, catalogue)| catalogue.epoch()) + 1;
        let catalogue = Arc::new(self.build(epoch, registry));
        *newest = Some((key, catalogue.clone()));
        catalogue
    }

    fn build(&self, epoch: u64, registry: &Registry) -> CatalogSnapshot {
        // Registrations are numbered in time, so who came first keeps its ids (CAT-26).
        let mut order: Vec<_> =
            registry.servers().map(|server| (server.record.since().to_string(), server)).collect();
        order.sort_by(|(a, _), (b, _)| a.cmp(b));
        let all = [registry.tools(), registry.resources(), registry.templates(), registry.prompts()];
        let sources: Vec<Source<'_>> = (order.iter().enumerate())
            .map(|(acceptance, (_, server))| {
                let identity = &server.record.server_identity;
                let own = all.iter().flat_map(|entries| entries.iter());
                let own = own.filter(|entry| entry.tool.id().server() == identity);
                Source {
                    server: ServerCtx {
                        server: identity.to_string(),
                        namespace: self.options.namespaces.get(identity.as_str()).cloned(),
                        acceptance: acceptance as u64,
                        limits: self.options.limits,
                    },
                    definitions: own.map(|entry| self.definition(entry)).collect(),
                }
            })
            .collect();
        let options = BuildOptions {
            synonyms: self.options.synonyms.as_ref().map(|more| Arc::new(Synonyms::built_in().with(more))),
            forms: vec![self.options.browse.form],
            semantic: self.semantic(),
        };
        CatalogSnapshot::build(epoch, &sources, &options)
    }

    fn semantic(&self) -> Option<Semantic> {
        let load = || {
            let loaded = self.options.embeddings.as_ref()?.load();
            if let Err(error) = &loaded {
                tracing::warn!(%error, "search goes by words alone");
            }
            Some(loaded)
        };
        self.semantic.get_or_init(load).clone()
    }

    fn definition<'r>(&self, entry: &'r ToolEntry) -> ToolDef<'r> {
        let value: Value = serde_json::from_str(entry.tool.definition().get()).unwrap_or(Value::Null);
        // What a model reads has passed the sanitiser (GNT-Z12); digests are over what was accepted.
        let label = |key: &str| {
            let shown = self.gauntlet.advertised_member(value.get(key)?)?;
            shown.as_str().map(ToOwned::to_owned)
        };
        ToolDef {
            kind: kind(&entry.tool),
            definition: entry.tool.definition(),
            effects: (entry.tool.side_effects().iter())
                .filter_map(|class| Effect::named(class.as_str()))
                .collect(),
            tags: Vec::new(),
            identity: entry.tool.id().to_string(),
            wire_name: Some(entry.wire_name.clone()),
            labels: Some(Labels { title: label("title"), description: label("description") }),
        }
    }

    /// Tools that somebody with these grants is not shown in a list of whole definitions: what could never be called, and
    /// what the operator hides. What is halted stays listed there.
    pub(crate) fn hidden(&self, registry: &Registry, grants: &Grants, namespaces: &[String]) -> Hidden {
        if *grants == Grants::Declared && self.options.filters.is_empty() && namespaces.is_empty() {
            return Hidden::new();
        }
        let hides = |entry: &&Arc<ToolEntry>| {
            let (server, name) = (entry.tool.id().server().as_str(), entry.tool.id().item().name());
            let filtered = self.options.filters.get(server).is_some_and(|filter| !filter.shows(name));
            filtered || !grants.reach(entry.tool.id().short()) || !self.is_within(server, namespaces)
        };
        registry.tools().iter().filter(hides).map(|entry| entry.wire_name.clone()).collect()
    }

    /// What somebody with these grants sees: nothing that could never be called (CAT-53), nothing of a halted server, nothing
    /// the operator hides.
    pub(crate) fn view(
        &self,
        catalogue: &CatalogSnapshot,
        registry: &Registry,
        grants: &Grants,
        namespaces: &[String],
    ) -> View {
        if *grants == Grants::Declared
            && namespaces.is_empty()
            && self.options.filters.is_empty()
            && registry.servers().all(ServerEntry::is_active)
        {
            return catalogue.everything().clone();
        }
        catalogue.view(|item| {
            let Some(server) = item.server.parse().ok().and_then(|identity| registry.server(&identity))
            else {
                return false;
            };
            let shown =
                self.options.filters.get(&item.server).is_none_or(|filter| filter.shows(&item.upstream_name));
            let short = item.identity.rsplit_once('@').map_or(item.identity.as_str(), |(short, _)| short);
            server.is_active() && shown && grants.reach(short) && self.is_within(&item.server, namespaces)
        })
    }

    /// Whether a server's namespace is among these; no namespaces are all of them.
    pub(crate) fn is_within(&self, server: &str, namespaces: &[String]) -> bool {
        let own = self.options.namespaces.get(server).map_or(server, String::as_str);
        namespaces.is_empty() || namespaces.iter().any(|namespace| namespace == own || namespace == server)
    }
}

/// What stands behind an item of the catalogue in this registry.
pub(crate) fn entry_of<'r>(
    registry: &'r Registry,
    item: &portcullis_catalog::SelectableItem,
) -> Option<&'r Arc<ToolEntry>> {
    let entries = match item.kind {
        Kind::Prompt => return registry.prompt(&item.wire_name),
        Kind::Resource if item.is_template => registry.templates(),
        Kind::Resource => registry.resources(),
        Kind::Tool | Kind::Internal => return registry.tool(&item.wire_name),
    };
    entries.iter().find(|entry| entry.wire_name == item.wire_name)
}

fn kind(tool: &AcceptedTool) -> Kind {
    match tool.subject() {
        Subject::Resource { .. } | Subject::Template(_) => Kind::Resource,
        Subject::Prompt => Kind::Prompt,
        _ => Kind::Tool,
    }
}

/// What a catalogue is built of, as text.
fn content(registry: &Registry) -> String {
    let servers = registry.servers().map(|server| {
        format!("{} {} {}", server.record.server_identity, server.epoch(), server.declaration.version())
    });
    format!("servers\n{}", servers.collect::<Vec<_>>().join("\n"))
}
