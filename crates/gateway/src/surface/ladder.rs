//! Making a list fit its client (SURF-62): seven steps, each tried only if the ones before were not enough.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::duplicates::{self, Hoisted, Hoisting, Note};
use super::footprint::{excesses, list_text};
use super::offered::{Offered, Op, Rewrite};
use super::profile::Profile;
use super::sentences::{cut, first_sentence, leading, sentences};
use super::{Dedup, ServerOptions};

/// What the steps may use.
#[derive(Debug, Clone, Default)]
pub struct Rungs<'a> {
    /// What the operator says of servers.
    pub servers: Option<&'a BTreeMap<String, ServerOptions>>,
    /// For servers of which nothing is said.
    pub dedup: Dedup,
    /// A sentence counts as repeated if it stands in so many tools.
    pub dedup_min_tools: usize,
    /// Arguments that can never be used: tool, argument (SURF-96).
    pub prune: BTreeSet<(String, String)>,
    /// Characters of instructions that notes may take.
    pub room: usize,
    /// What stands for deferred tools.
    pub stand_ins: Vec<String>,
}

/// A list that was made to fit, or not.
#[derive(Debug, Clone, Default)]
pub struct Climbed {
    /// The last step that was needed; 7 means that it does not fit.
    pub step: u8,
    /// What is listed.
    pub tools: Vec<Offered>,
    /// What is not, but can be found and called.
    pub deferred: Vec<String>,
    /// What moved into the instructions.
    pub notes: Vec<Note>,
    /// What has one home now.
    pub hoisted: Vec<Hoisted>,
    /// Every rewrite.
    pub ledger: Vec<Rewrite>,
    /// What each step came to.
    pub steps: Vec<StepSize>,
}

/// Bytes of the list after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StepSize {
    /// Which.
    pub step: u8,
    /// The list then.
    pub bytes: usize,
}

impl Climbed {
    fn fits(&mut self, step: u8, profile: &Profile) -> bool {
        self.step = step;
        self.steps.push(StepSize { step, bytes: list_text(&self.tools).len() });
        excesses(&self.tools, profile).is_empty()
    }
}

/// Climbs until the list fits.
pub fn climb(tools: Vec<Offered>, profile: &Profile, rungs: &Rungs<'_>) -> Climbed {
    let mut list = Climbed { tools, ..Climbed::default() };
    if list.fits(0, profile) {
        return list;
    }
    for tool in &mut list.tools {
        tool.remove("", "outputSchema", (Op::Drop, "SURF-62.1"), &mut list.ledger);
    }
    if list.fits(1, profile) {
        return list;
    }
    drop_extras(&mut list);
    if list.fits(2, profile) {
        return list;
    }
    prune(&mut list, rungs);
    if list.fits(3, profile) {
        return list;
    }
    deduplicate(&mut list, rungs, |dedup| dedup != Dedup::Never);
    if list.fits(4, profile) {
        return list;
    }
    shorten(&mut list, profile);
    if list.fits(5, profile) {
        return list;
    }
    defer(&mut list, profile, rungs);
    if list.fits(6, profile) {
        return list;
    }
    list.step = 7;
    list
}

/// The last two steps alone: for lists whose entries are not rewritten (SURF-37).
pub fn make_room(tools: Vec<Offered>, profile: &Profile, rungs: &Rungs<'_>) -> Climbed {
    let mut list = Climbed { tools, ..Climbed::default() };
    if list.fits(0, profile) {
        return list;
    }
    defer(&mut list, profile, rungs);
    // CAT-91: what stands for others has its place among them.
    list.tools.sort_by(|a, b| a.name.cmp(&b.name));
    if list.fits(6, profile) {
        return list;
    }
    list.step = 7;
    list
}

fn drop_extras(list: &mut Climbed) {
    for tool in &mut list.tools {
        for member in ["title", "icons", "execution"] {
            tool.remove("", member, (Op::Drop, "SURF-62.2"), &mut list.ledger);
        }
        let foreign: Vec<String> = (tool.member("_meta").and_then(|meta| meta.as_object()).into_iter())
            .flat_map(|meta| meta.keys())
            .filter(|key| !key.starts_with("io.portcullis/"))
            .cloned()
            .collect();
        for key in foreign {
            tool.remove("/_meta", &key, (Op::Drop, "SURF-62.2"), &mut list.ledger);
        }
    }
}

