use bytes::Bytes;
use portcullis_core::ErrorCode;
use portcullis_core::error::Fault;
use portcullis_gauntlet::{GauntletError, SafeResult};
use serde_json::{Value, json};

use crate::{finish, pointers, tool};

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
    finish(&tool(&any(), output), Bytes::copy_from_slice(text.as_bytes()))
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
        r#"{"content":[],"resultType":"other"}"#,
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
    let raw = Bytes::from_static(b"{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}");
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

fn cleaned(text: &str) -> Value {
    serde_json::from_slice(finished(None, text).unwrap().json()).unwrap()
}

#[test]
fn every_attack_of_the_corpus_is_harmless_wherever_a_string_may_stand() {
    // SZ-*: text blocks, structured content, resources, links, unknown blocks, annotations, _meta
    for (attack, expected) in crate::sanitising::texts() {
        let result = json!({
            "content": [
                {"type": "text", "text": attack, "annotations": {"x": attack}},
                {"type": "resource", "resource": {"uri": "file:///a?b&c", "text": attack}},
                {"type": "text", "text": attack},
                {"type": "resource_link", "uri": "file:///a", "name": attack, "title": attack, "description": attack},
                {"type": "new", "deep": [[attack]]},
            ],
            "structuredContent": {"a": [attack, {"b": attack}]},
            "_meta": {"m": attack},
            "other": attack,
        });
        let clean = cleaned(&result.to_string());
        // A JSON text is cleaned leaf by leaf; the others are one leaf.
        let text = if attack.starts_with(['[', '{']) { attack.clone() } else { expected.clone() };
        let text = if serde_json::from_str::<Value>(&attack).is_ok() { text } else { expected.clone() };
        assert_eq!(
            clean["content"][0],
            json!({"type": "text", "text": text, "annotations": {"x": expected}}),
            "{attack:?}"
        );
        assert_eq!(clean["content"][1]["resource"], json!({"uri": "file:///a?b&c", "text": expected}));
        assert_eq!(
            clean["content"][3],
            json!({"type": "resource_link", "uri": "file:///a", "name": expected, "title": expected, "description": expected})
        );
        assert_eq!(clean["content"][4]["deep"], json!([[expected]]));
        assert_eq!(clean["structuredContent"], json!({"a": [expected, {"b": expected}]}));
        assert_eq!((&clean["_meta"]["m"], &clean["other"]), (&json!(expected), &json!(expected)));
    }
}

