//! Why an item ranks where it does: what each word of a query was worth to it, and as what it was understood.
//!
//! Where search goes by words alone, the sum of the points is the score that ranked it. For people who look at the catalogue; no search needs it.

use serde::Serialize;

use super::index::{EXACT, PREFIX, SYNONYM, TYPO};
use crate::item::Kind;
use crate::semantic::vectors::checked;
use crate::snapshot::CatalogSnapshot;

/// As what a word of a query was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The item has the word itself.
    Exact,
    /// The item has a word that stands for it.
    Synonym,
    /// The item has a longer or shorter form of it.
    Prefix,
    /// The item has what was probably meant.
    Typo,
    /// The item is near to the whole request in meaning (CAT-69); the points are hundredths of a cosine.
    Meaning,
}

/// What one word of a query was worth to an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Matched {
    /// The word, as it was asked for.
    pub word: String,
    /// The stem that the item has.
    pub term: String,
    /// How one leads to the other.
    pub how: How,
    /// What that is worth.
    pub points: u32,
}

impl CatalogSnapshot {
    /// What each word of `text` is worth to the item at `item`; words that say nothing about it are left out.
    pub fn why(&self, text: &str, item: usize, kind: Kind) -> Vec<Matched> {
        let index = self.index(kind);
        let Some(document) = index.document(item) else { return Vec::new() };
        let words = self.words(index, text);
        let matched = words.iter().filter_map(|(word, stem)| {
            let readings = index.readings(word, stem).into_iter().map(|(term, worth)| {
                let points = (index.impact(term, document) * u32::from(worth)) >> 8;
                (points, term, worth)
            });
            let (points, term, worth) = readings.max_by_key(|(points, ..)| *points)?;
            let matched =
                || Matched { word: word.clone(), term: index.term(term).to_owned(), how: how(worth), points };
            (points > 0).then(matched)
        });
        matched.chain(self.near_by(text, kind, document)).collect()
    }

    fn near_by(&self, text: &str, kind: Kind, document: u32) -> Option<Matched> {
        let meaning = self.meaning()?;
        let query = checked(meaning.scorer.as_ref(), text).ok()?;
        let points = meaning.vectors(kind).nearness(&query, document)?;
        Some(Matched {
            word: text.trim().to_owned(),
            term: "the whole request".into(),
            how: How::Meaning,
            points,
        })
    }
}

fn how(worth: u16) -> How {
    match worth {
        EXACT => How::Exact,
        PREFIX => How::Prefix,
        SYNONYM => How::Synonym,
        // A word that was meant, or one that stands for the word that was meant.
        worth => {
            debug_assert!(worth <= TYPO);
            How::Typo
        }
    }
}
