//! One form for one call (GOV-701, GOV-703).

use std::fmt::Write as _;

use portcullis_core::canon::{Limits, parse};
use portcullis_gauntlet::{Args, screen};
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::fixture::{self, Sketch};

fn tool(name: &str) -> Arc<AcceptedTool> {
    let declaration = fixture::accepted(fixture::epoch(7), 3);
    declaration.tools().iter().find(|tool| tool.id().item().name() == name).unwrap().clone()
}

/// A tool that takes any object.
fn anything() -> Arc<AcceptedTool> {
    fixture::sketched("notes", &[Sketch { name: "note", classes: &[], bound: true }]).tools()[0].clone()
}

fn key() -> Secret<[u8; 32]> {
    Secret::new([5; 32])
}

fn request(tool: &Arc<AcceptedTool>, args: &str) -> CanonicalRequest {
    fixture::canonical(tool, args, fixture::session("claude-code").next_step(None), &key())
}

/// The document is the canonical form of what it says.
fn is_canonical(request: &CanonicalRequest) -> bool {
    let value = parse(request.document(), Limits::result(1 << 20)).unwrap();
    to_jcs(&value).unwrap() == request.document()
}

#[test]
fn the_document_says_what_the_specification_shows() {
    // GOV-703
    let request = request(&tool("read_file"), r#"{"path":"/srv/project/./b/../a.md"}"#);
    assert!(is_canonical(&request));
    let document: Value = serde_json::from_slice(request.document()).unwrap();
    let members: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "args",
        "bindings",
        "canon",
        "credential_classes",
        "method",
        "nonce",
        "principal",
        "registration_epoch",
        "scopes",
        "session",
        "side_effects",
        "tool_id",
    ];
    assert_eq!(members, expected);
    assert_eq!(document["canon"], "canon-v1");
    assert_eq!(document["principal"], "agent:claude-code");
    assert_eq!(document["args"]["path"], "/srv/project/./b/../a.md");
    assert_eq!(document["bindings"][0]["resolved"], "/srv/project/a.md");
    let digest = Sha256Digest::of_parts(&[b"portcullis/canon-v1\n", request.document()]);
    assert_eq!(request.sha256(), digest);
}

