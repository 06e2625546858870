//! The catalogue at one moment (CAT-50): immutable, the same on every replica, whatever the order of servers or pages.

use std::sync::{Arc, OnceLock};

use portcullis_core::Sha256Digest;
use portcullis_core::canon::to_jcs;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cards::Form;
use crate::cards::render::{Card, card};
use crate::collisions;
use crate::facets::Facets;
use crate::finding::{Finding, FindingKind};
use crate::ingest::{Ingested, ServerCtx, ToolDef, ingest};
use crate::item::{Kind, SelectableItem, Standing};
use crate::search::exact::Names;
use crate::search::families::Families;
use crate::search::index::Index;
use crate::search::{SearchOptions, Synonyms};
use crate::semantic::vectors::Vectors;
use crate::semantic::{SemanticError, SemanticScorer};
use crate::view::View;
use crate::wire_name;

/// The accepted definitions of one server.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// Whose they are.
    pub server: ServerCtx,
    /// In the server's order.
    pub definitions: Vec<ToolDef<'a>>,
}

/// What a snapshot is built with.
#[derive(Debug, Clone, Default)]
pub struct BuildOptions {
    /// Words that stand for one another; the built-in table if none is given.
    pub synonyms: Option<Arc<Synonyms>>,
    /// The forms that cards are rendered in at once; others are when they are first asked for.
    pub forms: Vec<Form>,
    /// What finds by meaning, or why nothing does although somebody wants it (CAT-69).
    pub semantic: Option<Result<Arc<dyn SemanticScorer>, SemanticError>>,
}

/// Everything that can be found, at one moment.
#[derive(Debug)]
pub struct CatalogSnapshot {
    epoch: u64,
    digest: Sha256Digest,
    items: Vec<SelectableItem>,
    by_wire: Vec<u32>,
    by_base: Vec<u32>,
    findings: Vec<Finding>,
    everything: View,
    indexes: [Index; 3],
    families: Families,
    names: Names,
    cards: [OnceLock<Vec<Card>>; 3],
    meaning: Option<Meaning>,
}

/// What the items mean, as far as a scorer knows.
#[derive(Debug)]
pub(crate) struct Meaning {
    pub(crate) scorer: Arc<dyn SemanticScorer>,
    vectors: [Vectors; 3],
}

impl Meaning {
    pub(crate) fn vectors(&self, kind: Kind) -> &Vectors {
        &self.vectors[place(kind)]
    }
}

/// Why a text names no item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOne {
    /// Nothing visible has it.
    Unknown,
    /// Several have it; these do, five at most.
    Several(Vec<String>),
}

/// How many there are of what (CAT-52).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Of which snapshot.
    pub epoch: u64,
    /// Items that can be found.
    pub registered: usize,
    /// Items that are refused.
    pub quarantined: usize,
    /// Definitions that are no items, or not callable ones.
    pub skipped: usize,
    /// Things the operator should look at.
    pub findings: usize,
}

/// What a tool is called with (CAT-4).
#[derive(Debug, Clone)]
pub struct Hydrated<'s> {
    /// The canonical id.
    pub tool_id: &'s str,
    /// What it does, whole.
    pub description: &'s str,
    /// The accepted original.
    pub args_schema: &'s RawValue,
    /// The accepted original.
    pub output_schema: Option<&'s RawValue>,
    /// The schema's own.
    pub examples: Option<Value>,
    /// What the declaration says of its effects.
    pub constraints: Option<Value>,
}

