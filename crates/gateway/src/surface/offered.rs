//! One tool on its way into a list: the accepted definition, and every change to what is published of it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use portcullis_core::Sha256Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json_text::{Edit, compact, rewritten, step};
use super::sentences::units;

/// What calling a tool can do, in the word its description must have (SURF-34).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Declared to read and nothing else.
    ReadOnly,
    /// Anything more.
    Mutating,
    /// It takes things away.
    Destructive,
}

impl Effect {
    /// The sentence.
    pub fn word(self) -> &'static str {
        match self {
            Effect::ReadOnly => "Read-only.",
            Effect::Mutating => "Mutating.",
            Effect::Destructive => "Destructive.",
        }
    }
}

/// What kind of change a rewrite is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Op {
    Hoist,
    Point,
    Drop,
    Truncate,
    Annotate,
    Prune,
    Defer,
}

/// One rewrite (SURF-4).
#[derive(Debug, Clone, Serialize)]
pub struct Rewrite {
    /// The tool's wire name.
    pub tool: String,
    /// Where in its definition.
    pub pointer: String,
    /// What kind.
    pub op: Op,
    /// Which rule wants it.
    pub rule: &'static str,
    /// What stood there.
    pub before_sha256: Sha256Digest,
    /// What stands there now; of nothing, if it is gone.
    pub after_sha256: Sha256Digest,
    #[serde(skip)]
    edit: Edit,
}

/// One tool, as published.
#[derive(Debug, Clone)]
pub struct Offered {
    /// Whose it is; empty for our own.
    pub server: String,
    /// The name agents use.
    pub name: String,
    /// What calling it can do, where that is known.
    pub effect: Option<Effect>,
    original: Arc<str>,
    edits: BTreeMap<String, Edit>,
    /// The definition as it now is, to look things up in. Shared by copies of a list until one of them changes it.
    value: Arc<Value>,
    /// Its text as it now is, once somebody asked for it.
    text: OnceLock<Arc<str>>,
}

impl Offered {
    /// A definition under the name it has in it. `None` if it is no object.
    pub fn new(server: &str, effect: Option<Effect>, definition: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(definition).ok()?;
        let name = value.as_object()?.get("name")?.as_str()?.to_owned();
        Some(Self {
            server: server.into(),
            name,
            effect,
            original: compact(definition).into(),
            edits: BTreeMap::new(),
            value: Arc::new(value),
            text: OnceLock::new(),
        })
    }

    /// The definition as published.
    pub fn text(&self) -> &str {
        if self.edits.is_empty() {
            return &self.original;
        }
        self.text.get_or_init(|| rewritten(&self.original, &self.edits).into())
    }

    /// The definition as accepted, without spaces.
    pub fn original(&self) -> &str {
        &self.original
    }

    /// Whether anything was rewritten.
    pub fn is_rewritten(&self) -> bool {
        !self.edits.is_empty()
    }

    /// A member of the definition as it now is.
    pub fn member(&self, name: &str) -> Option<&Value> {
        self.value.get(name)
    }

