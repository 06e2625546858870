use std::net::TcpListener;

use portcullis_core::ErrorCode;
use portcullis_gauntlet::{CompiledSchema, GauntletError, SchemaRole};
use serde_json::{Value, json};

use crate::refused;

fn compiles(schema: &Value) -> CompiledSchema {
    CompiledSchema::compile(schema, SchemaRole::Input).unwrap_or_else(|e| panic!("{e}: {schema}"))
}

#[test]
fn an_input_schema_must_be_an_object_that_describes_an_object() {
    // SG-04
    for bad in
        [json!([1]), json!("x"), json!(true), json!(false), json!([]), json!(0), json!(null), json!({})]
    {
        assert_eq!(refused(&bad).0, "mcp-tool-bad-schema", "{bad}");
    }
    for bad in [json!([1]), json!(true), json!(null)] {
        let error = CompiledSchema::compile(&bad, SchemaRole::Output).unwrap_err();
        assert_eq!((error.violation(), error.code()), ("mcp-tool-bad-schema", ErrorCode::SchemaInvalid));
    }
    assert!(CompiledSchema::compile(&json!({"type": "array"}), SchemaRole::Output).is_ok());
}

#[test]
fn a_reference_that_leaves_the_document_is_refused_and_never_fetched() {
    // SG-05, GNT-S3
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let http = format!("http://{}/schema.json", listener.local_addr().unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{"type":"string"}"#).unwrap();
    let file = format!("file://{}", file.path().display());
    for outside in [
        http.as_str(),
        file.as_str(),
        "other.json#/x",
        "//host/x",
        "urn:example:x",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        for keyword in ["$ref", "$dynamicRef"] {
            let schema = json!({"type": "object", "properties": {"a": {keyword: outside}}});
            let expected = ("mcp-schema-external-ref", format!("/properties/a/{keyword}"));
            assert_eq!(refused(&schema), expected, "{outside}");
        }
    }
    // Through an `$id` that moves the base, and through a place that only becomes a schema by reference.
    let moved = json!({"type": "object", "$id": http, "properties": {"a": {"$ref": "other.json"}}});
    assert_eq!(refused(&moved).0, "mcp-schema-external-ref");
    let hidden = json!({"type": "object", "x-y": {"$ref": http}, "properties": {"a": {"$ref": "#/x-y"}}});
    assert_eq!(refused(&hidden).0, "mcp-schema-external-ref");
    let embedded = json!({"type": "object", "$defs": {"a": {"$id": "http://a/b", "type": "string"}}});
    assert_eq!(refused(&embedded).0, "mcp-schema-uncompilable");
    assert!(listener.accept().is_err(), "nobody may have connected");
    // Not references at all: data, and names of properties.
    compiles(&json!({"type": "object", "default": {"$ref": http}, "enum": [{"$ref": http}]}));
    compiles(&json!({"type": "object", "properties": {"$ref": {"type": "string"}}}));
    // Inside the document: pointers, escaped pointers, anchors, the document's own address.
    compiles(&json!({
        "type": "object", "$id": "http://example.test/s", "$defs": {"a b/c": {"$anchor": "here", "type": "string"}},
        "properties": {
            "p": {"$ref": "#/$defs/a%20b~1c"}, "q": {"$ref": "#here"},
            "r": {"$ref": "http://example.test/s#here"}, "self": {"$ref": "#"}, "dyn": {"$dynamicRef": "#here"},
        },
    }));
}

#[test]
fn a_schema_that_means_nothing_is_refused_when_it_is_bound() {
    // SG-06, GNT-S1, GNT-S2
    let with = |a: Value| json!({"type": "object", "properties": {"a": a}});
    for (bad, place) in [
        (with(json!({"type": "strnig"})), "/properties/a/type"),
        (with(json!({"pattern": "("})), "/properties/a/pattern"),
        (with(json!({"$ref": "#/$defs/missing"})), "/properties/a/$ref"),
        (with(json!({"$ref": "#nowhere"})), "/properties/a/$ref"),
        (with(json!({"minimum": "one"})), "/properties/a/minimum"),
        (with(json!([])), "/properties/a"),
        (json!({"type": "object", "$ref": "#"}), ""),
        (json!({"type": "object", "$schema": "http://json-schema.org/draft-03/schema#"}), "/$schema"),
        (json!({"type": "object", "$schema": "http://json-schema.org/draft-04/schema#"}), "/$schema"),
        (json!({"type": "object", "$schema": 7}), "/$schema"),
    ] {
        assert_eq!(refused(&bad), ("mcp-schema-uncompilable", place.to_owned()), "{bad}");
    }
    let unsupported = CompiledSchema::compile(
        &json!({"type": "object", "$schema": "http://json-schema.org/draft-03/schema#"}),
        SchemaRole::Input,
    );
    assert_eq!(unsupported.unwrap_err().details()["reason"], "unsupported-dialect");

    let draft_07 = compiles(&json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "properties": {"pair": {"items": [{"type": "string"}, {"type": "integer"}]}},
    }));
    assert!(draft_07.validate(&json!({"pair": ["a", 1]})).is_ok());
    assert!(draft_07.validate(&json!({"pair": ["a", "b"]})).is_err());
    compiles(&json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "type": "object"}));
}

#[test]
fn a_reference_cycle_is_refused_only_if_it_never_steps_into_the_value() {
    // GNT-S4
    let cycle = json!({
        "type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}},
    });
    assert_eq!(refused(&cycle).0, "mcp-schema-uncompilable");
    let tree = compiles(&json!({
        "type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
    }));
    assert!(tree.validate(&json!({"children": [{"children": []}]})).is_ok());
    assert_eq!(
        tree.validate(&json!({"children": [{"children": 1}]})).unwrap_err().schema_path(),
        "/children/0/children"
    );
}

