//! What is wrong with a definition, by rule (SURF §4), and putting right what can be (SURF-34).

use std::sync::LazyLock;

use regex::Regex;
use serde::Serialize;
use serde_json::{Value, json};

use super::duplicates::{self, Note, pointed_at};
use super::offered::{Effect, Offered, Op, Rewrite};
use super::profile::Profile;
use super::sentences::{joined, lines_of_sentences, sentences, units};
use super::wording;

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

/// Everything that is odd about a list.
pub fn lint(tools: &[Offered], profile: &Profile, notes: &[Note]) -> Vec<Finding> {
    let mut found = Vec::new();
    for tool in tools.iter().filter(|tool| !tool.server.is_empty()) {
        lint_tool(tool, tools, profile, notes, &mut found);
    }
    let mut servers: Vec<&str> = tools.iter().map(|tool| tool.server.as_str()).collect();
    servers.sort_unstable();
    servers.dedup();
    for server in servers.into_iter().filter(|server| !server.is_empty()) {
        let own = || tools.iter().filter(move |tool| tool.server == server);
        let repeated = duplicates::report(own()).sentence_dup_bytes;
        let bytes: usize = own().map(|tool| tool.text().len()).sum();
        if repeated > MUCH_REPEATED || repeated * 20 > bytes {
            found.push(Finding {
                rule: "L011",
                severity: Severity::Warn,
                server: server.to_owned(),
                tool: String::new(),
                pointer: String::new(),
                message: format!("{repeated} of {bytes} bytes are sentences said before; `dedup = \"always\"` takes them out"),
            });
        }
    }
    found
}

fn lint_tool(tool: &Offered, all: &[Offered], profile: &Profile, notes: &[Note], found: &mut Vec<Finding>) {
    let mut say = |rule, severity, pointer: &str, message: String| {
        let (server, tool) = (tool.server.clone(), tool.name.clone());
        found.push(Finding { rule, severity, server, tool, pointer: pointer.to_owned(), message });
    };
    let texts = tool.descriptions();
    for (pointer, text) in &texts {
        if wording::claims_to_be_hidden(text) {
            say("L001", Severity::Error, pointer, "claims that output is hidden from the model".into());
        }
        if let Some(which) = wording::asks_for_credentials(text) {
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
        if wording::overrides(text) {
            say("L013", Severity::Warn, pointer, "tries to direct the model beyond its tool".into());
        }
        for target in sentences(text).iter().filter_map(|sentence| pointed_at(sentence)) {
            let there = match target.strip_prefix('N').and_then(|number| number.parse::<usize>().ok()) {
                Some(number) => notes.iter().any(|note| note.number == number),
                None => all.iter().any(|other| {
                    other.name == target
                        || other.name.strip_suffix(target).is_some_and(|prefix| prefix.ends_with("__"))
                }),
            };
            if !there {
                say("L007", Severity::Error, pointer, "points to something that is not there".into());
            }
        }
        let foreign = all.iter().find(|other| {
            other.server != tool.server && !other.server.is_empty() && names(text, &other.name)
        });
        if let Some(other) = foreign {
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
        let hint = paging_hint(tool).map_or_else(String::new, |hint| format!("; say: {hint}"));
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

/// Whether a text has a name as a word of its own.
fn names(text: &str, name: &str) -> bool {
    name.len() > 3
        && text.match_indices(name).any(|(at, _)| {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
        })
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
    let own = tool.name.rsplit("__").next().unwrap_or_default();
    let lists = ["list", "query", "search", "find", "get_all"].iter().any(|word| own.starts_with(word))
        || tool.member("outputSchema").is_some_and(|schema| has_rows(schema, 3));
    let said = |parameters: &[&str]| {
        parameters.iter().any(|name| tool.arguments().contains(name) && names_short(tool.description(), name))
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

/// How to page and narrow, in terms of arguments there are.
fn paging_hint(tool: &Offered) -> Option<String> {
    let arguments = tool.arguments();
    let first = |names: &[&'static str]| names.iter().find(|name| arguments.contains(*name)).copied();
    let page = match (first(&SIZE), first(&POSITION)) {
        (Some(size), Some(position)) => Some(format!("Page with `{size}` and `{position}`")),
        (Some(one), None) | (None, Some(one)) => Some(format!("Page with `{one}`")),
        (None, None) => None,
    };
    match (page, first(&NARROWING)) {
        (Some(page), Some(narrow)) => Some(format!("{page}; narrow with `{narrow}`.")),
        (Some(page), None) => Some(format!("{page}.")),
        (None, Some(narrow)) => Some(format!("Narrow with `{narrow}`.")),
        (None, None) => None,
    }
}

/// Puts descriptions and hints right, as far as that can be done without knowing the tool.
pub fn put_right(tool: &mut Offered, ledger: &mut Vec<Rewrite>) {
    for (pointer, text) in tool.descriptions() {
        if wording::claims_to_be_hidden(&text) {
            let fixed = without_claim(&text);
            tool.set_text(&pointer, fixed, (Op::Drop, "L001"), ledger);
        }
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
            tool.set_text("/description", joined(&lines), (Op::Drop, "L005"), ledger);
        }
    }
    let mut missing = Vec::new();
    if !tool.description().contains(effect.word()) {
        missing.push(effect.word().to_owned());
    }
    if needs_paging_guidance(tool) {
        missing.extend(paging_hint(tool));
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
            let claims = wording::claims_to_be_hidden(sentence);
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