#[test]
fn equal_calls_have_equal_fingerprints_and_different_digests() {
    // GOV-703: the nonce keeps the digest unguessable, the fingerprint ignores it and the session.
    let read = tool("read_file");
    let of = |tool: &Arc<AcceptedTool>, agent: &str, args: &str| {
        fixture::canonical(tool, args, fixture::session(agent).next_step(None), &key())
    };
    let args = r#"{"path":"/srv/project/a.md"}"#;
    let (first, second) = (of(&read, "claude-code", args), of(&read, "claude-code", args));
    assert_ne!(first.sha256(), second.sha256());
    assert_ne!(first.lineage().session, second.lineage().session);
    assert_eq!(first.fingerprint(), second.fingerprint());

    let others = [
        of(&read, "other", args),
        of(&read, "claude-code", r#"{"path":"/srv/project/b.md"}"#),
        of(&tool("write_file"), "claude-code", args),
    ];
    for other in &others {
        assert_ne!(first.fingerprint(), other.fingerprint());
    }
    let elsewhere = fixture::canonical(
        &read,
        args,
        fixture::session("claude-code").next_step(None),
        &Secret::new([6; 32]),
    );
    assert_ne!(first.fingerprint(), elsewhere.fingerprint(), "keyed by the installation");
    let again = fixture::accepted(fixture::epoch(8), 3).tools()[0].clone();
    assert_ne!(first.fingerprint(), of(&again, "claude-code", args).fingerprint(), "another registration");
}

#[test]
fn spellings_of_one_value_are_equal_and_everything_else_is_not() {
    // T-CAN-1
    let tool = anything();
    let fingerprint = |args: &str| request(&tool, args).fingerprint();
    assert_eq!(fingerprint(r#"{"a":1.0,"b":2}"#), fingerprint(r#"{ "b": 2e0, "a": 1 }"#));
    assert_eq!(fingerprint(r#"{"a":"\u00e9"}"#), fingerprint("{\"a\":\"\u{e9}\"}"));
    assert_ne!(fingerprint("{\"a\":\"\u{e9}\"}"), fingerprint("{\"a\":\"e\u{301}\"}"), "NFC is not NFD");
    assert_ne!(fingerprint(r#"{"a":1}"#), fingerprint(r#"{"a":"1"}"#));
    assert_ne!(fingerprint(r#"{"a":null}"#), fingerprint("{}"));
    for refused in [r#"{"a":1,"a":2}"#, r#"{"a":9007199254740993}"#, r#"{"a":1e400}"#, r#"{"a":"\ud800"}"#] {
        assert!(Args::parse(refused.as_bytes(), 1024).is_err(), "{refused}");
    }
}

#[test]
fn arguments_outside_their_scope_have_no_canonical_form() {
    // GOV-702, T-CAN-1
    let read = tool("read_file");
    for path in [
        "/srv/project-evil/x",
        "/srv/project/../../etc/passwd",
        "file:///srv/project/x",
        "~/x",
        "",
        "/srv/project/\u{0}x",
    ] {
        let args = serde_json::json!({"path": path}).to_string();
        let screened = screen(
            read.spec(),
            &portcullis_gauntlet::Grants::Declared,
            Args::parse(args.as_bytes(), 1024).unwrap(),
        )
        .unwrap();
        let lineage = fixture::session("claude-code").next_step(None);
        let refused = CanonicalRequest::new(&read, &screened, lineage, &key());
        assert!(matches!(refused, Err(RequestError::OutOfScope(_))), "{path:?}");
    }
    assert_eq!(
        request(&read, r#"{"path":"/srv/project/%2e%2e/x"}"#).bindings()[0].resolved,
        "/srv/project/%2e%2e/x"
    );
}

#[test]
fn arguments_screened_for_another_tool_are_refused() {
    let (read, write) = (tool("read_file"), tool("write_file"));
    let args = Args::parse(br#"{"path":"/srv/project/a.md"}"#, 1024).unwrap();
    let screened = screen(read.spec(), &portcullis_gauntlet::Grants::Declared, args).unwrap();
    let lineage = fixture::session("claude-code").next_step(None);
    let refused = CanonicalRequest::new(&write, &screened, lineage, &key());
    assert!(matches!(refused, Err(RequestError::NotCanonical)));
}

/// JSON text with the members in their own order, or against it.
fn spell(value: &Value, backwards: bool, into: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if backwards {
                members.reverse();
            }
            into.push('{');
            for (index, (name, child)) in members.into_iter().enumerate() {
                let comma = if index == 0 { "" } else { ", " };
                write!(into, "{comma}{}: ", Value::from(name.as_str())).unwrap();
                spell(child, backwards, into);
            }
            into.push('}');
        }
        Value::Array(items) => {
            into.push('[');
            for (index, child) in items.iter().enumerate() {
                into.push_str(if index == 0 { "" } else { "," });
                spell(child, backwards, into);
            }
            into.push(']');
        }
        scalar => write!(into, "{scalar}").unwrap(),
    }
}

fn json() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
        (-1e15f64..1e15).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_members_does_not_matter(
        args in prop::collection::btree_map(any::<String>(), json(), 0..5),
    ) {
        // T-CAN-1
        let args = Value::Object(args.into_iter().collect());
        let tool = anything();
        let [forwards, backwards] = [false, true].map(|backwards| {
            let mut text = String::new();
            spell(&args, backwards, &mut text);
            request(&tool, &text)
        });
        prop_assert_eq!(forwards.args(), backwards.args());
        prop_assert_eq!(forwards.fingerprint(), backwards.fingerprint());
        prop_assert!(is_canonical(&forwards) && is_canonical(&backwards));
    }

    #[test]
    fn a_document_with_any_path_in_it_is_canonical(name in "[^/\0]{1,20}") {
        let args = serde_json::json!({"path": format!("/srv/project/x/{name}")}).to_string();
        prop_assert!(is_canonical(&request(&tool("read_file"), &args)));
    }
}
