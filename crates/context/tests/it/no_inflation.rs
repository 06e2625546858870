//! B-CTX-10: whatever a server sends, what is shown for it is not more.

use portcullis_context::firewall::reference;
use portcullis_context::{About, CallToolResult, Firewall, Handle, Kept, result_to_envelope};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Texts from nothing to twenty thousand characters, of every kind.
fn texts() -> impl Strategy<Value = String> {
    let line =
        prop_oneof!["[a-z ]{0,80}", "[a-z]{1,9}: [a-z0-9]{0,40}", "\\PC{0,40}", "[\"\\\\\n\t{}]{0,60}"];
    let lines = prop::collection::vec(line, 0..20).prop_map(|lines| lines.join("\n"));
    (lines, 0_usize..20).prop_map(|(text, times)| text.repeat(times))
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,200}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 10, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..10).prop_map(Value::from),
            prop::collection::btree_map("[a-z_]{1,20}", inner, 0..10).prop_map(|map| json!(map)),
        ]
    })
}

fn parts() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => texts().prop_map(|text| json!({"type": "text", "text": text})),
        1 => "[A-Za-z0-9+/=]{0,2000}".prop_map(|data| json!({"type": "image", "data": data, "mimeType": "image/png"})),
        1 => (texts(), "[a-z:/]{0,20}").prop_map(|(text, uri)| json!({"type": "resource", "resource": {"uri": uri, "text": text}})),
        1 => "[a-z:/]{0,300}".prop_map(|uri| json!({"type": "resource_link", "uri": uri, "name": uri})),
        1 => values(),
    ]
}

fn results() -> impl Strategy<Value = Value> {
    let parts = prop::collection::vec(parts(), 0..5);
    (parts, prop::option::of(values()), any::<bool>()).prop_map(|(parts, structured, is_error)| {
        let mut result = json!({"content": parts});
        if let Some(structured) = structured {
            result["structuredContent"] = structured;
        }
        if is_error {
            result["isError"] = true.into();
        }
        result
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_shown_is_never_larger_than_the_result(result in results(), inline_chars in prop_oneof![Just(2_000), 0_usize..500]) {
        // B-CTX-10
        let json = result.to_string();
        let read = CallToolResult::read(&json);
        let firewall = Firewall { inline_chars, inline_media_bytes: 500, ..Firewall::default() };
        if let Some(cut) = firewall.cut(&read, "tool", &About::default()) {
            let kept = cut.artifacts.iter().map(|one| Kept::As(reference(Handle::random(), one))).collect();
            let (shown, _) = cut.finish(kept, &firewall);
            let shown: Value = serde_json::from_str(&shown).expect("what is shown is JSON");
            prop_assert!(shown.to_string().len() <= json.len(), "{} > {}", shown.to_string().len(), json.len());
        }
    }
}

proptest! {
    #[test]
    fn any_json_has_an_envelope(value in values(), text in "\\PC{0,200}") {
        // CTX-6: total
        for json in [value.to_string(), json!({"content": value, "structuredContent": value}).to_string(), text] {
            let read = CallToolResult::read(&json);
            let (envelope, ..) = result_to_envelope(&read, "t");
            prop_assert!(envelope.summary.chars().count() <= 1_500);
        }
    }
}

#[test]
fn nesting_as_deep_as_you_like_is_kept_as_it_was_written() {
    // CTX-6, T-CTX-9
    let deep = "[".repeat(20_000) + &"]".repeat(20_000);
    let json = format!(r#"{{"content":[{deep}],"structuredContent":{deep}}}"#);
    let read = CallToolResult::read(&json);
    let (_, artifacts, _) = result_to_envelope(&read, "t");
    assert_eq!(*artifacts[0].bytes, *deep.as_bytes());
}
