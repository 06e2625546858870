//! Two schemas of one thing: what the change means to who sends values, or to who receives them (CAT-111).

use std::collections::BTreeSet;

use portcullis_core::canon::push_segment;
use serde_json::{Map, Value};

use super::classify::{Changes, Class};

/// Whether values are sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Arguments: what takes less breaks callers.
    Input,
    /// Results: what gives more kinds of values breaks callers.
    Output,
}

impl Direction {
    /// The class of a schema that takes fewer values than before.
    fn narrower(self) -> Class {
        match self {
            Direction::Input => Class::Breaking,
            Direction::Output => Class::NonBreaking,
        }
    }

    /// The class of one that takes more.
    fn wider(self) -> Class {
        match self {
            Direction::Input => Class::NonBreaking,
            Direction::Output => Class::Breaking,
        }
    }
}

/// Keywords whose effect on each other cannot be told by looking.
const UNDECIDED: [&str; 12] = [
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "$ref",
    "dependentSchemas",
    "$defs",
    "definitions",
];
const TEXTS: [&str; 4] = ["title", "description", "examples", "$comment"];
const LOWER: [&str; 5] = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER: [&str; 5] = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];

pub(super) fn schemas(changes: &mut Changes, pointer: &str, direction: Direction, old: &Value, new: &Value) {
    if old == new {
        return;
    }
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        changes.add(Class::Breaking, pointer, "undecided", old, new);
        return;
    };
    let null = Value::Null;
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let (old, new) = (before.get(key).unwrap_or(&null), after.get(key).unwrap_or(&null));
        if old == new {
            continue;
        }
        let mut place = pointer.to_owned();
        push_segment(&mut place, key);
        match key.as_str() {
            "properties" => properties(changes, &place, direction, before, after),
            "required" => required(changes, &place, direction, before, after),
            "type" => types(changes, &place, direction, old, new),
            "enum" => values(changes, &place, direction, old, new),
            "const" => changes.add(Class::Breaking, &place, "const", old, new),
            "additionalProperties" => extras(changes, &place, direction, old, new),
            "default" if direction == Direction::Input => {
                changes.add(Class::Breaking, &place, "default-changed", old, new);
            }
            "items" if old.is_object() && new.is_object() => schemas(changes, &place, direction, old, new),
            "items" => changes.add(Class::Breaking, &place, "items", old, new),
            text if TEXTS.contains(&text) => changes.add(Class::Documentation, &place, "text", old, new),
            bound if LOWER.contains(&bound) => limit(changes, &place, direction, old, new, false),
            bound if UPPER.contains(&bound) => limit(changes, &place, direction, old, new, true),
            "pattern" | "format" | "multipleOf" | "uniqueItems" => match (old.is_null(), new.is_null()) {
                (false, true) => changes.add(direction.wider(), &place, "constraint-removed", old, new),
                (true, false) => changes.add(direction.narrower(), &place, "constraint-added", old, new),
                _ => changes.add(Class::Breaking, &place, "constraint-changed", old, new),
            },
            known if UNDECIDED.contains(&known) => {
                changes.add(Class::Breaking, &place, "undecided", old, new);
            }
            "$schema" | "$id" | "default" | "deprecated" | "readOnly" | "writeOnly" => {
                changes.add(Class::NonBreaking, &place, "annotation", old, new);
            }
            // A keyword of somebody's own says nothing about values; one of the standard that is not above might.
            own if own.starts_with("x-") => changes.add(Class::NonBreaking, &place, "annotation", old, new),
            _ => changes.add(Class::Breaking, &place, "undecided", old, new),
        }
    }
}

fn object(schema: &Map<String, Value>, key: &str) -> Map<String, Value> {
    schema.get(key).and_then(Value::as_object).cloned().unwrap_or_default()
}

fn names(schema: &Map<String, Value>) -> BTreeSet<String> {
    let required = schema.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
}

fn properties(
    changes: &mut Changes,
    pointer: &str,
    direction: Direction,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) {
    let (old, new) = (object(before, "properties"), object(after, "properties"));
    let needed = names(after);
    for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
        let mut place = pointer.to_owned();
        push_segment(&mut place, name);
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => schemas(changes, &place, direction, old, new),
            (Some(old), None) => changes.add(Class::Breaking, &place, "property-removed", old, &Value::Null),
            (None, Some(new)) => {
                let breaks = direction == Direction::Input && needed.contains(name);
                let (class, rule) = if breaks {
                    (Class::Breaking, "required-added")
                } else {
                    (Class::NonBreaking, "property-added")
                };
                changes.add(class, &place, rule, &Value::Null, new);
            }
            (None, None) => {}
        }
    }
}

