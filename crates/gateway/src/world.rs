//! The world: one immutable snapshot of everything a call needs.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use portcullis_core::ServerIdentity;
use portcullis_governance::registry::{ActiveRegistry, Registry};

use crate::listing::List;
use crate::upstreams::Upstream;

/// Everything a call needs, consistent with itself.
#[derive(Debug)]
pub struct World {
    registry: Arc<Registry>,
    upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
    tools: List,
    resources: List,
    templates: List,
    prompts: List,
}

impl World {
    /// Builds a world. Lists are rendered here, once, and not per request.
    pub fn new(registry: Arc<Registry>, upstreams: HashMap<ServerIdentity, Arc<Upstream>>) -> Self {
        let (tools, prompts) = (List::tools(&registry), List::prompts(&registry));
        let (resources, templates) = (List::resources(&registry), List::templates(&registry));
        Self { registry, upstreams, tools, resources, templates, prompts }
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
    pub(crate) fn list(&self, method: &str) -> Option<&List> {
        Some(match method {
            "tools/list" => &self.tools,
            "resources/list" => &self.resources,
            "resources/templates/list" => &self.templates,
            "prompts/list" => &self.prompts,
            _ => return None,
        })
    }
}

/// Where the current world is read from. Reading takes no lock; only the control plane writes.
#[derive(Debug)]
pub struct WorldCell(ArcSwap<World>);

impl WorldCell {
    /// A cell holding `world`.
    pub fn new(world: World) -> Self {
        Self(ArcSwap::from_pointee(world))
    }

    /// The world in force now.
    pub fn load(&self) -> Arc<World> {
        self.0.load_full()
    }

    /// Puts the next world in force.
    pub(crate) fn swap(&self, world: World) {
        self.0.store(Arc::new(world));
    }
}

impl ActiveRegistry for WorldCell {
    fn current(&self) -> Arc<Registry> {
        self.0.load().registry.clone()
    }
}
