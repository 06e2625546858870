use portcullis_gauntlet::{CompiledSchema, Escape, Gauntlet, Raw, SchemaRole};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::refused;

fn output(schema: &Value) -> CompiledSchema {
    CompiledSchema::compile(schema, SchemaRole::Output).unwrap()
}

fn relaxed(schema: &Value) -> Value {
    Gauntlet::default().relax_output_schema(&output(schema), Escape::Html, false)
}

#[test]
fn a_schema_is_refused_for_a_marker_where_it_may_not_be_edited() {
    // GNT-S12, gauntlet §10: marker in a description, schema description, enum, property name
    let with = |more: Value| json!({"type": "object", "properties": {"a": more}});
    for (bad, place) in [
        (with(json!({"enum": ["ok", "<|im_start|>"]})), "/properties/a/enum"),
        (with(json!({"const": {"k": "__system__"}})), "/properties/a/const/k"),
        (
            with(json!({"default": {"description": "__sys\u{200b}tem__"}})),
            "/properties/a/default/description",
        ),
        (with(json!({"examples": ["\u{7}"]})), "/properties/a/examples"),
        (with(json!({"pattern": "&lt;\\|im_end\\|>|<|im_end|>"})), "/properties/a/pattern"),
        (with(json!({"$comment": "__system__"})), "/properties/a/$comment"),
        (with(json!({"x-own": ["__system__"]})), "/properties/a/x-own"),
        (json!({"type": "object", "properties": {"__system__": {}}}), "/properties"),
        (json!({"type": "object", "required": ["a\u{0}"]}), "/required"),
    ] {
        assert_eq!(refused(&bad), ("mcp-schema-marker", place.to_owned()), "{bad}");
    }
    let labelled = json!({
        "type": "object", "title": "__system__T", "description": "a <b>\u{7}",
        "properties": {"description": {"type": "string", "description": "<|im_end|>d", "default": "title"}},
    });
    let schema = CompiledSchema::compile(&labelled, SchemaRole::Input).unwrap();
    assert_eq!(
        Gauntlet::default().advertised_schema(schema.source()),
        json!({
            "type": "object", "title": "T", "description": "a <b>",
            "properties": {"description": {"type": "string", "description": "d", "default": "title"}},
        })
    );
}

#[test]
fn what_sanitising_can_break_is_taken_out_of_the_output_schema() {
    // GNT-Z18
    for (schema, expected) in [
        (
            json!({"maxLength": 2, "minLength": 1, "pattern": "a", "format": "uri", "contentEncoding": "base64"}),
            json!({}),
        ),
        (
            json!({"enum": ["<", 1, {"k": "&"}], "type": "string"}),
            json!({"enum": ["&lt;", 1, {"k": "&amp;"}], "type": "string"}),
        ),
        (
            json!({"oneOf": [{"const": "a"}, {"minLength": 3}]}),
            json!({"allOf": [{"anyOf": [{"const": "a"}, {}]}]}),
        ),
        (json!({"not": {"maxLength": 5}}), json!({})),
        (json!({"not": {"type": "integer"}}), json!({"not": {"type": "integer"}})),
        // `__system__` becomes the empty text, which is not what the value was.
        (json!({"not": {"const": ""}}), json!({})),
        (json!({"not": {"enum": [1, null]}}), json!({"not": {"enum": [1, null]}})),
        (
            json!({"if": {"properties": {"a": {"not": {"const": ""}}}}, "then": {"properties": {"a": {}}}, "unevaluatedProperties": false}),
            json!({}),
        ),
        (json!({"uniqueItems": true, "items": {"type": "string"}}), json!({"items": {"type": "string"}})),
        (
            json!({"uniqueItems": true, "items": {"type": "integer"}}),
            json!({"uniqueItems": true, "items": {"type": "integer"}}),
        ),
        (
            json!({"contains": {"pattern": "a"}, "maxContains": 1, "minContains": 1}),
            json!({"contains": {}, "minContains": 1}),
        ),
        (
            json!({"if": {"properties": {"k": {"const": "<"}}}, "then": {"required": ["x"]}, "unevaluatedProperties": false}),
            json!({}),
        ),
        (
            json!({"if": {"required": ["k"]}, "then": {"properties": {"x": {"maxLength": 1}}}}),
            json!({"if": {"required": ["k"]}, "then": {"properties": {"x": {}}}}),
        ),
        (json!({"propertyNames": {"maxLength": 3}}), json!({"propertyNames": {"maxLength": 3}})),
    ] {
        assert_eq!(relaxed(&schema), expected, "{schema}");
    }
}

