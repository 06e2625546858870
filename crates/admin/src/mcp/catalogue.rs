//! The three tools, and the cards that the first of them answers with (ADM-81).

use serde_json::{Value, json};

use crate::args::{ArgValue, NonBlank, Page};
use crate::tool::ToolDef;
use crate::{args, words};

words! {
    pub(crate) enum ClassWord { Read = "read", Write = "write", Admin = "admin" }
}

args! {
    pub(crate) struct Browse {
        query: Option<NonBlank>, domain: Option<NonBlank>, class: Option<ClassWord>, page: Page,
    }
}

/// How many cards an answer has, unless more are asked for.
const CARDS: usize = 10;
/// The longest card, in bytes.
const LONGEST_CARD: usize = 200;

pub(super) fn meta_tools() -> Vec<Value> {
    let browse = "Find admin tools by words, domain or class. Read-only. Object: the admin catalogue.";
    let view = "Show one admin tool with the schemas of its arguments and data. Read-only. Object: the admin catalogue.";
    let execute = "Call an admin tool found with tool_browse. Destructive. Object: this gateway.";
    vec![
        json!({
            "name": "tool_browse", "description": browse, "inputSchema": Browse::schema(),
            "annotations": {"readOnlyHint": true},
        }),
        json!({
            "name": "tool_view", "description": view, "annotations": {"readOnlyHint": true},
            "inputSchema": {
                "type": "object", "properties": {"tool": {"type": "string", "minLength": 1}}, "required": ["tool"],
                "additionalProperties": false,
            },
        }),
        json!({
            "name": "tool_execute", "description": execute, "annotations": {"destructiveHint": true},
            "inputSchema": {
                "type": "object",
                "properties": {"tool": {"type": "string", "minLength": 1}, "arguments": {"type": "object"}},
                "required": ["tool"], "additionalProperties": false,
            },
        }),
    ]
}

/// Cards, one line each, the best first; then how many more there are.
pub(super) fn cards(tools: &[&ToolDef], asked: &Browse) -> String {
    let words: Vec<String> = asked.query.as_ref().map(|query| terms(query.as_str())).unwrap_or_default();
    let mut found: Vec<(usize, &ToolDef)> = (tools.iter())
        .filter(|tool| asked.domain.as_ref().is_none_or(|domain| tool.domain() == domain.as_str()))
        .filter(|tool| asked.class.is_none_or(|class| tool.class().as_str() == class.as_str()))
        .map(|tool| (score(tool, &words), *tool))
        .filter(|(score, _)| words.is_empty() || *score > 0)
        .collect();
    found.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.name().cmp(other.name())));
    let limit = if asked.page == Page::default() { CARDS } else { asked.page.limit };
    let shown = found.iter().skip(asked.page.offset).take(limit);
    let mut text: Vec<String> = shown.map(|(_, tool)| card(tool)).collect();
    let rest = found.len().saturating_sub(asked.page.offset + text.len());
    if text.is_empty() {
        text.push("no admin tool fits; leave out query to see all".into());
    } else if rest > 0 {
        text.push(format!("{rest} more: offset {}", asked.page.offset + text.len()));
    }
    text.join("\n")
}

fn card(tool: &ToolDef) -> String {
    let required = tool.input_schema()["required"].as_array().into_iter().flatten();
    let required: Vec<&str> =
        required.filter_map(Value::as_str).filter(|name| !matches!(*name, "confirm" | "reason")).collect();
    let action = tool.description().split(" Object:").next().unwrap_or_default();
    let mut card = format!("{}({}) {action}", tool.name(), required.join(", "));
    if card.len() > LONGEST_CARD {
        let end = (0..=LONGEST_CARD - 3).rev().find(|end| card.is_char_boundary(*end)).unwrap_or(0);
        card.truncate(end);
        card.push_str("...");
    }
    card
}

fn terms(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1);
    words.map(str::to_lowercase).collect()
}

/// Words in the name count more than words in the description; a word may be a part of another.
fn score(tool: &ToolDef, words: &[String]) -> usize {
    let (name, description) = (tool.short_name(), tool.description().to_lowercase());
    let stem = |word: &str| word.trim_end_matches('s').to_owned();
    words
        .iter()
        .map(|word| {
            3 * usize::from(name.contains(&stem(word))) + usize::from(description.contains(&stem(word)))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn cards_are_short_and_the_best_comes_first() {
        // ADM-81, SO-34
        let registry = Registry::build(crate::tools::modules()).unwrap();
        let tools: Vec<&ToolDef> = registry.tools().filter(|tool| tool.is_wired()).collect();
        for tool in &tools {
            assert!(card(tool).len() <= LONGEST_CARD, "{}", card(tool));
        }
        let asked = |query: &str| Browse {
            query: NonBlank::new(query),
            domain: None,
            class: None,
            page: Page::default(),
        };
        let all = cards(&tools, &asked(""));
        assert!(all.len() <= 2200, "{}", all.len());
        let best = cards(&tools, &asked("list the servers"));
        assert!(best.starts_with("portcullis_servers_list("), "{best}");
        assert!(cards(&tools, &asked("zzz")).starts_with("no admin tool fits"));
    }
}