    /// The tool's own description.
    pub fn description(&self) -> &str {
        self.value.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its description strings (SURF-30) with their places: the tool's own first, then those of its schemas.
    pub fn descriptions(&self) -> Vec<(String, &str)> {
        let mut found = Vec::new();
        self.each_description(&mut |place, text| found.push((pointer(place), text)));
        found
    }

    /// The same without their places.
    pub(super) fn texts(&self) -> Vec<&str> {
        let mut found = Vec::new();
        self.each_description(&mut |_, text| found.push(text));
        found
    }

    fn each_description<'a>(&'a self, found: &mut dyn FnMut(&[Step<'a>], &'a str)) {
        if let Some(text) = self.value.get("description").and_then(Value::as_str) {
            found(&[Step::Key("description")], text);
        }
        for member in ["inputSchema", "outputSchema"] {
            if let Some(schema) = self.value.get(member) {
                of_schema(schema, &mut vec![Step::Key(member)], found);
            }
        }
    }

    /// The names of its arguments, in order.
    pub fn arguments(&self) -> Vec<&str> {
        let properties = self.value.pointer("/inputSchema/properties").and_then(Value::as_object);
        properties.map(|map| map.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Puts another text in place of one.
    pub(super) fn set_text(
        &mut self,
        pointer: &str,
        text: String,
        (op, rule): (Op, &'static str),
        ledger: &mut Vec<Rewrite>,
    ) {
        self.put(pointer, Value::from(text.as_str()), Edit::Text(text), (op, rule), ledger);
    }

    /// Puts another value in place of one.
    pub(super) fn set(
        &mut self,
        pointer: &str,
        value: Value,
        why: (Op, &'static str),
        ledger: &mut Vec<Rewrite>,
    ) {
        let edit = Edit::Json(value.to_string());
        self.put(pointer, value, edit, why, ledger);
    }

    fn put(
        &mut self,
        pointer: &str,
        value: Value,
        edit: Edit,
        (op, rule): (Op, &'static str),
        ledger: &mut Vec<Rewrite>,
    ) {
        let Some(place) = Arc::make_mut(&mut self.value).pointer_mut(pointer) else { return };
        let before = std::mem::replace(place, value);
        let after = place.to_string();
        self.enter(pointer, &before, &after, edit, (op, rule), ledger);
    }

    /// Leaves a member out of the object that `parent` points to.
    pub(super) fn remove(
        &mut self,
        parent: &str,
        member: &str,
        (op, rule): (Op, &'static str),
        ledger: &mut Vec<Rewrite>,
    ) -> bool {
        let place = self.value.pointer(parent).and_then(Value::as_object);
        if !place.is_some_and(|object| object.contains_key(member)) {
            return false;
        }
        let place = Arc::make_mut(&mut self.value).pointer_mut(parent).and_then(Value::as_object_mut);
        let Some(before) = place.and_then(|object| object.shift_remove(member)) else { return false };
        let mut pointer = parent.to_owned();
        step(&mut pointer, member);
        // What was changed inside is gone with it.
        let inside = format!("{pointer}/");
        self.edits.retain(|edited, _| !edited.starts_with(&inside));
        self.enter(&pointer, &before, "", Edit::Gone, (op, rule), ledger);
        true
    }

    /// That it is not listed at all.
    pub(super) fn deferred(&self, ledger: &mut Vec<Rewrite>) {
        let before = Sha256Digest::of(self.text().as_bytes());
        ledger.push(Rewrite {
            tool: self.name.clone(),
            pointer: String::new(),
            op: Op::Defer,
            rule: "SURF-64",
            before_sha256: before,
            after_sha256: Sha256Digest::of(b""),
            edit: Edit::Gone,
        });
    }

    fn enter(
        &mut self,
        pointer: &str,
        before: &Value,
        after: &str,
        edit: Edit,
        (op, rule): (Op, &'static str),
        ledger: &mut Vec<Rewrite>,
    ) {
        self.edits.insert(pointer.to_owned(), edit.clone());
        self.text = OnceLock::new();
        ledger.push(Rewrite {
            tool: self.name.clone(),
            pointer: pointer.to_owned(),
            op,
            rule,
            before_sha256: Sha256Digest::of(before.to_string().as_bytes()),
            after_sha256: Sha256Digest::of(after.as_bytes()),
            edit,
        });
    }

    /// This definition published as one of the same content was before; none if its content is another. Only what we
    /// say of it may differ.
    pub(super) fn published_like(&self, before: &Offered) -> Option<Self> {
        let content = |text: &str| {
            let mut value: Value = serde_json::from_str(text).ok()?;
            value.as_object_mut()?.shift_remove("_meta");
            Some(value)
        };
        if self.name != before.name || content(&self.original)? != content(&before.original)? {
            return None;
        }
        let mut like = Self { edits: before.edits.clone(), text: OnceLock::new(), ..self.clone() };
        like.value = Arc::new(serde_json::from_str(like.text()).ok()?);
        Some(like)
    }

    /// The longest description a client would have to take.
    pub(super) fn longest_description(&self) -> usize {
        units(self.description())
    }
}

/// What a ledger makes of an original; `None` if the tool is not listed any more.
pub fn replayed(original: &str, tool: &str, ledger: &[Rewrite]) -> Option<String> {
    let mut edits: BTreeMap<String, Edit> = BTreeMap::new();
    for rewrite in ledger.iter().filter(|rewrite| rewrite.tool == tool) {
        if rewrite.op == Op::Defer {
            return None;
        }
        if rewrite.edit == Edit::Gone {
            let inside = format!("{}/", rewrite.pointer);
            edits.retain(|edited, _| !edited.starts_with(&inside));
        }
        edits.insert(rewrite.pointer.clone(), rewrite.edit.clone());
    }
    Some(rewritten(original, &edits))
}

/// Keywords whose value is a map of schemas.
const MAPS: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Keywords whose value is a schema, or a list of them.
const SCHEMAS: [&str; 18] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
    "additionalItems",
    "allOf",
    "anyOf",
    "oneOf",
    "prefixItems",
    "extends",
    "disallow",
];

/// One step on the way to a value.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// A way as a pointer (RFC 6901).
fn pointer(way: &[Step<'_>]) -> String {
    let mut pointer = String::new();
    for one in way {
        match one {
            Step::Key(key) => step(&mut pointer, key),
            Step::Index(index) => step(&mut pointer, &index.to_string()),
        }
    }
    pointer
}

/// Descriptions of a schema and all schemas in it: never of data that happens to have such a key. `way` leads to the
/// schema, and is as it was when this returns.
fn of_schema<'a>(schema: &'a Value, way: &mut Vec<Step<'a>>, found: &mut dyn FnMut(&[Step<'a>], &'a str)) {
    let Some(keywords) = schema.as_object() else { return };
    for (keyword, value) in keywords {
        way.push(Step::Key(keyword));
        match value {
            Value::String(text) if keyword == "description" => found(way, text),
            Value::Object(map) if MAPS.contains(&keyword.as_str()) => {
                for (name, inner) in map {
                    way.push(Step::Key(name));
                    of_schema(inner, way, found);
                    way.pop();
                }
            }
            Value::Object(_) if SCHEMAS.contains(&keyword.as_str()) => of_schema(value, way, found),
            Value::Array(list) if SCHEMAS.contains(&keyword.as_str()) => {
                for (index, inner) in list.iter().enumerate() {
                    way.push(Step::Index(index));
                    of_schema(inner, way, found);
                    way.pop();
                }
            }
            _ => {}
        }
        way.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_schemas_are_told_from_properties_of_that_name() {
        // SURF-30
        let text = r#"{"name":"t","description":"Does it.","inputSchema":{"type":"object","description":"In.","default":{"description":"data"},"properties":{"description":{"type":"string","description":"A text."},"a/b":{"items":[{"description":"x"}],"enum":[{"description":"data"}]}}}}"#;
        let tool = Offered::new("s", None, text).unwrap();
        let places: Vec<String> = tool.descriptions().into_iter().map(|(pointer, _)| pointer).collect();
        assert_eq!(
            places,
            [
                "/description",
                "/inputSchema/description",
                "/inputSchema/properties/description/description",
                "/inputSchema/properties/a~1b/items/0/description",
            ]
        );
    }

    #[test]
    fn the_ledger_and_the_original_give_what_is_published() {
        // SURF-4
        let text = r#"{ "name":"t", "description":"Does it. More.", "n": 1e3, "inputSchema":{"properties":{"a":{"description":"long"}}}}"#;
        let mut tool = Offered::new("s", None, text).unwrap();
        let mut ledger = Vec::new();
        tool.set_text(
            "/inputSchema/properties/a/description",
            "short".into(),
            (Op::Truncate, "x"),
            &mut ledger,
        );
        tool.set_text("/description", "Does it.".into(), (Op::Drop, "x"), &mut ledger);
        tool.remove("/inputSchema/properties", "a", (Op::Prune, "x"), &mut ledger);
        assert_eq!(
            tool.text(),
            r#"{"name":"t","description":"Does it.","n":1e3,"inputSchema":{"properties":{}}}"#
        );
        assert_eq!(replayed(tool.original(), "t", &ledger).as_deref(), Some(tool.text()));
        assert_eq!(ledger.len(), 3);
    }
}
