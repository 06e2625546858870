//! How much an item is worth: recency, likeness to the query, kind, and shortness (CTX-61).

use std::collections::HashSet;

use super::Stage;
use super::terms::{jaccard, terms};

/// What is known of each candidate once it is scored; by place in the log.
pub(super) struct Scored {
    pub(super) score: Vec<f64>,
    pub(super) tokens: Vec<usize>,
    pub(super) terms: Vec<Vec<u64>>,
    /// Candidates, the best first; later ones before earlier ones where they are equal.
    pub(super) order: Vec<usize>,
}

pub(super) fn score(stage: &Stage<'_>) -> Scored {
    let count = stage.items.len();
    let candidates: Vec<usize> = (0..count).filter(|at| stage.is_candidate(*at)).collect();
    let query = terms(stage.build.query);
    let tags: HashSet<&str> = stage.build.query_tags.iter().map(String::as_str).collect();
    let mut scored = Scored {
        score: vec![0.0; count],
        tokens: vec![0; count],
        terms: vec![Vec::new(); count],
        order: Vec::new(),
    };
    let total = candidates.len() as f64;
    for (position, at) in candidates.iter().copied().enumerate() {
        let item = &stage.items[at];
        let own = terms(&stage.texts[at]);
        let similarity = if tags.is_empty() { jaccard(&own, &query) } else { tags_in_common(item, &tags) };
        let is_original = matches!(stage.texts[at], std::borrow::Cow::Borrowed(_));
        let said =
            item.token_estimate.filter(|_| is_original).and_then(|tokens| usize::try_from(tokens).ok());
        // What a log says of an item's size may be wrong; the final count is not.
        let tokens = said.unwrap_or_else(|| stage.build.encoder.count(&stage.texts[at]));
        let recency = (position + 1) as f64 / total;
        scored.score[at] = 0.30 * recency
            + 0.25 * similarity
            + 0.35 * item.kind.weight()
            + 0.10 / (1.0 + tokens as f64 / 500.0);
        scored.tokens[at] = tokens;
        scored.terms[at] = own;
    }
    scored.order = candidates;
    let score = &scored.score;
    scored.order.sort_by(|a, b| score[*b].total_cmp(&score[*a]).then(b.cmp(a)));
    scored
}

fn tags_in_common(item: &crate::item::ContextItem, query: &HashSet<&str>) -> f64 {
    let own: HashSet<&str> = (item.metadata.get("tags").and_then(serde_json::Value::as_array))
        .into_iter()
        .flatten()
        .filter_map(serde_json::Value::as_str)
        .collect();
    let all = own.union(query).count();
    if all == 0 { 0.0 } else { own.intersection(query).count() as f64 / all as f64 }
}