/// Arguments that no subject supports are not published; a required one stays.
pub(super) fn prune(list: &mut Climbed, rungs: &Rungs<'_>) {
    if rungs.prune.is_empty() {
        return;
    }
    for tool in &mut list.tools {
        let required: Vec<String> = (tool.member("inputSchema"))
            .and_then(|schema| schema.get("required")?.as_array().cloned())
            .unwrap_or_default()
            .iter()
            .filter_map(|name| name.as_str().map(ToOwned::to_owned))
            .collect();
        let unusable: Vec<&str> = (rungs.prune.iter())
            .filter(|(name, argument)| *name == tool.name && !required.contains(argument))
            .map(|(_, argument)| argument.as_str())
            .collect();
        for argument in unusable {
            tool.remove("/inputSchema/properties", argument, (Op::Prune, "SURF-96"), &mut list.ledger);
        }
    }
}

/// Takes out what servers repeat, where the operator lets it, the worst first.
pub(super) fn deduplicate(list: &mut Climbed, rungs: &Rungs<'_>, wanted: impl Fn(Dedup) -> bool) {
    let mut servers: Vec<String> = list.tools.iter().map(|tool| tool.server.clone()).collect();
    servers.sort();
    servers.dedup();
    let weight = |server: &String, tools: &[Offered]| {
        duplicates::report(tools.iter().filter(|tool| tool.server == *server)).sentence_dup_bytes
    };
    let mut weighed: Vec<(usize, String)> =
        servers.into_iter().map(|server| (weight(&server, &list.tools), server)).collect();
    weighed.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let mut room = rungs.room;
    for (_, server) in weighed {
        let options = rungs.servers.and_then(|servers| servers.get(&server));
        let dedup = options.and_then(|options| options.dedup).unwrap_or(rungs.dedup);
        if !wanted(dedup) || server.is_empty() {
            continue;
        }
        let how = Hoisting {
            min_tools: rungs.dedup_min_tools,
            discovery_tool: options.and_then(|options| options.discovery_tool.as_deref()),
            room,
        };
        let mut own: Vec<&mut Offered> = list.tools.iter_mut().filter(|tool| tool.server == server).collect();
        let (notes, hoisted) = duplicates::hoist(&mut own, &how, list.notes.len() + 1, &mut list.ledger);
        room -= notes.iter().map(Note::units).sum::<usize>().min(room);
        list.notes.extend(notes);
        list.hoisted.extend(hoisted);
    }
}

/// What a text becomes, by its place; nothing if it is not this pass's business.
type Shortening<'a> = dyn Fn(&str, &str) -> Option<String> + 'a;

/// One text made shorter.
struct Shorter {
    tool: usize,
    pointer: String,
    text: String,
}

