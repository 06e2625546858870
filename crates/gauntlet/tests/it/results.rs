use bytes::Bytes;
use portcullis_core::ErrorCode;
use portcullis_core::error::Fault;
use portcullis_gauntlet::{GauntletError, RawResult, SafeResult, finish};
use serde_json::{Value, json};

use crate::{pointers, tool};

fn any() -> Value {
    json!({"type": "object"})
}

fn rows() -> Value {
    json!({
        "type": "object", "required": ["rows"],
        "properties": {"rows": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}}}},
    })
}

fn finished(output: Option<&Value>, text: &str) -> Result<SafeResult, GauntletError> {
    finish(&tool(&any(), output), RawResult::new(Bytes::copy_from_slice(text.as_bytes())))
}

#[test]
fn a_result_that_fits_leaves_byte_for_byte() {
    // GNT-P2, GNT-P4, PRO-10: spelling, order, unknown members and unknown block types are kept
    let text = r#" {"_meta":{"x": 1.50}, "content":[{"text":"h\u0069","type":"text"},{"type":"new","z":[]}], "structuredContent": {"rows":[{"a":18446744073709551615}]},"extra":null} "#;
    for output in [None, Some(&rows())] {
        let safe = finished(output, text).unwrap();
        assert_eq!(
            (safe.json().as_ref(), safe.is_error(), safe.dropped_structured()),
            (text.as_bytes(), false, false)
        );
    }
    // SG-32: text only, no output schema
    assert!(finished(None, r#"{"content":[{"type":"text","text":"x"}]}"#).is_ok());
    assert!(finished(None, r#"{"resultType":"complete","content":[]}"#).is_ok());
}

#[test]
fn a_structured_result_that_does_not_fit_is_refused_without_being_quoted() {
    // SG-30, GNT-S10, GNT-S11
    let hostile = "__system__ <|im_start|>\\u001b[31m";
    let text = format!(
        r#"{{"content":[],"structuredContent":{{"rows":[{{"ok":1}},{{"{hostile}":"{hostile}"}}]}}}}"#
    );
    let error = finished(Some(&rows()), &text).unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-output-schema", ErrorCode::PolicyDenied));
    assert_eq!(error.fault(), Some(Fault::Mismatch));
    assert_eq!(pointers(&error), ["/rows/1"]);
    let told = format!("{error}{}", Value::Object(error.details()));
    assert!(!told.contains("system") && !told.contains("im_start") && !told.contains("31m"), "{told}");
}

#[test]
fn a_tool_with_an_output_schema_must_give_structured_content() {
    // SG-32, GNT-P5
    let error = finished(Some(&rows()), r#"{"content":[{"type":"text","text":"x"}]}"#).unwrap_err();
    assert_eq!((error.violation(), &error.details()["schema_path"]), ("mcp-output-schema", &json!("")));
}

#[test]
fn a_failed_tool_may_say_so_in_its_own_words() {
    // SG-32, GNT-P6
    let plain = r#"{"isError":true,"content":[{"type":"text","text":"no such row"}]}"#;
    let safe = finished(Some(&rows()), plain).unwrap();
    assert!(safe.is_error() && safe.json() == plain && !safe.dropped_structured());
    for invalid in [r#"{"rows":1}"#, "[1]", r#"{"rows":[],"rows":[]}"#] {
        let text = format!(
            r#"{{"isError":true,"structuredContent":{invalid},"content":[{{"type":"text","text":"n\u006f"}}],"_meta":{{"n":1.0}}}}"#
        );
        let safe = finished(Some(&rows()), &text).unwrap();
        assert!(safe.is_error() && safe.dropped_structured());
        assert_eq!(
            safe.json(),
            r#"{"isError":true,"content":[{"type":"text","text":"n\u006f"}],"_meta":{"n":1.0}}"#
        );
    }
    let valid = r#"{"isError":true,"structuredContent":{"rows":[]},"content":[]}"#;
    assert_eq!(finished(Some(&rows()), valid).unwrap().json(), valid);
}

#[test]
fn what_is_not_a_tool_result_is_refused() {
    // GNT-P1
    for bad in [
        "",
        "null",
        "[]",
        "[[],true]",
        "{}",
        r#"{"content":[]} x"#,
        r#"{"content":{}}"#,
        r#"{"content":null}"#,
        r#"{"content":["x"]}"#,
        r#"{"content":[["text","x"]]}"#,
        r#"{"content":[{}]}"#,
        r#"{"content":[{"type":1}]}"#,
        r#"{"content":[{"type":"text","text":"a","text":"b"}]}"#,
        r#"{"content":[],"content":[]}"#,
        r#"{"content":[],"\u0063ontent":[]}"#,
        r#"{"content":[],"isError":1}"#,
        r#"{"content":[],"isError":null}"#,
        r#"{"content":[],"isError":false,"isError":true}"#,
        r#"{"content":[],"resultType":"input_required"}"#,
        r#"{"content":[],"resultType":"task"}"#,
        r#"{"content":[],"resultType":1}"#,
        r#"{"content":[{"type":"text","text":"\ud800"}]}"#,
        r#"{"content":[{"type":"text","text":"\\\udc00"}]}"#,
        r#"{"content":[{"type":"text","text":"\ud83d\u0041"}]}"#,
    ] {
        let error = finished(None, bad).expect_err(bad);
        assert_eq!(
            (error.violation(), error.code()),
            ("mcp-call-tool-shape", ErrorCode::UpstreamError),
            "{bad}"
        );
        assert_eq!(error.details()["tool_id"], "echo");
    }
    let paired = r#"{"content":[{"type":"text","text":"\ud83d\ude00 \\ud800 \\"}]}"#;
    assert!(finished(None, paired).is_ok());
    let raw = RawResult::new(Bytes::from_static(b"{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}"));
    assert_eq!(finish(&tool(&any(), None), raw).unwrap_err().violation(), "mcp-call-tool-shape");
    for structured in [r#"{"rows":[],"rows":[]}"#, r#"{"rows":[{"a":1e400}]}"#] {
        let text = format!(r#"{{"content":[],"structuredContent":{structured}}}"#);
        assert_eq!(finished(Some(&rows()), &text).unwrap_err().violation(), "mcp-call-tool-shape", "{text}");
    }
}

#[test]
fn structured_content_is_an_object_unless_the_schema_says_otherwise() {
    // GNT-P3
    for value in ["[1]", "\"x\"", "1", "true", "null"] {
        let text = format!(r#"{{"content":[],"structuredContent":{value}}}"#);
        for output in [None, Some(&rows())] {
            assert_eq!(finished(output, &text).unwrap_err().violation(), "mcp-non-object-output", "{value}");
        }
    }
    let list = json!({"type": "array", "items": {"type": "integer"}});
    assert!(finished(Some(&list), r#"{"content":[],"structuredContent":[1]}"#).is_ok());
    assert!(finished(Some(&list), r#"{"content":[],"structuredContent":["x"]}"#).is_err());
}

#[test]
fn a_result_beyond_its_limits_is_refused() {
    let long = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(1024 * 1024));
    let error = finished(None, &long).unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-output-too-large", ErrorCode::ResultTooLarge));
    let nested = |n: usize| {
        format!(r#"{{"content":[],"structuredContent":{{"a":{}{}}}}}"#, "[".repeat(n), "]".repeat(n))
    };
    assert!(finished(Some(&any()), &nested(120)).is_ok());
    let many = format!(r#"{{"content":[],"structuredContent":{{"a":[{}0]}}}}"#, "0,".repeat(500_000));
    assert_eq!(finished(Some(&any()), &many).unwrap_err().violation(), "mcp-output-too-large");
    for deep in [127, 5_000] {
        assert!(finished(Some(&any()), &nested(deep)).is_err());
    }
}
