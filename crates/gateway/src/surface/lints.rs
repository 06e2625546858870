//! What is wrong with a definition, by rule (SURF §4), and putting right what can be (SURF-34).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;
use serde_json::{Value, json};

use super::duplicates::{Note, pointed_at};
use super::footprint::OfServer;
use super::offered::{Effect, Offered, Op, Rewrite};
use super::profile::Profile;
use super::sentences::{joined, lines_of_sentences, sentences, units};
use super::wording::{self, Plain};

/// How bad a finding is. An error keeps a definition from being accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Severity {
    Info,
    Warn,
    Error,
}

/// Something a lint found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// `L001` to `L014`, or a word.
    pub rule: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Whose tool.
    pub server: String,
    /// Which; empty if it is about the server.
    pub tool: String,
    /// Where in its definition.
    pub pointer: String,
    /// What is wrong, in our words.
    pub message: String,
}

const SIZE: [&str; 5] = ["limit", "page_size", "per_page", "first", "max_results"];
const POSITION: [&str; 5] = ["cursor", "offset", "page", "page_token", "after"];
const NARROWING: [&str; 5] = ["fields", "select", "columns", "view", "filter"];
/// Duplicated prose that is worth a word.
const MUCH_REPEATED: usize = 1_024;

/// Everything that is odd about a list, of which each server has its part.
pub fn lint(tools: &[Offered], servers: &[OfServer], profile: &Profile, notes: &[Note]) -> Vec<Finding> {
    let mut found = Vec::new();
    let (named, instead) = (Named::among(tools), Instead::among(tools));
    for tool in tools.iter().filter(|tool| !tool.server.is_empty()) {
        lint_tool(tool, (&named, &instead), profile, notes, &mut found);
    }
    for server in servers.iter().filter(|server| !server.name.is_empty()) {
        let (repeated, bytes) = (server.sentence_dup_bytes, server.bytes);
        if repeated > MUCH_REPEATED || repeated * 20 > bytes {
            found.push(Finding {
                rule: "L011",
                severity: Severity::Warn,
                server: server.name.clone(),
                tool: String::new(),
                pointer: String::new(),
                message: format!("{repeated} of {bytes} bytes are sentences said before; `dedup = \"always\"` takes them out"),
            });
        }
    }
    found
}

