//! What every client reads before it calls anything: the list of tools and the instructions, made to fit (SURF).
//!
//! [`compile`] is a pure function: equal inputs give equal bytes on every replica. Its input is the accepted
//! definitions, cleaned by the gauntlet, never live text; what it rewrites is what is *published*, and pins, digests,
//! approvals, search and validation keep the accepted original.
//!
//! | module | the idea |
//! |---|---|
//! | [`instructions`] | one text whose first 512 characters are ours and whole |
//! | [`duplicates`] | what a server repeats, and giving it one home |
//! | [`lints`] | what is wrong with a definition, and putting it right |
//! | [`footprint`] | what a list costs, exactly |
//! | [`profile`], [`ladder`] | what a client can take, and making a list fit it |
//! | [`baseline`] | a surface may shrink but not grow unseen |
//! | [`report`] | all of it as one document |
//! | [`offered`] | one tool and every change to it, on a ledger |

pub(crate) mod audience;
pub mod baseline;
pub mod duplicates;
pub mod footprint;
pub mod instructions;
mod json_text;
pub mod ladder;
pub mod lints;
pub mod offered;
pub mod profile;
pub(crate) mod published;
pub mod report;
mod sentences;
#[cfg(test)]
mod tests;
pub(crate) mod wording;

use std::collections::{BTreeMap, BTreeSet};

use portcullis_core::Sha256Digest;
use portcullis_gauntlet::Glob;
use serde::Deserialize;

use crate::exposure::Mode;
pub use crate::listing::served;
use duplicates::{Hoisted, Note};
use footprint::{Excess, Footprint, OfServer, excesses, list_text};
use instructions::{Introduced, Told, notes_over, room_for_notes};
use ladder::{Climbed, Rungs, StepSize, climb, make_room};
use lints::{Finding, Instead};
use offered::{Offered, Rewrite};
use profile::Profile;

/// The priority of servers of which nothing is said.
pub const PRIORITY: u8 = 50;

/// What happens to a list that is too large (SURF-62).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Budgeting {
    /// It is measured.
    Report,
    /// It is told.
    #[default]
    Warn,
    /// It is made to fit.
    Enforce,
}

/// When repeated sentences are taken out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Dedup {
    Never,
    /// Only if the list is too large.
    #[default]
    WhenNeeded,
    Always,
}

/// What happens to descriptions that do not say what a client must know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Routability {
    Off,
    Lint,
    #[default]
    Fix,
}

/// Where clients come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Listener {
    /// The address that agents connect to.
    Http,
    /// `serve --stdio`, and the sockets behind it.
    Stdio,
}

/// What an operator says of one server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerOptions {
    /// 0 to 100; higher stays listed longer.
    #[serde(default = "default_priority")]
    pub priority: u8,
    /// Tools that are never deferred.
    pub pin: Vec<String>,
    /// Words for the instructions, in place of the server's own.
    pub digest: Option<String>,
    /// Where repeated text should live.
    pub discovery_tool: Option<String>,
    /// When its repeated sentences are taken out.
    pub dedup: Option<Dedup>,
}

fn default_priority() -> u8 {
    PRIORITY
}

/// How surfaces are made.
#[derive(Debug, Clone)]
pub struct SurfaceOptions {
    /// The profile of clients of which nothing more is known.
    pub profile: String,
    /// What happens to a list that is too large.
    pub mode: Budgeting,
    /// When repeated sentences are taken out.
    pub dedup: Dedup,
    /// In how many tools a sentence must stand to count as repeated.
    pub dedup_min_tools: usize,
    /// What happens to descriptions that lack something.
    pub routability: Routability,
    /// By who the agent is, as in `agent:ci`; before anything else.
    pub principals: BTreeMap<String, String>,
    /// By where they come in; before what clients call themselves.
    pub listeners: BTreeMap<Listener, String>,
    /// By what clients call themselves; the first that matches counts.
    pub matches: Vec<(Glob, String)>,
    /// All profiles there are.
    pub profiles: BTreeMap<String, Profile>,
    /// What is said of servers.
    pub servers: BTreeMap<String, ServerOptions>,
}

