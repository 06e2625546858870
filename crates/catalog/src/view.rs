//! Who sees what (CAT-53): a bit per item, made by whoever knows the policy, applied before anything is counted.

use crate::item::SelectableItem;

/// The items one principal may know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    bits: Box<[u64]>,
}

impl View {
    /// Those for which `sees` holds, and which can be called at all.
    pub fn of(items: &[SelectableItem], sees: impl Fn(&SelectableItem) -> bool) -> Self {
        let mut bits = vec![0u64; items.len().div_ceil(64)];
        for (index, item) in items.iter().enumerate() {
            if item.is_listed() && sees(item) {
                bits[index / 64] |= 1 << (index % 64);
            }
        }
        Self { bits: bits.into() }
    }

    /// Whether the item of this index is seen.
    pub fn sees(&self, index: usize) -> bool {
        self.bits.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    /// How many are seen.
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether nothing is seen.
    pub fn is_empty(&self) -> bool {
        self.bits.iter().all(|word| *word == 0)
    }

    /// The indexes of those that are seen, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.bits.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    at * 64 + bit
                })
            })
        })
    }
}
