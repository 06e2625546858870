//! Queries that name an item (CAT-65).
//!
//! A table of hashes, not of texts: four names for each of a hundred thousand items would be most of a catalogue.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::item::SelectableItem;

/// Where the items of a name are, by the hash of the name.
#[derive(Debug, Default)]
pub(crate) struct Names {
    table: Vec<(u64, u32)>,
}

impl Names {
    pub(crate) fn new(items: &[SelectableItem]) -> Self {
        let mut table: Vec<(u64, u32)> = Vec::with_capacity(items.len() * 4);
        for (index, item) in items.iter().enumerate() {
            table.extend(names(item).map(|name| (hash(&name.to_lowercase()), index as u32)));
        }
        table.sort_unstable();
        table.dedup();
        Self { table }
    }

    /// The items with this name, ascending.
    pub(crate) fn find<'s>(
        &'s self,
        text: &str,
        items: &'s [SelectableItem],
    ) -> impl Iterator<Item = usize> + use<'s> {
        let wanted = text.to_lowercase();
        let key = hash(&wanted);
        let start = self.table.partition_point(|(known, _)| *known < key);
        let same = self.table[start..].iter().take_while(move |(known, _)| *known == key);
        same.map(|(_, index)| *index as usize)
            .filter(move |index| names(&items[*index]).any(|name| name.to_lowercase() == wanted))
    }
}

fn names(item: &SelectableItem) -> impl Iterator<Item = &str> {
    [&item.id, &item.base_id, &item.wire_name, &item.upstream_name].into_iter().map(String::as_str)
}

/// The same in every process: answers may not differ between replicas.
fn hash(text: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}
