//! Prose that a server repeats (SURF-32), and taking it out where it stands more than once (SURF-33).
//!
//! Never across servers: who says something must stay visible.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;

use super::offered::{Offered, Op, Rewrite};
use super::sentences::{COUNTED, joined, lines_of_sentences, sentences, units};

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

    /// How many characters it takes of the instructions.
    pub(super) fn units(&self) -> usize {
        units(&self.line()) + 1
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
    let mut strings: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut said: HashMap<Cow<'_, str>, Vec<&str>> = HashMap::new();
    for tool in tools {
        for text in tool.texts() {
            for sentence in sentences(text).into_iter().filter(|sentence| counts(sentence)) {
                said.entry(sentence).or_default().push(&tool.name);
            }
            if text.chars().count() >= VERBATIM {
                strings.entry(text).or_default().push(&tool.name);
            }
        }
    }
    let (verbatim_dup_bytes, strings) = repeated(strings);
    let (sentence_dup_bytes, sentences) = repeated(said);
    Duplicates { verbatim_dup_bytes, sentence_dup_bytes, strings, sentences }
}

/// Whether a sentence is long enough to be worth counting, and says something itself.
fn counts(sentence: &str) -> bool {
    sentence.chars().count() >= COUNTED && !is_pointer(sentence)
}

fn repeated<S: AsRef<str>>(texts: HashMap<S, Vec<&str>>) -> (usize, Vec<Repeated>) {
    let mut groups: Vec<Repeated> = texts
        .into_iter()
        .filter(|(_, tools)| tools.len() > 1)
        .map(|(text, mut tools)| {
            let copies = tools.len();
            tools.sort_unstable();
            tools.dedup();
            let tools = tools.into_iter().map(ToOwned::to_owned).collect();
            Repeated { text: text.as_ref().to_owned(), copies, tools }
        })
        .collect();
    let bytes = |group: &Repeated| (group.copies - 1) * group.text.len();
    groups.sort_by(|a, b| bytes(b).cmp(&bytes(a)).then_with(|| a.text.cmp(&b.text)));
    (groups.iter().map(bytes).sum(), groups)
}

/// A description while sentences are taken out of it.
struct Text {
    tool: usize,
    pointer: String,
    /// As it now is.
    text: String,
    /// Its sentences, line by line.
    lines: Vec<Vec<String>>,
}

/// Gives every repeated sentence of one server's tools one home, where that makes the list shorter.
pub fn hoist(
    tools: &mut [&mut Offered],
    how: &Hoisting<'_>,
    first_note: usize,
    ledger: &mut Vec<Rewrite>,
) -> (Vec<Note>, Vec<Hoisted>) {
    let mut texts = texts(tools);
    let (mut notes, mut hoisted, mut room) = (Vec::new(), Vec::new(), how.room);
    for (sentence, places) in groups(&texts, how.min_tools) {
        let mut holders: Vec<usize> = places.iter().map(|place| texts[*place].tool).collect();
        holders.dedup();
        let names: Vec<String> = holders.iter().map(|tool| tools[*tool].name.clone()).collect();
        let wanted = how.discovery_tool.and_then(|wanted| {
            places.iter().copied().find(|place| {
                let name = &tools[texts[*place].tool].name;
                name == wanted || name.strip_suffix(wanted).is_some_and(|prefix| prefix.ends_with("__"))
            })
        });
        let note = Note { number: first_note + notes.len(), tools: names.clone(), text: sentence.clone() };
        let length = note.units();
        let at_tool = |place: usize| {
            let name = tools[texts[place].tool].name.clone();
            (Some(place), format!("See `{name}`."), name)
        };
        let (kept, pointer, home) = match wanted {
            Some(place) => at_tool(place),
            None if length <= room => {
                (None, format!("See instructions, N{}.", note.number), "instructions".to_owned())
            }
            None => at_tool(places[0]),
        };
        let elsewhere = places.into_iter().filter(|place| Some(*place) != kept);
        let rewritten: Vec<Rewritten> =
            elsewhere.map(|place| texts[place].without(place, &sentence, &pointer)).collect();
        if rewritten.iter().map(|one| one.saved).sum::<isize>() <= 0 {
            continue;
        }
        let is_note = home == "instructions";
        for Rewritten { place, text, lines, .. } in rewritten {
            let op = if is_note { Op::Hoist } else { Op::Point };
            let at = &mut texts[place];
            tools[at.tool].set_text(&at.pointer, text.clone(), (op, "SURF-33"), ledger);
            (at.text, at.lines) = (text, lines);
        }
        if is_note {
            room -= length;
            notes.push(note);
        }
        hoisted.push(Hoisted { text: sentence, home, tools: names });
    }
    (notes, hoisted)
}