fn lint_tool(
    tool: &Offered,
    (named, instead): (&Named<'_>, &Instead),
    profile: &Profile,
    notes: &[Note],
    found: &mut Vec<Finding>,
) {
    let mut say = |rule, severity, pointer: &str, message: String| {
        let (server, tool) = (tool.server.clone(), tool.name.clone());
        found.push(Finding { rule, severity, server, tool, pointer: pointer.to_owned(), message });
    };
    let texts = tool.descriptions();
    for (pointer, text) in &texts {
        let plain = Plain::of(text);
        if plain.claims_to_be_hidden() {
            say("L001", Severity::Error, pointer, "claims that output is hidden from the model".into());
        }
        if let Some(which) = plain.asks_for_credentials() {
            say("L006", Severity::Warn, pointer, format!("asks for credentials ({which})"));
        }
        if text.chars().any(wording::is_hidden) || wording::mixes_scripts(text) {
            say(
                "L010",
                Severity::Error,
                pointer,
                "has characters that readers do not see, or mixes scripts".into(),
            );
        }
        if plain.overrides() {
            say("L013", Severity::Warn, pointer, "tries to direct the model beyond its tool".into());
        }
        let pointing = if text.contains("See ") { sentences(text) } else { Vec::new() };
        for target in pointing.iter().filter_map(|sentence| pointed_at(sentence)) {
            let there = match target.strip_prefix('N').and_then(|number| number.parse::<usize>().ok()) {
                Some(number) => notes.iter().any(|note| note.number == number),
                None => named.has(target),
            };
            if !there {
                say("L007", Severity::Error, pointer, "points to something that is not there".into());
            }
        }
        if let Some(other) = named.foreign(text, &tool.server) {
            say("L014", Severity::Warn, pointer, format!("names {}, a tool of another server", other.name));
        }
    }
    let description = tool.description().trim();
    if description.chars().count() < 12 || description.eq_ignore_ascii_case(&tool.name) {
        say("L003", Severity::Warn, "/description", "does not say what the tool does".into());
    }
    if let Some(effect) = tool.effect {
        let hint = tool.member("annotations").and_then(|hints| hints["readOnlyHint"].as_bool());
        if effect != Effect::ReadOnly && (hint == Some(true) || says_read_only(description)) {
            say("L005", Severity::Error, "/description", "says read-only; the declaration says more".into());
        } else if !description.contains(effect.word()) {
            say("L004", Severity::Info, "/description", format!("does not say {}", effect.word()));
        }
    }
    if needs_paging_guidance(tool) {
        let hint = paging_hint(tool, instead).map_or_else(String::new, |hint| format!("; say: {hint}"));
        say("L002", Severity::Warn, "/description", format!("does not say how to page or narrow{hint}"));
    }
    let longest = texts.iter().map(|(_, text)| units(text)).max().unwrap_or(0);
    if longest > profile.description_max_chars {
        let message =
            format!("{longest} characters; {} cuts at {}", profile.name, profile.description_max_chars);
        say("L008", Severity::Warn, "/description", message);
    }
    if units(&tool.name) > profile.tool_name_max_chars {
        say(
            "L009",
            Severity::Error,
            "/name",
            format!("longer than {} characters", profile.tool_name_max_chars),
        );
    }
}

/// An argument that was left out because nobody could use it (L012).
pub(super) fn never_usable(tools: &[Offered], rewrite: &Rewrite) -> Finding {
    let server = tools.iter().find(|tool| tool.name == rewrite.tool).map(|tool| tool.server.clone());
    Finding {
        rule: "L012",
        severity: Severity::Info,
        server: server.unwrap_or_default(),
        tool: rewrite.tool.clone(),
        pointer: rewrite.pointer.clone(),
        message: "no subject supports this argument, so it is not published".into(),
    }
}

/// The tools of a list by their names, so that a text is read once and not once for each tool.
struct Named<'a> {
    tools: &'a [Offered],
    /// All names, with and without what stands before `__` in them.
    names: HashSet<&'a str>,
    /// Tools by the word that their name begins with.
    by_word: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Named<'a> {
    fn among(tools: &'a [Offered]) -> Self {
        let (mut names, mut by_word) = (HashSet::new(), HashMap::<&str, Vec<usize>>::new());
        for (index, tool) in tools.iter().enumerate() {
            let name = tool.name.as_str();
            names.insert(name);
            let ends = name.as_bytes().windows(2).enumerate().filter(|(_, pair)| *pair == b"__");
            names.extend(ends.map(|(at, _)| &name[at + 2..]));
            // Shorter names are words.
            if let Some(word) = words(name).next().filter(|_| name.len() > 3 && !tool.server.is_empty()) {
                by_word.entry(word).or_default().push(index);
            }
        }
        Self { tools, names, by_word }
    }

    /// Whether a tool has that name.
    fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The first tool of another server whose name stands in a text, not as part of a longer word.
    fn foreign(&self, text: &str, server: &str) -> Option<&'a Offered> {
        let at = |word: &str| &text[word.as_ptr() as usize - text.as_ptr() as usize..];
        let stands = |rest: &str, tool: &Offered| {
            tool.server != server
                && rest.strip_prefix(tool.name.as_str()).is_some_and(|after| !after.starts_with(is_of_a_word))
        };
        let found = words(text).filter_map(|word| Some((at(word), self.by_word.get(word)?)));
        let found = found.flat_map(|(rest, tools)| {
            tools.iter().copied().filter(move |index| stands(rest, &self.tools[*index]))
        });
        found.min().map(|index| &self.tools[index])
    }
}

/// The words of a text, where names of tools are words too.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_of_a_word(c)).filter(|word| !word.is_empty())
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

fn says_read_only(text: &str) -> bool {
    static CLAIM: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?i)\bread[- ]only\b").expect("a fixed pattern"));
    CLAIM.is_match(text)
}

/// A read-only tool that lists things, and does not say how to get fewer (SURF-41).
fn needs_paging_guidance(tool: &Offered) -> bool {
    if tool.effect != Some(Effect::ReadOnly) {
        return false;
    }
    let words = ["list", "query", "search", "find", "get_all"];
    let lists = words.iter().any(|word| own_name(tool).starts_with(word))
        || tool.member("outputSchema").is_some_and(|schema| has_rows(schema, 3));
    let arguments = tool.arguments();
    let said = |parameters: &[&str]| {
        parameters.iter().any(|name| arguments.contains(name) && names_short(tool.description(), name))
    };
    lists && !said(&SIZE) && !said(&POSITION) && !said(&NARROWING)
}

