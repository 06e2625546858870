//! Words in a description that tell a model what to do (CAT-112).

use crate::plain_line::is_hidden;

/// Phrases that no description needs.
const IMPERATIVES: [&str; 12] = [
    "ignore previous",
    "ignore all previous",
    "disregard",
    "do not tell the user",
    "don't tell the user",
    "without telling",
    "do not mention",
    "before using any other tool",
    "always use this",
    "you must call",
    "system prompt",
    "override",
];

/// What is suspicious about a text that replaces another one: `hidden_characters`, `imperative:…`, `url_added`.
pub fn findings(before: &str, after: &str) -> Vec<String> {
    let mut found = Vec::new();
    if after.chars().any(is_hidden) && !before.chars().any(is_hidden) {
        found.push("hidden_characters".to_owned());
    }
    let (old, new) = (before.to_lowercase(), after.to_lowercase());
    let added = IMPERATIVES.iter().filter(|phrase| new.contains(**phrase) && !old.contains(**phrase));
    found.extend(added.map(|phrase| format!("imperative:{phrase}")));
    let urls = |text: &str| text.matches("://").count();
    if urls(&new) > urls(&old) {
        found.push("url_added".to_owned());
    }
    found
}
