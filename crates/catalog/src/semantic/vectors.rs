//! The vectors of all items of one kind, and which are nearest to a query's.

use std::cmp::Reverse;

use super::{SemanticError, SemanticScorer};
use crate::facets::cut;
use crate::item::SelectableItem;

/// How much of a description says what an item is; the rest is usually about how.
const MAX_DESCRIPTION_BYTES: usize = 400;
/// What points less alike than this is not near at all, so that nonsense still finds nothing: a cosine of 0.15.
const NEAR: i32 = 127 * 127 * 15 / 100;

/// One vector per document, in the order of the index.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    dim: usize,
    numbers: Vec<i8>,
}

impl Vectors {
    pub(crate) fn build<'i>(
        scorer: &dyn SemanticScorer,
        items: impl Iterator<Item = &'i SelectableItem>,
    ) -> Result<Self, SemanticError> {
        let mut vectors = Self { dim: scorer.dim(), numbers: Vec::new() };
        for item in items {
            vectors.numbers.extend_from_slice(&of_item(scorer, item)?);
        }
        Ok(vectors)
    }

    /// The visible documents near a query, the nearest first.
    pub(crate) fn nearest(&self, query: &[i8], sees: impl Fn(u32) -> bool) -> Vec<u32> {
        if self.dim == 0 {
            return Vec::new();
        }
        let rows = self.numbers.chunks_exact(self.dim);
        let all = rows.zip(0u32..).map(|(row, document)| (Reverse(dot(row, query)), document));
        let mut near: Vec<_> = all.filter(|(near, document)| near.0 >= NEAR && sees(*document)).collect();
        near.sort_unstable();
        near.into_iter().map(|(_, document)| document).collect()
    }
}

impl Vectors {
    /// How near one document is, in hundredths of a cosine; nothing if it is not near.
    pub(crate) fn nearness(&self, query: &[i8], document: u32) -> Option<u32> {
        let start = document as usize * self.dim;
        let near = dot(self.numbers.get(start..start + self.dim)?, query);
        (near >= NEAR).then_some((near * 100 / (127 * 127)) as u32)
    }
}

/// The name and the description each as one direction, and the item between them: a long description does not drown the name.
fn of_item(scorer: &dyn SemanticScorer, item: &SelectableItem) -> Result<Box<[i8]>, SemanticError> {
    let title = item.title.as_deref().unwrap_or_default();
    let name = checked(scorer, &format!("{} {title} {}", item.name, item.namespace))?;
    let description = checked(scorer, cut(&item.description, MAX_DESCRIPTION_BYTES))?;
    let both = name.iter().zip(&description).map(|(a, b)| i64::from(*a) + i64::from(*b));
    Ok(super::table::normalised(&both.collect::<Vec<_>>()))
}

/// A vector as long as the scorer said.
pub(crate) fn checked(scorer: &dyn SemanticScorer, text: &str) -> Result<Box<[i8]>, SemanticError> {
    let vector = scorer.embed(text)?;
    if vector.len() == scorer.dim() {
        return Ok(vector);
    }
    Err(SemanticError::Dimensions { found: vector.len(), expected: scorer.dim() })
}

fn dot(a: &[i8], b: &[i8]) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}