#[test]
fn an_output_schema_is_wrapped_with_its_references() {
    // GNT-P3
    let list = json!({"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": {"anyOf": [{"type": "integer"}, {"$ref": "#"}]}}});
    let wrapped = Gauntlet::default().relax_output_schema(&output(&list), Escape::Html, true);
    let schema = output(&wrapped);
    assert!(schema.validate(&json!({"value": [1, [2, [3]]]})).is_ok());
    assert!(schema.validate(&json!({"value": [1, ["x"]]})).is_err());
    assert!(schema.validate(&json!([1])).is_err());
    let addressed = json!({"$id": "http://example.test/s", "type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": {"type": "integer"}}});
    let wrapped = Gauntlet::default().relax_output_schema(&output(&addressed), Escape::Html, true);
    let client = jsonschema::validator_for(&wrapped).unwrap();
    assert!(client.is_valid(&json!({"value": [1]})) && !client.is_valid(&json!({"value": ["x"]})));
}

/// Words that sanitising changes in every way there is.
fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "",
        "a",
        "<",
        "a&b",
        "\"",
        "__system__",
        "x__system__",
        "long enough",
        "\u{7}",
        "\u{7}a",
    ])
    .prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![word().prop_map(Value::from), (0i64..3).prop_map(Value::from), Just(Value::Null)];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// A schema that some of those values fit. The words of enums must be clean, or it would be refused (GNT-S12).
fn schema() -> impl Strategy<Value = Value> {
    let clean = prop::sample::select(vec!["", "a", "<", "a&b", "\"", "long enough"]);
    let leaf = prop_oneof![
        Just(json!({})),
        Just(json!({"type": "string"})),
        (0u64..3).prop_map(|n| json!({"maxLength": n})),
        (0u64..3).prop_map(|n| json!({"minLength": n})),
        Just(json!({"pattern": "^[a<]"})),
        prop::collection::vec(clean.clone(), 1..4).prop_map(|words| json!({"enum": words})),
        clean.prop_map(|word| json!({"const": word})),
        Just(json!({"type": ["integer", "null"]})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let many = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            many.clone().prop_map(|s| json!({"oneOf": s})),
            many.clone().prop_map(|s| json!({"anyOf": s})),
            many.clone().prop_map(|s| json!({"allOf": s, "oneOf": [{}]})),
            inner.clone().prop_map(|s| json!({"not": s})),
            inner.clone().prop_map(|s| json!({"items": s, "uniqueItems": true})),
            (inner.clone(), 0u64..2).prop_map(|(s, n)| json!({"contains": s, "maxContains": n, "minContains": 0})),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}, "unevaluatedProperties": false})),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| json!({
                "if": {"properties": {"a": a}}, "then": {"properties": {"a": b}}, "else": {"properties": {"b": c}}, "unevaluatedProperties": false,
            })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_sanitised_value_fits_the_relaxed_schema_if_the_value_fitted_the_original(schema in schema(), value in value()) {
        // GNT-Z18
        let original = output(&schema);
        if original.validate(&value).is_ok() {
            let (clean, _) = Gauntlet::default().clean_value(Raw::new(value.clone())).unwrap();
            let relaxed = relaxed(&schema);
            prop_assert!(jsonschema::validator_for(&relaxed).unwrap().is_valid(clean.get()), "{} {} {}", schema, value, relaxed);
        }
    }
}