fn names_short(text: &str, name: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

fn has_rows(schema: &Value, depth: usize) -> bool {
    let is = |value: &Value, kind: &str| value["type"] == kind;
    (is(schema, "array") && is(&schema["items"], "object"))
        || depth > 0
            && schema["properties"]
                .as_object()
                .is_some_and(|map| map.values().any(|one| has_rows(one, depth - 1)))
}

/// What a server has for who does not need whole lists: by server, its tools that add up or search.
#[derive(Debug, Default)]
pub struct Instead(BTreeMap<String, Vec<String>>);

impl Instead {
    /// Those among the tools of a list.
    pub fn among(tools: &[Offered]) -> Self {
        let mut instead: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for tool in tools.iter().filter(|tool| tool.effect == Some(Effect::ReadOnly)) {
            if ["aggregate", "search"].iter().any(|word| own_name(tool).starts_with(word)) {
                instead.entry(tool.server.clone()).or_default().push(tool.name.clone());
            }
        }
        Self(instead)
    }

    /// The first two that are not the tool itself.
    fn of(&self, tool: &Offered) -> Option<String> {
        let names = self.0.get(&tool.server)?.iter().filter(|name| **name != tool.name);
        let names: Vec<String> = names.take(2).map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| format!("prefer {}", names.join(" or ")))
    }
}

/// What a tool's server calls it.
fn own_name(tool: &Offered) -> &str {
    tool.name.rsplit("__").next().unwrap_or_default()
}

/// How to page and narrow, in terms of arguments and tools there are.
fn paging_hint(tool: &Offered, instead: &Instead) -> Option<String> {
    let arguments = tool.arguments();
    let first = |names: &[&'static str]| names.iter().find(|name| arguments.contains(*name)).copied();
    let page = match (first(&SIZE), first(&POSITION)) {
        (Some(size), Some(position)) => Some(format!("page with `{size}` and `{position}`")),
        (Some(one), None) | (None, Some(one)) => Some(format!("page with `{one}`")),
        (None, None) => None,
    };
    let narrow = first(&NARROWING).map(|narrow| format!("narrow with `{narrow}`"));
    let own = [page, narrow].into_iter().flatten().collect::<Vec<_>>();
    // SURF-41: without such arguments there is no hint.
    let first = own.first()?.chars().next()?.to_uppercase();
    let hint = own.into_iter().chain(instead.of(tool)).collect::<Vec<_>>().join("; ");
    Some(format!("{first}{}.", &hint[1..]))
}

/// Puts descriptions and hints right, as far as that can be done without knowing the tool.
pub fn put_right(tool: &mut Offered, instead: &Instead, ledger: &mut Vec<Rewrite>) {
    let claims = tool.descriptions().into_iter().filter(|(_, text)| Plain::of(text).claims_to_be_hidden());
    let fixed: Vec<(String, String)> = claims.map(|(pointer, text)| (pointer, without_claim(text))).collect();
    for (pointer, text) in fixed {
        tool.set_text(&pointer, text, (Op::Drop, "L001"), ledger);
    }
    let Some(effect) = tool.effect else { return };
    if tool.member("description").is_none() {
        return;
    }
    if effect != Effect::ReadOnly {
        if tool.member("annotations").is_some_and(|hints| hints["readOnlyHint"] == true) {
            tool.set("/annotations/readOnlyHint", json!(false), (Op::Annotate, "SURF-35"), ledger);
        }
        if says_read_only(tool.description()) {
            let mut lines = lines_of_sentences(tool.description());
            let mut first = true;
            for line in &mut lines {
                line.retain(|sentence| std::mem::take(&mut first) || !says_read_only(sentence));
            }
            let text = joined(&lines);
            tool.set_text("/description", text, (Op::Drop, "L005"), ledger);
        }
    }
    let mut missing = Vec::new();
    if !tool.description().contains(effect.word()) {
        missing.push(effect.word().to_owned());
    }
    if needs_paging_guidance(tool) {
        missing.extend(paging_hint(tool, instead));
    }
    if !missing.is_empty() {
        let before = tool.description().trim_end();
        let stop = if before.is_empty() || before.ends_with(['.', '!', '?', ':']) { "" } else { "." };
        let text = format!("{before}{stop} {}", missing.join(" "));
        tool.set_text("/description", text.trim_start().to_owned(), (Op::Annotate, "SURF-34"), ledger);
    }
}

/// A claim in the first sentence stays, contradicted; others go.
fn without_claim(text: &str) -> String {
    let mut lines = lines_of_sentences(text);
    let (mut first, mut contradict) = (true, false);
    for line in &mut lines {
        line.retain(|sentence| {
            let claims = Plain::of(sentence).claims_to_be_hidden();
            if std::mem::take(&mut first) {
                contradict = claims;
                return true;
            }
            !claims
        });
    }
    let mut text = joined(&lines);
    if contradict {
        text.push_str(" Structured output is model-visible.");
    }
    text
}