impl Default for SurfaceOptions {
    fn default() -> Self {
        let profiles = Profile::BUILT_IN.iter().filter_map(|name| Profile::built_in(name));
        Self {
            profile: "strict".into(),
            mode: Budgeting::default(),
            dedup: Dedup::default(),
            dedup_min_tools: 3,
            routability: Routability::default(),
            principals: BTreeMap::new(),
            listeners: BTreeMap::new(),
            matches: Vec::new(),
            profiles: profiles.map(|profile| (profile.name.clone(), profile)).collect(),
            servers: BTreeMap::new(),
        }
    }
}

impl SurfaceOptions {
    /// The profile of that name, else the default one.
    pub fn profile(&self, name: &str) -> &Profile {
        let found = self.profiles.get(name).or_else(|| self.profiles.get(&self.profile));
        found.or_else(|| self.profiles.values().next()).expect("there are always profiles")
    }

    /// The profile of a client by what it calls itself (SURF-61).
    pub fn profile_of(&self, client: &str) -> &Profile {
        let named = self.matches.iter().find(|(glob, _)| glob.matches(client));
        self.profile(named.map_or(self.profile.as_str(), |(_, profile)| profile.as_str()))
    }
}

/// What a surface is made of.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The list, in order.
    pub tools: Vec<Offered>,
    /// How it is shown.
    pub mode: Mode,
    /// To whom.
    pub profile: &'a Profile,
    /// How.
    pub options: &'a SurfaceOptions,
    /// Arguments that can never be used (SURF-96).
    pub prune: BTreeSet<(String, String)>,
    /// The servers, for the instructions.
    pub servers: Vec<Introduced>,
    /// Whether a records server is among them.
    pub records: bool,
    /// What stands for tools that are not listed.
    pub stand_ins: Vec<String>,
}

/// A list made to fit, without its instructions.
#[derive(Debug, Clone, Default)]
pub struct Compiled {
    /// What is listed, and what it took.
    pub list: Climbed,
    /// What it is over, if it could not be made to fit or was not to be.
    pub excess: Vec<Excess>,
}

/// Everything that a client is shown.
#[derive(Debug, Clone)]
pub struct Surface {
    /// The profile's name.
    pub profile: String,
    /// How tools are shown.
    pub mode: Mode,
    /// What is told.
    pub instructions: String,
    /// What is listed.
    pub tools: Vec<Offered>,
    /// The list, as served.
    pub tools_json: String,
    /// What it costs.
    pub footprint: Footprint,
    /// The last step of the ladder that was needed.
    pub ladder_step: u8,
    /// What each step came to.
    pub steps: Vec<StepSize>,
    /// What is over its limit.
    pub excess: Vec<Excess>,
    /// What is not listed.
    pub deferred: Vec<String>,
    /// What has one home now.
    pub hoisted: Vec<Hoisted>,
    /// Every rewrite.
    pub ledger: Vec<Rewrite>,
    /// What is odd.
    pub findings: Vec<Finding>,
    /// Of list and instructions.
    pub surface_digest: Sha256Digest,
}

/// The list alone (SURF-1): what a `tools/list` needs.
pub fn compile_list(input: &Input<'_>) -> Compiled {
    let list = fitted(input);
    let excess = match told_of_excess(input, &list) {
        true => excesses(&list.tools, input.profile),
        false => Vec::new(),
    };
    Compiled { list, excess }
}

/// Whether it matters that a list is too large: it should have been made to fit and was not, or is to be told of.
fn told_of_excess(input: &Input<'_>, list: &Climbed) -> bool {
    match input.options.mode {
        Budgeting::Report => false,
        Budgeting::Warn => true,
        Budgeting::Enforce => input.mode == Mode::Gateway || list.step == 7,
    }
}

fn fitted(input: &Input<'_>) -> Climbed {
    let profile = input.profile;
    let (prefix, most) = (profile.instructions_prefix_chars, profile.instructions_max_chars);
    let mut room = match profile.instructions_visible {
        true => room_for_notes(input.servers.len(), input.records, prefix, most),
        false => 0,
    };
    loop {
        let list = fitted_within(input, room);
        let over = notes_over(&list.deferred, &list.notes, input.records, prefix, most);
        if over == 0 || list.notes.is_empty() {
            return list;
        }
        // SURF-17: a note that has no room after all goes back to a tool, so that nothing points nowhere. The heaviest
        // are placed first, so it is the lightest that finds none.
        let used: usize = list.notes.iter().map(Note::units).sum();
        room = used.saturating_sub(over);
    }
}

