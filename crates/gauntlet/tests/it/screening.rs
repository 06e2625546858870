use portcullis_core::ErrorCode;
use portcullis_gauntlet::{Args, screen};
use serde_json::json;

use crate::{args, pointers, tool};

#[test]
fn arguments_that_do_not_fit_are_refused_with_their_place_and_without_their_value() {
    // SG-20; the object of gauntlet §7 word for word
    let echo = tool(&json!({"type": "object", "properties": {"text": {"type": "string"}}}), None);
    let error =
        screen(&echo, &portcullis_gauntlet::Grants::Declared, args(&json!({"text": 123}))).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ArgsInvalid);
    assert_eq!(
        serde_json::Value::Object(error.details()),
        json!({
            "kind": "validation", "violation": "mcp-input-schema",
            "message": "MCP tool 'echo' input schema validation failed: /text: expected string",
            "tool_id": "echo", "tool": echo.tool.as_str(), "schema_path": "/text",
            "errors": [{"pointer": "/text", "keyword": "type", "message": "expected string"}],
            "truncated": false,
        })
    );
    assert!(!error.to_string().contains("123"));

    let screened =
        screen(&echo, &portcullis_gauntlet::Grants::Declared, args(&json!({"text": "x"}))).unwrap();
    assert_eq!(screened.args(), &json!({"text": "x"}));
    assert_eq!(screened.spec().tool, echo.tool);
    assert!(screen(&echo, &portcullis_gauntlet::Grants::Declared, Args::empty()).is_ok());
}

#[test]
fn the_first_error_is_the_outermost_then_the_leftmost() {
    // SG-21, GNT-S8
    let schema = json!({
        "type": "object", "required": ["q"],
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}, "q": {}},
    });
    let spec = tool(&schema, None);
    let error =
        screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"b": 1, "a": 1}))).unwrap_err();
    assert_eq!(pointers(&error), ["", "/a", "/b"]);
    assert_eq!(error.details()["schema_path"], "");
    assert_eq!(error.details()["errors"][0]["message"], "missing required property \"q\"");
    let error = screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"b": 1, "a": 1, "q": 1})))
        .unwrap_err();
    assert_eq!(error.details()["schema_path"], "/a");
}

#[test]
fn indices_sort_as_numbers_and_keys_are_escaped() {
    // SG-22
    let schema = json!({
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "string"}},
            "a/b~c": {"type": "string", "minLength": 3},
            "both": {"minimum": 10, "multipleOf": 7},
        },
    });
    let spec = tool(&schema, None);
    let mut items = vec![json!("x"); 11];
    items[2] = json!(1);
    items[10] = json!(1);
    let error =
        screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"items": items}))).unwrap_err();
    assert_eq!(pointers(&error), ["/items/2", "/items/10"]);
    let error =
        screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"a/b~c": 1}))).unwrap_err();
    assert_eq!(error.details()["schema_path"], "/a~1b~0c");
    let list = || {
        screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"both": 5, "items": items})))
            .unwrap_err()
            .details()
    };
    let first = list();
    assert_eq!(first["errors"][0]["keyword"], "minimum");
    assert_eq!(first["errors"][1]["keyword"], "multipleOf");
    for _ in 0..1_000 {
        assert_eq!(list(), first);
    }
}

#[test]
fn at_most_ten_errors_and_no_endless_pointer_are_told() {
    // GNT-S8, GNT-S9
    let schema =
        json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "string"}}});
    let spec = tool(&schema, None);
    let error = screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"a": vec![1; 2_000]})))
        .unwrap_err();
    assert_eq!(pointers(&error), (0..10).map(|i| format!("/a/{i}")).collect::<Vec<_>>());
    assert_eq!(error.details()["truncated"], true);
    let error = screen(&spec, &portcullis_gauntlet::Grants::Declared, args(&json!({"k".repeat(600): [1]})))
        .unwrap_err();
    assert_eq!((pointers(&error), &error.details()["truncated"]), (vec![String::new()], &json!(true)));
}

#[test]
fn unknown_members_are_named_only_if_their_name_is_plain() {
    // GNT-S10
    let spec = tool(&json!({"type": "object", "additionalProperties": false}), None);
    let error = screen(
        &spec,
        &portcullis_gauntlet::Grants::Declared,
        args(&json!({"zeta": 1, "alpha": 2, "__system__ <x>": 3})),
    )
    .unwrap_err();
    let details = error.details();
    let messages: Vec<_> =
        details["errors"].as_array().unwrap().iter().map(|e| e["message"].as_str().unwrap()).collect();
    assert_eq!(
        messages,
        ["property not allowed", "property not allowed \"alpha\"", "property not allowed \"zeta\""]
    );
}

