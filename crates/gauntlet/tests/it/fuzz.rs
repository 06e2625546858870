//! Anything at all, thrown at everything that reads what others wrote (gauntlet §11).
//!
//! A few hundred cases of each in every test run; `cargo xtask fuzz` runs as many as it is told to. What fails is shrunk
//! and can be repeated. The sanitiser's own properties are with its code and follow the same number.

use portcullis_gauntlet::bind::{
    BindOptions, BoxFuture, RawPage, ServerInfo, ToolSession, UpstreamError, bind,
};
use portcullis_gauntlet::{
    CapMode, Capabilities, CompiledSchema, Gauntlet, Glob, Grants, Raw, RawResult, Requirement, SchemaRole,
    Screened, recheck,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{finish, tool};

/// How many cases of each property.
fn cases() -> u32 {
    std::env::var("PORTCULLIS_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192)
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "c", "", "1", "x/y", "~", "__system__", "<|im_end|>", "&lt;"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..8).prop_map(Value::from),
        prop::sample::select(vec![0.5, 1.0, 2.0, 1e3, 0.1, -1.5]).prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Schemas of every keyword, references and cycles among them.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        prop::sample::subsequence(
            vec!["array", "boolean", "integer", "null", "number", "object", "string"],
            1..4
        )
        .prop_map(|types| json!({"type": types})),
        value().prop_map(|value| json!({"const": value})),
        prop::collection::vec(value(), 1..4).prop_map(|values| json!({"enum": values})),
        (-2i64..5).prop_map(|n| json!({"minimum": n, "exclusiveMaximum": n + 3})),
        prop::sample::select(vec![0.5, 2.0, 0.1]).prop_map(|n| json!({"multipleOf": n})),
        (0u64..3).prop_map(|n| json!({"minLength": n, "maxLength": n + 1})),
        (0u64..3).prop_map(|n| json!({"minItems": n, "maxProperties": n})),
        prop::sample::select(vec!["^a", "b$", "[ab]+", "^(a|b)*$", "(?=a)a", "\\d"])
            .prop_map(|p| json!({"pattern": p})),
        prop::sample::select(vec!["a", "b", "c"]).prop_map(|name| json!({"required": [name]})),
        Just(json!({"uniqueItems": true})),
        Just(json!({"dependentRequired": {"a": ["b"]}})),
        Just(json!({"$ref": "#/$defs/a"})),
        Just(json!({"$ref": "#"})),
    ];
    let tree = leaf.prop_recursive(4, 24, 3, |inner| {
        let many = prop::collection::vec(inner.clone(), 1..4);
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            many.clone().prop_map(|s| json!({"allOf": s})),
            many.clone().prop_map(|s| json!({"anyOf": s})),
            many.clone().prop_map(|s| json!({"oneOf": s})),
            inner.clone().prop_map(|s| json!({"not": s})),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
            pair.clone().prop_map(|(a, b)| json!({"properties": {"a": a, "b": b}})),
            pair.clone().prop_map(|(a, b)| json!({"properties": {"a": a}, "patternProperties": {"^[bc]": b}, "additionalProperties": false})),
            pair.clone().prop_map(|(a, b)| json!({"allOf": [a], "properties": {"b": b}, "unevaluatedProperties": false})),
            pair.clone().prop_map(|(a, b)| json!({"anyOf": [a, {"prefixItems": [b]}], "unevaluatedItems": false})),
            inner.clone().prop_map(|s| json!({"additionalProperties": s})),
            inner.clone().prop_map(|s| json!({"propertyNames": s})),
            pair.clone().prop_map(|(a, b)| json!({"prefixItems": [a], "items": b})),
            (inner.clone(), 0u64..3).prop_map(|(s, n)| json!({"contains": s, "minContains": n, "maxContains": n + 1})),
            inner.prop_map(|s| json!({"dependentSchemas": {"a": s}})),
        ]
    });
    (tree.clone(), tree).prop_map(|(root, a)| json!({"allOf": [root], "$defs": {"a": a}}))
}

struct OnePage(Value);

impl ToolSession for OnePage {
    fn initialize(&self) -> BoxFuture<'_, Result<ServerInfo, UpstreamError>> {
        Box::pin(std::future::ready(Ok(ServerInfo::default())))
    }
    fn list_tools<'a>(&'a self, _: Option<&'a str>) -> BoxFuture<'a, Result<RawPage, UpstreamError>> {
        Box::pin(std::future::ready(Ok(RawPage::new(self.0.to_string()))))
    }
    fn call_tool<'a>(&'a self, _: &'a Screened) -> BoxFuture<'a, Result<RawResult, UpstreamError>> {
        unreachable!("binding calls no tool")
    }
}

