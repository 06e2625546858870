//! A tool's arguments in one short line (CAT-81): `(title:str, body?:str, labels?:str[], n?:int=10)`.
//!
//! Models that do not see a schema guess; a signature costs a tenth of one and is enough for most calls.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::plain_line::is_hidden;

/// How long a nested object may be and still be written out.
const NESTED_CHARS: usize = 48;
/// How many references are followed from one parameter.
const MAX_REFERENCES: usize = 8;

/// The parameters, those that must be given first, each part by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signature {
    parameters: Box<[Box<str>]>,
}

impl Signature {
    /// Of an input schema.
    pub fn of(schema: &Value) -> Self {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            return Self::default();
        };
        let mut parameters: Vec<(bool, &String, &Value)> = (properties.iter())
            .map(|(name, parameter)| (!is_required(schema, name), name, parameter))
            .collect();
        parameters.sort_unstable_by_key(|(optional, name, _)| (*optional, *name));
        let parameters = parameters.into_iter().map(|(optional, name, parameter)| {
            let mut text = String::new();
            write_parameter(&mut text, schema, name, parameter, optional);
            text.into_boxed_str()
        });
        Self { parameters: parameters.collect() }
    }

    /// How many parameters there are.
    pub fn len(&self) -> usize {
        self.parameters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// The first `shown` of them; what is left out is counted.
    pub fn text(&self, shown: usize) -> String {
        let shown = shown.min(self.parameters.len());
        let mut text = format!("({}", self.parameters[..shown].join(", "));
        let rest = self.parameters.len() - shown;
        if rest > 0 {
            let _ = write!(text, "{}…+{rest}", if shown > 0 { ", " } else { "" });
        }
        text.push(')');
        text
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required == name))
}

fn write_parameter(out: &mut String, root: &Value, name: &str, schema: &Value, optional: bool) {
    write_name(out, name);
    out.push_str(if optional { "?:" } else { ":" });
    out.push_str(&Types { root }.of(schema, true, MAX_REFERENCES));
    if let Some(default) = schema.get("default").and_then(short_scalar).filter(|_| optional) {
        let _ = write!(out, "={default}");
    }
}

fn write_name(out: &mut String, name: &str) {
    let is_bare = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if is_bare {
        out.push_str(name);
    } else {
        out.push_str(&quoted(name));
    }
}

/// As a JSON string in which everything can be seen.
fn quoted(text: &str) -> String {
    let json = Value::from(text).to_string();
    if !json.contains(|c| is_hidden(c) || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return json;
    }
    let mut shown = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                let _ = write!(shown, "\\u{unit:04x}");
            }
        } else {
            shown.push(c);
        }
    }
    shown
}

/// A value short enough to be written where it is.
fn short_scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.chars().count() <= 16 => Some(quoted(text)),
        Value::Number(_) | Value::Bool(_) | Value::Null => Some(value.to_string()),
        _ => None,
    }
}

struct Types<'s> {
    root: &'s Value,
}

impl Types<'_> {
    fn of(&self, schema: &Value, nested: bool, references: usize) -> String {
        let Some(keywords) = schema.as_object() else { return "any".into() };
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            return match target {
                Some(target) if references > 0 => self.of(target, nested, references - 1),
                _ => "any".into(),
            };
        }
        if let Some(value) = keywords.get("const") {
            return short_scalar(value).unwrap_or_else(|| "any".into());
        }
        if let Some(values) = keywords.get("enum").and_then(Value::as_array) {
            return one_of(values);
        }
        let branches = ["anyOf", "oneOf"].iter().find_map(|keyword| keywords.get(*keyword)?.as_array());
        if let Some(branches) = branches {
            if references == 0 || branches.len() > 5 {
                return "any".into();
            }
            return union(branches.iter().map(|branch| self.of(branch, nested, references - 1)));
        }
        match keywords.get("type") {
            Some(Value::String(kind)) => self.named(kind, keywords, nested, references),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str).take(7);
                union(kinds.map(|kind| self.named(kind, keywords, nested, references)))
            }
            _ if keywords.contains_key("properties") => self.named("object", keywords, nested, references),
            _ if keywords.contains_key("items") => self.named("array", keywords, nested, references),
            _ => "any".into(),
        }
    }

    fn named(&self, kind: &str, keywords: &Map<String, Value>, nested: bool, references: usize) -> String {
        match kind {
            "string" => match keywords.get("format").and_then(Value::as_str) {
                Some(format) if is_format(format) => format!("str<{format}>"),
                _ => "str".into(),
            },
            "integer" => "int".into(),
            "number" => "num".into(),
            "boolean" => "bool".into(),
            "null" => "null".into(),
            "array" => {
                let items = keywords.get("items").filter(|_| references > 0);
                let item = items.map_or("any".into(), |items| self.of(items, false, references - 1));
                if item.contains('|') { format!("({item})[]") } else { format!("{item}[]") }
            }
            "object" => self.object(keywords, nested, references),
            _ => "any".into(),
        }
    }

    /// One level is written out, if it is short.
    fn object(&self, keywords: &Map<String, Value>, nested: bool, references: usize) -> String {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let Some(properties) = properties.filter(|map| nested && !map.is_empty() && map.len() <= 8) else {
            return "obj".into();
        };
        let schema_required = keywords.get("required").and_then(Value::as_array);
        let is_optional =
            |name: &String| !schema_required.is_some_and(|names| names.iter().any(|n| n == name.as_str()));
        let mut names: Vec<&String> = properties.keys().collect();
        names.sort_unstable_by_key(|name| (is_optional(name), *name));
        let mut text = String::from("{");
        for name in names {
            if text.len() > 1 {
                text.push(',');
            }
            write_name(&mut text, name);
            text.push_str(if is_optional(name) { "?:" } else { ":" });
            text.push_str(&self.of(&properties[name], false, references.saturating_sub(1)));
            if text.len() > NESTED_CHARS {
                return "obj".into();
            }
        }
        text.push('}');
        text
    }
}

