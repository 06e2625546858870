//! Results in short, part by part.

use portcullis_context::firewall::reference;
use portcullis_context::{About, CallToolResult, Firewall, Format, Handle, Keep, Kept, Source, Status};
use portcullis_context::{Strategy, result_to_envelope};
use portcullis_core::tokens::Encoding;
use serde_json::{Value, json};

fn tokens(text: &str) -> usize {
    Encoding::Cl100k.count(text).max(Encoding::O200k.count(text))
}

fn shown(json: &Value, firewall: &Firewall) -> Option<Value> {
    shown_about(json, firewall, &About::default())
}

fn shown_about(json: &Value, firewall: &Firewall, about: &About<'_>) -> Option<Value> {
    let text = json.to_string();
    let result = CallToolResult::read(&text);
    let cut = firewall.cut(&result, "tool", about)?;
    let kept = cut.artifacts.iter().map(|one| Kept::As(reference(Handle::random(), one))).collect();
    Some(serde_json::from_str(&cut.finish(kept, firewall).0).unwrap())
}

fn envelope_in(shown: &Value) -> Value {
    let parts = shown["content"].as_array().unwrap();
    serde_json::from_str(parts.last().unwrap()["text"].as_str().unwrap()).unwrap()
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[test]
fn a_short_result_passes_as_it_stands() {
    // CTX-1, CTX-2, T-CTX-14
    assert!(shown(&text(&"x".repeat(2_000)), &Firewall::default()).is_none());
    assert!(shown(&text(&"x".repeat(2_001)), &Firewall::default()).is_some());
    let structured = json!({"content": [], "structuredContent": {"k": "x".repeat(1_992)}});
    assert!(shown(&structured, &Firewall::default()).is_none());
    let structured = json!({"content": [], "structuredContent": {"k": "x".repeat(1_993)}});
    assert!(shown(&structured, &Firewall::default()).is_some());
}

#[test]
fn an_envelope_that_is_not_clearly_shorter_is_not_used() {
    // CTX-2: twenty facts and a summary of what is barely long
    let firewall = Firewall { inline_chars: 100, ..Firewall::default() };
    assert!(shown(&text(&"key: value\n".repeat(12)), &firewall).is_none());
}

#[test]
fn a_long_text_is_its_beginning_and_a_handle() {
    // CTX-6, CTX-7
    let long = format!("ISSUE-42 opened.\nstate: open\n{}url: https://example.com\n", "detail\n".repeat(600));
    let shown = shown(&text(&long), &Firewall::default()).unwrap();
    assert_eq!(shown["content"].as_array().unwrap().len(), 1);
    assert!(shown.get("structuredContent").is_none() && shown.get("isError").is_none());
    let envelope = envelope_in(&shown);
    let mut keys: Vec<&str> = envelope.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["artifacts", "facts", "status", "summary", "views"]);
    assert_eq!(envelope["summary"], long[..500]);
    // `state: open` is in the summary already.
    assert_eq!(envelope["facts"], json!(["url: https://example.com"]));
    assert_eq!(envelope["views"], json!(["head", "lines", "grep"]));
    let artifact = &envelope["artifacts"][0];
    assert_eq!(artifact["lines"], 603);
    assert_eq!(artifact["size_bytes"], long.len());
    assert_eq!(artifact["media_type"], "text/plain");
    assert!(artifact.get("label").is_none() && artifact.get("content_hash").is_none());
}