fn texts(tools: &[&mut Offered]) -> Vec<Text> {
    let all = tools.iter().enumerate().flat_map(|(tool, offered)| {
        offered.descriptions().into_iter().map(move |(pointer, text)| Text {
            tool,
            pointer,
            text: text.to_owned(),
            lines: owned(lines_of_sentences(text)),
        })
    });
    all.collect()
}

fn owned(lines: Vec<Vec<Cow<'_, str>>>) -> Vec<Vec<String>> {
    lines.into_iter().map(|line| line.into_iter().map(Cow::into_owned).collect()).collect()
}

/// Sentences that stand in enough tools, the heaviest first, with the texts they stand in. The first sentence of a tool
/// says what it does and is never touched.
fn groups(texts: &[Text], min_tools: usize) -> Vec<(String, Vec<usize>)> {
    let mut found: HashMap<&str, (usize, Vec<usize>)> = HashMap::new();
    for (place, text) in texts.iter().enumerate() {
        let sentences = text.lines.iter().flatten().skip(text.untouched());
        for sentence in sentences.filter(|sentence| counts(sentence)) {
            let (copies, places) = found.entry(sentence).or_default();
            *copies += 1;
            if places.last() != Some(&place) {
                places.push(place);
            }
        }
    }
    let is_spread = |places: &[usize]| {
        let mut tools: Vec<usize> = places.iter().map(|place| texts[*place].tool).collect();
        tools.dedup();
        tools.len() >= min_tools.max(2)
    };
    let mut groups: Vec<_> = found.into_iter().filter(|(_, (_, places))| is_spread(places)).collect();
    let bytes = |sentence: &str, copies: usize| (copies - 1) * sentence.len();
    groups.sort_by(|(a, (of_a, _)), (b, (of_b, _))| {
        bytes(b, *of_b).cmp(&bytes(a, *of_a)).then_with(|| a.cmp(b))
    });
    groups.into_iter().map(|(sentence, (_, places))| (sentence.to_owned(), places)).collect()
}

/// A text as it would be without a sentence.
struct Rewritten {
    place: usize,
    text: String,
    lines: Vec<Vec<String>>,
    /// Bytes of the list.
    saved: isize,
}

impl Text {
    /// How many of its sentences stay whatever they are.
    fn untouched(&self) -> usize {
        usize::from(self.pointer == "/description")
    }

    /// What it would be without the sentence, with one pointer.
    fn without(&self, place: usize, sentence: &str, pointer: &str) -> Rewritten {
        let mut lines = self.lines.clone();
        let mut spared = self.untouched();
        for line in &mut lines {
            line.retain(|one| {
                let is_spared = spared > 0;
                spared = spared.saturating_sub(1);
                is_spared || one != sentence
            });
        }
        if !lines.iter().flatten().any(|one| one == pointer) {
            match lines.iter_mut().rev().find(|line| !line.is_empty()) {
                Some(last) => last.push(pointer.to_owned()),
                None => lines = vec![vec![pointer.to_owned()]],
            }
        }
        let text = joined(&lines);
        Rewritten { place, saved: json_length(&self.text) - json_length(&text), text, lines }
    }
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