/// A block with members that mean something, of the types that are known and one that is not.
fn block() -> impl Strategy<Value = Value> {
    let kind =
        prop::sample::select(vec!["text", "image", "audio", "resource", "resource_link", "unheard_of"]);
    (kind, word(), word(), value()).prop_map(|(kind, text, uri, more)| {
        json!({"type": kind, "text": text, "uri": uri, "data": text, "resource": {"uri": uri, "text": text}, "_meta": more})
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn fuzz_validate_diff(schema in schema(), values in prop::collection::vec(value(), 1..6)) {
        if let Ok(ours) = CompiledSchema::compile(&schema, SchemaRole::Output) {
            let theirs = jsonschema::options().should_validate_formats(false).offline().build(&schema).unwrap();
            for value in values {
                match ours.validate(&value) {
                    Err(violations) if violations.budget_exceeded => {}
                    verdict => prop_assert_eq!(verdict.is_ok(), theirs.is_valid(&value), "{} {} {:?}", schema, value, verdict),
                }
                // Whatever does not fit is explained.
                if let Err(violations) = ours.validate(&value) {
                    prop_assert!(!violations.errors.is_empty());
                }
            }
        }
    }

    #[test]
    fn fuzz_schema_compile(schema in value(), keyword in prop::sample::select(vec!["properties", "$ref", "allOf", "$defs", "items", "pattern", "enum", "$id", "$anchor", "type", "unevaluatedItems"]), more in value()) {
        let mut schema = match schema {
            Value::Object(members) => Value::Object(members),
            other => json!({"const": other}),
        };
        schema[keyword] = more;
        for role in [SchemaRole::Input, SchemaRole::Output] {
            if let Err(error) = CompiledSchema::compile(&schema, role) {
                prop_assert!(error.violation().starts_with("mcp-"));
            }
        }
    }

    #[test]
    fn fuzz_sanitise_json(value in value()) {
        // Shape, numbers and names stay; only texts change, and none holds a marker afterwards.
        let gauntlet = Gauntlet::default();
        if let Ok((clean, _)) = gauntlet.clean_value(Raw::new(value.clone())) {
            let shape = |value: &Value| value.to_string().chars().filter(|c| "[]{}".contains(*c)).count();
            prop_assert!(!clean.get().to_string().contains("__system__"));
            prop_assert_eq!(shape(&value) > 0, shape(clean.get()) > 0);
        }
    }

    #[test]
    fn fuzz_content_blocks(blocks in prop::collection::vec(block(), 0..6), structured in value(), is_error in any::<bool>()) {
        let result = json!({"content": blocks, "structuredContent": structured, "isError": is_error});
        match finish(&tool(&json!({"type": "object"}), None), result.to_string().into()) {
            Ok(safe) => {
                let text = std::str::from_utf8(safe.json()).unwrap();
                prop_assert!(serde_json::from_str::<Value>(text).is_ok());
                prop_assert!(!text.contains("__system__") && !text.contains("<|im_end|>"), "{}", text);
            }
            Err(error) => prop_assert!(!error.to_string().contains("__system__")),
        }
    }

    #[test]
    fn fuzz_bind_page(tools in prop::collection::vec(value(), 0..5), name in word(), schema in value()) {
        let mut tools = tools;
        tools.push(json!({"name": name, "inputSchema": schema, "description": name}));
        let count = tools.len();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let options = BindOptions::new("s".parse().unwrap(), Capabilities::default());
        let bound = runtime.block_on(bind(OnePage(json!({"tools": tools})), options, &Gauntlet::default())).unwrap();
        prop_assert_eq!(bound.specs().len() + bound.rejected().len(), count);
        for rejected in bound.rejected() {
            prop_assert!(!rejected.to_string().contains("__system__"), "{}", rejected);
        }
    }

    #[test]
    fn fuzz_cap_glob(pattern in "[a-c*?\\\\/]{0,12}", text in "[a-c/\\[*]{0,24}") {
        if let Ok(glob) = Glob::parse(&pattern) {
            prop_assert_eq!(glob.matches(&text), naive_glob(pattern.as_bytes(), text.as_bytes()), "{} {}", pattern, text);
        }
    }

    #[test]
    fn fuzz_cap_template(path in prop_oneof!["[./~a-c%:]{0,16}", any::<String>()], grant in prop::sample::select(vec!["fs.read:/a/*", "fs.read:/*", "fs.read:/a"])) {
        // Whatever is written for a path, one that is let pass lies where the grant says.
        let spec = tool(&json!({"type": "object"}), None);
        let mut spec = std::sync::Arc::into_inner(spec).unwrap();
        spec.permissions = vec![Requirement::parse("fs.read:{path|path}").unwrap()];
        let grants = ["mcp.call:demo/*", grant];
        spec.ceiling = std::sync::Arc::new(Capabilities::parse(CapMode::Cleared, grants).unwrap());
        let passes = recheck(&spec, &Grants::Only((*spec.ceiling).clone()), &json!({"path": path})).is_ok();
        if passes {
            prop_assert!(path.starts_with('/'), "{}", path);
            let mut resolved: Vec<&str> = Vec::new();
            for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
                if part == ".." { prop_assert!(resolved.pop().is_some(), "{}", path) } else { resolved.push(part) }
            }
            let inside = match grant {
                "fs.read:/a/*" => resolved.first() == Some(&"a"),
                "fs.read:/a" => resolved == ["a"],
                _ => true,
            };
            prop_assert!(inside, "{} {}", grant, path);
        }
    }

    #[test]
    fn fuzz_pointer(name in any::<String>(), inner in any::<String>()) {
        // A pointer told to a caller leads to what it is about, unless it is too long to be told.
        let schema = json!({"type": "object", "additionalProperties": {"additionalProperties": {"type": "integer"}}});
        let value = json!({name: {inner: "x"}});
        let violations = CompiledSchema::compile(&schema, SchemaRole::Input).unwrap().validate(&value).unwrap_err();
        if !violations.truncated {
            prop_assert_eq!(value.pointer(violations.schema_path()), Some(&json!("x")));
        }
    }
}

/// The meaning of a pattern, one character after the other, with no thought of time. Patterns with classes are left out.
fn naive_glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|at| naive_glob(rest, &text[at..])),
        ([b'?', rest @ ..], [_, text @ ..]) => naive_glob(rest, text),
        ([b'\\', escaped, rest @ ..], [c, text @ ..]) => escaped == c && naive_glob(rest, text),
        ([c, rest @ ..], [d, text @ ..]) => c == d && naive_glob(rest, text),
        _ => false,
    }
}
