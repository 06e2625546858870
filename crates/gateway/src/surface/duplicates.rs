//! Prose that a server repeats (SURF-32), and taking it out where it stands more than once (SURF-33).
//!
//! Never across servers: who says something must stay visible.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::offered::{Offered, Op, Rewrite};
use super::sentences::{COUNTED, joined, lines_of_sentences, sentences};

/// Strings shorter than this are not counted as repeated.
const VERBATIM: usize = 40;

/// What one server repeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Duplicates {
    /// Bytes of whole description strings beyond their first copy.
    pub verbatim_dup_bytes: usize,
    /// Likewise of sentences.
    pub sentence_dup_bytes: usize,
    /// The strings.
    pub strings: Vec<Repeated>,
    /// The sentences.
    pub sentences: Vec<Repeated>,
}

/// One text that stands in several places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// It.
    pub text: String,
    /// How often.
    pub copies: usize,
    /// In which tools.
    pub tools: Vec<String>,
}

/// A text that moved from tools into the instructions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// `N<k>`.
    pub number: usize,
    /// Which tools point to it.
    pub tools: Vec<String>,
    /// It.
    pub text: String,
}

impl Note {
    /// The line in the instructions.
    pub fn line(&self) -> String {
        format!("N{} ({}): {}", self.number, self.tools.join(", "), self.text)
    }
}

/// A text that has one home now (SURF-66).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Hoisted {
    /// It.
    pub text: String,
    /// A tool's name, or `instructions`.
    pub home: String,
    /// Which tools had it.
    pub tools: Vec<String>,
}

/// How duplicates are taken out.
#[derive(Debug, Clone)]
pub struct Hoisting<'a> {
    /// A sentence counts if it stands in so many tools.
    pub min_tools: usize,
    /// Preferred home.
    pub discovery_tool: Option<&'a str>,
    /// How many characters of instructions there are for notes; none if clients do not see them.
    pub room: usize,
}

/// What the tools of one server repeat.
pub fn report<'a>(tools: impl Iterator<Item = &'a Offered>) -> Duplicates {
    let mut strings: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for tool in tools {
        for (_, text) in tool.descriptions() {
            for sentence in sentences(&text) {
                if sentence.chars().count() >= COUNTED && !is_pointer(&sentence) {
                    said.entry(sentence).or_default().push(tool.name.clone());
                }
            }
            if text.chars().count() >= VERBATIM {
                strings.entry(text).or_default().push(tool.name.clone());
            }
        }
    }
    let (verbatim_dup_bytes, strings) = repeated(strings);
    let (sentence_dup_bytes, sentences) = repeated(said);
    Duplicates { verbatim_dup_bytes, sentence_dup_bytes, strings, sentences }
}

fn repeated(texts: BTreeMap<String, Vec<String>>) -> (usize, Vec<Repeated>) {
    let mut groups: Vec<Repeated> = texts
        .into_iter()
        .filter(|(_, tools)| tools.len() > 1)
        .map(|(text, mut tools)| {
            let copies = tools.len();
            tools.sort();
            tools.dedup();
            Repeated { text, copies, tools }
        })
        .collect();
    let bytes = |group: &Repeated| (group.copies - 1) * group.text.len();
    groups.sort_by(|a, b| bytes(b).cmp(&bytes(a)).then_with(|| a.text.cmp(&b.text)));
    (groups.iter().map(bytes).sum(), groups)
}

/// Where a sentence stands.
struct Place {
    tool: usize,
    pointer: String,
}

/// Gives every repeated sentence of one server's tools one home, where that makes the list shorter.
pub fn hoist(
    tools: &mut [&mut Offered],
    how: &Hoisting<'_>,
    first_note: usize,
    ledger: &mut Vec<Rewrite>,
) -> (Vec<Note>, Vec<Hoisted>) {
    let (mut notes, mut hoisted, mut room) = (Vec::new(), Vec::new(), how.room);
    for (sentence, places) in groups(tools, how.min_tools) {
        let names: BTreeSet<&str> = places.iter().map(|place| tools[place.tool].name.as_str()).collect();
        let names: Vec<String> = (tools.iter().map(|tool| &tool.name))
            .filter(|name| names.contains(name.as_str()))
            .cloned()
            .collect();
        let wanted = how.discovery_tool.and_then(|wanted| {
            places.iter().position(|place| {
                let name = &tools[place.tool].name;
                name == wanted || name.strip_suffix(wanted).is_some_and(|prefix| prefix.ends_with("__"))
            })
        });
        let note = Note { number: first_note + notes.len(), tools: names.clone(), text: sentence.clone() };
        let length = note.line().encode_utf16().count() + 1;
        let (kept, pointer, home) = match wanted {
            Some(at) => at_tool(tools, &places, at),
            None if length <= room => {
                (None, format!("See instructions, N{}.", note.number), "instructions".to_owned())
            }
            None => at_tool(tools, &places, 0),
        };
        let rewritten = without(tools, &places, kept, &sentence, &pointer);
        let saved: isize =
            rewritten.iter().map(|(_, before, after)| json_length(before) - json_length(after)).sum();
        if saved <= 0 {
            continue;
        }
        for (place, _, after) in rewritten {
            let op = if home == "instructions" { Op::Hoist } else { Op::Point };
            tools[place.tool].set_text(&place.pointer, after, (op, "SURF-33"), ledger);
        }
        if home == "instructions" {
            room -= length;
            notes.push(note);
        }
        hoisted.push(Hoisted { text: sentence, home, tools: names });
    }
    (notes, hoisted)
}

