//! What a client is told at the beginning, and as what kind of client it is treated (SURF-10, SURF-61).

use portcullis_gauntlet::Grants;

use super::{Edge, Era, Sender};
use crate::exposure::Mode;
use crate::exposure::definitions::MetaTool;
use crate::surface::Budgeting;
use crate::surface::instructions::{self, Introduced, Told};
use crate::surface::profile::Profile;
use crate::world::World;

impl Edge {
    /// The profile of a client. Modern requests stand for themselves: there a list may vary by who asks, not by what
    /// the asking program calls itself.
    pub(super) fn profile<'w>(&self, world: &'w World, sender: &Sender) -> &'w Profile {
        let options = world.surface_options();
        match sender.era() {
            Era::Legacy => options.profile_of(sender.conversation.client()),
            Era::Modern => options.profile(""),
        }
    }

    /// What a model is told, about the servers that who asks can see.
    pub(super) fn instructions(&self, sender: &Sender, mode: Mode) -> String {
        let world = self.world.load();
        let profile = self.profile(&world, sender);
        let grants = self.access.granted(sender.conversation.session().principal());
        let (servers, records) = introduced(&world, &grants);
        let published = (mode == Mode::Passthrough).then(|| world.published(sender.era(), profile));
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
    pub(super) fn defers(&self, sender: &Sender) -> bool {
        let world = self.world.load();
        world.surface_options().mode == Budgeting::Enforce
            && !world.published(sender.era(), self.profile(&world, sender)).compiled.list.deferred.is_empty()
    }

    /// Whether a name is that of a tool that stands for those without room.
    pub(super) fn is_deferral(&self, sender: &Sender, name: &str) -> bool {
        matches!(
            MetaTool::named(name, Mode::Gateway),
            Some(MetaTool::Browse(portcullis_catalog::Kind::Tool) | MetaTool::Execute)
        ) && self.defers(sender)
    }
}

/// The servers somebody with these grants can see, and whether one of them keeps records.
pub(crate) fn introduced(world: &World, grants: &Grants) -> (Vec<Introduced>, bool) {
    let (registry, options) = (world.registry(), world.surface_options());
    let visible = registry.servers().filter(|server| {
        server.is_active() && server.declaration.everything().any(|tool| grants.reach(tool.id().short()))
    });
    let servers = visible.map(|server| {
        let name = server.record.server_identity.as_str();
        let said = options.servers.get(name);
        let changed = world
            .upstream(&server.record.server_identity)
            .is_some_and(|upstream| upstream.says_other_things());
        let accepted = server.declaration.live().instructions.clone();
        Introduced {
            name: name.to_owned(),
            priority: said.map_or(crate::surface::PRIORITY, |said| said.priority),
            digest: said.and_then(|said| said.digest.clone()),
            // SURF-14: words that nobody accepted are not passed on.
            instructions: accepted.filter(|_| !changed),
        }
    });
    (servers.collect(), world.has_records())
}