/// Properties that are on both sides, and are needed on one of them only.
fn required(
    changes: &mut Changes,
    pointer: &str,
    direction: Direction,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) {
    let (old, new) = (names(before), names(after));
    let both = |name: &&String| {
        object(before, "properties").contains_key(*name) == object(after, "properties").contains_key(*name)
    };
    for name in new.difference(&old).filter(both) {
        changes.add(
            direction.narrower(),
            pointer,
            "became-required",
            &Value::Null,
            &Value::from(name.as_str()),
        );
    }
    for name in old.difference(&new).filter(both) {
        changes.add(direction.wider(), pointer, "became-optional", &Value::from(name.as_str()), &Value::Null);
    }
}

fn types(changes: &mut Changes, pointer: &str, direction: Direction, old: &Value, new: &Value) {
    let kinds = |value: &Value| -> Option<BTreeSet<String>> {
        match value {
            Value::String(kind) => Some([kind.clone()].into()),
            Value::Array(kinds) => {
                Some(kinds.iter().filter_map(Value::as_str).map(ToOwned::to_owned).collect())
            }
            // No type is every type.
            _ => None,
        }
    };
    // Every integer is a number.
    let covers = |wide: &BTreeSet<String>, narrow: &BTreeSet<String>| {
        narrow.iter().all(|kind| wide.contains(kind) || (kind == "integer" && wide.contains("number")))
    };
    let (wider, narrower) = match (kinds(old), kinds(new)) {
        (None, _) => (false, true),
        (_, None) => (true, false),
        (Some(old), Some(new)) => (covers(&new, &old), covers(&old, &new)),
    };
    match (wider, narrower) {
        (true, false) => changes.add(direction.wider(), pointer, "type-widened", old, new),
        (false, true) => changes.add(direction.narrower(), pointer, "type-narrowed", old, new),
        (true, true) => {}
        (false, false) => changes.add(Class::Breaking, pointer, "type-changed", old, new),
    }
}

fn values(changes: &mut Changes, pointer: &str, direction: Direction, old: &Value, new: &Value) {
    let (Some(before), Some(after)) = (old.as_array(), new.as_array()) else {
        let class = if new.is_null() { direction.wider() } else { direction.narrower() };
        changes.add(class, pointer, if new.is_null() { "enum-removed" } else { "enum-added" }, old, new);
        return;
    };
    for value in before.iter().filter(|value| !after.contains(value)) {
        changes.add(direction.narrower(), pointer, "enum-value-removed", value, &Value::Null);
    }
    for value in after.iter().filter(|value| !before.contains(value)) {
        changes.add(direction.wider(), pointer, "enum-value-added", &Value::Null, value);
    }
}

fn extras(changes: &mut Changes, pointer: &str, direction: Direction, old: &Value, new: &Value) {
    match (old, new) {
        (_, Value::Bool(false)) => changes.add(direction.narrower(), pointer, "closed", old, new),
        (Value::Bool(false), _) => changes.add(direction.wider(), pointer, "opened", old, new),
        (Value::Object(_), Value::Object(_)) => schemas(changes, pointer, direction, old, new),
        (Value::Null | Value::Bool(true), Value::Null | Value::Bool(true)) => {}
        _ => changes.add(Class::Breaking, pointer, "undecided", old, new),
    }
}

fn limit(
    changes: &mut Changes,
    pointer: &str,
    direction: Direction,
    old: &Value,
    new: &Value,
    is_upper: bool,
) {
    let tighter = match (old.as_f64(), new.as_f64()) {
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (Some(old), Some(new)) => (new < old) == is_upper,
        (None, None) => {
            changes.add(Class::Breaking, pointer, "undecided", old, new);
            return;
        }
    };
    let (class, rule) = if tighter {
        (direction.narrower(), "bound-tightened")
    } else {
        (direction.wider(), "bound-loosened")
    };
    changes.add(class, pointer, rule, old, new);
}
