//! Query strings, strictly: unknown keys are refused.

use crate::answer::Refusal;

/// The pairs of a query string, decoded, in order.
#[derive(Debug, Clone, Default)]
pub struct Query(pub Vec<(String, String)>);

/// One filter: a field, an operator or none, a value.
pub type Filter = (String, Option<String>, String);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = url::form_urlencoded::parse(text.as_bytes());
        Self(pairs.map(|(key, value)| (key.into_owned(), value.into_owned())).collect())
    }

    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// All values of a repeated key, with commas taken apart if they separate.
    pub fn all(&self, key: &str, commas: bool) -> Vec<String> {
        let bracketed = format!("{key}[]");
        let values = self.0.iter().filter(|(name, _)| name == key || *name == bracketed);
        let split = |value: &String| match commas {
            true => value.split(',').map(ToOwned::to_owned).collect(),
            false => vec![value.clone()],
        };
        values.flat_map(|(_, value)| split(value)).collect()
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key || name.starts_with(&format!("{key}[")))
    }

    /// Refuses keys that are not among `known`.
    pub fn only(&self, known: &[&str], named: bool) -> Result<(), Refusal> {
        for (key, _) in &self.0 {
            let base = key.split('[').next().unwrap_or(key);
            if !known.contains(&base) {
                let refusal = Refusal::bad(format!("Unsupported query parameter: {key}"));
                return Err(if named { refusal.param(key) } else { refusal });
            }
        }
        Ok(())
    }

    /// `key[name]=value`.
    pub fn keyed(&self, key: &str) -> Vec<(String, String)> {
        let prefix = format!("{key}[");
        let inside = |name: &String| name.strip_prefix(&prefix)?.strip_suffix(']').map(ToOwned::to_owned);
        self.0.iter().filter_map(|(name, value)| Some((inside(name)?, value.clone()))).collect()
    }

    /// `filter[field]=v` and `filter[field][op]=v`.
    pub fn filters(&self) -> Result<Vec<Filter>, Refusal> {
        if self.get("filter").is_some() {
            return Err(Refusal::bad("filter must use filter[field]=value or filter[field][op]=value"));
        }
        let taken = self.keyed("filter").into_iter().map(|(inside, value)| match inside.split_once("][") {
            Some((field, op)) => (field.to_owned(), Some(op.to_owned()), value),
            None => (inside, None, value),
        });
        Ok(taken.collect())
    }

    /// A page size: clamped above, the default where it means nothing.
    pub fn limit(&self, default: usize, most: usize) -> (usize, Option<usize>) {
        match self.get("limit").and_then(|text| text.parse::<usize>().ok()) {
            Some(0) | None => (default, None),
            Some(asked) if asked > most => (most, Some(asked)),
            Some(asked) => (asked, None),
        }
    }
}