#[test]
fn the_lean_form_has_its_keys_in_order_and_costs_little() {
    // CTX-7
    let long = "word ".repeat(1_000);
    let json = text(&long).to_string();
    let result = CallToolResult::read(&json);
    let firewall = Firewall::default();
    let cut =
        firewall.cut(&result, "tool", &About { tool_id: Some("s:tool#1"), ..About::default() }).unwrap();
    let kept = cut.artifacts.iter().map(|one| Kept::As(reference(Handle::random(), one))).collect();
    let (_, envelope) = cut.finish(kept, &firewall);
    let lean = envelope.to_json(Format::Lean);
    assert!(lean.starts_with(r#"{"status":"ok","summary":"word word"#), "{lean}");
    let order = [
        "\"status\"",
        "\"summary\"",
        "\"artifacts\"",
        "\"handle\"",
        "\"media_type\"",
        "\"size_bytes\"",
        "\"views\"",
    ];
    let places: Vec<usize> = order.iter().map(|key| lean.find(key).unwrap()).collect();
    assert!(places.is_sorted(), "{lean}");
    let beyond = tokens(&lean) - tokens(&envelope.summary);
    assert!(beyond <= 64, "{beyond} tokens beyond the summary");
    let full: Value = serde_json::from_str(&envelope.to_json(Format::Full)).unwrap();
    assert_eq!(full["provenance"], json!({"tool": "tool", "protocol": "mcp", "tool_id": "s:tool#1"}));
    assert_eq!(full["stats"]["strategy"], "summary");
    assert_eq!(full["stats"]["original_bytes"], long.len());
    assert_eq!(full["stats"]["shown_bytes"], lean.len());
    assert_eq!(full["facts"], json!([]));
}

#[test]
fn large_results_cost_a_few_hundred_tokens() {
    // B-CTX-8
    let rows: Vec<Value> = (0..9_000)
        .map(|n| json!({"id": n, "name": format!("customer {n}"), "balance": 12.5, "open": true}))
        .collect();
    for (what, result) in [
        ("prose", text(&"The quick brown fox jumps over the lazy dog: again and again.\n".repeat(160))),
        ("json", text(&serde_json::to_string(&rows).unwrap())),
        ("pretty", text(&serde_json::to_string_pretty(&rows).unwrap())),
        ("structured", json!({"content": [], "structuredContent": {"rows": rows, "total": 9_000}})),
    ] {
        let shown = shown(&result, &Firewall::default()).unwrap();
        let cost = tokens(shown["content"][0]["text"].as_str().unwrap());
        assert!(cost <= 400, "{what}: {cost} tokens");
    }
}

#[test]
fn facts_come_from_structured_content_first() {
    // CTX-6
    let long = "x".repeat(300);
    let json = format!(
        r#"{{"content":[{{"type":"text","text":"a: b\n  spaced: line  \nno fact\n"}}],"structuredContent":{{"count":42,"status":"done","ok":true,"list":[1, {{"a":null}}],"long":"{long}"}}}}"#
    );
    let (envelope, _, full_text) = result_to_envelope(&CallToolResult::read(&json), "t");
    let facts = ["count: 42", "status: done", "ok: true", r#"list: [1,{"a":null}]"#, "a: b", "spaced: line"];
    assert_eq!(envelope.facts, facts);
    assert!(full_text.starts_with("a: b\n  spaced: line  \nno fact\n\ncount: 42\n"), "{full_text}");
    let many = text(&"k: v\n".repeat(30)).to_string();
    assert_eq!(result_to_envelope(&CallToolResult::read(&many), "t").0.facts.len(), 20);
    let long = text(&format!("k: {}", "v".repeat(197))).to_string();
    assert!(result_to_envelope(&CallToolResult::read(&long), "t").0.facts.is_empty());
}

#[test]
fn a_summary_is_cut_between_graphemes() {
    // CTX-6
    let family = "👨‍👩‍👧‍👦";
    let text_of = format!("{}{}", "a".repeat(497), family.repeat(3));
    let json = text(&text_of).to_string();
    assert_eq!(result_to_envelope(&CallToolResult::read(&json), "t").0.summary, "a".repeat(497));
    let combining = format!("e{}", "\u{301}".repeat(1_000));
    let json = text(&combining).to_string();
    assert_eq!(result_to_envelope(&CallToolResult::read(&json), "t").0.summary.chars().count(), 500);
}

#[test]
fn every_kind_of_part_is_kept_or_shown() {
    // CTX-8, T-CTX-11
    let json = json!({"content": [
        {"text": "no type"},
        {"type": "image", "data": "aGVsbG8="},
        {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/mpeg"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b.bin", "blob": "AAEC", "mimeType": "application/zip"}},
        {"type": "resource_link", "uri": "file:///etc/passwd", "name": "users", "mimeType": "text/x-users"},
        {"type": "image", "data": "not base64!"},
        {"type": "hologram", "depth": 3},
        {"type": 7, "text": "odd"},
        17,
    ]})
    .to_string();
    let result = CallToolResult::read(&json);
    let (envelope, artifacts, full_text) = result_to_envelope(&result, "snap");
    assert_eq!(full_text, "no type\ninside");
    assert_eq!(envelope.status, Status::Partial);
    assert_eq!(envelope.provenance.invalid_parts, [6]);
    assert!(
        envelope.summary.starts_with("no type\ninside (+ 1 unknown part (type hologram), 2 unknown parts)"),
        "{}",
        envelope.summary
    );
    let seen: Vec<(&str, &str, &[u8], Option<usize>)> =
        artifacts.iter().map(|a| (&*a.media_type, &*a.label, &*a.bytes, a.part_index)).collect();
    let want: Vec<(&str, &str, &[u8], Option<usize>)> = vec![
        ("text/plain", "", b"no type", Some(0)),
        ("image/png", "image from snap", b"hello", Some(1)),
        ("audio/mpeg", "audio from snap", b"hello", Some(2)),
        ("text/plain", "file:///a.txt", b"inside", Some(3)),
        ("application/zip", "file:///b.bin", &[0, 1, 2], Some(4)),
        ("text/uri-list", "users", b"file:///etc/passwd", Some(5)),
        ("application/octet-stream", "image from snap", b"not base64!", Some(6)),
        ("application/json", "part 7 from snap", br#"{"depth":3,"type":"hologram"}"#, Some(7)),
        ("application/json", "part 8 from snap", br#"{"text":"odd","type":7}"#, Some(8)),
        ("application/json", "part 9 from snap", b"17", Some(9)),
    ];
    assert_eq!(seen, want);
    assert_eq!(artifacts[5].declared_type.as_deref(), Some("text/x-users"));
    assert_eq!(artifacts[4].source, Source::Resource("file:///b.bin".into()));
    assert_eq!(reference(Handle::random(), &artifacts[5]).media_type, "text/x-users");
}

#[test]
fn what_has_no_text_is_counted() {
    // CTX-6
    let png = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [7; 40]);
    let summary = |json: Value| {
        let json = json.to_string();
        result_to_envelope(&CallToolResult::read(&json), "t").0.summary
    };
    assert_eq!(summary(json!({"content": [{"type": "image", "data": png}]})), "1 image (image/png, 40 B)");
    let two = json!({"content": [{"type": "image", "data": png}, {"type": "image", "data": png}]});
    assert_eq!(summary(two), "2 images (image/png, 40 B)");
    assert_eq!(summary(json!({"content": []})), "(no content)");
    assert_eq!(summary(json!({"content": [{"type": "text", "text": ""}]})), "(empty text)");
    assert_eq!(
        summary(json!({"content": [], "structuredContent": [1]})),
        "1 document (application/json, 3 B)"
    );
}

#[test]
fn structured_content_that_a_text_repeats_is_kept_once() {
    // CTX-8
    let value = json!({"rows": (0..300).collect::<Vec<_>>(), "total": 300});
    let json =
        json!({"content": [{"type": "text", "text": serde_json::to_string_pretty(&value).unwrap()}], "structuredContent": value})
            .to_string();
    let result = CallToolResult::read(&json);
    let (envelope, artifacts, _) = result_to_envelope(&result, "q");
    assert_eq!(artifacts.len(), 1);
    assert_eq!(artifacts[0].label, "mcp:q:structured_content");
    assert_eq!(*artifacts[0].bytes, portcullis_core::canon::to_jcs(&value).unwrap());
    assert_eq!(envelope.facts, ["total: 300"]);
    assert_eq!(envelope.shape.as_deref(), Some("{rows[300]int,total:int}"));
}

#[test]
fn annotations_are_recorded_and_not_obeyed() {
    // CTX-9
    let json = json!({"content": [
        {"type": "text", "text": "a", "annotations": {}},
        {"type": "text", "text": "hidden?", "annotations": {"audience": ["user"], "priority": 0}},
    ]})
    .to_string();
    let (envelope, _, text) = result_to_envelope(&CallToolResult::read(&json), "t");
    assert_eq!(text, "a\nhidden?");
    let want = json!([{"part_index": 1, "audience": ["user"], "priority": 0}]);
    assert_eq!(json!(envelope.provenance.content_annotations), want);
}

#[test]
fn pictures_pass_beside_an_envelope_unless_they_are_heavy() {
    // CTX-3
    let image = |bytes: usize| {
        let data = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, vec![7; bytes]);
        json!({"type": "image", "data": data, "mimeType": "image/png"})
    };
    let long = "line of text\n".repeat(1_000);
    let light = json!({"content": [{"type": "text", "text": long}, image(1_000)]});
    let shown_light = shown(&light, &Firewall::default()).unwrap();
    assert_eq!(shown_light["content"][0], image(1_000));
    assert_eq!(envelope_in(&shown_light)["artifacts"].as_array().unwrap().len(), 1);
    assert!(shown(&json!({"content": [image(200_000)]}), &Firewall::default()).is_none());

    let heavy = json!({"content": [{"type": "text", "text": "short"}, image(300_000)], "structuredContent": {"n": 1}});
    let shown_heavy = shown(&heavy, &Firewall::default()).unwrap();
    assert_eq!(shown_heavy["content"][0], json!({"type": "text", "text": "short"}));
    assert_eq!(shown_heavy["structuredContent"], json!({"n": 1}));
    let envelope = envelope_in(&shown_heavy);
    assert_eq!(envelope["summary"], "1 image (image/png, 300.0 kB)");
    assert_eq!(envelope["views"], json!(["bytes", "part"]));
    assert_eq!(envelope["artifacts"][0]["size_bytes"], 300_000);
}

#[test]
fn a_failed_tool_stays_failed() {
    let failed = json!({"content": [{"type": "text", "text": "stack\n".repeat(1_000)}], "isError": true});
    let shown = shown(&failed, &Firewall::default()).unwrap();
    assert_eq!((&shown["isError"], &envelope_in(&shown)["status"]), (&json!(true), &json!("error")));
}

#[test]
fn an_envelope_is_structured_content_only_if_wanted() {
    // CTX-7
    let firewall = Firewall { structured: true, ..Firewall::default() };
    let shown = shown(&text(&"x\n".repeat(5_000)), &firewall).unwrap();
    assert_eq!(shown["structuredContent"], envelope_in(&shown));
}

#[test]
fn an_operator_chooses_paths_instead_of_a_summary() {
    // CTX-41
    let rows: Vec<Value> = (0..50).map(|n| json!({"id": n, "body": "x".repeat(100)})).collect();
    let result = json!({"content": [], "structuredContent": {"items": rows}});
    let keep = Keep::parse(&["/items/*/id"]).unwrap();
    let about = About { keep: Some(&keep), ..About::default() };
    let firewall = Firewall { format: Format::Full, ..Firewall::default() };
    let envelope = envelope_in(&shown_about(&result, &firewall, &about).unwrap());
    assert_eq!(envelope["stats"]["strategy"], json!(Strategy::Projection));
    assert!(envelope["summary"].as_str().unwrap().starts_with(r#"{"items":[{"id":0},{"id":1}"#));
}

#[test]
fn what_cannot_be_kept_is_shown_as_far_as_there_is_room() {
    // CTX-24
    let json = text(&"0123456789\n".repeat(1_000)).to_string();
    let result = CallToolResult::read(&json);
    let firewall = Firewall::default();
    let cut = firewall.cut(&result, "t", &About::default()).unwrap();
    let (_, envelope) = cut.finish(vec![Kept::Not], &firewall);
    assert_eq!(envelope.status, Status::Partial);
    assert_eq!(envelope.provenance.invalid_parts, [0]);
    assert_eq!(envelope.summary.len(), 2_000);
    assert!(envelope.artifacts.is_empty() && envelope.views.is_empty());
}
