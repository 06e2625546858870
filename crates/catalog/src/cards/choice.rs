//! Cards as values, for those who use the library alone (CAT-80, CAT-90).

use std::collections::HashMap;

use serde::Serialize;

use crate::item::{Effect, SelectableItem};

/// What a model needs to choose, and nothing that could hurt: no schemas, no addresses, no maps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChoiceCard {
    /// The canonical id.
    pub id: String,
    /// At most 64 characters.
    pub name: String,
    /// One line.
    pub description: String,
    /// At most five of at most 24 characters, those about safety first.
    pub tags: Vec<String>,
    /// `tool`, `resource` or `prompt`.
    pub kind: &'static str,
    /// Where it belongs.
    pub namespace: String,
    /// Whether it takes arguments.
    pub has_schema: bool,
    /// What its server says it costs.
    pub cost_hint: f64,
    /// What its server says.
    pub side_effects: bool,
    /// `destructive`, `read_only` or nothing.
    pub safety: &'static str,
    /// How well it fits, if that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Its arguments in short.
    pub args: String,
    /// What was declared.
    pub effects: Vec<&'static str>,
    /// How many more of its family there are.
    pub similar: usize,
}

impl ChoiceCard {
    pub(crate) fn of(item: &SelectableItem, score: Option<f64>) -> Self {
        Self {
            id: item.id.clone(),
            name: item.name.chars().take(64).collect(),
            description: item.description.clone(),
            tags: tags(item),
            kind: item.kind.as_str(),
            namespace: item.namespace.clone(),
            has_schema: item.args_schema.get() != "{}",
            cost_hint: item.cost_hint,
            side_effects: item.side_effects,
            safety: item.safety().as_str(),
            score,
            args: item.signature.text(usize::MAX),
            effects: item.effects.iter().map(Effect::as_str).collect(),
            similar: 0,
        }
    }
}

fn tags(item: &SelectableItem) -> Vec<String> {
    let is_safety = |tag: &&String| matches!(tag.as_str(), "read-only" | "destructive");
    let safety = item.tags.iter().filter(is_safety);
    let rest = item.tags.iter().filter(|tag| !is_safety(tag));
    let mut tags: Vec<String> =
        safety.chain(rest).take(5).map(|tag| tag.chars().take(24).collect()).collect();
    tags.sort_unstable();
    tags
}

/// Cards of these items: by score, the best first, then by id; cut to `max_cards`. The same input in any order gives the
/// same cards.
///
/// ```
/// # use portcullis_catalog::{ServerCtx, ToolDef, tool_to_selectable, cards::make_choice_cards};
/// # let raw = |name: &str| serde_json::value::to_raw_value(&serde_json::json!({"name": name})).unwrap();
/// # let item = |name: &str| tool_to_selectable(&ToolDef::tool(&raw(name)), &ServerCtx::default()).unwrap();
/// let (a, b) = (item("a"), item("b"));
/// let scores = [(b.id.clone(), 2.0)].into();
/// let cards = make_choice_cards(&[&a, &b], Some(&scores), 20);
/// assert_eq!(cards[0].id, b.id);
/// assert_eq!(make_choice_cards(&[&b, &a], None, 20)[0].id, a.id);
/// ```
pub fn make_choice_cards(
    items: &[&SelectableItem],
    scores: Option<&HashMap<String, f64>>,
    max_cards: usize,
) -> Vec<ChoiceCard> {
    let score = |item: &SelectableItem| scores.map(|scores| scores.get(&item.id).copied().unwrap_or(0.0));
    let mut order: Vec<(&SelectableItem, Option<f64>)> =
        items.iter().map(|item| (*item, score(item))).collect();
    order.sort_by(|(a, by_a), (b, by_b)| {
        by_b.unwrap_or(0.0).total_cmp(&by_a.unwrap_or(0.0)).then_with(|| a.id.cmp(&b.id))
    });
    order.into_iter().take(max_cards).map(|(item, score)| ChoiceCard::of(item, score)).collect()
}
