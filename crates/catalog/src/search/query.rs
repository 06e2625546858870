//! One search (CAT-63 to CAT-70).

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashSet;

use super::analysis::{StopWords, terms};
use super::index::Index;
use crate::item::Kind;
use crate::plain_line::plain_line;
use crate::semantic::fusion;
use crate::semantic::vectors::checked;
use crate::snapshot::CatalogSnapshot;
use crate::view::View;

/// The longest query.
pub(crate) const MAX_QUERY_BYTES: usize = 8 * 1024;
const MAX_TERMS: usize = 64;

/// What is asked for besides the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchOptions {
    /// Tools, resources and prompts are never mixed.
    pub kind: Kind,
    /// How many hits at most: 1 to 50.
    pub top_k: usize,
    /// How many members of a family are shown; 0 for all (CAT-66).
    pub family_max: usize,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { kind: Kind::Tool, top_k: 10, family_max: 1 }
    }
}

/// One item found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Its place in the snapshot.
    pub index: usize,
    /// How well it fits; comparable within one search only.
    pub score: u32,
    /// How many visible members of its family are not shown.
    pub similar: usize,
}

/// Why there is no search (CAT-70).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// Nothing is asked for.
    #[error("query is empty; say what you want done")]
    Blank,
    /// Too much is asked for.
    #[error("query is longer than {MAX_QUERY_BYTES} bytes")]
    TooLong,
    /// Not a number of hits.
    #[error("top_k must be an integer from 1 to 50")]
    TopK,
}

/// What one thread needs to search; kept, because zeroing it for a hundred thousand items would cost more than searching.
#[derive(Default)]
struct Scratch {
    scores: Vec<u32>,
    best: Vec<u32>,
    touched: Vec<u32>,
    touched_by_word: Vec<u32>,
    /// The best member of each family so far; a score of nothing is none.
    families: Vec<(Reverse<u32>, u32)>,
    touched_families: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl CatalogSnapshot {
    /// The items that fit, the best first. Same snapshot, view and query: same answer (CAT-67).
    pub fn search(&self, text: &str, view: &View, options: SearchOptions) -> Result<Vec<Hit>, QueryError> {
        if text.trim().is_empty() {
            return Err(QueryError::Blank);
        }
        if text.len() > MAX_QUERY_BYTES {
            return Err(QueryError::TooLong);
        }
        if !(1..=50).contains(&options.top_k) {
            return Err(QueryError::TopK);
        }
        let index = self.index(options.kind);
        let named: Vec<usize> = self.named(plain_line(text).0.trim(), options.kind, view);
        let is_named = |item: usize| named.contains(&item);
        let words = self.words(index, text);
        // Families of which several members are shown fold many hits into few, so more are ranked than shown; all of them in
        // the end. Of others only the best member is ranked at all.
        let near = self.near(text, view, options);
        let enough = options.top_k + named.len();
        let enough = if near.is_some() { enough.max(fusion::DEPTH) } else { enough };
        let limits = if options.family_max > 1 { [8 * enough, usize::MAX] } else { [enough, enough] };
        for ranked in limits {
            let (lexical, complete) = self.ranked(index, &words, view, ranked, options.family_max == 1);
            let ranked = match &near {
                Some(near) => self.fused(&lexical, near, options.family_max == 1),
                None => lexical,
            };
            let first = named.iter().map(|item| (*item, u32::MAX));
            let ranking = first.chain(ranked.into_iter().filter(|(item, _)| !is_named(*item)));
            let hits = self.folded(ranking, view, options);
            if hits.len() >= options.top_k || complete || options.family_max <= 1 {
                return Ok(hits);
            }
        }
        unreachable!("a ranking without limit is complete")
    }

    /// The items nearest in meaning, if anything knows meanings: one of each family where only one is shown.
    fn near(&self, text: &str, view: &View, options: SearchOptions) -> Option<Vec<usize>> {
        let meaning = self.meaning()?;
        // A query that has no direction is ranked by its words; what was wrong with the scorer was found when building.
        let query = checked(meaning.scorer.as_ref(), text).ok()?;
        let index = self.index(options.kind);
        let nearest =
            meaning.vectors(options.kind).nearest(&query, |document| view.sees(index.item(document)));
        let mut families: HashSet<u32> = HashSet::new();
        let nearest = nearest.into_iter().map(|document| index.item(document));
        let first_of_family = nearest.filter(|item| {
            options.family_max != 1 || self.families().of(*item).is_none_or(|family| families.insert(family))
        });
        Some(first_of_family.take(fusion::DEPTH).collect())
    }

    /// Both rankings as one (CAT-69). Where one member stands for its family, it is the same one in both.
    fn fused(&self, lexical: &[(usize, u32)], near: &[usize], one_of_family: bool) -> Vec<(usize, u32)> {
        let by_words: Vec<usize> = lexical.iter().map(|(item, _)| *item).collect();
        let stands = |item: &usize| {
            let family = self.families().of(*item).filter(|_| one_of_family)?;
            by_words.iter().find(|other| self.families().of(**other) == Some(family)).copied()
        };
        let near: Vec<usize> = near.iter().map(|item| stands(item).unwrap_or(*item)).collect();
        fusion::fuse(&by_words, &near)
    }

    /// The distinct words of a query, with their stems; the rarest if there are too many (CAT-70).
    pub(super) fn words(&self, index: &Index, text: &str) -> Vec<(String, String)> {
        let mut words: Vec<(String, String)> = Vec::new();
        terms(text, StopWords::Drop, |word, stem| {
            if !words.iter().any(|(_, known)| known == stem) {
                words.push((word.to_owned(), stem.to_owned()));
            }
        });
        if words.is_empty() {
            // Nothing but words that usually say nothing: then they are all there is.
            terms(text, StopWords::Keep, |word, stem| words.push((word.to_owned(), stem.to_owned())));
        }
        if words.len() > MAX_TERMS {
            words.sort_by_cached_key(|(_, stem)| (Reverse(index.rarity(stem)), stem.clone()));
            words.truncate(MAX_TERMS);
        }
        words
    }

    /// Visible items by descending score, and whether these are all.
    fn ranked(
        &self,
        index: &Index,
        words: &[(String, String)],
        view: &View,
        limit: usize,
        one_of_family: bool,
    ) -> (Vec<(usize, u32)>, bool) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.scores.resize(scratch.scores.len().max(index.len()), 0);
            scratch.best.resize(scratch.best.len().max(index.len()), 0);
            for (word, stem) in words {
                scratch.add(index, &index.readings(word, stem));
            }
            let mut best = Best { limit, kept: Vec::new(), least: 0, complete: true };
            let families = self.families();
            scratch.families.resize(scratch.families.len().max(families.len()), (Reverse(0), 0));
            let sees_all = std::ptr::eq(view, self.everything()) || view == self.everything();
            for document in scratch.touched.drain(..) {
                let score = std::mem::take(&mut scratch.scores[document as usize]);
                let item = index.item(document);
                if one_of_family && let Some(family) = families.of(item) {
                    let first = &mut scratch.families[family as usize];
                    if (Reverse(score), document) < *first && (sees_all || view.sees(item)) {
                        if first.0.0 == 0 {
                            scratch.touched_families.push(family);
                        }
                        *first = (Reverse(score), document);
                    }
                } else if score > best.least && (sees_all || view.sees(item)) {
                    best.add(score, document);
                } else if score > 0 && score <= best.least {
                    best.complete = false;
                }
            }
            for family in scratch.touched_families.drain(..) {
                let (score, document) =
                    std::mem::replace(&mut scratch.families[family as usize], (Reverse(0), 0));
                if score.0 > best.least {
                    best.add(score.0, document);
                }
            }
            let complete = best.complete && best.kept.len() <= limit;
            let ranked = best.sorted().into_iter().map(|(score, document)| (index.item(document), score));
            (ranked.collect(), complete)
        })
    }

    /// The first members of each family, and how many more it has (CAT-66).
    fn folded(
        &self,
        ranking: impl Iterator<Item = (usize, u32)>,
        view: &View,
        options: SearchOptions,
    ) -> Vec<Hit> {
        let mut hits: Vec<Hit> = Vec::with_capacity(options.top_k);
        let mut shown: Vec<(u32, usize)> = Vec::new();
        for (index, score) in ranking {
            if hits.len() == options.top_k {
                break;
            }
            if let Some(family) = self.families().of(index).filter(|_| options.family_max > 0) {
                match shown.iter_mut().find(|(known, _)| *known == family) {
                    Some((_, count)) if *count == options.family_max => continue,
                    Some((_, count)) => *count += 1,
                    None => shown.push((family, 1)),
                }
            }
            hits.push(Hit { index, score, similar: 0 });
        }
        for (family, count) in shown {
            let members = self.families().members(family);
            let visible = members.iter().filter(|member| view.sees(**member as usize)).count();
            let last = hits.iter_mut().rev().find(|hit| self.families().of(hit.index) == Some(family));
            if let Some(last) = last {
                last.similar = visible - count;
            }
        }
        hits
    }
}