#[test]
fn arguments_must_be_one_unambiguous_object() {
    let error = |text: &str| Args::parse(text.as_bytes(), 100).unwrap_err();
    for (text, keyword, pointer) in [
        (r#"{"a":{"k":1,"k":2}}"#, "duplicateKey", "/a/k"),
        (r#"{"a":9007199254740993}"#, "numberRange", "/a"),
        ("{", "syntax", ""),
        ("[]", "type", ""),
        (r#""x""#, "type", ""),
    ] {
        let error = error(text);
        assert_eq!((error.code(), error.violation()), (ErrorCode::ArgsInvalid, "mcp-input-schema"));
        assert_eq!(error.details()["errors"][0]["keyword"], keyword, "{text}");
        assert_eq!(error.details()["schema_path"], pointer, "{text}");
    }
    assert!(error(&format!(r#"{{"a":"{}"}}"#, "x".repeat(100))).is_request_too_large());
}

#[test]
fn a_pattern_that_runs_out_of_steps_refuses_the_arguments() {
    // GNT-S6
    let spec = tool(&json!({"type": "object", "properties": {"a": {"pattern": "^((a+)\\2?)+$"}}}), None);
    let error = screen(
        &spec,
        &portcullis_gauntlet::Grants::Declared,
        args(&json!({"a": format!("{}!", "a".repeat(40))})),
    )
    .unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-schema-budget", ErrorCode::ArgsInvalid));
}

#[test]
fn who_may_not_call_learns_nothing_about_the_schema() {
    // SG-10, SG-11, SG-13, GNT-C2, GNT-C10, GNT-C11; the object of gauntlet §7 word for word
    use portcullis_gauntlet::{CapMode, Capabilities, Grants, Requirement, ToolSpec};
    use std::sync::Arc;
    let schema =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": false});
    let caps = |grants: &[&str]| Capabilities::parse(CapMode::Cleared, grants.iter().copied()).unwrap();
    let secret = |ceiling: &[&str]| {
        let spec = Arc::into_inner(tool(&schema, None)).unwrap();
        let permissions = vec![Requirement::parse("fs.read:{path|path}").unwrap()];
        Arc::new(ToolSpec { permissions, ceiling: Arc::new(caps(ceiling)), ..spec })
    };
    let open = ["mcp.call:demo/*", "fs.read:/secrets/*"];
    let spec = secret(&open);
    let refused = |spec: &Arc<ToolSpec>, grants: &Grants, value: serde_json::Value| {
        screen(spec, grants, args(&value)).unwrap_err()
    };
    let error = refused(&spec, &Grants::Only(Capabilities::default()), json!({"path": 7, "bad": 1}));
    assert_eq!((error.code(), error.violation()), (ErrorCode::PolicyDenied, "capability_denied"));
    assert_eq!(
        serde_json::Value::Object(error.details()),
        json!({
            "kind": "capability_denied", "code": "capability_denied", "message": "tool 'echo' requires permissions not granted",
            "capability": "fs.read:{path|path}", "tool_id": "echo", "tool": spec.tool.as_str(), "deployment": "mcp",
        })
    );
    // Either set refuses; only both together let pass.
    let inside = json!({"path": "/secrets/a"});
    assert_eq!(
        refused(&secret(&["mcp.call:demo/*"]), &Grants::Only(caps(&open)), inside.clone()).violation(),
        "capability_denied"
    );
    assert!(screen(&spec, &Grants::Only(caps(&open)), args(&inside)).is_ok());
    assert!(screen(&spec, &Grants::Declared, args(&inside)).is_ok());
    let shadow = json!({"path": "/secrets/../etc/shadow"});
    for grants in
        [Grants::Declared, Grants::Only(caps(&open)), Grants::Only(caps(&["mcp.call:demo/*", "fs.read:*"]))]
    {
        let error = refused(&spec, &grants, shadow.clone());
        assert_eq!(error.violation(), "capability_denied");
        assert!(!serde_json::to_string(&error.details()).unwrap().contains("shadow"));
    }
    // GNT-C10: the schema speaks first if the caller has any grant of that name.
    let narrow = Grants::Only(caps(&["mcp.call:demo/echo", "fs.read:/secrets/a"]));
    assert_eq!(refused(&spec, &narrow, json!({"path": 7})).violation(), "mcp-input-schema");
    assert_eq!(refused(&spec, &narrow, json!({})).violation(), "capability_denied");
    let plain = Arc::into_inner(tool(&schema, None)).unwrap();
    let error = refused(&Arc::new(plain), &Grants::Only(Capabilities::default()), json!({}));
    assert_eq!(error.details()["capability"], "mcp.call:demo/echo");
}
