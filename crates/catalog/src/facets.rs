//! What search looks at inside a schema (CAT-62): names of parameters, what they are said to be, values they can have.

use serde_json::Value;

const NAME_DEPTH: usize = 3;
const MAX_ENUM_VALUES: usize = 64;
const MAX_ENUM_BYTES: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 2 * 1024;

/// The words of a schema, gathered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facets {
    pub(crate) parameter_names: String,
    pub(crate) parameter_descriptions: String,
    pub(crate) enum_values: String,
}

impl Facets {
    pub(crate) fn of(schema: &Value) -> Self {
        let mut gathering = Gathering { facets: Facets::default(), values: 0 };
        gathering.visit(schema, 0);
        gathering.facets
    }
}

struct Gathering {
    facets: Facets,
    values: usize,
}

impl Gathering {
    fn visit(&mut self, schema: &Value, depth: usize) {
        let Some(keywords) = schema.as_object() else { return };
        if let Some(values) = keywords.get("enum").and_then(Value::as_array) {
            for value in values.iter().filter_map(Value::as_str).filter(|text| text.len() <= MAX_ENUM_BYTES) {
                if self.values == MAX_ENUM_VALUES {
                    break;
                }
                self.values += 1;
                append(&mut self.facets.enum_values, value);
            }
        }
        if depth > 0
            && let Some(text) = keywords.get("description").and_then(Value::as_str)
        {
            let room = MAX_DESCRIPTION_BYTES.saturating_sub(self.facets.parameter_descriptions.len());
            append(&mut self.facets.parameter_descriptions, cut(text, room));
        }
        if depth == NAME_DEPTH {
            return;
        }
        if let Some(items) = keywords.get("items") {
            self.visit(items, depth.max(1));
        }
        for branches in
            ["anyOf", "oneOf", "allOf"].iter().filter_map(|keyword| keywords.get(*keyword)?.as_array())
        {
            branches.iter().take(8).for_each(|branch| self.visit(branch, depth + 1));
        }
        // In the order of their names: what falls beyond a limit must not depend on how a server orders keys.
        let properties = keywords.get("properties").and_then(Value::as_object);
        let mut properties: Vec<_> = properties.into_iter().flatten().collect();
        properties.sort_unstable_by_key(|(name, _)| *name);
        for (name, parameter) in properties {
            append(&mut self.facets.parameter_names, name);
            self.visit(parameter, depth + 1);
        }
    }
}

fn append(text: &mut String, more: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

/// The first `bytes` bytes, at a character.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_gives_its_words_up_to_its_limits() {
        // CAT-62
        let schema = json!({"description": "not a parameter", "properties": {
            "repo": {"type": "string", "description": "which repository"},
            "filter": {"properties": {"deep": {"properties": {"deeper": {"properties": {"unseen": {}}}}}}},
            "state": {"enum": ["open", "closed", "x".repeat(65)]},
        }});
        let facets = Facets::of(&schema);
        assert_eq!(facets.parameter_names, "filter deep deeper repo state");
        assert_eq!(facets.parameter_descriptions, "which repository");
        assert_eq!(facets.enum_values, "open closed");
        let many: Vec<String> = (0..100).map(|n| format!("v{n}")).collect();
        assert_eq!(Facets::of(&json!({"enum": many})).enum_values.split(' ').count(), 64);
        let long = json!({"properties": {"a": {"description": "é".repeat(5_000)}}});
        assert!(Facets::of(&long).parameter_descriptions.len() <= 2 * 1024);
    }
}
