//! A card in the forms it can be emitted in (CAT-82), within its budget (CAT-83, CAT-84).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use unicode_segmentation::UnicodeSegmentation;

use super::budget::fits;
use super::choice::ChoiceCard;
use crate::item::{Effect, Kind, SelectableItem};

/// What a card should cost, what it may cost, and what its signature may: ten cards stay below 450 tokens on most lists.
const TARGET: usize = 44;
/// Keys and quotes cost as well.
const JSON_TARGET: usize = 60;
const CAP: usize = 80;
const SIGNATURE: usize = 30;
/// No description is shown further than this, whatever its tokens.
const MAX_DESCRIPTION_BYTES: usize = 640;

/// How cards are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// One line each: the cheapest.
    #[default]
    Lines,
    /// Short keys.
    Json,
    /// The eleven keys of the original.
    Compat,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 3] = [Form::Lines, Form::Json, Form::Compat];
}

/// A rendered card. JSON forms lack their last brace, because what is counted when asked comes last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Card {
    pub(crate) text: Box<str>,
    /// Where the description begins, in a line.
    pub(crate) description: u32,
    pub(crate) over_cap: bool,
}

/// Renders an item's card.
pub(crate) fn card(item: &SelectableItem, form: Form) -> Card {
    let target = if form == Form::Lines { TARGET } else { JSON_TARGET };
    let all = item.signature.len();
    // The signature has a budget of its own; its longest beginning that fits is shown.
    let mut shown = all;
    if !fits(&item.signature.text(all), SIGNATURE) {
        shown = longest(all, |count| fits(&item.signature.text(count), SIGNATURE));
    }
    let write = |shown: usize, description: &str| write(item, form, &item.signature.text(shown), description);
    let made = |text: String, description: &str, over_cap| {
        let description = (text.len() - description.len().min(text.len())) as u32;
        Card { text: text.into(), description, over_cap }
    };
    let whole = write(shown, &item.description);
    if fits(&closed(&whole, form), target) {
        return made(whole, &item.description, false);
    }
    let description = shorter(&item.description, |text| fits(&closed(&write(shown, text), form), target));
    let shortened = write(shown, &description);
    if fits(&closed(&shortened, form), CAP) {
        return made(shortened, &description, false);
    }
    let count = longest(shown, |count| fits(&closed(&write(count, "…"), form), CAP));
    let least = write(count, "…");
    let over_cap = !fits(&closed(&least, form), CAP);
    made(least, "…", over_cap)
}

/// A card with everything that comes last.
pub(crate) fn finished(card: &str, form: Form, similar: usize, score: Option<u32>) -> String {
    match form {
        Form::Lines if similar > 0 => format!("{card} (+{similar} similar)"),
        Form::Lines => card.to_owned(),
        Form::Json => {
            let similar = if similar > 0 { format!(",\"similar\":{similar}") } else { String::new() };
            let score = score.map_or(String::new(), |score| format!(",\"score\":{score}"));
            format!("{card}{similar}{score}}}")
        }
        // The keys are sorted, so the score has its place in the middle.
        Form::Compat => match score {
            Some(score) => format!("{}}}", card.replacen("\"score\":null", &format!("\"score\":{score}"), 1)),
            None => format!("{card}}}"),
        },
    }
}

fn closed(card: &str, form: Form) -> String {
    finished(card, form, 0, None)
}

fn write(item: &SelectableItem, form: Form, args: &str, description: &str) -> String {
    let effects: Vec<&str> = item.effects.iter().map(Effect::as_str).collect();
    match form {
        Form::Lines => {
            let effects = if effects.is_empty() { "pure".to_owned() } else { effects.join(",") };
            format!("{}{args} [{effects}] — {description}", item.id)
        }
        Form::Json => {
            let kind = if item.kind == Kind::Tool {
                String::new()
            } else {
                format!(",\"kind\":\"{}\"", item.kind.as_str())
            };
            format!(
                "{{\"id\":{},\"args\":{}{kind},\"fx\":{},\"d\":{}",
                Value::from(item.id.as_str()),
                Value::from(args),
                json!(effects),
                Value::from(description)
            )
        }
        Form::Compat => {
            let card = ChoiceCard::of(item, None);
            let mut object = serde_json::to_value(&card).expect("a card is plain JSON");
            let members = object.as_object_mut().expect("a card is an object");
            for ours in ["args", "effects", "similar"] {
                members.remove(ours);
            }
            members.insert("description".into(), description.into());
            members.insert("score".into(), Value::Null);
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members: Vec<String> = members
                .into_iter()
                .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
                .collect();
            format!("{{{}", members.join(","))
        }
    }
}

/// The longest beginning that fits and ends a sentence, else one cut between two characters.
fn shorter(description: &str, fits: impl Fn(&str) -> bool) -> String {
    let text = crate::facets::cut(description, MAX_DESCRIPTION_BYTES);
    let ends = text.char_indices().filter(|(at, c)| {
        let after = text[at + c.len_utf8()..].chars().next();
        matches!(c, '.' | '!' | '?') && after.is_none_or(char::is_whitespace)
    });
    let ends: Vec<usize> = ends.map(|(at, c)| at + c.len_utf8()).collect();
    // What fits is found by halving: more text never costs less, but for a token at the seam.
    let sentences = longest(ends.len(), |count| count == 0 || fits(&text[..ends[count - 1]]));
    if sentences > 0 && fits(&text[..ends[sentences - 1]]) {
        return text[..ends[sentences - 1]].to_owned();
    }
    let cuts: Vec<usize> = text.grapheme_indices(true).map(|(at, _)| at).collect();
    let cut =
        |count: usize| format!("{}…", text[..cuts.get(count).copied().unwrap_or(text.len())].trim_end());
    let count = longest(cuts.len(), |count| fits(&cut(count)));
    cut(count)
}

/// The largest number up to `most` for which `fits` holds, found by halving; 0 if there is none.
fn longest(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
