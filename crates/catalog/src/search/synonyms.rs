//! Words that stand for one another (CAT-63).

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde::Deserialize;

use super::analysis::stem;
use crate::CatalogError;

/// Classes of words, by the stem of each.
#[derive(Debug, Clone)]
pub struct Synonyms {
    classes: Vec<Vec<String>>,
    by_stem: HashMap<String, Vec<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    classes: Vec<Vec<String>>,
}

static BUILT_IN: LazyLock<Synonyms> =
    LazyLock::new(|| Synonyms::parse(include_str!("synonyms.toml")).expect("our own table is well-formed"));

impl Synonyms {
    /// The table that comes with the crate.
    pub fn built_in() -> &'static Self {
        &BUILT_IN
    }

    /// No table.
    pub fn none() -> Self {
        Self { classes: Vec::new(), by_stem: HashMap::new() }
    }

    /// Reads a table: `classes = [["create", "add"], …]`.
    pub fn parse(text: &str) -> Result<Self, CatalogError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].lines().count().max(1));
            CatalogError::SnapshotFormat { line, detail: error.message().to_owned() }
        })?;
        let mut synonyms = Self::none();
        for class in file.classes {
            synonyms.add(&class);
        }
        Ok(synonyms)
    }

    /// This table and another one.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        other.classes.iter().for_each(|class| both.add(class));
        both
    }

    fn add(&mut self, words: &[String]) {
        let number = self.classes.len() as u32;
        let words: Vec<String> = words.iter().map(|word| word.to_lowercase()).collect();
        for stem in words.iter().map(|word| stem(word).into_owned()).collect::<BTreeSet<_>>() {
            self.by_stem.entry(stem).or_default().push(number);
        }
        self.classes.push(words);
    }

    /// The stems that may stand for this one, itself left out.
    pub(crate) fn of(&self, stemmed: &str) -> BTreeSet<String> {
        let classes = self.by_stem.get(stemmed).into_iter().flatten();
        let words = classes.flat_map(|class| &self.classes[*class as usize]);
        words.map(|word| stem(word).into_owned()).filter(|other| other != stemmed).collect()
    }

    /// Every stem, each with those that may stand for it.
    pub(crate) fn stems(&self) -> impl Iterator<Item = (&str, BTreeSet<String>)> {
        self.by_stem.keys().map(|stem| (stem.as_str(), self.of(stem)))
    }

    /// Every word, as written.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().flatten().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_symmetric_and_found_in_any_form() {
        // CAT-63
        let table = Synonyms::parse(r#"classes = [["delete", "remove"], ["invoice", "bill"]]"#).unwrap();
        assert!(table.of(&stem("deleting")).contains(&*stem("removed")));
        assert!(table.of(&stem("bills")).contains(&*stem("invoices")));
        assert!(table.of("nothing").is_empty());
        let more = table.with(&Synonyms::parse(r#"classes = [["bill", "tab"]]"#).unwrap());
        assert_eq!(more.of("bill").len(), 2);
        assert!(Synonyms::built_in().of("delet").contains(&*stem("remove")));
    }

    #[test]
    fn a_table_that_is_none_says_where() {
        // CAT-102
        let error = Synonyms::parse("classes = [\n  [\"a\", 3],\n]").unwrap_err();
        assert!(matches!(error, CatalogError::SnapshotFormat { line: 1..=2, .. }), "{error}");
        assert!(Synonyms::parse("other = 1").is_err());
    }
}