impl CatalogSnapshot {
    /// Builds a snapshot: a pure function of the definitions.
    pub fn build(epoch: u64, sources: &[Source<'_>], options: &BuildOptions) -> Self {
        let mut findings = Vec::new();
        let mut ingested = Vec::new();
        for source in sources {
            for (index, definition) in source.definitions.iter().enumerate() {
                ingested.extend(ingest(definition, &source.server, index, &mut findings));
            }
        }
        let mut ingested = collisions::settle(ingested, &mut findings);
        ingested.sort_by(|a, b| a.item.id.cmp(&b.item.id));
        let mut items: Vec<SelectableItem> = Vec::with_capacity(ingested.len());
        let mut facets: Vec<Facets> = Vec::with_capacity(ingested.len());
        for Ingested { item, facets: found, .. } in ingested {
            items.push(item);
            facets.push(found);
        }
        wire_name::assign(&mut items);
        let sorted_by = |key: fn(&SelectableItem) -> &str| {
            let mut order: Vec<u32> = (0..items.len() as u32).collect();
            order.sort_by_key(|index| key(&items[*index as usize]));
            order
        };
        let by_wire = sorted_by(|item| &item.wire_name);
        let by_base = sorted_by(|item| &item.base_id);
        let everything = View::of(&items, |_| true);
        let table = options.synonyms.as_deref().unwrap_or_else(|| Synonyms::built_in());
        let indexes = [Kind::Tool, Kind::Resource, Kind::Prompt].map(|kind| {
            let listed = items.iter().zip(&facets).enumerate().filter(|(_, (item, _))| item.kind == kind);
            let listed = listed.filter(|(_, (item, _))| item.is_listed());
            Index::build(listed.map(|(index, (item, facets))| (index as u32, item, facets)), table)
        });
        let meaning = options.semantic.as_ref().and_then(|scorer| {
            let meaning = scorer.clone().and_then(|scorer| meaning(scorer, &items, &indexes));
            meaning.map_err(|error| findings.push(without_meaning(&error))).ok()
        });
        let digest = digest(&items, meaning.as_ref());
        let (families, names) = (Families::find(&items), Names::new(&items));
        let mut snapshot = Self {
            epoch,
            digest,
            items,
            by_wire,
            by_base,
            findings,
            everything,
            indexes,
            families,
            names,
            cards: Default::default(),
            meaning,
        };
        snapshot.render(&options.forms);
        snapshot.findings.sort();
        snapshot
    }

    /// Renders cards at once, and tells which are dearer than cards may be.
    fn render(&mut self, forms: &[Form]) {
        let mut found = Vec::new();
        for form in forms {
            for (item, card) in self.items.iter().zip(self.cards(*form)).filter(|(_, card)| card.over_cap) {
                found.push(Finding {
                    server: item.server.clone(),
                    index: 0,
                    name: item.name.clone(),
                    tool_id: Some(item.id.clone()),
                    kind: FindingKind::CardOverCap,
                    detail: format!(
                        "the card has {} bytes and more tokens than cards may have",
                        card.text.len()
                    ),
                });
            }
        }
        self.findings.extend(found);
    }

    fn cards(&self, form: Form) -> &[Card] {
        self.cards[form as usize].get_or_init(|| self.items.iter().map(|item| card(item, form)).collect())
    }

    /// An item's card, without what is counted when asked.
    pub(crate) fn card(&self, index: usize, form: Form) -> &str {
        &self.cards(form)[index].text
    }

    /// The description on an item's card.
    pub fn card_description(&self, index: usize) -> &str {
        let card = &self.cards(Form::Lines)[index];
        &card.text[card.description as usize..]
    }

    pub(crate) fn index(&self, kind: Kind) -> &Index {
        &self.indexes[place(kind)]
    }

    pub(crate) fn meaning(&self) -> Option<&Meaning> {
        self.meaning.as_ref()
    }

    pub(crate) fn families(&self) -> &Families {
        &self.families
    }

    /// The visible items of a kind that are called so.
    pub(crate) fn named(&self, text: &str, kind: Kind, view: &View) -> Vec<usize> {
        let named = self.names.find(text, &self.items);
        named.filter(|index| self.items[*index].kind == kind && view.sees(*index)).collect()
    }

    /// Visible ids that may have been meant, three at most (CAT-101).
    pub fn did_you_mean(&self, text: &str, kind: Kind, view: &View) -> Vec<&str> {
        let options = SearchOptions { kind, top_k: 3, family_max: 1 };
        let hits = self.search(crate::facets::cut(text, 256), view, options).unwrap_or_default();
        hits.iter().map(|hit| self.items[hit.index].id.as_str()).collect()
    }

    /// Rises with every snapshot of this process.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Equal wherever the accepted definitions are equal (CAT-51).
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// All items, sorted by id.
    pub fn items(&self) -> &[SelectableItem] {
        &self.items
    }

    /// What the operator should look at.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What somebody sees who may see everything.
    pub fn everything(&self) -> &View {
        &self.everything
    }

    /// What somebody sees for whom `sees` holds.
    pub fn view(&self, sees: impl Fn(&SelectableItem) -> bool) -> View {
        View::of(&self.items, sees)
    }

    /// How many there are of what.
    pub fn counts(&self) -> Counts {
        let quarantined = self.items.iter().filter(|item| matches!(item.standing, Standing::Quarantined(_)));
        let undeclarable = self.items.iter().filter(|item| item.standing == Standing::Undeclarable).count();
        let of_item = self.findings.iter().filter(|finding| finding.kind != FindingKind::SemanticUnavailable);
        let nameless = of_item.filter(|finding| finding.tool_id.is_none()).count();
        Counts {
            epoch: self.epoch,
            registered: self.everything.len(),
            quarantined: quarantined.count(),
            skipped: undeclarable + nameless,
            findings: self.findings.len(),
        }
    }

    /// The index of the item with exactly this id.
    pub fn index_of(&self, id: &str) -> Option<usize> {
        self.items.binary_search_by(|item| item.id.as_str().cmp(id)).ok()
    }

    /// The item a text means: by id, by wire name, or by base id if only one visible item has it (CAT-23). What is hidden is
    /// as good as unknown (CAT-53).
    pub fn lookup(&self, text: &str, view: &View) -> Result<usize, NotOne> {
        if let Some(index) = self.index_of(text).filter(|index| self.may_know(*index, view)) {
            return Ok(index);
        }
        let wire = equal_range(&self.by_wire, |index| self.items[index].wire_name.as_str(), text);
        if let Some(index) =
            wire.iter().map(|index| *index as usize).find(|index| self.may_know(*index, view))
        {
            return Ok(index);
        }
        let base = equal_range(&self.by_base, |index| self.items[index].base_id.as_str(), text);
        let mut visible =
            base.iter().map(|index| *index as usize).filter(|index| self.may_know(*index, view));
        match (visible.next(), visible.next()) {
            (None, _) => Err(NotOne::Unknown),
            (Some(index), None) => Ok(index),
            (Some(first), Some(second)) => {
                let candidates = [first, second].into_iter().chain(visible).take(5);
                Err(NotOne::Several(candidates.map(|index| self.items[index].id.clone()).collect()))
            }
        }
    }

    /// Quarantined items are hidden from search and still answer why they cannot be called.
    fn may_know(&self, index: usize, view: &View) -> bool {
        view.sees(index)
            || (matches!(self.items[index].standing, Standing::Quarantined(_)) && view == &self.everything)
    }

    /// What the item is called with.
    pub fn hydrate(&self, index: usize) -> Hydrated<'_> {
        let item = &self.items[index];
        let schema: Value = serde_json::from_str(item.args_schema.get()).unwrap_or(Value::Null);
        let effects: Vec<&str> = item.effects.iter().map(crate::item::Effect::as_str).collect();
        Hydrated {
            tool_id: &item.id,
            description: &item.description,
            args_schema: &item.args_schema,
            output_schema: item.output_schema.as_deref(),
            examples: schema.get("examples").filter(|examples| examples.is_array()).cloned(),
            constraints: (!effects.is_empty()).then(|| json!({"effects": effects})),
        }
    }
}

