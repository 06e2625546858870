use bytes::Bytes;
use portcullis_gauntlet::{CompiledSchema, GauntletError, SchemaRole, screen};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{args, finish, tool};

/// A schema most values break in several places.
fn strict() -> Value {
    json!({
        "type": "object", "required": ["name", "size", "tags"], "additionalProperties": false, "maxProperties": 2,
        "properties": {
            "name": {"type": "string", "pattern": "^z+$", "maxLength": 3, "enum": ["zz"]},
            "size": {"type": "integer", "minimum": 3, "multipleOf": 7},
            "tags": {"type": "array", "uniqueItems": true, "maxItems": 1, "items": {"const": 1}, "contains": {"const": 2}},
            "deep": {"oneOf": [{"properties": {"a": false}}, {"propertyNames": {"maxLength": 0}}, {"not": {}}]},
        },
    })
}

/// Values whose strings are unmistakable: every one starts with a letter that no text of ours has.
fn instance() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "Ω[a-z<>|_\"\\\\ ]{3,12}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec!["name", "size", "tags", "deep", "a", "other"]);
    let tree = leaf.prop_recursive(3, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key.clone(), inner, 0..5).prop_map(|m| m
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect::<serde_json::Map<_, _>>()
                .into()),
        ]
    });
    let key = prop::sample::select(vec!["name", "size", "tags", "deep", "a", "other"]);
    prop::collection::btree_map(key, tree, 0..6)
        .prop_map(|m| m.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<serde_json::Map<_, _>>().into())
}

fn strings<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(members) => members.values().for_each(|member| strings(member, found)),
        _ => {}
    }
}

fn told(error: &GauntletError) -> String {
    // Unescaped, so that an escape cannot hide a quotation.
    let details = error.details();
    let errors = details.get("errors").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut all = error.to_string();
    for part in errors {
        all.push_str(part["pointer"].as_str().unwrap());
        all.push_str(part["message"].as_str().unwrap());
    }
    all
}

/// The same object with its members written in another order.
fn rotated(value: &Value, by: usize) -> String {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let mut parts: Vec<_> =
                members.iter().map(|(k, v)| format!("{}:{}", json!(k), rotated(v, by))).collect();
            let by = by % parts.len();
            parts.rotate_left(by);
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(|v| rotated(v, by)).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn no_error_text_holds_a_string_of_the_value_it_is_about(value in instance()) {
        // GNT-S10
        let spec = tool(&strict(), Some(&strict()));
        let input = screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&value)).unwrap_err();
        let raw = Bytes::from(json!({"content": [], "structuredContent": &value}).to_string());
        let output = finish(&spec, raw).unwrap_err();
        let mut secrets = Vec::new();
        strings(&value, &mut secrets);
        for secret in secrets {
            prop_assert!(!told(&input).contains(secret), "{}", told(&input));
            prop_assert!(!told(&output).contains(secret), "{}", told(&output));
        }
    }

    #[test]
    fn the_error_list_does_not_depend_on_the_order_of_keys(value in instance(), by in 0usize..6) {
        // GNT-S8
        let spec = tool(&strict(), None);
        let list = |text: &str| {
            let args = portcullis_gauntlet::Args::parse(text.as_bytes(), 1 << 16).unwrap();
            screen(&spec, &portcullis_gauntlet::Grants::Declared, args).unwrap_err().details()
        };
        prop_assert_eq!(list(&value.to_string()), list(&rotated(&value, by)));
    }

    #[test]
    fn no_bytes_panic_the_reader_of_results(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let _ = finish(&tool(&json!({"type": "object"}), None), bytes.into());
    }

    #[test]
    fn no_text_panics_the_reader_of_results(text in r#"[\{\}\[\]:,"\\udc8a-f0 ]{0,60}"#) {
        let _ = finish(&tool(&json!({"type": "object"}), None), text.into());
    }

    #[test]
    fn no_value_panics_the_compiler(mut value in instance()) {
        value["type"] = "object".into();
        value["$ref"] = value["name"].clone();
        value["properties"] = value["deep"].clone();
        let _ = CompiledSchema::compile(&value, SchemaRole::Input);
    }
}
