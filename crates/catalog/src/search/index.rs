//! The inverted index (CAT-60, CAT-62): for each term the items that have it, and how much that is worth.
//!
//! BM25F over seven fields. What a term is worth to an item does not depend on the query, so it is worked out when the
//! index is built and kept as a small integer: a query only adds, and gives the same order on every machine.

use std::collections::HashMap;

use super::analysis::{StopWords, terms};
use super::synonyms::Synonyms;
use super::typos::Spelling;
use crate::facets::{Facets, cut};
use crate::item::SelectableItem;

const FIELDS: usize = 7;
/// Weight and length normalisation of each field, in the order of `fields`.
const WEIGHTS: [(f64, f64); FIELDS] =
    [(3.0, 0.40), (1.0, 0.60), (0.8, 0.0), (0.8, 0.50), (0.7, 0.30), (0.5, 0.50), (0.3, 0.60)];
const K1: f64 = 1.2;
/// Saying a word more often than this is worth nothing (CAT-68).
const MAX_FREQUENCY: u8 = 4;
const MAX_DESCRIPTION_BYTES: usize = 4 * 1024;
/// How many words a prefix may stand for.
const MAX_PREFIXED: usize = 64;

/// What an expansion is worth, in 256ths (CAT-63).
pub(super) const EXACT: u16 = 256;
pub(super) const TYPO: u16 = 154;
pub(super) const PREFIX: u16 = 128;
pub(super) const SYNONYM: u16 = 115;

/// The index over the items of one kind.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The item of each document; ascending.
    items: Vec<u32>,
    /// Sorted; a term's number is its place.
    lexicon: Vec<Box<str>>,
    /// Where each term's postings start; one more at the end.
    starts: Vec<u32>,
    documents: Vec<u32>,
    impacts: Vec<u16>,
    spelling: Spelling,
    /// What may stand for a stem, as far as any item has it.
    synonyms: HashMap<Box<str>, Box<[u32]>>,
}

/// One way to read a term of a query: a term of the lexicon, and what a hit on it is worth in 256ths.
pub(crate) type Reading = (u32, u16);

impl Index {
    /// Over these items, each with its place among all.
    pub(crate) fn build<'i>(
        items: impl Iterator<Item = (u32, &'i SelectableItem, &'i Facets)>,
        synonyms: &Synonyms,
    ) -> Self {
        let mut gathered = Gathered::default();
        for (number, item, facets) in items {
            gathered.add(number, item, facets);
        }
        gathered.finish(synonyms)
    }

    /// How many documents there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The item of a document.
    pub(crate) fn item(&self, document: u32) -> usize {
        self.items[document as usize] as usize
    }

    /// The documents that have a term, and what it is worth to each.
    pub(crate) fn postings(&self, term: u32) -> (&[u32], &[u16]) {
        let range = self.starts[term as usize] as usize..self.starts[term as usize + 1] as usize;
        (&self.documents[range.clone()], &self.impacts[range])
    }

    fn frequency(&self, term: u32) -> u32 {
        self.starts[term as usize + 1] - self.starts[term as usize]
    }

    /// How rare the word is; an unknown one tells nothing.
    pub(crate) fn rarity(&self, stem: &str) -> u32 {
        self.number(stem).map_or(0, |term| u32::MAX - self.frequency(term))
    }

    fn number(&self, stem: &str) -> Option<u32> {
        self.lexicon.binary_search_by(|known| (**known).cmp(stem)).ok().map(|place| place as u32)
    }

    /// Every way to read a word of a query (CAT-63), each term once at its best worth.
    pub(crate) fn readings(&self, word: &str, stem: &str) -> Vec<Reading> {
        let mut readings: Vec<Reading> = Vec::new();
        let exact = self.number(stem);
        readings.extend(exact.map(|term| (term, EXACT)));
        let others = self.synonyms.get(stem);
        readings.extend(others.into_iter().flatten().map(|term| (*term, SYNONYM)));
        self.prefixed(stem, &mut readings);
        if exact.is_none() && others.is_none() {
            for meant in self.spelling.meant(word) {
                let meant = super::analysis::stem(meant);
                readings.extend(self.number(&meant).map(|term| (term, TYPO)));
                // The word that was meant may itself be known by another one only.
                let others = self.synonyms.get(&*meant).into_iter().flatten();
                readings
                    .extend(others.map(|term| (*term, (u32::from(TYPO) * u32::from(SYNONYM) / 256) as u16)));
            }
        }
        readings.sort_unstable_by_key(|(term, worth)| (*term, std::cmp::Reverse(*worth)));
        readings.dedup_by_key(|(term, _)| *term);
        readings
    }

    /// A term of the lexicon, as text.
    pub(crate) fn term(&self, term: u32) -> &str {
        &self.lexicon[term as usize]
    }

    /// What a term is worth to one document; nothing if the document does not have it.
    pub(crate) fn impact(&self, term: u32, document: u32) -> u32 {
        let (documents, impacts) = self.postings(term);
        documents.binary_search(&document).map_or(0, |place| u32::from(impacts[place]))
    }

    /// The document of an item, if the item can be found at all.
    pub(crate) fn document(&self, item: usize) -> Option<u32> {
        self.items.binary_search(&(item as u32)).ok().map(|document| document as u32)
    }

    /// Words that begin with this one, and words that this one begins with; four letters at least.
    fn prefixed(&self, stem: &str, readings: &mut Vec<Reading>) {
        if stem.chars().count() < 4 || !stem.starts_with(char::is_alphabetic) {
            return;
        }
        let start = self.lexicon.partition_point(|known| **known < *stem);
        let longer = self.lexicon[start..].iter().take_while(|known| known.starts_with(stem)).count();
        let mut longer: Vec<u32> = (start..start + longer).map(|term| term as u32).collect();
        if longer.len() > MAX_PREFIXED {
            longer.sort_by_key(|term| (std::cmp::Reverse(self.frequency(*term)), *term));
            longer.truncate(MAX_PREFIXED);
        }
        readings.extend(longer.into_iter().map(|term| (term, PREFIX)));
        for (end, _) in stem.char_indices().skip(4) {
            readings.extend(self.number(&stem[..end]).map(|term| (term, PREFIX)));
        }
    }
}