#[test]
fn a_schema_beyond_a_cap_is_too_complex() {
    // SG-07 (first half), GNT-S4
    let doubling = |levels: usize| {
        let mut definitions = serde_json::Map::new();
        for i in 0..levels {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            definitions.insert(format!("d{i}"), json!({"allOf": [next, next]}));
        }
        definitions.insert(format!("d{levels}"), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions})
    };
    assert_eq!(refused(&doubling(22)).0, "mcp-schema-too-complex");
    assert_eq!(refused(&doubling(200)).0, "mcp-schema-too-complex");
    compiles(&doubling(8));

    let object = |more: Value| {
        let mut schema = json!({"type": "object"});
        schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        schema
    };
    let nested = |levels: usize| {
        (0..levels)
            .fold(json!({"type": "string"}), |inner, _| json!({"type": "object", "properties": {"a": inner}}))
    };
    compiles(&nested(32));
    let properties =
        |n: usize| (0..n).map(|i| (format!("p{i}"), json!({}))).collect::<serde_json::Map<_, _>>();
    compiles(&object(json!({"properties": properties(512)})));
    for (what, bad) in [
        ("bytes", object(json!({"description": "x".repeat(66_000)}))),
        ("depth", nested(33)),
        ("subschemas", object(json!({"anyOf": vec![json!({}); 2_048]}))),
        (
            "references",
            object(json!({"prefixItems": vec![json!({"$ref": "#/$defs/a"}); 513], "$defs": {"a": {}}})),
        ),
        ("enum", object(json!({"enum": (0..4_097).collect::<Vec<_>>()}))),
        ("pattern", object(json!({"pattern": "a".repeat(1_025)}))),
        ("pattern name", object(json!({"patternProperties": {"a".repeat(1_025): {}}}))),
        ("properties", object(json!({"properties": properties(513)}))),
    ] {
        assert_eq!(refused(&bad).0, "mcp-schema-too-complex", "{what}");
    }
    // A short pattern may still be large once compiled.
    let huge = refused(&object(json!({"properties": {"a": {"pattern": r"(\w{1000}){1000}"}}})));
    assert_eq!(huge.0, "mcp-schema-uncompilable");
}

#[test]
fn patterns_cannot_hold_the_validator_up() {
    // GNT-S6: a linear engine for what it can do, a step limit for the rest; an endless test would show it.
    let hostile = format!("{}!", "a".repeat(30));
    let linear = compiles(&json!({"type": "object", "properties": {"a": {"pattern": "^(a+)+$"}}}));
    let violations = linear.validate(&json!({"a": hostile})).unwrap_err();
    assert_eq!((violations.schema_path(), violations.budget_exceeded), ("/a", false));
    assert_eq!(violations.errors[0].message, "does not match the required pattern");
    let backtracking =
        compiles(&json!({"type": "object", "properties": {"a": {"pattern": "^((a+)\\2?)+$"}}}));
    assert!(backtracking.validate(&json!({"a": "aaa"})).is_ok());
    let violations = backtracking.validate(&json!({"a": hostile})).unwrap_err();
    assert!(violations.budget_exceeded, "{violations:?}");
    // Search, not match; ECMA-262 classes.
    let search = compiles(&json!({"type": "object", "properties": {"a": {"pattern": "\\d"}}}));
    assert!(search.validate(&json!({"a": "x7y"})).is_ok());
    assert!(search.validate(&json!({"a": "\u{663}"})).is_err());
}

#[test]
fn formats_and_content_only_annotate_and_nothing_is_coerced() {
    // GNT-S7
    let annotated = |dialect: &str| {
        compiles(&json!({
            "$schema": dialect, "type": "object",
            "properties": {
                "n": {"type": "integer", "default": 1},
                "s": {"format": "uri", "contentEncoding": "base64", "contentMediaType": "application/json"},
            },
        }))
    };
    for dialect in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        let schema = annotated(dialect);
        assert!(schema.validate(&json!({"s": "not a uri, not base64, not json"})).is_ok());
        assert!(schema.validate(&json!({"n": 1.0})).is_ok());
        for bad in [json!(true), json!("1"), json!(1.5), json!(null)] {
            assert!(schema.validate(&json!({"n": bad})).is_err(), "{bad}");
        }
    }
}

#[test]
fn a_schema_is_known_by_the_digest_of_its_canonical_text() {
    let a: Value = serde_json::from_str(r#"{"type":"object","properties":{"a":{"minimum":1.0}}}"#).unwrap();
    let b: Value = serde_json::from_str(r#"{ "properties": {"a":{"minimum":1}}, "type":"object" }"#).unwrap();
    assert_eq!(compiles(&a).digest(), compiles(&b).digest());
    assert_eq!(compiles(&a).source(), &a);
    assert!(!compiles(&a).is_closed_object());
    assert!(compiles(&json!({"type": "object", "additionalProperties": false})).is_closed_object());
    assert!(compiles(&json!({"type": "object", "unevaluatedProperties": false})).is_closed_object());
    assert!(!compiles(&json!({"type": "object", "additionalProperties": {}})).is_closed_object());
}

#[test]
fn a_refused_schema_is_reported_with_its_place() {
    let error = CompiledSchema::compile(
        &json!({"type": "object", "properties": {"a": {"type": "<|im_start|>"}}}),
        SchemaRole::Input,
    )
    .unwrap_err();
    assert!(matches!(error, GauntletError::Uncompilable { .. }));
    let details = serde_json::to_string(&error.details()).unwrap();
    assert!(!details.contains("im_start"), "{details}");
    assert_eq!(error.details()["kind"], "validation");
    assert_eq!(error.details()["schema_path"], "/properties/a/type");
}