fn at_tool(tools: &[&mut Offered], places: &[Place], at: usize) -> (Option<usize>, String, String) {
    let name = tools[places[at].tool].name.clone();
    (Some(at), format!("See `{name}`."), name)
}

/// Sentences that stand in enough tools, the heaviest first. The first sentence of a tool says what it does and is
/// never touched.
fn groups(tools: &[&mut Offered], min_tools: usize) -> Vec<(String, Vec<Place>)> {
    let mut found: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for (index, tool) in tools.iter().enumerate() {
        for (pointer, text) in tool.descriptions() {
            let untouched = usize::from(pointer == "/description");
            for sentence in sentences(&text).into_iter().skip(untouched) {
                if sentence.chars().count() >= COUNTED && !is_pointer(&sentence) {
                    found.entry(sentence).or_default().push(Place { tool: index, pointer: pointer.clone() });
                }
            }
        }
    }
    let distinct = |places: &[Place]| places.iter().map(|place| place.tool).collect::<BTreeSet<_>>().len();
    let mut groups: Vec<_> =
        found.into_iter().filter(|(_, places)| distinct(places) >= min_tools.max(2)).collect();
    groups.sort_by(|(a, of_a), (b, of_b)| {
        ((of_b.len() - 1) * b.len()).cmp(&((of_a.len() - 1) * a.len())).then_with(|| a.cmp(b))
    });
    groups
}

/// What each place but the one kept would be without the sentence, with one pointer.
fn without<'p>(
    tools: &[&mut Offered],
    places: &'p [Place],
    kept: Option<usize>,
    sentence: &str,
    pointer: &str,
) -> Vec<(&'p Place, String, String)> {
    let mut done = BTreeSet::new();
    let mut rewritten = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let is_home = kept.is_some_and(|kept| {
            kept == at || (places[kept].tool == place.tool && places[kept].pointer == place.pointer)
        });
        if is_home || !done.insert((place.tool, &place.pointer)) {
            continue;
        }
        let here = tools[place.tool].descriptions();
        let Some((_, before)) = here.into_iter().find(|(pointer, _)| *pointer == place.pointer) else {
            continue;
        };
        let mut lines = lines_of_sentences(&before);
        let mut spared = usize::from(place.pointer == "/description");
        for line in &mut lines {
            line.retain(|one| {
                if spared > 0 {
                    spared -= 1;
                    true
                } else {
                    one != sentence
                }
            });
        }
        if !lines.iter().flatten().any(|one| one == pointer) {
            match lines.iter_mut().rev().find(|line| !line.is_empty()) {
                Some(last) => last.push(pointer.to_owned()),
                None => lines = vec![vec![pointer.to_owned()]],
            }
        }
        let after = joined(&lines);
        rewritten.push((place, before, after));
    }
    rewritten
}

fn json_length(text: &str) -> isize {
    isize::try_from(serde_json::Value::from(text).to_string().len()).unwrap_or(isize::MAX)
}

/// Whether a sentence only says where to look.
pub(super) fn is_pointer(sentence: &str) -> bool {
    pointed_at(sentence).is_some()
}

/// What a pointer names: `N<k>`, or a tool.
pub(super) fn pointed_at(sentence: &str) -> Option<&str> {
    let rest = sentence.strip_prefix("See ")?.strip_suffix('.')?;
    if let Some(note) = rest.strip_prefix("instructions, ") {
        let digits = note.strip_prefix('N')?;
        return (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then_some(note);
    }
    let name = rest.strip_prefix('`')?.strip_suffix('`')?;
    (!name.is_empty() && !name.contains(['`', ' '])).then_some(name)
}