#[derive(Default)]
struct Gathered {
    numbers: HashMap<Box<str>, u32>,
    words: HashMap<Box<str>, u32>,
    items: Vec<u32>,
    /// Per document and term, how often in each field.
    counts: Vec<(u32, u32, [u8; FIELDS])>,
    lengths: Vec<[u32; FIELDS]>,
}

impl Gathered {
    fn add(&mut self, number: u32, item: &SelectableItem, facets: &Facets) {
        let document = self.items.len() as u32;
        self.items.push(number);
        let first = self.counts.len();
        let mut lengths = [0u32; FIELDS];
        let mut places: HashMap<u32, usize> = HashMap::new();
        let tags = item.tags.join(" ");
        let title = item.title.as_deref().unwrap_or_default();
        let fields: [&[(&str, StopWords)]; FIELDS] = [
            &[(&item.name, StopWords::Keep), (title, StopWords::Keep)],
            &[(cut(&item.description, MAX_DESCRIPTION_BYTES), StopWords::Drop)],
            &[(&item.namespace, StopWords::Keep)],
            &[(&facets.parameter_names, StopWords::Keep)],
            &[(&tags, StopWords::Keep)],
            &[(&facets.enum_values, StopWords::Keep)],
            &[(&facets.parameter_descriptions, StopWords::Drop)],
        ];
        for (field, texts) in fields.iter().enumerate() {
            for (text, stop_words) in *texts {
                terms(text, *stop_words, |word, stem| {
                    lengths[field] += 1;
                    let next = self.numbers.len() as u32;
                    let term = match self.numbers.get(stem) {
                        Some(term) => *term,
                        None => *self.numbers.entry(stem.into()).or_insert(next),
                    };
                    match self.words.get_mut(word) {
                        Some(frequency) => *frequency += 1,
                        None => drop(self.words.insert(word.into(), 1)),
                    }
                    let place = *places.entry(term).or_insert_with(|| {
                        self.counts.push((document, term, [0; FIELDS]));
                        self.counts.len() - 1
                    });
                    let count = &mut self.counts[place].2[field];
                    *count = count.saturating_add(1).min(MAX_FREQUENCY);
                });
            }
        }
        debug_assert!(self.counts.len() >= first);
        self.lengths.push(lengths);
    }

    fn finish(self, synonyms: &Synonyms) -> Index {
        let Gathered { numbers, mut words, items, counts, lengths } = self;
        let documents = items.len();
        let mut averages = [1.0f64; FIELDS];
        for (field, average) in averages.iter_mut().enumerate() {
            let total: u64 = lengths.iter().map(|lengths| u64::from(lengths[field])).sum();
            *average = (total as f64 / documents.max(1) as f64).max(1.0);
        }
        // Terms were numbered as they came; the lexicon is sorted.
        let mut lexicon: Vec<(Box<str>, u32)> = numbers.into_iter().collect();
        lexicon.sort_unstable();
        let mut renumbered = vec![0u32; lexicon.len()];
        for (new, (_, old)) in lexicon.iter().enumerate() {
            renumbered[*old as usize] = new as u32;
        }
        let mut frequencies = vec![0u32; lexicon.len() + 1];
        for (_, term, _) in &counts {
            frequencies[renumbered[*term as usize] as usize + 1] += 1;
        }
        let mut starts = frequencies;
        for term in 1..starts.len() {
            starts[term] += starts[term - 1];
        }
        let mut next = starts.clone();
        let mut posted = vec![0u32; counts.len()];
        let mut impacts = vec![0u16; counts.len()];
        // Documents were added in ascending order, so each term's postings are ascending too.
        for (document, term, counts) in &counts {
            let term = renumbered[*term as usize] as usize;
            let frequency = f64::from(starts[term + 1] - starts[term]);
            let idf = (1.0 + (documents as f64 - frequency + 0.5) / (frequency + 0.5)).ln();
            let lengths = &lengths[*document as usize];
            let mut x = 0.0;
            for (field, (weight, b)) in WEIGHTS.iter().enumerate() {
                let length = 1.0 - b + b * f64::from(lengths[field]) / averages[field];
                x += weight * f64::from(counts[field]) / length;
            }
            let impact = (1024.0 * idf * x * (K1 + 1.0) / (x + K1)).round();
            let place = next[term] as usize;
            next[term] += 1;
            posted[place] = *document;
            impacts[place] = impact.min(f64::from(u16::MAX)) as u16;
        }
        for word in synonyms.words() {
            words.entry(word.into()).or_insert(0);
        }
        let spelling =
            Spelling::new(words.into_iter().filter(|(word, _)| word.starts_with(char::is_alphabetic)));
        let lexicon = lexicon.into_iter().map(|(term, _)| term).collect();
        let mut index =
            Index { items, lexicon, starts, documents: posted, impacts, spelling, synonyms: HashMap::new() };
        let known = synonyms.stems().map(|(stem, others)| {
            let others = others.iter().filter_map(|other| index.number(other)).collect();
            (stem.into(), others)
        });
        index.synonyms = known.collect();
        index
    }
}
