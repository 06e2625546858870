//! Whether a schema can be used at all (CAT-41): its size, its references, whether it is one.
//!
//! Nothing is ever opened: a reference that leaves the document is found by looking at it.

use serde::Deserialize;
use serde_json::Value;

use crate::finding::FindingKind;

/// How large a schema may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaLimits {
    /// Serialised, in bytes.
    pub bytes: usize,
    /// Nesting of objects and arrays.
    pub depth: usize,
    /// Properties in all.
    pub properties: usize,
    /// What happens to what is larger.
    pub on_exceeded: OnExceeded,
}

/// What happens to an item whose schema is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExceeded {
    /// It cannot be called.
    #[default]
    Quarantine,
    /// The operator is told.
    Flag,
}

impl Default for SchemaLimits {
    fn default() -> Self {
        Self { bytes: 65_536, depth: 32, properties: 512, on_exceeded: OnExceeded::Quarantine }
    }
}

/// What is wrong with a schema, in our words.
pub(crate) type Flaw = (FindingKind, String);

/// The first thing that is wrong with the schema of `bytes` bytes.
pub(crate) fn check(schema: &Value, bytes: usize, limits: &SchemaLimits) -> Option<Flaw> {
    if !schema.is_object() {
        return Some((FindingKind::NotWellFormed, "the schema is not an object".into()));
    }
    if bytes > limits.bytes {
        let detail = format!("the schema has {bytes} bytes, {} are allowed", limits.bytes);
        return Some((FindingKind::SizeExceeded, detail));
    }
    let mut walk = Walk { limits, properties: 0, flaw: None };
    walk.visit(schema, 1, Position::Schema);
    walk.flaw.or_else(|| not_a_schema(schema))
}

fn not_a_schema(schema: &Value) -> Option<Flaw> {
    // Most schemas are of the plainest kind, and for those there is nothing to find.
    if is_plain(schema, 0) {
        return None;
    }
    match jsonschema::meta::validate(schema) {
        Ok(()) => None,
        Err(error) => {
            let place = error.instance_path().to_string();
            let place =
                if place.is_empty() { "/".to_owned() } else { portcullis_core::name::printable(&place) };
            Some((FindingKind::NotWellFormed, format!("not a JSON Schema at {place}")))
        }
    }
}

/// A schema that uses nothing but `type`, `properties`, `required`, `description`, `items` and `additionalProperties`,
/// each as it must be, needs no validator to be told well-formed.
fn is_plain(schema: &Value, depth: usize) -> bool {
    let Some(keywords) = schema.as_object() else { return schema.is_boolean() };
    depth < 32
        && keywords.iter().all(|(keyword, value)| match keyword.as_str() {
            "type" => value.as_str().is_some_and(|name| {
                matches!(name, "object" | "array" | "string" | "integer" | "number" | "boolean" | "null")
            }),
            "description" | "title" => value.is_string(),
            "properties" => {
                value.as_object().is_some_and(|map| map.values().all(|child| is_plain(child, depth + 1)))
            }
            "required" => value.as_array().is_some_and(|names| {
                names.len() < 64
                    && names.iter().all(Value::is_string)
                    && names.iter().enumerate().all(|(at, name)| !names[..at].contains(name))
            }),
            "items" | "additionalProperties" => is_plain(value, depth + 1),
            _ => false,
        })
}

#[derive(Clone, Copy, PartialEq)]
enum Position {
    Schema,
    /// The values of `properties` and its like are schemas by name.
    Named,
    /// `enum`, `const`, `default`, `examples`: whatever is in there is data.
    Data,
}

struct Walk<'l> {
    limits: &'l SchemaLimits,
    properties: usize,
    flaw: Option<Flaw>,
}

impl Walk<'_> {
    fn visit(&mut self, value: &Value, depth: usize, position: Position) {
        if self.flaw.is_some() {
            return;
        }
        if depth > self.limits.depth && (value.is_object() || value.is_array()) {
            let detail = format!("the schema is nested more than {} deep", self.limits.depth);
            self.flaw = Some((FindingKind::DepthExceeded, detail));
            return;
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.visit(item, depth + 1, position)),
            Value::Object(members) => {
                for (name, member) in members {
                    if position == Position::Schema {
                        self.keyword(name, member);
                    }
                    let inner = match (position, name.as_str()) {
                        (Position::Data, _)
                        | (Position::Schema, "enum" | "const" | "default" | "examples") => Position::Data,
                        (
                            Position::Schema,
                            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                        ) => Position::Named,
                        _ => Position::Schema,
                    };
                    self.visit(member, depth + 1, inner);
                }
            }
            _ => {}
        }
    }

    fn keyword(&mut self, name: &str, value: &Value) {
        match (name, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference))
                if !reference.starts_with('#') && !reference.is_empty() =>
            {
                let detail = "a reference leaves the document; it was not opened";
                self.flaw = Some((FindingKind::RemoteRef, detail.into()));
            }
            ("properties" | "patternProperties", Value::Object(map)) => {
                self.properties += map.len();
                if self.properties > self.limits.properties {
                    let detail = format!("the schema has more than {} properties", self.limits.properties);
                    self.flaw = Some((FindingKind::PropertiesExceeded, detail));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(schema: &Value) -> Option<FindingKind> {
        check(schema, schema.to_string().len(), &SchemaLimits::default()).map(|(kind, _)| kind)
    }

    #[test]
    fn what_is_no_schema_or_leaves_its_document_is_found_without_opening_anything() {
        // CAT-41, CAT-42, T-CAT-6
        assert_eq!(found(&json!([])), Some(FindingKind::NotWellFormed));
        assert_eq!(found(&json!({"properties": []})), Some(FindingKind::NotWellFormed));
        assert_eq!(found(&json!({"type": "nothing"})), Some(FindingKind::NotWellFormed));
        assert_eq!(
            found(&json!({"type": "object", "required": ["a", "a"]})),
            Some(FindingKind::NotWellFormed)
        );
        for remote in ["http://169.254.169.254/x", "file:///etc/passwd", "other.json#/x", "//host/x"] {
            let schema = json!({"properties": {"a": {"items": {"$ref": remote}}}});
            assert_eq!(found(&schema), Some(FindingKind::RemoteRef), "{remote}");
        }
        assert_eq!(found(&json!({"$defs": {"a": {}}, "properties": {"a": {"$ref": "#/$defs/a"}}})), None);
        assert_eq!(found(&json!({"properties": {"$ref": {"type": "string"}}})), None);
        assert_eq!(found(&json!({"enum": [{"$ref": "http://x/"}]})), None);
    }

    #[test]
    fn each_size_has_its_own_finding() {
        // CAT-41
        let long = json!({"description": "x".repeat(70_000)});
        assert_eq!(found(&long), Some(FindingKind::SizeExceeded));
        let deep = (0..40).fold(json!({}), |inner, _| json!({"items": inner}));
        assert_eq!(found(&deep), Some(FindingKind::DepthExceeded));
        let wide: serde_json::Map<String, Value> = (0..600).map(|n| (format!("p{n}"), json!({}))).collect();
        assert_eq!(found(&json!({"properties": wide})), Some(FindingKind::PropertiesExceeded));
    }
}
