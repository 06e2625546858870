//! Validation ends, whatever schema and value are brought together (GNT-S5, GNT-S6).

use bytes::Bytes;
use portcullis_core::ErrorCode;
use portcullis_gauntlet::{Args, CompiledSchema, Grants, SchemaRole, screen};
use serde_json::{Value, json};

use crate::{args, finish, tool};

/// Each level is looked at twice by the level above: two to the depth visits.
fn doubling_by_depth() -> Value {
    let node = json!({"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}}, "required": ["c"]});
    json!({
        "type": "object", "properties": {"c": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"oneOf": [node, node, {"type": "null"}]}},
    })
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!({"c": "Ωsecret"}), |inner, _| json!({"c": inner}))
}

#[test]
fn a_recursive_choice_over_a_deep_value_is_given_up_before_the_call() {
    // SG-07 (second half)
    let spec = tool(&doubling_by_depth(), None);
    let error = screen(&spec, &Grants::Declared, args(&nested(60))).unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-schema-budget", ErrorCode::ArgsInvalid));
    assert!(!serde_json::to_string(&error.details()).unwrap().contains('Ω'));
    // Others are not worse off, and neither is the same schema with a value that is not built to hurt.
    assert!(screen(&spec, &Grants::Declared, args(&json!({"c": null}))).is_ok());
    assert_eq!(
        screen(&spec, &Grants::Declared, args(&nested(6))).unwrap_err().violation(),
        "mcp-input-schema"
    );
}

#[test]
fn a_recursive_choice_over_a_deep_result_is_given_up_before_it_is_shown() {
    let spec = tool(&json!({"type": "object"}), Some(&doubling_by_depth()));
    let raw = json!({"content": [], "structuredContent": nested(60)}).to_string();
    let error = finish(&spec, raw.into()).unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-schema-budget", ErrorCode::UpstreamError));
    assert!(!serde_json::to_string(&error.details()).unwrap().contains('Ω'));
}

#[test]
fn the_verdict_on_what_costs_too_much_is_the_same_every_time() {
    let schema = CompiledSchema::compile(&doubling_by_depth(), SchemaRole::Output).unwrap();
    for _ in 0..3 {
        assert!(schema.validate(&nested(40)).unwrap_err().budget_exceeded);
    }
}

#[test]
fn references_upon_references_do_not_use_up_the_stack() {
    // Each level of the value leads through four hundred references before the next one.
    let mut definitions = serde_json::Map::new();
    for at in 0..400 {
        definitions.insert(format!("d{at}"), json!({"$ref": format!("#/$defs/d{}", at + 1)}));
    }
    definitions.insert("d400".into(), json!({"properties": {"c": {"$ref": "#/$defs/d0"}}}));
    let schema = json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions});
    let schema = CompiledSchema::compile(&schema, SchemaRole::Output).unwrap();
    assert!(schema.validate(&nested(0)).is_ok());
    assert!(schema.validate(&nested(100)).unwrap_err().budget_exceeded);
    // As deep as values get, with a reference or two per level, is nothing out of the ordinary.
    let tree = json!({"type": "object", "properties": {"c": {"$ref": "#/$defs/n"}},
        "$defs": {"n": {"anyOf": [{"type": "string"}, {"$ref": "#"}]}}});
    let tree = CompiledSchema::compile(&tree, SchemaRole::Output).unwrap();
    assert!(tree.validate(&nested(126)).is_ok());
}

#[test]
fn nesting_beyond_the_limit_is_refused_as_what_it_is() {
    let deep = |depth: usize| format!("{}1{}", r#"{"c":"#.repeat(depth), "}".repeat(depth));
    let refused = Args::parse(deep(200).as_bytes(), 1 << 20).unwrap_err();
    assert_eq!((refused.violation(), refused.code()), ("mcp-input-schema", ErrorCode::ArgsInvalid));
    let spec = tool(&json!({"type": "object"}), Some(&json!({"type": "object"})));
    let raw = |depth| Bytes::from(format!(r#"{{"content":[],"structuredContent":{}}}"#, deep(depth)));
    assert_eq!(finish(&spec, raw(128)).unwrap_err().violation(), "mcp-output-too-deep");
    assert!(finish(&spec, raw(100)).is_ok());
}

#[test]
fn texts_of_ten_megabytes_are_refused_or_judged_but_not_waited_for() {
    let long = "a".repeat(10_000_000);
    let refused = Args::parse(json!({"a": long}).to_string().as_bytes(), 64 << 10).unwrap_err();
    assert!(refused.is_request_too_large());
    let spec = tool(&json!({"type": "object"}), None);
    let raw = json!({"content": [{"type": "text", "text": long}]}).to_string();
    assert_eq!(finish(&spec, raw.into()).unwrap_err().code(), ErrorCode::ResultTooLarge);
    // Straight to the validator: a hostile pattern, a length, and the two together.
    for (rule, fits) in [
        (json!({"pattern": "^(a+)+$"}), true),
        (json!({"pattern": "^(a+)+b$"}), false),
        (json!({"maxLength": 9_999_999}), false),
        // Needs to go back and forth: given up, not decided.
        (json!({"pattern": "^((a+)\\2?)+b$"}), false),
    ] {
        let schema = json!({"properties": {"a": rule}});
        let schema = CompiledSchema::compile(&schema, SchemaRole::Output).unwrap();
        assert_eq!(schema.validate(&json!({"a": long})).is_ok(), fits, "{rule}");
    }
}

#[test]
fn long_lists_in_a_schema_are_paid_for() {
    // Four thousand values to compare with, for each of a hundred thousand items.
    let members: Vec<Value> = (0..4_000).map(|n| json!([n])).collect();
    let schema = json!({"type": "object", "properties": {"a": {"items": {"enum": members}}}});
    let schema = CompiledSchema::compile(&schema, SchemaRole::Output).unwrap();
    let items = vec![json!([3_999]); 100_000];
    assert!(schema.validate(&json!({"a": items})).unwrap_err().budget_exceeded);
    assert!(schema.validate(&json!({"a": &items[..20]})).is_ok());
}

#[test]
fn a_large_ordinary_result_is_within_budget() {
    let row = json!({"type": "object", "required": ["id"], "properties": {
        "id": {"type": "integer"}, "name": {"type": "string", "maxLength": 100},
        "kind": {"oneOf": [{"const": "a"}, {"const": "b"}]},
    }});
    let schema = json!({"type": "object", "properties": {"rows": {"type": "array", "items": row}}});
    let schema = CompiledSchema::compile(&schema, SchemaRole::Output).unwrap();
    let rows: Vec<Value> = (0..2_000).map(|id| json!({"id": id, "name": "n", "kind": "b"})).collect();
    assert!(schema.validate(&json!({"rows": rows})).is_ok());
}