fn one_of(values: &[Value]) -> String {
    let literals: Option<Vec<String>> = values.iter().map(short_scalar).collect();
    match literals {
        Some(literals) if (1..=5).contains(&literals.len()) => literals.join("|"),
        _ => format!("enum({})", values.len()),
    }
}

fn union(types: impl Iterator<Item = String>) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for kind in types {
        if kind == "any" {
            return kind;
        }
        if !distinct.contains(&kind) {
            distinct.push(kind);
        }
    }
    if distinct.is_empty() { "any".into() } else { distinct.join("|") }
}

fn is_format(text: &str) -> bool {
    (1..=24).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(schema: &Value) -> String {
        Signature::of(schema).text(usize::MAX)
    }

    #[test]
    fn required_parameters_come_first_and_each_part_by_name() {
        // CAT-81
        let schema = json!({
            "properties": {
                "n": {"type": "integer", "default": 10},
                "state": {"enum": ["open", "closed"]},
                "labels": {"type": "array", "items": {"type": "string"}},
                "body": {"type": "string"},
                "title": {"type": "string"},
            },
            "required": ["title"],
        });
        assert_eq!(
            text(&schema),
            r#"(title:str, body?:str, labels?:str[], n?:int=10, state?:"open"|"closed")"#
        );
        assert_eq!(Signature::of(&schema).text(2), "(title:str, body?:str, …+3)");
        assert_eq!(Signature::of(&schema).text(0), "(…+5)");
        assert_eq!(text(&json!({})), "()");
    }

    #[test]
    fn every_type_has_its_short_form() {
        // CAT-81
        for (schema, wanted) in [
            (json!({"type": "string", "format": "date-time"}), "str<date-time>"),
            (json!({"type": ["string", "null"]}), "str|null"),
            (json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}), "str|int"),
            (json!({"type": "array", "items": {"type": ["string", "number"]}}), "(str|num)[]"),
            (json!({"type": "object"}), "obj"),
            (
                json!({"properties": {"b": {"type": "integer"}, "a": {"type": "string"}}, "required": ["a"]}),
                "{a:str,b?:int}",
            ),
            (json!({"enum": ["a", "b", "c", "d", "e", "f"]}), "enum(6)"),
            (json!({"enum": ["x".repeat(17)]}), "enum(1)"),
            (json!({"$ref": "#/$defs/p"}), "bool"),
            (json!({"$ref": "#/$defs/loop"}), "any"),
            (json!({"$ref": "http://x/"}), "any"),
            (json!(true), "any"),
            (json!({"type": "string", "format": "x y\n"}), "str"),
            (json!({"const": 3}), "3"),
        ] {
            let root = json!({
                "properties": {"p": schema},
                "$defs": {"p": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}},
                "required": ["p"],
            });
            assert_eq!(text(&root), format!("(p:{wanted})"));
        }
    }

    #[test]
    fn names_that_are_no_words_are_quoted_and_hide_nothing() {
        // CAT-81, CAT-43
        let schema = json!({"properties": {"a b": {}, "x\u{202e}\ny": {}, "ok-1": {}}});
        assert_eq!(text(&schema), "(\"a b\"?:any, ok-1?:any, \"x\\u202e\\ny\"?:any)");
    }
}
