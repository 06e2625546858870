//! What a client is told at the beginning, and as what kind of client it is treated (SURF-10, SURF-61).

use std::sync::Arc;

use portcullis_core::Sha256Digest;
use portcullis_gauntlet::Grants;
use portcullis_governance::registry::ServerEntry;

use super::conversation::Conversation;
use super::usable::Usable;
use super::{Edge, Era, Sender};
use crate::access::Access;
use crate::exposure::Mode;
use crate::exposure::definitions::MetaTool;
use crate::surface::Budgeting;
use crate::surface::instructions::{self, Introduced, Told};
use crate::surface::profile::Profile;
use crate::surface::published::Published;
use crate::world::World;

impl Edge {
    /// The profile of a client.
    pub(super) fn profile<'w>(&self, world: &'w World, sender: &Sender) -> &'w Profile {
        profile(world, &sender.conversation)
    }

    /// The list of tools as this client gets it; nothing where tools are not listed.
    pub(super) fn published(&self, world: &World, sender: &Sender, mode: Mode) -> Option<Arc<Published>> {
        let principal = sender.conversation.session().principal();
        let (orders, grants) = (self.lifecycle.orders.load(), self.access.granted(principal));
        let (namespaces, profile) = (orders.namespaces(principal), self.profile(world, sender));
        match mode {
            Mode::Passthrough => {
                let hidden = world.hidden(&grants, namespaces);
                Some(world.published(sender.era(), profile, &hidden, &self.usable.of(principal)))
            }
            Mode::Transparent => {
                let view = world.shelf().view(world.catalogue(), world.registry(), &grants, namespaces);
                Some(world.published_stubs(sender.era(), profile, &view))
            }
            Mode::Gateway => None,
        }
    }

    /// Who reads lists, for news of them.
    pub(super) fn reader(&self, sender: &Sender) -> Reader {
        Reader {
            conversation: sender.conversation.clone(),
            usable: self.usable.clone(),
            access: self.access.clone(),
            orders: self.lifecycle.orders.clone(),
        }
    }

    /// What a model is told, about the servers that who asks can see.
    pub(super) fn instructions(&self, sender: &Sender, mode: Mode) -> String {
        let world = self.world.load();
        let profile = self.profile(&world, sender);
        let principal = sender.conversation.session().principal();
        let (orders, grants) = (self.lifecycle.orders.load(), self.access.granted(principal));
        let (servers, records) = introduced(&world, &grants, orders.namespaces(principal));
        let published = self.published(&world, sender, mode);
        let list = published.as_ref().map(|published| &published.compiled.list);
        let told = Told {
            mode,
            records,
            deferred: list.map(|list| list.deferred.as_slice()).unwrap_or_default(),
            notes: list.map(|list| list.notes.as_slice()).unwrap_or_default(),
            servers,
            prefix: profile.instructions_prefix_chars,
            most: profile.instructions_max_chars,
        };
        instructions::compile(&told).0
    }

    /// Whether this client's list has no room for all tools.
    pub(super) fn defers(&self, sender: &Sender, mode: Mode) -> bool {
        let world = self.world.load();
        world.surface_options().mode == Budgeting::Enforce
            && (self.published(&world, sender, mode))
                .is_some_and(|published| !published.compiled.list.deferred.is_empty())
    }

    /// Whether a name is that of a tool that stands for those without room, and is not there otherwise.
    pub(super) fn is_deferral(&self, sender: &Sender, mode: Mode, name: &str) -> bool {
        MetaTool::named(name, mode).is_none()
            && matches!(
                MetaTool::named(name, Mode::Gateway),
                Some(MetaTool::Browse(portcullis_catalog::Kind::Tool) | MetaTool::Execute)
            )
            && self.defers(sender, mode)
    }
}

/// Who reads lists: what it is shown depends on what kind of client it is and on what it can use.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(super) conversation: Arc<Conversation>,
    pub(super) usable: Arc<Usable>,
    pub(super) access: Arc<Access>,
    pub(super) orders: Arc<crate::orders::OrdersCell>,
}

impl Reader {
    /// Changes when what a list method lists for this client does.
    pub(super) fn digest(&self, world: &World, method: &str) -> Option<Sha256Digest> {
        if method != "tools/list" {
            let (list, principal) = (world.list(method)?, self.conversation.session().principal());
            let orders = self.orders.load();
            let reached = world.within(list, &self.access.granted(principal), orders.namespaces(principal));
            return Some(reached.as_ref().unwrap_or(list).digest());
        }
        let (era, principal) = (self.conversation.era(), self.conversation.session().principal());
        let orders = self.orders.load();
        let hidden = world.hidden(&self.access.granted(principal), orders.namespaces(principal));
        let profile = profile(world, &self.conversation);
        let published = world.published(era, profile, &hidden, &self.usable.of(principal));
        Some(published.list.digest())
    }
}

/// What kind of client this is (SURF-61): what the operator says of the agent, else of where it comes in, else what the
/// client calls itself, else what is said of all. A modern request stands for itself: there a list may vary by who asks, not by what the asking
/// program calls itself.
fn profile<'w>(world: &'w World, conversation: &Conversation) -> &'w Profile {
    let options = world.surface_options();
    let principal = conversation.session().principal().to_string();
    let said = options.principals.get(&principal).or_else(|| options.listeners.get(&conversation.listener()));
    if let Some(named) = said {
        return options.profile(named);
    }
    match conversation.era() {
        Era::Legacy => options.profile_of(conversation.client()),
        Era::Modern => options.profile(""),
    }
}

/// Whether somebody with these grants can use anything of a server. Who cannot need not know that it is there.
pub(crate) fn reaches(grants: &Grants, server: &ServerEntry) -> bool {
    *grants == Grants::Declared || server.declaration.everything().any(|tool| grants.reach(tool.id().short()))
}

/// The servers somebody with these grants, shown these namespaces, can see, and whether one of them keeps records.
pub(crate) fn introduced(world: &World, grants: &Grants, namespaces: &[String]) -> (Vec<Introduced>, bool) {
    let (registry, options) = (world.registry(), world.surface_options());
    let is_seen = |server: &&ServerEntry| {
        server.is_active()
            && reaches(grants, server)
            && world.shelf().is_within(server.record.server_identity.as_str(), namespaces)
    };
    let visible: Vec<_> = registry.servers().filter(is_seen).collect();
    let records = visible.iter().any(|server| server.record.transport.is_builtin());
    let servers = visible.into_iter().map(|server| {
        let name = server.record.server_identity.as_str();
        let said = options.servers.get(name);
        let changed = world
            .upstream(&server.record.server_identity)
            .is_some_and(|upstream| upstream.says_other_things());
        let accepted = server.declaration.live();
        let changed = changed || !server.says_as_accepted(accepted);
        let accepted = accepted.instructions.clone();
        Introduced {
            name: name.to_owned(),
            priority: said.map_or(crate::surface::PRIORITY, |said| said.priority),
            digest: said.and_then(|said| said.digest.clone()),
            // SURF-14: words that nobody accepted are not passed on.
            instructions: accepted.filter(|_| !changed),
            changed,
        }
    });
    (servers.collect(), records)
}