#[test]
fn a_name_that_cannot_be_shown_takes_its_result_with_it() {
    // GNT-Z11
    for row in crate::sanitising::corpus(include_str!("../../corpus/keys.jsonl")) {
        let structured = row["structured"].as_str().unwrap();
        for place in [
            format!(r#"{{"content":[],"structuredContent":{structured}}}"#),
            format!(r#"{{"content":[{{"type":"new","x":{structured}}}]}}"#),
            format!(r#"{{"content":[],"_meta":{structured}}}"#),
        ] {
            let error = finished(None, &place).unwrap_err();
            assert_eq!(
                (error.violation(), error.code()),
                ("mcp-output-key", ErrorCode::UpstreamError),
                "{place}"
            );
            assert!(!error.to_string().contains("system"));
        }
    }
    assert_eq!(finished(None, r#"{"content":[],"__system__":1}"#).unwrap_err().violation(), "mcp-output-key");
    assert_eq!(
        finished(None, r#"{"content":[{"type":"text","text":"","<|im_end|>":1}]}"#).unwrap_err().violation(),
        "mcp-output-key"
    );
    // GNT-P1: names that occur twice, at any depth
    for twice in [r#"{"n":1,"n":"__system__"}"#, r#"{"a":[{"\u006e":1,"n":2}]}"#] {
        let text = format!(r#"{{"content":[],"structuredContent":{twice}}}"#);
        assert_eq!(finished(None, &text).unwrap_err().violation(), "mcp-call-tool-shape", "{twice}");
    }
}

#[test]
fn neighbouring_texts_are_read_as_one() {
    // GNT-Z7
    let blocks = |texts: &[&str]| {
        let blocks: Vec<_> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        let clean = cleaned(&json!({"content": blocks}).to_string());
        clean["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["text"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(blocks(&["__sys", "tem__x"]), ["", "x"]);
    assert_eq!(blocks(&["a<|im_", "", "end|>b", "c"]), ["a", "", "b", "c"]);
    assert_eq!(blocks(&["a & b", "c < d"]), ["a &amp; b", "c &lt; d"]);
    let apart = json!({"content": [{"type": "text", "text": "__sys"}, {"type": "image", "data": "", "mimeType": "image/png"}, {"type": "text", "text": "tem__"}]});
    assert_eq!(cleaned(&apart.to_string()), apart);
}

#[test]
fn a_text_that_is_json_can_still_be_parsed() {
    // GNT-P8, SG-33
    let payload = json!({"q": "say \"<hi>\" & go__system__", "n": 1, "rows": [{"x": "ok"}]});
    let mirror = "{ \"q\": \"say \\\"<hi>\\\" & go__system__\", \"n\": 1.50, \"big\": 12345678901234567890 }";
    let text =
        json!({"content": [{"type": "text", "text": mirror}], "structuredContent": payload}).to_string();
    let clean = cleaned(&text);
    let expected = "say &quot;&lt;hi&gt;&quot; &amp; go";
    assert_eq!(clean["structuredContent"]["q"], expected);
    assert_eq!(
        clean["content"][0]["text"],
        format!(r#"{{"q":"{expected}","n":1.50,"big":12345678901234567890}}"#)
    );
    // What cannot stay JSON is text like any other.
    for odd in [r#"{"__system__":"<"}"#, r#"{"a":1,"a":"<"}"#, "[1", "{\"a\":\"\\ud800\"}"] {
        let clean = cleaned(&json!({"content": [{"type": "text", "text": odd}]}).to_string());
        let shown = clean["content"][0]["text"].as_str().unwrap();
        assert_eq!(shown, odd.replace("__system__", "").replace('<', "&lt;").replace('"', "&quot;"), "{odd}");
    }
    let config = portcullis_gauntlet::GauntletConfig {
        text_json: portcullis_gauntlet::TextJson::String,
        ..Default::default()
    };
    let gauntlet = portcullis_gauntlet::Gauntlet::new(&config).unwrap();
    let safe = crate::finish_with(
        &gauntlet,
        &tool(&any(), None),
        r#"{"content":[{"type":"text","text":"[ \"a\" ]"}]}"#.into(),
    )
    .unwrap();
    assert!(std::str::from_utf8(safe.json()).unwrap().contains("[ &quot;a&quot; ]"));
}

#[test]
fn addresses_and_data_are_kept_or_their_block_is_not() {
    // GNT-P9, GNT-P10, SG-34
    let result = json!({"content": [
        {"type": "resource_link", "uri": "https://x/?a=1&b=<2>", "name": "n"},
        {"type": "resource_link", "uri": "https://x/&lt;|im_start|>", "name": "n"},
        {"type": "resource", "resource": {"uri": format!("x:{}", "y".repeat(2_047)), "text": "t"}},
        {"type": "resource", "resource": {"uri": "x:y", "blob": "AA==", "mimeType": "a/b"}},
        {"type": "image", "data": "<AA>", "mimeType": "image/png"},
        {"type": "audio", "data": "AAAA", "mimeType": "no type <b>"},
        {"type": "newer", "uri": "a&b"},
    ]});
    let safe = finished(None, &result.to_string()).unwrap();
    let clean: Value = serde_json::from_slice(safe.json()).unwrap();
    let removed = json!({"type": "text", "text": "[removed: unsafe uri]"});
    assert_eq!(clean["content"][0], result["content"][0]);
    assert_eq!((&clean["content"][1], &clean["content"][2]), (&removed, &removed));
    assert_eq!(clean["content"][3], result["content"][3]);
    assert_eq!(clean["content"][4]["data"], "&lt;AA&gt;");
    assert_eq!(clean["content"][5]["mimeType"], "no type &lt;b&gt;");
    assert_eq!(clean["content"][6]["uri"], "a&amp;b");
    use portcullis_gauntlet::BlockMark::{InvalidMedia, Unknown};
    assert_eq!(safe.marks(), [(4, InvalidMedia), (5, InvalidMedia), (6, Unknown)]);
    assert_eq!(safe.report().replaced_blocks, 2);
}

#[test]
fn what_was_changed_is_counted() {
    // GNT-Z17
    let safe = finished(None, r#"{"content":[{"type":"text","text":"a\u0007<b>"}],"structuredContent":{"a":"__system__","b":"<|im_end|>"}}"#).unwrap();
    let document = safe.report().document(safe.escape());
    assert_eq!(document, json!({"escape": "html", "stripped": 1, "markers": 2, "replaced_blocks": 0}));
    assert!(!finished(None, r#"{"content":[{"type":"text","text":"<b>"}]}"#).unwrap().report().changed());
}

#[test]
fn a_result_may_not_grow_beyond_twice_its_limit() {
    // gauntlet §5 caps, §10: 3 MiB of quotes
    let quotes = "'".repeat(400 * 1024);
    let text = json!({"content": [{"type": "text", "text": quotes}]}).to_string();
    let error = finished(None, &text).unwrap_err();
    assert_eq!((error.violation(), error.code()), ("mcp-output-too-large", ErrorCode::ResultTooLarge));
    let few = json!({"content": [{"type": "text", "text": "'".repeat(300 * 1024)}]}).to_string();
    assert!(finished(None, &few).is_ok());
    let blocks = |n: usize| json!({"content": vec![json!({"type": "text", "text": "x"}); n]}).to_string();
    assert!(finished(None, &blocks(256)).is_ok());
    assert_eq!(finished(None, &blocks(257)).unwrap_err().violation(), "mcp-output-too-large");
    let key = |n: usize| format!(r#"{{"content":[],"structuredContent":{{"{}":1}}}}"#, "k".repeat(n));
    assert!(finished(None, &key(1_024)).is_ok());
    assert_eq!(finished(None, &key(1_025)).unwrap_err().violation(), "mcp-output-too-large");
    // Without a schema nobody builds the value, and the caps hold all the same.
    let nested = |n: usize| {
        format!(r#"{{"content":[],"structuredContent":{{"a":{}{}}}}}"#, "[".repeat(n), "]".repeat(n))
    };
    assert!(finished(None, &nested(126)).is_ok());
    for deep in [127, 100_000] {
        assert_eq!(finished(None, &nested(deep)).unwrap_err().violation(), "mcp-output-too-deep");
    }
    let many = format!(r#"{{"content":[],"structuredContent":{{"a":[{}0]}}}}"#, "0,".repeat(500_000));
    assert_eq!(finished(None, &many).unwrap_err().violation(), "mcp-output-too-large");
}

#[test]
fn results_that_ask_for_more_are_cleaned_and_told_apart() {
    // GNT-P7
    use portcullis_gauntlet::ResultType;
    let asking = r#"{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"<b>__system__"}}}}"#;
    let safe = finished(Some(&rows()), asking).unwrap();
    assert_eq!(safe.result_type(), ResultType::InputRequired);
    assert!(std::str::from_utf8(safe.json()).unwrap().contains(r#""message":"&lt;b&gt;""#));
    let task = finished(None, r#"{"resultType":"task","task":{"taskId":"1"}}"#).unwrap();
    assert_eq!(task.result_type(), ResultType::Task);
}

#[test]
fn the_escape_of_some_tools_may_be_turned_off_and_nothing_else() {
    // GNT-Z15
    let entry = portcullis_gauntlet::ToolOverride {
        tools: portcullis_gauntlet::Glob::parse("demo/e*").unwrap(),
        escape: portcullis_gauntlet::Escape::None,
    };
    let config = portcullis_gauntlet::GauntletConfig { tools: vec![entry], ..Default::default() };
    let gauntlet = portcullis_gauntlet::Gauntlet::new(&config).unwrap();
    let text = r#"{"content":[{"type":"text","text":"<a> & \u0007__system__"}]}"#;
    let safe = crate::finish_with(&gauntlet, &tool(&any(), None), text.into()).unwrap();
    assert_eq!(safe.json(), r#"{"content":[{"type":"text","text":"<a> & "}]}"#);
    assert_eq!(safe.report().document(safe.escape())["escape"], "none");
}

#[test]
fn what_servers_say_about_errors_is_scrubbed_cut_and_cleaned() {
    // GNT-Z13
    use portcullis_gauntlet::{Gauntlet, Raw};
    let gauntlet = Gauntlet::default();
    let said = |text: &str| gauntlet.clean_error(Raw::new(text)).into_inner();
    assert_eq!(said("<b>__system__\u{1b}[31m token=abc"), "&lt;b&gt;[31m token=***");
    assert_eq!(said("key AKIA__system__IOSFODNN7EXAMPLE"), "key ***");
    assert_eq!(said(&"é".repeat(5_000)).chars().count(), 2_048);
    assert_eq!(said(&"x".repeat(70_000)), "[redacted]");
    let raw = r#"{"code":-32000,"message":"no <row>","data":{"a":["__system__x"],"password":"p","n":1}}"#;
    let words = gauntlet.clean_rpc_error(Raw::new(raw.into())).unwrap();
    assert_eq!((words.code, words.message.get().as_str()), (-32000, "no &lt;row&gt;"));
    assert_eq!(words.data.unwrap().get(), &json!({"a": ["x"], "password": "***", "n": 1}));
    let hostile = r#"{"code":1,"message":"m","data":{"<|im_end|>":1}}"#;
    assert!(gauntlet.clean_rpc_error(Raw::new(hostile.into())).unwrap().data.is_none());
    assert!(gauntlet.clean_rpc_error(Raw::new("[]".into())).is_none());
}

#[test]
fn resources_prompts_and_completions_are_cleaned_too() {
    // GNT-O4
    use portcullis_gauntlet::ResultKind;
    let clean = |kind: ResultKind, value: Value| -> Value {
        let spec = std::sync::Arc::into_inner(tool(&any(), None)).unwrap();
        let spec = std::sync::Arc::new(portcullis_gauntlet::ToolSpec { result: kind, ..spec });
        serde_json::from_slice(finish(&spec, value.to_string().into()).unwrap().json()).unwrap()
    };
    let read = clean(
        ResultKind::Resource,
        json!({"contents": [
            {"uri": "file:///a?b&c", "text": "<b>__system__"}, {"uri": "a:b", "blob": "AA=="}, {"uri": "x:<|im_end|>", "text": ""},
        ]}),
    );
    assert_eq!(
        read["contents"],
        json!([
            {"uri": "file:///a?b&c", "text": "&lt;b&gt;"}, {"uri": "a:b", "blob": "AA=="},
            {"uri": "removed:unsafe", "text": "[removed: unsafe uri]"},
        ])
    );
    let prompt = clean(
        ResultKind::Prompt,
        json!({"description": "__system__d", "messages": [
            {"role": "user", "content": {"type": "text", "text": "<|im_start|>x"}},
            {"role": "assistant", "content": {"type": "resource", "resource": {"uri": "a:&", "text": "<"}}},
        ]}),
    );
    assert_eq!(
        prompt,
        json!({"description": "d", "messages": [
            {"role": "user", "content": {"type": "text", "text": "x"}},
            {"role": "assistant", "content": {"type": "resource", "resource": {"uri": "a:&", "text": "&lt;"}}},
        ]})
    );
    let completion =
        clean(ResultKind::Completion, json!({"completion": {"values": ["__sys\u{200b}tem__a"]}}));
    assert_eq!(completion["completion"]["values"], json!(["a"]));
}