impl Scratch {
    /// A word is worth to an item what its best reading is worth (not their sum: long classes would drown exact hits).
    fn add(&mut self, index: &Index, readings: &[super::index::Reading]) {
        for (term, worth) in readings {
            let (documents, impacts) = index.postings(*term);
            let worth = u32::from(*worth);
            for (document, impact) in documents.iter().zip(impacts) {
                let place = *document as usize;
                let value = (u32::from(*impact) * worth) >> 8;
                let best = &mut self.best[place];
                if value > *best {
                    let score = &mut self.scores[place];
                    if *score == 0 {
                        self.touched.push(*document);
                    }
                    if *best == 0 {
                        self.touched_by_word.push(*document);
                    }
                    *score += value - *best;
                    *best = value;
                }
            }
        }
        for document in self.touched_by_word.drain(..) {
            self.best[document as usize] = 0;
        }
    }
}

/// The best so far; what cannot be among them any more is passed over.
struct Best {
    limit: usize,
    kept: Vec<(Reverse<u32>, u32)>,
    /// Scores up to this are not good enough.
    least: u32,
    complete: bool,
}

impl Best {
    fn add(&mut self, score: u32, document: u32) {
        self.kept.push((Reverse(score), document));
        if self.limit < usize::MAX / 2 && self.kept.len() >= 2 * self.limit {
            self.kept.select_nth_unstable(self.limit - 1);
            self.kept.truncate(self.limit);
            // Equal scores are told apart by the id, which may come later and be lower: keep them coming.
            self.least = self.kept[self.limit - 1].0.0.saturating_sub(1);
            self.complete = false;
        }
    }

    fn sorted(mut self) -> Vec<(u32, u32)> {
        self.kept.sort_unstable();
        self.kept.truncate(self.limit);
        self.kept.into_iter().map(|(score, document)| (score.0, document)).collect()
    }
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