/// The list, with so many characters of instructions for notes.
fn fitted_within(input: &Input<'_>, room: usize) -> Climbed {
    let (options, profile) = (input.options, input.profile);
    let rungs = Rungs {
        servers: Some(&options.servers),
        dedup: options.dedup,
        dedup_min_tools: options.dedup_min_tools,
        prune: input.prune.clone(),
        room,
        stand_ins: input.stand_ins.clone(),
    };
    let mut list = Climbed { tools: input.tools.clone(), ..Climbed::default() };
    // SURF-37: only lists of whole definitions are rewritten.
    let rewrites = input.mode == Mode::Passthrough;
    if rewrites && options.routability == Routability::Fix {
        let instead = Instead::among(&list.tools);
        for tool in list.tools.iter_mut().filter(|tool| !tool.server.is_empty()) {
            lints::put_right(tool, &instead, &mut list.ledger);
        }
    }
    if rewrites {
        ladder::prune(&mut list, &rungs);
        ladder::deduplicate(&mut list, &rungs, |dedup| dedup == Dedup::Always);
    }
    // Meta-tools are as few as they can be.
    if input.mode == Mode::Gateway || options.mode != Budgeting::Enforce {
        return list;
    }
    let tools = std::mem::take(&mut list.tools);
    let mut climbed =
        if rewrites { climb(tools, profile, &rungs) } else { make_room(tools, profile, &rungs) };
    climbed.ledger.splice(0..0, list.ledger);
    renumber(&mut climbed, list.notes);
    climbed.hoisted.splice(0..0, list.hoisted);
    climbed
}

/// Notes of sentences that were always to be taken out come first; those of the ladder follow. Both are never made by
/// one server, since a server's sentences are taken out once.
fn renumber(climbed: &mut Climbed, mut first: Vec<Note>) {
    first.append(&mut climbed.notes);
    climbed.notes = first;
}

/// List, instructions and what they cost.
pub fn compile(input: &Input<'_>) -> Surface {
    let list = fitted(input);
    let footprint = Footprint::of(&list.tools);
    let (instructions, findings) = said(input, &list, &footprint.servers);
    let excess = match told_of_excess(input, &list) {
        true => footprint.excesses(&list.tools, input.profile),
        false => Vec::new(),
    };
    let tools_json = list_text(&list.tools);
    Surface {
        profile: input.profile.name.clone(),
        mode: input.mode,
        surface_digest: digest(&tools_json, &instructions),
        instructions,
        footprint,
        tools_json,
        tools: list.tools,
        ladder_step: list.step,
        steps: list.steps,
        excess,
        deferred: list.deferred,
        hoisted: list.hoisted,
        ledger: list.ledger,
        findings,
    }
}

/// What is odd about a surface, without counting what it costs.
pub(crate) fn findings(input: &Input<'_>) -> Vec<Finding> {
    let list = fitted(input);
    said(input, &list, &OfServer::all(&list.tools)).1
}

/// The instructions that go with a list, and what is odd about both.
fn said(input: &Input<'_>, list: &Climbed, servers: &[OfServer]) -> (String, Vec<Finding>) {
    let told = Told {
        mode: input.mode,
        records: input.records,
        deferred: &list.deferred,
        notes: &list.notes,
        servers: input.servers.clone(),
        prefix: input.profile.instructions_prefix_chars,
        most: input.profile.instructions_max_chars,
    };
    let (instructions, mut findings) = instructions::compile(&told);
    if input.options.routability != Routability::Off {
        findings.extend(lints::lint(&list.tools, servers, input.profile, &list.notes));
    }
    let pruned = list.ledger.iter().filter(|rewrite| rewrite.op == offered::Op::Prune);
    findings.extend(pruned.map(|rewrite| lints::never_usable(&list.tools, rewrite)));
    (instructions, findings)
}

/// What two replicas compare.
pub fn digest(tools_json: &str, instructions: &str) -> Sha256Digest {
    Sha256Digest::of(&[tools_json.as_bytes(), &[0], instructions.as_bytes()].concat())
}
