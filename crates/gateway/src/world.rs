//! The world: one immutable snapshot of everything a call needs.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use portcullis_core::ServerIdentity;
use portcullis_gauntlet::Gauntlet;
use portcullis_governance::registry::{ActiveRegistry, Registry};
use tokio::sync::watch;

use crate::edge::Era;
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
}

impl World {
    /// Builds a world. Lists are rendered here, once, and not per request; `own` tools are the gateway's.
    pub fn new(
        registry: Arc<Registry>,
        upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
        gauntlet: &Gauntlet,
        own: &[&str],
    ) -> Self {
        // What a tool's structured results may be differs between the eras (GNT-P3).
        let legacy_tools = List::tools(&registry, gauntlet, Era::Legacy, own);
        let modern_tools = List::tools(&registry, gauntlet, Era::Modern, own);
        let (prompts, templates) = (List::prompts(&registry, gauntlet), List::templates(&registry, gauntlet));
        let resources = List::resources(&registry, gauntlet);
        Self { registry, upstreams, legacy_tools, modern_tools, resources, templates, prompts }
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
        Self { current: ArcSwap::from_pointee(world), changes: watch::Sender::new(0) }
    }

    /// The world in force now.
    pub fn load(&self) -> Arc<World> {
        self.current.load_full()
    }

    /// Puts the next world in force.
    pub(crate) fn swap(&self, world: World) {
        self.current.store(Arc::new(world));
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