/// The part of `order` whose items have the key `text`.
fn equal_range<'o, 'k>(order: &'o [u32], key: impl Fn(usize) -> &'k str, text: &str) -> &'o [u32] {
    let start = order.partition_point(|index| key(*index as usize) < text);
    let end = start + order[start..].partition_point(|index| key(*index as usize) <= text);
    &order[start..end]
}

/// Where an index of this kind of items is.
fn place(kind: Kind) -> usize {
    match kind {
        Kind::Tool | Kind::Internal => 0,
        Kind::Resource => 1,
        Kind::Prompt => 2,
    }
}

fn meaning(
    scorer: Arc<dyn SemanticScorer>,
    items: &[SelectableItem],
    indexes: &[Index; 3],
) -> Result<Meaning, SemanticError> {
    let of = |index: &Index| {
        let listed = (0..index.len() as u32).map(|document| &items[index.item(document)]);
        Vectors::build(scorer.as_ref(), listed)
    };
    let vectors = [of(&indexes[0])?, of(&indexes[1])?, of(&indexes[2])?];
    Ok(Meaning { scorer, vectors })
}

fn without_meaning(error: &SemanticError) -> Finding {
    Finding {
        server: String::new(),
        index: 0,
        name: "search.embeddings".into(),
        tool_id: None,
        kind: FindingKind::SemanticUnavailable,
        detail: format!("search goes by words alone: {error}"),
    }
}

fn digest(items: &[SelectableItem], meaning: Option<&Meaning>) -> Sha256Digest {
    let list: Vec<Value> =
        items.iter().map(|item| json!([item.id, item.definition_digest, item.identity])).collect();
    let list = to_jcs(&list).expect("texts have a canonical form");
    match meaning {
        None => Sha256Digest::of(&list),
        // The same items in another order are another catalogue.
        Some(meaning) => Sha256Digest::of_parts(&[&list, &meaning.scorer.fingerprint()]),
    }
}

#[cfg(test)]
#[path = "snapshot_tests.rs"]
mod tests;
