//! What a client is told about a tool: labels without markers (GNT-S12, GNT-Z12), and an output schema that
//! sanitised results still fit (GNT-Z18).
//!
//! A schema is checked when it is compiled: anything in it that may not be edited must be clean as it is. What
//! remains are titles and descriptions, and those are cleaned here.

use std::borrow::Cow;
use std::sync::LazyLock;

use portcullis_core::canon::push_segment;
use serde_json::{Map, Value, json};

use crate::sanitise::{Escape, Report, Sanitiser};
use crate::{CompiledSchema, Gauntlet, GauntletError};

/// The three markers that always count; more are the gauntlet's configuration.
static ALWAYS: LazyLock<Sanitiser> = LazyLock::new(Sanitiser::default);

/// Refuses a schema with a control character or marker where it may not be edited: member names, values, patterns.
pub(crate) fn check(schema: &Value) -> Result<(), GauntletError> {
    let mut pending = vec![(schema, String::new(), false)];
    while let Some((value, pointer, is_data)) = pending.pop() {
        let unclean = |pointer: String| Err(GauntletError::SchemaMarker { pointer });
        match value {
            Value::String(text) if !ALWAYS.is_clean(text) => return unclean(pointer),
            Value::Array(items) => {
                pending.extend(items.iter().map(|item| (item, pointer.clone(), is_data)));
            }
            Value::Object(members) => {
                for (name, member) in members {
                    if !ALWAYS.is_clean(name) {
                        return unclean(pointer);
                    }
                    if is_label(name, member) && !is_data {
                        continue;
                    }
                    let mut place = pointer.clone();
                    push_segment(&mut place, name);
                    let is_data =
                        is_data || matches!(name.as_str(), "enum" | "const" | "default" | "examples");
                    pending.push((member, place, is_data));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn is_label(name: &str, value: &Value) -> bool {
    matches!(name, "title" | "description") && value.is_string()
}

impl Gauntlet {
    /// A schema as clients see it: its titles and descriptions cleaned, nothing else touched.
    pub fn advertised_schema(&self, schema: &Value) -> Value {
        let mut schema = schema.clone();
        self.clean_labels(&mut schema);
        schema
    }

    fn clean_labels(&self, schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean_labels(item)),
            Value::Object(members) => {
                for (name, member) in members {
                    if is_label(name, member) {
                        *member = self.label(member.as_str().unwrap_or_default()).into();
                    } else if !matches!(name.as_str(), "enum" | "const" | "default" | "examples") {
                        self.clean_labels(member);
                    }
                }
            }
            _ => {}
        }
    }

    /// Any other member of a definition, every string a label; `None` if a name in it cannot be shown.
    pub fn advertised_member(&self, value: &Value) -> Option<Value> {
        Some(match value {
            Value::String(text) => self.label(text).into(),
            Value::Array(items) => {
                items.iter().map(|item| self.advertised_member(item)).collect::<Option<_>>()?
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    let value = self.advertised_member(value)?;
                    self.sanitiser.is_clean(name).then(|| (name.clone(), value))
                };
                Value::Object(members.iter().map(member).collect::<Option<_>>()?)
            }
            plain => plain.clone(),
        })
    }

    /// A label; nothing is left of one that cannot be made safe.
    fn label(&self, text: &str) -> String {
        let cleaned = self.sanitiser.text(text, Escape::None, usize::MAX, &mut Report::default());
        cleaned.map(Cow::into_owned).unwrap_or_default()
    }

    /// An output schema that every sanitised result fits if the result fitted the original. With `wrap`, for
    /// clients that know objects only, it describes `{"value": …}` (GNT-P3).
    pub fn relax_output_schema(&self, schema: &CompiledSchema, escape: Escape, wrap: bool) -> Value {
        let mut relaxing = Relaxing { sanitiser: &self.sanitiser, escape, dropped_condition: false };
        let mut relaxed = relaxing.schema(schema.source());
        if relaxing.dropped_condition {
            // What a condition had evaluated is evaluated no more, and must not be refused for it.
            drop_everywhere(&mut relaxed, &["unevaluatedProperties", "unevaluatedItems"]);
        }
        self.clean_labels(&mut relaxed);
        if !wrap {
            return relaxed;
        }
        // A document with an address of its own keeps its references wherever it stands.
        if relaxed.get("$id").is_none() {
            move_references(&mut relaxed);
        }
        json!({"type": "object", "properties": {"value": relaxed}, "required": ["value"]})
    }
}

struct Relaxing<'g> {
    sanitiser: &'g Sanitiser,
    escape: Escape,
    dropped_condition: bool,
}

impl Relaxing<'_> {
    fn schema(&mut self, schema: &Value) -> Value {
        let Value::Object(keywords) = schema else { return schema.clone() };
        let mut relaxed = Map::new();
        for (keyword, value) in keywords {
            match keyword.as_str() {
                // Escaping and removal change lengths and spellings.
                "minLength" | "maxLength" | "pattern" | "format" | "contentEncoding" | "contentMediaType"
                | "contentSchema" => {}
                "enum" | "const" => {
                    relaxed.insert(keyword.clone(), self.data(value));
                }
                // Names are never changed, so what is said about them stays true.
                "propertyNames" | "default" | "examples" | "required" | "dependentRequired" => {
                    relaxed.insert(keyword.clone(), value.clone());
                }
                // Two texts may become one, and a text may come to fit what it must not fit.
                "uniqueItems" if !holds_no_strings(keywords) => {}
                "not" => {
                    if self.is_unchanged(value) {
                        relaxed.insert(keyword.clone(), value.clone());
                    }
                }
                "maxContains" => {
                    if keywords.get("contains").is_some_and(|contains| self.is_unchanged(contains)) {
                        relaxed.insert(keyword.clone(), value.clone());
                    }
                }
                "if" | "then" | "else" => {
                    if keywords.get("if").is_some_and(|condition| self.is_unchanged(condition)) {
                        let value = self.schema(value);
                        relaxed.insert(keyword.clone(), value);
                    } else {
                        self.dropped_condition = true;
                    }
                }
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                    let named = value.as_object().map(|named| {
                        named.iter().map(|(name, child)| (name.clone(), self.schema(child))).collect()
                    });
                    relaxed.insert(keyword.clone(), named.map_or_else(|| value.clone(), Value::Object));
                }
                "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                    let branches = self.list(value);
                    self.branches(&mut relaxed, keyword, branches);
                }
                "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties" => {
                    let value = if value.is_array() { self.list(value) } else { self.schema(value) };
                    relaxed.insert(keyword.clone(), value);
                }
                _ => {
                    relaxed.insert(keyword.clone(), value.clone());
                }
            }
        }
        Value::Object(relaxed)
    }

    fn list(&mut self, value: &Value) -> Value {
        let schemas = value.as_array().into_iter().flatten();
        schemas.map(|schema| self.schema(schema)).collect()
    }

    /// Forms that excluded each other may both fit once they are relaxed: any of them will do.
    fn branches(&mut self, relaxed: &mut Map<String, Value>, keyword: &str, branches: Value) {
        if keyword != "oneOf" {
            let all_of = if keyword == "allOf" { relaxed.remove("allOf") } else { None };
            let mut branches = branches;
            if let (Some(Value::Array(more)), Value::Array(list)) = (all_of, &mut branches) {
                list.extend(more);
            }
            relaxed.insert(keyword.to_owned(), branches);
            return;
        }
        let any = json!({"anyOf": branches});
        match relaxed.entry("allOf").or_insert_with(|| json!([])) {
            Value::Array(list) => list.push(any),
            other => *other = json!([any]),
        }
    }

    /// Whether every sanitised value fits exactly if the value itself does. A reference might lead anywhere, and a text
    /// that was another one may become the one that is asked for.
    fn is_unchanged(&mut self, schema: &Value) -> bool {
        let before = std::mem::take(&mut self.dropped_condition);
        let unchanged =
            !mentions_reference(schema) && !compares_texts(schema) && self.schema(schema) == *schema;
        self.dropped_condition = before;
        unchanged
    }

    /// The texts of a value as they will be shown.
    fn data(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let shown = self.sanitiser.text(text, self.escape, usize::MAX, &mut Report::default());
                shown.map_or(Value::Null, |text| text.into_owned().into())
            }
            Value::Array(items) => items.iter().map(|item| self.data(item)).collect(),
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| (name.clone(), self.data(value)))
                .collect::<Map<_, _>>()
                .into(),
            plain => plain.clone(),
        }
    }
}

