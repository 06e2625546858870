//! The world: one immutable snapshot of everything a call needs.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use portcullis_catalog::{CatalogSnapshot, View};
use portcullis_core::ServerIdentity;
use portcullis_gauntlet::{Gauntlet, Grants};
use portcullis_governance::registry::{ActiveRegistry, Registry};
use tokio::sync::watch;

use crate::edge::Era;
use crate::edge::usable::Pruned;
use crate::exposure::definitions::{listed, stand_ins};
use crate::exposure::{Mode, Shelf};
use crate::listing::{self, List};
use crate::surface::SurfaceOptions;
use crate::surface::audience::Hidden;
use crate::surface::offered::Offered;
use crate::surface::profile::Profile;
use crate::surface::published::{self, ListKey, Lists, Press, Published};
use crate::upstreams::Upstream;

/// Everything a call needs, consistent with itself.
#[derive(Debug)]
pub struct World {
    registry: Arc<Registry>,
    upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
    gauntlet: Arc<Gauntlet>,
    own: Vec<&'static str>,
    press: Arc<Press>,
    published: Lists,
    resources: List,
    templates: List,
    prompts: List,
    shelf: Arc<Shelf>,
    catalogue: OnceLock<Arc<CatalogSnapshot>>,
}

impl World {
    /// Builds a world. Lists are rendered once, and not per request; `own` tools are the gateway's.
    pub(crate) fn new(
        registry: Arc<Registry>,
        upstreams: HashMap<ServerIdentity, Arc<Upstream>>,
        gauntlet: Arc<Gauntlet>,
        own: Vec<&'static str>,
        shelf: Arc<Shelf>,
        press: Arc<Press>,
    ) -> Self {
        let (prompts, templates) =
            (List::prompts(&registry, &gauntlet), List::templates(&registry, &gauntlet));
        let resources = List::resources(&registry, &gauntlet);
        Self {
            registry,
            upstreams,
            gauntlet,
            own,
            press,
            published: Lists::default(),
            resources,
            templates,
            prompts,
            shelf,
            catalogue: OnceLock::new(),
        }
    }

    /// How surfaces are made.
    pub(crate) fn surface_options(&self) -> &SurfaceOptions {
        self.press.options()
    }

    /// The list of whole definitions that a client of a profile gets, made when it is first asked for. What a tool's
    /// structured results may be differs between the eras (GNT-P3).
    pub(crate) fn published(
        &self,
        era: Era,
        profile: &Profile,
        hidden: &Hidden,
        pruned: &Pruned,
    ) -> Arc<Published> {
        let key = ListKey {
            mode: Mode::Passthrough,
            era,
            profile: profile.name.clone(),
            hidden: hidden.clone(),
            pruned: pruned.clone(),
        };
        self.published.get(key, |key| {
            let servers = (self.registry.servers().count(), self.has_records());
            self.press.publish(self.offered(era, hidden), key, profile, servers, stand_ins())
        })
    }

    /// The list of every name without its schema that a client of a profile gets, likewise (SURF-37).
    pub(crate) fn published_stubs(&self, era: Era, profile: &Profile, view: &View) -> Arc<Published> {
        let catalogue = self.catalogue();
        let shown: HashSet<&str> =
            view.iter().map(|index| catalogue.items()[index].wire_name.as_str()).collect();
        let names = self.registry.tools().iter().map(|entry| &entry.wire_name);
        let key = ListKey {
            mode: Mode::Transparent,
            era,
            profile: profile.name.clone(),
            hidden: names.filter(|name| !shown.contains(name.as_str())).cloned().collect(),
            pruned: Pruned::new(),
        };
        self.published.get(key, |key| {
            let servers = (self.registry.servers().count(), self.has_records());
            let tools = listed(Mode::Transparent, &self.registry, catalogue, view);
            self.press.publish(tools, key, profile, servers, stand_ins())
        })
    }

    /// Names of tools that somebody with these grants, shown these namespaces, is not shown (CAT-53).
    pub(crate) fn hidden(&self, grants: &Grants, namespaces: &[String]) -> Hidden {
        self.shelf.hidden(&self.registry, grants, namespaces)
    }

    /// Every definition as accepted and cleaned, before it is made to fit.
    pub(crate) fn offered(&self, era: Era, hidden: &Hidden) -> Vec<Offered> {
        let mut tools = published::offered(
            &self.registry,
            |entry| listing::tool_definition(entry, &self.gauntlet, era),
            &self.own,
        );
        tools.retain(|tool| !hidden.contains(&tool.name));
        tools
    }

    /// Whether a records server is among the servers.
    pub(crate) fn has_records(&self) -> bool {
        self.registry.servers().any(|server| server.record.transport.is_builtin())
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

    /// A list as somebody with these grants, shown these namespaces, gets it; `None` if that is all of it.
    pub(crate) fn within(&self, list: &List, grants: &Grants, namespaces: &[String]) -> Option<List> {
        if *grants == Grants::Declared && namespaces.is_empty() {
            return None;
        }
        list.within(|server, short| grants.reach(short) && self.shelf.is_within(server, namespaces))
    }

    /// What a list method other than `tools/list` lists, rendered; `None` if it is not one.
    pub(crate) fn list(&self, method: &str) -> Option<&List> {
        Some(match method {
            "resources/list" => &self.resources,
            "resources/templates/list" => &self.templates,
            "prompts/list" => &self.prompts,
            _ => return None,
        })
    }
}

impl World {
    /// Builds what will be asked for first, and not on a thread that answers requests (CAT-50, SURF-3).
    fn prepare(self: Arc<Self>) {
        let mode = self.shelf.options().choose("", self.registry.tools().len());
        std::thread::spawn(move || {
            if mode == Mode::Passthrough {
                let profile = self.surface_options().profile("");
                let hidden = self.hidden(&Grants::Declared, &[]);
                for era in [Era::Legacy, Era::Modern] {
                    self.published(era, profile, &hidden, &Pruned::new());
                }
            } else {
                drop(self.catalogue().clone());
            }
        });
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

    /// Has everybody look again who waits for another world: what is shown of this one has changed.
    pub(crate) fn touch(&self) {
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
