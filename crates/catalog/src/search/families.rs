//! Near copies of one tool (CAT-66): `report`, `report_v2`, `report_v3`, said in the same words.
//!
//! Shown one by one they would push everything else out of an answer.

use std::collections::{BTreeSet, HashMap};

use super::analysis::{StopWords, terms};
use crate::item::SelectableItem;

/// Which items belong together.
#[derive(Debug, Default)]
pub(crate) struct Families {
    /// Per item, its family, or `ALONE`.
    of_item: Vec<u32>,
    members: Vec<Vec<u32>>,
}

const ALONE: u32 = u32::MAX;
/// How alike descriptions of one family are, in per cent.
const LIKENESS: usize = 60;

impl Families {
    pub(crate) fn find(items: &[SelectableItem]) -> Self {
        let mut by_name: HashMap<(&str, &str, &str), Vec<u32>> = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            let key = (item.kind.as_str(), item.namespace.as_str(), unnumbered(&item.name));
            by_name.entry(key).or_default().push(index as u32);
        }
        let mut families = Self { of_item: vec![ALONE; items.len()], members: Vec::new() };
        let mut groups: Vec<Vec<u32>> = by_name.into_values().filter(|group| group.len() > 1).collect();
        groups.sort_unstable();
        for group in groups {
            families.divide(&group, items);
        }
        families
    }

    /// Items of one name are a family as far as they say the same.
    fn divide(&mut self, group: &[u32], items: &[SelectableItem]) {
        let mut found: Vec<(BTreeSet<String>, Vec<u32>)> = Vec::new();
        for index in group {
            let words = words(&items[*index as usize].description);
            match found.iter_mut().find(|(first, _)| alike(first, &words)) {
                Some((_, members)) => members.push(*index),
                None => found.push((words, vec![*index])),
            }
        }
        for (_, members) in found.into_iter().filter(|(_, members)| members.len() > 1) {
            let number = self.members.len() as u32;
            members.iter().for_each(|member| self.of_item[*member as usize] = number);
            self.members.push(members);
        }
    }

    /// The family of an item, if it has one.
    pub(crate) fn of(&self, item: usize) -> Option<u32> {
        self.of_item.get(item).copied().filter(|family| *family != ALONE)
    }

    /// How many families there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// All of a family, ascending.
    pub(crate) fn members(&self, family: u32) -> &[u32] {
        &self.members[family as usize]
    }
}

/// The name without a trailing `[_.\- ]v?\d+`.
pub(crate) fn unnumbered(name: &str) -> &str {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if stem.len() == name.len() {
        return name;
    }
    let stem = stem.strip_suffix('v').filter(|rest| rest.ends_with(['_', '.', '-', ' '])).unwrap_or(stem);
    match stem.strip_suffix(['_', '.', '-', ' ']) {
        Some(base) if !base.is_empty() => base,
        _ => name,
    }
}

fn words(description: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    terms(crate::facets::cut(description, 4096), StopWords::Drop, |_, stem| {
        if !stem.starts_with(|c: char| c.is_ascii_digit()) {
            words.insert(stem.to_owned());
        }
    });
    words
}

/// Jaccard.
fn alike(a: &BTreeSet<String>, b: &BTreeSet<String>) -> bool {
    let common = a.intersection(b).count();
    let all = a.len() + b.len() - common;
    common * 100 >= LIKENESS * all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_at_the_end_is_no_part_of_the_name() {
        // CAT-66
        for (name, base) in [
            ("report_v2", "report"),
            ("report.v12", "report"),
            ("report-3", "report"),
            ("report 4", "report"),
            ("report2", "report2"),
            ("v2", "v2"),
            ("_2", "_2"),
            ("report", "report"),
            ("rev2", "rev2"),
        ] {
            assert_eq!(unnumbered(name), base, "{name}");
        }
    }
}