/// Whether the items are numbers or truth values for sure.
fn holds_no_strings(keywords: &Map<String, Value>) -> bool {
    let plain = |kind: &Value| matches!(kind.as_str(), Some("number" | "integer" | "boolean" | "null"));
    match keywords.get("items").and_then(|items| items.get("type")) {
        Some(Value::Array(kinds)) => kinds.iter().all(plain),
        Some(kind) => plain(kind),
        None => false,
    }
}

/// Whether a value must be, or must not be, one of some texts.
fn compares_texts(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(compares_texts),
        Value::Object(members) => members.iter().any(|(name, value)| {
            let compared = matches!(name.as_str(), "const" | "enum") && holds_text(value);
            compared || compares_texts(value)
        }),
        _ => false,
    }
}

fn holds_text(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(items) => items.iter().any(holds_text),
        Value::Object(members) => members.values().any(holds_text),
        _ => false,
    }
}

fn mentions_reference(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(mentions_reference),
        Value::Object(members) => members.iter().any(|(name, value)| {
            matches!(name.as_str(), "$ref" | "$dynamicRef" | "$recursiveRef") || mentions_reference(value)
        }),
        _ => false,
    }
}

fn drop_everywhere(schema: &mut Value, keywords: &[&str]) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| drop_everywhere(item, keywords)),
        Value::Object(members) => {
            members.retain(|name, _| !keywords.contains(&name.as_str()));
            members.values_mut().for_each(|member| drop_everywhere(member, keywords));
        }
        _ => {}
    }
}

/// `#/…` of a document that now stands at `/properties/value` of another.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(move_references),
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                        if let Some(rest) =
                            reference.strip_prefix('#').filter(|r| r.is_empty() || r.starts_with('/'))
                        {
                            *reference = format!("#/properties/value{rest}");
                        }
                    }
                    ("enum" | "const" | "default" | "examples", _) => {}
                    (_, member) => move_references(member),
                }
            }
        }
        _ => {}
    }
}
