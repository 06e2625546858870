//! Lists as they are served: one per mode, era, profile, what is hidden and what cannot be used, compiled once for each world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use portcullis_governance::declaration::SideEffect;
use portcullis_governance::registry::{Registry, ToolEntry};

use super::audience::Hidden;
use super::ladder::Climbed;
use super::offered::{Effect, Offered};
use super::profile::Profile;
use super::{Compiled, Input, SurfaceOptions, compile_list};
use crate::edge::Era;
use crate::edge::usable::Pruned;
use crate::exposure::Mode;
use crate::listing::List;

/// For whom a list is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListKey {
    pub(crate) mode: Mode,
    pub(crate) era: Era,
    pub(crate) profile: String,
    /// What it is not shown.
    pub(crate) hidden: Hidden,
    /// What it cannot use.
    pub(crate) pruned: Pruned,
}

/// A list as it is served, and how it came to be that.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) list: List,
    pub(crate) compiled: Compiled,
}

/// Where lists come from, over the worlds of one gateway.
#[derive(Debug)]
pub(crate) struct Press {
    options: SurfaceOptions,
    /// The last lists that fitted, for when the next one does not (SURF-65).
    fitting: Mutex<BTreeMap<ListKey, Vec<Offered>>>,
}

impl Press {
    pub(crate) fn new(options: SurfaceOptions) -> Self {
        Self { options, fitting: Mutex::default() }
    }

    pub(crate) fn options(&self) -> &SurfaceOptions {
        &self.options
    }

    /// The list for one kind of client, of whole definitions or of what stands for them.
    pub(crate) fn publish(
        &self,
        tools: Vec<Offered>,
        key: &ListKey,
        profile: &Profile,
        (servers, records): (usize, bool),
        stand_ins: Vec<String>,
    ) -> Published {
        let input = Input {
            tools,
            mode: key.mode,
            profile,
            options: &self.options,
            prune: key.pruned.clone(),
            servers: vec![super::instructions::Introduced::default(); servers],
            records,
            stand_ins: stand_ins.clone(),
        };
        let mut compiled = compile_list(&input);
        let mut fitting = self.fitting.lock().unwrap_or_else(PoisonError::into_inner);
        if compiled.list.step == 7 {
            // What no longer exists goes even so.
            let before = fitting.get(key).cloned().unwrap_or_default();
            let again = |old: &Offered| match old.server.is_empty() {
                true => Some(old.clone()),
                false => input.tools.iter().find(|tool| tool.name == old.name)?.published_like(old),
            };
            let mut last: Vec<Offered> = before.iter().filter_map(again).collect();
            if last.is_empty() {
                let own = input.tools.iter().filter(|tool| tool.server.is_empty()).cloned();
                last = own.chain(stand_ins.iter().filter_map(|text| Offered::new("", None, text))).collect();
                last.sort_by(|a, b| a.name.cmp(&b.name));
                last.dedup_by(|a, b| a.name == b.name);
            }
            let listed: BTreeSet<String> = last.iter().map(|tool| tool.name.clone()).collect();
            let deferred = input.tools.iter().filter(|tool| !listed.contains(&tool.name));
            compiled.list = Climbed {
                step: 7,
                deferred: deferred.map(|tool| tool.name.clone()).collect(),
                tools: last,
                ..Climbed::default()
            };
        } else {
            fitting.insert(key.clone(), compiled.list.tools.clone());
        }
        Published { list: List::offered(&compiled.list.tools), compiled }
    }
}

/// What calling a tool can do, by its declaration; a hint of the server's can only make it worse (SURF-34).
pub(crate) fn effect(entry: &ToolEntry) -> Effect {
    let hints: serde_json::Value = serde_json::from_str(entry.tool.definition().get()).unwrap_or_default();
    let hints = &hints["annotations"];
    let reads = entry.tool.side_effects().iter().all(|effect| *effect == SideEffect::Read);
    // Beside a hint that it only reads, one that it destroys means nothing; a declaration of more does not need either.
    let destroys = hints["destructiveHint"] == true && !(reads && hints["readOnlyHint"] == true);
    match (destroys, reads) {
        (true, _) => Effect::Destructive,
        (false, true) => Effect::ReadOnly,
        (false, false) => Effect::Mutating,
    }
}

/// Every definition, as it would be listed.
pub(crate) fn offered(
    registry: &Registry,
    definition: impl Fn(&ToolEntry) -> Vec<u8>,
    own: &[&str],
) -> Vec<Offered> {
    let entries = registry.tools().iter().filter_map(|entry| {
        let text = String::from_utf8(definition(entry)).ok()?;
        Offered::new(entry.tool.id().server().as_str(), Some(effect(entry)), &text)
    });
    let own = own.iter().filter_map(|text| Offered::new("", None, text));
    entries.chain(own).collect()
}

/// The lists of one world, each made when it is first asked for.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<BTreeMap<ListKey, Arc<Published>>>);

impl Lists {
    pub(crate) fn get(&self, key: ListKey, make: impl FnOnce(&ListKey) -> Published) -> Arc<Published> {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = lists.get(&key) {
            return list.clone();
        }
        let list = Arc::new(make(&key));
        lists.insert(key, list.clone());
        list
    }
}
