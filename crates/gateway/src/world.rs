//! The world: one immutable snapshot of everything a call needs.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use portcullis_catalog::CatalogSnapshot;
use portcullis_core::ServerIdentity;
use portcullis_gauntlet::Gauntlet;
use portcullis_governance::registry::{ActiveRegistry, Registry};
use tokio::sync::watch;

use crate::edge::Era;
use crate::exposure::Shelf;
use crate::listing::List;
use crate::upstreams::Upstream;

/// Everything a call needs, consistent with itself.
#[derive(Debug)]
pub struct World {
    registry: Arc<Registry>,
    upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
    legacy_tools: List,
    modern_tools: List,
    resources: List,
    templates: List,
    prompts: List,
    shelf: Arc<Shelf>,
    catalogue: OnceLock<Arc<CatalogSnapshot>>,
}

impl World {
    /// Builds a world. Lists are rendered here, once, and not per request; `own` tools are the gateway's.
    pub(crate) fn new(
        registry: Arc<Registry>,
        upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
        gauntlet: &Gauntlet,
        own: &[&str],
        shelf: Arc<Shelf>,
    ) -> Self {
        // What a tool's structured results may be differs between the eras (GNT-P3).
        let legacy_tools = List::tools(&registry, gauntlet, Era::Legacy, own);
        let modern_tools = List::tools(&registry, gauntlet, Era::Modern, own);
        let (prompts, templates) = (List::prompts(&registry, gauntlet), List::templates(&registry, gauntlet));
        let resources = List::resources(&registry, gauntlet);
        let catalogue = OnceLock::new();
        Self {
            registry,
            upstreams,
            legacy_tools,
            modern_tools,
            resources,
            templates,
            prompts,
            shelf,
            catalogue,
        }
    }

    /// What can be found, built when it is first asked for.
    pub fn catalogue(&self) -> &Arc<CatalogSnapshot> {
        self.catalogue.get_or_init(|| self.shelf.catalogue(&self.registry))
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// What is registered, accepted and in force.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// How to reach a server.
    pub fn upstream(&self, server: &ServerIdentity) -> Option<&Arc<Upstream>> {
        self.upstreams.get(server)
    }

    /// What a list method lists, rendered; `None` if it is not one.
    pub(crate) fn list(&self, method: &str, era: Era) -> Option<&List> {
        Some(match (method, era) {
            ("tools/list", Era::Legacy) => &self.legacy_tools,
            ("tools/list", Era::Modern) => &self.modern_tools,
            ("resources/list", _) => &self.resources,
            ("resources/templates/list", _) => &self.templates,
            ("prompts/list", _) => &self.prompts,
            _ => return None,
        })
    }
}

impl World {
    /// Builds the catalogue before anybody asks for it, and not on a thread that answers requests (CAT-50).
    fn prepare(self: Arc<Self>) {
        let mode = self.shelf.options().choose("", self.registry.tools().len());
        if mode != crate::exposure::Mode::Passthrough {
            std::thread::spawn(move || drop(self.catalogue().clone()));
        }
    }
}

/// Where the current world is read from. Reading takes no lock; only the control plane writes.
#[derive(Debug)]
pub struct WorldCell {
    current: ArcSwap<World>,
    /// Counts worlds, for those who wait for the next one.
    changes: watch::Sender<u64>,
}

impl WorldCell {
    /// A cell holding `world`.
    pub fn new(world: World) -> Self {
        let world = Arc::new(world);
        world.clone().prepare();
        Self { current: ArcSwap::new(world), changes: watch::Sender::new(0) }
    }

    /// The world in force now.
    pub fn load(&self) -> Arc<World> {
        self.current.load_full()
    }

    /// Puts the next world in force.
    pub(crate) fn swap(&self, world: World) {
        let world = Arc::new(world);
        self.current.store(world.clone());
        world.prepare();
        self.changes.send_modify(|count| *count += 1);
    }

    /// Tells when another world is in force.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl ActiveRegistry for WorldCell {
    fn current(&self) -> Arc<Registry> {
        self.current.load().registry.clone()
    }
}