/// Parameter descriptions to their first sentence, then to 120 characters; tool descriptions to whole sentences
/// within the client's cut. The longest first, and no more of them than needed.
fn shorten(list: &mut Climbed, profile: &Profile) {
    let params = |first: bool| {
        move |pointer: &str, text: &str| {
            if pointer == "/description" {
                return None;
            }
            if first { first_sentence(text).map(Cow::into_owned) } else { Some(cut(text, 120)) }
        }
    };
    let most = profile.description_max_chars;
    let own = move |pointer: &str, text: &str| {
        let first = first_sentence(text)?;
        let kept = leading(text, most);
        (pointer == "/description").then(|| if kept.is_empty() { first.into_owned() } else { kept })
    };
    let passes: [&Shortening<'_>; 3] = [&own, &params(true), &params(false)];
    for pass in passes {
        let mut candidates: Vec<(usize, Shorter)> = Vec::new();
        for (index, tool) in list.tools.iter().enumerate() {
            for (pointer, text) in tool.descriptions() {
                if let Some(shorter) = pass(&pointer, text).filter(|shorter| shorter.len() < text.len()) {
                    candidates.push((text.len(), Shorter { tool: index, pointer, text: shorter }));
                }
            }
        }
        candidates
            .sort_by(|(a, x), (b, y)| b.cmp(a).then_with(|| (x.tool, &x.pointer).cmp(&(y.tool, &y.pointer))));
        let edits: Vec<Shorter> = candidates.into_iter().map(|(_, edit)| edit).collect();
        let apply = |tools: &mut [Offered], ledger: &mut Vec<Rewrite>, edits: &[Shorter]| {
            for edit in edits {
                let why = (Op::Truncate, "SURF-62.5");
                tools[edit.tool].set_text(&edit.pointer, edit.text.clone(), why, ledger);
            }
        };
        let enough = least(edits.len(), |count| {
            let mut tools = list.tools.clone();
            apply(&mut tools, &mut Vec::new(), &edits[..count]);
            excesses(&tools, profile).is_empty()
        });
        apply(&mut list.tools, &mut list.ledger, &edits[..enough.unwrap_or(edits.len())]);
        if enough.is_some() {
            return;
        }
    }
}

/// Takes tools off the list and puts a way to find them on it.
fn defer(list: &mut Climbed, profile: &Profile, rungs: &Rungs<'_>) {
    let options = |tool: &Offered| rungs.servers.and_then(|servers| servers.get(&tool.server));
    let pinned = |tool: &Offered| {
        options(tool).is_some_and(|options| {
            options.pin.iter().any(|pin| {
                tool.name == *pin || tool.name.strip_suffix(pin.as_str()).is_some_and(|at| at.ends_with("__"))
            })
        })
    };
    let stand_ins: Vec<Offered> =
        rungs.stand_ins.iter().filter_map(|text| Offered::new("", None, text)).collect();
    let is_ours = |tool: &Offered| tool.server.is_empty();
    // What others point to stays, or they would point nowhere (SURF-33).
    let homes: BTreeSet<String> = (list.tools.iter())
        .flat_map(Offered::texts)
        .flat_map(sentences)
        .filter_map(|sentence| duplicates::pointed_at(&sentence).map(ToOwned::to_owned))
        .collect();
    let stays = |tool: &Offered| is_ours(tool) || pinned(tool) || homes.contains(&tool.name);
    let mut order: Vec<usize> = (0..list.tools.len()).filter(|at| !stays(&list.tools[*at])).collect();
    order.sort_by_cached_key(|at| {
        let tool = &list.tools[*at];
        let priority = options(tool).map_or(super::PRIORITY, |options| options.priority);
        (priority, std::cmp::Reverse(tool.text().len()), tool.name.clone())
    });
    let left = |count: usize| {
        let gone: BTreeSet<usize> = order[..count].iter().copied().collect();
        let mut tools: Vec<Offered> = (list.tools.iter().enumerate())
            .filter(|(at, _)| !gone.contains(at))
            .map(|(_, tool)| tool.clone())
            .collect();
        let missing = stand_ins.iter().filter(|one| !tools.iter().any(|tool| tool.name == one.name));
        let missing: Vec<Offered> = missing.cloned().collect();
        tools.extend(missing);
        tools
    };
    let count = least(order.len(), |count| count > 0 && excesses(&left(count), profile).is_empty());
    let count = count.unwrap_or(order.len());
    let tools = left(count);
    let gone: BTreeSet<usize> = order[..count].iter().copied().collect();
    for (_, tool) in list.tools.iter().enumerate().filter(|(at, _)| gone.contains(at)) {
        tool.deferred(&mut list.ledger);
        list.deferred.push(tool.name.clone());
    }
    list.tools = tools;
}

/// The least count up to `most` that is enough, if one is. More is never worse.
fn least(most: usize, enough: impl Fn(usize) -> bool) -> Option<usize> {
    if !enough(most) {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high) / 2;
        if enough(middle) { high = middle } else { low = middle + 1 }
    }
    Some(high)
}
